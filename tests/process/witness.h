/* SPDX-License-Identifier: MIT
 *
 * How long something took this process, not counting the time in which the machine let it wait for
 * a processor: so that a limit holds on a busy machine too.
 */
#ifndef CUDALINK_TESTS_PROCESS_WITNESS_H
#define CUDALINK_TESTS_PROCESS_WITNESS_H

#include <stdint.h>

/* Starts the witness: a thread that sleeps for a millisecond again and again and adds up how much
 * too late it ran. */
void witness_start(void);

/* The sum so far, in nanoseconds: cheap, but blind to threads that are ready and don't run. */
uint64_t witness_late(void);

struct witness_mark {
  uint64_t time, late, delayed;
};
struct witness_mark witness_now(void);
/* Nanoseconds since the mark without the witness's lateness, and without the time for which other
 * threads of this process were ready to run but did not. */
int64_t witness_since(const struct witness_mark *mark);

#endif
