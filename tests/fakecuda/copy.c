/* SPDX-License-Identifier: MIT
 *
 * Copies and fills. Every copy becomes one three-dimensional copy; memory that CUDA does not know
 * ("pageable") makes an asynchronous one behave as CUDA documents it.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* ---- From the parameters to an operation ---- */

struct side {
  CUmemorytype type;
  uintptr_t address;
  CUarray array;
  size_t x, y, z, pitch, height;
};

static CUresult array_side(const struct side *in, size_t width, struct copy_side *out,
                           size_t *limit) {
  struct array *array = handle_get(HANDLE_ARRAY, in->array);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (in->x + width > array->pitch) return CUDA_ERROR_INVALID_VALUE;
  out->pitch = array->pitch;
  out->height = array->descriptor.Height ? array->descriptor.Height : 1;
  out->base = array->memory + (in->z * out->height + in->y) * out->pitch + in->x;
  out->pageable = false;
  *limit = array->size - (size_t)(out->base - array->memory);
  return CUDA_SUCCESS;
}

static CUresult linear_side(const struct side *in, size_t width, size_t extent,
                            struct copy_side *out) {
  bool host = in->type == CU_MEMORYTYPE_HOST || in->type == CU_MEMORYTYPE_UNIFIED;
  if (!in->address) return CUDA_ERROR_INVALID_VALUE;
  out->pitch = in->pitch ? in->pitch : in->x + width;
  out->height = in->height ? in->height : 1;
  uintptr_t start = in->address + (in->z * out->height + in->y) * out->pitch + in->x;
  struct block *block;
  CUresult result = block_check(start, extent, host, &block);
  if (result != CUDA_SUCCESS) return result;
  out->base = (unsigned char *)start;
  out->pageable = block == NULL;
  return CUDA_SUCCESS;
}

/* Bytes from the first to the last one that the copy touches on this side. */
static size_t extent_of(size_t pitch, size_t rows_per_slice, size_t width, size_t height,
                        size_t depth) {
  return ((depth - 1) * rows_per_slice + height - 1) * pitch + width;
}

static CUresult make_side(const struct side *in, const struct copy *copy, struct copy_side *out,
                          size_t *extent) {
  size_t pitch = in->pitch ? in->pitch : in->x + copy->width;
  size_t rows = in->height ? in->height : copy->height;
  if (in->type == CU_MEMORYTYPE_ARRAY) {
    size_t limit;
    CUresult result = array_side(in, copy->width, out, &limit);
    if (result != CUDA_SUCCESS) return result;
    *extent = extent_of(out->pitch, out->height, copy->width, copy->height, copy->depth);
    return *extent <= limit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (copy->height * copy->depth > 1 && pitch < in->x + copy->width)
    return CUDA_ERROR_INVALID_VALUE;
  if (copy->depth > 1 && rows < copy->height) return CUDA_ERROR_INVALID_VALUE;
  struct side given = *in;
  given.height = rows;
  *extent = extent_of(pitch, rows, copy->width, copy->height, copy->depth);
  return linear_side(&given, copy->width, *extent, out);
}

CUresult copy_operation(const CUDA_MEMCPY3D *params, struct operation **out) {
  struct copy copy = {
      .width = params->WidthInBytes, .height = params->Height, .depth = params->Depth};
  if (!copy.width || !copy.height || !copy.depth) {
    *out = operation_new(OPERATION_NOTHING);
    return CUDA_SUCCESS;
  }
  struct side from = {params->srcMemoryType,
                      params->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)params->srcHost
                                                                  : (uintptr_t)params->srcDevice,
                      params->srcArray,
                      params->srcXInBytes,
                      params->srcY,
                      params->srcZ,
                      params->srcPitch,
                      params->srcHeight};
  struct side to = {params->dstMemoryType,
                    params->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)params->dstHost
                                                                : (uintptr_t)params->dstDevice,
                    params->dstArray,
                    params->dstXInBytes,
                    params->dstY,
                    params->dstZ,
                    params->dstPitch,
                    params->dstHeight};
  size_t from_extent, to_extent;
  CUresult result = make_side(&from, &copy, &copy.from, &from_extent);
  if (result == CUDA_SUCCESS) result = make_side(&to, &copy, &copy.to, &to_extent);
  if (result != CUDA_SUCCESS) return result;
  *out = operation_new(OPERATION_COPY);
  (*out)->copy = copy;
  operation_use(*out, (uintptr_t)copy.from.base, from_extent, false);
  operation_use(*out, (uintptr_t)copy.to.base, to_extent, true);
  return CUDA_SUCCESS;
}

CUresult fill_operation(CUdeviceptr to, size_t pitch, unsigned value, unsigned element,
                        size_t width, size_t height, struct operation **out) {
  if (to % element || pitch % element || (height > 1 && pitch < width * element))
    return CUDA_ERROR_INVALID_VALUE;
  if (!width || !height) {
    *out = operation_new(OPERATION_NOTHING);
    return CUDA_SUCCESS;
  }
  size_t extent = (height - 1) * pitch + width * element;
  CUresult result = block_check((uintptr_t)to, extent, false, NULL);
  if (result != CUDA_SUCCESS) return result;
  *out = operation_new(OPERATION_FILL);
  (*out)->fill =
      (struct fill){(unsigned char *)(uintptr_t)to, pitch, width, height, value, element};
  operation_use(*out, (uintptr_t)to, extent, true);
  return CUDA_SUCCESS;
}

/* ---- Queueing ---- */

/* From pageable memory: the driver takes the bytes before the call returns. */
static void stage(struct operation *operation) {
  struct copy *copy = &operation->copy;
  size_t row = copy->width;
  operation->owned_size = row * copy->height * copy->depth;
  unsigned char *staging = malloc(operation->owned_size);
  if (!staging) fake_abort("out of memory");
  for (size_t z = 0; z < copy->depth; z++)
    for (size_t y = 0; y < copy->height; y++)
      memcpy(staging + (z * copy->height + y) * row,
             copy->from.base + (z * copy->from.height + y) * copy->from.pitch, row);
  operation->owned = staging;
  copy->from = (struct copy_side){staging, row, copy->height, false};
  operation->uses[0] = (struct use){(uintptr_t)staging, operation->owned_size, false};
}

/* Another GPU's memory out of a pool, or mapped in pieces, that was not opened to this one. */
static bool is_closed(const struct copy_side *from) {
  const struct block *block = block_find((uintptr_t)from->base);
  int here = context_current()->device;
  if (!block || block->device == here) return false;
  return block->kind == BLOCK_ASYNC || !block_allows((uintptr_t)from->base, here, false);
}

static CUresult queue_copy(CUstream handle, const CUDA_MEMCPY3D *params, bool synchronous) {
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  struct operation *operation;
  if (result == CUDA_SUCCESS) result = copy_operation(params, &operation);
  if (result != CUDA_SUCCESS) return result;
  bool copies = operation->kind == OPERATION_COPY;
  if (copies && is_closed(&operation->copy.from)) {
    operation_free(operation);
    return CUDA_ERROR_INVALID_VALUE;
  }
  /* To pageable memory: the call returns when the copy is done. */
  bool waits = copies && operation->copy.to.pageable && !stream->capture;
  if (copies && operation->copy.from.pageable && !stream->capture) stage(operation);
  if (waits && !synchronous) entry_blocks("copies to pageable memory, which blocks");
  result = stream_queue(stream, operation);
  if (result != CUDA_SUCCESS || !(waits || synchronous)) return result;
  return stream_wait_for(stream, fake.sequence);
}

static CUDA_MEMCPY3D linear(CUmemorytype to_type, uintptr_t to, CUmemorytype from_type,
                            uintptr_t from, size_t size) {
  CUDA_MEMCPY3D copy;
  memset(&copy, 0, sizeof copy);
  copy.dstMemoryType = to_type;
  copy.dstHost = (void *)to;
  copy.dstDevice = to;
  copy.srcMemoryType = from_type;
  copy.srcHost = (const void *)from;
  copy.srcDevice = from;
  copy.WidthInBytes = size;
  copy.Height = copy.Depth = 1;
  return copy;
}

static CUresult copy_linear(CUstream stream, CUmemorytype to_type, uintptr_t to,
                            CUmemorytype from_type, uintptr_t from, size_t size, bool synchronous) {
  CUDA_MEMCPY3D copy = linear(to_type, to, from_type, from, size);
  return queue_copy(stream, &copy, synchronous);
}

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *in) {
  CUDA_MEMCPY3D copy;
  memset(&copy, 0, sizeof copy);
  copy.srcXInBytes = in->srcXInBytes;
  copy.srcY = in->srcY;
  copy.srcMemoryType = in->srcMemoryType;
  copy.srcHost = in->srcHost;
  copy.srcDevice = in->srcDevice;
  copy.srcArray = in->srcArray;
  copy.srcPitch = in->srcPitch;
  copy.dstXInBytes = in->dstXInBytes;
  copy.dstY = in->dstY;
  copy.dstMemoryType = in->dstMemoryType;
  copy.dstHost = in->dstHost;
  copy.dstDevice = in->dstDevice;
  copy.dstArray = in->dstArray;
  copy.dstPitch = in->dstPitch;
  copy.WidthInBytes = in->WidthInBytes;
  copy.Height = in->Height;
  copy.Depth = 1;
  return copy;
}

/* ---- Entry points ---- */

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpy);
  return copy_linear(NULL, UNIFIED, to, UNIFIED, from, size, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(cuMemcpyAsync);
  return copy_linear(stream, UNIFIED, to, UNIFIED, from, size, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  ENTER(cuMemcpyHtoD_v2);
  return copy_linear(NULL, DEVICE, to, HOST, (uintptr_t)from, size, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpyDtoH_v2);
  return copy_linear(NULL, HOST, (uintptr_t)to, DEVICE, from, size, true);
}

/* Not synchronous with the host, as CUDA documents it. */
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpyDtoD_v2);
  return copy_linear(NULL, DEVICE, to, DEVICE, from, size, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  return copy_linear(stream, DEVICE, to, HOST, (uintptr_t)from, size, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  return copy_linear(stream, HOST, (uintptr_t)to, DEVICE, from, size, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  return copy_linear(stream, DEVICE, to, DEVICE, from, size, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t size, CUstream stream) {
  ENTER(cuMemcpyPeerAsync);
  if (!handle_get(HANDLE_CONTEXT, to_context) || !handle_get(HANDLE_CONTEXT, from_context))
    return CUDA_ERROR_INVALID_CONTEXT;
  return copy_linear(stream, DEVICE, to, DEVICE, from, size, false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *in) {
  ENTER(cuMemcpy2D_v2);
  CUDA_MEMCPY3D copy = from_2d(in);
  return queue_copy(NULL, &copy, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *in, CUstream stream) {
  ENTER(cuMemcpy2DAsync_v2);
  CUDA_MEMCPY3D copy = from_2d(in);
  return queue_copy(stream, &copy, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) {
  ENTER(cuMemcpy3D_v2);
  return queue_copy(NULL, copy, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
  ENTER(cuMemcpy3DAsync_v2);
  return queue_copy(stream, copy, false);
}

static CUresult queue_fill(CUstream handle, CUdeviceptr to, size_t pitch, unsigned value,
                           unsigned element, size_t width, size_t height) {
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  struct operation *operation;
  if (result == CUDA_SUCCESS)
    result = fill_operation(to, pitch, value, element, width, height, &operation);
  return result == CUDA_SUCCESS ? stream_queue(stream, operation) : result;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  ENTER(cuMemsetD8_v2);
  CUresult result = queue_fill(NULL, to, 0, value, 1, count, 1);
  return result == CUDA_SUCCESS ? stream_drain(stream_legacy(context_current())) : result;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  ENTER(cuMemsetD8Async);
  return queue_fill(stream, to, 0, value, 1, count, 1);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  ENTER(cuMemsetD16Async);
  return queue_fill(stream, to, 0, value, 2, count, 1);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  ENTER(cuMemsetD32Async);
  return queue_fill(stream, to, 0, value, 4, count, 1);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  ENTER(cuMemsetD2D8Async);
  return queue_fill(stream, to, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  ENTER(cuMemsetD2D32Async);
  return queue_fill(stream, to, pitch, value, 4, width, height);
}
