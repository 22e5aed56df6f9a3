/* SPDX-License-Identifier: MIT
 *
 * `cudalink send`: a pattern or a file goes into a channel, at the rate that it wants.
 */
#include "command.h"
#include "live.h"
#include "pace.h"
#include "report.h"
#include "sending.h"
#include "stop.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SECOND INT64_C(1000000000)
#define TAKE_LIMIT (10 * SECOND)

struct send_options {
  const char *arguments[2]; /* channel, file */
  struct source_options source;
  int pattern;
  struct sending_options sending;
};

static const char notes[] =
    "FILE is a Y4M, PNG, NPY or raw file (raw: with --format and --size), a folder of PNG and\n"
    "NPY files, or - for stdin. Before the channel ends, send waits up to 10 s until consumers\n"
    "that want every frame have taken all.\n"
    "\n"
    "JSON keys: channel frames_sent bytes seconds fps kind path reason format width height\n"
    "dropped waits evicted cursors_lost consumers.\n"
    "\n"
    "examples:\n"
    "  cudalink send cam --pattern bars --size 1920x1080 --fps 50\n"
    "  cudalink send cam clip.y4m --loop\n"
    "  ffmpeg -i clip.mp4 -f yuv4mpegpipe - | cudalink send cam - --wait-consumers 1\n"
    "  cudalink send cam frames.bin --format NV12 --size 1280x720 --fps 25";

static int parse(struct send_options *options, int argc, char **argv) {
  const struct option_row rows[] = {
      {"pattern", OPTION_CHOICE, &options->pattern, .choices = option_patterns,
       .help = "what to draw when there is no FILE (default counter)"},
      {"size", OPTION_SIZE, &options->source.size, .value = "WxH",
       .help = "of a pattern (default 1280x720) or of raw frames"},
      {"format", OPTION_FORMAT, &options->source.format, .value = "FORMAT",
       .help = "of a pattern (default RGBA8) or of raw frames; cudalink help formats"},
      {"fps", OPTION_RATE, &options->source.rate, .value = "RATE",
       .help = "default the file's, else 60; 0 = as fast as possible"},
      SENDING_ROWS(&options->sending),
      OPTION_ROWS_END};
  const struct option_page page = {.command = "send",
                                   .arguments = "NAME [FILE]",
                                   .summary =
                                       "Sends a test pattern or a file into the channel NAME.",
                                   .rows = rows,
                                   .notes = notes,
                                   .least_arguments = 1,
                                   .most_arguments = 2};
  options->pattern = -1;
  return options_parse(&page, argc, argv, options->arguments);
}

/* A file where the channel's name belongs: the name was forgotten. */
static int is_file_for_name(const struct send_options *options) {
  const char *name = options->arguments[0];
  struct stat status;
  return !options->arguments[1] && options->pattern < 0 && strpbrk(name, "./") &&
         stat(name, &status) == 0 && S_ISREG(status.st_mode);
}

/* What only makes sense together, or not together. */
static int check(struct send_options *options) {
  struct source_options *source = &options->source;
  source->path = options->arguments[1];
  source->loop = options->sending.loop;
  source->pattern = options->pattern < 0 ? PATTERN_COUNTER : (enum pattern)options->pattern;
  if (is_file_for_name(options))
    return report(EXIT_CODE_USAGE,
                  "send: %s is a file, and no NAME is there: cudalink send NAME %s (with --pattern "
                  "it is taken as the name)",
                  options->arguments[0], options->arguments[0]);
  if (!source->path && source->loop)
    return report(EXIT_CODE_USAGE, "send: --loop needs a FILE; a pattern has no end");
  if (!source->path) return EXIT_CODE_OK;
  if (options->pattern >= 0)
    return report(EXIT_CODE_USAGE, "send: give either --pattern or a FILE, not both");
  if (!source->format != !source->size.width)
    return report(EXIT_CODE_USAGE, "send: raw frames need both --format and --size");
  return EXIT_CODE_OK;
}

static void show_live(const struct transmitter *transmitter, struct live_meter *meter) {
  if (!live_is_due()) return;
  cudalink_exporter_statistics statistics = transmitter_statistics(transmitter);
  live_show("%llu frame%s  %.1f fps  %u consumer%s  %llu wait%s  %llu evicted",
            (unsigned long long)transmitter->frames, text_s(transmitter->frames),
            live_rate(meter, transmitter->frames), statistics.consumers,
            text_s(statistics.consumers), (unsigned long long)statistics.waits,
            text_s(statistics.waits), (unsigned long long)statistics.evicted);
}

/* A pipe may be slow, so the frame is there before its time is waited for. */
static int send_frames(const struct send_options *options, struct transmitter *transmitter,
                       struct source *source) {
  struct pace pace = {.frames = 0};
  struct live_meter meter = {0};
  struct media_error error;
  const cudalink_description *description;
  uint64_t end = sending_end(&options->sending, cudalink_now());
  int code = EXIT_CODE_OK;
  while (!code && !sending_is_over(&options->sending, transmitter, end)) {
    int result = source_next(source, &description, &error);
    if (result == 0) break;
    if (result < 0) return stop_requested() ? EXIT_CODE_OK : report_media(&error);
    pace.rate = source_rate(source);
    if (pace_wait(&pace) || sending_is_over(&options->sending, transmitter, end)) break;
    code = transmitter_send(transmitter, source, description);
    show_live(transmitter, &meter);
  }
  return code;
}

/* One frame alone has no rate. */
static double rate_of(const struct transmitter *transmitter, double seconds) {
  return transmitter->frames > 1 && seconds > 0 ? (double)transmitter->frames / seconds : 0;
}

static void print_summary(const struct transmitter *transmitter, double seconds) {
  cudalink_exporter_statistics statistics = transmitter_statistics(transmitter);
  printf(
      "sent %llu frame%s in %.1f s, %.1f fps, %llu byte%s; %llu wait%s, %llu consumer%s evicted\n",
      (unsigned long long)transmitter->frames, text_s(transmitter->frames), seconds,
      rate_of(transmitter, seconds), (unsigned long long)transmitter->bytes,
      text_s(transmitter->bytes), (unsigned long long)statistics.waits, text_s(statistics.waits),
      (unsigned long long)statistics.evicted, text_s(statistics.evicted));
}

/* A short file is over before somebody has started a consumer. */
static void print_hint(const struct send_options *options, const struct transmitter *transmitter,
                       double seconds) {
  if (options->sending.wait_consumers || seconds > 1 || stop_requested()) return;
  if (transmitter_statistics(transmitter).consumers == 0)
    printf("nobody was there; --wait-consumers 1 waits for a consumer%s\n",
           options->arguments[1] ? ", --loop goes on" : "");
}

static void print_json(const struct send_options *options, const struct transmitter *transmitter,
                       const cudalink_description *description, double seconds) {
  struct json json;
  json_start(&json, stdout);
  json_text(&json, "channel", options->arguments[0]);
  json_number(&json, "frames_sent", transmitter->frames);
  json_number(&json, "bytes", transmitter->bytes);
  json_real(&json, "seconds", seconds);
  json_real(&json, "fps", rate_of(transmitter, seconds));
  sending_json_way(&json, transmitter);
  json_text(&json, "format", cudalink_format_name(description->picture.format));
  json_number(&json, "width", description->picture.width);
  json_number(&json, "height", description->picture.height);
  sending_json_counts(&json, transmitter);
  json_end(&json);
}

/* What was sent before a failure is still delivered. */
static int run(const struct send_options *options, struct transmitter *transmitter,
               struct source *source, const cudalink_description *description) {
  if (!options->sending.json) sending_print_way(transmitter, options->arguments[0]);
  int code = sending_wait_consumers(&options->sending, transmitter);
  uint64_t start = cudalink_now();
  if (!code) code = send_frames(options, transmitter, source);
  double seconds = (double)(cudalink_now() - start) / 1e9;
  int taken = transmitter_wait_taken(transmitter, TAKE_LIMIT, 0);
  live_hide();
  if (options->sending.json)
    print_json(options, transmitter, description, seconds);
  else
    print_summary(transmitter, seconds);
  if (!code && !options->sending.json) print_hint(options, transmitter, seconds);
  return code ? code : taken;
}

static int open_and_run(const struct send_options *options, struct source *source) {
  const cudalink_description *description;
  struct media_error error;
  struct transmitter transmitter;
  int result = source_next(source, &description, &error);
  if (stop_requested()) return EXIT_CODE_OK;
  if (result == 0) return report(EXIT_CODE_FILE, "%s: has no frames", options->arguments[1]);
  if (result < 0) return report_media(&error);
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = options->arguments[0],
                                 .description = description};
  int code = sending_open(&options->sending, &transmitter, &spec);
  if (code) return code;
  code = run(options, &transmitter, source, description);
  transmitter_close(&transmitter);
  return code;
}

int command_send(int argc, char **argv) {
  struct send_options options = {.sending.device = OPTION_NO_DEVICE};
  int code = parse(&options, argc, argv);
  if (code != OPTIONS_GO) return code;
  code = check(&options);
  if (!code) code = stop_install();
  if (code) return code;
  live_start();
  struct media_error error;
  struct source *source = source_open(&options.source, &error);
  if (!source) return stop_requested() ? stop_exit_code(EXIT_CODE_OK) : report_media(&error);
  code = open_and_run(&options, source);
  source_close(source);
  return stop_exit_code(code);
}
