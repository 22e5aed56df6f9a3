/* SPDX-License-Identifier: MIT
 *
 * Trying the kinds of memory: a block with a pattern, made by one process and read by another.
 */
#include "gpu/probe.h"

#include <string.h>

#define PATTERN UINT64_C(0x6B6E696C61647563)

int gpu_probe_open(cudalink_kind kind, int32_t device, struct gpu_device **opened) {
  /* Whoever imports names a UUID, and imports are not tried at open. The ordinal counts first. */
  static const uint8_t any_uuid[16];
  if (kind == CUDALINK_KIND_HOST) return gpu_host_open(opened);
  return gpu_cuda_open(kind, device ? device : CUDALINK_DEVICE(0), any_uuid, opened);
}

static int access_word(struct gpu_device *device, struct gpu_block *block, bool write,
                       uint64_t *word) {
  if (device->kind != CUDALINK_KIND_HOST) return gpu_cuda_word(device, block->address, write, word);
  memcpy(write ? block->address : word, write ? word : block->address, sizeof *word);
  return CUDALINK_OK;
}

int gpu_probe_make(struct gpu_device *device, struct gpu_block *block,
                   struct gpu_probe_block *shared) {
  int status = device->operations->block_create(device, device->granularity, block);
  if (status < 0) return status;
  uint64_t word = PATTERN;
  status = access_word(device, block, true, &word);
  if (status == CUDALINK_OK && device->operations->block_seal)
    status = device->operations->block_seal(block);
  *shared = (struct gpu_probe_block){device->kind, CUDALINK_DEVICE(device->ordinal), block->bytes,
                                     PATTERN, block->shared};
  if (status < 0) device->operations->block_destroy(block);
  return status;
}

int gpu_probe_map(struct gpu_device *device, struct gpu_probe_block *shared) {
  struct gpu_block block;
  uint64_t word = 0;
  int status =
      device->operations->block_import(device, &shared->shared, shared->bytes, false, &block);
  if (status < 0) return status;
  status = access_word(device, &block, false, &word);
  device->operations->block_destroy(&block);
  if (status < 0 || word == shared->pattern) return status;
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "the memory was mapped, but it holds %llx instead of the %llx that was written "
                   "into it",
                   (unsigned long long)word, (unsigned long long)shared->pattern);
}
