/* SPDX-License-Identifier: MIT
 *
 * Copies into slots. A dense copy out of this GPU's memory is launched as a graph of one node: its launch and
 * the write of the ready word behind it were measured at 2.1 us of CPU time, a plain copy and the write at
 * 4.7 us, and a graph that holds the write as well at 2.2 us (it needs its value set for each launch). So the
 * words stay outside. A program sends from a few buffers into a few slots: a graph that copies so already is
 * launched as it is, else the one that was not used for longest is pointed at the new copy, which costs
 * about as much as it saves.
 *
 * All graphs of a device are made when its exporter opens. Making one waits, now and then (the 33rd of a
 * process, the 76th, ...), until everything on the GPU is done, and launches of other threads wait along
 * (H200, driver 580: tests/gpu, graphs_wait_for_nobody). Pointing one elsewhere does not. A graph that was made
 * for memory of the context (cuMemAlloc; pinned memory is of that sort as well) can't be pointed at mapped memory
 * (cuMemMap, and pools), nor the other way round, so there are some of each.
 *
 * A graph holds plain addresses: the driver's number of the source's allocation is part of the key,
 * so a source that was freed is never read through one.
 */
#include <string.h>

#include "gpu/cuda/cuda.h"

#define FEWEST 8 /* graphs for memory of the context: two buffers and four slots */
#define MAPPED 4 /* and for mapped memory */

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

/* Graphs of one sort, appended. They copy what is given until they are pointed elsewhere. */
static CUresult make(struct cuda_device *device, bool mapped, uint32_t count,
                     const struct gpu_copy *copy) {
  const struct cuda_driver *driver = device->driver;
  CUDA_MEMCPY3D params = params_of(copy, CU_MEMORYTYPE_DEVICE);
  CUgraph graph;
  CUgraphNode node;
  CUresult result = driver->cuGraphCreate(&graph, 0);
  if (result != CUDA_SUCCESS) return result;
  device->copy_graphs[mapped] = graph;
  result = driver->cuGraphAddMemcpyNode(&node, graph, NULL, 0, &params, device->context);
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct cuda_copy *place = &device->copies[device->copy_count];
    *place = (struct cuda_copy){.node = node, .mapped = mapped};
    result = driver->cuGraphInstantiateWithFlags(&place->exec, graph, 0);
    device->copy_count += result == CUDA_SUCCESS;
  }
  return result;
}

void cuda_copies_drop(struct cuda_device *device) {
  for (uint32_t i = 0; i < device->copy_count; i++)
    device->driver->cuGraphExecDestroy(device->copies[i].exec);
  memset(device->copies, 0, sizeof device->copies);
  device->copy_count = 0;
  for (uint32_t i = 0; i < 2; i++)
    if (device->copy_graphs[i]) device->driver->cuGraphDestroy(device->copy_graphs[i]);
  device->copy_graphs[0] = device->copy_graphs[1] = NULL;
  if (device->copy_source) device->driver->cuMemFree(device->copy_source);
  device->copy_source = 0;
}

static uint32_t count_for(uint32_t slots) {
  if (slots < FEWEST) return FEWEST;
  return slots < CUDA_COPIES - MAPPED ? slots : CUDA_COPIES - MAPPED;
}

/* The memory of the context that they are made with is cuMemAlloc's: graphs that were made with pinned memory
 * could be pointed at such memory as well, but sends by them took as long as plain copies. */
static CUresult make_all(struct cuda_device *device, const struct gpu_block *block,
                         uint32_t slots) {
  struct gpu_copy copy = {.target = block->address, .bytes = 8, .rows = 1};
  CUresult result = device->driver->cuMemAlloc(&device->copy_source, copy.bytes);
  if (result != CUDA_SUCCESS) return result;
  copy.source = (void *)(uintptr_t)device->copy_source;
  result = make(device, false, count_for(slots), &copy);
  if (result != CUDA_SUCCESS || device->gpu.kind == CUDALINK_KIND_IPC) return result;
  copy.source = (char *)block->address + copy.bytes;
  return make(device, true, MAPPED, &copy);
}

void cuda_send_prepare(struct gpu_device *gpu, const struct gpu_block *block, uint32_t slots) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  if (cuda_enter(device, &mode) < 0) return;
  pthread_mutex_lock(&device->mutex);
  if (make_all(device, block, slots) != CUDA_SUCCESS) cuda_copies_drop(device);
  pthread_mutex_unlock(&device->mutex);
  cuda_leave(device, mode);
}

static bool is_same(const struct cuda_copy *kept, const struct gpu_copy *copy,
                    const struct cuda_source *source) {
  return kept->target == copy->target && kept->source == copy->source &&
         kept->buffer == source->buffer && kept->bytes == copy->bytes;
}

/* The graph that copies so, or else the one of its sort that was not used for longest; NULL: there is none. */
static struct cuda_copy *search(struct cuda_device *device, const struct gpu_copy *copy,
                                const struct cuda_source *source) {
  struct cuda_copy *oldest = NULL;
  for (uint32_t i = 0; i < device->copy_count; i++) {
    struct cuda_copy *place = &device->copies[i];
    if (is_same(place, copy, source)) return place;
    if (place->mapped != source->mapped) continue;
    if (!oldest || place->used < oldest->used) oldest = place;
  }
  return oldest;
}

/* What is launched already goes on as it is. In relaxed mode, or a capture of the program's would end. */
static void point(struct cuda_device *device, struct cuda_copy *place, const struct gpu_copy *copy,
                  const struct cuda_source *source) {
  const struct cuda_driver *driver = device->driver;
  CUDA_MEMCPY3D params = params_of(copy, CU_MEMORYTYPE_DEVICE);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  place->target = copy->target;
  place->source = copy->source;
  place->bytes = copy->bytes;
  place->buffer = source->buffer;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  place->plain = driver->cuGraphExecMemcpyNodeSetParams(place->exec, place->node, &params,
                                                        device->context) != CUDA_SUCCESS;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
}

/* Under the mutex. NULL: a plain copy is needed. Slots and sources mostly come in turns: what followed the last
 * copy once is looked at first. */
static CUgraphExec graph_for(struct cuda_device *device, const struct gpu_copy *copy,
                             const struct cuda_source *source) {
  struct cuda_copy *last = &device->copies[device->copy_last];
  struct cuda_copy *place = &device->copies[last->next];
  if (!is_same(place, copy, source)) {
    place = search(device, copy, source);
    if (!place) return NULL;
    if (!is_same(place, copy, source)) point(device, place, copy, source);
  }
  device->copy_last = last->next = (uint32_t)(place - device->copies);
  place->used = ++device->sends;
  return place->plain ? NULL : place->exec;
}

/* 1: a plain copy is needed. No capture minds a launch. With the context current. */
static int copy_by_graph(struct cuda_device *device, CUstream stream, const struct gpu_copy *copy,
                         const struct cuda_source *source) {
  pthread_mutex_lock(&device->mutex);
  CUgraphExec exec = graph_for(device, copy, source);
  CUresult result = CUDA_SUCCESS;
  if (exec) result = device->driver->cuGraphLaunch(exec, stream);
  pthread_mutex_unlock(&device->mutex);
  if (!exec) return 1;
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
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
  bool foreign = source->type == CU_MEMORYTYPE_DEVICE && source->ordinal != device->device;
  if (result == CUDA_ERROR_INVALID_VALUE && foreign)
    return cuda_source_closed(device, copy->source, source->ordinal);
  return cuda_error(driver, result, "copying a frame");
}

/* ---- the operations ----------------------------------------------------------------------------- */

/* With the context current; copy_plainly makes it current itself, in relaxed mode. */
static int copy_on(struct cuda_device *device, cudalink_stream stream, const struct gpu_copy *copy,
                   const struct cuda_source *source) {
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE)
    return copy_plainly(device, device->copy_stream, copy, source, true);
  CUstream on = cuda_stream_handle(stream);
  bool dense = source->buffer && copy->rows == 1; /* graphs can be pointed at no other copy */
  int status = dense ? copy_by_graph(device, on, copy, source) : 1;
  return status > 0 ? copy_plainly(device, on, copy, source, false) : status;
}

int cuda_stream_copy(struct gpu_device *gpu, cudalink_stream stream, void *target,
                     const void *source, uint64_t bytes) {
  struct cuda_device *device = cuda_of(gpu);
  struct gpu_copy copy = {.target = target, .source = source, .bytes = bytes, .rows = 1};
  struct cuda_source found;
  bool pushed;
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT)
    return error_set(CUDALINK_ERROR_STREAM, "an event was named; a copy needs a stream");
  if (!bytes) return CUDALINK_OK;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  status = cuda_source_find(device, source, &found);
  if (status == CUDALINK_OK) status = copy_on(device, stream, &copy, &found);
  cuda_leave_quickly(device, pushed);
  return status;
}

static int send(struct cuda_device *device, cudalink_stream stream, const struct gpu_copy *copy,
                bool check, bool *current) {
  struct cuda_source found = {0};
  bool pushed;
  int status = check ? cuda_stream_check_kind(stream) : CUDALINK_OK;
  if (status == CUDALINK_OK) status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  *current = !pushed;
  if (check) status = cuda_stream_check_state(device, stream);
  if (status == CUDALINK_OK && copy->bytes && copy->rows) {
    status = copy->array ? cuda_array_check(device, copy) : cuda_source_check(device, copy, &found);
    if (status == CUDALINK_OK) status = copy_on(device, stream, copy, &found);
  }
  cuda_leave_quickly(device, pushed);
  return status;
}

int cuda_stream_send(struct gpu_device *gpu, cudalink_stream stream, const struct gpu_copy *copy) {
  bool current;
  return send(cuda_of(gpu), stream, copy, false, &current);
}

int cuda_stream_check_send(struct gpu_device *gpu, cudalink_stream stream,
                           const struct gpu_copy *copy, bool *current) {
  return send(cuda_of(gpu), stream, copy, true, current);
}

/* Their graphs stay, to be pointed elsewhere. */
void cuda_copies_forget(struct cuda_device *device, CUdeviceptr target, uint64_t bytes) {
  pthread_mutex_lock(&device->mutex);
  for (uint32_t i = 0; i < device->copy_count; i++) {
    struct cuda_copy *place = &device->copies[i];
    if ((uintptr_t)place->target - target >= bytes) continue;
    place->target = NULL;
    place->source = NULL;
    place->bytes = place->buffer = place->used = 0;
  }
  pthread_mutex_unlock(&device->mutex);
}
