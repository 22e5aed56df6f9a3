/* SPDX-License-Identifier: MIT
 *
 * A histogram of times. Values below HISTOGRAM_STEPS have buckets of their own; from there on, each
 * doubling is cut into HISTOGRAM_STEPS equal ones.
 */
#include "histogram.h"

#include <inttypes.h>
#include <stdio.h>

#define STEP_BITS 5
#define LONG UINT64_C(10000000) /* ns; from here on microseconds are too many digits */

static uint32_t bucket_of(uint64_t value) {
  if (value < HISTOGRAM_STEPS) return (uint32_t)value;
  uint32_t doublings = 63u - (uint32_t)__builtin_clzll(value) - STEP_BITS;
  uint32_t bucket = doublings * HISTOGRAM_STEPS + (uint32_t)(value >> doublings);
  return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static uint64_t largest_of(uint32_t bucket) {
  if (bucket < 2 * HISTOGRAM_STEPS) return bucket;
  uint32_t doublings = bucket / HISTOGRAM_STEPS - 1;
  return (((uint64_t)(bucket - doublings * HISTOGRAM_STEPS) + 1) << doublings) - 1;
}

void histogram_add(struct histogram *histogram, uint64_t value) {
  histogram->buckets[bucket_of(value)]++;
  histogram->count++;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
  for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
    into->buckets[i] += from->buckets[i];
  into->count += from->count;
}

uint64_t histogram_percentile(const struct histogram *histogram, double part) {
  uint64_t seen = 0, wanted = (uint64_t)((double)histogram->count * part);
  if (wanted >= histogram->count && wanted > 0) wanted = histogram->count - 1;
  for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
    seen += histogram->buckets[i];
    if (seen > wanted) return largest_of(i);
  }
  return 0;
}

const char *histogram_text(char to[TEXT_DURATION_SIZE], const struct histogram *histogram,
                           double part) {
  uint64_t time = histogram_percentile(histogram, part);
  if (histogram->count && time >= LONG) return text_duration(to, time);
  if (histogram->count)
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 " µs", time / 1000);
  else
    snprintf(to, TEXT_DURATION_SIZE, "-");
  return to;
}
