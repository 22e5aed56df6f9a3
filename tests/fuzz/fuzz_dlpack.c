/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: any bytes as a tensor with its shape and strides, and what is cut out of it. What passes
 * must reach no further than it says, go out and come in again as the same, and its parts lie inside.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cudalink/dlpack.h"
#include "gpu/gpu.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In place of the driver. */
int gpu_cuda_locate(const void *address, struct gpu_place *place) {
  *place = (struct gpu_place){(enum gpu_place_kind)((uintptr_t)address % 4), 0};
  return CUDALINK_OK;
}

struct input {
  cudalink_dlpack_versioned tensor;
  int64_t shape[16], strides[16];
  int64_t cuts[16][4];
};

/* The extent once more, in a type that can't overflow. */
static void check_extent(const cudalink_view *view) {
  __int128 low = (uintptr_t)view->data, high = low, first = low;
  uint64_t bytes;
  void *start;
  if (cudalink_view_extent(view, &start, &bytes) < 0) abort();
  if (!bytes) return;
  for (uint32_t k = 0; k < view->dimensions; k++) {
    __int128 distance = (__int128)(view->shape[k] - 1) * view->strides[k];
    if (distance < 0)
      low += distance;
    else
      high += distance;
  }
  if (low < 0 || low != (uintptr_t)start || first > high) abort();
  if (high >= low + (__int128)bytes || low + (__int128)bytes > (__int128)UINTPTR_MAX) abort();
}

static void check_export(const cudalink_view *view) {
  cudalink_view again;
  cudalink_dlpack_versioned *tensor;
  if (cudalink_dlpack_export(view, NULL, NULL, &tensor) < 0) return;
  if (tensor->tensor.byte_offset) abort();
  if (cudalink_dlpack_import(tensor, &again) < 0) abort();
  if (again.data != view->data || memcmp(again.shape, view->shape, sizeof view->shape) != 0)
    abort();
  for (uint32_t k = 0; k < view->dimensions; k++)
    if (view->data && view->shape[k] > 1 && again.strides[k] != view->strides[k]) abort();
  tensor->deleter(tensor);
}

static void check_plane(const cudalink_view *view) {
  cudalink_description description = {0};
  uint64_t bytes;
  if (cudalink_describe_view(&description, "x", view) < 0) return;
  if (cudalink_description_bytes(&description, &bytes) < 0) abort();
}

static void check_parts(cudalink_view *view, const struct input *input) {
  void *low, *low_part;
  uint64_t bytes, bytes_part;
  if (cudalink_view_extent(view, &low, &bytes) < 0) abort();
  for (size_t i = 0; i < 16; i++) {
    const int64_t *cut = input->cuts[i];
    uint32_t dimension = (uint32_t)cut[0] % 9;
    if (cut[0] & 16)
      cudalink_view_index(view, dimension, cut[1]);
    else
      cudalink_view_slice(view, dimension, cut[1], cut[2], cut[3]);
    if (cudalink_view_extent(view, &low_part, &bytes_part) < 0) abort();
    if (!bytes_part) continue;
    if ((uintptr_t)low_part < (uintptr_t)low ||
        (uintptr_t)low_part + bytes_part > (uintptr_t)low + bytes)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct input input;
  cudalink_view view;
  memset(&input, 0, sizeof input);
  memcpy(&input, data, size < sizeof input ? size : sizeof input);
  input.tensor.tensor.shape = input.shape;
  if (input.tensor.tensor.strides) input.tensor.tensor.strides = input.strides;
  if (cudalink_dlpack_import(&input.tensor, &view) < 0) return 0;
  check_extent(&view);
  cudalink_view_is_dense(&view);
  check_export(&view);
  check_plane(&view);
  check_parts(&view, &input);
  check_extent(&view);
  return 0;
}
