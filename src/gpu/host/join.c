/* SPDX-License-Identifier: MIT
 *
 * One store behind several host streams: each of them counts down, and the last one stores.
 */
#include <stdlib.h>

#include "gpu/host/stream.h"

struct join {
  _Atomic uint32_t left;  /* streams that have not come so far, and the call that queues them */
  _Atomic bool cancelled; /* not all could be queued */
  struct gpu_write write;
};

static void count_down(struct join *join, uint32_t by) {
  /* acq_rel: each stream's work comes before its step (release), and whoever makes the last step
   * (acquire) stores behind all of it. */
  if (atomic_fetch_sub_explicit(&join->left, by, memory_order_acq_rel) != by) return;
  /* release: whoever reads the value sees the work of all streams. */
  if (!atomic_load_explicit(&join->cancelled, memory_order_relaxed))
    atomic_store_explicit(join->write.word, join->write.value, memory_order_release);
  free(join);
}

static void step(void *context) { count_down(context, 1); }

int host_streams_write(const cudalink_stream *streams, uint32_t count,
                       const struct gpu_write *write) {
  struct join *join = malloc(sizeof *join);
  if (!join) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory to join host streams");
  atomic_init(&join->left, count + 1);
  atomic_init(&join->cancelled, false);
  join->write = *write;
  for (uint32_t i = 0; i < count; i++) {
    cudalink_host_stream *stream = (cudalink_host_stream *)(uintptr_t)streams[i].handle;
    int status = cudalink_host_stream_push(stream, step, join);
    if (status == CUDALINK_OK) continue;
    atomic_store_explicit(&join->cancelled, true, memory_order_relaxed); /* read behind `left` */
    count_down(join, count + 1 - i);
    return status;
  }
  count_down(join, 1);
  return CUDALINK_OK;
}
