/* SPDX-License-Identifier: MIT
 *
 * Copying a view's elements into dense memory, by the CPU or by a GPU's copy engine. What is dense at
 * the inner end is copied as one run; outside of the runs an odometer counts. The GPU takes runs of one
 * stride together.
 */
#include <string.h>

#include "base/error.h"
#include "interop/dlpack/view.h"

#define MOST_COPIES 4096 /* of one array by the GPU: each is a call of the driver */

struct runs {
  uint64_t bytes;      /* of one run */
  uint32_t dimensions; /* outside of the runs */
};

/* The longest run that lies in memory as it will lie in the copy. */
static struct runs find_runs(const cudalink_view *view) {
  struct view_piece piece = view_piece_of(view);
  struct runs runs = {piece.bytes, piece.dimensions};
  /* A packed row may end inside a byte: each row of the copy begins at a whole one, so rows are not
   * put together unless they fill their bytes, in which case their stride says so. */
  while (runs.dimensions > 0) {
    uint32_t k = runs.dimensions - 1;
    if (view->shape[k] != 1 && view->strides[k] != (int64_t)runs.bytes) break;
    runs.bytes *= (uint64_t)view->shape[k];
    runs.dimensions = k;
  }
  return runs;
}

/* One element on in row-major order. False: that was the last one. */
static bool advance(const cudalink_view *view, uint32_t dimensions, int64_t *index,
                    const char **source) {
  for (uint32_t k = dimensions; k-- > 0;) {
    *source += view->strides[k];
    if (++index[k] < view->shape[k]) return true;
    *source -= view->strides[k] * view->shape[k];
    index[k] = 0;
  }
  return false;
}

/* Small runs of a known size: the compiler makes one load and one store of each. */
static inline void copy_run(char *target, const char *source, uint64_t bytes) {
  switch (bytes) {
  case 1: *target = *source; break;
  case 2: memcpy(target, source, 2); break;
  case 4: memcpy(target, source, 4); break;
  case 8: memcpy(target, source, 8); break;
  default: memcpy(target, source, bytes); break;
  }
}

void view_copy_dense(const cudalink_view *view, void *target) {
  if (view_is_empty(view)) return;
  struct runs runs = find_runs(view);
  int64_t index[CUDALINK_MAX_DIMENSIONS] = {0};
  const char *source = view->data;
  char *to = target;
  do {
    copy_run(to, source, runs.bytes);
    to += runs.bytes;
  } while (advance(view, runs.dimensions, index, &source));
}

/* How many calls that takes. */
static uint64_t count_calls(const cudalink_view *view, const struct gpu_rows *rows,
                            uint32_t outer) {
  uint64_t calls = rows->rows > 1 && rows->source_stride < (int64_t)rows->bytes ? rows->rows : 1;
  for (uint32_t k = 0; k < outer; k++)
    calls *= (uint64_t)view->shape[k]; /* the product of the shape fits 63 bits */
  return calls;
}

int view_copy_by_gpu(const cudalink_view *view, void *target, struct gpu_array *array,
                     cudalink_stream stream, bool to_cpu) {
  if (view_is_empty(view)) return CUDALINK_OK;
  struct runs runs = find_runs(view);
  struct gpu_rows rows = {.source = view->data, .target = target, .bytes = runs.bytes, .rows = 1};
  uint32_t outer = runs.dimensions;
  if (outer > 0) {
    outer--;
    rows.rows = (uint64_t)view->shape[outer];
    rows.source_stride = view->strides[outer];
  }
  uint64_t calls = count_calls(view, &rows, outer);
  if (calls > MOST_COPIES)
    return error_set(
        CUDALINK_ERROR_UNSUPPORTED,
        "the array's strides take %llu copies of %llu byte%s, and %d is most on a GPU; "
        "make it dense where it comes from",
        (unsigned long long)calls, (unsigned long long)rows.bytes, error_s((uint64_t)rows.bytes),
        MOST_COPIES);
  int64_t index[CUDALINK_MAX_DIMENSIONS] = {0};
  const char *source = view->data;
  int status;
  do {
    rows.source = source;
    status = gpu_array_copy(array, stream, &rows, to_cpu);
    rows.target = (char *)rows.target + rows.bytes * rows.rows;
  } while (status == CUDALINK_OK && advance(view, outer, index, &source));
  return status;
}
