/* SPDX-License-Identifier: MIT
 *
 * `cudalink recv`: frames come from a channel, are checked if asked for, and go into a sink.
 */
#include "recv.h"
#include "command.h"
#include "host_frame.h"
#include "options.h"
#include "report.h"
#include "sink.h"
#include "stop.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct recv {
  struct recv_options options;
  struct receiver receiver;
  struct sink *sink;
  struct host_frame host;
  struct live_meter meter;
};

/* A reader that has gone, like `head`, has seen enough: that is a good end. */
static int write_failed(struct recv *recv, const struct media_error *error) {
  int has_reader_gone = error->code == CUDALINK_ERROR_CLOSED && sink_is_stdout(recv->sink);
  if (!stop_requested() && !has_reader_gone) return report_media(error);
  recv->receiver.is_over = 1;
  return EXIT_CODE_OK;
}

static int use_frame(void *context, const cudalink_frame *frame, int has_pixels) {
  struct recv *recv = context;
  struct media_error error;
  if (!has_pixels || (sink_is_nowhere(recv->sink) && !recv->options.check)) return EXIT_CODE_OK;
  int result = host_frame_get(&recv->host, frame);
  if (result) return report_library(result);
  const void *data = recv->host.data;
  if (recv->options.check &&
      tally_check(&recv->receiver.result.tally, PATTERN_CHECK, frame, data, &error))
    return report_media(&error);
  if (sink_write(recv->sink, &frame->description, data, &error)) return write_failed(recv, &error);
  return EXIT_CODE_OK;
}

static void show_live(void *context) {
  struct recv *recv = context;
  const struct receiver_result *result = &recv->receiver.result;
  const struct tally *tally = &result->tally;
  const cudalink_picture *picture = &result->description.picture;
  const char *format = cudalink_format_name(picture->format);
  char half[TEXT_DURATION_SIZE], most[TEXT_DURATION_SIZE], torn[40] = "";
  if (recv->options.check)
    snprintf(torn, sizeof torn, "torn %llu  ", (unsigned long long)tally->torn);
  live_show("%llu frame%s  %.1f fps  missed %llu  %slatency %s (p50) %s (p99)  %ux%u %s",
            (unsigned long long)tally->received, text_s(tally->received),
            live_rate(&recv->meter, tally->received), (unsigned long long)tally->missed, torn,
            histogram_text(half, &tally->latency, 0.5), histogram_text(most, &tally->latency, 0.99),
            picture->width, picture->height, format ? format : "");
}

static int summarize(const struct recv *recv, int code) {
  const struct receiver_result *result = &recv->receiver.result;
  const struct recv_options *options = &recv->options;
  const struct tally *tally = &result->tally;
  FILE *stream = sink_is_stdout(recv->sink) ? stderr : stdout;
  if (options->json)
    recv_result_print_json(result, options, stream);
  else if (stream == stdout && (tally->received || !code)) /* with none, the error says it all */
    recv_result_print(result, options, stream);
  if (code) return code;
  if (tally->torn)
    return report(EXIT_CODE_CHECK,
                  "channel '%s': %llu frame%s not what send --pattern check sends; the first is "
                  "frame %llu, byte %llu",
                  options->receiver.channel, (unsigned long long)tally->torn,
                  tally->torn == 1 ? " is" : "s are", (unsigned long long)tally->first_sequence,
                  (unsigned long long)tally->first_byte);
  if (tally->missed && options->receiver.policy == CUDALINK_POLICY_EVERY)
    return report(EXIT_CODE_CHECK,
                  "channel '%s': missed %llu frame%s; this consumer was so slow that the producer "
                  "went on without it",
                  options->receiver.channel, (unsigned long long)tally->missed,
                  text_s(tally->missed));
  return EXIT_CODE_OK;
}

static int run(struct recv *recv) {
  struct media_error error;
  int is_open;
  recv->receiver.options = recv->options.receiver;
  recv->receiver.use = use_frame;
  recv->receiver.show = show_live;
  recv->receiver.context = recv;
  int code = receiver_run(&recv->receiver, &is_open);
  if (is_open) code = summarize(recv, code);
  if (sink_close(recv->sink, &error) && !code) code = report_media(&error);
  host_frame_free(&recv->host);
  return code;
}

/* Raw pixels are not what such a name promises, and a second frame would overwrite the first. */
static int check_out(struct recv_options *options) {
  uint64_t *count = &options->receiver.count;
  const char *suffix = sink_foreign_suffix(options->out, (enum media_kind)options->as);
  if (suffix)
    return report(EXIT_CODE_USAGE,
                  "recv: %s: there is no writer for %s; .png and .npy hold a frame, .y4m a video, "
                  "and --as raw writes raw pixels under any name",
                  options->out, suffix);
  if (!sink_takes_one(options->out, (enum media_kind)options->as)) return EXIT_CODE_OK;
  if (!*count) *count = 1;
  if (*count == 1) return EXIT_CODE_OK;
  return report(
      EXIT_CODE_USAGE, "recv: %s holds one frame, not %llu; --out %.*s/ makes a file for each",
      options->out, (unsigned long long)*count, sink_folder_for(options->out), options->out);
}

static int open_and_run(struct recv *recv) {
  struct media_error error;
  struct recv_options *options = &recv->options;
  int code = check_out(options);
  if (code) return code;
  if (options->out && strcmp(options->out, "-") == 0 && isatty(STDOUT_FILENO))
    return report(EXIT_CODE_USAGE, "recv: --out - would fill the terminal; add | and a program");
  code = receiver_check(&options->receiver);
  if (code) return code;
  code = stop_install();
  if (code) return code;
  live_start();
  recv->sink = sink_open(options->out, (enum media_kind)options->as, &error);
  if (!recv->sink) return report_media(&error);
  return stop_exit_code(run(recv));
}

int command_recv(int argc, char **argv) {
  struct recv *recv = calloc(1, sizeof *recv);
  if (!recv) return report(EXIT_CODE_SYSTEM, "no memory to receive");
  int code = recv_options_parse(&recv->options, argc, argv);
  if (code == OPTIONS_GO) code = open_and_run(recv);
  free(recv);
  return code;
}
