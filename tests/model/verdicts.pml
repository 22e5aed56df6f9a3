/* SPDX-License-Identifier: MIT
 *
 * How a model says what went wrong: one flag per kind of harm, so that the failed assertion that
 * spin prints names the harm. "hang" has no flag: it is spin's invalid end state.
 */
bool torn;        /* memory was written while somebody reads it, or read before it was written */
bool skipped;     /* a frame that was promised to a consumer was gone */
bool duplicated;  /* a frame was delivered twice without the mark, or more often than it was lost */
bool unmapped;    /* a mailbox was read after it had been unmapped */
bool stuck;       /* nobody holds a slot, but it looks held */
bool given_up;    /* a wait was ended although its producer lives and its limit has not passed */

#ifdef REPLAY
/* A recorded run is accepted when SOME order of its steps is harmless: harm ends only this order. */
#define never(harm, condition) harm = harm || (condition)
#else
#define never(harm, condition) atomic { harm = (condition); assert(!harm) }
#endif
