/* SPDX-License-Identifier: MIT
 *
 * Somebody's tensor as a view. Whoever made it may be wrong about any of it, so every number is
 * checked, and for GPU memory the driver is asked.
 */
#include "base/error.h"
#include "gpu/gpu.h"
#include "interop/describe.h"
#include "interop/dlpack/view.h"

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED CUDALINK_ERROR_UNSUPPORTED
#define OPAQUE_HANDLE 3 /* a type code that says nothing */
#define KNOWN_FLAGS (CUDALINK_DLPACK_READ_ONLY | CUDALINK_DLPACK_IS_COPIED | CUDALINK_DLPACK_PADDED)

const char *cudalink_dlpack_device_name(int32_t type) {
  static const char *const names[] = {
      [1] = "CPU",        [2] = "CUDA",     [3] = "CUDA host",     [4] = "OpenCL",
      [7] = "Vulkan",     [8] = "Metal",    [9] = "VPI",           [10] = "ROCm",
      [11] = "ROCm host", [12] = "ext dev", [13] = "CUDA managed", [14] = "oneAPI",
      [15] = "WebGPU",    [16] = "Hexagon", [17] = "MAIA",         [18] = "Trainium",
  };
  bool known = type >= 0 && (size_t)type < sizeof names / sizeof names[0] && names[type];
  return known ? names[type] : "unknown";
}

static int check_type(cudalink_dtype dtype) {
  if (dtype.code == OPAQUE_HANDLE)
    return error_set(
        UNSUPPORTED,
        "tensor: its elements are opaque handles (a CUDA array, a texture?); hand over "
        "a linear copy");
  if (describe_dtype_is_legal(dtype)) return CUDALINK_OK;
  return error_set(UNSUPPORTED, "tensor: there is no type of code %u with %u bit%s and %u lane%s",
                   dtype.code, dtype.bits, error_s(dtype.bits), dtype.lanes, error_s(dtype.lanes));
}

static int check_device(cudalink_dlpack_device device) {
  switch (device.type) {
  case CUDALINK_DLPACK_CPU:
  case CUDALINK_DLPACK_CUDA:
  case CUDALINK_DLPACK_CUDA_HOST:
  case CUDALINK_DLPACK_CUDA_MANAGED: return CUDALINK_OK;
  default:
    return error_set(
        UNSUPPORTED,
        "tensor: it is on a device of type %d (%s); only CPU, CUDA, CUDA host and CUDA "
        "managed memory can be taken",
        device.type, cudalink_dlpack_device_name(device.type));
  }
}

static int check_shape(const cudalink_dlpack_tensor *tensor) {
  if (tensor->dimensions < 0)
    return error_set(INVALID, "tensor: %d dimensions", tensor->dimensions);
  if (tensor->dimensions > CUDALINK_MAX_DIMENSIONS)
    return error_set(UNSUPPORTED, "tensor: %d dimensions, %d is most", tensor->dimensions,
                     CUDALINK_MAX_DIMENSIONS);
  if (tensor->dimensions > 0 && !tensor->shape)
    return error_set(INVALID, "tensor: %d dimension%s, but shape is NULL", tensor->dimensions,
                     error_s((uint64_t)tensor->dimensions));
  for (int32_t k = 0; k < tensor->dimensions; k++)
    if (tensor->shape[k] < 0)
      return error_set(INVALID, "tensor: shape[%d] is %lld", k, (long long)tensor->shape[k]);
  return CUDALINK_OK;
}

static int check(const cudalink_dlpack_tensor *tensor) {
  int status = check_shape(tensor);
  if (status == CUDALINK_OK) status = check_type(tensor->dtype);
  if (status == CUDALINK_OK) status = check_device(tensor->device);
  return status;
}

static int too_large(void) {
  return error_set(INVALID, "tensor: shape and strides reach beyond what can be addressed");
}

/* Strides of a dimension that says where elements are; others mean nothing, whatever they say. */
static int take_stride(cudalink_view *view, uint32_t k, int64_t stride) {
  bool packed = view_is_packed(view);
  int64_t bits, each = view_element_bits(view->dtype);
  if (packed && k == view->dimensions - 1) {
    if (stride == 1) return CUDALINK_OK;
    return error_set(UNSUPPORTED,
                     "tensor: elements of %u bit%s with stride %lld in the last dimension; they "
                     "must lie side by side",
                     view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)),
                     (long long)stride);
  }
  if (!packed)
    return __builtin_mul_overflow(stride, (int64_t)view_element_bytes(view->dtype),
                                  &view->strides[k])
               ? too_large()
               : CUDALINK_OK;
  if (__builtin_mul_overflow(stride, each, &bits)) return too_large();
  if (bits % 8)
    return error_set(UNSUPPORTED,
                     "tensor: elements of %u bit%s with strides[%u] of %lld; a row must begin at a "
                     "whole byte",
                     view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)), k,
                     (long long)stride);
  view->strides[k] = bits / 8;
  return CUDALINK_OK;
}

/* Row-major without gaps, not even one of bits between rows. */
static int fill_strides(cudalink_view *view) {
  int64_t total;
  if (!view_fill_strides(view, &total)) return too_large();
  if (!view_is_packed(view) || cudalink_view_is_dense(view)) return CUDALINK_OK;
  return error_set(UNSUPPORTED,
                   "tensor: rows of %lld element%s of %u bit%s without gaps; a row must begin at a "
                   "whole byte",
                   (long long)view->shape[view->dimensions - 1],
                   error_s((uint64_t)view->shape[view->dimensions - 1]),
                   view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)));
}

static int take_strides(cudalink_view *view, const int64_t *strides) {
  if (!strides) return fill_strides(view);
  bool empty = view_is_empty(view);
  int status = CUDALINK_OK;
  for (uint32_t k = 0; k < view->dimensions && status == CUDALINK_OK; k++) {
    view->strides[k] = 0;
    if (!empty && view->shape[k] > 1) {
      status = take_stride(view, k, strides[k]);
    } else if (!view_is_packed(view)) { /* kept as it is, so that it goes out as it came in */
      int64_t bytes = view_element_bytes(view->dtype);
      if (__builtin_mul_overflow(strides[k], bytes, &view->strides[k])) view->strides[k] = 0;
    }
  }
  return status;
}

static int take_data(cudalink_view *view, const cudalink_dlpack_tensor *tensor) {
  uintptr_t data;
  if (view_is_empty(view)) return CUDALINK_OK; /* NULL or not means nothing */
  if (!tensor->data) return error_set(INVALID, "tensor: it has elements, but data is NULL");
  if (__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &data))
    return too_large();
  view->data = (void *)data;
  return CUDALINK_OK;
}

/* Libraries number GPUs as they like, and call managed memory what they like. */
static int find_device(cudalink_view *view) {
  bool asked = view->device.type == CUDALINK_DLPACK_CUDA ||
               view->device.type == CUDALINK_DLPACK_CUDA_MANAGED;
  if (!asked || !view->data) return CUDALINK_OK;
  struct gpu_place place;
  int status = gpu_cuda_locate(view->data, &place);
  if (status < 0) return status;
  switch (place.kind) {
  case GPU_PLACE_DEVICE:
    view->device = (cudalink_dlpack_device){CUDALINK_DLPACK_CUDA, place.ordinal};
    return CUDALINK_OK;
  case GPU_PLACE_MANAGED:
    view->device = (cudalink_dlpack_device){CUDALINK_DLPACK_CUDA_MANAGED, 0};
    return CUDALINK_OK;
  case GPU_PLACE_PINNED:
    view->device = (cudalink_dlpack_device){CUDALINK_DLPACK_CUDA_HOST, 0};
    return CUDALINK_OK;
  case GPU_PLACE_UNKNOWN: break;
  }
  return error_set(
      INVALID,
      "tensor: it says %s %d, but the CUDA driver does not know its address %p; was the "
      "memory freed?",
      cudalink_dlpack_device_name(view->device.type), view->device.id, view->data);
}

int cudalink_dlpack_import_tensor(const cudalink_dlpack_tensor *tensor, uint64_t flags,
                                  cudalink_view *view) {
  if (!tensor || !view) return error_set(INVALID, "cudalink_dlpack_import: a NULL was given");
  uint64_t bytes;
  int status = check(tensor);
  if (status < 0) return status;
  cudalink_view taken = {.device = tensor->device,
                         .flags = flags & KNOWN_FLAGS,
                         .dtype = tensor->dtype,
                         .dimensions = (uint32_t)tensor->dimensions};
  for (uint32_t k = 0; k < taken.dimensions; k++)
    taken.shape[k] = tensor->shape[k];
  status = take_data(&taken, tensor);
  if (status == CUDALINK_OK) status = take_strides(&taken, tensor->strides);
  if (status == CUDALINK_OK) status = cudalink_view_extent(&taken, NULL, &bytes);
  if (status == CUDALINK_OK) status = find_device(&taken);
  if (status == CUDALINK_OK) *view = taken;
  return status;
}

int cudalink_dlpack_import_legacy(const cudalink_dlpack_legacy *tensor, cudalink_view *view) {
  return cudalink_dlpack_import_tensor(tensor ? &tensor->tensor : NULL, 0, view);
}

int cudalink_dlpack_import(const cudalink_dlpack_versioned *tensor, cudalink_view *view) {
  if (tensor && tensor->version.major != CUDALINK_DLPACK_VERSION_MAJOR)
    return error_set(CUDALINK_ERROR_VERSION,
                     "tensor: it is of DLPack %u.%u, and this library knows %d.x; ask its producer "
                     "for max_version=(%d, %d), or without a version",
                     tensor->version.major, tensor->version.minor, CUDALINK_DLPACK_VERSION_MAJOR,
                     CUDALINK_DLPACK_VERSION_MAJOR, CUDALINK_DLPACK_VERSION_MINOR);
  return cudalink_dlpack_import_tensor(tensor ? &tensor->tensor : NULL, tensor ? tensor->flags : 0,
                                       view);
}
