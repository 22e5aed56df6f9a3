/* SPDX-License-Identifier: MIT
 *
 * What the parts of `cudalink watch` share.
 */
#ifndef CUDALINK_TOOL_WATCH_H
#define CUDALINK_TOOL_WATCH_H

#include "channel_filter.h"
#include "channel_view.h"

enum watch_sort {
  WATCH_NAME,
  WATCH_FPS,
  WATCH_LATENCY,
  WATCH_AGE,
  WATCH_DROPS,
  WATCH_CONSUMERS,
  WATCH_HELD
};
#define WATCH_SORT_COUNT 7
extern const char *const watch_sorts[]; /* names; ends with NULL */

#define WATCH_FILTER_SIZE 128

struct watch_options {
  int64_t interval; /* ns */
  uint64_t count;   /* looks; 0 = no end */
  int sort;         /* watch_sort */
  int reverse;
  const char *filter; /* NULL: all */
  struct channel_filter channels;
  int json;
  const char *prometheus; /* a port or a path */
};

/* One look at all channels, and how fast each was since the look before. */
struct watch_look {
  cudalink_channel_info *channels;
  struct channel_view_rates *rates;
  size_t count;
  uint64_t time; /* cudalink_now() */
};

/* Looks at the channels that are wanted, compares with the look before, and frees that one. All
 * zeros to begin with. 0, or a cudalink_error. */
int watch_take_look(struct watch_look *look, const struct channel_filter *filter);
void watch_free_look(struct watch_look *look);

/* The places of the channels in the order to show, into `order` (count entries). Returns how many
 * the filter lets through. */
size_t watch_arrange(const struct watch_look *look, enum watch_sort sort, int reverse,
                     const char *filter, size_t *order);

/* The live table, until a key or a signal ends it. An exit code. */
int watch_screen(const struct watch_options *options);

#endif
