/* SPDX-License-Identifier: MIT
 *
 * The rules for one plane. This runs for each plane of each acquired frame, so the good path is
 * straight: sentences are made only once something is wrong.
 */
#include "wire/plane.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

#define MAX_CODE CUDALINK_DTYPE_FLOAT4_E2M1FN

/* Widths of one lane that each type code has: the sum of its powers of two, so 0 = no such code. */
static const uint8_t legal_widths[MAX_CODE + 1] = {
    [CUDALINK_DTYPE_INT] = 1 | 2 | 4 | 8 | 16 | 32 | 64,
    [CUDALINK_DTYPE_UINT] = 1 | 2 | 4 | 8 | 16 | 32 | 64,
    [CUDALINK_DTYPE_FLOAT] = 16 | 32 | 64 | 128,
    [CUDALINK_DTYPE_BFLOAT] = 16,
    [CUDALINK_DTYPE_COMPLEX] = 32 | 64 | 128,
    [CUDALINK_DTYPE_BOOL] = 8,
    [CUDALINK_DTYPE_FLOAT8_E3M4] = 8,
    [CUDALINK_DTYPE_FLOAT8_E4M3] = 8,
    [CUDALINK_DTYPE_FLOAT8_E4M3B11FNUZ] = 8,
    [CUDALINK_DTYPE_FLOAT8_E4M3FN] = 8,
    [CUDALINK_DTYPE_FLOAT8_E4M3FNUZ] = 8,
    [CUDALINK_DTYPE_FLOAT8_E5M2] = 8,
    [CUDALINK_DTYPE_FLOAT8_E5M2FNUZ] = 8,
    [CUDALINK_DTYPE_FLOAT8_E8M0FNU] = 8,
    [CUDALINK_DTYPE_FLOAT4_E2M1FN] = 4,
};

bool wire_dtype_legal(cudalink_dtype dtype) {
  if (dtype.code > MAX_CODE || dtype.lanes == 0) return false;
  if (dtype.code == CUDALINK_DTYPE_FLOAT6_E2M3FN || dtype.code == CUDALINK_DTYPE_FLOAT6_E3M2FN)
    return dtype.bits == 6;
  bool one_power = dtype.bits != 0 && (dtype.bits & (dtype.bits - 1)) == 0;
  return one_power && (legal_widths[dtype.code] & dtype.bits) != 0;
}

/* A number of dimension `k` that is negative, or a last stride that a packed plane can't have. */
static int wrong_dimension(int code, uint32_t index, const cudalink_plane *plane, uint32_t k) {
  if (plane->shape[k] < 0)
    return error_set(code, "plane %u: shape[%u] is %" PRId64 "; it must not be negative", index, k,
                     plane->shape[k]);
  if (plane->strides[k] < 0)
    return error_set(code, "plane %u: strides[%u] is %" PRId64 "; strides must not be negative",
                     index, k, plane->strides[k]);
  return error_set(code,
                   "plane %u: strides[%u] is %" PRId64
                   "; elements of %u bits are packed in the last dimension, its stride must be 0",
                   index, k, plane->strides[k], wire_dtype_bits(plane->dtype));
}

static int too_large(int code, uint32_t index) {
  return error_set(code, "plane %u: shape times strides does not fit 63 bits", index);
}

/* Bytes of the innermost run: one element, or the packed last dimension of short ones. */
static bool innermost_bytes(const cudalink_plane *plane, bool packed, uint64_t *bytes) {
  uint64_t bits = wire_dtype_bits(plane->dtype);
  uint64_t count = packed ? (uint64_t)plane->shape[plane->dimensions - 1] : 1;
  uint64_t total;
  if (__builtin_mul_overflow(bits, count, &total)) return false;
  *bytes = total / 8 + (total % 8 != 0);
  return true;
}

/* Bytes from the first byte of the first element to the last one of the last. */
static int span_of(int code, uint32_t index, const cudalink_plane *plane, uint64_t *span) {
  uint32_t dimensions = plane->dimensions;
  bool packed = dimensions > 0 && wire_dtype_bits(plane->dtype) < 8;
  bool empty = false;
  bool overflow = false;
  uint64_t total = 0;
  for (uint32_t k = 0; k < dimensions; k++) {
    int64_t extent = plane->shape[k];
    int64_t stride = plane->strides[k];
    if (extent < 0 || stride < 0) return wrong_dimension(code, index, plane, k);
    if (packed && k == dimensions - 1 && stride != 0) return wrong_dimension(code, index, plane, k);
    if (extent == 0) {
      empty = true;
      continue;
    }
    uint64_t reach;
    overflow |= __builtin_mul_overflow((uint64_t)(extent - 1), (uint64_t)stride, &reach);
    overflow |= __builtin_add_overflow(total, reach, &total);
  }
  *span = 0;
  if (empty) return CUDALINK_OK;
  uint64_t inner;
  if (overflow || !innermost_bytes(plane, packed, &inner) ||
      __builtin_add_overflow(total, inner, span))
    return too_large(code, index);
  return CUDALINK_OK;
}

static int wrong_dtype(int code, uint32_t index, cudalink_dtype dtype) {
  return error_set(code, "plane %u: there is no type of code %u with %u bits and %u lanes", index,
                   dtype.code, dtype.bits, dtype.lanes);
}

int wire_plane_span(int code, uint32_t index, const cudalink_plane *plane, uint64_t *end) {
  /* What was encoded is filled up with zeros, so looking at the last byte is nearly always enough. */
  if (plane->name[sizeof plane->name - 1] != '\0' && !memchr(plane->name, 0, sizeof plane->name))
    return error_set(code, "plane %u: its name does not end within %d bytes", index,
                     CUDALINK_PLANE_NAME_SIZE);
  if (!wire_dtype_legal(plane->dtype)) return wrong_dtype(code, index, plane->dtype);
  if (plane->dimensions > CUDALINK_MAX_DIMENSIONS)
    return error_set(code, "plane %u: %u dimensions; at most %d are possible", index,
                     plane->dimensions, CUDALINK_MAX_DIMENSIONS);
  uint64_t span = 0;
  int status = span_of(code, index, plane, &span);
  if (status < 0) return status;
  if (plane->bytes < span)
    return error_set(code,
                     "plane %u: bytes is %" PRIu64 ", but shape and strides reach over %" PRIu64,
                     index, plane->bytes, span);
  if (__builtin_add_overflow(plane->offset, plane->bytes, end) || *end > INT64_MAX)
    return error_set(code, "plane %u: offset %" PRIu64 " + bytes %" PRIu64 " does not fit 63 bits",
                     index, plane->offset, plane->bytes);
  return CUDALINK_OK;
}
