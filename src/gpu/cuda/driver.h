/* SPDX-License-Identifier: MIT
 *
 * The entry points of the CUDA driver, found at run time. There is no CUDA at link time: where no
 * driver is installed the library still loads, and cuda_driver_load says what is missing.
 */
#ifndef CUDALINK_SRC_GPU_CUDA_DRIVER_H
#define CUDALINK_SRC_GPU_CUDA_DRIVER_H

#include "gpu/cuda/driver_functions.h"
#include "gpu/cuda/driver_types.h"

/* The oldest driver that is good enough, as cuDriverGetVersion reports it: CUDA 11.4. */
#define CUDA_DRIVER_OLDEST 11040

/* One member per entry point, with the driver's own name. An OPTIONAL one may be NULL: this driver
 * does not have it. */
struct cuda_driver {
  int version; /* of cuDriverGetVersion: 13000 = CUDA 13.0 */
#define CUDA_DRIVER_MEMBER(kind, name, symbol, version, arguments) CUresult(*name) arguments;
  CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
};

/* Loads libcuda.so.1, once per process, and calls cuInit. May be called from any thread; a later
 * call returns the first one's result and sentence. The table stays for the life of the process.
 * UNSUPPORTED: no driver, one older than CUDA 11.4, or no GPU. GPU: cuInit failed otherwise. */
int cuda_driver_load(const struct cuda_driver **out);

/* CUDA_SUCCESS: returns CUDALINK_OK. Else leaves the sentence "`what` failed: NAME (text)" and
 * returns the error that fits, GPU_LOST for each result after which the context is dead. */
int cuda_error(const struct cuda_driver *driver, CUresult result, const char *what);

#endif
