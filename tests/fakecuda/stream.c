/* SPDX-License-Identifier: MIT
 *
 * Streams: each is a queue and a thread of its own. The default stream of a context orders itself
 * with the blocking streams of that context as CUDA's does.
 */
#include <stdlib.h>

#include "fake.h"

/* ---- Finding and making streams ---- */

static struct stream *stream_new(struct context *context, unsigned flags, int priority) {
  struct stream *stream = calloc(1, sizeof *stream);
  if (!stream) fake_abort("out of memory");
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = ++fake.next_id;
  stream->random = (fake.seed + 1) * 0x9e3779b97f4a7c15u ^ (stream->id + 1) * 0xbf58476d1ce4e5b9u;
  pthread_cond_init(&stream->wake, NULL);
  stream->next = context->streams;
  context->streams = stream;
  return stream;
}

struct stream *stream_legacy(struct context *context) {
  if (!context->legacy) context->legacy = stream_new(context, CU_STREAM_DEFAULT, 0);
  return context->legacy;
}

static struct stream *stream_of_thread(struct context *context) {
  for (struct stream *stream = context->streams; stream; stream = stream->next)
    if (stream->per_thread && pthread_equal(stream->owner, pthread_self())) return stream;
  struct stream *stream = stream_new(context, CU_STREAM_DEFAULT, 0);
  stream->per_thread = true;
  stream->owner = pthread_self();
  return stream;
}

CUresult stream_find_any(CUstream handle, struct stream **out) {
  if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    struct context *context = context_current();
    if (!context)
      return misuse(CUDA_ERROR_INVALID_CONTEXT, "%s: a default stream, but no current context",
                    entry_current());
    *out = handle == CU_STREAM_PER_THREAD ? stream_of_thread(context) : stream_legacy(context);
  } else {
    *out = handle_get(HANDLE_STREAM, handle);
    if (!*out) return CUDA_ERROR_INVALID_HANDLE;
  }
  return (*out)->context->lost;
}

CUresult stream_find(CUstream handle, struct stream **out) {
  CUresult result = stream_find_any(handle, out);
  if (result != CUDA_SUCCESS || (*out)->context == context_current()) return result;
  return misuse(CUDA_ERROR_INVALID_CONTEXT,
                "%s: the stream %p belongs to another context than the "
                "current one",
                entry_current(), (void *)handle);
}

static bool is_lost(const struct stream *stream) { return stream->context->lost != CUDA_SUCCESS; }

bool stream_done_before(const struct stream *stream, uint64_t sequence) {
  return !stream->head || stream->head->sequence > sequence;
}

void stream_free_if_unused(struct stream *stream) {
  if (!stream->ended || stream->running || stream->waiters) return;
  pthread_cond_destroy(&stream->wake);
  free(stream);
}

bool stream_is_blocking(const struct stream *stream) {
  return stream != stream->context->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* ---- Queueing ---- */

CUresult stream_queue(struct stream *stream, struct operation *operation) {
  if (stream->capture) return capture_add(stream, operation);
  if (stream == stream->context->legacy) {
    fake.legacy++;
    if (capture_blocks_legacy(stream->context)) {
      operation_free(operation);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  operation->stream = stream;
  operation->sequence = ++fake.sequence;
  if (stream->tail)
    stream->tail->next = operation;
  else
    stream->head = operation;
  stream->tail = operation;
  if (!stream->running) worker_start(stream);
  pthread_cond_signal(&stream->wake);
  return CUDA_SUCCESS;
}

/* ---- Waiting ---- */

CUresult stream_wait_for(struct stream *stream, uint64_t sequence) {
  stream->waiters++;
  while (!is_lost(stream) && !stream_done_before(stream, sequence))
    pthread_cond_wait(&fake.progress, &fake.lock);
  CUresult result = stream->context->lost;
  stream->waiters--;
  stream_free_if_unused(stream);
  return result;
}

/* An empty operation brings the implicit order of the default stream in. */
CUresult stream_drain(struct stream *stream) {
  if (stream == stream->context->legacy) {
    CUresult result = stream_queue(stream, operation_new(OPERATION_NOTHING));
    if (result != CUDA_SUCCESS) return result;
  }
  return stream_wait_for(stream, fake.sequence);
}

static bool process_done_before(uint64_t sequence) {
  for (struct context *context = context_list(); context; context = context->next)
    for (struct stream *stream = context->streams; stream; stream = stream->next)
      if (!context->lost && !stream_done_before(stream, sequence)) return false;
  return true;
}

void stream_drain_process(void) {
  uint64_t sequence = fake.sequence;
  while (!process_done_before(sequence))
    pthread_cond_wait(&fake.progress, &fake.lock);
}

size_t stream_pending(void) {
  size_t pending = 0;
  for (struct context *context = context_list(); context; context = context->next)
    for (struct stream *stream = context->streams; stream; stream = stream->next)
      for (struct operation *operation = stream->head; operation; operation = operation->next)
        pending++;
  return pending;
}

/* ---- Which queued operation uses a range ---- */

static const struct operation *user_among(const struct operation *operation, uintptr_t address,
                                          size_t size) {
  for (; operation; operation = operation->next) {
    if (operation->kind == OPERATION_GRAPH) {
      const struct operation *part = user_among(operation->graph.first, address, size);
      if (part) return part;
    }
    for (unsigned i = 0; i < operation->use_count; i++) {
      const struct use *use = &operation->uses[i];
      if (use->address < address + size && address < use->address + use->size) return operation;
    }
  }
  return NULL;
}

const char *stream_using(uintptr_t address, size_t size) {
  for (struct context *context = context_list(); context; context = context->next)
    for (struct stream *stream = context->streams; stream && !context->lost;
         stream = stream->next) {
      const struct operation *user = user_among(stream->head, address, size);
      if (user) return operation_name(user);
    }
  return NULL;
}

/* ---- Entry points ---- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  if (!stream || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (priority > 0) priority = 0;
  if (priority < -5) priority = -5;
  struct stream *made = stream_new(context_current(), flags, priority);
  made->handle = handle_new(HANDLE_STREAM, made);
  *stream = made->handle;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
  ENTER(cuStreamCreate);
  if (!stream || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  struct stream *made = stream_new(context_current(), flags, 0);
  made->handle = handle_new(HANDLE_STREAM, made);
  *stream = made->handle;
  return CUDA_SUCCESS;
}

/* A destroyed stream with queued work stays in its context's list until that is done, so that
 * draining and the search for users see it. */
void stream_end(struct stream *stream) {
  struct stream **link = &stream->context->streams;
  while (*link != stream)
    link = &(*link)->next;
  *link = stream->next;
  if (stream->context->legacy == stream) stream->context->legacy = NULL;
  if (stream->handle && !stream->destroyed) handle_drop(stream->handle);
  stream->destroyed = true;
  stream->ended = true;
  pthread_cond_signal(&stream->wake);
  stream_free_if_unused(stream);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER(cuStreamDestroy_v2);
  struct stream *stream = handle_get(HANDLE_STREAM, handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) capture_abandon(stream);
  handle_drop(handle);
  stream->destroyed = true;
  pthread_cond_signal(&stream->wake);
  if (!stream->running) stream_end(stream);
  return CUDA_SUCCESS;
}

static bool all_done(const struct stream *stream) {
  if (stream->head) return false;
  if (stream != stream->context->legacy) return true;
  for (struct stream *other = stream->context->streams; other; other = other->next)
    if (stream_is_blocking(other) && other->head) return false;
  return true;
}

CUresult cuStreamQuery(CUstream handle) {
  ENTER(cuStreamQuery);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return all_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle) {
  ENTER(cuStreamSynchronize);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return stream_drain(stream);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  ENTER(cuStreamGetCtx);
  if (handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD &&
      !handle_peek(HANDLE_STREAM, handle))
    return CUDA_ERROR_INVALID_HANDLE; /* a question: no misuse */
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  *context = stream->context->handle;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
  ENTER(cuStreamGetFlags);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result == CUDA_SUCCESS) *flags = stream->flags;
  return result;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
  ENTER(cuStreamGetPriority);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result == CUDA_SUCCESS) *priority = stream->priority;
  return result;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
  ENTER(cuStreamGetId);
  struct stream *stream;
  CUresult result = stream_find_any(handle, &stream);
  if (result == CUDA_SUCCESS) *id = stream->id;
  return result;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *user) {
  ENTER(cuLaunchHostFunc);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  struct operation *operation = operation_new(OPERATION_HOST);
  operation->host.function = function;
  operation->host.user = user;
  return stream_queue(stream, operation);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *user,
                             unsigned int flags) {
  ENTER(cuStreamAddCallback);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  struct operation *operation = operation_new(OPERATION_CALLBACK);
  operation->host.callback = callback;
  operation->host.stream = handle;
  operation->host.user = user;
  return stream_queue(stream, operation);
}
