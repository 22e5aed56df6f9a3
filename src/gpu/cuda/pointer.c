/* SPDX-License-Identifier: MIT
 *
 * What the driver knows about an address.
 */
#include "gpu/cuda/driver.h"
#include "gpu/gpu.h"

int gpu_cuda_locate(const void *address, struct gpu_place *place) {
  const struct cuda_driver *driver;
  int status = cuda_driver_load(&driver);
  if (status < 0) return status;
  unsigned int type = 0, managed = 0;
  int ordinal = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *values[] = {&managed, &type, &ordinal};
  CUresult result =
      driver->cuPointerGetAttributes(3, attributes, values, (CUdeviceptr)(uintptr_t)address);
  *place = (struct gpu_place){.kind = GPU_PLACE_UNKNOWN, .ordinal = ordinal};
  if (result == CUDA_ERROR_INVALID_VALUE) return CUDALINK_OK; /* an address of nobody */
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "looking at an address");
  /* Managed first: its memory type is that of where it is now. */
  if (managed)
    place->kind = GPU_PLACE_MANAGED;
  else if (type == CU_MEMORYTYPE_DEVICE)
    place->kind = GPU_PLACE_DEVICE;
  else if (type == CU_MEMORYTYPE_HOST)
    place->kind = GPU_PLACE_PINNED;
  return CUDALINK_OK;
}
