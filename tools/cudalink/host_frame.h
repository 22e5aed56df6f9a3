/* SPDX-License-Identifier: MIT
 *
 * A frame's bytes where the CPU can read them, whatever memory the frame is in.
 */
#ifndef CUDALINK_HOST_FRAME_H
#define CUDALINK_HOST_FRAME_H

#include "cudalink/cudalink.h"

/* All zeros to begin with. */
struct host_frame {
  const void *data; /* laid out as the frame's description says */
  void *copy;       /* GPU kinds: the frame comes here */
  uint64_t copy_bytes;
};

/* On kind host `data` is the slot itself: nothing is copied. 0, or a cudalink_error with its
 * sentence in cudalink_last_error (NO_MEMORY has none). */
int host_frame_get(struct host_frame *host, const cudalink_frame *frame);

/* All `bytes` of the frame (cudalink_description_bytes) come to `to`, of every kind; the same result. */
int host_frame_copy(const cudalink_frame *frame, void *to, uint64_t bytes);

void host_frame_free(struct host_frame *host);

#endif
