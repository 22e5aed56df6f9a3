/* SPDX-License-Identifier: MIT
 *
 * Channels for people and as JSON.
 */
#include "channel_view.h"
#include "options.h"
#include "text.h"

#include "cudalink/format.h"

#include <inttypes.h>

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

const char *channel_view_picture(char to[CHANNEL_VIEW_PICTURE_SIZE],
                                 const cudalink_channel_info *channel) {
  const char *format = cudalink_format_name(channel->format);
  *to = 0;
  if (channel->format)
    snprintf(to, CHANNEL_VIEW_PICTURE_SIZE, "%ux%u %s", channel->width, channel->height,
             format ? format : "of an unknown format");
  else if (channel->plane_count)
    snprintf(to, CHANNEL_VIEW_PICTURE_SIZE, "%u plane%s", channel->plane_count,
             channel->plane_count == 1 ? "" : "s");
  return to;
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

static void consumer_json(struct json *json, const cudalink_channel_info *channel,
                          const cudalink_consumer_info *consumer) {
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
  json_close_object(json);
}

static void live_json(struct json *json, const cudalink_channel_info *channel, uint64_t now) {
  uint64_t age = channel_view_age(channel, now);
  json_number(json, "pid", (uint64_t)channel->pid);
  json_number(json, "uid", channel->uid);
  json_text(json, "program", channel->program);
  json_text(json, "kind", cudalink_kind_name((cudalink_kind)channel->kind));
  json_text(json, "path", channel->path);
  json_text(json, "reason", channel->reason);
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
    consumer_json(json, channel, &channel->consumers[i]);
  json_close_list(json);
}

void channel_view_json(struct json *json, const cudalink_channel_info *channel, uint64_t now,
                       double rate) {
  json_text(json, "name", channel->name);
  json_text(json, "directory", channel->directory);
  json_text(json, "state", channel_view_state(channel));
  if (channel->status == CUDALINK_OK) live_json(json, channel, now);
  if (rate != CHANNEL_VIEW_NO_RATE) json_real(json, "fps", rate);
}

/* ---- rows ----------------------------------------------------------------------------------- */

enum column {
  NAME,
  STATE,
  RATE,
  AGE,
  DROPS,
  HELD,
  HELD_FOR,
  BEHIND,
  CONSUMERS,
  POLICY,
  PICTURE,
  PRODUCER,
  FRAMES,
  KIND,
  SLOTS,
  WAY,
  REASON
};

const struct table_column channel_view_columns[] = {
    [NAME] = {"CHANNEL", 0, 0},   [STATE] = {"STATE", 1, 0},     [RATE] = {"FPS", 2, 1},
    [AGE] = {"AGE", 3, 1},        [DROPS] = {"DROPS", 4, 1},     [HELD] = {"HELD", 5, 1},
    [HELD_FOR] = {"FOR", 6, 1},   [BEHIND] = {"BEHIND", 10, 1},  [CONSUMERS] = {"CONSUMERS", 7, 1},
    [POLICY] = {"POLICY", 8, 0},  [PICTURE] = {"PICTURE", 9, 0}, [PRODUCER] = {"PRODUCER", 11, 0},
    [FRAMES] = {"FRAMES", 12, 1}, [KIND] = {"KIND", 13, 0},      [SLOTS] = {"SLOTS", 14, 1},
    [WAY] = {"PATH", 15, 0},      [REASON] = {"REASON", 16, 0},  {NULL, 0, 0}};

static void program_cell(struct table *table, enum column column, const char *mark,
                         const char *program, int32_t pid) {
  if (pid)
    table_cell(table, column, "%s%s %d", mark, program, pid);
  else /* in another pid namespace */
    table_cell(table, column, "%s%s", mark, program);
}

static void consumer_row(struct table *table, const cudalink_channel_info *channel,
                         const cudalink_consumer_info *consumer) {
  char policy[CHANNEL_VIEW_POLICY_SIZE], duration[TEXT_DURATION_SIZE];
  int is_long = consumer->held && consumer->held_for >= HELD_LONG;
  table_begin_row(table, is_long ? LIVE_BAD : LIVE_PLAIN);
  program_cell(table, NAME, "└ ", consumer->program, consumer->pid);
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
  table_cell(table, SLOTS, "%u", channel->slots);
  table_cell(table, WAY, "%s", channel->path);
  table_cell(table, REASON, "%s", channel->reason);
}

void channel_view_rows(struct table *table, const cudalink_channel_info *channel, uint64_t now,
                       double rate, int with_consumers) {
  table_begin_row(table, channel->status == CUDALINK_OK ? LIVE_PLAIN : LIVE_BAD);
  table_cell(table, NAME, "%s", channel->name);
  table_cell(table, STATE, "%s", channel_view_state(channel));
  if (channel->status != CUDALINK_OK) return;
  if (rate >= 0) table_cell(table, RATE, "%.1f", rate);
  live_cells(table, channel, now);
  for (uint32_t i = 0; with_consumers && i < channel->consumer_count; i++)
    consumer_row(table, channel, &channel->consumers[i]);
}
