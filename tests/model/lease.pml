/* SPDX-License-Identifier: MIT
 *
 * Lease and reuse: no slot is written while a consumer's CPU or GPU reads it, and none stays held by nobody.
 *
 * Memory model: TSO (a store buffer per CPU) with -DTSO=1, else sequentially consistent. A consumer's
 * GPU is an agent of its own: a release queued on a stream lands at any later time. The steps, and the rules
 * MARK, FENCE, TICKET, ENTRY, VERDICT that a case may leave out, are in lease_steps.pml.
 *
 * Sizes:    SLOTS, CONSUMERS, FRAMES published at most, LEASES per consumer, ENTRIES, STREAMS per consumer
 * Options:  EVICT   the producer evicts consumer 0 once, at any moment
 *           RETIRE  (rule) the memory under an evicted lease is never written again: a new generation
 *           REJOIN  (mutation) the evicted consumer's mailbox is handed to the next one while its GPU works on
 *           NO_JUDGE leave out the check that nothing looks held in the end
 */
#include "verdicts.pml"
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#ifndef FRAMES
#define FRAMES 3
#endif
#ifndef LEASES
#define LEASES 2
#endif
#ifndef ENTRIES
#define ENTRIES 2
#endif
#ifndef STREAMS
#define STREAMS 1
#endif
#ifndef TSO
#define TSO 1
#endif
#ifdef EVICT
#define GENERATIONS 2
#else
#define GENERATIONS 1
#endif
#ifdef REJOIN
#define MAILBOX(c) 0
#else
#define MAILBOX(c) (c)
#endif
#define PRODUCER CONSUMERS
#define AGENTS (CONSUMERS + 1)
#define BUFFER 3
#define NONE 255
#define TRIES 4

#define entries_of(c) ENTRIES_USED
#define member_at(place) place
/* replay.pml ties ghost steps to recorded moments; here they may come at any time. */
#define moment(agent) skip
#include "lease_steps.pml"

byte memory[WORDS];
byte finished;
bool scanned[CONSUMERS] = true;         /* the member mask */
bool rejoined;
chan stream[CONSUMERS * STREAMS] = [3] of { byte, byte, byte };   /* releases: entry, word, memory */

/* ---- the memory model ---------------------------------------------------------------------------- */
#if TSO
byte buffered_at[AGENTS * BUFFER], buffered[AGENTS * BUFFER], depth[AGENTS];
inline store(agent, address, value) {
  atomic {
    depth[agent] < BUFFER ->
    buffered_at[(agent) * BUFFER + depth[agent]] = address;
    buffered[(agent) * BUFFER + depth[agent]] = value;
    depth[agent]++
  }
}
inline load(agent, address, result) {
  d_step {
    result = memory[address]; i = 0;
    do
    :: i < depth[agent] ->
       if :: buffered_at[(agent) * BUFFER + i] == address -> result = buffered[(agent) * BUFFER + i] :: else fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}
inline drain(agent) { depth[agent] == 0 }
proctype flusher(byte agent) {
  byte i;
end: do
  :: d_step {
       depth[agent] > 0 ->
       memory[buffered_at[agent * BUFFER]] = buffered[agent * BUFFER];
       depth[agent]--; i = 0;
       do
       :: i < BUFFER - 1 ->
          buffered_at[agent * BUFFER + i] = (i < depth[agent] -> buffered_at[agent * BUFFER + i + 1] : 0);
          buffered[agent * BUFFER + i] = (i < depth[agent] -> buffered[agent * BUFFER + i + 1] : 0);
          i++
       :: else -> break
       od;
       buffered_at[agent * BUFFER + BUFFER - 1] = 0; buffered[agent * BUFFER + BUFFER - 1] = 0; i = 0
     }
  od
}
#else
inline store(agent, address, value) { memory[address] = value }
inline load(agent, address, result) { result = memory[address] }
inline drain(agent) { skip }
#endif

inline fence(agent) {
#ifdef FENCE
  drain(agent)
#else
  skip
#endif
}

/* src/link/slot.c, held: does entry e of consumer c name slot s of generation g, not released? */
inline entry_held(c, e, s, g, mine) {
  load(PRODUCER, WANT(c, e), word);
  if
  :: word != 0 && LEASE_SLOT(word) == s && LEASE_GENERATION(word) == g ->
     load(PRODUCER, DONE(c, e), landed);
#ifdef ENTRY
     mine = (landed == word)
#else
     mine = (landed >= word)
#endif
  :: else
  fi
}

/* ---- the producer ---------------------------------------------------------------------------------- */

/* src/link/member.c, evict: the verdict, one last look, then it is scanned no more. */
inline link_evict() {
#ifdef VERDICT
  store(PRODUCER, VERDICT_OF(0), 1);
  fence(PRODUCER);
#endif
  mine = true; e = 0;
  do
  :: e < ENTRIES_USED ->
     load(PRODUCER, WANT(0, e), word);
     if
     :: word != 0 && LEASE_GENERATION(word) == generation ->
        load(PRODUCER, DONE(0, e), landed); mine = mine && (landed == word)
     :: else
     fi;
     e++
  :: else -> break
  od;
  scanned[0] = false;
#ifdef RETIRE
  if
  :: !mine -> link_generation_switch(1); generation = 1; newest = NONE
  :: else
  fi;
#endif
#ifdef REJOIN
  drain(PRODUCER);
  atomic {
    e = 0;
    do :: e < ENTRIES_USED -> memory[WANT(0, e)] = 0; memory[DONE(0, e)] = 0; e++ :: else -> break od;
    memory[VERDICT_OF(0)] = 0; rejoined = true
  }
#endif
}

proctype producer() {
  byte i, s, c, e, word, landed, old, sequence, tries, generation, newest = NONE;
  bool mine;
  do
  :: sequence < FRAMES && tries < TRIES - 1 ->
     if
     :: newest != 0 -> s = 0
     :: newest != 1 -> s = 1
#if SLOTS > 2
     :: newest != 2 -> s = 2
#endif
     fi;
     tries++;
     link_own_slot(s, generation, mine);
     if
     :: mine ->
        sequence++;
        link_publish(s, generation, sequence);
        newest = s; tries = 0
     :: else
     fi
#ifdef EVICT
  :: scanned[0] && generation == 0 -> link_evict()
#endif
  :: sequence >= FRAMES || tries >= TRIES - 1 -> break
  od;
  drain(PRODUCER);
  finished++
}

/* ---- consumers -------------------------------------------------------------------------------------- */

/* A stream: the lease's reads end, then done lands. */
proctype gpu(byte c; byte number) {
  byte e, word, m;
end: do
  :: atomic { stream[c * STREAMS + number]?e,word,m -> readers[m]--; memory[DONE(c, e)] = word }
  od
}

/* src/link/lease.c, find_free, and the next lease word. Tickets: 0, 1 and 2 are enough for "never repeats". */
inline free_entry(c, e, found) {
#ifdef ENTRY
  e = 0; found = false;
  do
  :: e < ENTRIES ->
     load(c, WANT(c, e), word); load(c, DONE(c, e), landed);
     if :: word == 0 || landed == word -> found = true; break :: else -> e++ fi
  :: else -> break
  od;
  if
  :: found ->
#ifdef TICKET
     old = word; ticket = 1 - ticket;
     if :: LEASE(ticket, g, s) == old || LEASE(ticket, g, s) == landed -> ticket = 2 :: else fi;
     word = LEASE(ticket, g, s); ticket = ticket % 2
#else
     word = LEASE(q, g, s)
#endif
  :: else
  fi
#else
  e = s; found = true;
#ifdef TICKET
  ticket++; word = LEASE(ticket, g, s)
#else
  word = LEASE(q, g, s)
#endif
#endif
}

proctype consumer(byte c) {
  byte i, head, s, g, q, e, word, landed, seen, old, ticket, tries, leases, which;
  byte lease_word[2], lease_memory[2], lease_entry[2], held_now;   /* at most two leases at a time */
  bool there;
#ifdef REJOIN
  if
  :: c == 1 -> rejoined || finished >= 1; if :: !rejoined -> leases = LEASES :: else fi
  :: else
  fi;
#endif
  do
  :: leases < LEASES && held_now < 2 && tries < TRIES ->
     tries++;
#if GENERATIONS > 1
     load(c, GEN, g);
#endif
     load(c, HEAD, head);
     if :: head == 0 -> goto again :: else fi;
     s = LEASE_SLOT(head); q = LEASE_TICKET(head);
     free_entry(c, e, there);
     if :: !there -> goto again :: else fi;
     link_lease_take(c, e, word, s, g, q, there);
     if
     :: there ->
        lease_word[held_now] = word; lease_memory[held_now] = MEMORY(g, s); lease_entry[held_now] = e;
        held_now++; leases++
     :: else
     fi;
again: skip
  :: held_now > 0 ->                    /* release the older or the newer, by the CPU or by a stream */
     if :: which = 0 :: held_now == 2 -> which = 1 fi;
     if
     :: link_lease_release(c, lease_entry[which], lease_word[which], lease_memory[which])
     :: stream[c * STREAMS]!lease_entry[which],lease_word[which],lease_memory[which]
#if STREAMS > 1
     :: stream[c * STREAMS + 1]!lease_entry[which],lease_word[which],lease_memory[which]
#endif
     fi;
     d_step {
       if
       :: which == 0 -> lease_word[0] = lease_word[1]; lease_memory[0] = lease_memory[1]; lease_entry[0] = lease_entry[1]
       :: else
       fi;
       held_now--; lease_word[held_now] = 0; lease_memory[held_now] = 0; lease_entry[held_now] = 0; which = 0
     }
  :: held_now == 0 && (leases >= LEASES || tries >= TRIES) -> break
  od;
  drain(c);
  finished++
}

/* Everybody has finished and the streams are empty: nothing may look held. */
proctype judge() {
#ifndef NO_JUDGE
  byte c, e, i;
  finished == AGENTS;
  i = 0; do :: i < CONSUMERS * STREAMS -> empty(stream[i]); i++ :: else -> break od;
  i = 0; do :: i < SLOTS * GENERATIONS -> readers[i] == 0; i++ :: else -> break od;
  c = 0;
  do
  :: c < CONSUMERS && scanned[c] ->
     e = 0;
     do
     :: e < ENTRIES_USED ->
#ifdef ENTRY
        never(stuck, memory[WANT(c, e)] != 0 && memory[DONE(c, e)] != memory[WANT(c, e)]);
#else
        never(stuck, memory[DONE(c, e)] < memory[WANT(c, e)]);
#endif
        e++
     :: else -> break
     od;
     c++
  :: c < CONSUMERS && !scanned[c] -> c++
  :: c == CONSUMERS -> break
  od
#else
  skip
#endif
}

init {
  byte i, j;
  atomic {
    do
    :: i < CONSUMERS ->
       run consumer(i); j = 0;
       do :: j < STREAMS -> run gpu(i, j); j++ :: else -> break od;
       i++
    :: else -> break
    od;
    run producer();
#if TSO
    i = 0; do :: i < AGENTS -> run flusher(i); i++ :: else -> break od;
#endif
    run judge()
  }
}
