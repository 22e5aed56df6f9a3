/* SPDX-License-Identifier: MIT
 *
 * `cudalink watch`: the channels, live: as a table on a terminal, as text or JSON in a pipe, as
 * metrics for Prometheus.
 */
#include "watch.h"
#include "command.h"
#include "metrics.h"
#include "options.h"
#include "report.h"
#include "stop.h"
#include "terminal.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LEAST_INTERVAL INT64_C(50000000)

static const char notes[] =
    "On a terminal the table stays and changes. Keys: q quits, s sorts by the next column, r "
    "turns\n"
    "the order around, / filters by name (Esc: all again), c shows or hides the consumers, the\n"
    "arrow keys scroll. A narrow window shows the most important columns. Elsewhere a table is\n"
    "printed for each look.\n"
    "\n"
    "Columns: FPS published, of a consumer taken; LATENCY from publish to acquire, p50/p99 (in a\n"
    "narrow window the p50 alone), of a channel that of its slowest consumer; AGE of the newest\n"
    "frame; DROPS, of a consumer frames that it missed; of a consumer HELD/hold, FOR how long it "
    "has\n"
    "held its oldest frame, and, with policy every, how many frames it is BEHIND; DEVICE the\n"
    "beginning of the GPU's UUID. Red: dead, or held for over 1 s.\n"
    "\n"
    "With --json one object per line and look, with the keys time_ms (since 1970) and channels, a "
    "list with\n"
    "the keys fps (also of each consumer) " CHANNEL_VIEW_KEYS "\n"
    "\n"
    "--prometheus answers HTTP requests for /metrics on a port of 127.0.0.1 (0 = any free one) or\n"
    "on a UNIX socket that only this user can reach.\n"
    "\n"
    "examples:\n"
    "  cudalink watch\n"
    "  cudalink watch --json --interval 5 >> channels.jsonl\n"
    "  cudalink watch --prometheus 9105";

static int parse(struct watch_options *options, int argc, char **argv) {
  const struct option_row rows[] = {
      {"interval", OPTION_SECONDS, &options->interval, .value = "S",
       .help = "time between looks (default 1)"},
      {"count", OPTION_NUMBER, &options->count, .value = "N", .help = "end after N looks",
       .minimum = 1},
      {"sort", OPTION_CHOICE, &options->sort, .choices = watch_sorts,
       .help = "what comes first (default name), the largest on top"},
      {"reverse", OPTION_FLAG, &options->reverse, .help = "the other way around"},
      {"filter", OPTION_TEXT, &options->filter, .value = "TEXT",
       .help = "only channels whose name has this in it"},
      CHANNEL_FILTER_ROWS(&options->channels),
      {"json", OPTION_FLAG, &options->json, .help = "print one JSON object per look"},
      {"prometheus", OPTION_TEXT, &options->prometheus, .value = "PATH|PORT",
       .help = "serve metrics instead"},
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "watch",
      .arguments = "",
      .summary = "Shows the channels and who is on them, and goes on doing so.",
      .rows = rows,
      .notes = notes};
  int code = options_parse(&page, argc, argv, NULL);
  if (code == OPTIONS_GO && options->interval < LEAST_INTERVAL)
    return report(EXIT_CODE_USAGE, "watch: --interval must be 0.05 or more");
  if (code != OPTIONS_GO) return code;
  code = channel_filter_resolve(&options->channels);
  return code == EXIT_CODE_OK ? OPTIONS_GO : code;
}

static uint64_t unix_milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void print_json(const struct watch_look *look, const size_t *order, size_t count) {
  struct json json;
  json_start(&json, stdout);
  json_number(&json, "time_ms", unix_milliseconds());
  json_open_list(&json, "channels");
  for (size_t i = 0; i < count; i++) {
    json_open_object(&json, NULL);
    channel_view_json(&json, &look->channels[order[i]], look->time, &look->rates[order[i]]);
    json_close_object(&json);
  }
  json_close_list(&json);
  json_end(&json);
}

static void print_table(const struct watch_look *look, const size_t *order, size_t count) {
  struct table table = {.columns = channel_view_columns};
  for (size_t i = 0; i < count; i++)
    channel_view_rows(&table, &look->channels[order[i]], look->time, &look->rates[order[i]], 1);
  table_print(&table, terminal_width(STDOUT_FILENO), stdout);
  printf("\n");
  table_free(&table);
}

/* 0: stdout is gone, which is a reader's right. */
static int print_look(const struct watch_options *options, const struct watch_look *look) {
  size_t *order = malloc((look->count ? look->count : 1) * sizeof *order);
  if (!order) return 0;
  size_t count =
      watch_arrange(look, (enum watch_sort)options->sort, options->reverse, options->filter, order);
  if (options->json)
    print_json(look, order, count);
  else
    print_table(look, order, count);
  free(order);
  return fflush(stdout) == 0 && !ferror(stdout);
}

/* The first look is only there to be compared with: what is printed has rates. */
static int watch_pipe(const struct watch_options *options) {
  struct watch_look look = {0};
  int result = watch_take_look(&look, &options->channels);
  for (uint64_t i = 0; !result && !(options->count && i == options->count); i++) {
    if (stop_wait_until(look.time + (uint64_t)options->interval)) break;
    result = watch_take_look(&look, &options->channels);
    if (result || !print_look(options, &look)) break;
  }
  watch_free_look(&look);
  return result ? report_library(result) : EXIT_CODE_OK;
}

static int run(const struct watch_options *options) {
  if (options->prometheus) return metrics_serve(options->prometheus, &options->channels);
  if (!options->json && terminal_is(STDOUT_FILENO)) return watch_screen(options);
  return watch_pipe(options);
}

int command_watch(int argc, char **argv) {
  struct watch_options options = {.interval = 1000000000};
  int code = parse(&options, argc, argv);
  if (code != OPTIONS_GO) return code;
  code = stop_install();
  if (code) return code;
  return stop_exit_code(run(&options));
}
