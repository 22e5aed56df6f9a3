/* SPDX-License-Identifier: MIT
 *
 * Shared groups: each frame goes to one member; the unreleased frame of a dead or evicted member is
 * offered once more, marked REDELIVERED.
 *
 * offer[m] = (number, slot, mark) by the producer; taken[m] = the last offer number confirmed, by the member.
 * The slots of generation 1 are slots SLOTS..2*SLOTS-1 here: an offer names its generation, so a slot
 * number can stand for (generation, slot). st and the mark play no part: a group member leases by offer.
 * Stands for: producer() = the group side of link_own_slot, link_publish (src/link/publish.c) and link_evict
 * (src/link/membership.c), member() = the group side of link_lease_take, link_lease_release (src/link/lease.c).
 *
 * Options:    KILL a member dies at any step; EVICT a living member is evicted at any moment
 * Mutations:  WANT_BEFORE_TAKEN  the producer reads the want words before taken
 *             TAKEN_FIRST        the member stores taken before it has leased
 *             REUSE_UNOFFERED    a frame that nobody was offered yet doesn't count as held
 *             REUSE_UNTAKEN      a frame that was offered but not taken doesn't count as held
 *             NO_MARK            a frame is offered again without the mark
 *             NO_REDELIVERY      a dead member's frame is not offered again
 *             NO_VERDICT         eviction scans without storing the verdict first
 *             NO_CHECK           the member doesn't look at the verdict after leasing
 *             NO_RETIRE          the slot under an evicted member's lease is reused
 */
#include "verdicts.pml"
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef FRAMES
#define FRAMES 3
#endif
#define MEMBERS 2
#define NOBODY MEMBERS
#define NONE 255

/* Shared words. */
byte offer_number[MEMBERS], offer_slot[MEMBERS];   /* one word in the code: always stored and loaded together */
bool offer_mark[MEMBERS];
bool verdict[MEMBERS];
byte taken[MEMBERS];
byte want[MEMBERS];                                /* slot + 1, 0 = none */
bool connected[MEMBERS] = true;                    /* the producer still serves this member */
bool dead[MEMBERS];
bool finished;

/* Ghosts. */
byte reading[MEMBERS];                             /* slot + 1 that the member really reads */
byte content[2 * SLOTS];                           /* the frame in the memory */
bool first[FRAMES + 1], delivered[FRAMES + 1], completed[FRAMES + 1]; /* first: without the mark */
byte offers[FRAMES + 1], losses;                   /* times offered; members lost so far */

#define UNREAD(s) (reading[0] != (s) + 1 && reading[1] != (s) + 1)

/* The producer's private account of each slot. */
mtype = { FREE, WAITING, OFFERED };
mtype state[2 * SLOTS] = FREE;
byte holder[2 * SLOTS] = NOBODY;
bool again[2 * SLOTS];                             /* to be offered as REDELIVERED */

/* Does member m still have the frame that it was offered in slot s? Taken first, then want: the member
   stores them the other way round. */
inline look(m, s) {
#ifdef WANT_BEFORE_TAKEN
  word = want[m]; number = taken[m];
#else
  number = taken[m]; word = want[m];
#endif
#ifdef REUSE_UNTAKEN
  held = (word == s + 1)
#else
  held = (number != offer_number[m] && offer_slot[m] == s) || word == s + 1
#endif
}

/* link_own_slot: slot s of the current generation, if nobody has it. */
inline own(s) {
  held = false;
  if
  :: state[s] == OFFERED -> look(holder[s], s)
#ifndef REUSE_UNOFFERED
  :: state[s] == WAITING -> held = true
#endif
  :: else
  fi
}

/* link_evict, and what happens at death: the last look at a member, its frames go back to the queue. */
inline drop(m) {
#ifndef NO_VERDICT
  verdict[m] = true;
#endif
  i = 0; retire = false;
  do
  :: i < 2 * SLOTS && state[i] == OFFERED && holder[i] == m ->
     look(m, i);
     if
     :: held ->
#ifdef NO_REDELIVERY
        state[i] = FREE;
#else
        state[i] = WAITING;
#ifndef NO_MARK
        again[i] = true;
#endif
#endif
        retire = retire || (word == i + 1)
     :: else -> state[i] = FREE
     fi;
     holder[i] = NOBODY; i++
  :: i < 2 * SLOTS && !(state[i] == OFFERED && holder[i] == m) -> i++
  :: i == 2 * SLOTS -> break
  od;
  connected[m] = false; losses++
}

#define ANY_WAITING (state[0] == WAITING || state[1] == WAITING || state[2] == WAITING || state[3] == WAITING)
#define IDLE(m) (connected[m] && taken[m] == offer_number[m])

proctype producer() {
  byte sequence = 1, s, m, i, word, number, base;
  bool held, retire;
  do
  :: sequence <= FRAMES && (connected[0] || connected[1]) ->        /* own a slot and publish */
     s = base;
     do
     :: s < base + SLOTS -> own(s); if :: !held -> break :: else -> s++ fi
     :: else -> break
     od;
     if
     :: s < base + SLOTS ->
        never(torn, !UNREAD(s));
        d_step { content[s] = sequence; state[s] = WAITING; holder[s] = NOBODY; again[s] = false };
        sequence++
     :: else
     fi
  :: atomic { ANY_WAITING && (IDLE(0) || IDLE(1)) ->                /* offer a frame to a free member */
       if :: IDLE(0) -> m = 0 :: IDLE(1) -> m = 1 fi;
       if :: state[0] == WAITING -> s = 0 :: state[1] == WAITING -> s = 1
          :: state[2] == WAITING -> s = 2 :: state[3] == WAITING -> s = 3 fi;
       state[s] = OFFERED; holder[s] = m; offers[content[s]]++;
       offer_number[m]++; offer_slot[m] = s; offer_mark[m] = again[s] }
     never(duplicated, offers[content[s]] > 1 + losses)
  :: dead[0] && connected[0] -> drop(0)
  :: dead[1] && connected[1] -> drop(1)
#ifdef EVICT
  :: !dead[0] && connected[0] && losses == 0 ->
     drop(0);
#ifndef NO_RETIRE
     if
     :: retire && base == 0 -> base = SLOTS                         /* a new generation: the old memory is never written again */
     :: else
     fi
#endif
#endif
  /* done when every slot was released, by this look */
  :: sequence > FRAMES -> 
     s = 0;
     do
     :: s < 2 * SLOTS -> own(s); if :: held -> break :: else -> s++ fi
     :: else -> break
     od;
     if :: s == 2 * SLOTS -> break :: else fi
  :: !connected[0] && !connected[1] -> break
  od;
  finished = true;
  /* a frame is lost when everybody who could have it says that he has not */
  if
  :: connected[0] || connected[1] ->
     s = 1;
     do
     :: s <= FRAMES -> never(skipped, !completed[s] && losses == 0 || !delivered[s]); s++
     :: else -> break
     od
  :: else
  fi
}

proctype member(byte m) {
  byte last, number, s, frame;
  bool mark;
  {
    do
    :: atomic { offer_number[m] != last -> number = offer_number[m]; s = offer_slot[m]; mark = offer_mark[m] }
       last = number;
#ifdef TAKEN_FIRST
       taken[m] = number;
#endif
       want[m] = s + 1;
       if
#ifdef NO_CHECK
       :: true ->
#else
       :: offer_number[m] == number && !verdict[m] ->
#endif
          atomic { reading[m] = s + 1; frame = content[s] };
#ifndef TAKEN_FIRST
          taken[m] = number;
#endif
          atomic { never(duplicated, first[frame] && !mark); first[frame] = first[frame] || !mark;
                   never(torn, content[s] != frame); delivered[frame] = true };
          atomic { reading[m] = 0; completed[frame] = true };
          want[m] = 0
#ifndef NO_CHECK
       :: else -> want[m] = 0
#endif
       fi
    :: finished || verdict[m] -> break
    od
  } unless { dead[m] }
}

proctype killer() {
#ifdef KILL
  if
  :: atomic { dead[0] = true; reading[0] = 0 }
  :: atomic { dead[1] = true; reading[1] = 0 }
  fi
#else
  skip
#endif
}

init { atomic { run member(0); run member(1); run producer(); run killer() } }
