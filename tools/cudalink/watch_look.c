/* SPDX-License-Identifier: MIT
 *
 * Looking at all channels, again and again: rates, order, filter.
 */
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const watch_sorts[] = {"name",  "fps",       "latency", "age",
                                   "drops", "consumers", "held",    NULL};

/* The same producer in the look before; another one counts from 0 again. -1: it was not there. */
static long find(const struct watch_look *look, const cudalink_channel_info *wanted) {
  for (size_t i = 0; i < look->count; i++) {
    const cudalink_channel_info *channel = &look->channels[i];
    if (channel->status == CUDALINK_OK && channel->opened == wanted->opened &&
        channel->pid == wanted->pid && strcmp(channel->name, wanted->name) == 0)
      return (long)i;
  }
  return -1;
}

static int is_same(const cudalink_consumer_info *one, const cudalink_consumer_info *other) {
  return one->pid == other->pid && one->uid == other->uid && one->policy == other->policy &&
         strcmp(one->program, other->program) == 0;
}

/* They come in the order of their places, so of several alike the first is the first again, unless one
 * has left; who has taken less than before is another one. -1: it was not there. */
static int find_consumer(const cudalink_channel_info *before, const cudalink_channel_info *now,
                         uint32_t index) {
  const cudalink_consumer_info *wanted = &now->consumers[index];
  uint32_t earlier = 0;
  for (uint32_t i = 0; i < index; i++)
    earlier += (uint32_t)is_same(&now->consumers[i], wanted);
  for (uint32_t i = 0; i < before->consumer_count; i++)
    if (is_same(&before->consumers[i], wanted) && earlier-- == 0)
      return before->consumers[i].received <= wanted->received ? (int)i : -1;
  return -1;
}

/* Of a consumer that was there before; while nothing is measured the last value stays. */
static void compare_consumer(struct channel_view_rates *rates, uint32_t index,
                             const cudalink_consumer_info *now,
                             const cudalink_consumer_info *before,
                             struct channel_view_latency latency_before, double seconds) {
  if (now->received == CUDALINK_NOT_TOLD) return;
  struct channel_view_latency latency = channel_view_latency(now, before);
  rates->consumer_fps[index] = (double)(now->received - before->received) / seconds;
  rates->consumer_latency[index] = isnan(latency.mean) ? latency_before : latency;
}

static void compare(struct channel_view_rates *rates, const struct watch_look *before,
                    const cudalink_channel_info *channel, uint64_t now) {
  rates->fps = NAN;
  for (uint32_t i = 0; i < channel->consumer_count; i++) {
    rates->consumer_fps[i] = NAN;
    rates->consumer_latency[i] = channel_view_latency(&channel->consumers[i], NULL);
  }
  long found = channel->status == CUDALINK_OK ? find(before, channel) : -1;
  if (found < 0 || now <= before->time) return;
  const cudalink_channel_info *earlier = &before->channels[found];
  double seconds = (double)(now - before->time) / 1e9;
  rates->fps = (double)(channel->published - earlier->published) / seconds;
  for (uint32_t i = 0; i < channel->consumer_count; i++) {
    int same = find_consumer(earlier, channel, i);
    if (same >= 0)
      compare_consumer(rates, i, &channel->consumers[i], &earlier->consumers[same],
                       before->rates[found].consumer_latency[same], seconds);
  }
}

int watch_take_look(struct watch_look *look, const struct channel_filter *filter) {
  struct watch_look now = {0};
  int result = cudalink_channels_list(NULL, CHANNEL_VIEW_PATIENCE, &now.channels, &now.count);
  if (result) return result;
  now.time = cudalink_now();
  now.count = channel_filter_apply(filter, now.channels, now.count);
  now.rates = malloc((now.count ? now.count : 1) * sizeof *now.rates);
  if (!now.rates) {
    cudalink_channels_free(now.channels);
    return CUDALINK_ERROR_NO_MEMORY;
  }
  for (size_t i = 0; i < now.count; i++)
    compare(&now.rates[i], look, &now.channels[i], now.time);
  watch_free_look(look);
  *look = now;
  return CUDALINK_OK;
}

void watch_free_look(struct watch_look *look) {
  cudalink_channels_free(look->channels);
  free(look->rates);
  *look = (struct watch_look){0};
}

/* ---- order ---------------------------------------------------------------------------------- */

static uint64_t longest_hold(const cudalink_channel_info *channel) {
  uint64_t longest = 0;
  for (uint32_t i = 0; i < channel->consumer_count; i++)
    if (channel->consumers[i].held_for > longest) longest = channel->consumers[i].held_for;
  return longest;
}

static double number(double value) { return isnan(value) ? 0 : value; }

/* What a channel is sorted by, the largest first; no number comes last. */
static double weight_of(const struct watch_look *look, size_t i, enum watch_sort sort) {
  const cudalink_channel_info *channel = &look->channels[i];
  if (channel->status != CUDALINK_OK) return -1;
  switch (sort) {
  case WATCH_FPS: return number(look->rates[i].fps);
  case WATCH_LATENCY: return number(channel_view_worst_latency(channel, &look->rates[i]).p99);
  case WATCH_AGE: return (double)channel_view_age(channel, look->time);
  case WATCH_DROPS: return (double)channel->dropped;
  case WATCH_CONSUMERS: return channel->consumer_count;
  case WATCH_HELD: return (double)longest_hold(channel);
  default: return 0;
  }
}

static int matches(const char *name, const char *filter) {
  return !filter || !*filter || strcasestr(name, filter) != NULL;
}

/* A look is sorted by name already; inserting keeps that order among equals. */
size_t watch_arrange(const struct watch_look *look, enum watch_sort sort, int reverse,
                     const char *filter, size_t *order) {
  size_t count = 0;
  for (size_t i = 0; i < look->count; i++) {
    if (!matches(look->channels[i].name, filter)) continue;
    double weight = weight_of(look, i, sort);
    size_t place = count++;
    for (; place > 0 && weight_of(look, order[place - 1], sort) < weight; place--)
      order[place] = order[place - 1];
    order[place] = i;
  }
  for (size_t i = 0; reverse && i < count / 2; i++) {
    size_t other = order[i];
    order[i] = order[count - 1 - i];
    order[count - 1 - i] = other;
  }
  return count;
}
