/* SPDX-License-Identifier: MIT
 *
 * The result of `cudalink demo`, for people and as JSON.
 */
#include "demo.h"
#include "json.h"
#include "live.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static double microseconds(const struct histogram *latency, double part) {
  return (double)histogram_percentile(latency, part) / 1000;
}

static int wants_all(const struct demo_consumer *consumer) {
  return consumer->policy == CUDALINK_POLICY_EVERY;
}

static uint64_t skipped_by(const struct demo_consumer *consumer) {
  return wants_all(consumer) ? 0 : consumer->score.tally.missed;
}

/* Every consumer has had a frame before the first one that counts, so each has got all others, or
 * has said that it skipped them. */
static uint64_t lost_by(const struct demo_consumer *consumer, uint64_t sent) {
  uint64_t known = consumer->score.tally.received + skipped_by(consumer);
  return sent > known ? sent - known : 0;
}

void demo_result_add(struct demo_result *result, const struct demo_crew *crew) {
  for (uint64_t i = 0; i < crew->count; i++) {
    const struct demo_consumer *consumer = &crew->consumers[i];
    const struct tally *tally = &consumer->score.tally;
    result->frames_received += tally->received;
    result->checked += tally->checked;
    result->torn += tally->torn;
    result->lost += lost_by(consumer, result->frames_sent);
    result->skipped += skipped_by(consumer);
    result->failed += consumer->score.exit_code != 0 || (result->frames_sent && !tally->received);
    histogram_merge(&result->latency, &tally->latency);
  }
}

int demo_result_is_good(const struct demo_result *result) {
  return result->frames_sent > 0 && !result->torn && !result->lost && !result->failed &&
         result->checked == result->frames_received;
}

static void print_verdict(const struct demo_result *result) {
  if (result->frames_sent == 0) {
    printf("nothing was sent, so nothing can be said\n");
    return;
  }
  int is_good = demo_result_is_good(result);
  printf("%s%s%s: ", live_colour(STDOUT_FILENO, is_good ? LIVE_GOOD : LIVE_BAD),
         is_good ? "ok" : "FAILED", live_colour(STDOUT_FILENO, LIVE_PLAIN));
  if (is_good)
    printf("every byte of %" PRIu64 " received frame%s is right, none torn, none lost\n",
           result->checked, text_s(result->checked));
  else
    printf("%" PRIu64 " torn, %" PRIu64 " lost, %" PRIu64 " consumer%s failed\n", result->torn,
           result->lost, result->failed, text_s(result->failed));
}

void demo_result_print(const struct demo_result *result, const struct demo_crew *crew) {
  printf("producer    sent %" PRIu64 " frame%s in %.1f s, %.1f fps\n", result->frames_sent,
         text_s(result->frames_sent), result->seconds,
         result->seconds > 0 ? (double)result->frames_sent / result->seconds : 0);
  for (uint64_t i = 0; i < crew->count; i++) {
    const struct demo_consumer *consumer = &crew->consumers[i];
    const struct tally *tally = &consumer->score.tally;
    char half[TEXT_DURATION_SIZE], most[TEXT_DURATION_SIZE];
    printf("consumer %-2" PRIu64 " %-6s  got %" PRIu64 ", skipped %" PRIu64 ", lost %" PRIu64
           ", torn %" PRIu64 ", latency %s (p50), %s (p99)",
           i + 1, option_policies[consumer->policy], tally->received, skipped_by(consumer),
           lost_by(consumer, result->frames_sent), tally->torn,
           histogram_text(half, &tally->latency, 0.5), histogram_text(most, &tally->latency, 0.99));
    if (consumer->score.exit_code) printf(", ended with status %d", consumer->score.exit_code);
    printf("\n");
  }
  print_verdict(result);
}

static void put_consumer(struct json *json, const struct demo_result *result,
                         const struct demo_consumer *consumer) {
  const struct tally *tally = &consumer->score.tally;
  json_open_object(json, NULL);
  json_text(json, "policy", option_policies[consumer->policy]);
  json_number(json, "frames_received", tally->received);
  json_number(json, "skipped", skipped_by(consumer));
  json_number(json, "lost", lost_by(consumer, result->frames_sent));
  json_number(json, "torn", tally->torn);
  json_real(json, "latency_p50_us", microseconds(&tally->latency, 0.5));
  json_real(json, "latency_p99_us", microseconds(&tally->latency, 0.99));
  json_number(json, "exit_code", (uint64_t)consumer->score.exit_code);
  json_close_object(json);
}

static void put_stream(struct json *json, const struct demo_result *result) {
  const cudalink_picture *picture = &result->description->picture;
  json_text(json, "channel", result->channel);
  json_text(json, "kind", cudalink_kind_name((cudalink_kind)result->statistics.kind));
  json_text(json, "path", result->statistics.path);
  json_text(json, "reason", result->statistics.reason);
  json_text(json, "pattern", pattern_name(result->pattern));
  json_text(json, "format", cudalink_format_name(picture->format));
  json_number(json, "width", picture->width);
  json_number(json, "height", picture->height);
}

void demo_result_print_json(const struct demo_result *result, const struct demo_crew *crew) {
  struct json json;
  json_start(&json, stdout);
  json_flag(&json, "ok", demo_result_is_good(result));
  json_number(&json, "frames_sent", result->frames_sent);
  json_number(&json, "frames_received", result->frames_received);
  json_number(&json, "torn", result->torn);
  json_number(&json, "lost", result->lost);
  json_number(&json, "skipped", result->skipped);
  json_number(&json, "consumers", crew->count);
  put_stream(&json, result);
  json_real(&json, "ready_seconds", result->ready_seconds);
  json_real(&json, "seconds", result->seconds);
  json_real(&json, "fps", result->seconds > 0 ? (double)result->frames_sent / result->seconds : 0);
  json_real(&json, "latency_p50_us", microseconds(&result->latency, 0.5));
  json_real(&json, "latency_p99_us", microseconds(&result->latency, 0.99));
  json_open_list(&json, "per_consumer");
  for (uint64_t i = 0; i < crew->count; i++)
    put_consumer(&json, result, &crew->consumers[i]);
  json_close_list(&json);
  json_end(&json);
}
