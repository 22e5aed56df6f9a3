/* SPDX-License-Identifier: MIT
 *
 * The consumer's end. Waits are cut into pieces, so that a signal is noticed.
 */
#include "receiver.h"
#include "channel_view.h"
#include "environment.h"
#include "gpus.h"
#include "missing.h"
#include "options.h"
#include "report.h"
#include "stop.h"

#include <stdio.h>

#define PIECE INT64_C(100000000)
#define WORTH_SAYING 0.1 /* s */

static cudalink_frame *place_for_next(struct receiver *receiver) {
  return &receiver->held[receiver->result.tally.received % receiver->options.hold];
}

/* The oldest frame goes before the next one is taken. */
static void make_room(struct receiver *receiver) {
  cudalink_frame *oldest = place_for_next(receiver);
  if (oldest->lease) cudalink_frame_release(oldest, CUDALINK_STREAM_COMPLETE);
}

static void release_all(struct receiver *receiver) {
  for (int i = 0; i < CUDALINK_MAX_HOLD; i++)
    if (receiver->held[i].lease)
      cudalink_frame_release(&receiver->held[i], CUDALINK_STREAM_COMPLETE);
}

static int check_kind(const struct receiver *receiver, const cudalink_frame *frame) {
  const struct receiver_options *options = &receiver->options;
  if (options->kind == CUDALINK_KIND_AUTO || (uint32_t)options->kind == frame->kind)
    return EXIT_CODE_OK;
  return report(EXIT_CODE_CHANNEL, "channel '%s' is of kind %s, not %s as --kind wants",
                options->channel, cudalink_kind_name((cudalink_kind)frame->kind),
                option_kinds[options->kind]);
}

static int take_frame(struct receiver *receiver, cudalink_frame *frame) {
  int code = check_kind(receiver, frame);
  if (code) return code; /* it counts as none: nothing was received */
  uint64_t count = receiver->options.count;
  receiver->news_time = cudalink_now();
  if (!receiver->first_time) receiver->first_time = receiver->news_time;
  receiver->result.description = frame->description;
  int has_pixels = tally_frame(&receiver->result.tally, frame);
  code = receiver->use(receiver->context, frame, has_pixels);
  if (count && receiver->result.tally.received >= count) receiver->is_over = 1;
  return code;
}

/* ---- everything else that can happen -------------------------------------------------------- */

/* The sentence of an importer's open says where it looked and how to start a producer. */
static int look_again(const char *name) {
  cudalink_importer again;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = name, .open_timeout = 1};
  int result = cudalink_importer_open(&again, &spec);
  if (result == CUDALINK_OK) cudalink_importer_close(again);
  return result;
}

/* The importer still searches: a producer that is stopped looks like none to it. */
static int fail_not_found(const struct receiver *receiver) {
  static cudalink_channel_info channel;
  const char *name = receiver->options.channel;
  int result = cudalink_channel_get(NULL, name, CHANNEL_VIEW_PATIENCE, &channel);
  if (result == CUDALINK_ERROR_NOT_FOUND) result = look_again(name);
  if (result) return missing_report(name, result);
  return report(EXIT_CODE_CHANNEL,
                "channel '%s': its producer came too late; a larger --timeout waits longer", name);
}

static int fail_timeout(struct receiver *receiver) {
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  cudalink_importer_get_statistics(receiver->importer, &statistics);
  if (statistics.connection == CUDALINK_CONNECTION_SEARCHING && !receiver->first_time)
    return fail_not_found(receiver);
  return report(EXIT_CODE_CHANNEL, "channel '%s': no frame came for %.1f s%s",
                receiver->options.channel, (double)receiver->options.timeout / 1e9,
                statistics.connection == CUDALINK_CONNECTION_JOINED
                    ? "; its producer is there, but sends nothing"
                    : "; its producer has gone, and no other has come");
}

/* The producer is gone. Without --once the importer looks for the next one by itself. */
static int producer_gone(struct receiver *receiver, int status) {
  if (!receiver->options.once) {
    live_note("channel %s: the producer %s; waiting for the next", receiver->options.channel,
              status == CUDALINK_ERROR_ENDED ? "has ended" : "has died");
    return EXIT_CODE_OK;
  }
  receiver->is_over = 1;
  return status == CUDALINK_ERROR_ENDED ? EXIT_CODE_OK : report_library(status);
}

static int nothing_came(struct receiver *receiver) {
  int64_t timeout = receiver->options.timeout;
  if (timeout && cudalink_now() - receiver->news_time >= (uint64_t)timeout)
    return fail_timeout(receiver);
  if (!receiver->first_time && live_is_due())
    live_show("waiting for a frame of channel %s", receiver->options.channel);
  return EXIT_CODE_OK;
}

/* What is not supported: this machine has no GPU to take the frames with, or one that can't map them; or the
 * producer speaks the old wire, which can't do what was asked for, and was not joined. */
static int fail_taking(const struct receiver *receiver, int status) {
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  cudalink_importer_get_statistics(receiver->importer, &statistics);
  int is_joined = statistics.connection == CUDALINK_CONNECTION_JOINED;
  if (status == CUDALINK_ERROR_UNSUPPORTED && !is_joined && gpus_are_there())
    return report(EXIT_CODE_CHANNEL, "%s", cudalink_last_error());
  return gpus_report(status);
}

static int take_status(struct receiver *receiver, int status, cudalink_frame *frame) {
  switch (status) {
  case CUDALINK_OK: return take_frame(receiver, frame);
  case CUDALINK_ERROR_TIMEOUT:
  case CUDALINK_ERROR_NOT_FOUND: return nothing_came(receiver);
  case CUDALINK_ERROR_ENDED:
  case CUDALINK_ERROR_LOST: return producer_gone(receiver, status);
  case CUDALINK_ERROR_EVICTED:
    live_note("channel %s: too slow, the producer took frames back", receiver->options.channel);
    return EXIT_CODE_OK;
  default: return fail_taking(receiver, status);
  }
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* At most a piece at a time, so that a signal is noticed. */
static int64_t time_to_wait(const struct receiver *receiver) {
  uint64_t now = cudalink_now(), end = receiver->end_time;
  int64_t timeout = receiver->options.timeout;
  if (timeout && receiver->news_time + (uint64_t)timeout < end)
    end = receiver->news_time + (uint64_t)timeout;
  if (end <= now) return 0;
  return end - now < (uint64_t)PIECE ? (int64_t)(end - now) : PIECE;
}

static int receive(struct receiver *receiver) {
  int code = EXIT_CODE_OK;
  while (!code && !receiver->is_over && !stop_requested()) {
    if (cudalink_now() >= receiver->end_time) break;
    make_room(receiver);
    cudalink_frame *frame = place_for_next(receiver);
    int status = cudalink_importer_acquire(receiver->importer, CUDALINK_STREAM_COMPLETE,
                                           time_to_wait(receiver), frame);
    code = take_status(receiver, status, frame);
    if (receiver->first_time && live_is_due()) receiver->show(receiver->context);
  }
  release_all(receiver);
  return code;
}

int receiver_check(const struct receiver_options *options) {
  return options->kind == CUDALINK_KIND_HOST ? EXIT_CODE_OK : gpus_check(options->device);
}

static int open_importer(struct receiver *receiver) {
  const struct receiver_options *options = &receiver->options;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS,
                                 .name = options->channel,
                                 .policy = (cudalink_policy)options->policy,
                                 .group = options->group,
                                 .hold = (uint32_t)options->hold,
                                 .isolated = (uint32_t)options->isolated,
                                 .once = (uint32_t)options->once,
                                 .device = option_device(options->device)};
  environment_importer(&spec);
  receiver->options.once = spec.once != 0;
  int result = cudalink_importer_open(&receiver->importer, &spec);
  return result ? report_library(result) : EXIT_CODE_OK;
}

static void take_times(struct receiver *receiver, uint64_t start) {
  struct receiver_result *result = &receiver->result;
  uint64_t end = cudalink_now(), first = receiver->first_time;
  result->seconds = (double)(end - start) / 1e9;
  result->wait_seconds = (double)((first ? first : end) - start) / 1e9;
  result->span = first ? (double)(receiver->news_time - first) / 1e9 : 0;
}

int receiver_run(struct receiver *receiver, int *is_open) {
  struct receiver_result *result = &receiver->result;
  int64_t seconds = receiver->options.seconds;
  uint64_t start = cudalink_now();
  receiver->news_time = start;
  receiver->end_time = seconds ? start + (uint64_t)seconds : UINT64_MAX;
  int code = open_importer(receiver);
  *is_open = !code;
  if (code) return code;
  code = receive(receiver);
  take_times(receiver, start);
  result->statistics.size = sizeof result->statistics;
  cudalink_importer_get_statistics(receiver->importer, &result->statistics);
  /* A frame says what was missed before it; nothing says so of the last ones. */
  result->tally.missed = result->statistics.missed;
  cudalink_importer_close(receiver->importer);
  live_hide();
  return code;
}

const char *receiver_time(char to[RECEIVER_TIME_SIZE], const struct receiver_result *result) {
  double wait = result->tally.received ? result->wait_seconds : 0;
  int length = snprintf(to, RECEIVER_TIME_SIZE, "%.1f s", result->seconds);
  if (wait >= WORTH_SAYING)
    snprintf(to + length, RECEIVER_TIME_SIZE - (size_t)length, " (%.1f s until the first)", wait);
  return to;
}

void receiver_put_channel(struct json *json, const struct receiver_result *result) {
  const cudalink_importer_statistics *statistics = &result->statistics;
  json_real(json, "wait_seconds", result->wait_seconds);
  json_number(json, "sessions", statistics->sessions);
  json_number(json, "evictions", statistics->evictions);
  json_text(json, "kind",
            statistics->sessions ? cudalink_kind_name((cudalink_kind)statistics->kind) : NULL);
  json_text(json, "path", statistics->path);
  json_text(json, "reason", statistics->reason);
}
