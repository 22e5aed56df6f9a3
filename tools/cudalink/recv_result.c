/* SPDX-License-Identifier: MIT
 *
 * The summary of `cudalink recv`, for people and as JSON.
 */
#include "channel_view.h"
#include "json.h"
#include "recv.h"
#include "text.h"

#include <inttypes.h>

static double rate_of(const struct receiver_result *result) {
  return result->span > 0 ? (double)(result->tally.received - 1) / result->span : 0;
}

static double latency_of(const struct receiver_result *result, double part) {
  return (double)histogram_percentile(&result->tally.latency, part) / 1000;
}

void recv_result_print(const struct receiver_result *result, const struct recv_options *options,
                       FILE *stream) {
  const struct tally *tally = &result->tally;
  const cudalink_importer_statistics *statistics = &result->statistics;
  char time[RECEIVER_TIME_SIZE], half[TEXT_DURATION_SIZE], most[TEXT_DURATION_SIZE];
  fprintf(stream,
          "received %" PRIu64 " frame%s in %s, %.1f fps, %" PRIu64 " byte%s; missed %" PRIu64
          ", invalid %" PRIu64 ", latency %s (p50), %s (p99)\n",
          tally->received, text_s(tally->received), receiver_time(time, result), rate_of(result),
          tally->bytes, text_s(tally->bytes), tally->missed, tally->invalid,
          histogram_text(half, &tally->latency, 0.5), histogram_text(most, &tally->latency, 0.99));
  if (options->check)
    fprintf(stream, "checked %" PRIu64 " frame%s, torn %" PRIu64 "\n", tally->checked,
            text_s(tally->checked), tally->torn);
  if (statistics->path[0])
    fprintf(stream, "kind %s, %s\n", cudalink_kind_name((cudalink_kind)statistics->kind),
            channel_view_way(statistics->path));
}

void recv_result_print_json(const struct receiver_result *result,
                            const struct recv_options *options, FILE *stream) {
  const struct tally *tally = &result->tally;
  const cudalink_picture *picture = &result->description.picture;
  struct json json;
  json_start(&json, stream);
  json_text(&json, "channel", options->receiver.channel);
  json_number(&json, "frames_received", tally->received);
  json_number(&json, "missed", tally->missed);
  json_number(&json, "invalid", tally->invalid);
  json_number(&json, "checked", tally->checked);
  json_number(&json, "torn", tally->torn);
  json_number(&json, "bytes", tally->bytes);
  json_real(&json, "seconds", result->seconds);
  json_real(&json, "fps", rate_of(result));
  receiver_put_channel(&json, result);
  json_text(&json, "format", cudalink_format_name(picture->format));
  json_number(&json, "width", picture->width);
  json_number(&json, "height", picture->height);
  json_real(&json, "latency_p50_us", latency_of(result, 0.5));
  json_real(&json, "latency_p99_us", latency_of(result, 0.99));
  json_end(&json);
}
