/* SPDX-License-Identifier: MIT
 *
 * When the frames of a recording are due: as far apart as they were, in steps of a speed.
 */
#ifndef CUDALINK_REPLAY_CLOCK_H
#define CUDALINK_REPLAY_CLOCK_H

#include <stdint.h>

#include "options.h"

/* All zeros to begin with, but for the speed. */
struct replay_clock {
  struct option_rate speed; /* numerator 0: everything is due at once */
  uint64_t start;           /* when the first frame of this round was out, or due; 0 = not yet */
  uint64_t first;           /* its timestamp in the recording */
  uint64_t newest;          /* timestamp of the newest frame, */
  uint64_t interval;        /* and how far it is from the one before */
  uint64_t late_most;       /* the most that a frame came after its time, ns */
};

/* When the frame of this timestamp is due; 0 = at once. The first one is: whatever making it takes, the
 * others follow from when it is out, so it is never late. */
uint64_t replay_clock_due(struct replay_clock *clock, uint64_t timestamp);

/* The frame that was due then is out. Who is very late goes on from there, because a burst of old
 * frames helps nobody. */
void replay_clock_sent(struct replay_clock *clock, uint64_t due);

/* The next frame is the first one again: one interval after the newest. */
void replay_clock_round(struct replay_clock *clock);

#endif
