/* SPDX-License-Identifier: MIT
 *
 * Sizes of planes, for the modules that walk over them.
 */
#ifndef CUDALINK_SRC_INTEROP_DESCRIBE_H
#define CUDALINK_SRC_INTEROP_DESCRIBE_H

#include "cudalink/frame.h"

/* A plane seen as `dimensions` outer dimensions with byte strides, and the smallest piece that is
 * copied as a whole: one element, or, for elements of less than a byte, the last dimension. */
struct describe_size {
  uint32_t dimensions;
  uint64_t unit;   /* bytes of the smallest piece */
  uint64_t extent; /* bytes from the first to the end of the last element */
  uint64_t packed; /* bytes without gaps */
};

/* Returns 0, or -1 when a size passes 63 bits. Shape and strides must not be negative. */
int describe_plane_size(const cudalink_plane *plane, struct describe_size *size);

/* 1 when DLPack knows elements of this kind. */
int describe_dtype_is_legal(cudalink_dtype dtype);

#endif
