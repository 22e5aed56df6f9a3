/* SPDX-License-Identifier: MIT
 *
 * `cudalink demo`: this process sends a moving picture to others, which compare every byte.
 */
#include "demo.h"
#include "channel_view.h"
#include "command.h"
#include "live.h"
#include "pace.h"
#include "report.h"
#include "stop.h"
#include "transmitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define JOIN_SECONDS 10
#define TAKE_LIMIT (10 * SECOND)
#define END_LIMIT (5 * SECOND)
#define COUNTER_SIDE 8u /* its number has no room in less */
#define LOOK_PERIOD UINT64_C(5000000)
#define CHECK_PERIOD UINT64_C(200000000)

static const char *const patterns[] = {"counter", "check", NULL};
static const enum pattern pattern_of[] = {PATTERN_COUNTER, PATTERN_CHECK};

struct demo_options {
  int64_t seconds;
  struct option_size size;
  uint32_t format;
  struct option_rate rate;
  uint64_t consumers;
  uint64_t device;
  int pattern;
  int kind;
  int json;
};

static const char summary[] =
    "Sends a moving picture to other processes, which compare every byte of what they get. The\n"
    "consumers take turns in what they ask for: every frame, the latest, frames in order. What\n"
    "is counted, and the time, begin when each consumer has had its first frame.";

static const char notes[] =
    "JSON keys: ok frames_sent frames_received (by all together) torn lost skipped consumers\n"
    "channel kind path reason pattern format width height ready_seconds (until each consumer\n"
    "had its first frame, which is not counted) seconds fps latency_p50_us latency_p99_us\n"
    "per_consumer (a list: policy frames_received skipped lost torn latency_p50_us\n"
    "latency_p99_us exit_code). For each, frames_received + skipped + lost = frames_sent.\n"
    "\n"
    "examples:\n"
    "  cudalink demo\n"
    "  cudalink demo --seconds 10 --size 1920x1080 --fps 60 --pattern check\n"
    "  cudalink demo --consumers 8 --fps 0 --json";

static int parse(struct demo_options *options, int argc, char **argv) {
  const struct option_row rows[] = {
      {"seconds", OPTION_SECONDS, &options->seconds, .value = "S", .help = "how long (default 5)"},
      {"size", OPTION_SIZE, &options->size, .value = "WxH",
       .help = "of the picture (default 1280x720)"},
      {"format", OPTION_FORMAT, &options->format, .value = "FORMAT",
       .help = "of the picture (default RGBA8)"},
      {"fps", OPTION_RATE, &options->rate, .value = "RATE",
       .help = "frames per second (default 30); 0 = as fast as possible"},
      {"consumers", OPTION_NUMBER, &options->consumers, .value = "N",
       .help = "processes that receive (default 3)", .minimum = 1, .maximum = DEMO_MOST_CONSUMERS},
      {"pattern", OPTION_CHOICE, &options->pattern, .choices = patterns,
       .help = "counter (default) is a picture to look at, check is fast noise"},
      {"kind", OPTION_CHOICE, &options->kind, .choices = option_kinds,
       .help = "memory of the frames (default auto)"},
      {"device", OPTION_DEVICE, &options->device, .value = "N",
       .help = "GPU, by number or UUID; without it the first, or host memory"},
      {"json", OPTION_FLAG, &options->json, .help = "print the result as one JSON object"},
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "demo", .arguments = "", .summary = summary, .rows = rows, .notes = notes};
  return options_parse(&page, argc, argv, NULL);
}

static void show_live(struct demo_result *result, struct demo_crew *crew, struct live_meter *meter,
                      uint64_t start) {
  struct demo_result now = {.frames_sent = 0};
  char half[TEXT_DURATION_SIZE], most[TEXT_DURATION_SIZE];
  if (!live_is_due()) return;
  demo_crew_read(crew);
  demo_result_add(&now, crew);
  live_show("%4.1f s  %6.1f fps  %llu sent  latency %s (p50) %s (p99)  skipped %llu  torn %llu",
            (double)(cudalink_now() - start) / 1e9, live_rate(meter, result->frames_sent),
            (unsigned long long)result->frames_sent, histogram_text(half, &now.latency, 0.5),
            histogram_text(most, &now.latency, 0.99), (unsigned long long)now.skipped,
            (unsigned long long)now.torn);
}

/* Sends until the time is up, a signal comes, or a consumer is gone. */
static int send_frames(struct transmitter *transmitter, struct source *source,
                       const struct demo_options *options, struct demo_crew *crew,
                       struct demo_result *result) {
  struct pace pace = {.rate = source_rate(source)};
  struct live_meter meter = {0};
  struct media_error error;
  uint64_t start = cudalink_now(), end = start + (uint64_t)options->seconds, checked = start;
  uint64_t before = transmitter->frames;
  int code = EXIT_CODE_OK;
  while (!code && !pace_wait(&pace) && cudalink_now() < end) {
    const cudalink_description *description;
    source_next(source, &description, &error);
    code = transmitter_send(transmitter, source, description);
    result->frames_sent = transmitter->frames - before;
    show_live(result, crew, &meter, start);
    if (cudalink_now() - checked < CHECK_PERIOD) continue;
    if (demo_crew_has_ended_one(crew)) break;
    checked = cudalink_now();
  }
  result->seconds = (double)(cudalink_now() - start) / 1e9;
  if (!code && result->frames_sent) code = transmitter_wait_taken(transmitter, TAKE_LIMIT, 1);
  live_hide();
  return code;
}

/* Until all have done something; `what` says it, for the message. */
static int wait_for_crew(struct demo_crew *crew, int (*has_done)(struct demo_crew *crew),
                         const char *what) {
  uint64_t seconds = JOIN_SECONDS + crew->count; /* a process and a CUDA context each */
  uint64_t end = cudalink_now() + seconds * SECOND;
  while (!has_done(crew)) {
    if (demo_crew_has_ended_one(crew))
      return report(EXIT_CODE_CHECK,
                    "a consumer process ended before it %s; cudalink doctor looks why", what);
    if (cudalink_now() >= end)
      return report(EXIT_CODE_CHECK,
                    "not all consumer processes %s within %llu s; cudalink doctor looks why", what,
                    (unsigned long long)seconds);
    if (stop_wait_until(cudalink_now() + LOOK_PERIOD)) return EXIT_CODE_OK;
  }
  return EXIT_CODE_OK;
}

/* A consumer's first frame takes long: a CUDA context, the map of the memory. That is the start, and
 * no frame's latency, so one frame goes ahead and does not count. Others may look in as well, so
 * consumers are not only counted: each says how far it is. */
static int get_ready(struct transmitter *transmitter, struct source *source,
                     struct demo_crew *crew) {
  const cudalink_description *description;
  struct media_error error;
  int code = wait_for_crew(crew, demo_crew_has_joined, "joined");
  if (!code) code = transmitter_wait_consumers(transmitter, crew->count, JOIN_SECONDS * SECOND);
  if (code || stop_requested()) return code;
  source_next(source, &description, &error);
  code = transmitter_send(transmitter, source, description);
  if (!code) code = wait_for_crew(crew, demo_crew_has_frames, "got a first frame");
  if (!code) demo_crew_count_from(crew, transmitter->frames + 1);
  return code;
}

static void print_way(const struct demo_result *result) {
  const cudalink_exporter_statistics *statistics = &result->statistics;
  const cudalink_picture *picture = &result->description->picture;
  printf("channel %s: %ux%u %s, kind %s, %s\n", result->channel, picture->width, picture->height,
         cudalink_format_name(picture->format), cudalink_kind_name((cudalink_kind)statistics->kind),
         channel_view_way(statistics->path));
  fflush(stdout);
}

static void print_ready(const struct demo_result *result) {
  printf("ready after %.1f s: each consumer has its first frame\n", result->ready_seconds);
  fflush(stdout);
}

static int run(const struct demo_options *options, struct transmitter *transmitter,
               struct source *source, struct demo_result *result) {
  struct demo_crew *crew = calloc(1, sizeof *crew);
  if (!crew) return report(EXIT_CODE_SYSTEM, "no memory for the list of consumers");
  result->statistics = transmitter_statistics(transmitter);
  if (!options->json) print_way(result);
  uint64_t start = cudalink_now();
  int code = demo_crew_start(crew, options->consumers, result->channel, result->pattern,
                             option_device(options->device));
  if (!code) code = get_ready(transmitter, source, crew);
  result->ready_seconds = (double)(cudalink_now() - start) / 1e9;
  if (!code && !stop_requested() && !options->json) print_ready(result);
  if (!code) code = send_frames(transmitter, source, options, crew, result);
  cudalink_exporter_close(transmitter->exporter); /* which ends the consumers that have joined */
  demo_crew_finish(crew, demo_crew_has_frames(crew) ? END_LIMIT : 0);
  demo_result_add(result, crew);
  if (options->json)
    demo_result_print_json(result, crew);
  else
    demo_result_print(result, crew);
  free(crew);
  int was_stopped_early = stop_requested() && result->frames_sent == 0;
  if (!code && !was_stopped_early && !demo_result_is_good(result)) code = EXIT_CODE_CHECK;
  return code;
}

static int open_and_run(const struct demo_options *options, struct source *source) {
  char channel[64];
  struct media_error error;
  struct transmitter transmitter;
  struct demo_result *result = calloc(1, sizeof *result);
  if (!result) return report(EXIT_CODE_SYSTEM, "no memory for the result");
  snprintf(channel, sizeof channel, "demo-%d", (int)getpid());
  result->channel = channel;
  result->pattern = pattern_of[options->pattern];
  source_next(source, &result->description, &error);
  cudalink_exporter_spec spec = {
      CUDALINK_EXPORTER_DEFAULTS, .name = channel, .description = result->description,
      .kind = (cudalink_kind)options->kind, .device = option_device(options->device)};
  int code = transmitter_open(&transmitter, &spec);
  if (!code) {
    code = run(options, &transmitter, source, result);
    transmitter_close(&transmitter);
  }
  free(result);
  return code;
}

int command_demo(int argc, char **argv) {
  struct demo_options options = {.seconds = 5 * SECOND,
                                 .size = {1280, 720},
                                 .rate = {30, 1},
                                 .consumers = 3,
                                 .device = OPTION_NO_DEVICE};
  int code = parse(&options, argc, argv);
  if (code != OPTIONS_GO) return code;
  if (pattern_of[options.pattern] == PATTERN_COUNTER &&
      (options.size.width < COUNTER_SIDE || options.size.height < COUNTER_SIDE))
    return report(EXIT_CODE_USAGE,
                  "demo: --pattern counter needs %ux%u pixels; use --pattern check", COUNTER_SIDE,
                  COUNTER_SIDE);
  code = stop_install();
  if (code) return code;
  live_start();
  struct media_error error;
  struct source_options source_options = {.pattern = pattern_of[options.pattern],
                                          .format = options.format,
                                          .size = options.size,
                                          .rate = options.rate};
  struct source *source = source_open(&source_options, &error);
  if (!source) return report_media(&error);
  code = open_and_run(&options, source);
  source_close(source);
  return stop_exit_code(code);
}
