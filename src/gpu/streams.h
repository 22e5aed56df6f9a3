/* SPDX-License-Identifier: MIT
 *
 * Telling streams apart; and a few that something is used on, remembered until it is given back behind all
 * of them.
 */
#ifndef CUDALINK_SRC_GPU_STREAMS_H
#define CUDALINK_SRC_GPU_STREAMS_H

#include <stdbool.h>

#include "base/error.h"
#include "cudalink/hold.h"

struct gpu_streams {
  uint32_t count;
  cudalink_stream streams[CUDALINK_HOLD_STREAMS];
};

static inline bool gpu_stream_is(cudalink_stream a, cudalink_stream b) {
  return a.kind == b.kind && a.handle == b.handle;
}

/* As any thread can name it: the per-thread stream of the caller is not another thread's, but the
 * legacy stream comes behind every per-thread one. */
static inline cudalink_stream gpu_streams_name(cudalink_stream stream) {
  return stream.kind == CUDALINK_STREAM_KIND_PER_THREAD ? CUDALINK_STREAM_LEGACY : stream;
}

static inline bool gpu_streams_has(const struct gpu_streams *set, cudalink_stream stream) {
  stream = gpu_streams_name(stream);
  for (uint32_t i = 0; i < set->count; i++)
    if (gpu_stream_is(set->streams[i], stream)) return true;
  return false;
}

/* BUSY when there is no room for it. */
static inline int gpu_streams_check(const struct gpu_streams *set, cudalink_stream stream) {
  if (set->count < CUDALINK_HOLD_STREAMS || gpu_streams_has(set, stream)) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_BUSY,
                   "it is used on %d streams already, and no more are remembered; take a copy, or "
                   "order the work by events",
                   CUDALINK_HOLD_STREAMS);
}

/* After gpu_streams_check. */
static inline void gpu_streams_add(struct gpu_streams *set, cudalink_stream stream) {
  if (!gpu_streams_has(set, stream)) set->streams[set->count++] = gpu_streams_name(stream);
}

#endif
