/* SPDX-License-Identifier: MIT
 *
 * The host implementation: a block is one memfd that consumers can only read; a stream is a queue
 * with a thread (stream.c). Nothing here needs a GPU, all of it keeps the same promises.
 */
#include <stdlib.h>
#include <string.h>

#include "cudalink/format.h"
#include "gpu/gpu.h"
#include "gpu/host/stream.h"
#include "interop/convert/kernels.h"

struct host_device {
  struct gpu_device gpu; /* first */
  struct host_buffer {   /* for host_begin */
    void *memory;
    uint64_t bytes;
  } buffers[2];
};

static struct host_device *host_of(struct gpu_device *gpu) {
  return (struct host_device *)(void *)gpu;
}

static struct os_segment *segment_of(struct gpu_block *block) { return block->implementation; }

static int block_fill(struct gpu_block *block, struct gpu_device *device,
                      const struct os_segment *segment, bool writable) {
  struct os_segment *kept = malloc(sizeof *kept);
  if (!kept) {
    struct os_segment doomed = *segment;
    os_segment_destroy(&doomed);
    return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for the record of a block");
  }
  *kept = *segment;
  kept->handle = OS_NO_HANDLE; /* the block's */
  *block = (struct gpu_block){.device = device,
                              .address = kept->address,
                              .bytes = kept->bytes,
                              .shared.handle = segment->handle,
                              .writable = writable,
                              .implementation = kept};
  return CUDALINK_OK;
}

static int host_block_create(struct gpu_device *device, uint64_t bytes, struct gpu_block *block) {
  struct os_segment segment;
  int status = os_segment_create(&segment, "cudalink-frames", bytes);
  if (status < 0) return status;
  return block_fill(block, device, &segment, true);
}

static int host_block_import(struct gpu_device *device, struct gpu_shared *shared, uint64_t bytes,
                             bool writable, struct gpu_block *block) {
  struct os_segment segment;
  int status = os_segment_map(&segment, shared->handle, bytes, writable, !writable);
  shared->handle = OS_NO_HANDLE;
  if (status < 0) return status;
  return block_fill(block, device, &segment, writable);
}

static void host_block_destroy(struct gpu_block *block) {
  os_handle_close(&block->shared.handle);
  os_segment_destroy(segment_of(block));
  free(block->implementation);
  *block = (struct gpu_block){.shared.handle = OS_NO_HANDLE};
}

static int host_block_seal(struct gpu_block *block) {
  struct os_segment segment = *segment_of(block);
  segment.handle = block->shared.handle;
  return os_segment_seal_writers(&segment);
}

static int host_stream_check(struct gpu_device *device, cudalink_stream stream) {
  (void)device;
  switch (stream.kind) {
  case CUDALINK_STREAM_KIND_COMPLETE: return CUDALINK_OK;
  case CUDALINK_STREAM_KIND_HANDLE: return host_stream_find(stream.handle);
  case CUDALINK_STREAM_NOT_SAID:
    return error_set(CUDALINK_ERROR_STREAM,
                     "no stream was said: name the one that the work is on, or "
                     "CUDALINK_STREAM_COMPLETE when nothing is pending");
  default:
    return error_set(CUDALINK_ERROR_STREAM,
                     "a CUDA stream or event was named (kind %u) but these frames are in host "
                     "memory; use CUDALINK_STREAM_COMPLETE or a cudalink_host_stream",
                     stream.kind);
  }
}

static int host_stream_write(struct gpu_device *device, cudalink_stream stream,
                             const struct gpu_write *writes, uint32_t count) {
  (void)device;
  if (stream.kind != CUDALINK_STREAM_KIND_COMPLETE)
    return host_stream_push_writes(stream.handle, writes, count);
  for (uint32_t i = 0; i < count; i++)
    atomic_store_explicit(writes[i].word, writes[i].value, memory_order_release);
  return CUDALINK_OK;
}

static int host_join_write(struct gpu_device *device, const cudalink_stream *streams,
                           uint32_t count, const struct gpu_write *write) {
  (void)device;
  return host_streams_write(streams, count, write);
}

static int host_stream_wait(struct gpu_device *device, cudalink_stream stream, wire_word *word,
                            uint64_t value) {
  return host_stream_push_wait(stream.handle, word, value, &device->waits);
}

static bool host_waits_landed(struct gpu_device *device) {
  /* acquire: pairs with the stream's release decrement, behind its last look at the word. */
  return atomic_load_explicit(&device->waits, memory_order_acquire) == 0;
}

static int host_stream_copy(struct gpu_device *device, cudalink_stream stream, void *target,
                            const void *source, uint64_t bytes) {
  (void)device;
  if (stream.kind != CUDALINK_STREAM_KIND_COMPLETE)
    return host_stream_push_copy(stream.handle, target, source, bytes);
  memcpy(target, source, bytes);
  return CUDALINK_OK;
}

static int host_stream_send(struct gpu_device *device, cudalink_stream stream,
                            const struct gpu_copy *copy) {
  (void)device;
  if (copy->array)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "an array of CUDA's was given, but these frames are in host memory");
  if (stream.kind != CUDALINK_STREAM_KIND_COMPLETE)
    return host_stream_push_send(stream.handle, copy);
  host_copy_rows(copy);
  return CUDALINK_OK;
}

static int host_stream_finish(struct gpu_device *device, cudalink_stream stream) {
  (void)device;
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return CUDALINK_OK;
  return cudalink_host_stream_synchronize((cudalink_host_stream *)(uintptr_t)stream.handle);
}

static int host_pack_to_host(struct gpu_device *device, const cudalink_description *description,
                             const void *source, void *out, uint64_t size) {
  (void)device;
  return cudalink_pack(description, source, out, size, 0);
}

static void run_conversion(void *job) {
  convert_on_host(job);
  free(job);
}

static int host_stream_convert(struct gpu_device *device, cudalink_stream stream,
                               const struct convert_job *job) {
  (void)device;
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) {
    convert_on_host(job);
    return CUDALINK_OK;
  }
  struct convert_job *queued = malloc(sizeof *queued);
  if (!queued) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory to queue a conversion");
  *queued = *job;
  int status = cudalink_host_stream_push((cudalink_host_stream *)(uintptr_t)stream.handle,
                                         run_conversion, queued);
  if (status < 0) free(queued);
  return status;
}

static int grow(struct host_buffer *buffer, uint64_t bytes) {
  if (bytes <= buffer->bytes && buffer->memory) return CUDALINK_OK;
  void *grown = realloc(buffer->memory, bytes ? bytes : 1);
  if (!grown)
    return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for %llu bytes of a frame",
                     (unsigned long long)bytes);
  buffer->memory = grown;
  buffer->bytes = bytes;
  return CUDALINK_OK;
}

/* There is no engine that copies in the background: it is done at once. */
static int host_host_begin(struct gpu_device *device, uint32_t which,
                           const cudalink_description *description, const void *source, void **out,
                           uint64_t *size, cudalink_stream *behind) {
  uint64_t needed;
  *behind = CUDALINK_STREAM_COMPLETE;
  int status = cudalink_packed_bytes(description, &needed);
  if (status < 0) return status;
  if (!*out) {
    struct host_buffer *buffer = &host_of(device)->buffers[which];
    status = grow(buffer, needed);
    if (status < 0) return status;
    *out = buffer->memory;
    *size = needed;
  }
  status = cudalink_pack(description, source, *out, *size, 0);
  *size = needed;
  return status;
}

static int host_host_finish(struct gpu_device *device, uint32_t which) {
  (void)device;
  (void)which;
  return CUDALINK_OK;
}

static void host_device_close(struct gpu_device *device) {
  struct host_device *host = host_of(device);
  for (int i = 0; i < 2; i++)
    free(host->buffers[i].memory);
  free(host);
}

static const struct gpu_operations host_operations = {
    .device_close = host_device_close,
    .block_create = host_block_create,
    .block_import = host_block_import,
    .block_destroy = host_block_destroy,
    .block_seal = host_block_seal,
    .stream_check = host_stream_check,
    .stream_write = host_stream_write,
    .streams_write = host_join_write,
    .stream_wait = host_stream_wait,
    .waits_landed = host_waits_landed,
    .stream_copy = host_stream_copy,
    .stream_send = host_stream_send,
    .stream_finish = host_stream_finish,
    .pack_to_host = host_pack_to_host,
    .host_begin = host_host_begin,
    .host_finish = host_host_finish,
    .stream_convert = host_stream_convert,
};

int gpu_host_open(struct gpu_device **device) {
  struct host_device *made = calloc(1, sizeof *made);
  struct gpu_device *opened = &made->gpu;
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a device record");
  opened->operations = &host_operations;
  opened->kind = CUDALINK_KIND_HOST;
  opened->granularity = os_page_round(1);
  opened->metadata_inside = true;
  opened->stream_waits = true;
  memcpy(opened->path, "host memfd", sizeof "host memfd");
  *device = opened;
  return CUDALINK_OK;
}
