/* SPDX-License-Identifier: MIT
 *
 * What the measurements share: measure.c (calls), measure_convert.c (conversions), measure_handover.c
 * (GPU to GPU), measure_disturb.c (what consumers do to the producer).
 */
#ifndef CUDALINK_TESTS_GPU_MEASURE_H
#define CUDALINK_TESTS_GPU_MEASURE_H

#include "gpu.h"

#define MOST_SAMPLES 200000

struct samples {
  double values[MOST_SAMPLES]; /* microseconds */
  size_t count;
};
void samples_add(struct samples *samples, double value);
double samples_median(struct samples *samples);
/* One line of JSON; forgets the samples. */
void samples_report(struct samples *samples, const char *name, const char *what);
double microseconds_since(uint64_t start);

#endif
