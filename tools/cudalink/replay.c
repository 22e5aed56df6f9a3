/* SPDX-License-Identifier: MIT
 *
 * `cudalink replay`: a recording goes into a channel, each frame as it was and when it was.
 */
#include "command.h"
#include "live.h"
#include "replay_clock.h"
#include "report.h"
#include "sending.h"
#include "stop.h"
#include "text.h"

#include "media/recording.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_LIMIT INT64_C(10000000000)
#define ROUND_OVER (-2) /* beside exit codes */

struct replay {
  const char *arguments[2]; /* file, channel */
  struct replay_clock clock;
  struct sending_options sending;

  struct media_recording recording;
  struct media_error cut; /* the sentence when the file ends too early */
  int is_cut;
  struct transmitter transmitter;
  struct live_meter meter;
  uint64_t invalid;  /* frames sent */
  uint64_t rounds;   /* to the end of the file */
  uint64_t end_time; /* 0 = none */
  double duration;
};

static const char notes[] =
    "FILE comes from cudalink record; - is stdin. Each frame keeps its bytes, description, user\n"
    "data and presentation time; frames are as far apart as they were published. Sequence numbers\n"
    "begin at 1 again. A file that was cut off gives all whole frames before that is reported.\n"
    "\n"
    "JSON keys: file channel frames_sent invalid rounds bytes seconds late_most_us kind path "
    "reason\n"
    "dropped waits evicted cursors_lost consumers. late_most_us is the most that a frame came "
    "after\n"
    "its time.\n"
    "\n"
    "examples:\n"
    "  cudalink replay take1.rec cam --wait-consumers 1\n"
    "  cudalink replay take1.rec cam --speed 0.5 --loop\n"
    "  zstd -dc take3.rec.zst | cudalink replay - cam --speed 0";

static int parse(struct replay *replay, int argc, char **argv) {
  const struct option_row rows[] = {
      {"speed", OPTION_SPEED, &replay->clock.speed, .value = "X",
       .help = "2 = twice as fast (default 1); 0 = as fast as possible"},
      SENDING_ROWS(&replay->sending),
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "replay",
      .arguments = "FILE NAME",
      .summary = "Sends a recording into the channel NAME, each frame as it was and when it was.",
      .rows = rows,
      .notes = notes,
      .least_arguments = 2,
      .most_arguments = 2};
  return options_parse(&page, argc, argv, replay->arguments);
}

/* ---- a frame -------------------------------------------------------------------------------- */

static int fill(void *context, void *to, uint64_t number, struct media_error *error) {
  (void)number;
  return media_recording_read(context, to, error);
}

/* An invalid frame was recorded without planes, but a frame must have some: those of its picture, or
 * a single byte. */
static void describe_invalid(cudalink_description *description,
                             const cudalink_description *recorded) {
  const cudalink_picture *picture = &recorded->picture;
  *description = (cudalink_description){0};
  if (cudalink_describe_picture(description, (cudalink_format)picture->format, picture->width,
                                picture->height, 0) == CUDALINK_OK)
    description->picture = *picture;
  else
    cudalink_describe_tensor(description, NULL, CUDALINK_UINT8, 0, NULL);
  description->timing = recorded->timing;
  description->user_size = recorded->user_size;
}

static const char *text_of(const struct media_recording_frame *frame) {
  if (frame->text[0] || !(frame->flags & MEDIA_RECORDING_LOST)) return frame->text;
  return "the recorded producer died before the pixels were complete";
}

static int send_invalid(struct replay *replay, const struct transmitter_frame *like,
                        struct media_error *error) {
  cudalink_description description;
  struct transmitter_frame frame = *like;
  if (media_recording_read(&replay->recording, NULL, error)) return TRANSMITTER_NOT_FILLED;
  describe_invalid(&description, &replay->recording.description);
  frame.description = &description;
  frame.text = text_of(&replay->recording.frame);
  replay->invalid++;
  return transmitter_send_frame(&replay->transmitter, &frame, error);
}

static int send_frame(struct replay *replay, struct media_error *error) {
  struct media_recording *recording = &replay->recording;
  struct transmitter_frame frame = {
      .description = &recording->description,
      .fill = recording->description.plane_count ? fill : NULL,
      .context = recording,
      .user = recording->user,
      .due = replay_clock_due(&replay->clock, recording->frame.timestamp)};
  int code = frame.fill ? transmitter_send_frame(&replay->transmitter, &frame, error)
                        : send_invalid(replay, &frame, error);
  if (!code) replay_clock_sent(&replay->clock, frame.due);
  return code;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* A file that ends too early is good up to there; anything else wrong with it is an end. */
static int fail_file(struct replay *replay, const struct media_error *error) {
  if (stop_requested()) return EXIT_CODE_OK;
  if (!replay->recording.is_cut) return report_media(error);
  replay->is_cut = 1;
  replay->cut = *error;
  return ROUND_OVER;
}

static int is_over(const struct replay *replay) {
  return sending_is_over(&replay->sending, &replay->transmitter, replay->end_time);
}

static void show_live(struct replay *replay) {
  const struct media_recording *recording = &replay->recording;
  uint64_t frames = replay->transmitter.frames;
  if (!live_is_due()) return;
  if (recording->file_bytes)
    live_show("%" PRIu64 " frame%s  %.1f fps  %.0f %% of the file  round %" PRIu64, frames,
              text_s(frames), live_rate(&replay->meter, frames),
              100 * (double)recording->offset / (double)recording->file_bytes, replay->rounds + 1);
  else
    live_show("%" PRIu64 " frame%s  %.1f fps", frames, text_s(frames),
              live_rate(&replay->meter, frames));
}

/* From the current frame, of which all but the pixels is read, to the end of the file. An exit code
 * when everything is over, ROUND_OVER at the end of the file. */
static int send_round(struct replay *replay) {
  struct media_error error;
  int code = EXIT_CODE_OK, result = 1;
  while (result == 1 && !code) {
    if (is_over(replay)) return EXIT_CODE_OK;
    code = send_frame(replay, &error);
    if (code == TRANSMITTER_NOT_FILLED) return fail_file(replay, &error);
    show_live(replay);
    if (!code) result = media_recording_next(&replay->recording, &error);
  }
  if (code) return code;
  return result < 0 ? fail_file(replay, &error) : ROUND_OVER;
}

static int send_rounds(struct replay *replay) {
  struct media_error error;
  for (;;) {
    uint64_t before = replay->transmitter.frames;
    int code = send_round(replay);
    if (code != ROUND_OVER) return code;
    replay->rounds++;
    if (!replay->sending.loop || replay->transmitter.frames == before) return EXIT_CODE_OK;
    replay_clock_round(&replay->clock);
    if (media_recording_rewind(&replay->recording, &error) ||
        media_recording_next(&replay->recording, &error) < 0)
      return stop_requested() ? EXIT_CODE_OK : report_media(&error);
  }
}

/* ---- the channel ---------------------------------------------------------------------------- */

static void print_json(const struct replay *replay) {
  struct json json;
  json_start(&json, stdout);
  json_text(&json, "file", replay->arguments[0]);
  json_text(&json, "channel", replay->arguments[1]);
  json_number(&json, "frames_sent", replay->transmitter.frames);
  json_number(&json, "invalid", replay->invalid);
  json_number(&json, "rounds", replay->rounds);
  json_number(&json, "bytes", replay->transmitter.bytes);
  json_real(&json, "seconds", replay->duration);
  json_number(&json, "late_most_us", replay->clock.late_most / 1000);
  sending_json_way(&json, &replay->transmitter);
  sending_json_counts(&json, &replay->transmitter);
  json_end(&json);
}

static void print(const struct replay *replay) {
  char late[TEXT_DURATION_SIZE];
  printf("sent %" PRIu64 " frame%s (%" PRIu64 " invalid) in %.1f s; at most %s late\n",
         replay->transmitter.frames, text_s(replay->transmitter.frames), replay->invalid,
         replay->duration, text_duration(late, replay->clock.late_most));
}

static int run(struct replay *replay) {
  if (!replay->sending.json) sending_print_way(&replay->transmitter, replay->arguments[1]);
  int code = sending_wait_consumers(&replay->sending, &replay->transmitter);
  uint64_t start = cudalink_now();
  replay->end_time = sending_end(&replay->sending, start);
  if (!code) code = send_rounds(replay);
  replay->duration = (double)(cudalink_now() - start) / 1e9;
  int taken = transmitter_wait_taken(&replay->transmitter, TAKE_LIMIT, 0);
  live_hide();
  if (replay->sending.json)
    print_json(replay);
  else
    print(replay);
  if (!code && replay->is_cut) code = report_media(&replay->cut);
  return code ? code : taken;
}

/* The channel has room for any user data, because the file says how much only frame by frame. */
static int open_and_run(struct replay *replay) {
  struct media_recording *recording = &replay->recording;
  struct media_error error;
  int result = media_recording_next(recording, &error);
  if (stop_requested()) return EXIT_CODE_OK;
  if (result == 0) return report(EXIT_CODE_FILE, "%s: has no frames", recording->input.name);
  if (result < 0) return report_media(&error);
  cudalink_description first = recording->description;
  if (!first.plane_count) describe_invalid(&first, &recording->description);
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = replay->arguments[1],
                                 .description = &first, .user_size = CUDALINK_MAX_USER_SIZE};
  int code = sending_open(&replay->sending, &replay->transmitter, &spec);
  if (code) return code;
  code = run(replay);
  transmitter_close(&replay->transmitter);
  return code;
}

static int open_file_and_run(struct replay *replay) {
  struct media_error error;
  int code = stop_install();
  if (code) return code;
  live_start();
  if (media_recording_open(&replay->recording, replay->arguments[0], stop_flag(), &error))
    return stop_exit_code(stop_requested() ? EXIT_CODE_OK : report_media(&error));
  code = open_and_run(replay);
  media_recording_close(&replay->recording);
  return stop_exit_code(code);
}

int command_replay(int argc, char **argv) {
  struct replay *replay = calloc(1, sizeof *replay);
  if (!replay) return report(EXIT_CODE_SYSTEM, "no memory to replay");
  replay->clock.speed = (struct option_rate){1, 1};
  replay->sending.device = OPTION_NO_DEVICE;
  int code = parse(replay, argc, argv);
  if (code == OPTIONS_GO) code = open_file_and_run(replay);
  free(replay);
  return code;
}
