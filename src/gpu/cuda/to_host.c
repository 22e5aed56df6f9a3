/* SPDX-License-Identifier: MIT
 *
 * Reading a frame out as packed bytes in host memory, by the copy engine alone: a kernel would cost a
 * context switch of the whole GPU.
 *
 * Pinned memory is written straight. For plain memory, which the driver copies to piece by piece while
 * its caller waits, two pinned buffers take turns: one is filled by the GPU while the CPU empties the
 * other. A large copy is shared by as many streams as the importer asked for. The streams have no other
 * work, so no frame is held up by another consumer's event.
 */
#include <string.h>

#include "cudalink/format.h"
#include "gpu/cuda/cuda.h"

#define STAGING_BYTES ((uint64_t)4 << 20)   /* of each of the two buffers */
#define STAGING_LEAST ((uint64_t)256 << 10) /* below that the driver's own way is taken */
#define PART_LEAST ((uint64_t)64 << 10)     /* a stream is not worth less */
#define PART_ALIGNMENT 16

/* ---- one run on one stream ---------------------------------------------------------------------- */

/* Rows of `bytes` bytes, `stride` apart on the GPU, dense in host memory. */
struct run {
  CUdeviceptr source;
  uint64_t bytes, count, stride;
};

static CUresult copy_run(struct cuda_device *device, CUstream stream, const struct run *run,
                         char *out) {
  /* cuMemcpy2D wants a pitch of at least a row; a repeated (stride 0) row is copied one by one. */
  if (run->count == 1 || run->stride == run->bytes)
    return device->driver->cuMemcpyDtoHAsync(out, run->source, run->bytes * run->count, stream);
  if (run->stride > run->bytes) {
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = run->source,
                          .srcPitch = run->stride,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = run->bytes,
                          .WidthInBytes = run->bytes,
                          .Height = run->count};
    return device->driver->cuMemcpy2DAsync(&copy, stream);
  }
  CUresult result = CUDA_SUCCESS;
  for (uint64_t r = 0; r < run->count && result == CUDA_SUCCESS; r++)
    result = device->driver->cuMemcpyDtoHAsync(out + r * run->bytes, run->source + r * run->stride,
                                               run->bytes, stream);
  return result;
}

/* The first `bytes` of a dense run, or rows worth at least that; takes them off the run. */
static struct run split(struct run *run, uint64_t bytes) {
  struct run part = *run;
  if (run->count == 1 || !run->bytes) {
    part.bytes = bytes < run->bytes ? bytes : run->bytes;
    run->source += part.bytes;
    run->bytes -= part.bytes;
    return part;
  }
  part.count = (bytes + run->bytes - 1) / run->bytes;
  if (part.count > run->count) part.count = run->count;
  run->source += part.count * run->stride;
  run->count -= part.count;
  return part;
}

/* Shares the run among the streams. Each part but the last has `share` bytes or more, and `parts`
 * shares are at least the whole: there are no more parts than streams. */
static CUresult issue(struct cuda_device *device, struct run run, char *out) {
  struct cuda_host *host = &device->host;
  uint64_t total = run.bytes * run.count, parts = host->stream_count;
  if (total / PART_LEAST < parts) parts = total / PART_LEAST;
  if (parts <= 1) return copy_run(device, host->streams[0], &run, out);
  uint64_t share = (total / parts + PART_ALIGNMENT) / PART_ALIGNMENT * PART_ALIGNMENT;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t s = 0; run.bytes && run.count && result == CUDA_SUCCESS; s++) {
    struct run part = split(&run, share);
    result = copy_run(device, host->streams[s], &part, out);
    out += part.bytes * part.count;
  }
  return result;
}

/* The first stream comes behind all others. */
static CUresult join(struct cuda_device *device) {
  const struct cuda_driver *driver = device->driver;
  struct cuda_host *host = &device->host;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t s = 1; s < host->stream_count && result == CUDA_SUCCESS; s++) {
    result = driver->cuEventRecord(host->joins[s], host->streams[s]);
    if (result == CUDA_SUCCESS)
      result = driver->cuStreamWaitEvent(host->streams[0], host->joins[s], 0);
  }
  return result;
}

static CUresult join_and_record(struct cuda_device *device, CUevent event) {
  CUresult result = join(device);
  if (result != CUDA_SUCCESS) return result;
  return device->driver->cuEventRecord(event, device->host.streams[0]);
}

static CUresult finish_all(struct cuda_device *device) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t s = 0; s < device->host.stream_count; s++) {
    CUresult ended = device->driver->cuStreamSynchronize(device->host.streams[s]);
    if (result == CUDA_SUCCESS) result = ended;
  }
  return result;
}

/* ---- where the packed bytes go -------------------------------------------------------------------- */

/* Straight to `out`, or to the staging buffer whose turn it is and from there to `out`. */
struct sink {
  struct cuda_device *device;
  char *out;
  bool staged;
  uint32_t turn;
  uint64_t filled[2]; /* bytes in each staging buffer that `out` does not have yet */
};

/* What the GPU put into the buffer goes to `out`. */
static CUresult empty(struct sink *sink, uint32_t turn) {
  struct cuda_host *host = &sink->device->host;
  if (!sink->filled[turn]) return CUDA_SUCCESS;
  CUresult result = sink->device->driver->cuEventSynchronize(host->staged[turn]);
  if (result != CUDA_SUCCESS) return result;
  memcpy(sink->out, host->staging[turn], sink->filled[turn]);
  sink->out += sink->filled[turn];
  sink->filled[turn] = 0;
  return CUDA_SUCCESS;
}

/* The other buffer's turn, as soon as it is empty. */
static CUresult turn_over(struct sink *sink) {
  CUresult result = join_and_record(sink->device, sink->device->host.staged[sink->turn]);
  sink->turn ^= 1;
  return result == CUDA_SUCCESS ? empty(sink, sink->turn) : result;
}

static CUresult put_staged(struct sink *sink, struct run run) {
  CUresult result = CUDA_SUCCESS;
  while (run.bytes && run.count && result == CUDA_SUCCESS) {
    uint64_t *filled = &sink->filled[sink->turn], room = STAGING_BYTES - *filled;
    struct run part = run;
    if (run.count == 1)
      part = split(&run, room);
    else if (room >= run.bytes)
      part = split(&run, room / run.bytes * run.bytes); /* whole rows */
    else if (run.bytes <= STAGING_BYTES)
      part.count = 0;
    else { /* rows that are larger than a buffer */
      struct run row = run;
      row.count = 1;
      result = put_staged(sink, row);
      run.source += run.stride;
      run.count--;
      continue;
    }
    char *staging = sink->device->host.staging[sink->turn];
    if (part.count) result = issue(sink->device, part, staging + *filled);
    *filled += part.bytes * part.count;
    bool more = run.bytes && run.count;
    if (result == CUDA_SUCCESS && (more || *filled == STAGING_BYTES)) result = turn_over(sink);
  }
  return result;
}

static CUresult put(struct sink *sink, struct run run) {
  if (run.stride == run.bytes) {
    run.bytes *= run.count;
    run.count = 1;
  }
  if (sink->staged) return put_staged(sink, run);
  CUresult result = issue(sink->device, run, sink->out);
  sink->out += run.bytes * run.count;
  return result;
}

static CUresult drain(struct sink *sink) {
  CUresult result = turn_over(sink);
  if (result == CUDA_SUCCESS) result = empty(sink, sink->turn ^ 1);
  return result;
}

/* ---- a frame as runs -------------------------------------------------------------------------------- */

/* The widest run of a plane that is dense, repeated; `outer` dimensions are left of it. Planes with
 * more than one stride between dense runs are copied slice by slice. */
static struct run find_run(const cudalink_plane *plane, uint32_t *outer) {
  uint64_t element = (uint64_t)plane->dtype.bits * plane->dtype.lanes; /* bits */
  uint64_t dense = element;
  uint32_t d = plane->dimensions;
  while (d > 0) {
    uint64_t stride = (uint64_t)plane->strides[d - 1] * 8;
    bool sub_byte = element < 8 && d == plane->dimensions;
    if (plane->shape[d - 1] != 1 && !sub_byte && stride != dense) break;
    dense *= (uint64_t)plane->shape[d - 1];
    d--;
  }
  struct run run = {.bytes = (dense + 7) / 8, .count = 1, .stride = (dense + 7) / 8};
  if (d > 0) {
    run.count = (uint64_t)plane->shape[d - 1];
    run.stride = (uint64_t)plane->strides[d - 1];
    d--;
  }
  *outer = d;
  return run;
}

/* Copies plane by plane, walking the dimensions left of the run. */
static CUresult put_plane(struct sink *sink, const cudalink_plane *plane, CUdeviceptr source) {
  uint32_t outer;
  struct run run = find_run(plane, &outer);
  uint64_t slices = 1;
  for (uint32_t d = 0; d < outer; d++)
    slices *= (uint64_t)plane->shape[d];
  CUresult result = CUDA_SUCCESS;
  for (uint64_t i = 0; i < slices && run.bytes && run.count && result == CUDA_SUCCESS; i++) {
    uint64_t rest = i, offset = 0;
    for (uint32_t d = outer; d > 0; d--) {
      offset += rest % (uint64_t)plane->shape[d - 1] * (uint64_t)plane->strides[d - 1];
      rest /= (uint64_t)plane->shape[d - 1];
    }
    run.source = source + plane->offset + offset;
    result = put(sink, run);
  }
  return result;
}

static CUresult put_frame(struct sink *sink, const cudalink_description *description,
                          const void *source) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t p = 0; p < description->plane_count && result == CUDA_SUCCESS; p++)
    result = put_plane(sink, &description->planes[p], (CUdeviceptr)(uintptr_t)source);
  return result;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

/* Pinned memory is freed when the device is closed, not before: to free it waits for the whole GPU. */
static int pin(struct cuda_device *device, uint64_t bytes, void **pinned) {
  CUresult result = device->driver->cuMemHostAlloc(pinned, bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
  *pinned = NULL;
  return cuda_error(device->driver, result, "pinning host memory");
}

static int pin_staging(struct cuda_device *device) {
  struct cuda_host *host = &device->host;
  int status = CUDALINK_OK;
  for (uint32_t i = 0; i < 2 && status == CUDALINK_OK; i++)
    if (!host->staging[i]) status = pin(device, STAGING_BYTES, &host->staging[i]);
  return status;
}

/* By powers of two, so that all that were outgrown are not larger than the one in use. */
static int grow(struct cuda_device *device, struct cuda_host_copy *copy, uint64_t bytes) {
  uint64_t size = STAGING_LEAST;
  void *pinned;
  if (bytes <= copy->bytes) return CUDALINK_OK;
  while (size < bytes)
    size *= 2;
  int status = pin(device, size, &pinned);
  if (status < 0) return status;
  if (copy->pinned) device->host.outgrown[device->host.outgrown_count++] = copy->pinned;
  copy->pinned = pinned;
  copy->bytes = size;
  return CUDALINK_OK;
}

int cuda_host_prepare(struct gpu_device *gpu, uint32_t streams) {
  struct cuda_device *device = cuda_of(gpu);
  const struct cuda_driver *driver = device->driver;
  struct cuda_host *host = &device->host;
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t s = host->stream_count; s < streams && result == CUDA_SUCCESS; s++) {
    result = driver->cuStreamCreate(&host->streams[s], CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
      result = driver->cuEventCreate(&host->joins[s], CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) host->stream_count++;
  }
  for (uint32_t i = 0; i < CUDA_HOST_COPIES && result == CUDA_SUCCESS && !host->copies[i].done; i++)
    result = driver->cuEventCreate(&host->copies[i].done, CU_EVENT_DISABLE_TIMING);
  for (uint32_t i = 0; i < 2 && result == CUDA_SUCCESS && !host->staged[i]; i++)
    result = driver->cuEventCreate(&host->staged[i], CU_EVENT_DISABLE_TIMING);
  cuda_leave(device, mode);
  return cuda_error(driver, result, "making streams for copies to host memory");
}

/* With the context current. */
void cuda_host_clear(struct cuda_device *device) {
  const struct cuda_driver *driver = device->driver;
  struct cuda_host *host = &device->host;
  for (uint32_t s = 0; s < CUDA_HOST_STREAMS; s++) {
    if (host->streams[s]) driver->cuStreamDestroy(host->streams[s]);
    if (host->joins[s]) driver->cuEventDestroy(host->joins[s]);
  }
  for (uint32_t i = 0; i < CUDA_HOST_COPIES; i++) {
    if (host->copies[i].done) driver->cuEventDestroy(host->copies[i].done);
    if (host->copies[i].pinned) driver->cuMemFreeHost(host->copies[i].pinned);
  }
  for (uint32_t i = 0; i < 2; i++) {
    if (host->staged[i]) driver->cuEventDestroy(host->staged[i]);
    if (host->staging[i]) driver->cuMemFreeHost(host->staging[i]);
  }
  for (uint32_t i = 0; i < host->outgrown_count; i++)
    driver->cuMemFreeHost(host->outgrown[i]);
}

/* ---- the operations ----------------------------------------------------------------------------------- */

static int check_out(struct cuda_device *device, const cudalink_description *description,
                     const void *out, uint64_t size, uint64_t *needed, bool *pinned) {
  struct cuda_source found;
  bool pushed;
  int status = cudalink_packed_bytes(description, needed);
  if (status < 0) return status;
  if (size < *needed)
    return error_set(CUDALINK_ERROR_TOO_LARGE,
                     "the frame has %llu packed bytes, the buffer %llu; give one that holds them",
                     (unsigned long long)*needed, (unsigned long long)size);
  status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  status = cuda_source_find(device, out, &found);
  cuda_leave_quickly(device, pushed);
  if (status < 0) return status;
  *pinned = found.type != 0;
  if (found.type != CU_MEMORYTYPE_DEVICE || found.managed) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "the buffer 0x%llx is memory of GPU %d; host memory was expected",
                   (unsigned long long)(uintptr_t)out, found.ordinal);
}

/* Under the mutex of the host copies, with the context current. */
static int pack(struct cuda_device *device, const cudalink_description *description,
                const void *source, void *out, bool staged) {
  struct sink sink = {.device = device, .out = out, .staged = staged};
  int status = staged ? pin_staging(device) : CUDALINK_OK;
  if (status < 0) return status;
  CUresult result = put_frame(&sink, description, source);
  if (result == CUDA_SUCCESS && staged) result = drain(&sink);
  /* Also after a failure: nothing may write to `out` any more once this has returned. */
  CUresult end = finish_all(device);
  return cuda_error(device->driver, result == CUDA_SUCCESS ? end : result,
                    "copying a frame to host memory");
}

/* Under the mutex. A device that nobody has prepared: its copies would run on the default stream, and nobody
 * would wait for them. */
static int have_streams(struct cuda_device *device) {
  return device->host.stream_count ? CUDALINK_OK : cuda_host_prepare(&device->gpu, 1);
}

int cuda_pack_to_host(struct gpu_device *gpu, const cudalink_description *description,
                      const void *source, void *out, uint64_t size) {
  struct cuda_device *device = cuda_of(gpu);
  uint64_t needed;
  bool pinned;
  int status = check_out(device, description, out, size, &needed, &pinned);
  if (status < 0) return status;
  CUstreamCaptureMode mode;
  status = cuda_enter(device, &mode);
  if (status < 0) return status;
  pthread_mutex_lock(&device->host.mutex);
  status = have_streams(device);
  if (status == CUDALINK_OK)
    status = pack(device, description, source, out, !pinned && needed >= STAGING_LEAST);
  pthread_mutex_unlock(&device->host.mutex);
  cuda_leave(device, mode);
  return status;
}

static int begin(struct cuda_device *device, struct cuda_host_copy *copy,
                 const cudalink_description *description, const void *source, void **out,
                 uint64_t needed) {
  int status = *out ? CUDALINK_OK : grow(device, copy, needed);
  if (status < 0) return status;
  if (!*out) *out = copy->pinned;
  struct sink sink = {.device = device, .out = *out};
  CUresult result = put_frame(&sink, description, source);
  if (result == CUDA_SUCCESS) result = join_and_record(device, copy->done);
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
  finish_all(device); /* nothing writes to `out` any more */
  return cuda_error(device->driver, result, "copying a frame to host memory");
}

int cuda_host_begin(struct gpu_device *gpu, uint32_t which, const cudalink_description *description,
                    const void *source, void **out, uint64_t *size, cudalink_stream *behind) {
  struct cuda_device *device = cuda_of(gpu);
  uint64_t needed;
  bool pinned = true;
  int status = *out ? check_out(device, description, *out, *size, &needed, &pinned)
                    : cudalink_packed_bytes(description, &needed);
  if (status < 0) return status;
  if (!pinned)
    return error_set(
        CUDALINK_ERROR_INVALID_ARGUMENT,
        "the buffer 0x%llx is plain host memory; a copy that goes on in the background "
        "needs pinned memory, or NULL for memory of the library's own",
        (unsigned long long)(uintptr_t)*out);
  CUstreamCaptureMode mode;
  status = cuda_enter(device, &mode);
  if (status < 0) return status;
  pthread_mutex_lock(&device->host.mutex);
  status = have_streams(device);
  if (status == CUDALINK_OK)
    status = begin(device, &device->host.copies[which], description, source, out, needed);
  pthread_mutex_unlock(&device->host.mutex);
  cuda_leave(device, mode);
  *behind = CUDALINK_STREAM_HANDLE(device->host.streams[0]);
  *size = needed;
  return status;
}

int cuda_host_finish(struct gpu_device *gpu, uint32_t which) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  int status = cuda_enter(device, &mode);
  if (status < 0) return status;
  CUresult result = device->driver->cuEventSynchronize(device->host.copies[which].done);
  cuda_leave(device, mode);
  return cuda_error(device->driver, result, "waiting for a copy to host memory");
}
