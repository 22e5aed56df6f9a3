/* SPDX-License-Identifier: MIT
 *
 * Events: a count of records asked for, and which of them were reached. An interprocess event keeps
 * both in a page that processes share; one recorded by a process that died stays pending for ever.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

#define PAGE 4096u

bool event_done(const struct event *event, uint64_t number) {
  return atomic_load(&event->state->completed[number % EVENT_RECORDS]) >= number;
}

uint64_t event_record_number(struct event *event) {
  return atomic_fetch_add(&event->state->recorded, 1) + 1;
}

void event_complete(struct event *event, uint64_t number) {
  _Atomic uint64_t *completed = &event->state->completed[number % EVENT_RECORDS];
  uint64_t seen = atomic_load(completed);
  while (seen < number && !atomic_compare_exchange_weak(completed, &seen, number))
    continue;
  atomic_store(&event->state->completed_at, fake_now());
}

void event_release(struct event *event) {
  if (--event->references) return;
  if (event->state != &event->local) munmap(event->state, PAGE);
  if (event->fd >= 0) close(event->fd);
  free(event);
}

static struct event *event_new(unsigned flags) {
  struct event *event = calloc(1, sizeof *event);
  if (!event) fake_abort("out of memory");
  event->context = context_current();
  event->flags = flags;
  event->references = 1;
  event->fd = -1;
  event->id = ++fake.next_id;
  event->state = &event->local;
  return event;
}

CUresult event_from_file(int fd, struct event **out) {
  void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *out = event_new(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  (*out)->state = page;
  (*out)->handle = handle_new(HANDLE_EVENT, *out);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *handle, unsigned int flags) {
  ENTER(cuEventCreate);
  if (!handle || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_VALUE;
  struct event *event;
  if (flags & CU_EVENT_INTERPROCESS) {
    int fd = memory_file("event", PAGE);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = event_from_file(fd, &event);
    if (result != CUDA_SUCCESS) {
      close(fd);
      return result;
    }
    event->fd = fd;
  } else {
    event = event_new(flags);
    event->handle = handle_new(HANDLE_EVENT, event);
  }
  *handle = event->handle;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  ENTER(cuEventDestroy_v2);
  struct event *event = handle_get(HANDLE_EVENT, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  handle_drop(handle);
  event_release(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  ENTER(cuEventRecord);
  struct event *event = handle_get(HANDLE_EVENT, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  struct stream *stream;
  CUresult result = stream_find(stream_handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (event->context != stream->context)
    return misuse(CUDA_ERROR_INVALID_HANDLE,
                  "cuEventRecord: the event %p and the stream %p are of different contexts",
                  (void *)handle, (void *)stream_handle);
  if (stream->capture) return capture_record(stream, event);
  event->captured = 0;
  struct operation *operation = operation_new(OPERATION_RECORD);
  operation->event.event = event;
  operation->event.number = event_record_number(event);
  event->references++;
  return stream_queue(stream, operation);
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  ENTER(cuStreamWaitEvent);
  struct event *event = handle_get(HANDLE_EVENT, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  struct stream *stream;
  CUresult result = stream_find_any(stream_handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture || event->captured) return capture_wait(stream, event);
  struct operation *operation = operation_new(OPERATION_WAIT_EVENT);
  operation->event.event = event;
  operation->event.number = atomic_load(&event->state->recorded);
  event->references++;
  return stream_queue(stream, operation);
}

/* Common to the calls that ask about an event. */
static CUresult event_to_ask(CUevent handle, struct event **out) {
  *out = handle_get(HANDLE_EVENT, handle);
  if (!*out) return CUDA_ERROR_INVALID_HANDLE;
  if ((*out)->captured) return CUDA_ERROR_CAPTURED_EVENT;
  return (*out)->context->lost;
}

CUresult cuEventQuery(CUevent handle) {
  ENTER(cuEventQuery);
  struct event *event;
  CUresult result = event_to_ask(handle, &event);
  if (result != CUDA_SUCCESS) return result;
  uint64_t recorded = atomic_load(&event->state->recorded);
  return event_done(event, recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  ENTER(cuEventSynchronize);
  struct event *event;
  CUresult result = event_to_ask(handle, &event);
  if (result != CUDA_SUCCESS) return result;
  uint64_t recorded = atomic_load(&event->state->recorded);
  event->references++;
  while (!event_done(event, recorded) && !event->context->lost)
    worker_sleep(500);
  result = event->context->lost;
  event_release(event);
  return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start_handle, CUevent end_handle) {
  ENTER(cuEventElapsedTime);
  struct event *start, *end;
  CUresult result = event_to_ask(start_handle, &start);
  if (result == CUDA_SUCCESS) result = event_to_ask(end_handle, &end);
  if (result != CUDA_SUCCESS) return result;
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  if (!atomic_load(&start->state->recorded) || !atomic_load(&end->state->recorded))
    return CUDA_ERROR_INVALID_HANDLE;
  if (!event_done(start, atomic_load(&start->state->recorded)) ||
      !event_done(end, atomic_load(&end->state->recorded)))
    return CUDA_ERROR_NOT_READY;
  *milliseconds = (float)((double)(int64_t)(atomic_load(&end->state->completed_at) -
                                            atomic_load(&start->state->completed_at)) /
                          1e6);
  return CUDA_SUCCESS;
}
