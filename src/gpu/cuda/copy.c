/* SPDX-License-Identifier: MIT
 *
 * Copies into slots. A copy that comes again (same source, same slot) is kept as a graph of one node:
 * its launch and the write of the ready word behind it were measured at 2.1 us of CPU time, a plain
 * copy and the write at 4.7 us, and a graph that holds the write as well at 2.2 us (it needs its value
 * set for each launch). So the words stay outside. A program sends from a few buffers into a few
 * slots; the number of graphs is bounded.
 *
 * A graph holds plain addresses: the driver's number of the source's allocation is part of the key,
 * so a source that was freed is never read through one.
 *
 * Graphs go with the block that they copy into, and not before: sends that dropped old ones for new were
 * seen to wait for everything else on the GPU (H200, driver 580). Once all places are taken, copies of other
 * sources are plain ones.
 */
#include "gpu/cuda/cuda.h"

/* ---- one copy, as the driver wants it ---------------------------------------------------------- */

static CUDA_MEMCPY3D params_of(const struct gpu_copy *copy, CUmemorytype type) {
  CUDA_MEMCPY3D params = {.srcMemoryType = type,
                          .srcDevice = (CUdeviceptr)(uintptr_t)copy->source,
                          .srcHost = copy->source,
                          .srcPitch = copy->source_stride,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = (CUdeviceptr)(uintptr_t)copy->target,
                          .dstPitch = copy->target_stride,
                          .WidthInBytes = copy->bytes,
                          .Height = copy->rows,
                          .Depth = 1};
  if (copy->array) {
    params.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    params.srcArray = (CUarray)(uintptr_t)copy->array;
  }
  return params;
}

/* Plain host memory, which the driver does not know, is called so. */
static CUresult queue_plainly(struct cuda_device *device, CUstream stream,
                              const struct gpu_copy *copy, const struct cuda_source *source) {
  const struct cuda_driver *driver = device->driver;
  if (copy->rows == 1 && !copy->array)
    return driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)copy->target,
                                 (CUdeviceptr)(uintptr_t)copy->source, copy->bytes, stream);
  CUDA_MEMCPY3D params = params_of(copy, source->type ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST);
  return driver->cuMemcpy3DAsync(&params, stream);
}

/* ---- graphs ------------------------------------------------------------------------------------- */

static void make(struct cuda_device *device, struct cuda_copy *kept) {
  const struct cuda_driver *driver = device->driver;
  CUDA_MEMCPY3D params = params_of(&kept->copy, CU_MEMORYTYPE_DEVICE);
  CUgraph graph;
  CUgraphNode node;
  kept->plain = true; /* unless all goes well */
  if (driver->cuGraphCreate(&graph, 0) != CUDA_SUCCESS) return;
  if (driver->cuGraphAddMemcpyNode(&node, graph, NULL, 0, &params, device->context) ==
          CUDA_SUCCESS &&
      driver->cuGraphInstantiateWithFlags(&kept->exec, graph, 0) == CUDA_SUCCESS)
    kept->plain = false;
  else
    kept->exec = NULL;
  driver->cuGraphDestroy(graph);
}

static bool is_same(const struct cuda_copy *kept, const struct gpu_copy *copy,
                    unsigned long long buffer) {
  return kept->buffer == buffer && kept->copy.target == copy->target &&
         kept->copy.source == copy->source && kept->copy.bytes == copy->bytes &&
         kept->copy.rows == copy->rows &&
         (copy->rows == 1 || (kept->copy.source_stride == copy->source_stride &&
                              kept->copy.target_stride == copy->target_stride));
}

/* A place without a graph, in turns. */
static struct cuda_copy *free_place(struct cuda_device *device) {
  for (uint32_t i = 0; i < CUDA_COPIES; i++) {
    struct cuda_copy *place = &device->copies[device->next_copy++ % CUDA_COPIES];
    if (!place->exec) return place;
  }
  return NULL;
}

/* The copy's record, new if need be; NULL when there is no room. */
static struct cuda_copy *find(struct cuda_device *device, const struct gpu_copy *copy,
                              unsigned long long buffer) {
  for (uint32_t i = 0; i < CUDA_COPIES; i++)
    if (is_same(&device->copies[i], copy, buffer)) return &device->copies[i];
  struct cuda_copy *place = free_place(device);
  if (place) *place = (struct cuda_copy){.copy = *copy, .buffer = buffer};
  return place;
}

/* Under the mutex. NULL: a plain copy is needed. */
static CUgraphExec graph_for(struct cuda_device *device, const struct gpu_copy *copy,
                             unsigned long long buffer) {
  struct cuda_copy *kept = find(device, copy, buffer);
  if (!kept) return NULL;
  /* The second time: a buffer that is new for each frame is not worth a graph. */
  if (kept->seen && !kept->exec && !kept->plain) make(device, kept);
  kept->seen = true;
  return kept->exec;
}

/* 1: a plain copy is needed. In relaxed mode: making a graph would end a capture of the program's. */
static int copy_by_graph(struct cuda_device *device, CUstream stream, const struct gpu_copy *copy,
                         unsigned long long buffer) {
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  pthread_mutex_lock(&device->mutex);
  CUgraphExec exec = graph_for(device, copy, buffer);
  CUresult result = CUDA_SUCCESS;
  if (exec) result = device->driver->cuGraphLaunch(exec, stream);
  pthread_mutex_unlock(&device->mutex);
  cuda_leave(device, mode);
  if (!exec) return 1;
  return cuda_error(device->driver, result, "copying a frame");
}

static int copy_plainly(struct cuda_device *device, CUstream stream, const struct gpu_copy *copy,
                        const struct cuda_source *source, bool complete) {
  const struct cuda_driver *driver = device->driver;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = queue_plainly(device, stream, copy, source);
  if (result == CUDA_SUCCESS && complete) result = driver->cuStreamSynchronize(stream);
  cuda_leave(device, mode);
  return cuda_error(driver, result, "copying a frame");
}

/* ---- the operations ----------------------------------------------------------------------------- */

static int copy_on(struct cuda_device *device, cudalink_stream stream, const struct gpu_copy *copy,
                   const struct cuda_source *source) {
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE)
    return copy_plainly(device, device->copy_stream, copy, source, true);
  CUstream on = cuda_stream_handle(stream);
  int status = source->buffer ? copy_by_graph(device, on, copy, source->buffer) : 1;
  return status > 0 ? copy_plainly(device, on, copy, source, false) : status;
}

int cuda_stream_copy(struct gpu_device *gpu, cudalink_stream stream, void *target,
                     const void *source, uint64_t bytes) {
  struct cuda_device *device = cuda_of(gpu);
  struct gpu_copy copy = {.target = target, .source = source, .bytes = bytes, .rows = 1};
  struct cuda_source found;
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT)
    return error_set(CUDALINK_ERROR_STREAM, "an event was named; a copy needs a stream");
  if (!bytes) return CUDALINK_OK;
  int status = cuda_source_find(device, source, &found);
  if (status < 0) return status;
  return copy_on(device, stream, &copy, &found);
}

int cuda_stream_send(struct gpu_device *gpu, cudalink_stream stream, const struct gpu_copy *copy) {
  struct cuda_device *device = cuda_of(gpu);
  struct cuda_source found = {0};
  if (!copy->bytes || !copy->rows) return CUDALINK_OK;
  int status =
      copy->array ? cuda_array_check(device, copy) : cuda_source_check(device, copy, &found);
  if (status < 0) return status;
  return copy_on(device, stream, copy, &found);
}

/* Without the mutex while graphs are dropped: sends of other frames don't wait along. */
void cuda_copies_forget(struct cuda_device *device, CUdeviceptr target, uint64_t bytes) {
  CUgraphExec dropped[CUDA_COPIES];
  uint32_t count = 0;
  pthread_mutex_lock(&device->mutex);
  for (uint32_t i = 0; i < CUDA_COPIES; i++) {
    struct cuda_copy *copy = &device->copies[i];
    if ((uintptr_t)copy->copy.target - target >= bytes) continue;
    if (copy->exec) dropped[count++] = copy->exec;
    *copy = (struct cuda_copy){0};
  }
  pthread_mutex_unlock(&device->mutex);
  for (uint32_t i = 0; i < count; i++)
    device->driver->cuGraphExecDestroy(dropped[i]);
}
