/* SPDX-License-Identifier: MIT
 *
 * Blocks of kind ipc: a plain allocation and its legacy handle, 64 bytes in the message. The handle
 * exports the whole 2 MiB granule, so blocks are multiples of that. In the producer's own process
 * the driver refuses to open it: there the address itself is used. Own blocks are known by their
 * handles: a process number would say little, since another namespace has the same ones.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda.h"

_Static_assert(sizeof(CUipcMemHandle) == sizeof((struct gpu_shared){0}.ipc), "layout");

enum role { ROLE_OWNER = 1, ROLE_OPENED, ROLE_BORROWED };

/* Blocks that this process has made. */
struct own_block {
  struct own_block *next;
  CUipcMemHandle handle;
  CUdeviceptr address;
  uint64_t bytes;
};
static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct own_block *own_blocks;

static bool own_add(const CUipcMemHandle *handle, CUdeviceptr address, uint64_t bytes) {
  struct own_block *own = malloc(sizeof *own);
  if (!own) return false;
  *own = (struct own_block){.handle = *handle, .address = address, .bytes = bytes};
  pthread_mutex_lock(&own_mutex);
  own->next = own_blocks;
  own_blocks = own;
  pthread_mutex_unlock(&own_mutex);
  return true;
}

static void own_remove(CUdeviceptr address) {
  pthread_mutex_lock(&own_mutex);
  struct own_block **at = &own_blocks;
  while (*at && (*at)->address != address)
    at = &(*at)->next;
  struct own_block *found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&own_mutex);
  free(found);
}

static bool own_find(const uint8_t handle[64], CUdeviceptr *address, uint64_t *bytes) {
  pthread_mutex_lock(&own_mutex);
  const struct own_block *own = own_blocks;
  while (own && memcmp(&own->handle, handle, sizeof own->handle) != 0)
    own = own->next;
  if (own) {
    *address = own->address;
    *bytes = own->bytes;
  }
  pthread_mutex_unlock(&own_mutex);
  return own != NULL;
}

static void fill(struct gpu_block *block, struct gpu_device *device, CUdeviceptr address,
                 uint64_t bytes, bool writable, enum role role) {
  *block = (struct gpu_block){.device = device,
                              .address = (void *)(uintptr_t)address,
                              .bytes = bytes,
                              .shared.handle = OS_NO_HANDLE,
                              .writable = writable,
                              .implementation = (void *)(uintptr_t)role};
}

int cuda_ipc_create(struct gpu_device *gpu, uint64_t bytes, struct gpu_block *block) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUdeviceptr address = 0;
  CUipcMemHandle handle;
  CUresult result = driver->cuMemAlloc(&address, bytes);
  if (result == CUDA_SUCCESS) {
    result = driver->cuIpcGetMemHandle(&handle, address);
    if (result == CUDA_SUCCESS && !own_add(&handle, address, bytes))
      result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) driver->cuMemFree(address);
  }
  cuda_leave(device, mode);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return error_set(
        CUDALINK_ERROR_NO_SPACE,
        "no room for %llu bytes on GPU %d; use smaller or fewer slots, or free memory there",
        (unsigned long long)bytes, gpu->ordinal);
  if (result != CUDA_SUCCESS)
    return cuda_error(driver, result, "making GPU memory that can be shared by handle");
  fill(block, gpu, address, bytes, true, ROLE_OWNER);
  memcpy(block->shared.ipc, &handle, sizeof handle);
  return CUDALINK_OK;
}

static int too_small(uint64_t said, uint64_t there) {
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "the producer says that its GPU memory has %llu bytes, the driver says %llu",
                   (unsigned long long)said, (unsigned long long)there);
}

/* The driver's word about what was opened: an exporter can't make us read beyond it. Old exporters
 * may share memory that lies in the middle of a driver's allocation. */
static int check_range(struct cuda_device *device, CUdeviceptr address, uint64_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult result = device->driver->cuMemGetAddressRange(&base, &size, address);
  if (result != CUDA_SUCCESS)
    return cuda_error(device->driver, result, "asking for the size of the producer's GPU memory");
  uint64_t before = address >= base ? address - base : size;
  return before <= size && size - before >= bytes ? CUDALINK_OK : too_small(bytes, size - before);
}

int cuda_ipc_import(struct gpu_device *gpu, struct gpu_shared *shared, uint64_t bytes,
                    bool writable, struct gpu_block *block) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUdeviceptr address = 0;
  uint64_t own_bytes;
  if (own_find(shared->ipc, &address, &own_bytes)) {
    if (own_bytes < bytes) return too_small(bytes, own_bytes);
    fill(block, gpu, address, bytes, writable, ROLE_BORROWED);
    return CUDALINK_OK;
  }
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUipcMemHandle handle;
  memcpy(&handle, shared->ipc, sizeof handle);
  CUresult result =
      driver->cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result != CUDA_SUCCESS) {
    status = cuda_error(driver, result, "opening the producer's GPU memory");
  } else {
    status = check_range(device, address, bytes);
    if (status < 0) driver->cuIpcCloseMemHandle(address);
  }
  cuda_leave(device, mode);
  if (status == CUDALINK_OK) fill(block, gpu, address, bytes, writable, ROLE_OPENED);
  return status;
}

void cuda_ipc_destroy(struct gpu_block *block) {
  struct cuda_device *device = cuda_of(block->device);
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)block->address;
  enum role role = (enum role)(uintptr_t)block->implementation;
  CUstreamCaptureMode mode;
  if (role == ROLE_OWNER) own_remove(address);
  if (role != ROLE_BORROWED && cuda_enter(device, &mode) == CUDALINK_OK) {
    cuda_copies_forget(device, address, block->bytes);
    if (role == ROLE_OWNER)
      device->driver->cuMemFree(address);
    else
      device->driver->cuIpcCloseMemHandle(address);
    cuda_leave(device, mode);
  }
  *block = (struct gpu_block){.shared.handle = OS_NO_HANDLE};
}
