/* SPDX-License-Identifier: MIT
 *
 * What a helper has to say, as lines of text: fields between tabs. The two sides may be of different
 * versions, and anything can be named as helper: a line that is not understood is passed over.
 *
 *   driver  VERSION LIBRARY
 *   device  ORDINAL UUID MAJOR MINOR BYTES MIG INTEGRATED NAME
 *   item    ID STATE NS TEXT ADVICE       a later one takes the place of an earlier one
 *   end
 */
#ifndef CUDALINK_SRC_PROBE_LINES_H
#define CUDALINK_SRC_PROBE_LINES_H

#include <stdbool.h>

#include "cudalink/probe.h"

#define PROBE_LINE_SIZE 1024
#define PROBE_MOST_DEVICES 16
#define PROBE_MOST_ITEMS 48

/* A probe as it grows, and what it is freed with. */
struct probe_findings {
  cudalink_probe probe; /* first */
  bool ended;           /* the helper has said all */
  cudalink_probe_device devices[PROBE_MOST_DEVICES];
  cudalink_probe_item items[PROBE_MOST_ITEMS];
};

/* Where lines go. `line` ends with a newline. */
struct probe_sink {
  void (*take)(void *context, const char *line);
  void *context;
};
void probe_say_driver(const struct probe_sink *sink, int32_t version, const char *library);
void probe_say_device(const struct probe_sink *sink, const cudalink_probe_device *device);
void probe_say_item(const struct probe_sink *sink, const cudalink_probe_item *item);
void probe_say_end(const struct probe_sink *sink);

/* A sink's `take` whose context is a struct probe_findings. */
void probe_take_line(void *context, const char *line);
/* The item of that id, a new one if there is none. NULL: there is no room. */
cudalink_probe_item *probe_item(struct probe_findings *findings, const char *id);

#endif
