/* SPDX-License-Identifier: MIT
 *
 * `cudalink record`: every frame of a channel goes into a file, as it is.
 */
#include "channel_view.h"
#include "command.h"
#include "gpus.h"
#include "json.h"
#include "options.h"
#include "receiver.h"
#include "record_context.h"
#include "record_queue.h"
#include "report.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEBIBYTE 1048576.0
#define SLOW_SHARE 0.5 /* of the time spent in writing: from here on the file is to blame */

struct record {
  struct receiver receiver;
  struct record_queue queue;
  struct record_context context;
  struct live_meter meter;
  uint64_t missed_at_start; /* before the first frame */
  const char *path;
  int json;
};

/* In the order of cudalink_policy, from IN_ORDER on. */
static const char *const policies[] = {"order", "every", NULL};

static const char notes[] =
    "With --policy order, the default, the producer goes at its own speed; frames that the disk\n"
    "is too slow for are missed and counted, and each recorded frame says how many were missed\n"
    "before it. With every the producer waits, so nothing is missed. Frames that the disk has no\n"
    "time for yet wait in memory, up to 16 of them and 256 MiB; Ctrl-C still writes those into a\n"
    "file, and discards those for a pipe. What is missed while the recorder starts, slots of the\n"
    "producer bridge (send --slots 16). Started before the producer, the recorder makes ready for\n"
    "the GPU of --device, or the only one, while it waits; --kind host needs none.\n"
    "\n"
    "FILE - is stdout; where the shell leads that into a file, it is one (record cam - > FILE), "
    "but\n"
    "no summary is printed. The file has whole frames only, also when the disk is full or a "
    "signal\n"
    "comes; docs/recording.md describes it.\n"
    "\n"
    "Exit code 1: frames were missed. JSON keys: channel file frames_recorded missed\n"
    "missed_at_start (before the first frame) discarded (read out, but never written whole: a\n"
    "pipe that ends, a full disk) invalid bytes seconds fps (of those recorded) writing (part of\n"
    "the time) wait_seconds (until the first frame) sessions evictions kind path reason.\n"
    "\n"
    "examples:\n"
    "  cudalink record cam take1.rec --seconds 10\n"
    "  cudalink record cam take2.rec --policy every --once\n"
    "  cudalink record cam - | zstd > take3.rec.zst";

static int parse(struct record *record, int argc, char **argv) {
  struct receiver_options *options = &record->receiver.options;
  const char *arguments[2];
  int policy = 0;
  const struct option_row rows[] = {
      {"policy", OPTION_CHOICE, &policy, .choices = policies,
       .help = "who waits for whom (default order)"},
      RECEIVER_ROWS(options),
      {"json", OPTION_FLAG, &record->json, .help = "print the summary as one JSON object"},
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "record",
      .arguments = "NAME FILE",
      .summary = "Records the channel NAME: every byte, description and time of its frames.",
      .rows = rows,
      .notes = notes,
      .least_arguments = 2,
      .most_arguments = 2};
  int code = options_parse(&page, argc, argv, arguments);
  if (code != OPTIONS_GO) return code;
  options->channel = arguments[0];
  options->policy = CUDALINK_POLICY_IN_ORDER + policy;
  record->path = arguments[1];
  return OPTIONS_GO;
}

static int is_stdout(const struct record *record) { return strcmp(record->path, "-") == 0; }

/* Those that the old wire's producer overwrote were received, but are in no file. */
static uint64_t missed(const struct record *record) {
  return record->receiver.result.tally.missed + record->queue.overwritten;
}

static int use_frame(void *context, const cudalink_frame *frame, int has_pixels) {
  struct record *record = context;
  if (record->receiver.result.tally.received == 1) record->missed_at_start = frame->missed;
  int code = record_queue_read(&record->queue, frame, has_pixels);
  if (code) return code;
  /* Its slot is the producer's again while the file is waited for. It is the only one held. */
  cudalink_frame_release(&record->receiver.held[0], CUDALINK_STREAM_COMPLETE);
  record_queue_put(&record->queue);
  return EXIT_CODE_OK;
}

static void show_live(void *context) {
  struct record *record = context;
  uint64_t frames, bytes;
  record_queue_look(&record->queue, &frames, &bytes);
  live_show("%" PRIu64 " frame%s  %.1f fps  %.1f MiB  missed %" PRIu64, frames, text_s(frames),
            live_rate(&record->meter, frames), (double)bytes / MEBIBYTE, missed(record));
}

/* Makes the GPU's context while no frame waits for it: done behind the joining it costs the first ones. Of a
 * channel that is there it is known which GPU, and how much memory to read frames out to; of one that is not yet,
 * it is the GPU that was named, or the only one. */
static void prepare(struct record *record) {
  static cudalink_channel_info channel;
  const struct receiver_options *options = &record->receiver.options;
  if (options->kind == CUDALINK_KIND_HOST) return;
  if (cudalink_channel_get(NULL, options->channel, CHANNEL_VIEW_PATIENCE, &channel) ||
      channel.status) {
    record_context_start(&record->context, options->device);
    return;
  }
  if (channel.kind == CUDALINK_KIND_HOST) return;
  int ordinal = options->device == OPTION_NO_DEVICE ? gpus_ordinal(channel.device_uuid)
                                                    : (int)options->device;
  if (ordinal < 0) return;
  record_queue_prepare(&record->queue, CUDALINK_DEVICE(ordinal), channel.slot_bytes);
}

/* ---- the end -------------------------------------------------------------------------------- */

static double writing_share(const struct record *record) {
  double seconds = record->receiver.result.span;
  double share = seconds > 0 ? (double)record->queue.write_time / 1e9 / seconds : 0;
  return share < 1 ? share : 1;
}

/* Of what is in the file. */
static double rate_of(const struct record *record) {
  const struct record_queue *queue = &record->queue;
  double seconds = (double)(queue->last_time - queue->first_time) / 1e9;
  return seconds > 0 ? (double)(queue->frames - 1) / seconds : 0;
}

static void print_json(const struct record *record, FILE *stream) {
  const struct receiver_result *result = &record->receiver.result;
  struct json json;
  json_start(&json, stream);
  json_text(&json, "channel", record->receiver.options.channel);
  json_text(&json, "file", record->path);
  json_number(&json, "frames_recorded", record->queue.frames);
  json_number(&json, "missed", missed(record));
  json_number(&json, "missed_at_start", record->missed_at_start);
  json_number(&json, "discarded", record->queue.discarded);
  json_number(&json, "invalid", result->tally.invalid);
  json_number(&json, "bytes", record->queue.bytes);
  json_real(&json, "seconds", result->seconds);
  json_real(&json, "fps", rate_of(record));
  json_real(&json, "writing", writing_share(record));
  receiver_put_channel(&json, result);
  json_end(&json);
}

static void print(const struct record *record) {
  const struct receiver_result *result = &record->receiver.result;
  char time[RECEIVER_TIME_SIZE];
  char path[TEXT_ESCAPED_SIZE(MEDIA_NAME_SIZE)];
  char discarded[48] = "";
  if (record->queue.discarded)
    snprintf(discarded, sizeof discarded, ", discarded %" PRIu64, record->queue.discarded);
  printf("recorded %" PRIu64 " frame%s in %s, %.1f fps, %" PRIu64 " byte%s into %s; missed "
         "%" PRIu64 "%s, invalid %" PRIu64 "\n",
         record->queue.frames, text_s(record->queue.frames), receiver_time(time, result),
         rate_of(record), record->queue.bytes, text_s(record->queue.bytes),
         text_escape(path, sizeof path, record->path), missed(record), discarded,
         result->tally.invalid);
}

static int fail_missed(const struct record *record) {
  char start[64] = "";
  double share = writing_share(record);
  const struct receiver_result *result = &record->receiver.result;
  uint64_t at_start = record->missed_at_start;
  if (at_start)
    snprintf(start, sizeof start, ", %" PRIu64 " of them before the first one came", at_start);
  return report(
      EXIT_CODE_CHECK,
      "channel '%s': missed %" PRIu64 " of %" PRIu64 " frame%s%s: %s (writing took %.0f %% of "
      "the time); more slots bridge a start or a pause (send --slots 16), and --policy every makes "
      "the producer wait",
      record->receiver.options.channel, missed(record),
      result->tally.missed + result->tally.received,
      text_s(result->tally.missed + result->tally.received), start,
      share >= SLOW_SHARE ? "the disk can't keep up" : "they came faster than they were taken",
      100 * share);
}

/* A reader that has gone has seen enough, and what a signal ends is no failure; but a file is written on
 * behind it, and may fail then. */
static int write_failed(const struct record *record) {
  const struct media_error *error = &record->queue.error;
  if (error->code == CUDALINK_ERROR_CLOSED && (stop_requested() || is_stdout(record)))
    return EXIT_CODE_OK;
  return report_media(error);
}

/* Into stdout, where there is no summary. */
static void report_discarded(const struct record *record) {
  uint64_t count = record->queue.discarded;
  report(EXIT_CODE_OK, "stdout: %" PRIu64 " frame%s that waited for its reader %s discarded", count,
         text_s(count), count == 1 ? "was" : "were");
}

static int summarize(const struct record *record, int code) {
  FILE *stream = is_stdout(record) ? stderr : stdout;
  if (record->json)
    print_json(record, stream);
  else if (stream == stdout && (record->queue.frames || !code))
    print(record);
  else if (stream == stderr && record->queue.discarded && stop_requested() &&
           !record->queue.recorder.output.is_regular)
    report_discarded(record);
  if (!code && missed(record) && !record->queue.has_failed) return fail_missed(record);
  return code;
}

static int run(struct record *record) {
  int is_open;
  record->receiver.use = use_frame;
  record->receiver.show = show_live;
  record->receiver.context = record;
  int code = record_queue_open(&record->queue, record->path, record->receiver.options.channel,
                               &record->receiver.is_over);
  if (code) return code;
  prepare(record);
  code = receiver_run(&record->receiver, &is_open);
  record_context_end(&record->context);
  int result = record_queue_close(&record->queue);
  if (result && !code) code = write_failed(record);
  return is_open ? summarize(record, code) : code;
}

static int check_and_run(struct record *record) {
  if (is_stdout(record) && isatty(STDOUT_FILENO))
    return report(EXIT_CODE_USAGE, "record: - would fill the terminal; add | and a program");
  int code = receiver_check(&record->receiver.options);
  if (!code) code = stop_install();
  if (code) return code;
  live_start();
  return stop_exit_code(run(record));
}

int command_record(int argc, char **argv) {
  struct record *record = calloc(1, sizeof *record);
  if (!record) return report(EXIT_CODE_SYSTEM, "no memory to record");
  record->receiver.options = (struct receiver_options){.hold = 1, .device = OPTION_NO_DEVICE};
  int code = parse(record, argc, argv);
  if (code == OPTIONS_GO) code = check_and_run(record);
  free(record);
  return code;
}
