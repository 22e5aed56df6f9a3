/* SPDX-License-Identifier: MIT
 *
 * wait_next: the producer owns and announces the slot of the next frame right after a publish; a
 * consumer leases it and its stream waits, before the frame exists.
 *
 * Stands for: producer() = announce, link_withdraw and link_void in src/link/publish.c; consumer() =
 * take_announced in src/link/next.c with link_lease_take in src/link/lease.c.
 *
 * Options:    ELSEWHERE    a frame may be published where it lies in a pool, unless its announced slot is wanted
 *                          (can_share in src/link/publish.c)
 *
 * Mutations:  NO_LOOK      (with ELSEWHERE) nobody looks whether the slot is wanted
 *             LOOK_FIRST   (with ELSEWHERE) they look before the announcement is withdrawn
 *             NO_CHECK     the consumer doesn't look at the announcement again after leasing
 *             NO_WITHDRAW  the announcement is not withdrawn before the following slot is looked for
 *             NO_VOID      a frame that was announced but dropped is never completed
 */
#include "verdicts.pml"
#define SLOTS 3
#ifndef FRAMES
#define FRAMES 4
#endif
#define CONSUMERS 2
#define WORD(sequence, slot) ((sequence) * SLOTS + (slot) + 1)
#define SEQUENCE(word) (((word) - 1) / SLOTS)
#define SLOT(word) (((word) - 1) % SLOTS)

byte st[SLOTS], next, head, want[CONSUMERS];
byte written[SLOTS];                   /* ghost: the frame that the slot's memory is used for */
byte completed[SLOTS];                 /* the last frame that was completed there: published or void */
bool finished;

inline look_who_wants(slot) {
  held = (want[0] != 0 && SLOT(want[0]) == slot);
  held = held || (want[1] != 0 && SLOT(want[1]) == slot)
}

proctype producer() {
  byte sequence = 1, s, i, old;
  bool held;
  written[0] = 1; next = WORD(1, 0);
  do
  :: sequence <= FRAMES ->
     if
     :: st[s] = sequence; head = WORD(sequence, s); completed[s] = sequence       /* publish */
#ifdef ELSEWHERE
     :: held = false;
#ifdef LOOK_FIRST
        look_who_wants(s);
#endif
        next = 0;
#if !defined(LOOK_FIRST) && !defined(NO_LOOK)
        look_who_wants(s);
#endif
        if :: held :: else -> written[s] = 0 fi;  /* nothing comes to the slot's own memory */
        st[s] = sequence; head = WORD(sequence, s); completed[s] = sequence
#endif
     :: sequence < FRAMES ->                                                      /* drop */
#ifndef NO_VOID
        completed[s] = sequence
#else
        skip
#endif
     fi;
     sequence++;
#ifndef NO_WITHDRAW
     next = 0;
#endif
     if :: sequence > FRAMES -> break :: else fi;
own: i = 0;
     do
     :: i < SLOTS ->
        if
        :: head != 0 && i == SLOT(head)
        :: else ->
           old = st[i]; st[i] = 0;
           look_who_wants(i);
           if :: held -> st[i] = old :: else -> break fi
        fi;
        i++
     :: else -> break
     od;
     if :: i == SLOTS -> next = 0; goto own :: else fi;
     s = i; written[s] = sequence; next = WORD(sequence, s)
  :: else -> break
  od;
  next = 0; finished = true
}

proctype consumer(byte c) {
  byte seen, tries;
  do
  :: tries < 2 ->
     next != 0 || finished;
     seen = next;
     if
     :: seen == 0 -> if :: finished -> break :: else fi
     :: else ->
        want[c] = seen;
        if
#ifdef NO_CHECK
        :: true ->
#else
        :: next != seen
        :: next == seen ->
#endif
           completed[SLOT(seen)] >= SEQUENCE(seen);      /* the stream's wait on its mirror */
           never(torn, written[SLOT(seen)] != SEQUENCE(seen));
           never(torn, written[SLOT(seen)] != SEQUENCE(seen));
           tries++
        fi;
        want[c] = 0
     fi
  :: else -> break
  od
}

init { atomic { run producer(); run consumer(0); run consumer(1) } }
