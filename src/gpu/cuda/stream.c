/* SPDX-License-Identifier: MIT
 *
 * Streams of the program's, checked before anything is queued on them, and the one of our own that
 * copies run on.
 */
#include "gpu/cuda/cuda.h"

#define MOST_GPUS 64

CUstream cuda_stream_handle(cudalink_stream stream) {
  switch (stream.kind) {
  case CUDALINK_STREAM_KIND_LEGACY: return CU_STREAM_LEGACY;
  case CUDALINK_STREAM_KIND_PER_THREAD: return CU_STREAM_PER_THREAD;
  default: return (CUstream)(uintptr_t)stream.handle;
  }
}

/* With the context current: is the stream one of this device? */
static int check_device(struct cuda_device *device, CUstream stream) {
  const struct cuda_driver *driver = device->driver;
  CUcontext context;
  CUresult result = driver->cuStreamGetCtx(stream, &context);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "looking at the stream");
  if (context == device->context) return CUDALINK_OK;
  CUdevice other = -1;
  CUcontext popped;
  if (driver->cuCtxPushCurrent(context) == CUDA_SUCCESS) {
    driver->cuCtxGetDevice(&other);
    driver->cuCtxPopCurrent(&popped);
  }
  if (other == device->device) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_STREAM, "the stream is of GPU %d, but the frames are on GPU %d",
                   (int)other, (int)device->device);
}

static int check_capture(struct cuda_device *device, CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = device->driver->cuStreamIsCapturing(stream, &capture);
  if (result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE) return CUDALINK_OK;
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return cuda_error(device->driver, result, "looking at the stream");
  return error_set(CUDALINK_ERROR_CAPTURING,
                   "the stream is capturing a graph; a replay would repeat what is meant for one "
                   "frame. Name the stream after the graph's launch instead");
}

int cuda_stream_check_kind(cudalink_stream stream) {
  switch (stream.kind) {
  case CUDALINK_STREAM_KIND_COMPLETE:
  case CUDALINK_STREAM_KIND_LEGACY:
  case CUDALINK_STREAM_KIND_PER_THREAD: return CUDALINK_OK;
  case CUDALINK_STREAM_NOT_SAID:
    return error_set(CUDALINK_ERROR_STREAM,
                     "no stream was said: name the one that the work is on, or "
                     "CUDALINK_STREAM_COMPLETE when nothing is pending");
  case CUDALINK_STREAM_KIND_HANDLE:
    if (!stream.handle)
      return error_set(
          CUDALINK_ERROR_STREAM,
          "stream handle 0: say CUDALINK_STREAM_LEGACY if the default stream is meant");
    return CUDALINK_OK;
  case CUDALINK_STREAM_KIND_EVENT:
    if (!stream.handle) return error_set(CUDALINK_ERROR_STREAM, "event handle 0 is no event");
    return CUDALINK_OK;
  default:
    return error_set(CUDALINK_ERROR_STREAM, "stream kind %u is not a cudalink_stream_kind",
                     stream.kind);
  }
}

static bool has_state(cudalink_stream stream) {
  return stream.kind != CUDALINK_STREAM_KIND_COMPLETE && stream.kind != CUDALINK_STREAM_KIND_EVENT;
}

int cuda_stream_check_state(struct cuda_device *device, cudalink_stream stream) {
  if (!has_state(stream)) return CUDALINK_OK;
  CUstream handle = cuda_stream_handle(stream);
  int status = check_capture(device, handle);
  return status < 0 ? status : check_device(device, handle);
}

int cuda_stream_check(struct gpu_device *gpu, cudalink_stream stream) {
  struct cuda_device *device = cuda_of(gpu);
  int status = cuda_stream_check_kind(stream);
  if (status < 0 || !has_state(stream)) return status;
  bool pushed;
  status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  status = cuda_stream_check_state(device, stream);
  cuda_leave_quickly(device, pushed);
  return status;
}

static int priority_of(const struct cuda_driver *driver, cudalink_priority priority) {
  int least = 0, greatest = 0;
  driver->cuCtxGetStreamPriorityRange(&least, &greatest); /* least is the larger number */
  switch (priority) {
  case CUDALINK_PRIORITY_LOW: return least;
  case CUDALINK_PRIORITY_HIGH: return greatest;
  default: return 0;
  }
}

int cuda_copy_stream(struct gpu_device *gpu, cudalink_priority priority, cudalink_stream *stream) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = CUDA_SUCCESS;
  if (!device->copy_stream)
    result = driver->cuStreamCreateWithPriority(&device->copy_stream, CU_STREAM_NON_BLOCKING,
                                                priority_of(driver, priority));
  cuda_leave(device, mode);
  *stream = CUDALINK_STREAM_HANDLE(device->copy_stream);
  return cuda_error(driver, result, "making a stream for copies");
}

int cuda_shared_stream(struct gpu_device *gpu, cudalink_stream *stream) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static CUstream shared[MOST_GPUS];
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  CUcontext held;
  if (device->device >= MOST_GPUS)
    return error_set(CUDALINK_ERROR_UNSUPPORTED, "GPU %d: only %d have a stream to share",
                     (int)device->device, MOST_GPUS);
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUstream *place = &shared[device->device];
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&mutex);
  if (!*place) {
    result = driver->cuDevicePrimaryCtxRetain(&held, device->device);
    if (result == CUDA_SUCCESS) result = driver->cuStreamCreate(place, CU_STREAM_NON_BLOCKING);
  }
  *stream = CUDALINK_STREAM_HANDLE(*place);
  pthread_mutex_unlock(&mutex);
  cuda_leave(device, mode);
  return cuda_error(driver, result, "making a stream to share");
}

int cuda_stream_after(struct gpu_device *gpu, cudalink_stream later, cudalink_stream earlier) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  pthread_mutex_lock(&device->mutex); /* record and wait belong together */
  CUresult result = driver->cuEventRecord(device->order_event, cuda_stream_handle(earlier));
  if (result == CUDA_SUCCESS)
    result = driver->cuStreamWaitEvent(cuda_stream_handle(later), device->order_event, 0);
  pthread_mutex_unlock(&device->mutex);
  cuda_leave_quickly(device, pushed);
  return cuda_error(driver, result, "ordering one stream behind another");
}

/* In relaxed mode: both would end a capture of another thread's else. */
int cuda_stream_finish(struct gpu_device *gpu, cudalink_stream stream) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return CUDALINK_OK;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = device->driver->cuStreamSynchronize(cuda_stream_handle(stream));
  cuda_leave(device, mode);
  return cuda_error(device->driver, result, "waiting for the stream");
}

int cuda_stream_probe(struct gpu_device *gpu, cudalink_stream stream) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return CUDALINK_OK;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = device->driver->cuStreamQuery(cuda_stream_handle(stream));
  cuda_leave(device, mode);
  return result == CUDA_ERROR_NOT_READY ? CUDALINK_OK
                                        : cuda_error(device->driver, result, "asking the stream");
}
