/* SPDX-License-Identifier: MIT
 *
 * The driver for the floors on a GPU.
 */
#include "bench_cuda.h"

#include <dlfcn.h>
#include <string.h>

#define NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */

static int load(struct bench_scene *scene, struct bench_cuda *cuda) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *found;
  if (!library) return bench_fail(scene, "there is no CUDA driver");
#define FIND(name, symbol, arguments)                                                              \
  if (!(found = dlsym(library, #symbol)))                                                          \
    return bench_fail(scene, "the CUDA driver has no %s", #symbol);                                \
  memcpy(&cuda->name, &found, sizeof found);
  BENCH_CUDA_FUNCTIONS(FIND)
#undef FIND
  return BENCH_OK;
}

int bench_cuda_check(struct bench_scene *scene, CUresult result, const char *call) {
  return result == 0 ? BENCH_OK : bench_fail(scene, "%s: CUDA error %d", call, result);
}

int bench_cuda_start(struct bench_scene *scene, struct bench_cuda *cuda) {
  CUdevice device;
  CUcontext context;
  int ordinal = scene->options->device ? scene->options->device - 1 : 0;
  if (load(scene, cuda)) return BENCH_FAILED;
  if (bench_cuda_check(scene, cuda->cuInit(0), "cuInit") ||
      bench_cuda_check(scene, cuda->cuDeviceGet(&device, ordinal), "cuDeviceGet") ||
      bench_cuda_check(scene, cuda->cuDevicePrimaryCtxRetain(&context, device),
                       "cuDevicePrimaryCtxRetain") ||
      bench_cuda_check(scene, cuda->cuCtxSetCurrent(context), "cuCtxSetCurrent"))
    return BENCH_FAILED;
  return bench_cuda_check(scene, cuda->cuStreamCreate(&cuda->stream, NON_BLOCKING),
                          "cuStreamCreate");
}
