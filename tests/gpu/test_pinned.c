/* SPDX-License-Identifier: MIT
 *
 * Arrays in pinned memory: the GPU writes straight to them, and a thread of the library frees them.
 */
#include "cudalink/dlpack.h"
#include "gpu.h"
#include "gpu/gpu.h"
#include "link/reaper.h"

static const cudalink_dtype bytes_type = {CUDALINK_DTYPE_UINT, 8, 1};

static enum gpu_place_kind kind_of(const void *address) {
  struct gpu_place place = {.kind = GPU_PLACE_UNKNOWN};
  CHECK_OK(gpu_cuda_locate(address, &place));
  return place.kind;
}

TEST(pinned_array, 60) {
  cudalink_array *array;
  gpu_start();
  CHECK_OK(cudalink_array_pinned(&array, 0, bytes_type, 3, (int64_t[]){24, 32, 4}));
  const cudalink_view *view = cudalink_array_view(array);
  CHECK_EQUAL(view->device.type, CUDALINK_DLPACK_CUDA_HOST);
  CHECK_EQUAL(view->dimensions, 3);
  CHECK_EQUAL(view->strides[0], 128);
  CHECK_EQUAL(kind_of(view->data), GPU_PLACE_PINNED);
  memset(view->data, 7, 24 * 32 * 4);
  uint64_t waiting = FAKE_NUMBER(fakecuda_calls, "cuMemFreeHost");
  void *address = view->data;
  cudalink_array_drop(array);
  reaper_drain();
  if (!gpu_is_fake()) return;
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuMemFreeHost"), waiting + 1);
  CHECK_EQUAL(kind_of(address), GPU_PLACE_UNKNOWN);
}

TEST(pinned_array_of_nothing, 60) {
  cudalink_array *array;
  gpu_start();
  CHECK_OK(cudalink_array_pinned(&array, CUDALINK_DEVICE(0), bytes_type, 2, (int64_t[]){0, 4}));
  CHECK(cudalink_array_view(array)->data == NULL);
  cudalink_array_drop(array);
}

TEST(pinned_array_refuses, 60) {
  cudalink_array *array;
  cudalink_dtype none = {0};
  int64_t large[] = {INT64_MAX / 2, 4, 4};
  gpu_start();
  CHECK_STATUS(cudalink_array_pinned(NULL, 0, bytes_type, 1, large),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_array_pinned(&array, 0, bytes_type, 1, NULL),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_array_pinned(&array, 0, bytes_type, 99, large),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_array_pinned(&array, 0, bytes_type, 1, (int64_t[]){-1}),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "extent 0 is negative");
  CHECK_STATUS(cudalink_array_pinned(&array, 0, none, 1, (int64_t[]){8}),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_array_pinned(&array, 0, bytes_type, 3, large), CUDALINK_ERROR_TOO_LARGE);
  CHECK_STATUS(cudalink_array_pinned(&array, CUDALINK_DEVICE(1000), bytes_type, 1, (int64_t[]){8}),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_STATUS(cudalink_array_pinned(&array, -5, bytes_type, 1, (int64_t[]){8}),
               CUDALINK_ERROR_UNSUPPORTED);
  FAKE(fakecuda_fail, "cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  if (gpu_is_fake()) CHECK(cudalink_array_pinned(&array, 0, bytes_type, 1, (int64_t[]){8}) < 0);
}
