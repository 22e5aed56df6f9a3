/* SPDX-License-Identifier: MIT
 *
 * What the files of this folder ask about views.
 */
#ifndef CUDALINK_SRC_INTEROP_DLPACK_VIEW_H
#define CUDALINK_SRC_INTEROP_DLPACK_VIEW_H

#include <stdbool.h>

#include "cudalink/dlpack.h"
#include "gpu/gpu.h"

static inline uint32_t view_element_bits(cudalink_dtype dtype) {
  return (uint32_t)dtype.bits * dtype.lanes;
}

/* Bytes of one element that does not share a byte with others. */
static inline uint32_t view_element_bytes(cudalink_dtype dtype) {
  return (view_element_bits(dtype) + 7) / 8;
}

/* Elements of the last dimension share bytes. */
static inline bool view_is_packed(const cudalink_view *view) {
  return view->dimensions > 0 && view_element_bits(view->dtype) < 8 &&
         !(view->flags & CUDALINK_DLPACK_PADDED);
}

static inline bool view_is_empty(const cudalink_view *view) {
  for (uint32_t k = 0; k < view->dimensions; k++)
    if (view->shape[k] == 0) return true;
  return false;
}

/* Row-major strides without gaps, from shape and type, and the bytes of such an array. False: a size
 * passes 63 bits. */
bool view_fill_strides(cudalink_view *view, int64_t *bytes);

/* The view at another address, row-major: copies its elements there, on the CPU (copy.c). */
void view_copy_dense(const cudalink_view *view, void *target);
/* The same of GPU memory, queued on the stream. UNSUPPORTED: it would take too many copies. */
int view_copy_by_gpu(const cudalink_view *view, void *target, struct gpu_array *array,
                     cudalink_stream stream, bool to_cpu);

/* view.c: bytes of the smallest piece, which is copied as a whole, and how many dimensions are outside
 * of it: an element, or the last dimension where elements share bytes. The view was checked. */
struct view_piece {
  uint64_t bytes;
  uint32_t dimensions;
};
struct view_piece view_piece_of(const cudalink_view *view);

#endif
