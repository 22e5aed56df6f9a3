/* SPDX-License-Identifier: MIT
 *
 * What a legal plane is. One place for the producer's own descriptions and for what a peer wrote.
 */
#ifndef CUDALINK_SRC_WIRE_PLANE_H
#define CUDALINK_SRC_WIRE_PLANE_H

#include <stdbool.h>
#include <stdint.h>

#include "cudalink/frame.h"

/* A known code, and bits and lanes that this code can have. */
bool wire_dtype_legal(cudalink_dtype dtype);

/* Bits of one element (all its lanes). Below 8 the last dimension is packed. */
static inline uint32_t wire_dtype_bits(cudalink_dtype dtype) {
  return (uint32_t)dtype.bits * dtype.lanes;
}

/* Checks a plane with 64-bit arithmetic and gives its end: offset + bytes, at most 2^63 - 1. On
 * failure returns `code` with a sentence that names plane `index`, the field and its value. */
int wire_plane_span(int code, uint32_t index, const cudalink_plane *plane, uint64_t *end);

#endif
