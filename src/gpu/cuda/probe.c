/* SPDX-License-Identifier: MIT
 *
 * Looking at the CUDA driver and its GPUs, and trying what their streams can do.
 */
#include "gpu/probe.h"
#include "gpu/cuda/cuda.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* ---- driver and devices ------------------------------------------------------------------------ */

static void find_library(char *library, size_t size) {
  void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  struct link_map *map = NULL;
  library[0] = '\0';
  if (!handle) return;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) snprintf(library, size, "%s", map->l_name);
  dlclose(handle);
}

int gpu_cuda_driver(int32_t *version, char *library, size_t size) {
  const struct cuda_driver *driver;
  int status = cuda_driver_load(&driver);
  find_library(library, size);
  *version = status == CUDALINK_OK ? driver->version : 0;
  return status;
}

static CUresult look(const struct cuda_driver *driver, int ordinal, cudalink_probe_device *device) {
  CUdevice number;
  CUuuid uuid;
  size_t bytes = 0;
  int integrated = 0;
  CUresult result = driver->cuDeviceGet(&number, ordinal);
  if (result != CUDA_SUCCESS) return result;
  device->ordinal = ordinal;
  result = driver->cuDeviceGetUuid(&uuid, number);
  if (result != CUDA_SUCCESS) return result;
  memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
  driver->cuDeviceGetName(device->name, sizeof device->name, number);
  driver->cuDeviceTotalMem(&bytes, number);
  driver->cuDeviceGetAttribute(&device->capability_major,
                               CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number);
  driver->cuDeviceGetAttribute(&device->capability_minor,
                               CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number);
  driver->cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, number);
  device->memory_bytes = bytes;
  device->integrated = integrated != 0;
  device->mig = strstr(device->name, " MIG ") != NULL; /* the driver names slices so */
  return CUDA_SUCCESS;
}

int gpu_cuda_devices(cudalink_probe_device *devices, uint32_t capacity, uint32_t *count) {
  const struct cuda_driver *driver;
  int found = 0;
  *count = 0;
  int status = cuda_driver_load(&driver);
  if (status < 0) return status;
  CUresult result = driver->cuDeviceGetCount(&found);
  for (int i = 0; result == CUDA_SUCCESS && i < found && i < (int)capacity; i++) {
    devices[i] = (cudalink_probe_device){0};
    result = look(driver, i, &devices[i]);
  }
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "looking at the GPUs");
  *count = (uint32_t)found;
  return CUDALINK_OK;
}

int gpu_cuda_mps(struct gpu_device *gpu) {
  struct cuda_device *device = cuda_of(gpu);
  int value = 0;
  CUresult result =
      device->driver->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device->device);
  return result != CUDA_SUCCESS ? -1 : value != 0;
}

int gpu_cuda_word(struct gpu_device *gpu, void *address, bool write, uint64_t *word) {
  struct cuda_device *device = cuda_of(gpu);
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = write ? device->driver->cuMemcpyHtoD(at, word, sizeof *word)
                          : device->driver->cuMemcpyDtoH(word, at, sizeof *word);
  cuda_leave(device, mode);
  return cuda_error(device->driver, result, write ? "writing to it" : "reading from it");
}

/* ---- streams ------------------------------------------------------------------------------------- */

struct sync_try {
  struct cuda_device *device;
  CUstream stream;
  _Atomic uint64_t
      *word; /* 32-bit operations use its low half: machines with CUDA are little-endian */
  CUdeviceptr address;
};

static void store(void *word) {
  /* release: pairs with the acquire load in `seen`. */
  atomic_store_explicit((_Atomic uint64_t *)word, 1, memory_order_release);
}

/* NULL, or what this driver lacks. */
static const char *missing(const struct cuda_driver *driver, enum gpu_sync sync) {
  switch (sync) {
  case GPU_WRITE64: return driver->cuStreamWriteValue64 ? NULL : "cuStreamWriteValue64";
  case GPU_WAIT64: return driver->cuStreamWaitValue64 ? NULL : "cuStreamWaitValue64";
  case GPU_WRITE32: return driver->cuStreamWriteValue32 ? NULL : "cuStreamWriteValue32";
  case GPU_WAIT32: return driver->cuStreamWaitValue32 ? NULL : "cuStreamWaitValue32";
  case GPU_HOST_FUNCTION: break;
  }
  return NULL;
}

static CUresult queue(const struct sync_try *attempt, enum gpu_sync sync) {
  const struct cuda_driver *driver = attempt->device->driver;
  CUstream stream = attempt->stream;
  switch (sync) {
  case GPU_WRITE64:
    return driver->cuStreamWriteValue64(stream, attempt->address, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  case GPU_WAIT64:
    return driver->cuStreamWaitValue64(stream, attempt->address, 1, CU_STREAM_WAIT_VALUE_GEQ);
  case GPU_WRITE32:
    return driver->cuStreamWriteValue32(stream, attempt->address, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  case GPU_WAIT32:
    return driver->cuStreamWaitValue32(stream, attempt->address, 1, CU_STREAM_WAIT_VALUE_GEQ);
  case GPU_HOST_FUNCTION: break;
  }
  return driver->cuLaunchHostFunc(stream, store, (void *)(uintptr_t)attempt->word);
}

/* Has the stream's store arrived, or has the stream got beyond its wait? */
static CUresult seen(const struct sync_try *attempt, bool waits) {
  if (waits) return attempt->device->driver->cuStreamQuery(attempt->stream);
  /* acquire: pairs with the stream's store, behind its system-wide barrier. */
  return atomic_load_explicit(attempt->word, memory_order_acquire) == 1 ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_NOT_READY;
}

static int run(const struct sync_try *attempt, enum gpu_sync sync, uint64_t deadline,
               uint64_t *ns) {
  const struct cuda_driver *driver = attempt->device->driver;
  bool waits = sync == GPU_WAIT64 || sync == GPU_WAIT32;
  uint64_t start = os_now();
  CUresult result = queue(attempt, sync);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "queuing it on a stream");
  if (waits) {
    if (driver->cuStreamQuery(attempt->stream) != CUDA_ERROR_NOT_READY)
      return error_set(CUDALINK_ERROR_UNSUPPORTED, "the stream did not wait");
    start = os_now();
    store((void *)(uintptr_t)attempt->word);
  }
  while ((result = seen(attempt, waits)) == CUDA_ERROR_NOT_READY)
    if (os_now() >= deadline)
      return error_set(CUDALINK_ERROR_TIMEOUT,
                       waits ? "the stream went on waiting" : "the store never arrived");
  *ns = os_now() - start;
  return cuda_error(driver, result, "waiting for the stream");
}

static int try_on_stream(struct sync_try *attempt, enum gpu_sync sync, uint64_t deadline,
                         uint64_t *ns) {
  const struct cuda_driver *driver = attempt->device->driver;
  CUresult result =
      driver->cuMemHostGetDevicePointer(&attempt->address, (void *)(uintptr_t)attempt->word, 0);
  if (result == CUDA_SUCCESS)
    result = driver->cuStreamCreate(&attempt->stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "making a stream");
  int status = run(attempt, sync, deadline, ns);
  if (status == CUDALINK_ERROR_TIMEOUT) return status;
  CUresult ended = driver->cuStreamSynchronize(attempt->stream);
  driver->cuStreamDestroy(attempt->stream);
  return status < 0 ? status : cuda_error(driver, ended, "waiting for the stream");
}

int gpu_cuda_try_sync(struct gpu_device *gpu, enum gpu_sync sync, uint64_t deadline, uint64_t *ns) {
  struct sync_try attempt = {.device = cuda_of(gpu)};
  struct os_segment segment;
  CUstreamCaptureMode mode;
  const char *lacking = missing(attempt.device->driver, sync);
  if (lacking)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "this driver has no %s; CUDA 11.7 and later have it", lacking);
  int status = os_segment_create(&segment, "cudalink-probe", os_page_round(1));
  if (status < 0) return status;
  status = cuda_register_words(gpu, segment.address, segment.bytes);
  if (status < 0) {
    os_segment_destroy(&segment);
    return status;
  }
  attempt.word = segment.address;
  status = cuda_enter(attempt.device, &mode);
  if (status == CUDALINK_OK) {
    status = try_on_stream(&attempt, sync, deadline, ns);
    cuda_leave(attempt.device, mode);
  }
  if (status == CUDALINK_ERROR_TIMEOUT) return status;
  cuda_unregister_words(gpu, segment.address);
  os_segment_destroy(&segment);
  return status;
}
