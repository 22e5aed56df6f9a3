/* SPDX-License-Identifier: MIT
 *
 * The CUDA kernels: one thread per cell. Compiled to convert.ptx by scripts/build-ptx.
 */
#include "interop/convert/cells.h"

#define CONVERT_KERNEL(name, cell)                                                                 \
  extern "C" __global__ void name(const __grid_constant__ struct convert_parameters parameters) {  \
    uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;                                            \
    uint32_t y = blockIdx.y * blockDim.y + threadIdx.y;                                            \
    if (x < parameters.cells_x && y < parameters.cells_y) cell(&parameters, x, y);                 \
  }
CONVERT_KERNELS(CONVERT_KERNEL)
