/* SPDX-License-Identifier: MIT
 *
 * Frames at a steady rate. Each time is computed from the start, so that nothing adds up.
 */
#include "pace.h"
#include "stop.h"

#include "cudalink/base.h"

#define SECOND 1000000000u
#define VERY_LATE UINT64_C(100000000)

static void restart(struct pace *pace, uint64_t now) {
  pace->start = now;
  pace->frames = 0;
}

static uint64_t due(const struct pace *pace) {
  unsigned __int128 product = (unsigned __int128)pace->frames * SECOND * pace->rate.denominator;
  return pace->start + (uint64_t)(product / pace->rate.numerator);
}

int pace_wait(struct pace *pace) {
  if (pace->rate.numerator == 0) return stop_requested();
  uint64_t now = cudalink_now();
  if (pace->start == 0 || now > due(pace) + VERY_LATE) restart(pace, now);
  int stopped = stop_wait_until(due(pace));
  pace->frames++;
  return stopped;
}
