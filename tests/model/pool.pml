/* SPDX-License-Identifier: MIT
 *
 * Frames that lie in blocks of a pool: a tensor is given back to its owner, who writes to it at once, only
 * when nobody reads it; a block is read only by who has mapped it, and unmapped only when nobody reads it.
 * That a block is gone may be read when a newer frame in it is held already: it has come back since.
 *
 * The slot's words are those of lease.pml and generation.pml; here they guard memory elsewhere. Tensors
 * 0 and 1 lie in block 0, tensors 2 and 3 in block 1, and so on.
 * Stands for: producer() = link_own_slot, link_share_end, finish() in src/link/publish.c, link_share_tell,
 * link_generation_switch, link_generation_collect with link_share_held, and close_fire in
 * src/link/exporter.c; consumer() = look() and fill() in src/link/acquire.c; receiver() = link_pool_add and
 * link_pool_gone.
 *
 * Mutations:  END_FIRST     a tensor is given back before its slot is marked and the leases are looked at
 *             OLD_ENDS      those of an older generation are given back without a look at the leases
 *             SCAN_FIRST    leases are looked at before gen := new
 *             CLOSE_ENDS    close gives all of them back at once
 *             GONE_EARLY    a block is called gone while frames lie in it
 *             NO_USE_CHECK  the consumer unmaps what is gone without asking whether it reads it
 *             NO_MAP_CHECK  the consumer does not ask whether it has mapped the block
 *             LATE_UNTOLD   who joins late is not told of the blocks that there are
 */
#include "verdicts.pml"
#ifndef FRAMES
#define FRAMES 4
#endif
#ifndef GENERATIONS
#define GENERATIONS 2
#endif
#define SLOTS 2
#define TENSORS 6
#define BLOCKS 3
#define NONE 255
#define MEMORY(g, s) ((g) * SLOTS + (s))
#define HEAD(q, s) ((q) * SLOTS + (s) + 1)
#define BLOCK(t) ((t) / 2)

byte st[SLOTS], head, generation;
byte want;                             /* MEMORY + 1, 0 = none */
byte tensor_in[GENERATIONS * SLOTS] = NONE; /* the header: where the frame lies */
bool has[BLOCKS];                      /* the consumer has mapped it, */
bool gone[BLOCKS];                     /* and was told that it is gone */
bool joined, closed, finished;
chan messages = [4] of { bool, byte }; /* true: there is a block; false: it is gone */

byte share[GENERATIONS * SLOTS] = NONE; /* the producer's: the tensor that it keeps for that frame */
bool known[BLOCKS], told[BLOCKS];

byte content[TENSORS];                 /* ghost: the frame in that tensor, 0 = its owner has it again */
byte reading = NONE;                   /* ghost: the tensor that is really read */

#define WANTED(g, s) (want == MEMORY(g, s) + 1)

#ifdef NO_USE_CHECK
#define IN_USE(b) false
#else
#define IN_USE(b) (reading != NONE && BLOCK(reading) == b)
#endif
inline unmap(b) {
  never(unmapped, reading != NONE && BLOCK(reading) == b);
  has[b] = false; gone[b] = false
}

/* link_share_end: the owner writes to it at once. */
inline end_share(m) {
  atomic {
    if :: share[m] != NONE ->
          never(torn, reading == share[m]);
          content[share[m]] = 0; share[m] = NONE
       :: else fi
  }
}

/* link_generation_collect, of the generation before. */
inline collect(g) {
#ifndef OLD_ENDS
  if :: (share[MEMORY(g, 0)] != NONE && WANTED(g, 0)) -> skip
     :: else ->
  if :: (share[MEMORY(g, 1)] != NONE && WANTED(g, 1)) -> skip
     :: else ->
#endif
        end_share(MEMORY(g, 0)); end_share(MEMORY(g, 1))
#ifndef OLD_ENDS
  fi fi
#endif
}

inline lies_in(b, answer) {
  answer = false;
  for (i : 0 .. GENERATIONS * SLOTS - 1) {
    if :: share[i] != NONE && BLOCK(share[i]) == b -> answer = true :: else fi
  }
}

proctype producer() {
  byte sequence = 1, s, t, old, newest = NONE, i, b;
  bool held, used;
  do
  :: sequence <= FRAMES ->
     if :: newest != 0 -> s = 0 :: newest != 1 -> s = 1 fi;
#ifdef END_FIRST
     end_share(MEMORY(generation, s));
#endif
     old = st[s]; st[s] = 0;
     held = WANTED(generation, s);
     if
     :: held -> st[s] = old
     :: else ->
        end_share(MEMORY(generation, s));
        atomic {
          t = 0;
          do :: t < TENSORS && content[t] != 0 -> t++ :: else -> break od;
          assert(t < TENSORS);
          content[t] = sequence; known[BLOCK(t)] = true;
          share[MEMORY(generation, s)] = t; tensor_in[MEMORY(generation, s)] = t
        };
        st[s] = sequence; head = HEAD(sequence, s);
        newest = s; sequence++
     fi
  :: sequence > 1 && sequence <= FRAMES && generation < GENERATIONS - 1 ->
#ifdef SCAN_FIRST
     collect(generation);
#endif
     st[0] = 0; st[1] = 0; head = 0; generation++; newest = NONE
#ifndef SCAN_FIRST
  :: generation > 0 -> collect(generation - 1)
#endif
  /* link_share_tell, and link_share_freed */
  :: atomic { joined && nfull(messages) ->
       if :: b = 0 :: b = 1 :: b = 2 fi;
       lies_in(b, used);
       if
       :: known[b] && !told[b] -> told[b] = true; messages ! true, b
#ifdef GONE_EARLY
       :: known[b] && told[b] ->
#else
       :: known[b] && told[b] && !used ->
#endif
          known[b] = false; told[b] = false; messages ! false, b
       :: else
       fi }
  :: atomic { !joined && known[0] -> joined = true
#ifdef LATE_UNTOLD
       ; told[0] = true
#endif
     }
  :: atomic { !joined && !known[0] -> joined = true }
  :: sequence > FRAMES && joined -> break
  od;
  /* Close: who joined is told of all that there is, then of the end. */
  for (b : 0 .. BLOCKS - 1) {
    if :: known[b] && !told[b] -> told[b] = true; messages ! true, b :: else fi
  }
  finished = true;
#ifndef CLOSE_ENDS
  closed;
#endif
  for (i : 0 .. GENERATIONS * SLOTS - 1) { end_share(i) }
}

proctype receiver() {
  byte b;
  do
  :: atomic { messages ? true, b -> has[b] = true; gone[b] = false }
  :: atomic { messages ? false, b -> gone[b] = true }
  /* link_pool_collect */
  :: atomic { gone[0] && !IN_USE(0) -> unmap(0) }
  :: atomic { gone[1] && !IN_USE(1) -> unmap(1) }
  :: atomic { gone[2] && !IN_USE(2) -> unmap(2) }
  :: finished && empty(messages) && closed -> break
  od
}

proctype consumer() {
  byte g, h, s, q, t, tries;
  bool last;
  joined;
  do
  :: !last ->
     last = finished;
     g = generation; h = head; q = (h - 1) / SLOTS; s = (h - 1) % SLOTS;
     if
     :: h == 0 -> skip
     :: else ->
        want = MEMORY(g, s) + 1;
        if
        :: st[s] == q && generation == g ->
           t = tensor_in[MEMORY(g, s)];
           /* The last frame is there to be read, once its block was told of. */
           if :: last -> has[BLOCK(t)] :: else fi;
           if
#ifndef NO_MAP_CHECK
           :: !has[BLOCK(t)] -> skip   /* counts as no frame */
           :: atomic { has[BLOCK(t)] -> reading = t };
#else
           :: reading = t;
#endif
              atomic { never(unmapped, !has[BLOCK(t)]); never(torn, content[t] != q) };
              atomic { never(unmapped, !has[BLOCK(t)]); never(torn, content[t] != q); reading = NONE }
           fi
        :: else
        fi;
        want = 0
     fi;
     tries++;
     if :: tries >= 3 && !last -> finished :: else fi
  :: last -> break
  od;
  closed = true
}

init { atomic { run producer(); run receiver(); run consumer() } }
