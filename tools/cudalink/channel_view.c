/* SPDX-License-Identifier: MIT
 *
 * Channels for people and as JSON.
 */
#include "channel_view.h"
#include "options.h"
#include "text.h"

#include "cudalink/format.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SHORT_UUID 12                  /* "GPU-8932f937": tells GPUs apart, and --device takes it */
#define HELD_LONG UINT64_C(1000000000) /* ns; from here on it is shown as bad */

const char *channel_view_state(const cudalink_channel_info *channel) {
  switch (channel->status) {
  case CUDALINK_OK: return "live";
  case CUDALINK_ERROR_LOST: return "dead";
  case CUDALINK_ERROR_REFUSED: return "refused";
  case CUDALINK_ERROR_VERSION: return "version";
  case CUDALINK_ERROR_TIMEOUT:
  case CUDALINK_ERROR_BUSY: return "silent";
  default: return "broken";
  }
}

uint64_t channel_view_age(const cudalink_channel_info *channel, uint64_t now) {
  if (!channel->newest_timestamp) return UINT64_MAX;
  return now > channel->newest_timestamp ? now - channel->newest_timestamp : 0;
}

uint64_t channel_view_behind(const cudalink_channel_info *channel,
                             const cudalink_consumer_info *consumer) {
  if (consumer->policy != CUDALINK_POLICY_EVERY) return 0;
  return channel->published > consumer->position ? channel->published - consumer->position : 0;
}

/* ---- latency -------------------------------------------------------------------------------- */

#define NOT_KNOWN                                                                                  \
  { NAN, NAN, NAN }

/* What was counted since `before`. A consumer writes what it likes, so no count is believed to have grown. */
static double grown(uint64_t now, uint64_t before) {
  return now > before ? (double)(now - before) : 0;
}

/* The latency that `part` of `total` frames do not exceed. Those of one bucket count as spread evenly over it; the
 * last one has no end, so its beginning has to do. */
static double percentile(const double counts[CUDALINK_LATENCY_BUCKETS], double total, double part) {
  double rank = part * total, below = 0;
  uint32_t last = CUDALINK_LATENCY_BUCKETS - 1;
  for (uint32_t i = 0; i < last; i++) {
    double start = (double)cudalink_latency_bucket_start(i);
    double end = (double)cudalink_latency_bucket_start(i + 1);
    if (counts[i] > 0 && below + counts[i] >= rank)
      return start + (end - start) * (rank - below) / counts[i];
    below += counts[i];
  }
  return (double)cudalink_latency_bucket_start(last);
}

static void find_percentiles(struct channel_view_latency *latency,
                             const cudalink_consumer_info *consumer,
                             const cudalink_consumer_info *before) {
  double counts[CUDALINK_LATENCY_BUCKETS], total = 0;
  if (consumer->latencies[0] == CUDALINK_NOT_TOLD) return;
  for (uint32_t i = 0; i < CUDALINK_LATENCY_BUCKETS; i++)
    total += counts[i] = grown(consumer->latencies[i], before ? before->latencies[i] : 0);
  if (total <= 0) return;
  latency->p50 = percentile(counts, total, 0.5);
  latency->p99 = percentile(counts, total, 0.99);
}

struct channel_view_latency channel_view_latency(const cudalink_consumer_info *consumer,
                                                 const cudalink_consumer_info *before) {
  struct channel_view_latency latency = NOT_KNOWN;
  if (consumer->measured == CUDALINK_NOT_TOLD) return latency;
  double measured = grown(consumer->measured, before ? before->measured : 0);
  if (measured > 0)
    latency.mean = grown(consumer->latency, before ? before->latency : 0) / measured;
  find_percentiles(&latency, consumer, before);
  return latency;
}

static struct channel_view_latency latency_of(const cudalink_channel_info *channel,
                                              uint32_t consumer,
                                              const struct channel_view_rates *rates) {
  return rates ? rates->consumer_latency[consumer]
               : channel_view_latency(&channel->consumers[consumer], NULL);
}

struct channel_view_latency channel_view_worst_latency(const cudalink_channel_info *channel,
                                                       const struct channel_view_rates *rates) {
  struct channel_view_latency worst = NOT_KNOWN;
  for (uint32_t i = 0; i < channel->consumer_count; i++) {
    struct channel_view_latency one = latency_of(channel, i, rates);
    if (isnan(worst.p99) || one.p99 > worst.p99) worst = one;
  }
  return worst;
}

void channel_view_latency_cells(struct table *table, size_t column,
                                struct channel_view_latency latency) {
  char half[TEXT_DURATION_SIZE], most[TEXT_DURATION_SIZE];
  if (isnan(latency.p50) || isnan(latency.p99)) return;
  text_duration(half, (uint64_t)latency.p50);
  text_duration(most, (uint64_t)latency.p99);
  table_cell(table, column, "%s", half);
  size_t number = strcspn(half, " ");
  int is_one_unit = strcmp(half + number, most + strcspn(most, " ")) == 0;
  table_cell(table, column + 1, "%.*s/%s", (int)(is_one_unit ? number : strlen(half)), half, most);
}

const char *channel_view_picture(char to[CHANNEL_VIEW_PICTURE_SIZE],
                                 const cudalink_channel_info *channel) {
  const char *format = cudalink_format_name(channel->format);
  *to = 0;
  if (channel->format)
    snprintf(to, CHANNEL_VIEW_PICTURE_SIZE, "%ux%u %s", channel->width, channel->height,
             format ? format : "of an unknown format");
  else if (channel->plane_count)
    snprintf(to, CHANNEL_VIEW_PICTURE_SIZE, "%u plane%s", channel->plane_count,
             text_s(channel->plane_count));
  return to;
}

const char *channel_view_way(const char *path) {
  static const char *const ways[][2] = {{"gpu vmm descriptor", "shared by descriptor"},
                                        {"gpu ipc handle", "shared by legacy handle"},
                                        {"cipd, gpu ipc handle", "the old wire, by legacy handle"},
                                        {"host memfd", "shared memory"}};
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
    if (strcmp(path, ways[i][0]) == 0) return ways[i][1];
  return path;
}

const char *channel_view_policy(char to[CHANNEL_VIEW_POLICY_SIZE],
                                const cudalink_consumer_info *consumer) {
  const char *name =
      consumer->policy <= CUDALINK_POLICY_SHARED ? option_policies[consumer->policy] : "unknown";
  snprintf(to, CHANNEL_VIEW_POLICY_SIZE, "%s%s%s", name, consumer->group[0] ? ":" : "",
           consumer->group);
  return to;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void count_json(struct json *json, const char *key, uint64_t count) {
  if (count == CUDALINK_NOT_TOLD)
    json_text(json, key, NULL);
  else
    json_number(json, key, count);
}

static void consumer_json(struct json *json, const cudalink_channel_info *channel, uint32_t index,
                          const struct channel_view_rates *rates) {
  const cudalink_consumer_info *consumer = &channel->consumers[index];
  json_open_object(json, NULL);
  json_number(json, "pid", (uint64_t)consumer->pid);
  json_number(json, "uid", consumer->uid);
  json_text(json, "program", consumer->program);
  json_text(json, "group", consumer->group[0] ? consumer->group : NULL);
  json_text(json, "policy",
            consumer->policy <= CUDALINK_POLICY_SHARED ? option_policies[consumer->policy] : NULL);
  json_number(json, "hold", consumer->hold);
  json_number(json, "held", consumer->held);
  json_number(json, "held_us", consumer->held_for / 1000);
  json_flag(json, "isolated", (int)consumer->isolated);
  json_number(json, "behind", channel_view_behind(channel, consumer));
  count_json(json, "received", consumer->received);
  count_json(json, "missed", consumer->missed);
  struct channel_view_latency latency = latency_of(channel, index, rates);
  json_real(json, "latency_us", latency.mean / 1000);
  json_real(json, "latency_p50_us", latency.p50 / 1000);
  json_real(json, "latency_p99_us", latency.p99 / 1000);
  if (rates) json_real(json, "fps", rates->consumer_fps[index]);
  json_close_object(json);
}

static void live_json(struct json *json, const cudalink_channel_info *channel, uint64_t now,
                      const struct channel_view_rates *rates) {
  uint64_t age = channel_view_age(channel, now);
  json_number(json, "pid", (uint64_t)channel->pid);
  json_number(json, "uid", channel->uid);
  json_text(json, "program", channel->program);
  json_text(json, "kind", cudalink_kind_name((cudalink_kind)channel->kind));
  json_text(json, "path", channel->path);
  json_text(json, "reason", channel->reason);
  json_text(json, "device", *channel->device ? channel->device : NULL);
  json_text(json, "device_name", *channel->device_name ? channel->device_name : NULL);
  json_number(json, "slots", channel->slots);
  json_number(json, "slot_bytes", channel->slot_bytes);
  json_number(json, "generation", channel->generation);
  json_number(json, "published", channel->published);
  json_number(json, "dropped", channel->dropped);
  if (age == UINT64_MAX)
    json_text(json, "age_us", NULL);
  else
    json_number(json, "age_us", age / 1000);
  json_real(json, "open_seconds",
            now > channel->opened ? (double)(now - channel->opened) / 1e9 : 0);
  json_text(json, "format", cudalink_format_name(channel->format));
  json_number(json, "width", channel->width);
  json_number(json, "height", channel->height);
  json_number(json, "planes", channel->plane_count);
  json_open_list(json, "consumers");
  for (uint32_t i = 0; i < channel->consumer_count; i++)
    consumer_json(json, channel, i, rates);
  json_close_list(json);
}

void channel_view_json(struct json *json, const cudalink_channel_info *channel, uint64_t now,
                       const struct channel_view_rates *rates) {
  json_text(json, "name", channel->name);
  json_text(json, "directory", channel->directory);
  json_text(json, "state", channel_view_state(channel));
  if (channel->status == CUDALINK_OK) live_json(json, channel, now, rates);
  if (rates) json_real(json, "fps", rates->fps);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* X(column, title, is_right, rank in watch, rank in list): the higher the rank, the earlier it goes. watch is there for
 * how it goes, list for what there is and how frames travel. */
#define COLUMNS(X)                                                                                 \
  X(NAME, "CHANNEL", 0, 0, 0)                                                                      \
  X(STATE, "STATE", 0, 1, 1)                                                                       \
  X(KIND, "KIND", 0, 15, 2)                                                                        \
  X(RATE, "FPS", 1, 2, 14)                                                                         \
  X(AGE, "AGE", 1, 3, 6)                                                                           \
  X(LATENCY, "LATENCY", 1, 4, 9)                                                                   \
  X(LATENCIES, "LATENCY", TABLE_LONGER, 11, 13)                                                    \
  X(DROPS, "DROPS", 1, 5, 8)                                                                       \
  X(HELD, "HELD", 1, 6, 15)                                                                        \
  X(HELD_FOR, "FOR", 1, 7, 16)                                                                     \
  X(BEHIND, "BEHIND", 1, 12, 17)                                                                   \
  X(CONSUMERS, "CONSUMERS", 1, 8, 7)                                                               \
  X(POLICY, "POLICY", 0, 9, 18)                                                                    \
  X(PICTURE, "PICTURE", 0, 10, 5)                                                                  \
  X(DEVICE, "DEVICE", 0, 16, 3)                                                                    \
  X(WAY, "PATH", 0, 18, 4)                                                                         \
  X(PRODUCER, "PRODUCER", 0, 13, 10)                                                               \
  X(FRAMES, "FRAMES", 1, 14, 11)                                                                   \
  X(SLOTS, "SLOTS", 1, 17, 12)

#define COLUMN(column, title, is_right, rank, rank_in_list) column,
enum column { COLUMNS(COLUMN) };
#undef COLUMN

#define COLUMN(column, title, is_right, rank, rank_in_list) {title, rank, is_right},
const struct table_column channel_view_columns[] = {COLUMNS(COLUMN){NULL, 0, 0}};
#undef COLUMN

#define COLUMN(column, title, is_right, rank, rank_in_list) {title, rank_in_list, is_right},
const struct table_column channel_view_list_columns[] = {COLUMNS(COLUMN){NULL, 0, 0}};
#undef COLUMN

static void program_cell(struct table *table, enum column column, const char *mark,
                         const char *program, int32_t pid) {
  if (pid)
    table_cell(table, column, "%s%s %d", mark, program, pid);
  else /* in another pid namespace */
    table_cell(table, column, "%s%s", mark, program);
}

static void speed_cells(struct table *table, double fps, struct channel_view_latency latency) {
  if (!isnan(fps)) table_cell(table, RATE, "%.1f", fps);
  channel_view_latency_cells(table, LATENCY, latency);
}

static void consumer_row(struct table *table, const cudalink_channel_info *channel, uint32_t index,
                         const struct channel_view_rates *rates) {
  const cudalink_consumer_info *consumer = &channel->consumers[index];
  char policy[CHANNEL_VIEW_POLICY_SIZE], duration[TEXT_DURATION_SIZE];
  int is_long = consumer->held && consumer->held_for >= HELD_LONG;
  table_begin_row(table, is_long ? LIVE_BAD : LIVE_PLAIN);
  program_cell(table, NAME, "└ ", consumer->program, consumer->pid);
  table_keep_first(table); /* its end is the pid */
  speed_cells(table, rates ? rates->consumer_fps[index] : NAN, latency_of(channel, index, rates));
  if (consumer->received != CUDALINK_NOT_TOLD) {
    table_cell(table, DROPS, "%" PRIu64, consumer->missed);
    table_cell(table, FRAMES, "%" PRIu64, consumer->received);
  }
  table_cell(table, HELD, "%u/%u", consumer->held, consumer->hold);
  if (consumer->held)
    table_cell(table, HELD_FOR, "%s", text_duration(duration, consumer->held_for));
  if (consumer->policy == CUDALINK_POLICY_EVERY)
    table_cell(table, BEHIND, "%" PRIu64, channel_view_behind(channel, consumer));
  table_cell(table, POLICY, "%s%s", channel_view_policy(policy, consumer),
             consumer->isolated ? " isolated" : "");
}

static void live_cells(struct table *table, const cudalink_channel_info *channel, uint64_t now) {
  char picture[CHANNEL_VIEW_PICTURE_SIZE], duration[TEXT_DURATION_SIZE];
  uint64_t age = channel_view_age(channel, now);
  table_cell(table, AGE, "%s", age == UINT64_MAX ? "-" : text_duration(duration, age));
  table_cell(table, DROPS, "%" PRIu64, channel->dropped);
  table_cell(table, CONSUMERS, "%u", channel->consumer_count);
  table_cell(table, PICTURE, "%s", channel_view_picture(picture, channel));
  program_cell(table, PRODUCER, "", channel->program, channel->pid);
  table_cell(table, FRAMES, "%" PRIu64, channel->published);
  table_cell(table, KIND, "%s", cudalink_kind_name((cudalink_kind)channel->kind));
  if (*channel->device) table_cell(table, DEVICE, "%.*s", SHORT_UUID, channel->device);
  table_cell(table, SLOTS, "%u", channel->slots);
  table_cell(table, WAY, "%s", channel_view_way(channel->path));
}

void channel_view_rows(struct table *table, const cudalink_channel_info *channel, uint64_t now,
                       const struct channel_view_rates *rates, int with_consumers) {
  table_begin_row(table, channel->status == CUDALINK_OK ? LIVE_PLAIN : LIVE_BAD);
  table_cell(table, NAME, "%s", channel->name);
  table_cell(table, STATE, "%s", channel_view_state(channel));
  if (channel->status != CUDALINK_OK) return;
  speed_cells(table, rates ? rates->fps : NAN, channel_view_worst_latency(channel, rates));
  live_cells(table, channel, now);
  for (uint32_t i = 0; with_consumers && i < channel->consumer_count; i++)
    consumer_row(table, channel, i, rates);
}
