/* SPDX-License-Identifier: MIT
 *
 * Opening a GPU: which one, its primary context, what it can do. A memory kind is tried by doing it
 * once; attributes are known to promise too much.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda.h"

struct cuda_device *cuda_device_new(void) {
  struct cuda_device *device = aligned_alloc(_Alignof(struct cuda_device), sizeof *device);
  if (device) memset(device, 0, sizeof *device);
  return device;
}

static int push(struct cuda_device *device) {
  CUresult result = device->driver->cuCtxPushCurrent(device->context);
  return cuda_error(device->driver, result, "making the context current");
}

static void pop(struct cuda_device *device) {
  CUcontext popped;
  device->driver->cuCtxPopCurrent(&popped);
}

int cuda_enter_quickly(struct cuda_device *device, bool *pushed) {
  CUcontext current;
  CUresult result = device->driver->cuCtxGetCurrent(&current);
  *pushed = result != CUDA_SUCCESS || current != device->context;
  return *pushed ? push(device) : CUDALINK_OK;
}

void cuda_leave_quickly(struct cuda_device *device, bool pushed) {
  if (pushed) pop(device);
}

int cuda_enter(struct cuda_device *device, CUstreamCaptureMode *mode) {
  int status = push(device);
  if (status < 0) return status;
  *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  device->driver->cuThreadExchangeStreamCaptureMode(mode);
  return CUDALINK_OK;
}

void cuda_leave(struct cuda_device *device, CUstreamCaptureMode mode) {
  device->driver->cuThreadExchangeStreamCaptureMode(&mode);
  pop(device);
}

int cuda_attribute(const struct cuda_device *device, CUdevice_attribute which) {
  int value = 0;
  device->driver->cuDeviceGetAttribute(&value, which, device->device);
  return value;
}

static int find_by_uuid(const struct cuda_driver *driver, const uint8_t uuid[16], int count) {
  for (int i = 0; i < count; i++) {
    CUdevice device;
    CUuuid found;
    if (driver->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
        driver->cuDeviceGetUuid(&found, device) == CUDA_SUCCESS &&
        !memcmp(found.bytes, uuid, sizeof found.bytes))
      return i;
  }
  return -1;
}

static int fail_number(int count) {
  if (count == 1) return error_set(CUDALINK_ERROR_UNSUPPORTED, "there is only GPU 0");
  if (count <= 0) return error_set(CUDALINK_ERROR_UNSUPPORTED, "there is no GPU");
  return error_set(CUDALINK_ERROR_UNSUPPORTED, "there are GPUs 0 to %d", count - 1);
}

/* Device 0 of the caller means: that of the UUID, or the first one. A producer's GPU may be hidden
 * from this process; its memory can then still be mapped for another one. */
static int choose(struct cuda_device *device, int32_t wanted, const uint8_t *uuid) {
  const struct cuda_driver *driver = device->driver;
  int count = 0, ordinal = wanted - 1;
  CUresult result = driver->cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "counting GPUs");
  if (!wanted) ordinal = uuid ? find_by_uuid(driver, uuid, count) : 0;
  if (ordinal < 0) ordinal = 0;
  if (ordinal >= count) return fail_number(count);
  result = driver->cuDeviceGet(&device->device, ordinal);
  if (result == CUDA_SUCCESS) {
    CUuuid own;
    result = driver->cuDeviceGetUuid(&own, device->device);
    memcpy(device->gpu.uuid, own.bytes, sizeof device->gpu.uuid);
    driver->cuDeviceGetName(device->gpu.name, sizeof device->gpu.name, device->device);
  }
  device->gpu.ordinal = ordinal;
  return result == CUDA_SUCCESS ? CUDALINK_OK : cuda_error(driver, result, "looking at the GPU");
}

static int make_streams(struct cuda_device *device) {
  const struct cuda_driver *driver = device->driver;
  CUresult result = driver->cuStreamCreate(&device->wait_stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver->cuStreamCreate(&device->event_stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver->cuStreamCreate(&device->join_stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver->cuEventCreate(&device->wait_event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS)
    result = driver->cuEventCreate(&device->order_event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS)
    result = driver->cuEventCreate(&device->join_event, CU_EVENT_DISABLE_TIMING);
  return result == CUDA_SUCCESS ? CUDALINK_OK : cuda_error(driver, result, "making streams");
}

static int set_granularity(struct cuda_device *device) {
  device->gpu.granularity = UINT64_C(2) << 20;
  if (device->gpu.kind != CUDALINK_KIND_VMM) return CUDALINK_OK;
  CUmemAllocationProp properties = cuda_vmm_properties(device);
  size_t granularity = 0;
  CUresult result = device->driver->cuMemGetAllocationGranularity(&granularity, &properties,
                                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS)
    return cuda_error(device->driver, result, "asking for the granularity of GPU memory");
  device->gpu.granularity = granularity;
  return CUDALINK_OK;
}

/* Makes a block of the kind and lets it go again: more than a millisecond, hence once per process, kind
 * and GPU. What can't be made later is told by the call that wants it. */
static int try_kind(struct cuda_device *device) {
  static _Atomic uint64_t worked[2]; /* by GPU; relaxed: at worst two threads try */
  _Atomic uint64_t *known = &worked[device->gpu.kind == CUDALINK_KIND_IPC];
  uint64_t bit = device->device < 64 ? UINT64_C(1) << device->device : 0;
  struct gpu_block block;
  if (atomic_load_explicit(known, memory_order_relaxed) & bit) return CUDALINK_OK;
  int status = device->gpu.operations->block_create(&device->gpu, device->gpu.granularity, &block);
  if (status < 0) return status;
  device->gpu.operations->block_destroy(&block);
  atomic_fetch_or_explicit(known, bit, memory_order_relaxed);
  return CUDALINK_OK;
}

static int set_up(struct cuda_device *device, bool imports) {
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  status = make_streams(device);
  if (status == CUDALINK_OK) status = cuda_words_choose(device);
  cuda_leave(device, mode);
  if (status == CUDALINK_OK) status = set_granularity(device);
  if (status == CUDALINK_OK && !imports) status = try_kind(device); /* an import is a try itself */
  return status;
}

void cuda_device_close(struct gpu_device *gpu) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  if (device->context && cuda_enter(device, &mode) == CUDALINK_OK) {
    cuda_copies_drop(device);
    if (device->wait_stream) driver->cuStreamDestroy(device->wait_stream);
    if (device->event_stream) driver->cuStreamDestroy(device->event_stream);
    if (device->copy_stream) driver->cuStreamDestroy(device->copy_stream);
    if (device->join_stream) driver->cuStreamDestroy(device->join_stream);
    if (device->wait_event) driver->cuEventDestroy(device->wait_event);
    if (device->order_event) driver->cuEventDestroy(device->order_event);
    if (device->join_event) driver->cuEventDestroy(device->join_event);
    cuda_host_clear(device);
    if (device->tried_words) driver->cuMemFreeHost(device->tried_words);
    cuda_leave(device, mode);
  }
  cuda_kernels_leave(device);
  if (device->context) driver->cuDevicePrimaryCtxRelease(device->device);
  pthread_mutex_destroy(&device->mutex);
  pthread_mutex_destroy(&device->host.mutex);
  free(device);
}

int gpu_cuda_open(cudalink_kind kind, int32_t wanted, const uint8_t *uuid,
                  struct gpu_device **opened) {
  const struct cuda_driver *driver;
  int status = cuda_driver_load(&driver);
  if (status < 0) return status;
  struct cuda_device *device = cuda_device_new();
  if (!device) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a device record");
  device->driver = driver;
  device->gpu.kind = kind;
  device->gpu.operations = kind == CUDALINK_KIND_IPC ? &cuda_ipc_operations : &cuda_vmm_operations;
  device->gpu.work_survives = true;
  snprintf(device->gpu.path, sizeof device->gpu.path, "%s",
           kind == CUDALINK_KIND_IPC ? "gpu ipc handle" : "gpu vmm descriptor");
  pthread_mutex_init(&device->mutex, NULL);
  pthread_mutex_init(&device->host.mutex, NULL);
  status = choose(device, wanted, uuid);
  if (status == CUDALINK_OK) {
    CUresult result = driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (result != CUDA_SUCCESS) {
      device->context = NULL;
      status = cuda_error(driver, result, "opening the GPU's primary context");
    }
  }
  if (status == CUDALINK_OK) status = cuda_kernels_join(device);
  if (status == CUDALINK_OK) status = set_up(device, uuid != NULL);
  if (status < 0) {
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", cudalink_last_error());
    cuda_device_close(&device->gpu);
    return error_set(status, "kind %s on GPU %d: %s", cudalink_kind_name(kind),
                     wanted ? wanted - 1 : 0, sentence);
  }
  *opened = &device->gpu;
  return CUDALINK_OK;
}

#define CUDA_OPERATIONS(which)                                                                     \
  {                                                                                                \
    .legacy = &cuda_legacy_operations, .device_close = cuda_device_close,                          \
    .block_create = cuda_##which##_create, .block_import = cuda_##which##_import,                  \
    .block_destroy = cuda_##which##_destroy, .register_words = cuda_register_words,                \
    .unregister_words = cuda_unregister_words, .stream_check = cuda_stream_check,                  \
    .stream_write = cuda_stream_write, .stream_check_write = cuda_stream_check_write,              \
    .stream_write_here = cuda_stream_write_here, .streams_write = cuda_streams_write,              \
    .stream_wait = cuda_stream_wait, .waits_landed = cuda_waits_landed,                            \
    .stream_copy = cuda_stream_copy, .stream_send = cuda_stream_send,                              \
    .stream_check_send = cuda_stream_check_send, .send_prepare = cuda_send_prepare,                \
    .copy_stream = cuda_copy_stream, .shared_stream = cuda_shared_stream,                          \
    .stream_after = cuda_stream_after, .stream_finish = cuda_stream_finish,                        \
    .stream_probe = cuda_stream_probe, .host_prepare = cuda_host_prepare,                          \
    .host_begin = cuda_host_begin, .host_finish = cuda_host_finish,                                \
    .pack_to_host = cuda_pack_to_host, .convert_load = cuda_convert_load,                          \
    .memory_check = cuda_memory_check, .stream_convert = cuda_stream_convert                       \
  }

const struct gpu_operations cuda_vmm_operations = CUDA_OPERATIONS(vmm);
const struct gpu_operations cuda_ipc_operations = CUDA_OPERATIONS(ipc);
