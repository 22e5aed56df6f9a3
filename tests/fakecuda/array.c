/* SPDX-License-Identifier: MIT
 *
 * CUDA arrays. Here they are linear; nothing outside the fake can tell.
 */
#include <stdlib.h>

#include "fake.h"

static size_t component_size(CUarray_format format) {
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
  case CU_AD_FORMAT_UNORM_INT8X1:
  case CU_AD_FORMAT_UNORM_INT8X2:
  case CU_AD_FORMAT_UNORM_INT8X4: return 1;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
  case CU_AD_FORMAT_UNORM_INT16X1:
  case CU_AD_FORMAT_UNORM_INT16X2:
  case CU_AD_FORMAT_UNORM_INT16X4: return 2;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT: return 4;
  case CU_AD_FORMAT_UNORM_INT_101010_2: return 1; /* four bytes, given as four channels */
  }
  return 0;
}

/* 0 = not a valid format or number of channels. */
size_t array_texel_size(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  unsigned channels = descriptor->NumChannels;
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  return component_size(descriptor->Format) * channels;
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  ENTER(cuArray3DCreate_v2);
  if (!out || !descriptor || !descriptor->Width || !array_texel_size(descriptor))
    return CUDA_ERROR_INVALID_VALUE;
  struct array *array = calloc(1, sizeof *array);
  if (!array) fake_abort("out of memory");
  array->descriptor = *descriptor;
  array->context = context_current();
  array->pitch = descriptor->Width * array_texel_size(descriptor);
  array->size = array->pitch * (descriptor->Height ? descriptor->Height : 1) *
                (descriptor->Depth ? descriptor->Depth : 1);
  array->owned = true;
  array->memory = calloc(1, array->size);
  if (!array->memory || !device_reserve_memory(array->context->device, array->size)) {
    free(array->memory);
    free(array);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  array->handle = handle_new(HANDLE_ARRAY, array);
  *out = array->handle;
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle) {
  ENTER(cuArray3DGetDescriptor_v2);
  struct array *array = handle_get(HANDLE_ARRAY, handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
  ENTER(cuArrayDestroy);
  struct array *array = handle_get(HANDLE_ARRAY, handle);
  if (!array || !array->owned) return CUDA_ERROR_INVALID_HANDLE;
  device_return_memory(array->context->device, array->size);
  handle_drop(handle);
  free(array->memory);
  free(array);
  return CUDA_SUCCESS;
}
