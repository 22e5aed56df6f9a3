/* SPDX-License-Identifier: MIT
 *
 * cudalink/stream.h - after what, and before what, a frame changes hands.
 *
 * Streams are named, never guessed. A cudalink_stream that is all zeros means "not said" and is
 * refused with CUDALINK_ERROR_STREAM: forgetting the stream is how frames get torn.
 */
#ifndef CUDALINK_STREAM_H
#define CUDALINK_STREAM_H

#include "cudalink/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudalink_stream_kind {
  CUDALINK_STREAM_NOT_SAID = 0,
  CUDALINK_STREAM_KIND_COMPLETE = 1,   /* nothing is pending: the CPU has seen the work end */
  CUDALINK_STREAM_KIND_LEGACY = 2,     /* CUDA's legacy default stream (CU_STREAM_LEGACY) */
  CUDALINK_STREAM_KIND_PER_THREAD = 3, /* CUDA's per-thread default stream */
  CUDALINK_STREAM_KIND_HANDLE = 4,     /* a CUstream, or a cudalink_host_stream on host memory */
  CUDALINK_STREAM_KIND_EVENT = 5       /* a CUevent already recorded; for release only */
} cudalink_stream_kind;

typedef struct cudalink_stream {
  uint32_t kind; /* cudalink_stream_kind */
  uint32_t reserved;
  uint64_t handle; /* for HANDLE and EVENT, else 0 */
} cudalink_stream;

static inline cudalink_stream cudalink_stream_make(cudalink_stream_kind kind, const void *handle) {
  cudalink_stream stream;
  stream.kind = (uint32_t)kind;
  stream.reserved = 0;
  stream.handle = (uint64_t)(uintptr_t)handle;
  return stream;
}

#define CUDALINK_STREAM_COMPLETE cudalink_stream_make(CUDALINK_STREAM_KIND_COMPLETE, NULL)
#define CUDALINK_STREAM_LEGACY cudalink_stream_make(CUDALINK_STREAM_KIND_LEGACY, NULL)
#define CUDALINK_STREAM_PER_THREAD cudalink_stream_make(CUDALINK_STREAM_KIND_PER_THREAD, NULL)
#define CUDALINK_STREAM_HANDLE(h)                                                                  \
  cudalink_stream_make(CUDALINK_STREAM_KIND_HANDLE, (const void *)(h))
#define CUDALINK_STREAM_EVENT(h) cudalink_stream_make(CUDALINK_STREAM_KIND_EVENT, (const void *)(h))

/* A stream without a GPU: a queue of work that one thread does in order, after the caller has gone
 * on. It is to kind host what a CUDA stream is to the GPU kinds: publish and release may name it,
 * and acquire may leave its wait to it. A handle from elsewhere is refused, not followed. */
typedef struct cudalink_host_stream cudalink_host_stream;
/* Makes a stream without a GPU, and starts its thread. */
CUDALINK_API int cudalink_host_stream_create(cudalink_host_stream **stream);
/* Finishes the queue and ends its thread; blocks for that. NULL is allowed. */
CUDALINK_API void cudalink_host_stream_destroy(cudalink_host_stream *stream);
/* Queues work. Never blocks; the function runs on the queue's thread and may take its time. */
CUDALINK_API int cudalink_host_stream_push(cudalink_host_stream *stream, void (*work)(void *),
                                           void *context);
/* Blocks until everything pushed so far has run. */
CUDALINK_API int cudalink_host_stream_synchronize(cudalink_host_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
