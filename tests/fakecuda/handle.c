/* SPDX-License-Identifier: MIT
 *
 * Handles: addresses in a range that nobody can touch, given out once each, so that a destroyed
 * handle is recognised for ever and reading through one faults.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "fake.h"

#define STEP 16u
#define RANGE ((size_t)1 << 32)

static unsigned char *base;
static struct slot {
  enum handle_kind kind;
  bool live;
  void *object;
} * slots;
static size_t count, capacity, live;

static const char *const kind_names[] = {
    [HANDLE_NONE] = "handle",
    [HANDLE_CONTEXT] = "context",
    [HANDLE_STREAM] = "stream",
    [HANDLE_EVENT] = "event",
    [HANDLE_ALLOCATION] = "memory allocation",
    [HANDLE_ARRAY] = "array",
    [HANDLE_MIPMAP] = "mipmapped array",
    [HANDLE_EXTERNAL_MEMORY] = "external memory",
    [HANDLE_EXTERNAL_SEMAPHORE] = "external semaphore",
    [HANDLE_MODULE] = "module",
    [HANDLE_FUNCTION] = "function",
    [HANDLE_GRAPH] = "graph",
    [HANDLE_NODE] = "graph node",
    [HANDLE_EXEC] = "executable graph",
    [HANDLE_POOL] = "memory pool",
};

void *handle_new(enum handle_kind kind, void *object) {
  if (!base) {
    base = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) fake_abort("no address space for handles");
  }
  if (count == capacity) {
    capacity = capacity ? capacity * 2 : 1024;
    slots = realloc(slots, capacity * sizeof *slots);
    if (!slots || capacity * STEP > RANGE) fake_abort("out of handles");
  }
  slots[count] = (struct slot){kind, true, object};
  live++;
  return base + count++ * STEP;
}

static struct slot *slot_of(const void *handle) {
  const unsigned char *address = handle;
  if (!base || address < base || address >= base + count * STEP) return NULL;
  return (size_t)(address - base) % STEP ? NULL : &slots[(size_t)(address - base) / STEP];
}

void handle_drop(const void *handle) {
  struct slot *slot = slot_of(handle);
  if (!slot || !slot->live) fake_abort("internal: a handle is dropped twice");
  slot->live = false;
  slot->object = NULL;
  live--;
}

void *handle_peek(enum handle_kind kind, const void *handle) {
  struct slot *slot = slot_of(handle);
  return slot && slot->live && slot->kind == kind ? slot->object : NULL;
}

void *handle_get(enum handle_kind kind, const void *handle) {
  struct slot *slot = slot_of(handle);
  if (slot && slot->live && slot->kind == kind) return slot->object;
  const char *state = "is no handle of this driver";
  if (slot && !slot->live) state = "was destroyed before";
  if (slot && slot->live) state = "is of another kind";
  misuse(CUDA_ERROR_INVALID_HANDLE, "%s: the %s %p %s", entry_current(), kind_names[kind], handle,
         state);
  return NULL;
}

size_t handle_count(void) { return live; }
