/* SPDX-License-Identifier: MIT
 *
 * Pinned memory for arrays: made by who asks, freed by the reaper, since to free it waits for the whole GPU.
 */
#include <stdlib.h>

#include "gpu/cuda/cuda.h"

struct gpu_pinned {
  struct cuda_device *device;
  void *address;
};

int gpu_pinned_make(int32_t ordinal, uint64_t bytes, struct gpu_pinned **pinned, void **address) {
  struct cuda_device *device;
  CUstreamCaptureMode mode;
  int status = cuda_array_device(ordinal, &device);
  if (status < 0) return status;
  struct gpu_pinned *made = calloc(1, sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a record of pinned memory");
  made->device = device;
  status = cuda_enter(device, &mode);
  if (status == CUDALINK_OK) {
    CUresult result =
        device->driver->cuMemHostAlloc(&made->address, bytes, CU_MEMHOSTALLOC_PORTABLE);
    cuda_leave(device, mode);
    status = cuda_error(device->driver, result, "pinning host memory");
  }
  if (status < 0) {
    free(made);
    return status;
  }
  *pinned = made;
  *address = made->address;
  return CUDALINK_OK;
}

void gpu_pinned_free(void *pinned) {
  struct gpu_pinned *record = pinned;
  CUstreamCaptureMode mode;
  if (cuda_enter(record->device, &mode) ==
      CUDALINK_OK) { /* else the context is dead, and it with it */
    record->device->driver->cuMemFreeHost(record->address);
    cuda_leave(record->device, mode);
  }
  free(record);
}
