/* SPDX-License-Identifier: MIT
 *
 * What the host kind does on a cudalink_host_stream beside the user's own work. Streams are named by
 * the number that cudalink_stream carries; one that is not alive is refused.
 */
#ifndef CUDALINK_SRC_GPU_HOST_STREAM_H
#define CUDALINK_SRC_GPU_HOST_STREAM_H

#include "gpu/gpu.h"

int host_stream_find(uint64_t handle);
int host_stream_push_writes(uint64_t handle, const struct gpu_write *writes, uint32_t count);
/* *pending counts this wait until it has ended. */
int host_stream_push_wait(uint64_t handle, wire_word *word, uint64_t value,
                          _Atomic uint32_t *pending);
int host_stream_push_copy(uint64_t handle, void *target, const void *source, uint64_t bytes);
int host_stream_push_send(uint64_t handle, const struct gpu_copy *copy);
void host_copy_rows(const struct gpu_copy *copy);
/* A store once all of these have come so far (join.c). */
int host_streams_write(const cudalink_stream *streams, uint32_t count,
                       const struct gpu_write *write);

#endif
