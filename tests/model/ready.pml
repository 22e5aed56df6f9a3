/* SPDX-License-Identifier: MIT
 *
 * Ready and mirror word of ONE slot, with frames 1..FRAMES going through it, and what becomes of a
 * stream's wait when the producer dies or is slow, or when an end is closed in order meanwhile.
 *
 * The producer may die at any step; its GPU goes on with queued work until it is torn down. A stream's wait
 * samples the word, so it can miss a value that comes and goes.
 * Stands for: producer() = queue_words in src/link/publish.c, service() = src/link/completion.c (look, complete),
 * closer() = link_attachment_over (ENDED, CLOSED) and close_fire in src/link/exporter.c, consumer() =
 * link_wait_queue and the user's stream. The lease protocol (lease.pml) is one step here.
 *
 * Rules:      MIRROR_ALWAYS  every publish writes the mirror of a subscriber (without it: the consumer asks when it
 *                            finds the frame not ready; LOOK_AGAIN: and looks at ready once more after asking)
 *             EXACT          the service thread stores exactly the sequence waited for (without: a huge value)
 *             LANDED         a slot is reused only when all words of its last use have landed
 * Options:    KILL the producer may die; TIMEOUT the service thread may end a wait while the producer lives;
 *             REPEAT it stores again when the word fell back after the death; CLOSE one of the ends is closed in
 *             order, at any time
 * Mutations:  CLOSE_ENDS     the service thread ends the wait when an end is closed
 *             HANG_UP_FIRST  a producer that closes hangs up before its queued words have landed
 *             FORGET         behind a close the service thread no longer looks whether the producer dies
 */
#include "verdicts.pml"
#ifndef FRAMES
#define FRAMES 2
#endif
#define HUGE 9
#ifdef EXACT
#define COMPLETED waited
#else
#define COMPLETED HUGE
#endif
#ifdef LANDED
#define REUSABLE (!held && ready == sequence - 1)
#else
#define REUSABLE (!held)
#endif

byte ready, mirror, head, pixels;
byte waited;                           /* the frame that the consumer's stream waits for, 0 = none */
bool held, dead, torn_down, asked, seen_dead, ended_one, consumer_done, producer_done;
bool closed, hung_up, seen_closed;     /* an end is closed; the producer's end of the socket is */
bool mirrored[FRAMES + 1], lost[FRAMES + 1];
mtype = { DRAW, MIRROR, READY };
chan stream = [8] of { mtype, byte };  /* what the producer has queued on its GPU */

proctype producer() {
  byte sequence = 1;
  {
    do
    :: sequence <= FRAMES ->
       atomic { REUSABLE -> head = 0 };
       if
       :: asked -> atomic { mirrored[sequence] = true; stream!DRAW,sequence; stream!MIRROR,sequence; stream!READY,sequence }
       :: else -> atomic { stream!DRAW,sequence; stream!READY,sequence }
       fi;
       head = sequence; sequence++
    :: else -> break
    od;
    producer_done = true
  } unless { dead };
  skip
}

proctype producer_gpu() {
  mtype what;
  byte sequence;
  do
  :: atomic { !torn_down && nempty(stream) -> stream?what,sequence };
     if
     :: what == DRAW -> pixels = 0; if :: !torn_down -> pixels = sequence :: torn_down fi
     :: what == MIRROR -> if :: !torn_down -> mirror = sequence :: torn_down fi
     :: what == READY -> if :: !torn_down -> ready = sequence :: torn_down fi
     fi
  :: consumer_done && producer_done || torn_down -> break
  od
}

proctype killer() {
#ifdef KILL
  if :: true -> dead = true; torn_down = true :: consumer_done fi
#else
  skip
#endif
}

proctype closer() {
#ifdef CLOSE
  if
  :: closed = true                       /* the consumer's end: its socket stays for the wait */
  :: atomic { producer_done -> closed = true };
#ifdef HANG_UP_FIRST
     hung_up = true
#else
     if :: ready == FRAMES -> hung_up = true :: consumer_done || dead fi
#endif
  :: consumer_done
  fi
#else
  skip
#endif
}

inline end_wait() {
  if :: waited != 0 && mirror < waited -> lost[waited] = true; mirror = COMPLETED :: else fi
}

proctype service() {
  do
  :: closed && !seen_closed ->
     seen_closed = true;
#ifdef CLOSE_ENDS
     end_wait()
#endif
#ifdef FORGET
  :: dead && !seen_dead && !closed ->
#else
  :: (dead || hung_up) && !seen_dead ->
#endif
     seen_dead = true;
     end_wait()
#ifdef REPEAT
  :: torn_down && seen_dead && waited != 0 && mirror < waited -> lost[waited] = true; mirror = waited
#endif
#ifdef TIMEOUT
  :: atomic { !dead && !ended_one && waited != 0 -> ended_one = true; lost[waited] = true; mirror = COMPLETED }
#endif
  :: consumer_done -> break
  od
}

/* A wait is noted first, then "connection over" is looked at: pairs with seen_dead, then waited. */
inline wait_by_stream() {
  waited = sequence;
  if
  :: seen_dead && mirror < sequence -> lost[sequence] = true
  :: else -> mirror >= sequence
  fi;
  waited = 0
}

proctype consumer() {
  byte sequence = 1;
#ifdef MIRROR_ALWAYS
  asked = true;
#endif
  do
  :: sequence <= FRAMES ->
     if
     :: atomic { head >= sequence -> sequence = head; held = true }
     :: head < sequence && (seen_dead || producer_done) -> break
     :: seen_closed -> break               /* no new leases, or it was drained */
     fi;
     if
     :: ready >= sequence
     :: ready < sequence ->
#ifdef MIRROR_ALWAYS
        if
        :: mirrored[sequence] -> wait_by_stream()
        :: else -> if :: ready >= sequence :: seen_dead && ready < sequence -> lost[sequence] = true fi   /* by the CPU */
        fi
#else
        asked = true;
#ifdef LOOK_AGAIN
        if :: ready >= sequence -> goto use :: else fi;
#endif
        wait_by_stream()
#endif
     fi;
use: never(given_up, lost[sequence] && !dead && !ended_one);
     never(torn, !lost[sequence] && pixels != sequence);
     never(torn, !lost[sequence] && pixels != sequence);
     held = false; sequence++
  :: else -> break
  od;
  consumer_done = true
}

init { atomic { run producer(); run producer_gpu(); run killer(); run closer(); run service(); run consumer() } }
