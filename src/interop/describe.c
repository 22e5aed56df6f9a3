/* SPDX-License-Identifier: MIT
 *
 * Describing tensors, and the sizes that follow from type, shape and strides.
 */
#include "interop/describe.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

#define PLANE_ALIGNMENT 256u

const char *cudalink_kind_name(cudalink_kind kind) {
  switch (kind) {
  case CUDALINK_KIND_AUTO: return "auto";
  case CUDALINK_KIND_HOST: return "host";
  case CUDALINK_KIND_VMM: return "vmm";
  case CUDALINK_KIND_IPC: return "ipc";
  default: return "unknown";
  }
}

/* The bits that each type code of DLPack 1.1 is defined for. */
static int bits_are_legal(uint8_t code, uint8_t bits) {
  switch (code) {
  case CUDALINK_DTYPE_INT:
  case CUDALINK_DTYPE_UINT: return bits <= 64 && bits != 0 && (bits & (bits - 1)) == 0;
  case CUDALINK_DTYPE_FLOAT: return bits == 16 || bits == 32 || bits == 64 || bits == 128;
  case CUDALINK_DTYPE_BFLOAT: return bits == 16;
  case CUDALINK_DTYPE_COMPLEX: return bits == 32 || bits == 64 || bits == 128;
  case CUDALINK_DTYPE_BOOL: return bits == 8;
  case CUDALINK_DTYPE_FLOAT8_E3M4:
  case CUDALINK_DTYPE_FLOAT8_E4M3:
  case CUDALINK_DTYPE_FLOAT8_E4M3B11FNUZ:
  case CUDALINK_DTYPE_FLOAT8_E4M3FN:
  case CUDALINK_DTYPE_FLOAT8_E4M3FNUZ:
  case CUDALINK_DTYPE_FLOAT8_E5M2:
  case CUDALINK_DTYPE_FLOAT8_E5M2FNUZ:
  case CUDALINK_DTYPE_FLOAT8_E8M0FNU: return bits == 8;
  case CUDALINK_DTYPE_FLOAT6_E2M3FN:
  case CUDALINK_DTYPE_FLOAT6_E3M2FN: return bits == 6;
  case CUDALINK_DTYPE_FLOAT4_E2M1FN: return bits == 4;
  default: return 0;
  }
}

int describe_dtype_is_legal(cudalink_dtype dtype) {
  return dtype.lanes >= 1 && bits_are_legal(dtype.code, dtype.bits);
}

/* Bytes of `count` elements of less than a byte each, side by side. -1: passes 63 bits. */
static int dense_bits(uint64_t count, uint32_t element_bits, uint64_t *bytes) {
  uint64_t bits;
  if (__builtin_mul_overflow(count, (uint64_t)element_bits, &bits) || bits > INT64_MAX) return -1;
  *bytes = (bits + 7) / 8;
  return 0;
}

/* Adds one outer dimension to the sizes. -1: a size passes 63 bits. */
static int add_dimension(struct describe_size *size, uint64_t count, uint64_t stride) {
  uint64_t distance;
  if (__builtin_mul_overflow(size->packed, count, &size->packed)) return -1;
  if (__builtin_mul_overflow(count - 1, stride, &distance)) return -1;
  if (__builtin_add_overflow(size->extent, distance, &size->extent)) return -1;
  return size->packed > INT64_MAX || size->extent > INT64_MAX ? -1 : 0;
}

int describe_plane_size(const cudalink_plane *plane, struct describe_size *size) {
  uint32_t element_bits = (uint32_t)plane->dtype.bits * plane->dtype.lanes;
  int below_byte = element_bits < 8 && plane->dimensions > 0;
  size->dimensions = plane->dimensions - (below_byte ? 1 : 0);
  size->unit = (element_bits + 7) / 8;
  size->extent = size->packed = 0;
  for (uint32_t k = 0; k < plane->dimensions; k++)
    if (plane->shape[k] == 0) return 0;
  if (below_byte && dense_bits((uint64_t)plane->shape[size->dimensions], element_bits, &size->unit))
    return -1;
  size->extent = size->packed = size->unit;
  for (uint32_t k = size->dimensions; k-- > 0;)
    if (add_dimension(size, (uint64_t)plane->shape[k], (uint64_t)plane->strides[k])) return -1;
  return 0;
}

/* Strides of a dense row-major tensor. -1: the product of the shape passes 63 bits. */
static int fill_dense_strides(cudalink_plane *plane) {
  struct describe_size size;
  int64_t shape_product = 1;
  for (uint32_t k = plane->dimensions; k-- > 0;)
    if (__builtin_mul_overflow(shape_product, plane->shape[k], &shape_product)) return -1;
  if (describe_plane_size(plane, &size)) return -1;
  int64_t stride = (int64_t)size.unit;
  for (uint32_t k = size.dimensions; k-- > 0;) {
    plane->strides[k] = stride;
    if (__builtin_mul_overflow(stride, plane->shape[k], &stride)) return -1;
  }
  plane->bytes = size.packed;
  return 0;
}

/* Where the next plane starts. -1: passes 63 bits. */
static int next_offset(const cudalink_description *description, uint64_t *offset) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < description->plane_count; i++) {
    const cudalink_plane *plane = &description->planes[i];
    uint64_t plane_end;
    if (__builtin_add_overflow(plane->offset, plane->bytes, &plane_end)) return -1;
    if (plane_end > end) end = plane_end;
  }
  if (end > INT64_MAX - PLANE_ALIGNMENT) return -1;
  *offset = (end + PLANE_ALIGNMENT - 1) / PLANE_ALIGNMENT * PLANE_ALIGNMENT;
  return 0;
}

static int check_tensor(const cudalink_description *description, const char *name,
                        cudalink_dtype dtype, uint32_t dimensions, const int64_t *shape) {
  const int invalid = CUDALINK_ERROR_INVALID_ARGUMENT;
  if (!description) return error_set(invalid, "describe a tensor: description is NULL");
  if (!name) name = "";
  if (description->plane_count >= CUDALINK_MAX_PLANES)
    return error_set(invalid, "describe tensor \"%.80s\": there are %u planes already, %d is most",
                     name, description->plane_count, CUDALINK_MAX_PLANES);
  if (strlen(name) >= CUDALINK_PLANE_NAME_SIZE)
    return error_set(invalid, "describe tensor \"%.80s\": the name has more than %d bytes", name,
                     CUDALINK_PLANE_NAME_SIZE - 1);
  if (!describe_dtype_is_legal(dtype))
    return error_set(invalid,
                     "describe tensor \"%s\": type code %u with %u bit%s and %u lane%s does not "
                     "exist",
                     name, dtype.code, dtype.bits, error_s(dtype.bits), dtype.lanes,
                     error_s(dtype.lanes));
  if (dimensions > CUDALINK_MAX_DIMENSIONS)
    return error_set(invalid, "describe tensor \"%s\": %u dimensions, %d is most", name, dimensions,
                     CUDALINK_MAX_DIMENSIONS);
  if (dimensions > 0 && !shape)
    return error_set(invalid, "describe tensor \"%s\": %u dimension%s but shape is NULL", name,
                     dimensions, error_s(dimensions));
  for (uint32_t k = 0; k < dimensions; k++)
    if (shape[k] < 0)
      return error_set(invalid, "describe tensor \"%s\": shape[%u] is %lld", name, k,
                       (long long)shape[k]);
  return CUDALINK_OK;
}

int cudalink_describe_tensor(cudalink_description *description, const char *name,
                             cudalink_dtype dtype, uint32_t dimensions, const int64_t *shape) {
  int result = check_tensor(description, name, dtype, dimensions, shape);
  if (result) return result;
  cudalink_plane plane = {.dtype = dtype, .dimensions = dimensions};
  if (name) snprintf(plane.name, sizeof plane.name, "%s", name); /* its length was checked */
  for (uint32_t k = 0; k < dimensions; k++)
    plane.shape[k] = shape[k];
  if (fill_dense_strides(&plane))
    return error_set(CUDALINK_ERROR_TOO_LARGE,
                     "describe tensor \"%s\": the product of its shape does not fit 63 bits",
                     plane.name);
  if (next_offset(description, &plane.offset))
    return error_set(CUDALINK_ERROR_TOO_LARGE,
                     "describe tensor \"%s\": the planes before it end behind 2^63 bytes",
                     plane.name);
  description->planes[description->plane_count++] = plane;
  return CUDALINK_OK;
}
