/* SPDX-License-Identifier: MIT
 *
 * One word behind several streams: a stream of our own comes behind all of them and writes it, so that
 * none of the program's streams waits for another.
 */
#include "gpu/cuda/cuda.h"

/* The join stream comes behind this one, or behind this event. */
static CUresult join(struct cuda_device *device, cudalink_stream stream) {
  const struct cuda_driver *driver = device->driver;
  CUevent event = device->join_event; /* used again: a wait is for what was recorded at its call */
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT) {
    event = (CUevent)(uintptr_t)stream.handle;
  } else {
    CUresult result = driver->cuEventRecord(event, cuda_stream_handle(stream));
    if (result != CUDA_SUCCESS) return result;
  }
  return driver->cuStreamWaitEvent(device->join_stream, event, 0);
}

CUresult cuda_join(struct cuda_device *device, const cudalink_stream *streams, uint32_t count) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&device->mutex); /* record and wait belong together */
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = join(device, streams[i]);
  pthread_mutex_unlock(&device->mutex);
  return result;
}

int cuda_streams_write(struct gpu_device *gpu, const cudalink_stream *streams, uint32_t count,
                       const struct gpu_write *write) {
  struct cuda_device *device = cuda_of(gpu);
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  CUresult result = cuda_join(device, streams, count);
  cuda_leave_quickly(device, pushed);
  if (result != CUDA_SUCCESS)
    return cuda_error(device->driver, result, "coming behind several streams");
  return cuda_stream_write(gpu, CUDALINK_STREAM_HANDLE(device->join_stream), write, 1);
}
