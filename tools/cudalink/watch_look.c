/* SPDX-License-Identifier: MIT
 *
 * Looking at all channels, again and again: rates, order, filter.
 */
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const watch_sorts[] = {"name", "fps", "age", "drops", "consumers", "held", NULL};

/* The same producer in the look before; another one counts from 0 again. */
static const cudalink_channel_info *find(const struct watch_look *look,
                                         const cudalink_channel_info *wanted) {
  for (size_t i = 0; i < look->count; i++) {
    const cudalink_channel_info *channel = &look->channels[i];
    if (channel->status == CUDALINK_OK && channel->opened == wanted->opened &&
        channel->pid == wanted->pid && strcmp(channel->name, wanted->name) == 0)
      return channel;
  }
  return NULL;
}

static double rate_of(const struct watch_look *before, const cudalink_channel_info *channel,
                      uint64_t now) {
  if (channel->status != CUDALINK_OK) return NAN;
  const cudalink_channel_info *earlier = find(before, channel);
  if (!earlier || now <= before->time) return NAN;
  return (double)(channel->published - earlier->published) * 1e9 / (double)(now - before->time);
}

int watch_take_look(struct watch_look *look) {
  struct watch_look now = {0};
  int result = cudalink_channels_list(NULL, CHANNEL_VIEW_PATIENCE, &now.channels, &now.count);
  if (result) return result;
  now.time = cudalink_now();
  now.rates = malloc((now.count ? now.count : 1) * sizeof *now.rates);
  if (!now.rates) {
    cudalink_channels_free(now.channels);
    return CUDALINK_ERROR_NO_MEMORY;
  }
  for (size_t i = 0; i < now.count; i++)
    now.rates[i] = rate_of(look, &now.channels[i], now.time);
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

/* What a channel is sorted by, the largest first; no number comes last. */
static double weight_of(const struct watch_look *look, size_t i, enum watch_sort sort) {
  const cudalink_channel_info *channel = &look->channels[i];
  if (channel->status != CUDALINK_OK) return -1;
  switch (sort) {
  case WATCH_FPS: return isnan(look->rates[i]) ? 0 : look->rates[i];
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
