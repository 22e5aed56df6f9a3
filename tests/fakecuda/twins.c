/* SPDX-License-Identifier: MIT
 *
 * CPU twins of the library's own kernels, as a GPU runs them: a thread per cell, and only those that
 * the grid has. The cells are the library's (interop/convert/cells.h); the loop is ours.
 */
#include <string.h>

#include "fake.h"
#include "interop/convert/cells.h"

#define TWIN(kernel, cell)                                                                         \
  static void kernel(const unsigned grid[3], const unsigned block[3], void **params) {             \
    struct convert_parameters p;                                                                   \
    memcpy(&p, params[0], sizeof p);                                                               \
    for (uint32_t y = 0; y < grid[1] * block[1]; y++)                                              \
      for (uint32_t x = 0; x < grid[0] * block[0]; x++)                                            \
        if (x < p.cells_x && y < p.cells_y) cell(&p, x, y);                                        \
  }
CONVERT_KERNELS(TWIN)

static const struct {
  const char *name;
  fakecuda_kernel twin;
} twins[] = {
#define ROW(kernel, cell) {#kernel, kernel},
    CONVERT_KERNELS(ROW)
#undef ROW
};

fakecuda_kernel twin_of_library(const char *name) {
  for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
    if (!strcmp(twins[i].name, name)) return twins[i].twin;
  return NULL;
}
