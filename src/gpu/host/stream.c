/* SPDX-License-Identifier: MIT
 *
 * cudalink_host_stream: a queue of operations and the thread that does them in order.
 *
 * All living streams are in one list, so that a handle from a caller is looked up, never followed.
 * Waits look at their word every 100 us, as a CPU has to where a GPU is the other side.
 */
#include "gpu/host/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_STEP 100000 /* ns between two looks at a word */

enum operation_kind { OPERATION_CALL, OPERATION_WRITE, OPERATION_WAIT, OPERATION_COPY };

struct operation {
  struct operation *next;
  enum operation_kind kind;
  union {
    struct {
      void (*work)(void *);
      void *context;
    } call;
    struct {
      wire_word *word;
      uint64_t value;
      _Atomic uint32_t *pending;
    } word; /* WRITE, WAIT */
    struct gpu_copy copy;
  };
};

struct cudalink_host_stream {
  struct cudalink_host_stream *next_alive;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t pushed;
  pthread_cond_t finished;
  struct operation *first;
  struct operation **last;
  uint64_t pushed_count;
  uint64_t finished_count;
  bool ending;
};

static pthread_mutex_t alive_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cudalink_host_stream *alive;

static void wait_for_word(const wire_word *word, uint64_t value) {
  _Atomic uint32_t never =
      0; /* nobody wakes it: the word's writer may be a GPU or another process */
  /* acquire: pairs with the release store of the stream that writes the word, after the pixels. */
  while ((int64_t)(atomic_load_explicit(word, memory_order_acquire) - value) < 0)
    os_sleep_on(&never, 0, os_deadline(WAIT_STEP), false);
}

void host_copy_rows(const struct gpu_copy *copy) {
  for (uint64_t r = 0; r < copy->rows; r++)
    memcpy((char *)copy->target + r * copy->target_stride,
           (const char *)copy->source + r * copy->source_stride, copy->bytes);
}

static void run(const struct operation *operation) {
  switch (operation->kind) {
  case OPERATION_CALL: operation->call.work(operation->call.context); break;
  case OPERATION_WRITE:
    /* release: whoever reads the value sees the work queued before it. */
    atomic_store_explicit(operation->word.word, operation->word.value, memory_order_release);
    break;
  case OPERATION_WAIT:
    wait_for_word(operation->word.word, operation->word.value);
    /* release: pairs with host_waits_landed; the word may be unmapped from here on. */
    atomic_fetch_sub_explicit(operation->word.pending, 1, memory_order_release);
    break;
  case OPERATION_COPY: host_copy_rows(&operation->copy); break;
  }
}

static void *stream_main(void *argument) {
  struct cudalink_host_stream *stream = argument;
  pthread_mutex_lock(&stream->mutex);
  for (;;) {
    while (!stream->first && !stream->ending)
      pthread_cond_wait(&stream->pushed, &stream->mutex);
    struct operation *operation = stream->first;
    if (!operation) break;
    stream->first = operation->next;
    if (!stream->first) stream->last = &stream->first;
    pthread_mutex_unlock(&stream->mutex);
    run(operation);
    free(operation);
    pthread_mutex_lock(&stream->mutex);
    stream->finished_count++;
    pthread_cond_broadcast(&stream->finished);
  }
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

int cudalink_host_stream_create(cudalink_host_stream **stream) {
  if (!stream)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_host_stream_create: NULL");
  struct cudalink_host_stream *created = calloc(1, sizeof *created);
  if (!created) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a host stream");
  pthread_mutex_init(&created->mutex, NULL);
  pthread_cond_init(&created->pushed, NULL);
  pthread_cond_init(&created->finished, NULL);
  created->last = &created->first;
  int failed = pthread_create(&created->thread, NULL, stream_main, created);
  if (failed) {
    free(created);
    return error_set_errno(CUDALINK_ERROR_SYSTEM, failed,
                           "no thread for a host stream (ulimit -u and pids.max limit them)");
  }
  pthread_mutex_lock(&alive_mutex);
  created->next_alive = alive;
  alive = created;
  pthread_mutex_unlock(&alive_mutex);
  *stream = created;
  return CUDALINK_OK;
}

void cudalink_host_stream_destroy(cudalink_host_stream *stream) {
  if (!stream) return;
  pthread_mutex_lock(&alive_mutex);
  struct cudalink_host_stream **link = &alive;
  while (*link && *link != stream)
    link = &(*link)->next_alive;
  bool known = *link != NULL;
  if (known) *link = stream->next_alive;
  pthread_mutex_unlock(&alive_mutex);
  if (!known) return;
  pthread_mutex_lock(&stream->mutex);
  stream->ending = true;
  pthread_cond_signal(&stream->pushed);
  pthread_mutex_unlock(&stream->mutex);
  pthread_join(stream->thread, NULL);
  pthread_cond_destroy(&stream->pushed);
  pthread_cond_destroy(&stream->finished);
  pthread_mutex_destroy(&stream->mutex);
  free(stream);
}

/* Finds the stream and returns it with its mutex held, or NULL. Destroy removes it from the list
 * before it ends the thread, so what is found here stays until the mutex is let go. */
static struct cudalink_host_stream *lock_stream(uint64_t handle) {
  pthread_mutex_lock(&alive_mutex);
  struct cudalink_host_stream *stream = alive;
  while (stream && (uint64_t)(uintptr_t)stream != handle)
    stream = stream->next_alive;
  if (stream) pthread_mutex_lock(&stream->mutex);
  pthread_mutex_unlock(&alive_mutex);
  return stream;
}

static int unknown_stream(uint64_t handle) {
  return error_set(CUDALINK_ERROR_STREAM,
                   "stream handle 0x%llx is not a living cudalink_host_stream, and these frames "
                   "are in host memory",
                   (unsigned long long)handle);
}

int host_stream_find(uint64_t handle) {
  struct cudalink_host_stream *stream = lock_stream(handle);
  if (!stream) return unknown_stream(handle);
  pthread_mutex_unlock(&stream->mutex);
  return CUDALINK_OK;
}

/* Queues a chain of `count` operations at once: all or none. */
static int push(uint64_t handle, struct operation *first, struct operation **last, uint32_t count) {
  struct cudalink_host_stream *stream = lock_stream(handle);
  if (!stream) {
    while (first) {
      struct operation *next = first->next;
      free(first);
      first = next;
    }
    return unknown_stream(handle);
  }
  *stream->last = first;
  stream->last = last;
  stream->pushed_count += count;
  pthread_cond_signal(&stream->pushed);
  pthread_mutex_unlock(&stream->mutex);
  return CUDALINK_OK;
}

static struct operation *make(enum operation_kind kind) {
  struct operation *operation = calloc(1, sizeof *operation);
  if (!operation)
    error_set(CUDALINK_ERROR_NO_MEMORY, "no memory to queue work on a host stream");
  else
    operation->kind = kind;
  return operation;
}

int host_stream_push_writes(uint64_t handle, const struct gpu_write *writes, uint32_t count) {
  struct operation *first = NULL, **last = &first;
  for (uint32_t i = 0; i < count; i++) {
    struct operation *operation = make(OPERATION_WRITE);
    if (!operation) {
      for (struct operation *next; first; first = next)
        next = first->next, free(first);
      return CUDALINK_ERROR_NO_MEMORY;
    }
    operation->word.word = writes[i].word;
    operation->word.value = writes[i].value;
    *last = operation;
    last = &operation->next;
  }
  return push(handle, first, last, count);
}

int host_stream_push_wait(uint64_t handle, wire_word *word, uint64_t value,
                          _Atomic uint32_t *pending) {
  struct operation *operation = make(OPERATION_WAIT);
  if (!operation) return CUDALINK_ERROR_NO_MEMORY;
  operation->word.word = word;
  operation->word.value = value;
  operation->word.pending = pending;
  atomic_fetch_add_explicit(pending, 1, memory_order_relaxed);
  int status = push(handle, operation, &operation->next, 1);
  if (status < 0) atomic_fetch_sub_explicit(pending, 1, memory_order_relaxed);
  return status;
}

int host_stream_push_copy(uint64_t handle, void *target, const void *source, uint64_t bytes) {
  struct gpu_copy copy = {.target = target, .source = source, .bytes = bytes, .rows = 1};
  return host_stream_push_send(handle, &copy);
}

int host_stream_push_send(uint64_t handle, const struct gpu_copy *copy) {
  struct operation *operation = make(OPERATION_COPY);
  if (!operation) return CUDALINK_ERROR_NO_MEMORY;
  operation->copy = *copy;
  return push(handle, operation, &operation->next, 1);
}

int cudalink_host_stream_push(cudalink_host_stream *stream, void (*work)(void *), void *context) {
  if (!work)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_host_stream_push: no work");
  struct operation *operation = make(OPERATION_CALL);
  if (!operation) return CUDALINK_ERROR_NO_MEMORY;
  operation->call.work = work;
  operation->call.context = context;
  return push((uint64_t)(uintptr_t)stream, operation, &operation->next, 1);
}

int cudalink_host_stream_synchronize(cudalink_host_stream *stream) {
  struct cudalink_host_stream *found = lock_stream((uint64_t)(uintptr_t)stream);
  if (!found) return unknown_stream((uint64_t)(uintptr_t)stream);
  uint64_t target = found->pushed_count;
  while (found->finished_count < target)
    pthread_cond_wait(&found->finished, &found->mutex);
  pthread_mutex_unlock(&found->mutex);
  return CUDALINK_OK;
}
