/* SPDX-License-Identifier: MIT
 *
 * Joining, leaving and dying while the producer scans.
 *
 * Consumer 0 joins and leaves; consumer 1 joins after it, in the same place of the member table. Each
 * connection has a mailbox of its own.
 * Stands for: producer() = take() in src/link/slot.c, service() = src/link/membership.c (join, leave, death),
 * consumer() = link_lease_take, link_lease_release; gpu() = a stream of a consumer.
 * Today the code holds the exporter's mutex across scan, join and leave (LOCK); the model shows that the order
 * of PROTOCOL.md is enough without it, so the mutex may go one day.
 *
 * Options:    LOCK scan, join and leave exclude each other; KILL consumer 0 dies instead of leaving, with a
 *             GPU read and its release still queued
 * Mutations:  MASK_FIRST    the mask is loaded before the mark
 *             NO_SECTION    the mailbox is unmapped without looking whether the producer is in its scan
 *             SECTION_LATE  the producer enters its section after loading the mask
 *             REUSE         consumer 1 gets the mailbox of consumer 0, cleared
 *             FREE_AT_ONCE  with KILL: the dead one's leases are free before its GPU work has ended
 */
#include "verdicts.pml"
#define SLOTS 2
#define FRAMES 3
#define NONE 255
#ifdef REUSE
#define BOX(c) 0
#else
#define BOX(c) (c)
#endif

byte st[SLOTS], head;                      /* head: sequence * SLOTS + slot + 1 */
byte want[2], done[2];                     /* one entry; ticket * SLOTS + slot + 1 */
bool mapped[2], member[2], in_mask, dead, left, gpu_reads, finished, lock;
byte box_at;                               /* the record of the place: its mailbox */
bool in_section;
byte readers[SLOTS];
chan stream[2] = [1] of { byte, byte };    /* word, slot */

#ifdef LOCK
#define ENTER atomic { !lock -> lock = true }
#define LEAVE lock = false
#else
#define ENTER skip
#define LEAVE skip
#endif

proctype producer() {
  byte sequence = 1, s, old, word, box, newest = NONE;
  bool held, mask;
  do
  :: sequence <= FRAMES ->
     if :: newest != 0 -> s = 0 :: newest != 1 -> s = 1 fi;
     ENTER;
#ifndef SECTION_LATE
     in_section = true;
#endif
#ifdef MASK_FIRST
     mask = in_mask;
#endif
     old = st[s]; st[s] = 0;
#ifndef MASK_FIRST
     mask = in_mask;
#endif
#ifdef SECTION_LATE
     in_section = true;
#endif
     held = false;
     if
     :: mask ->
        box = box_at;
        atomic { word = want[box]; never(unmapped, !mapped[box]) };
        if
        :: word != 0 && (word - 1) % SLOTS == s ->
           atomic { held = (done[box] != word); never(unmapped, !mapped[box]) }
        :: else
        fi
     :: else
     fi;
     if
     :: held -> st[s] = old
     :: else ->
        never(torn, readers[s] != 0);
        st[s] = sequence; head = sequence * SLOTS + s + 1; newest = s; sequence++
     fi;
     in_section = false;
     LEAVE
  :: else -> break
  od;
  finished = true
}

inline wait_outside() {
#ifndef NO_SECTION
  !in_section
#else
  skip
#endif
}

proctype service() {
  /* consumer 0 joins: record first, then the mask */
  ENTER; box_at = 0; mapped[0] = true; in_mask = true; LEAVE;
  member[0] = true;
  left || dead;
#ifndef FREE_AT_ONCE
  !gpu_reads;                              /* done has landed, its process has exited, or 50 ms have passed */
#endif
  ENTER; in_mask = false; LEAVE;
#ifdef REUSE
  want[0] = 0; done[0] = 0;
#else
  wait_outside(); mapped[0] = false;
#endif
  ENTER; mapped[BOX(1)] = true; box_at = BOX(1); in_mask = true; LEAVE;
  member[1] = true
}

/* A stream of consumer c: reads to the end, then says so. After a kill it goes on for a while. */
proctype gpu(byte c) {
  byte word, s;
end: do
  :: stream[c]?word,s ->
     atomic { readers[s]--; if :: c == 0 -> gpu_reads = false :: else fi };
     done[BOX(c)] = word
  od
}

proctype consumer(byte c) {
  byte h, s, word, ticket, tries;
  member[c];
  do
  :: tries < 2 ->
     tries++;
     if :: h = head :: h = (st[0] -> st[0] * SLOTS + 1 : 0) :: h = (st[1] -> st[1] * SLOTS + 2 : 0) fi;   /* or by the index */
     if
     :: h == 0 || !(want[BOX(c)] == 0 || done[BOX(c)] == want[BOX(c)]) -> skip
     :: else ->
        s = (h - 1) % SLOTS;
        ticket++; word = ticket * SLOTS + s + 1;
        want[BOX(c)] = word;
        if
        :: atomic { st[s] == (h - 1) / SLOTS -> readers[s]++ };
           if
           :: atomic { readers[s]--; want[BOX(c)] = 0 }
           :: atomic { stream[c]!word,s; if :: c == 0 -> gpu_reads = true :: else fi };
#ifdef KILL
              if :: c == 0 -> dead = true; goto gone :: else fi
#endif
           fi
        :: else -> want[BOX(c)] = 0
        fi
     fi
  :: tries == 2 -> break
  od;
#ifdef KILL
  if :: c == 0 -> dead = true :: else fi;
#else
  if
  :: c == 0 ->
#ifndef REUSE
     want[0] == 0 || done[0] == want[0];
#endif
     left = true
  :: else
  fi;
#endif
gone: skip
}

init { atomic {
  run consumer(0); run consumer(1); run gpu(0); run gpu(1);
  run producer(); run service() } }
