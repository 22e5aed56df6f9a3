/* SPDX-License-Identifier: MIT
 *
 * Every-frame members: no frame is skipped, nobody hangs, a dead member holds nobody up.
 *
 * A position is the sequence number of the NEXT frame a member needs: max(joined, cursor); joined = 0
 * means "not set yet" and blocks all reuse. The index of the last 64 frames is shortened to WINDOW.
 * Stands for: publisher() = link_own_slot + link_publish (src/link/publish.c), member() = the every-frame
 * side of link_lease_take (src/link/lease.c), service() = src/link/membership.c.
 *
 * Options:    ABANDON a frame may be abandoned (void in the index); SWITCH the generation changes once, at
 *             any moment; LOSE the producer may take a member's position away once (hold_limit);
 *             KILL member 0 dies at any step; LATE member 1 joins at any moment
 * Mutations:  EARLY_CURSOR  cursor advances before the lease is confirmed
 *             NO_POSITION   slots are reused whatever the members still need
 *             NO_WINDOW     index entries are overwritten whatever the members still need
 *             NO_DRAIN      the generation changes before every member has taken every frame
 *             JOINED_FIRST  joined is computed before the member's bit is in the mask
 *             JOINED_BY_HEAD joined is computed from head, which is 0 after a change of generation
 *             LAST_TAKEN    a position is the last frame taken, not the next one needed
 *             NO_LEAVE      the bit of a dead member stays in the mask
 */
#include "verdicts.pml"
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef FRAMES
#define FRAMES 6
#endif
#ifndef MEMBERS
#define MEMBERS 1
#endif
#define WINDOW 4
#define VOID SLOTS
#define NONE 255

byte st[SLOTS];                /* frame in the slot, 0 = the producer owns it */
byte index[WINDOW];            /* frame -> slot or VOID */
byte head;                     /* newest frame, 0 = none (the slot comes from the index here) */
byte next_sequence = 1;        /* producer's private counter, read by its service thread */
bool in_mask[MEMBERS];
byte joined[MEMBERS], cursor[MEMBERS];
byte generation;
byte want[MEMBERS];            /* MEMORY + 1, 0 = none */
bool dead[MEMBERS];
bool finished;
#define MEMORY(g, s) ((g) * SLOTS + (s))
byte reading[MEMBERS];         /* ghost: the memory + 1 that the member really reads, 0 = none */

#define POSITION(m) (joined[m] > cursor[m] -> joined[m] : cursor[m])

/* The look before the mark: may slot s be tried? It is also what a waiting producer waits for. */
#ifdef NO_POSITION
#define OLDER(s, m) true
#elif defined(LAST_TAKEN)
#define OLDER(s, m) (!in_mask[m] || st[s] + 1 < POSITION(m))
#else
#define OLDER(s, m) (!in_mask[m] || st[s] < POSITION(m))
#endif
#ifdef NO_WINDOW
#define ROOM(m) true
#else
#define ROOM(m) (!in_mask[m] || sequence < WINDOW || sequence - WINDOW < POSITION(m))
#endif
#ifdef NO_DRAIN
#define DRAINED(m) true
#else
#define DRAINED(m) (!in_mask[m] || sequence - 1 < POSITION(m))
#endif
#define HELD(s, m) (in_mask[m] && want[m] == MEMORY(generation, s) + 1)
#define UNREAD(m) (reading[m] != MEMORY(generation, s) + 1)
#if MEMBERS > 1
#define ALL(test) (test(0) && test(1))
#define CANDIDATE(s) ((s) != newest && OLDER(s, 0) && OLDER(s, 1))
#else
#define ALL(test) test(0)
#define CANDIDATE(s) ((s) != newest && OLDER(s, 0))
#endif

proctype publisher() {
  byte sequence = 1, s, old, m, newest = NONE;
  bool held, switched, took_away;
  do
  :: sequence <= FRAMES && ALL(ROOM) ->
own: if
     :: CANDIDATE(0) -> s = 0
     :: CANDIDATE(1) -> s = 1
#if SLOTS > 2
     :: CANDIDATE(2) -> s = 2
#endif
     fi;
     old = st[s];
     st[s] = 0;                          /* the mark */
     held = false; m = 0;
     do
     :: m < MEMBERS -> held = held || HELD(s, m); m++
     :: else -> break
     od;
     if :: held -> st[s] = old; goto own :: else fi;
     never(torn, !ALL(UNREAD));       /* the memory is written now */
     if
     :: index[sequence % WINDOW] = s; st[s] = sequence; head = sequence; newest = s
#ifdef ABANDON
     :: index[sequence % WINDOW] = VOID; head = sequence
#endif
     fi;
     sequence++; next_sequence = sequence
#ifdef SWITCH
  :: !switched && ALL(DRAINED) -> switched = true;
     s = 0; do :: s < SLOTS -> st[s] = 0; s++ :: else -> break od;
     head = 0; newest = NONE; generation = 1
#endif
#ifdef LOSE
  :: !took_away && joined[0] != 0 -> took_away = true; joined[0] = sequence
#endif
  :: sequence > FRAMES -> break
  od;
  finished = true
}

proctype member(byte m) {
  byte position, g, s;
  {
    in_mask[m] && joined[m] != 0; position = joined[m];
    do
    :: joined[m] > position -> position = joined[m]        /* frames lost by hold_limit: counted */
    :: head >= position ->
       g = generation; s = index[position % WINDOW];
       if
       :: s == VOID -> position++; cursor[m] = position
       :: else ->
          want[m] = MEMORY(g, s) + 1;
#ifdef EARLY_CURSOR
          cursor[m] = position + 1;
#endif
          if
          :: atomic { st[s] == position && generation == g -> reading[m] = MEMORY(g, s) + 1 };
             position++; cursor[m] = position;            /* only now: the lease is confirmed */
             reading[m] = 0;
             want[m] = 0
          :: atomic { st[s] != position || generation != g -> never(skipped, joined[m] <= position) };
             want[m] = 0
          fi
       fi
    :: finished && head < position && joined[m] <= position -> break
    od
  } unless { dead[m] };
  if :: !dead[m] -> never(skipped, position != FRAMES + 1) :: else fi
}

/* The service thread of the producer: membership. The order mask, then joined is the point. */
#ifdef JOINED_BY_HEAD
#define FIRST_NEEDED (head + 1)
#else
#define FIRST_NEEDED next_sequence
#endif
proctype service() {
  byte first;
#ifdef LATE
  byte m = MEMBERS - 1;
#ifdef JOINED_FIRST
  first = FIRST_NEEDED; joined[m] = first; in_mask[m] = true;
#else
  in_mask[m] = true; first = FIRST_NEEDED; joined[m] = first;
#endif
#endif
end: do
#ifndef NO_LEAVE
  :: dead[0] && in_mask[0] -> in_mask[0] = false
#else
  :: false
#endif
  od
}

proctype killer() {
#ifdef KILL
  atomic { dead[0] = true; reading[0] = 0 }
#else
  skip
#endif
}

init {
  byte m;
  atomic {
#ifndef LATE
    in_mask[MEMBERS - 1] = true; joined[MEMBERS - 1] = 1;
#endif
#if MEMBERS > 1
    in_mask[0] = true; joined[0] = 1;
#endif
    do :: m < MEMBERS -> run member(m); m++ :: else -> break od;
    run publisher(); run service(); run killer()
  }
}
