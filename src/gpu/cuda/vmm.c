/* SPDX-License-Identifier: MIT
 *
 * Blocks of kind vmm: one allocation, sent as a descriptor, alive as long as anyone maps it. A
 * consumer maps it read-only unless both sides agreed to writing.
 */
#include <stdio.h>
#include <string.h>

#include "gpu/cuda/cuda.h"

/* Reserves addresses, maps the allocation there for this device. */
static CUresult map(struct cuda_device *device, CUmemGenericAllocationHandle handle, uint64_t bytes,
                    CUmemAccess_flags flags, CUdeviceptr *address) {
  const struct cuda_driver *driver = device->driver;
  CUresult result = driver->cuMemAddressReserve(address, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver->cuMemMap(*address, bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) {
    driver->cuMemAddressFree(*address, bytes);
    return result;
  }
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device->device}, flags};
  result = driver->cuMemSetAccess(*address, bytes, &access, 1);
  if (result == CUDA_SUCCESS) return result;
  driver->cuMemUnmap(*address, bytes);
  driver->cuMemAddressFree(*address, bytes);
  return result;
}

static void fill(struct gpu_block *block, struct gpu_device *device, CUdeviceptr address,
                 uint64_t bytes, bool writable, os_handle handle) {
  *block = (struct gpu_block){.device = device,
                              .address = (void *)(uintptr_t)address,
                              .bytes = bytes,
                              .shared.handle = handle,
                              .writable = writable};
}

CUmemAllocationProp cuda_vmm_properties(const struct cuda_device *device) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->device}};
}

int cuda_vmm_create(struct gpu_device *gpu, uint64_t bytes, struct gpu_block *block) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUmemAllocationProp properties = cuda_vmm_properties(device);
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address = 0;
  int descriptor = OS_NO_HANDLE;
  CUresult result = driver->cuMemCreate(&handle, bytes, &properties, 0);
  if (result == CUDA_SUCCESS) {
    result = driver->cuMemExportToShareableHandle(&descriptor, handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS)
      result = map(device, handle, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &address);
    driver->cuMemRelease(handle); /* the mapping and the descriptor keep the memory */
  }
  cuda_leave(device, mode);
  if (result == CUDA_SUCCESS) {
    fill(block, gpu, address, bytes, true, descriptor);
    return CUDALINK_OK;
  }
  os_handle_close(&descriptor);
  status = cuda_error(driver, result, "making GPU memory that can be shared by descriptor");
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return error_set(
        CUDALINK_ERROR_NO_SPACE,
        "no room for %llu bytes on GPU %d; use smaller or fewer slots, or free memory there",
        (unsigned long long)bytes, gpu->ordinal);
  return status;
}

int cuda_vmm_import(struct gpu_device *gpu, struct gpu_shared *shared, uint64_t bytes,
                    bool writable, struct gpu_block *block) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) {
    os_handle_close(&shared->handle);
    return status;
  }
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address = 0;
  CUresult result = driver->cuMemImportFromShareableHandle(
      &handle, (void *)(intptr_t)shared->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS) {
    /* Read-only stops accidents; it is the driver's word, not a seal. A size that the allocation does
     * not have is refused by the driver's map. */
    result = map(device, handle, bytes,
                 writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
                 &address);
    driver->cuMemRelease(handle);
  }
  cuda_leave(device, mode);
  os_handle_close(&shared->handle);
  if (result != CUDA_SUCCESS) {
    char what[80];
    snprintf(what, sizeof what, "mapping %llu bytes of the producer's GPU memory",
             (unsigned long long)bytes);
    return cuda_error(driver, result, what);
  }
  fill(block, gpu, address, bytes, writable, OS_NO_HANDLE);
  return CUDALINK_OK;
}

void cuda_vmm_destroy(struct gpu_block *block) {
  struct cuda_device *device = cuda_of(block->device);
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  os_handle_close(&block->shared.handle);
  bool entered = cuda_enter(device, &mode) == CUDALINK_OK;
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)block->address;
  cuda_copies_forget(device, address, block->bytes);
  /* Neither needs a context, which may be dead. */
  driver->cuMemUnmap(address, block->bytes);
  driver->cuMemAddressFree(address, block->bytes);
  if (entered) cuda_leave(device, mode);
  *block = (struct gpu_block){.shared.handle = OS_NO_HANDLE};
}
