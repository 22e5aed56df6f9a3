/* SPDX-License-Identifier: MIT
 *
 * What `list`, `info`, `watch` and its metrics say of a channel.
 */
#ifndef CUDALINK_CHANNEL_VIEW_H
#define CUDALINK_CHANNEL_VIEW_H

#include "cudalink/channels.h"
#include "json.h"
#include "table.h"

/* How long producers may take to answer, ns. */
#define CHANNEL_VIEW_PATIENCE INT64_C(300000000)

/* ns from publish to acquire; NAN = not known. */
struct channel_view_latency {
  double mean;
  double p50;
  double p99;
};

/* Since the look before; NAN = not known. */
struct channel_view_rates {
  double fps;
  double consumer_fps[CUDALINK_MAX_CONSUMERS];
  struct channel_view_latency consumer_latency[CUDALINK_MAX_CONSUMERS];
};

/* The help of every command that prints channels as JSON. */
#define CHANNEL_VIEW_KEYS                                                                          \
  "name directory state; of live ones also pid uid\n"                                              \
  "program kind path reason device device_name slots slot_bytes generation published dropped\n"    \
  "age_us open_seconds format width height planes consumers, a list with pid uid program group\n"  \
  "policy hold held held_us isolated behind received missed latency_us latency_p50_us\n"           \
  "latency_p99_us."

/* "live", or why nothing more is known: "dead", "refused", "silent" (no answer), "version". */
const char *channel_view_state(const cudalink_channel_info *channel);

/* Nanoseconds since the newest frame; UINT64_MAX when there was none yet. */
uint64_t channel_view_age(const cudalink_channel_info *channel, uint64_t now);

/* Frames that are published and that this consumer of every frame has not taken yet. */
uint64_t channel_view_behind(const cudalink_channel_info *channel,
                             const cudalink_consumer_info *consumer);

/* Of what was measured since `before`, an earlier state of it; NULL: since it joined. */
struct channel_view_latency channel_view_latency(const cudalink_consumer_info *consumer,
                                                 const cudalink_consumer_info *before);
/* Of its slowest consumer, the one with the highest p99, by `rates` where they know (NULL: they do not). */
struct channel_view_latency channel_view_worst_latency(const cudalink_channel_info *channel,
                                                       const struct channel_view_rates *rates);

/* Into the newest row: p50 into `column`, and both, "14/31 µs", into the longer one behind it. Nothing where they
 * are not known. */
void channel_view_latency_cells(struct table *table, size_t column,
                                struct channel_view_latency latency);

#define CHANNEL_VIEW_PICTURE_SIZE 64
/* "1280x720 RGBA8", "3 planes", or "" before the first frame. */
const char *channel_view_picture(char to[CHANNEL_VIEW_PICTURE_SIZE],
                                 const cudalink_channel_info *channel);

/* How frames travel, for people: "shared by descriptor"; a path that this version does not know as it is. */
const char *channel_view_way(const char *path);

/* "latest", "every", "shared:workers"; also for a number that this version does not know. */
#define CHANNEL_VIEW_POLICY_SIZE 96
const char *channel_view_policy(char to[CHANNEL_VIEW_POLICY_SIZE],
                                const cudalink_consumer_info *consumer);

/* The keys of a channel, into an object that is open. With `rates` it and its consumers have "fps",
 * too; NULL = there was no look before. */
void channel_view_json(struct json *json, const cudalink_channel_info *channel, uint64_t now,
                       const struct channel_view_rates *rates);

/* A row for the channel, and `with_consumers` one for each consumer below it. */
extern const struct table_column channel_view_columns[];
extern const struct table_column channel_view_list_columns[]; /* other ones go first */
void channel_view_rows(struct table *table, const cudalink_channel_info *channel, uint64_t now,
                       const struct channel_view_rates *rates, int with_consumers);

#endif
