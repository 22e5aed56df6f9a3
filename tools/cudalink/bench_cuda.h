/* SPDX-License-Identifier: MIT
 *
 * The little of the CUDA driver that `cudalink bench` calls itself: for the floors on a GPU, and for
 * memory and a stream such as a program has. Loaded in a measurement's own process.
 */
#ifndef CUDALINK_BENCH_CUDA_H
#define CUDALINK_BENCH_CUDA_H

#include "bench.h"

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;

/* X(name, exported symbol, arguments) */
#define BENCH_CUDA_FUNCTIONS(X)                                                                    \
  X(cuInit, cuInit, (unsigned flags))                                                              \
  X(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                    \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))    \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                         \
  X(cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                           \
  X(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))                                   \
  X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                              \
  X(cuMemHostAlloc, cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                       \
    (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                       \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                       \
    (void *target, CUdeviceptr source, size_t bytes, CUstream stream))                             \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2,                                                 \
    (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))

struct bench_cuda {
#define BENCH_CUDA_MEMBER(name, symbol, arguments) CUresult(*name) arguments;
  BENCH_CUDA_FUNCTIONS(BENCH_CUDA_MEMBER)
#undef BENCH_CUDA_MEMBER
  CUstream stream; /* does not wait for the default stream */
};

/* Loads the driver, makes the context of the bench's GPU current, and a stream. */
int bench_cuda_start(struct bench_scene *scene, struct bench_cuda *cuda);
/* 0 when `result` is; else the failure of that call. */
int bench_cuda_check(struct bench_scene *scene, CUresult result, const char *call);

#endif
