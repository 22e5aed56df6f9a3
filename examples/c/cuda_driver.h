/* SPDX-License-Identifier: MIT
 *
 * The little of the CUDA driver that render_cuda.c uses, found while the program runs, so that it can be
 * built and started where there is no CUDA. A program that is built with the CUDA toolkit includes
 * <cuda.h> and links with -lcuda instead.
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
#define CU_STREAM_NON_BLOCKING 1

/* X(name, exported symbol, arguments) */
#define CUDA_FUNCTIONS(X)                                                                          \
  X(cuInit, cuInit, (unsigned flags))                                                              \
  X(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                    \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))    \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                    \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                         \
  X(cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                           \
  X(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))                                   \
  X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                        \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async,                                                        \
    (CUdeviceptr target, size_t pitch, unsigned value, size_t width, size_t height,                \
     CUstream stream))

#define CUDA_DECLARE(name, symbol, arguments) static CUresult(*name) arguments;
CUDA_FUNCTIONS(CUDA_DECLARE)
#undef CUDA_DECLARE

/* NULL, or why CUDA can't be used here. */
static inline const char *cuda_load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return "there is no CUDA driver";
  void *found;
#define CUDA_FIND(name, symbol, arguments)                                                         \
  if (!(found = dlsym(library, #symbol))) return "the CUDA driver has no " #name;                  \
  memcpy(&name, &found, sizeof found);
  CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
  return cuInit(0) == 0 ? NULL : "the CUDA driver finds no GPU";
}

#endif
