/* SPDX-License-Identifier: MIT
 *
 * Sleeping and waking: no wake-up is lost. A lost one leaves somebody asleep for ever, which spin
 * reports as an invalid end state (no process here has a time-out).
 *
 * Stands for: producer() = link_ring in src/link/publish.c and find_slot in src/link/begin.c; thread() =
 * the importer's wait; producer_service(), importer_service() = the service threads of both processes.
 * A futex is two steps here, as in the kernel: compare-and-queue, then sleep until somebody wakes.
 *
 * Options:    THREADS threads of one importer that wait (1 or 2); FULL the producer waits for a slot;
 *             KILL the producer dies at any step; LATE the importer joins at any moment;
 *             REFUSED with FULL: a thread's lease is refused once, at any moment
 * Mutations:  NO_RECHECK  the consumer doesn't look again after asleep := 1
 *             BELL_LATE   the bell is read after the conditions were looked at
 *             DELAYED     asleep := 1 is a plain store: it becomes visible after the loads behind it
 *             CLEAR       with THREADS = 2: the first thread that wakes stores asleep := 0
 *             OLD_MEMBERS with LATE: the producer rings with the members of its scan, made before head
 *             SCAN_FIRST  the producer looks for a slot before waiting := 1, not after
 *             NO_TURN     its service thread wakes the producer's futex without changing its value
 *             NO_TELL     a cursor (or taken) store is not followed by a look at waiting
 *             NO_WORD     with REFUSED: who takes a refused lease's word back does not look at waiting
 *             NO_REPEAT   the importer's service thread wakes once after the producer's death, not until all are up
 */
#include "verdicts.pml"
#ifndef THREADS
#define THREADS 1
#endif
#define FRAMES 2

byte head, bell, released;
byte asleep, visible_asleep;           /* a count of threads; visible: what the producer sees of it */
bool member, waiting, told, dead, over, finished;
bool wanted;                           /* a lease that will be refused is in the slot's way */
bool queued[THREADS];                  /* in the kernel's queue of the bell's futex */
byte turn; bool producer_queued;       /* the producer's own futex */
byte up;                               /* threads that have seen everything */

#ifdef DELAYED
#define LOOK_ASLEEP visible_asleep
#else
#define LOOK_ASLEEP asleep
#endif

#if THREADS > 1
#define WAKE_BELL queued[0] = false; queued[1] = false
#else
#define WAKE_BELL queued[0] = false
#endif

/* link_ring */
inline ring() {
  bell++;
#ifndef OLD_MEMBERS
  seen_member = member;
#endif
  if
  :: seen_member && LOOK_ASLEEP > 0 -> d_step { WAKE_BELL }
  :: else
  fi
}

#ifdef FULL
#define PLACE(sequence) (sequence <= released + 1 && !wanted)
#else
#define PLACE(sequence) true
#endif

proctype producer() {
  byte sequence = 1, turn_seen;
  bool seen_member;
  {
    do
    :: sequence <= FRAMES ->
       /* find_slot: set the bit, look again, sleep */
       do
       :: PLACE(sequence) -> break
       :: else ->
          turn_seen = turn;
          waiting = true;
#ifndef SCAN_FIRST
          if
          :: PLACE(sequence) -> break
          :: else
          fi;
#endif
          atomic { if :: turn == turn_seen -> producer_queued = true :: else fi };
          !producer_queued
       od;
       waiting = false;
       seen_member = member;             /* the scan */
       head = sequence;
       ring();
       sequence++
    :: else -> break
    od;
    finished = true;
    ring()
  } unless { dead }
}

/* A consumer told it: by a byte through the socket, so this comes any time later. */
proctype producer_service() {
end: do
  :: told -> told = false;
#ifndef NO_TURN
     turn++;
#endif
     producer_queued = false
  od
}

#define NEWS (head > have || finished || over)

proctype thread(byte t) {
  byte have, bell_seen;
  bool refused;
  member;
  do
#ifdef REFUSED
  :: !refused ->
     refused = true;
     wanted = true;
     wanted = false;
#ifndef NO_WORD
     if :: waiting -> told = true :: else fi
#endif
#endif
  :: NEWS ->
     if
     :: head > have ->
        have++;
        /* each store of want, cursor and taken that a producer may wait for is followed by this look */
#ifdef FULL
        released = have;
#ifndef NO_TELL
        if :: waiting -> told = true :: else fi
#endif
#endif
     :: head <= have && (finished || over) -> break
     :: else
     fi
  :: !NEWS ->
#ifndef BELL_LATE
     bell_seen = bell;
#endif
     asleep++;
#ifdef NO_RECHECK
     if
     :: true ->
#else
     if
     :: NEWS -> skip
     :: else ->
#endif
#ifdef BELL_LATE
        bell_seen = bell;
#endif
        atomic { if :: bell == bell_seen -> queued[t] = true :: else fi };
        !queued[t]
     fi;
#ifdef CLEAR
     asleep = 0
#else
     asleep--
#endif
  od;
  up++
}

/* The store buffer of the consumer's CPU, for DELAYED only. */
proctype delay() {
#ifdef DELAYED
end: do
  :: visible_asleep != asleep -> visible_asleep = asleep
  od
#else
  skip
#endif
}

proctype killer() {
#ifdef KILL
  dead = true
#else
  skip
#endif
}

/* The importer's service thread sees the socket end. It can't change the bell (read-only for it), so a
   thread between its last look and the kernel's queue sleeps through one wake-up: it repeats. */
proctype importer_service() {
#ifdef KILL
  dead; over = true;
  d_step { WAKE_BELL };
#ifndef NO_REPEAT
  do
  :: up < THREADS && (queued[0] || queued[THREADS - 1]) -> d_step { WAKE_BELL }
  :: up == THREADS -> break
  od
#endif
#else
  skip
#endif
}

proctype join() { member = true }

init {
  byte t;
  atomic {
#ifndef LATE
    member = true;
#endif
    do :: t < THREADS -> run thread(t); t++ :: else -> break od;
    run producer(); run producer_service(); run killer(); run importer_service(); run delay();
    if :: !member -> run join() :: else fi
  }
}
