/* SPDX-License-Identifier: MIT
 *
 * The results as a table for people and as JSON for programs.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "json.h"
#include "text.h"

/* Three or four digits that matter. */
static const char *number(char *text, size_t size, double value) {
  double magnitude = value < 0 ? -value : value;
  int decimals = magnitude == (double)(long long)magnitude ? 0
                 : magnitude < 10                          ? 2
                 : magnitude < 100                         ? 1
                                                           : 0;
  snprintf(text, size, "%.*f", decimals, value);
  return text;
}

static void print_gpu(FILE *out, const struct gpus_machine *gpu) {
  if (!*gpu->cuda) return;
  fprintf(out, "%s, ", gpu->gpu);
  if (*gpu->driver) fprintf(out, "driver %s, ", gpu->driver);
  fprintf(out, "CUDA %s\n", gpu->cuda);
}

static void put_known(struct json *json, const char *key, const char *text) {
  json_text(json, key, *text ? text : NULL);
}

void bench_report_begin(FILE *out, const struct bench_machine *machine,
                        const struct bench_options *options) {
  fprintf(out, "%s, %d core%s, %s\n", machine->cpu, machine->cores,
          text_s((uint64_t)machine->cores), machine->kernel);
  print_gpu(out, &machine->gpu);
  fprintf(out, "%s, load %.2f, frames of kind %s\n\n", machine->date, machine->load,
          cudalink_kind_name(options->kind));
  fprintf(out, "%-20s %9s %9s %9s %9s %9s %9s %-6s %-4s\n", "row", "p50", "p90", "p99", "min",
          "floor", "target", "unit", "");
}

static const char *verdict(const struct bench_result *result) {
  if (!result->row->has_target) return "";
  return result->ok ? "ok" : "MISSED";
}

void bench_report_row(FILE *out, const struct bench_result *result) {
  const struct bench_row *row = result->row;
  if (result->status != BENCH_OK) {
    fprintf(out, "%-20s %s: %s\n", row->name,
            result->status == BENCH_LEFT_OUT ? "left out" : "FAILED", result->text);
    return;
  }
  char p50[32], p90[32], p99[32], min[32], floor[32] = "-", target[32] = "-";
  if (row->floor) number(floor, sizeof floor, result->floor);
  if (row->has_target) number(target, sizeof target, result->target);
  fprintf(out, "%-20s %9s %9s %9s %9s %9s %9s %-6s %-6s  %s%s%s%s%s\n", row->name,
          number(p50, sizeof p50, result->p50), number(p90, sizeof p90, result->p90),
          number(p99, sizeof p99, result->p99), number(min, sizeof min, result->min), floor, target,
          row->unit, verdict(result), row->what, row->floor_name ? "; floor: " : "",
          row->floor_name ? row->floor_name : "", row->published ? "; published: " : "",
          row->published ? row->published : "");
  fflush(out);
}

static void put_result(struct json *json, const struct bench_result *result) {
  const struct bench_row *row = result->row;
  json_open_object(json, NULL);
  json_text(json, "name", row->name);
  json_text(json, "what", row->what);
  json_text(json, "unit", row->unit);
  if (result->status == BENCH_OK) {
    json_real(json, "p50", result->p50);
    json_real(json, "p90", result->p90);
    json_real(json, "p99", result->p99);
    json_real(json, "min", result->min);
  } else {
    json_text(json, result->status == BENCH_LEFT_OUT ? "left_out" : "failed", result->text);
  }
  bool measured = result->status == BENCH_OK;
  json_real(json, "floor", measured && row->floor ? result->floor : NAN);
  json_text(json, "floor_name", row->floor_name);
  json_real(json, "target", measured && row->has_target ? result->target : NAN);
  json_text(json, "published", row->published);
  json_flag(json, "ok", result->ok);
  json_close_object(json);
}

void bench_report_json(FILE *out, const struct bench_machine *machine,
                       const struct bench_options *options, const struct bench_result *results,
                       size_t count) {
  struct json json;
  json_start(&json, out);
  json_open_object(&json, "machine");
  json_text(&json, "cpu", machine->cpu);
  json_text(&json, "kernel", machine->kernel);
  json_number(&json, "cores", (uint64_t)machine->cores);
  put_known(&json, "gpu", machine->gpu.gpu);
  put_known(&json, "driver", machine->gpu.driver);
  put_known(&json, "cuda", machine->gpu.cuda);
  json_close_object(&json);
  json_real(&json, "load", machine->load);
  json_text(&json, "date", machine->date);
  json_text(&json, "version", CUDALINK_VERSION_STRING);
  json_text(&json, "kind", cudalink_kind_name(options->kind));
  json_flag(&json, "quick", options->quick);
  json_open_list(&json, "results");
  for (size_t i = 0; i < count; i++)
    put_result(&json, &results[i]);
  json_close_list(&json);
  json_end(&json);
}
