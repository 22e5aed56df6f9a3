/* SPDX-License-Identifier: MIT
 *
 * Arrays in GPU memory, outside of any channel: copied, ordered and freed in stream order. No call here
 * waits for the whole GPU; memory comes from the driver's pool.
 */
#include <stdlib.h>

#include "gpu/cuda/cuda.h"
#include "gpu/streams.h"

#define MOST_DEVICES 64

struct gpu_array {
  struct cuda_device *device;
  pthread_mutex_t mutex; /* guards what follows */
  CUevent ready;
  bool pending; /* `ready` was recorded */
  CUdeviceptr memory;
  struct gpu_streams used;
};

/* ---- devices: one record per GPU, for the life of the process ------------------------------------- */

static struct {
  pthread_mutex_t mutex;
  struct cuda_device *devices[MOST_DEVICES];
} opened = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int open_device(int32_t ordinal, struct cuda_device **out) {
  const struct cuda_driver *driver;
  int status = cuda_driver_load(&driver);
  if (status < 0) return status;
  struct cuda_device *device = cuda_device_new();
  if (!device) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a device record");
  device->driver = driver;
  device->gpu.ordinal = ordinal;
  pthread_mutex_init(&device->mutex, NULL);
  CUresult result = driver->cuDeviceGet(&device->device, ordinal);
  if (result == CUDA_SUCCESS)
    result = driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
  if (result != CUDA_SUCCESS) {
    free(device);
    return cuda_error(driver, result, "opening the GPU's primary context");
  }
  CUstreamCaptureMode mode;
  status = cuda_enter(device, &mode);
  if (status == CUDALINK_OK) {
    result = driver->cuStreamCreate(&device->join_stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
      result = driver->cuStreamCreate(&device->copy_stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
      result = driver->cuEventCreate(&device->join_event, CU_EVENT_DISABLE_TIMING);
    cuda_leave(device, mode);
    status = cuda_error(driver, result, "making streams");
  }
  if (status < 0)
    cuda_device_close(&device->gpu);
  else
    *out = device;
  return status;
}

int cuda_array_device(int32_t ordinal, struct cuda_device **device) {
  if (ordinal < 0 || ordinal >= MOST_DEVICES)
    return error_set(CUDALINK_ERROR_UNSUPPORTED, "there is no GPU %d", ordinal);
  int status = CUDALINK_OK;
  pthread_mutex_lock(&opened.mutex);
  if (!opened.devices[ordinal]) status = open_device(ordinal, &opened.devices[ordinal]);
  *device = opened.devices[ordinal];
  pthread_mutex_unlock(&opened.mutex);
  return status;
}

/* ---- memory and copies ------------------------------------------------------------------------------ */

int gpu_array_make(int32_t ordinal, struct gpu_array **array) {
  struct cuda_device *device;
  int status = cuda_array_device(ordinal, &device);
  if (status < 0) return status;
  struct gpu_array *made = calloc(1, sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for an array");
  made->device = device;
  pthread_mutex_init(&made->mutex, NULL);
  *array = made;
  return CUDALINK_OK;
}

/* Where the work of a call goes: with COMPLETE on a stream of our own, which is then waited for. */
static CUstream stream_for(const struct gpu_array *array, cudalink_stream stream) {
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return array->device->copy_stream;
  return cuda_stream_handle(stream);
}

static int check(struct gpu_array *array, cudalink_stream stream) {
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT)
    return error_set(CUDALINK_ERROR_STREAM, "an event was named; an array needs a stream");
  return cuda_stream_check(&array->device->gpu, stream);
}

int gpu_array_allocate(struct gpu_array *array, cudalink_stream stream, uint64_t bytes,
                       void **address) {
  struct cuda_device *device = array->device;
  CUstreamCaptureMode mode;
  int status = check(array, stream);
  if (status == CUDALINK_OK) status = cuda_enter(device, &mode);
  if (status != CUDALINK_OK) return status;
  CUresult result =
      device->driver->cuMemAllocAsync(&array->memory, bytes, stream_for(array, stream));
  cuda_leave(device, mode);
  *address = (void *)(uintptr_t)array->memory;
  return cuda_error(device->driver, result, "allocating GPU memory for a copy");
}

static CUresult copy_pitched(const struct cuda_driver *driver, const struct gpu_rows *rows,
                             bool to_cpu, CUstream on) {
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = (CUdeviceptr)(uintptr_t)rows->source,
                        .srcPitch = (size_t)rows->source_stride,
                        .dstMemoryType = to_cpu ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                        .dstHost = rows->target,
                        .dstDevice = (CUdeviceptr)(uintptr_t)rows->target,
                        .dstPitch = rows->bytes,
                        .WidthInBytes = rows->bytes,
                        .Height = rows->rows};
  return driver->cuMemcpy2DAsync(&copy, on);
}

static CUresult copy_flat(const struct cuda_driver *driver, void *target, const void *source,
                          uint64_t bytes, bool to_cpu, CUstream on) {
  CUdeviceptr from = (CUdeviceptr)(uintptr_t)source;
  return to_cpu ? driver->cuMemcpyDtoHAsync(target, from, bytes, on)
                : driver->cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)target, from, bytes, on);
}

int gpu_array_copy(struct gpu_array *array, cudalink_stream stream, const struct gpu_rows *rows,
                   bool to_cpu) {
  struct cuda_device *device = array->device;
  CUstreamCaptureMode mode;
  CUstream on = stream_for(array, stream);
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = CUDA_SUCCESS;
  bool pitched = rows->rows > 1 && rows->source_stride >= (int64_t)rows->bytes;
  if (pitched) result = copy_pitched(device->driver, rows, to_cpu, on);
  for (uint64_t r = 0; !pitched && r < rows->rows && result == CUDA_SUCCESS; r++)
    result = copy_flat(device->driver, (char *)rows->target + r * rows->bytes,
                       (const char *)rows->source + (int64_t)r * rows->source_stride, rows->bytes,
                       to_cpu, on);
  cuda_leave(device, mode);
  return cuda_error(device->driver, result, "copying an array");
}

int gpu_array_finish(struct gpu_array *array, cudalink_stream stream) {
  struct cuda_device *device = array->device;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = device->driver->cuStreamSynchronize(stream_for(array, stream));
  cuda_leave(device, mode);
  return cuda_error(device->driver, result, "copying an array");
}

/* ---- order ------------------------------------------------------------------------------------------- */

/* With the mutex and the context. */
static CUresult record(struct gpu_array *array, CUstream stream) {
  const struct cuda_driver *driver = array->device->driver;
  CUresult result = CUDA_SUCCESS;
  if (!array->ready) result = driver->cuEventCreate(&array->ready, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = driver->cuEventRecord(array->ready, stream);
  if (result == CUDA_SUCCESS) array->pending = true;
  return result;
}

/* Runs one of both with everything that it needs, and remembers the stream. */
static int order(struct gpu_array *array, cudalink_stream stream,
                 CUresult (*run)(struct gpu_array *, CUstream), const char *what) {
  struct cuda_device *device = array->device;
  pthread_mutex_lock(&array->mutex);
  int status = gpu_streams_check(&array->used, stream);
  bool pushed;
  if (status == CUDALINK_OK) status = cuda_enter_quickly(device, &pushed);
  if (status == CUDALINK_OK) {
    CUresult result = run(array, cuda_stream_handle(stream));
    cuda_leave_quickly(device, pushed);
    status = cuda_error(device->driver, result, what);
  }
  if (status == CUDALINK_OK) gpu_streams_add(&array->used, stream);
  pthread_mutex_unlock(&array->mutex);
  return status;
}

int gpu_array_ready(struct gpu_array *array, cudalink_stream stream) {
  int status = check(array, stream);
  if (status < 0 || stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return status;
  return order(array, stream, record, "noting that an array is ready");
}

static CUresult wait(struct gpu_array *array, CUstream stream) {
  if (!array->pending) return CUDA_SUCCESS;
  return array->device->driver->cuStreamWaitEvent(stream, array->ready, 0);
}

/* CUDALINK_OK when it is complete now; COMPLETE waits for that. */
static int settle(struct gpu_array *array, bool by_cpu) {
  struct cuda_device *device = array->device;
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  pthread_mutex_lock(&array->mutex);
  CUevent ready = array->pending ? array->ready : NULL;
  pthread_mutex_unlock(&array->mutex);
  if (!ready) return CUDALINK_OK;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = by_cpu ? driver->cuEventSynchronize(ready) : driver->cuEventQuery(ready);
  cuda_leave(device, mode);
  if (result == CUDA_ERROR_NOT_READY)
    return error_set(CUDALINK_ERROR_CAPTURING,
                     "the array is not complete yet, and the stream is capturing a graph, each "
                     "launch of which would wait for it; wait for the array first");
  return cuda_error(driver, result, "waiting for an array");
}

int gpu_array_wait(struct gpu_array *array, cudalink_stream stream) {
  int status = check(array, stream);
  if (status == CUDALINK_ERROR_CAPTURING) return settle(array, false);
  if (status < 0) return status;
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return settle(array, true);
  return order(array, stream, wait, "making a stream wait for an array");
}

/* ---- the end ----------------------------------------------------------------------------------------- */

static int check_used(struct gpu_array *array) {
  int status = CUDALINK_OK;
  for (uint32_t i = 0; array->memory && i < array->used.count && status == CUDALINK_OK; i++)
    status = cuda_stream_check(&array->device->gpu, array->used.streams[i]);
  return status;
}

static int free_memory(struct gpu_array *array) {
  struct cuda_device *device = array->device;
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = CUDA_SUCCESS;
  if (array->memory) {
    result = cuda_join(device, array->used.streams, array->used.count);
    if (result == CUDA_SUCCESS) result = driver->cuMemFreeAsync(array->memory, device->join_stream);
  }
  if (array->ready) driver->cuEventDestroy(array->ready);
  cuda_leave(device, mode);
  return cuda_error(driver, result, "freeing an array behind the streams that use it");
}

int gpu_array_free(struct gpu_array *array) {
  int status = check_used(array);
  if (status == CUDALINK_ERROR_CAPTURING) return status;
  if (status == CUDALINK_OK) status = free_memory(array);
  if (status < 0)
    log_write(CUDALINK_LOG_WARNING,
              "the GPU memory of an array is not freed (was a stream that used it destroyed before "
              "the array?): %s",
              cudalink_last_error());
  pthread_mutex_destroy(&array->mutex);
  free(array);
  return status;
}
