/* SPDX-License-Identifier: MIT
 *
 * The kernels by name, each with its CPU twin, and how one is run on either side.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_KERNELS_H
#define CUDALINK_SRC_INTEROP_CONVERT_KERNELS_H

#include <stddef.h>

#include "interop/convert/parameters.h"

struct convert_kernel {
  const char *name; /* in the PTX, too */
  /* The twin: makes all cells, on the calling thread. */
  void (*run)(const struct convert_parameters *parameters);
};

#define CONVERT_COUNT(kernel, cell) +1
enum { CONVERT_KERNEL_COUNT = 0 CONVERT_KERNELS(CONVERT_COUNT) };
#undef CONVERT_COUNT
extern const struct convert_kernel convert_kernels[CONVERT_KERNEL_COUNT];

/* NULL when there is no kernel of this name. */
const struct convert_kernel *convert_kernel_find(const char *name);

/* The kernel that writes this storage. */
const struct convert_kernel *convert_kernel_into(uint32_t storage);

/* The kernel for 8-bit pixels whose numbers stay as they are, between these two storages. */
const struct convert_kernel *convert_kernel_swizzle(uint32_t source, uint32_t target);

/* One frame's conversion: addresses are real ones. */
struct convert_job {
  const struct convert_kernel *kernel;
  struct convert_parameters parameters;
};

void convert_on_host(const struct convert_job *job);

/* How a kernel is started on a GPU; filled in by who has the module and the stream. `parameters` is
 * the kernel's one parameter. Returns CUDALINK_OK or a negative cudalink_error. */
struct convert_launcher {
  int (*launch)(void *context, const struct convert_kernel *kernel, unsigned grid_x,
                unsigned grid_y, unsigned block_x, unsigned block_y,
                const struct convert_parameters *parameters);
  void *context;
};

/* Queues the job: its addresses are device addresses. Errors: INVALID_ARGUMENT (an address, pitch
 * or step that is not a multiple of the sample's size, which the GPU needs), and what the launch
 * says. */
int convert_on_device(const struct convert_job *job, const struct convert_launcher *launcher);

/* The kernels as PTX text, NUL-ended; made from convert.ptx when the library is built. */
extern const char convert_ptx[];

#endif
