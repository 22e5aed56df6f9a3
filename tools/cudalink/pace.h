/* SPDX-License-Identifier: MIT
 *
 * Frames at a steady rate.
 */
#ifndef CUDALINK_PACE_H
#define CUDALINK_PACE_H

#include <stdint.h>

#include "options.h"

struct pace {
  struct option_rate rate; /* numerator 0: no waiting */
  uint64_t start;          /* when frame 0 was due; 0 = not started */
  uint64_t frames;         /* since then */
};

/* Waits until the next frame is due. 1: a signal came. Who is late catches up; who is very late
 * starts anew, because a burst of old frames helps nobody. */
int pace_wait(struct pace *pace);

#endif
