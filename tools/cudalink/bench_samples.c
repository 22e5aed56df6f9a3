/* SPDX-License-Identifier: MIT
 *
 * Numbers measured, and the clock that measures them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

void bench_samples_add(struct bench_samples *samples, double value) {
  if (samples->count == samples->capacity) {
    size_t capacity = samples->capacity ? samples->capacity * 2 : 1024;
    double *values = realloc(samples->values, capacity * sizeof *values);
    if (!values) return;
    samples->values = values;
    samples->capacity = capacity;
  }
  samples->values[samples->count++] = value;
}

void bench_samples_clear(struct bench_samples *samples) {
  free(samples->values);
  *samples = (struct bench_samples){0};
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

double bench_samples_quantile(struct bench_samples *samples, double share) {
  if (!samples->count) return 0;
  qsort(samples->values, samples->count, sizeof *samples->values, compare);
  return samples->values[(size_t)(share * (double)(samples->count - 1))];
}

/* ---- clock ---------------------------------------------------------------------------------- */

static bool counter; /* ticks are those of the time stamp counter */
static double nanoseconds_per_tick = 1;
static double reading; /* ns between two readings with nothing in between */

static uint64_t monotonic(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_ticks(void) {
#if defined(__x86_64__)
  unsigned processor;
  if (counter) return __rdtscp(&processor);
#endif
  return monotonic();
}

double bench_nanoseconds(uint64_t ticks) { return (double)ticks * nanoseconds_per_tick; }

double bench_clock_cost(void) { return reading; }

static bool counter_is_constant(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & 1u << 8) != 0;
#else
  return false;
#endif
}

void bench_clock_start(void) {
  counter = counter_is_constant();
  if (counter) {
    uint64_t start = monotonic(), ticks = bench_ticks(), now;
    do
      now = monotonic();
    while (now - start < 50000000);
    nanoseconds_per_tick = (double)(now - start) / (double)(bench_ticks() - ticks);
  }
  struct bench_samples pairs = {0};
  for (int i = 0; i < 1001; i++) {
    uint64_t start = bench_ticks();
    bench_samples_add(&pairs, bench_nanoseconds(bench_ticks() - start));
  }
  reading = bench_samples_quantile(&pairs, 0.5);
  bench_samples_clear(&pairs);
}
