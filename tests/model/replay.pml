/* SPDX-License-Identifier: MIT
 *
 * Replays a recorded run of the real code through the steps of lease.pml (lease_steps.pml, the same text).
 *
 * Each agent (every consumer's CPU, every release by a stream, the producer) has the list of operations that it
 * recorded. A step of the model may be taken when it is the next one of its agent's list, with the recorded
 * values, and no other agent has a waiting operation that had ended before this one began. The run is accepted
 * when some order takes all of them and does no harm; then the verifier exits at once with 0.
 * What is sound about this, and what it can't show: README.md.
 */
#define REPLAY
#define MARK
#define FENCE
#define TICKET
#define ENTRY
#define VERDICT
#include "replay_sizes.h"
#define MAILBOX(c) (c)
#define PRODUCER CONSUMERS
#define STREAM(c, e) (CONSUMERS + 1 + (c) * ENTRIES + (e))
#define AGENTS (CONSUMERS + 1 + CONSUMERS * ENTRIES)
#define NOBODY 255
#define ANY -1

/* enum what of replay.h */
#define DO_STORE 1
#define DO_LOAD 2
#define DO_SCAN 3
#define DO_MOMENT 4
#define DO_JOIN 5
#define DO_LEAVE 6
#define DO_RETIRE 8

#include "verdicts.pml"
byte entry_count[CONSUMERS];
byte at_place[CONSUMERS];               /* member number -> the consumer that has it now */
#define member_at(place) at_place[place]
#define entries_of(c) entry_count[c]
#include "lease_steps.pml"

c_decl {
\#include "replay.h"
}

int memory[WORDS];
int position[AGENTS];
int next_what[AGENTS], next_address[AGENTS], next_value[AGENTS], next_extra[AGENTS];
int next_begin[AGENTS], first_end;
bool scanned[CONSUMERS], retired[GENERATIONS];
int fresh_generation;                   /* just switched to: nobody can have a lease in it */
byte evicting;                          /* consumer + 1 whose last look is under way */
byte reads[CONSUMERS * ENTRIES];        /* ghost: the memory + 1 behind each confirmed lease */
byte busy = NOBODY;                     /* the agent whose local steps, ghosts too, belong to its last operation */
byte who;
byte recorded_consumers;

/* Puts the next operation of agent `who` on the table; the end of the whole run ends the search. */
inline advance(agent) {
  who = agent; busy = agent;
  c_code {
    now.position[now.who]++;
    note_progress(now.position);
    if (all_done(now.position)) accepted();
    show_next();
  }
}

c_code {
  static void show_next(void) {
    now.first_end = FOREVER;
    for (int a = 0; a < REPLAY_AGENTS; a++) {
      const struct operation *o = operation_at(a, now.position[a]);
      now.next_what[a] = o->what; now.next_address[a] = o->address; now.next_value[a] = o->value;
      now.next_extra[a] = o->extra; now.next_begin[a] = (int)o->begin;
      if ((int)o->end < now.first_end) now.first_end = (int)o->end;
    }
  }
  static void accepted(void) {
    if (now.torn) return;
    was_accepted = 1;
    exit(0);
  }
}

/* May the agent's next operation, of this kind, come now? The agent's local steps before it are over. */
#define TURN(agent, kind) (next_what[agent] == kind && next_begin[agent] <= first_end && busy == NOBODY && !torn)
#define NEXT(agent, kind) (next_what[agent] == kind)
inline rest(agent) { if :: busy == agent -> busy = NOBODY :: else fi }

inline store(agent, address, value) {
  rest(agent);
  atomic {
    TURN(agent, DO_STORE) && next_address[agent] == (address) && next_value[agent] == (value) ->
    memory[address] = value;
    advance(agent)
  }
}
inline load(agent, address, result) {
  rest(agent);
  atomic {
    TURN(agent, DO_LOAD) && next_address[agent] == (address) &&
      (next_value[agent] == ANY || next_value[agent] == memory[address]) ->
    result = memory[address];
    advance(agent)
  }
}
inline fence(agent) { skip }
inline moment(agent) {
  rest(agent);
  atomic { TURN(agent, DO_MOMENT) -> advance(agent) }
}

/* A release by a stream lands as late as the recorded answers allow: just before the first look that finds it
   landed. Nothing is lost by that: an earlier moment only makes the reads shorter. */
#define MAY_LAND(c, e) (next_what[STREAM(c, e)] == DO_STORE && next_begin[STREAM(c, e)] <= first_end && \
  reads[(c) * ENTRIES + (e)] != 0 && memory[WANT(c, e)] == next_value[STREAM(c, e)])
inline land(c, e) {
  readers[reads[c * ENTRIES + e] - 1]--; reads[c * ENTRIES + e] = 0;
  memory[DONE(c, e)] = next_value[STREAM(c, e)];
  advance(STREAM(c, e)); busy = NOBODY
}

/* The look at want, then done: one step, because there always is a moment that gives both answers. */
#define ANSWERS(c, e) (next_value[PRODUCER] == HELD(c, e) || (next_value[PRODUCER] == 0 && MAY_LAND(c, e)))
#define HELD(c, e) (memory[WANT(c, e)] != 0 && memory[DONE(c, e)] != memory[WANT(c, e)] -> memory[WANT(c, e)] : 0)
inline entry_held(c, e, s, g, mine) {
  rest(PRODUCER);
  atomic {
    TURN(PRODUCER, DO_SCAN) && next_address[PRODUCER] == c && next_extra[PRODUCER] == e &&
      ANSWERS(c, e) ->
    if :: next_value[PRODUCER] != HELD(c, e) -> land(c, e) :: else fi;
    word = HELD(c, e);
    mine = !(word != 0 && LEASE_SLOT(word) == s && LEASE_GENERATION(word) == g);
    advance(PRODUCER)
  }
}

proctype producer() {
  int word, old, s, g, q;
  byte c, e;
  bool mine;
end: do
  :: NEXT(PRODUCER, DO_LOAD) ->                        /* a mark: own that slot, or not */
     s = next_address[PRODUCER]; g = memory[GEN];
     link_own_slot(s, g, mine);
     atomic { never(torn, mine && retired[g]) }
  :: NEXT(PRODUCER, DO_MOMENT) ->                      /* a publish */
     s = next_address[PRODUCER]; q = next_value[PRODUCER]; g = next_extra[PRODUCER];
     /* the slot was owned by mark and scan, or nobody has ever seen this generation */
     atomic { never(torn, !writing[MEMORY(g, s)] && g == memory[GEN] && fresh_generation != g) };
     fresh_generation = 0;
     link_publish(s, g, q)
  :: NEXT(PRODUCER, DO_STORE) && next_address[PRODUCER] < SLOTS ->
     g = next_extra[PRODUCER];                         /* a switch of the generation */
     link_generation_switch(g);
     fresh_generation = g
  :: NEXT(PRODUCER, DO_STORE) && next_address[PRODUCER] > GEN -> /* a verdict; its scans follow */
     c = next_address[PRODUCER] - VERDICT_OF(0); q = next_extra[PRODUCER];
     store(PRODUCER, VERDICT_OF(c), 1);
     evicting = c + 1; scanned[q] = false
  :: NEXT(PRODUCER, DO_SCAN) ->                        /* relaxed looks before a mark, or the last look of evict */
     rest(PRODUCER);
     atomic {
       TURN(PRODUCER, DO_SCAN) && ANSWERS(next_address[PRODUCER], next_extra[PRODUCER]) ->
       c = next_address[PRODUCER]; e = next_extra[PRODUCER]; word = next_value[PRODUCER];
       if :: word != HELD(c, e) -> land(c, e) :: else fi;
       if
       :: word != 0 && evicting == c + 1 -> retired[LEASE_GENERATION(word)] = true
       :: else
       fi;
       advance(PRODUCER)
     }
  :: NEXT(PRODUCER, DO_JOIN) ->
     rest(PRODUCER);
     atomic { TURN(PRODUCER, DO_JOIN) -> c = next_address[PRODUCER];
              scanned[next_extra[PRODUCER]] = true; at_place[next_extra[PRODUCER]] = c;
              entry_count[c] = next_value[PRODUCER]; advance(PRODUCER) }
  :: NEXT(PRODUCER, DO_LEAVE) ->                       /* value 1: its process is dead and reads no more */
     rest(PRODUCER);
     atomic {
       TURN(PRODUCER, DO_LEAVE) -> c = next_address[PRODUCER]; scanned[next_extra[PRODUCER]] = false;
       e = (next_value[PRODUCER] -> 0 : ENTRIES);
       do
       :: e < ENTRIES ->
          if :: reads[c * ENTRIES + e] != 0 -> readers[reads[c * ENTRIES + e] - 1]--; reads[c * ENTRIES + e] = 0 :: else fi;
          e++
       :: else -> break
       od;
       advance(PRODUCER)
     }
  :: NEXT(PRODUCER, DO_RETIRE) ->
     rest(PRODUCER);
     atomic { TURN(PRODUCER, DO_RETIRE) -> retired[next_address[PRODUCER]] = true; advance(PRODUCER) }
  :: busy == PRODUCER -> busy = NOBODY
  od
}

#define FREE(c) (reads[(c) * ENTRIES + next_address[c] - WANT(c, 0)] == 0)
proctype consumer(byte c) {
  int word, seen, q;
  byte e, s, g, m;
  bool there;
end: do
  :: NEXT(c, DO_STORE) ->                              /* a take */
     rest(c);
     atomic {                                          /* find_free: the entry's last release has landed */
       TURN(c, DO_STORE) && (FREE(c) || MAY_LAND(c, next_address[c] - WANT(c, 0))) ->
       e = next_address[c] - WANT(c, 0);
       if :: !FREE(c) -> land(c, e) :: else fi
     };
     word = next_value[c]; q = next_extra[c];
     s = LEASE_SLOT(word); g = LEASE_GENERATION(word);
     link_lease_take(c, e, word, s, g, q, there);
     if :: there -> reads[c * ENTRIES + e] = MEMORY(g, s) + 1 :: else fi
  :: NEXT(c, DO_MOMENT) ->                             /* a release by the CPU */
     e = next_address[c]; word = next_value[c]; m = reads[c * ENTRIES + e] - 1;
     if
     :: reads[c * ENTRIES + e] != 0 -> reads[c * ENTRIES + e] = 0; link_lease_release(c, e, word, m)
     :: else -> torn = true                            /* given back without having been taken */
     fi
  :: busy == c -> busy = NOBODY
  od
}

init {
  byte c;
  atomic {
    c_code {
      trace_read();
      atexit(tell_if_rejected);
      now.recorded_consumers = consumers;
      show_next();
    };
    run producer();
    do :: c < recorded_consumers -> run consumer(c); c++ :: else -> break od
  }
}
