/* SPDX-License-Identifier: MIT
 *
 * When frames are due. Each time is computed from the start, so that nothing adds up.
 */
#include "replay_clock.h"

#include "cudalink/base.h"

#define VERY_LATE UINT64_C(100000000)

/* From the recording's time to ours. */
static uint64_t scaled(const struct replay_clock *clock, uint64_t time) {
  return (uint64_t)((unsigned __int128)time * clock->speed.denominator / clock->speed.numerator);
}

/* Another producer's frames may be older than those before; they come at once. */
static void note(struct replay_clock *clock, uint64_t timestamp) {
  if (timestamp <= clock->newest) return;
  clock->interval = timestamp - clock->newest;
  clock->newest = timestamp;
}

uint64_t replay_clock_due(struct replay_clock *clock, uint64_t timestamp) {
  if (clock->speed.numerator == 0) return 0;
  if (clock->start == 0) {
    clock->first = clock->newest = timestamp;
    return 0;
  }
  note(clock, timestamp);
  return clock->start + scaled(clock, clock->newest - clock->first);
}

void replay_clock_sent(struct replay_clock *clock, uint64_t due) {
  uint64_t now = cudalink_now();
  if (clock->speed.numerator && clock->start == 0) clock->start = now;
  if (due == 0 || now <= due) return;
  if (now - due > clock->late_most) clock->late_most = now - due;
  if (now - due > VERY_LATE) clock->start += now - due;
}

void replay_clock_round(struct replay_clock *clock) {
  if (clock->start == 0) return;
  clock->start += scaled(clock, clock->newest - clock->first + clock->interval);
  clock->newest = clock->first;
}
