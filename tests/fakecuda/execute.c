/* SPDX-License-Identifier: MIT
 *
 * What a stream does with one operation: may it start, and carry it out.
 */
#include <string.h>

#include "fake.h"

static const char *const names[] = {
    [OPERATION_NOTHING] = "an empty operation",
    [OPERATION_COPY] = "a copy",
    [OPERATION_FILL] = "a fill",
    [OPERATION_HOST] = "a host function",
    [OPERATION_CALLBACK] = "a callback",
    [OPERATION_RECORD] = "an event record",
    [OPERATION_WAIT_EVENT] = "a wait for an event",
    [OPERATION_MEMORY] = "a stream memory operation",
    [OPERATION_SIGNAL] = "a semaphore signal",
    [OPERATION_WAIT_SEMAPHORE] = "a semaphore wait",
    [OPERATION_KERNEL] = "a kernel",
    [OPERATION_FREE] = "an asynchronous free",
    [OPERATION_GRAPH] = "a graph",
};

const char *operation_name(const struct operation *operation) { return names[operation->kind]; }

static bool is_ready(const struct operation *operation) {
  switch (operation->kind) {
  case OPERATION_WAIT_EVENT: return event_done(operation->event.event, operation->event.number);
  case OPERATION_MEMORY: return memory_operation_ready(operation->memory.params);
  case OPERATION_WAIT_SEMAPHORE:
    return atomic_load(operation->semaphore.word) >= operation->semaphore.value;
  default: return true;
  }
}

struct poll {
  const struct operation *operation;
  bool ready;
};

static void poll_once(void *argument) {
  struct poll *poll = argument;
  poll->ready = is_ready(poll->operation);
}

bool operation_poll(const struct operation *operation, bool *ready) {
  struct poll poll = {operation, false};
  bool whole = guarded_run(poll_once, &poll);
  *ready = poll.ready;
  return whole;
}

static void copy_rows(const struct copy *copy, size_t first, size_t end) {
  for (size_t row = first; row < end; row++) {
    size_t z = row / copy->height;
    size_t y = row % copy->height;
    memmove(copy->to.base + (z * copy->to.height + y) * copy->to.pitch,
            copy->from.base + (z * copy->from.height + y) * copy->from.pitch, copy->width);
  }
}

/* In two halves with a nap between them when delays are on, so that a copy can be torn. */
static void run_copy(const struct copy *copy) {
  size_t rows = copy->height * copy->depth;
  if (!fake.delay) {
    copy_rows(copy, 0, rows);
    return;
  }
  if (rows == 1) {
    size_t half = copy->width / 2;
    memmove(copy->to.base, copy->from.base, half);
    nap_microseconds(fake.delay / 4);
    memmove(copy->to.base + half, copy->from.base + half, copy->width - half);
    return;
  }
  copy_rows(copy, 0, rows / 2);
  nap_microseconds(fake.delay / 4);
  copy_rows(copy, rows / 2, rows);
}

static void run_fill(const struct fill *fill) {
  for (size_t y = 0; y < fill->height; y++) {
    unsigned char *row = fill->base + y * fill->pitch;
    if (fill->element == 1) memset(row, (int)fill->value, fill->width);
    for (size_t x = 0; fill->element != 1 && x < fill->width; x++)
      memcpy(row + x * fill->element, &fill->value, fill->element);
  }
}

/* Release: what the stream did before is visible to whoever reads the word with acquire. */
static void run_memory(const CUstreamBatchMemOpParams *params) {
  if (params->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
    atomic_store((_Atomic uint32_t *)params->writeValue.address, params->writeValue.value);
  if (params->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
    atomic_store((_Atomic uint64_t *)params->writeValue.address, params->writeValue.value64);
}

static void run_host(const struct operation *operation) {
  if (operation->kind == OPERATION_HOST)
    operation->host.function(operation->host.user);
  else
    operation->host.callback(operation->host.stream, CUDA_SUCCESS, operation->host.user);
}

static void run(void *argument) {
  struct operation *operation = argument;
  switch (operation->kind) {
  case OPERATION_COPY: run_copy(&operation->copy); break;
  case OPERATION_FILL: run_fill(&operation->fill); break;
  case OPERATION_MEMORY: run_memory(operation->memory.params); break;
  case OPERATION_SIGNAL: atomic_store(operation->semaphore.word, operation->semaphore.value); break;
  case OPERATION_KERNEL: kernel_run(&operation->kernel); break;
  default: break;
  }
}

static void count(const struct operation *operation) {
  if (operation->kind == OPERATION_COPY) {
    const struct copy *copy = &operation->copy;
    atomic_fetch_add(&fake.copies, 1);
    atomic_fetch_add(&fake.copied_bytes, copy->width * copy->height * copy->depth);
  }
  if (operation->kind == OPERATION_FILL) {
    const struct fill *fill = &operation->fill;
    atomic_fetch_add(&fake.copies, 1);
    atomic_fetch_add(&fake.copied_bytes, fill->width * fill->element * fill->height);
  }
}

bool operation_run(struct operation *operation) {
  if (operation->kind == OPERATION_HOST || operation->kind == OPERATION_CALLBACK) {
    run_host(operation); /* the program's own code: its faults are its own */
    return true;
  }
  bool whole = guarded_run(run, operation);
  if (whole) count(operation);
  return whole;
}
