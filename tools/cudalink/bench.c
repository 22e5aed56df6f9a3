/* SPDX-License-Identifier: MIT
 *
 * `cudalink bench`: measures each row of the table, and says whether the targets are met.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "gpus.h"
#include "json.h"
#include "live.h"
#include "nearest.h"
#include "options.h"
#include "report.h"
#include "stop.h"
#include "text.h"

struct bench_command {
  struct bench_options options;
  const char *row, *plot;
  int check, json, histogram, quick, full, list, kind;
  uint64_t device;
};

static const char notes[] =
    "JSON keys: machine (cpu kernel cores gpu driver cuda) load date version kind quick results, a "
    "list with name "
    "what\n"
    "unit p50 p90 p99 min floor floor_name target published ok; failed or left_out instead of\n"
    "numbers. With --list: name what unit floor_name published full (only with --full) kinds.\n"
    "\n"
    "examples:\n"
    "  cudalink bench --row wake --histogram\n"
    "  cudalink bench --json > results.json";

static int parse(struct bench_command *command, int argc, char **argv) {
  const struct option_row rows[] = {
      {"check", OPTION_FLAG, &command->check, NULL, "exit with 1 when a target is missed", NULL, 0,
       0},
      {"json", OPTION_FLAG, &command->json, NULL, "print results as one JSON object", NULL, 0, 0},
      {"histogram", OPTION_FLAG, &command->histogram, NULL,
       "show how the samples of each row spread", NULL, 0, 0},
      {"plot", OPTION_TEXT, &command->plot, "FILE.svg", "write the same as a picture", NULL, 0, 0},
      {"row", OPTION_TEXT, &command->row, "NAME", "only this row", NULL, 0, 0},
      {"list", OPTION_FLAG, &command->list, NULL,
       "name the rows, measure nothing; with --json one object per row", NULL, 0, 0},
      {"quick", OPTION_FLAG, &command->quick, NULL, "fewer rounds, to see that it works", NULL, 0,
       0},
      {"full", OPTION_FLAG, &command->full, NULL, "rows that take ten seconds and more, too", NULL,
       0, 0},
      {"kind", OPTION_CHOICE, &command->kind, NULL, "where frames live", option_kinds, 0, 0},
      {"device", OPTION_DEVICE, &command->device, "N", "GPU, by number or UUID", NULL, 0, 0},
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "bench",
      .arguments = "",
      .summary = "Measures what handing over a frame costs, each row in turns with its floor: the "
                 "least that\nthis machine allows. p50 is judged. Wants a quiet machine with two "
                 "cores or more.",
      .rows = rows,
      .notes = notes};
  int status = options_parse(&page, argc, argv, NULL);
  command->options.kind = (cudalink_kind)command->kind;
  command->options.device = option_device(command->device);
  command->options.quick = command->quick != 0;
  return status;
}

static bool is_wanted(const struct bench_command *command, const struct bench_row *row) {
  if (command->row) return strcmp(command->row, row->name) == 0;
  if (!bench_is_for_kind(row, command->options.kind)) return false;
  return command->full || !row->slow;
}

static size_t count_wanted(const struct bench_command *command) {
  size_t count = 0;
  for (size_t i = 0; i < bench_row_count; i++)
    count += is_wanted(command, &bench_rows[i]);
  return count;
}

static int fail_row(const char *name) {
  struct nearest nearest = nearest_to(name);
  for (size_t i = 0; i < bench_row_count; i++)
    nearest_offer(&nearest, bench_rows[i].name);
  if (nearest.best)
    return report(EXIT_CODE_USAGE, "bench: no row \"%.60s\"; did you mean %s?", name, nearest.best);
  return report(EXIT_CODE_USAGE, "bench: no row \"%.60s\"; see --list", name);
}

static void list_row_json(const struct bench_row *row) {
  struct json json;
  json_start(&json, stdout);
  json_text(&json, "name", row->name);
  json_text(&json, "what", row->what);
  json_text(&json, "unit", row->unit);
  json_text(&json, "floor_name", row->floor_name);
  json_text(&json, "published", row->published);
  json_flag(&json, "full", row->slow);
  json_open_list(&json, "kinds");
  for (cudalink_kind kind = CUDALINK_KIND_HOST; kind <= CUDALINK_KIND_IPC; kind++)
    if (bench_is_for_kind(row, kind)) json_text(&json, NULL, cudalink_kind_name(kind));
  json_close_list(&json);
  json_end(&json);
}

static int list_rows(int is_json) {
  for (size_t i = 0; is_json && i < bench_row_count; i++)
    list_row_json(&bench_rows[i]);
  for (size_t i = 0; !is_json && i < bench_row_count; i++)
    printf("%-20s %s%s\n", bench_rows[i].name, bench_rows[i].what,
           bench_rows[i].slow ? " (--full)" : "");
  return EXIT_CODE_OK;
}

/* ---- the channels' folder --------------------------------------------------------------------- */

static bool make_directory(char *path, size_t size) {
  const char *parent = getenv("TMPDIR");
  snprintf(path, size, "%s/cudalink-bench-XXXXXX", parent && *parent ? parent : "/tmp");
  return mkdtemp(path) != NULL;
}

static void remove_directory(const char *path) {
  DIR *directory = opendir(path);
  for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;)
    if (entry->d_name[0] != '.') unlinkat(dirfd(directory), entry->d_name, 0);
  if (directory) closedir(directory);
  rmdir(path);
}

/* ---- which kind is it with `auto`? ------------------------------------------------------------- */

static int play_kind(struct bench_scene *scene) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (bench_export(scene, 65536, 4, &exporter, &description)) return BENCH_FAILED;
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  if (cudalink_exporter_get_statistics(exporter, &statistics) < 0)
    return bench_fail_library(scene, "statistics");
  bench_value(scene, (double)statistics.kind);
  return BENCH_OK;
}

/* In a child, since this process never uses the library. Also finds out early that it works: nobody else
 * has the channel, so what fails is of this machine. */
static int resolve_kind(struct bench_options *options) {
  struct bench_case test = {.options = options};
  struct bench_samples samples = {0};
  int status = bench_play(&test, &samples, play_kind, NULL, 0);
  if (status == BENCH_OK) options->kind = (cudalink_kind)samples.values[0];
  bench_samples_clear(&samples);
  if (status == BENCH_OK || stop_requested()) return EXIT_CODE_OK;
  if (gpus_report_unknown()) return EXIT_CODE_SYSTEM;
  return report(EXIT_CODE_SYSTEM, "bench: %s", test.text);
}

/* ---- measuring --------------------------------------------------------------------------------- */

/* On a terminal: some rows take seconds. */
static void show_progress(size_t number, size_t wanted, const struct bench_row *row) {
  if (live_is_seen()) live_show("row %zu of %zu: %s, %s", number, wanted, row->name, row->what);
}

static size_t measure(const struct bench_command *command, struct bench_result *results) {
  size_t count = 0, wanted = count_wanted(command);
  for (size_t i = 0; i < bench_row_count; i++) {
    if (!is_wanted(command, &bench_rows[i])) continue;
    show_progress(count + 1, wanted, &bench_rows[i]);
    bench_run(&bench_rows[i], &command->options, &results[count]);
    live_hide();
    if (stop_requested()) break; /* half a row says nothing */
    if (!command->json) bench_report_row(stdout, &results[count]);
    if (!command->json && command->histogram) bench_spread_print(stdout, &results[count]);
    count++;
  }
  return count;
}

static int verdict(const struct bench_command *command, const struct bench_result *results,
                   size_t count) {
  size_t missed = 0;
  const char *first = NULL;
  for (size_t i = 0; i < count; i++) {
    if (results[i].ok) continue;
    if (!first) first = results[i].row->name;
    missed++;
  }
  if (!command->check || !missed) return EXIT_CODE_OK;
  return report(EXIT_CODE_CHECK, "bench: %zu of %zu row%s missed %s target or failed (%s%s)",
                missed, count, text_s(count), missed == 1 ? "its" : "their", first,
                missed > 1 ? ", ..." : "");
}

static int measure_and_report(const struct bench_command *command,
                              const struct bench_machine *machine) {
  struct bench_result *results = calloc(bench_row_count, sizeof *results);
  if (!results) return report(EXIT_CODE_SYSTEM, "bench: no memory for the results");
  int status = EXIT_CODE_OK;
  if (!command->json) bench_report_begin(stdout, machine, &command->options);
  size_t count = measure(command, results);
  if (!stop_requested()) {
    if (command->json) bench_report_json(stdout, machine, &command->options, results, count);
    status = verdict(command, results, count);
    if (command->plot && bench_plot(command->plot, machine, &command->options, results, count) < 0)
      status =
          report(EXIT_CODE_FILE, "bench: %s can't be written: %s", command->plot, strerror(errno));
  }
  free(results);
  return status;
}

int command_bench(int argc, char **argv) {
  struct bench_command command = {.device = OPTION_NO_DEVICE};
  int status = parse(&command, argc, argv);
  if (status != OPTIONS_GO) return status;
  if (command.list) return list_rows(command.json);
  if (!count_wanted(&command)) return fail_row(command.row);
  status = stop_install();
  if (status) return status;
  if (!make_directory(command.options.directory, sizeof command.options.directory))
    return report(EXIT_CODE_SYSTEM, "bench: no folder for the channels can be made in %s",
                  command.options.directory);
  live_start();
  struct bench_machine machine;
  bench_machine_read(&machine);
  bench_clock_start();
  status = resolve_kind(&command.options);
  if (status == EXIT_CODE_OK && command.options.kind != CUDALINK_KIND_HOST)
    gpus_machine_read(&machine.gpu, command.options.device ? command.options.device - 1 : 0);
  if (status == EXIT_CODE_OK) status = measure_and_report(&command, &machine);
  remove_directory(command.options.directory);
  return stop_exit_code(report_stdout(status));
}
