/* SPDX-License-Identifier: MIT
 *
 * Contexts: the primary one of each device, further ones, and each thread's stack of current ones.
 */
#include <stdlib.h>

#include "fake.h"

#define STACK_DEPTH 32

static struct {
  struct context *context;
  unsigned retained;
} primary[DEVICE_MAX];

static struct context *contexts, *destroyed;
static _Thread_local CUcontext stack[STACK_DEPTH];
static _Thread_local unsigned depth;

struct context *context_current(void) {
  if (!depth || !stack[depth - 1]) return NULL;
  struct context *context = handle_peek(HANDLE_CONTEXT, stack[depth - 1]);
  if (!context)
    misuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "%s: the thread's current context %p was destroyed",
           entry_current(), (void *)stack[depth - 1]);
  return context;
}

static struct context *context_new(int device, unsigned flags, bool is_primary) {
  struct context *context = calloc(1, sizeof *context);
  if (!context) fake_abort("out of memory");
  context->device = device;
  context->flags = flags;
  context->primary = is_primary;
  context->id = ++fake.next_id;
  context->next = contexts;
  contexts = context;
  context->handle = handle_new(HANDLE_CONTEXT, context);
  return context;
}

struct context *context_list(void) {
  return contexts;
}

/* Its memory is given back. The struct stays: streams that still have work look at it. */
static void destroy(struct context *context) {
  context_lose(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  while (context->streams)
    stream_end(context->streams);
  struct block *next;
  for (struct block *block = block_list(); block; block = next) {
    next = block->next;
    if (block->context == context) block_remove(block);
  }
  struct context **link = &contexts;
  while (*link != context)
    link = &(*link)->next;
  *link = context->next;
  context->next = destroyed;
  destroyed = context;
  handle_drop(context->handle);
}

void context_lose(struct context *context, CUresult result) {
  if (context->lost == CUDA_SUCCESS) context->lost = result;
  pthread_cond_broadcast(&fake.progress);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!primary[device].context) primary[device].context = context_new(device, 0, true);
  primary[device].retained++;
  *context = primary[device].context->handle;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!primary[device].retained)
    return misuse(CUDA_ERROR_INVALID_CONTEXT,
                  "the primary context of device %d is released more "
                  "often than it was retained",
                  device);
  if (--primary[device].retained) return CUDA_SUCCESS;
  entry_blocks("destroys the primary context");
  stream_drain_process();
  struct context *context = primary[device].context;
  primary[device].context = NULL;
  destroy(context);
  return CUDA_SUCCESS;
}

size_t context_retains(void) {
  size_t count = 0;
  for (int device = 0; device < DEVICE_MAX; device++)
    count += primary[device].retained;
  return count;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = primary[device].context != NULL;
  return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
  if (depth == STACK_DEPTH) fake_abort("%s: %d contexts pushed", entry_current(), STACK_DEPTH);
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  ENTER(cuCtxCreate_v2);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = context_new(device, flags, false)->handle;
  return push(*context);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  ENTER(cuCtxDestroy_v2);
  struct context *context = handle_get(HANDLE_CONTEXT, handle);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (depth && stack[depth - 1] == handle) depth--;
  destroy(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  ENTER(cuCtxPushCurrent_v2);
  if (!handle_get(HANDLE_CONTEXT, handle)) return CUDA_ERROR_INVALID_CONTEXT;
  return push(handle);
}

CUresult cuCtxPopCurrent_v2(CUcontext *handle) {
  ENTER(cuCtxPopCurrent_v2);
  if (!depth)
    return misuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPopCurrent: the thread's stack is empty");
  depth--;
  if (handle) *handle = stack[depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *handle) {
  ENTER(cuCtxGetCurrent);
  *handle = depth ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  ENTER(cuCtxSetCurrent);
  if (handle && !handle_get(HANDLE_CONTEXT, handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!handle) {
    if (depth) depth--;
    return CUDA_SUCCESS;
  }
  if (!depth) return push(handle);
  stack[depth - 1] = handle;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(cuCtxGetDevice);
  *device = context_current()->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id) {
  ENTER(cuCtxGetId);
  struct context *context = handle ? handle_get(HANDLE_CONTEXT, handle) : context_current();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

/* The wait itself is a trait of the entry point (entry.c). */
CUresult cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  ENTER(cuCtxEnablePeerAccess);
  struct context *peer = handle_get(HANDLE_CONTEXT, handle);
  struct context *context = context_current();
  if (!peer || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (context->peers & 1u << peer->device) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  context->peers |= 1u << peer->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  ENTER(cuCtxDisablePeerAccess);
  struct context *peer = handle_get(HANDLE_CONTEXT, handle);
  struct context *context = context_current();
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(context->peers & 1u << peer->device)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  context->peers &= ~(1u << peer->device);
  return CUDA_SUCCESS;
}
