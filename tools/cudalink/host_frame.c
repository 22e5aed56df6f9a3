/* SPDX-License-Identifier: MIT
 *
 * A frame's bytes where the CPU can read them.
 */
#include "host_frame.h"

#include <stdlib.h>

static int grow(struct host_frame *host, uint64_t bytes) {
  if (host->copy_bytes >= bytes) return CUDALINK_OK;
  free(host->copy);
  host->copy = malloc(bytes);
  host->copy_bytes = host->copy ? bytes : 0;
  return host->copy ? CUDALINK_OK : CUDALINK_ERROR_NO_MEMORY;
}

/* Described as one row of bytes the slot comes as it is, with gaps and repeated elements, in one
 * copy. */
int host_frame_copy(const cudalink_frame *frame, void *to, uint64_t bytes) {
  cudalink_frame raw = *frame;
  int64_t shape = (int64_t)bytes;
  raw.description = (cudalink_description){.plane_count = 0};
  int result = cudalink_describe_tensor(&raw.description, NULL, CUDALINK_UINT8, 1, &shape);
  return result ? result : cudalink_frame_to_host(&raw, to, bytes);
}

int host_frame_get(struct host_frame *host, const cudalink_frame *frame) {
  uint64_t bytes;
  host->data = frame->data;
  if (frame->kind == CUDALINK_KIND_HOST) return CUDALINK_OK;
  int result = cudalink_description_bytes(&frame->description, &bytes);
  if (!result) result = grow(host, bytes);
  if (!result && bytes) result = host_frame_copy(frame, host->copy, bytes);
  host->data = host->copy;
  return result;
}

void host_frame_free(struct host_frame *host) { free(host->copy); }
