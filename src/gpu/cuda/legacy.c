/* SPDX-License-Identifier: MIT
 *
 * What the old wire needs of the driver: interprocess events, and copies of rows.
 */
#include <string.h>

#include "gpu/cuda/cuda.h"

_Static_assert(sizeof(CUipcEventHandle) == sizeof((struct gpu_event){0}.ipc), "layout");

static CUevent event_of(const struct gpu_event *event) { return event->implementation; }

static CUresult make_event(const struct cuda_driver *driver, bool shared, CUevent *made,
                           CUipcEventHandle *handle) {
  unsigned flags = CU_EVENT_DISABLE_TIMING | (shared ? CU_EVENT_INTERPROCESS : 0);
  CUresult result = driver->cuEventCreate(made, flags);
  if (result != CUDA_SUCCESS || !shared) return result;
  result = driver->cuIpcGetEventHandle(handle, *made);
  if (result != CUDA_SUCCESS) driver->cuEventDestroy(*made);
  return result;
}

static int event_create(struct gpu_device *gpu, bool shared, struct gpu_event *event) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  CUevent made = NULL;
  CUipcEventHandle handle = {{0}};
  *event = (struct gpu_event){0};
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = make_event(device->driver, shared, &made, &handle);
  cuda_leave(device, mode);
  if (result != CUDA_SUCCESS) return cuda_error(device->driver, result, "making an event");
  *event = (struct gpu_event){.device = gpu, .implementation = made};
  memcpy(event->ipc, &handle, sizeof handle);
  return CUDALINK_OK;
}

static int event_import(struct gpu_device *gpu, const uint8_t ipc[64], struct gpu_event *event) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  CUevent opened = NULL;
  CUipcEventHandle handle;
  *event = (struct gpu_event){0};
  memcpy(&handle, ipc, sizeof handle);
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = device->driver->cuIpcOpenEventHandle(&opened, handle);
  cuda_leave(device, mode);
  if (result != CUDA_SUCCESS)
    return cuda_error(device->driver, result, "opening the producer's event");
  *event = (struct gpu_event){.device = gpu, .implementation = opened};
  return CUDALINK_OK;
}

static void event_destroy(struct gpu_event *event) {
  if (!event->implementation) return;
  struct cuda_device *device = cuda_of(event->device);
  CUstreamCaptureMode mode;
  if (cuda_enter(device, &mode) == CUDALINK_OK) {
    device->driver->cuEventDestroy(event_of(event));
    cuda_leave(device, mode);
  }
  *event = (struct gpu_event){0};
}

/* An event can be recorded on streams of its own context only. */
static int check_context(struct cuda_device *device, CUstream stream) {
  CUcontext context = NULL;
  CUresult result = device->driver->cuStreamGetCtx(stream, &context);
  if (result != CUDA_SUCCESS) return cuda_error(device->driver, result, "looking at the stream");
  if (context == device->context) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_STREAM,
                   "the stream is of another context than GPU %d's primary one; events, which the "
                   "old wire needs, can't be recorded there",
                   device->gpu.ordinal);
}

static int record(struct cuda_device *device, CUevent event, cudalink_stream stream) {
  const struct cuda_driver *driver = device->driver;
  CUresult result = CUDA_SUCCESS;
  CUstream on = device->event_stream;
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT) /* stands for a point of some stream */
    result = driver->cuStreamWaitEvent(on, (CUevent)(uintptr_t)stream.handle, 0);
  else
    on = cuda_stream_handle(stream);
  int status = check_context(device, on);
  if (status < 0) return status;
  if (result == CUDA_SUCCESS) result = driver->cuEventRecord(event, on);
  return cuda_error(driver, result, "recording an event");
}

static int event_record(struct gpu_event *event, cudalink_stream stream) {
  struct cuda_device *device = cuda_of(event->device);
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return CUDALINK_OK;
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  status = record(device, event_of(event), stream);
  cuda_leave_quickly(device, pushed);
  return status;
}

/* In relaxed mode: it would end a capture of another thread's. */
static int event_query(struct gpu_event *event) {
  struct cuda_device *device = cuda_of(event->device);
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = device->driver->cuEventQuery(event_of(event));
  cuda_leave(device, mode);
  if (result == CUDA_ERROR_NOT_READY)
    return error_set(CUDALINK_ERROR_BUSY, "what was queued before the event is not done yet");
  return cuda_error(device->driver, result, "looking at an event");
}

static int event_wait(struct gpu_event *event, cudalink_stream stream) {
  struct cuda_device *device = cuda_of(event->device);
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  CUresult result =
      device->driver->cuStreamWaitEvent(cuda_stream_handle(stream), event_of(event), 0);
  cuda_leave_quickly(device, pushed);
  return cuda_error(device->driver, result, "making a stream wait for an event");
}

static int stream_copy_rows(struct gpu_device *gpu, cudalink_stream stream, void *target,
                            const void *source, uint64_t bytes, uint64_t pitch, uint64_t count) {
  struct cuda_device *device = cuda_of(gpu);
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = (CUdeviceptr)(uintptr_t)source,
                        .srcPitch = pitch,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = (CUdeviceptr)(uintptr_t)target,
                        .dstPitch = bytes,
                        .WidthInBytes = bytes,
                        .Height = count};
  CUstream on = cuda_stream_handle(stream);
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  CUresult result = pitch == bytes ? device->driver->cuMemcpyAsync(copy.dstDevice, copy.srcDevice,
                                                                   bytes * count, on)
                                   : device->driver->cuMemcpy2DAsync(&copy, on);
  cuda_leave_quickly(device, pushed);
  return cuda_error(device->driver, result, "copying rows");
}

static cudalink_stream stream_own(struct gpu_device *gpu) {
  cudalink_stream stream;
  cuda_copy_stream(gpu, CUDALINK_PRIORITY_NORMAL, &stream);
  return stream;
}

const struct gpu_legacy_operations cuda_legacy_operations = {
    .event_create = event_create,
    .event_import = event_import,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .stream_copy_rows = stream_copy_rows,
    .stream_own = stream_own,
};
