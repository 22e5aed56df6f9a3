/* SPDX-License-Identifier: MIT
 *
 * Ranges for profilers (NVTX, CUDALINK_NVTX=1). A profiler names its library in NVTX_INJECTION64_PATH;
 * it is loaded and asked for its functions the way the NVTX headers do, so nothing of NVIDIA's has
 * to be there. Off, which is usual, a range costs a load and a branch at either end.
 */
#ifndef CUDALINK_SRC_BASE_NVTX_H
#define CUDALINK_SRC_BASE_NVTX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum nvtx_level { NVTX_OFF, NVTX_ON, NVTX_VERBOSE };

extern _Atomic int nvtx_level;

/* At the open of an exporter or importer: reads the variables. Once on, ranges stay on in this
 * process. */
void nvtx_open(void);

#define NVTX_NO_SLOT UINT32_MAX
bool nvtx_push(const char *name, uint32_t slot);
void nvtx_pop(void);

/* A range named NAME, or NAME.slotN, until the end of the block. */
#define NVTX_RANGE_AT(variable, level, name, slot)                                                 \
  __attribute__((cleanup(nvtx_end), unused)) const bool variable = nvtx_begin(level, name, slot)
#define NVTX_RANGE(name, slot) NVTX_RANGE_AT(nvtx_range, NVTX_ON, name, slot)
#define NVTX_INNER_RANGE(name) NVTX_RANGE_AT(nvtx_inner_range, NVTX_VERBOSE, name, NVTX_NO_SLOT)

static inline bool nvtx_begin(enum nvtx_level level, const char *name, uint32_t slot) {
  /* relaxed: nvtx_push looks again, with acquire. */
  if (__builtin_expect(atomic_load_explicit(&nvtx_level, memory_order_relaxed) < (int)level, 1))
    return false;
  return nvtx_push(name, slot);
}

static inline void nvtx_end(const bool *pushed) {
  if (__builtin_expect(*pushed, 0)) nvtx_pop();
}

#endif
