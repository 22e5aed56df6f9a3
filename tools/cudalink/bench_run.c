/* SPDX-License-Identifier: MIT
 *
 * Measuring one row: its measurement and its floor take turns, so that whatever else the machine
 * does meets both. All samples count, outliers too; what is quoted and judged is the median.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"

#define TURNS 5
#define TURNS_QUICK 2

bool bench_is_for_kind(const struct bench_row *row, cudalink_kind kind) {
  return !row->kinds || (row->kinds >> kind & 1u);
}

static int take_turn(bench_measure measure, const struct bench_row *row, int64_t parameter,
                     const struct bench_options *options, struct bench_samples *samples,
                     struct bench_result *result) {
  struct bench_case test = {.options = options,
                            .parameter = parameter,
                            .rounds = options->quick ? row->rounds / 5 + 1 : row->rounds};
  int status = measure(&test, samples);
  if (status != BENCH_OK) {
    result->status = status;
    memcpy(result->text, test.text, sizeof result->text);
  }
  return status;
}

static void conclude(const struct bench_row *row, struct bench_samples *samples,
                     struct bench_samples *floors, struct bench_result *result) {
  result->p50 = bench_samples_quantile(samples, 0.5);
  result->p90 = bench_samples_quantile(samples, 0.9);
  result->p99 = bench_samples_quantile(samples, 0.99);
  result->min = bench_samples_quantile(samples, 0);
  result->floor = bench_samples_quantile(floors, 0.5);
  result->target = row->factor * result->floor + row->plus;
  result->ok = !row->has_target || result->p50 <= result->target;
  bench_spread_count(&result->spread, samples);
}

void bench_run(const struct bench_row *row, const struct bench_options *options,
               struct bench_result *result) {
  *result = (struct bench_result){.row = row, .status = BENCH_OK, .ok = true};
  if (!bench_is_for_kind(row, options->kind)) {
    result->status = BENCH_LEFT_OUT;
    snprintf(result->text, sizeof result->text, "it is not for frames of kind %s",
             cudalink_kind_name(options->kind));
    return;
  }
  struct bench_samples samples = {0}, floors = {0};
  int turns = row->slow || row->once ? 1 : options->quick ? TURNS_QUICK : TURNS;
  for (int turn = 0; turn < turns && result->status == BENCH_OK; turn++) {
    bench_choose_processors();
    if (take_turn(row->measure, row, row->parameter, options, &samples, result) != BENCH_OK) break;
    if (row->floor) take_turn(row->floor, row, row->floor_parameter, options, &floors, result);
  }
  if (result->status == BENCH_OK)
    conclude(row, &samples, &floors, result);
  else
    result->ok = result->status == BENCH_LEFT_OUT;
  bench_samples_clear(&samples);
  bench_samples_clear(&floors);
}
