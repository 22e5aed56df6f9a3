/* SPDX-License-Identifier: MIT
 *
 * Trying what a GPU can do by doing it once, for cudalink/probe.h. Called in a process of its own,
 * where a crash or a hang is an answer; in the program's only when it asks for that.
 */
#ifndef CUDALINK_SRC_GPU_PROBE_H
#define CUDALINK_SRC_GPU_PROBE_H

#include "cudalink/probe.h"
#include "gpu/gpu.h"

/* What the process that maps a block is told. The handle goes beside it. */
struct gpu_probe_block {
  cudalink_kind kind;
  int32_t device;
  uint64_t bytes;
  uint64_t pattern; /* the block's first word */
  struct gpu_shared shared;
};

/* The device for a kind without trying the kind itself. */
int gpu_probe_open(cudalink_kind kind, int32_t device, struct gpu_device **opened);
/* Makes a small block and writes the pattern; says how to map it. */
int gpu_probe_make(struct gpu_device *device, struct gpu_block *block,
                   struct gpu_probe_block *shared);
/* Maps it and compares. Takes the handle. */
int gpu_probe_map(struct gpu_device *device, struct gpu_probe_block *shared);

enum gpu_sync { GPU_WRITE64, GPU_WAIT64, GPU_WRITE32, GPU_WAIT32, GPU_HOST_FUNCTION };

/* The rest is about CUDA. `*version` is 0 without a usable driver; the library may still be there. */
int gpu_cuda_driver(int32_t *version, char *library, size_t size);
/* At most `capacity`; *count = how many there are. */
int gpu_cuda_devices(cudalink_probe_device *devices, uint32_t capacity, uint32_t *count);
/* 1, 0, or -1: the driver does not say. */
int gpu_cuda_mps(struct gpu_device *gpu);
/* One store or wait of a stream on a shared word. *ns = from the queuing (from the CPU's store, for
 * waits) until it was seen. TIMEOUT: it never was, and what was made for it is left alone, since taking it
 * apart would wait. */
int gpu_cuda_try_sync(struct gpu_device *gpu, enum gpu_sync sync, uint64_t deadline, uint64_t *ns);
int gpu_cuda_word(struct gpu_device *gpu, void *address, bool write, uint64_t *word);

#endif
