/* SPDX-License-Identifier: MIT
 *
 * Changing the generation: a consumer never holds memory of the wrong generation, and memory that an
 * evicted consumer still holds is never written.
 *
 * Memory is named by (generation, slot); st, head and index are shared by all generations.
 * Stands for: producer() = link_own_slot, show() in src/link/publish.c, link_generation_switch and
 * link_generation_collect in src/link/generation.c; consumer() = link_lease_take, link_lease_release in
 * src/link/lease.c. A consumer takes the newest frame by head, or any by the index.
 *
 * Options:    FREE memory of an old generation is given back when no lease names it (kind ipc)
 * Mutations:  GENERATION_FIRST  gen := new comes before st := 0 and head := 0
 *             NO_GENERATION_CHECK  the consumer doesn't look at gen after leasing
 *             NO_ZERO              st is not set to 0 by the switch
 *             CONCURRENT        the switch runs beside link_own_slot (two threads, no lock)
 *             FREE_FIRST        (with FREE) leases are looked at before gen := new
 */
#include "verdicts.pml"
#ifndef FRAMES
#define FRAMES 4
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#define SLOTS 2
#define GENERATIONS 3
#define NONE 255
#define MEMORY(g, s) ((g) * SLOTS + (s))
#define HEAD(q, s) ((q) * SLOTS + (s) + 1)

byte st[SLOTS], index[FRAMES + 1] = NONE, head, generation;
byte want[CONSUMERS];                  /* MEMORY + 1, 0 = none */
byte reading[CONSUMERS];               /* ghost: the memory + 1 that it really reads */
byte content[GENERATIONS * SLOTS];     /* ghost: the frame in that memory, 0 = none or half written */
bool freed[GENERATIONS];
bool switched_aside, finished;

#if CONSUMERS > 1
#define READ(memory) (reading[0] == (memory) + 1 || reading[1] == (memory) + 1)
#define WANTED(memory) (want[0] == (memory) + 1 || want[1] == (memory) + 1)
#else
#define READ(memory) (reading[0] == (memory) + 1)
#define WANTED(memory) (want[0] == (memory) + 1)
#endif
#define HELD(s) WANTED(MEMORY(generation, s))

inline zero() {
#ifndef NO_ZERO
  st[0] = 0; st[1] = 0;
#endif
  head = 0
}

/* link_generation_switch. The memory of the old one stays as it is. */
inline change() {
#ifdef GENERATION_FIRST
  generation = generation + 1; zero()
#else
#ifdef FREE_FIRST
  free(generation);
#endif
  zero(); generation = generation + 1
#endif
}

/* link_generation_collect */
inline free(g) {
  if :: WANTED(MEMORY(g, 0)) || WANTED(MEMORY(g, 1)) -> skip
     :: else -> freed[g] = true
  fi
}

proctype producer() {
  byte sequence = 1, s, old, newest = NONE, fresh;
  bool held;
  do
  :: sequence <= FRAMES ->
     fresh = generation;
     if :: newest != 0 -> s = 0 :: newest != 1 -> s = 1 fi;
     old = st[s]; st[s] = 0;
     held = HELD(s);
     if
     :: held -> st[s] = old
     :: else ->
        atomic { never(torn, READ(MEMORY(fresh, s))); content[MEMORY(fresh, s)] = 0 };
        content[MEMORY(fresh, s)] = sequence;
        index[sequence] = s; st[s] = sequence; head = HEAD(sequence, s);
        newest = s; sequence++
     fi
#ifndef CONCURRENT
  :: sequence > 1 && sequence <= FRAMES && generation < GENERATIONS - 1 -> change(); newest = NONE
#endif
#if defined(FREE) && !defined(FREE_FIRST)
  :: generation > 0 && !freed[generation - 1] -> free(generation - 1)
#endif
  :: sequence > FRAMES -> break
  od;
  finished = true
}

proctype switcher() {
#ifdef CONCURRENT
  change()
#else
  skip
#endif
}

proctype consumer(byte c) {
  byte g, h, s, q, tries;
  do
  :: tries < 3 ->
     tries++;
     g = generation;                                   /* before the frame is looked up */
     if
     :: h = head; q = (h - 1) / SLOTS; s = (h - 1) % SLOTS
     :: if :: q = 1 :: q = 2 :: q = 3 fi; s = index[q]; h = (s == NONE -> 0 : 1)
     fi;
     if
     :: h == 0 -> skip
     :: else ->
        want[c] = MEMORY(g, s) + 1;
        if
        :: st[s] == q ->
#ifndef NO_GENERATION_CHECK
           if :: generation == g ->
#endif
              reading[c] = MEMORY(g, s) + 1;
              atomic { never(torn, content[MEMORY(g, s)] != q); never(unmapped, freed[g]) };
              atomic { never(torn, content[MEMORY(g, s)] != q); never(unmapped, freed[g]); reading[c] = 0 }
#ifndef NO_GENERATION_CHECK
              :: else
           fi
#endif
        :: else
        fi;
        want[c] = 0
     fi
  :: tries == 3 || finished -> break
  od
}

init { byte c; atomic { run producer(); run switcher();
  do :: c < CONSUMERS -> run consumer(c); c++ :: else -> break od } }
