/* SPDX-License-Identifier: MIT
 *
 * Words in shared segments, registered so that streams reach them. What could not be unregistered stays
 * registered although its segment goes: then the driver refuses another segment at the same addresses
 * (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED). That answer must not count as success, since the GPU would
 * reach the pages of the old segment; the old registration has to go first.
 */
#include <stdlib.h>

#include "gpu/cuda/cuda.h"

/* One that is still there, though its words are gone. */
struct stale {
  struct stale *next;
  void *address;
};

/* Held through a registration, so that nobody takes a new one for a stale one. */
static pthread_mutex_t stale_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct stale *stale_list; /* of all GPUs: a registration counts in every context */

/* Without memory for a record a later 712 is told as the failure that it is. */
static void remember(void *address) {
  struct stale *stale = malloc(sizeof *stale);
  if (!stale) return;
  stale->address = address;
  pthread_mutex_lock(&stale_mutex);
  stale->next = stale_list;
  stale_list = stale;
  pthread_mutex_unlock(&stale_mutex);
}

static bool is_within(const struct stale *stale, const char *address, uint64_t bytes) {
  return (uintptr_t)stale->address - (uintptr_t)address < bytes;
}

/* The driver took this range, so nothing was registered there: what was has ended with its context. To
 * unregister it later would hit the new one. */
static void forget_within(const char *address, uint64_t bytes) {
  for (struct stale **link = &stale_list; *link;) {
    struct stale *stale = *link;
    if (!is_within(stale, address, bytes)) {
      link = &stale->next;
      continue;
    }
    *link = stale->next;
    free(stale);
  }
}

static bool is_over(CUresult result) {
  return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* With the context current. What it refuses again is kept. */
static void unregister_stale(const struct cuda_driver *driver) {
  for (struct stale **link = &stale_list; *link;) {
    struct stale *stale = *link;
    if (!is_over(driver->cuMemHostUnregister(stale->address))) {
      link = &stale->next;
      continue;
    }
    *link = stale->next;
    free(stale);
  }
}

static CUresult register_here(const struct cuda_driver *driver, void *address, uint64_t bytes) {
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  CUresult result = driver->cuMemHostRegister(address, bytes, flags);
  if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
    unregister_stale(driver);
    result = driver->cuMemHostRegister(address, bytes, flags);
  }
  if (result == CUDA_SUCCESS) forget_within(address, bytes);
  return result;
}

int cuda_register_words(struct gpu_device *gpu, void *address, uint64_t bytes) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  pthread_mutex_lock(&stale_mutex);
  CUresult result = register_here(device->driver, address, bytes);
  pthread_mutex_unlock(&stale_mutex);
  cuda_leave(device, mode);
  return cuda_error(device->driver, result, "making shared words reachable for the GPU");
}

void cuda_unregister_words(struct gpu_device *gpu, void *address) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  CUresult result = CUDA_ERROR_UNKNOWN;
  if (cuda_enter(device, &mode) == CUDALINK_OK) {
    result = device->driver->cuMemHostUnregister(address);
    cuda_leave(device, mode);
  }
  if (!is_over(result)) remember(address);
}
