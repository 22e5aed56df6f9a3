/* SPDX-License-Identifier: MIT
 *
 * Numbers are given by the CUDA driver, by CUDA_VISIBLE_DEVICES for each process anew.
 */
#include "gpu_ordinal.h"

#include <dlfcn.h>
#include <string.h>

typedef int CUresult, CUdevice;

/* X(name, exported symbol, arguments) */
#define FUNCTIONS(X)                                                                               \
  X(init, cuInit, (unsigned flags))                                                                \
  X(get_count, cuDeviceGetCount, (int *count))                                                     \
  X(get, cuDeviceGet, (CUdevice * device, int ordinal))                                            \
  X(get_uuid, cuDeviceGetUuid_v2, (uint8_t uuid[16], CUdevice device))

struct driver {
#define MEMBER(name, symbol, arguments) CUresult(*name) arguments;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

static int load(struct driver *driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found;
  if (!library) return 0;
#define FIND(name, symbol, arguments)                                                              \
  if (!(found = dlsym(library, #symbol))) return 0;                                                \
  memcpy(&driver->name, &found, sizeof found);
  FUNCTIONS(FIND)
#undef FIND
  return 1;
}

int gpu_ordinal(const uint8_t uuid[16]) {
  struct driver driver;
  int count = 0;
  if (!load(&driver) || driver.init(0) != 0 || driver.get_count(&count) != 0) return -1;
  for (int i = 0; i < count; i++) {
    CUdevice device;
    uint8_t found[16];
    if (driver.get(&device, i) == 0 && driver.get_uuid(found, device) == 0 &&
        memcmp(found, uuid, sizeof found) == 0)
      return i;
  }
  return -1;
}
