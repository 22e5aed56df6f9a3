/* SPDX-License-Identifier: MIT
 *
 * Stream capture: what is queued on a capturing stream becomes nodes of a graph. Other streams join
 * by waiting for an event of the capture, and have to be joined again before its end.
 */
#include <stdlib.h>

#include "fake.h"

struct capture {
  struct capture *next;
  uint64_t number;
  struct graph *graph;
  struct stream *origin;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalid;
};

static struct capture *captures;
static _Thread_local CUstreamCaptureMode thread_mode;

CUresult capture_invalidate(struct stream *stream, CUresult result) {
  stream->capture->invalid = true;
  return result;
}

bool capture_blocks_legacy(const struct context *context) {
  bool blocks = false;
  for (struct stream *stream = context->streams; stream; stream = stream->next) {
    if (!stream->capture || !stream_is_blocking(stream)) continue;
    stream->capture->invalid = true;
    blocks = true;
  }
  return blocks;
}

/* The rules of cuThreadExchangeStreamCaptureMode. */
CUresult capture_check_unsafe(void) {
  CUresult result = CUDA_SUCCESS;
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (struct capture *capture = captures; capture; capture = capture->next) {
    bool own = pthread_equal(capture->thread, pthread_self());
    bool prohibited = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                          : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!prohibited) continue;
    capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult capture_add(struct stream *stream, struct operation *operation) {
  if (stream->capture->invalid) {
    operation_free(operation);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  operation->stream = stream;
  graph_add(stream->capture->graph, operation);
  stream->captured++;
  stream->joined = false;
  return CUDA_SUCCESS;
}

/* A record makes no node: it marks a place in the capture. */
CUresult capture_record(struct stream *stream, struct event *event) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->captured = stream->capture->number;
  event->captured_stream = stream;
  event->captured_at = stream->captured;
  return CUDA_SUCCESS;
}

static struct capture *capture_numbered(uint64_t number) {
  for (struct capture *capture = captures; capture; capture = capture->next)
    if (capture->number == number) return capture;
  return NULL;
}

/* Joins a stream to a capture, or one stream of a capture to another. */
CUresult capture_wait(struct stream *stream, struct event *event) {
  struct capture *capture = capture_numbered(event->captured);
  if (!event->captured) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (!capture) return CUDA_ERROR_CAPTURED_EVENT; /* that capture has ended */
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != capture) {
    capture->invalid = true;
    return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!stream->capture) {
    if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    stream->capture = capture;
    stream->captured = 0;
    stream->joined = false;
  }
  struct stream *other = event->captured_stream;
  if (other != stream && other->captured == event->captured_at) other->joined = true;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture_v2);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  struct capture *capture = calloc(1, sizeof *capture);
  if (!capture) fake_abort("out of memory");
  capture->number = ++fake.next_id;
  capture->graph = graph_new();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->next = captures;
  captures = capture;
  stream->capture = capture;
  stream->captured = 0;
  return CUDA_SUCCESS;
}

/* Frees the capture and takes all its streams out. True when all of them had been joined. */
static bool finish(struct capture *capture) {
  bool joined = true;
  struct context *context = capture->origin->context;
  for (struct stream *stream = context->streams; stream; stream = stream->next) {
    if (stream->capture != capture) continue;
    if (stream != capture->origin && !stream->joined) joined = false;
    stream->capture = NULL;
  }
  struct capture **link = &captures;
  while (*link != capture)
    link = &(*link)->next;
  *link = capture->next;
  free(capture);
  return joined;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
  ENTER(cuStreamEndCapture);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct capture *capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      !pthread_equal(capture->thread, pthread_self()))
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  struct graph *graph = capture->graph;
  bool invalid = capture->invalid;
  bool joined = finish(capture);
  *out = NULL;
  if (invalid || !joined) {
    graph_free(graph);
    return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  *out = graph->handle;
  return CUDA_SUCCESS;
}

void capture_abandon(struct stream *stream) {
  struct capture *capture = stream->capture;
  capture->invalid = true;
  stream->capture = NULL;
  if (capture->origin != stream) return;
  graph_free(capture->graph);
  finish(capture);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  ENTER(cuStreamIsCapturing);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream->capture)
    *status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  /* Asking about the default stream while a blocking stream captures is itself an error, but one
   * that leaves the capture valid. */
  for (struct stream *other = stream->context->streams; other; other = other->next)
    if (stream == stream->context->legacy && other->capture && stream_is_blocking(other))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
