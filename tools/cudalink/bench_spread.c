/* SPDX-License-Identifier: MIT
 *
 * How the samples of a row spread: equal steps from the least to p99, and one for all beyond.
 */
#include "bench.h"

#define FEWEST 100 /* samples: fewer say nothing about a shape */
#define BAR 50     /* characters */

void bench_spread_count(struct bench_spread *spread, struct bench_samples *samples) {
  *spread = (struct bench_spread){.low = bench_samples_quantile(samples, 0)};
  double high = bench_samples_quantile(samples, 0.99);
  if (samples->count < FEWEST || high <= spread->low) return;
  spread->step = (high - spread->low) / (BENCH_STEPS - 1);
  for (size_t i = 0; i < samples->count; i++) {
    double place = (samples->values[i] - spread->low) / spread->step;
    int step = place < BENCH_STEPS - 1 ? (int)place : BENCH_STEPS - 1;
    spread->counts[step]++;
    if (spread->counts[step] > spread->most) spread->most = spread->counts[step];
  }
}

void bench_spread_print(FILE *out, const struct bench_result *result) {
  const struct bench_spread *spread = &result->spread;
  if (!spread->most) return;
  for (int i = 0; i < BENCH_STEPS; i++) {
    int length = (int)((uint64_t)spread->counts[i] * BAR / spread->most);
    fprintf(out, "  %s %9.2f %-4s %-*.*s %u\n", i == BENCH_STEPS - 1 ? ">=" : "  ",
            spread->low + i * spread->step, result->row->unit, BAR, length,
            "##################################################", spread->counts[i]);
  }
  fflush(out);
}
