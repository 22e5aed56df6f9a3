/* SPDX-License-Identifier: MIT
 *
 * The little of the CUDA toolkit's cuda.h that snippets of the documents use, so that they compile where
 * there is no toolkit. They are linked with, and run on, the fake driver (tests/fakecuda).
 */
#ifndef CUDALINK_TESTS_SNIPPETS_CUDA_H
#define CUDALINK_TESTS_SNIPPETS_CUDA_H

#include <stddef.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
#define CU_STREAM_NON_BLOCKING 1

/* As in the toolkit's: a name means the newest form of the call. */
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream);
CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream);

#endif
