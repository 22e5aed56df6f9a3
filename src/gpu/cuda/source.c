/* SPDX-License-Identifier: MIT
 *
 * What a pointer of the program's is, asked of the driver for each copy: an address that was freed may
 * have been given out again meanwhile, so nothing is remembered. All at once: seven answers took 43 ns, two 28,
 * and one alone 350 (H200, driver 580).
 */
#include <string.h>

#include "gpu/cuda/cuda.h"

int cuda_source_find(struct cuda_device *device, const void *address, struct cuda_source *found) {
  *found = (struct cuda_source){.ordinal = -1};
  unsigned long long buffer = 0;
  unsigned int has_legacy_handle = 0; /* as neither mapped memory has, nor that of pools */
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void *values[] = {&found->type,  &buffer,       &found->managed,   &found->ordinal,
                    &found->start, &found->bytes, &has_legacy_handle};
  CUresult result = device->driver->cuPointerGetAttributes(
      sizeof attributes / sizeof *attributes, attributes, values, (CUdeviceptr)(uintptr_t)address);
  if (result != CUDA_SUCCESS)
    return cuda_error(device->driver, result, "asking what kind of memory the source is");
  if (found->type == CU_MEMORYTYPE_DEVICE && !found->managed && found->ordinal == device->device)
    found->buffer = buffer;
  found->mapped = !has_legacy_handle;
  return CUDALINK_OK;
}

static uint64_t extent_of(const struct gpu_copy *copy) {
  return copy->bytes + (copy->rows - 1) * (copy->rows > 1 ? copy->source_stride : 0);
}

/* Memory that is mapped in pieces counts as one. */
static int check_size(struct cuda_device *device, const struct gpu_copy *copy,
                      const struct cuda_source *first) {
  uintptr_t at = (uintptr_t)copy->source;
  uint64_t extent = extent_of(copy), there = 0;
  struct cuda_source piece = *first;
  while (piece.type && piece.bytes && there < extent) {
    there = piece.start + piece.bytes - at;
    if (there >= extent) return CUDALINK_OK;
    int status = cuda_source_find(device, (const void *)(at + there), &piece);
    if (status < 0) return status;
  }
  if (!first->bytes) return CUDALINK_OK; /* the driver does not tell */
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "the source 0x%llx has %llu byte%s from there on, the frame takes %llu; send an "
                   "array of the frame's size",
                   (unsigned long long)at, (unsigned long long)there, error_s(there),
                   (unsigned long long)extent);
}

/* Memory that the driver does not know: the program's own, or what was freed. */
static int check_unknown(const struct cuda_device *device, const struct gpu_copy *copy) {
  uint64_t extent = extent_of(copy);
  bool readable = os_memory_readable(copy->source, extent);
  if (readable && !copy->strict) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "the source 0x%llx (%llu byte%s) is %s; memory of GPU %d was expected",
                   (unsigned long long)(uintptr_t)copy->source, (unsigned long long)extent,
                   error_s(extent),
                   readable ? "plain host memory, and strict_device is on"
                            : "no memory that the GPU or this process can read: was it freed?",
                   (int)device->device);
}

static int check_strict(const struct cuda_device *device, const struct gpu_copy *copy,
                        const struct cuda_source *found) {
  unsigned long long address = (uintptr_t)copy->source;
  if (found->managed) return CUDALINK_OK;
  if (found->type == CU_MEMORYTYPE_HOST)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "the source 0x%llx is pinned host memory, and strict_device is on; memory of "
                     "GPU %d was expected",
                     address, (int)device->device);
  if (found->ordinal == device->device) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "the source 0x%llx is on GPU %d, but the frames are on GPU %d, and "
                   "strict_device is on",
                   address, found->ordinal, (int)device->device);
}

int cuda_source_closed(const struct cuda_device *device, const void *address, int ordinal) {
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "the source 0x%llx is on GPU %d and was not opened to GPU %d, where the frames "
                   "are: cuMemSetAccess or cuMemPoolSetAccess for it, or send a copy",
                   (unsigned long long)(uintptr_t)address, ordinal, (int)device->device);
}

/* Memory of another GPU's that was mapped in pieces is open to those GPUs alone that the program named: a
 * copy on any other was seen to end the context. Of memory that is not mapped so the driver says the same, no
 * access, and copies it. */
static int check_access(struct cuda_device *device, const struct gpu_copy *copy,
                        const struct cuda_source *found) {
  const struct cuda_driver *driver = device->driver;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device->device};
  CUmemGenericAllocationHandle handle;
  unsigned long long access = 0;
  if (found->managed || found->type != CU_MEMORYTYPE_DEVICE || found->ordinal == device->device)
    return CUDALINK_OK;
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)copy->source;
  if (driver->cuMemGetAccess(&access, &here, address) != CUDA_SUCCESS || access) return CUDALINK_OK;
  if (driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)copy->source) != CUDA_SUCCESS)
    return CUDALINK_OK;
  driver->cuMemRelease(handle);
  return cuda_source_closed(device, copy->source, found->ordinal);
}

int cuda_source_check(struct cuda_device *device, const struct gpu_copy *copy,
                      struct cuda_source *found) {
  int status = cuda_source_find(device, copy->source, found);
  if (status < 0) return status;
  if (!found->type) return check_unknown(device, copy);
  if (copy->strict) status = check_strict(device, copy, found);
  if (status == CUDALINK_OK) status = check_access(device, copy, found);
  return status < 0 ? status : check_size(device, copy, found);
}

static uint32_t element_bytes(CUarray_format format) {
  switch ((int)format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8: return 1;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF: return 2;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT: return 4;
  default: return 0; /* one of those whose number holds all channels: the driver checks the width */
  }
}

/* A handle is followed by the driver: one that is no array is the program's fault, as any handle. */
int cuda_array_check(struct cuda_device *device, const struct gpu_copy *copy) {
  CUDA_ARRAY3D_DESCRIPTOR array;
  CUresult result = device->driver->cuArray3DGetDescriptor(&array, (CUarray)(uintptr_t)copy->array);
  if (result != CUDA_SUCCESS)
    return cuda_error(device->driver, result, "looking at the array that is to be sent");
  uint64_t bytes = (uint64_t)array.Width * array.NumChannels * element_bytes(array.Format);
  uint64_t rows = array.Height ? array.Height : 1;
  if ((!bytes || copy->bytes <= bytes) && copy->rows <= rows) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "the array has %llu row%s of %llu byte%s, the plane takes %llu of %llu",
                   (unsigned long long)rows, error_s(rows), (unsigned long long)bytes,
                   error_s(bytes), (unsigned long long)copy->rows, (unsigned long long)copy->bytes);
}
