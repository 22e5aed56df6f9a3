/* SPDX-License-Identifier: MIT
 *
 * A histogram of times: fixed size, 3 % exact, no allocation.
 */
#ifndef CUDALINK_HISTOGRAM_H
#define CUDALINK_HISTOGRAM_H

#include "text.h"

#include <stdint.h>

#define HISTOGRAM_STEPS 32 /* per doubling */
#define HISTOGRAM_BUCKETS (40 * HISTOGRAM_STEPS)

struct histogram {
  uint64_t count;
  uint32_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that `part` (0 to 1) of all values do not exceed; 0 when there are none. */
uint64_t histogram_percentile(const struct histogram *histogram, double part);

/* The same for people: "850 µs", from 10 ms on "12 ms", "3.4 s"; "-" when there are none. */
const char *histogram_text(char to[TEXT_DURATION_SIZE], const struct histogram *histogram,
                           double part);

#endif
