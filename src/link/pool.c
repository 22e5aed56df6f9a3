/* SPDX-License-Identifier: MIT
 *
 * The table of pool blocks. There are few (torch asks for 2 or 20 MiB at a time), so it is a list.
 *
 * Order of locks: an exporter's, then this one. Nothing is called with this one held.
 */
#include "link/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "cudalink/pool.h"
#include "link/reaper.h"
#include "link/service.h"
#include "link/share.h"

#define MOST_DEVICES 64

/* A GPU stays open while it has blocks. */
struct pool_device {
  struct gpu_device *device;
  uint32_t blocks;
};

static struct {
  pthread_mutex_t mutex;
  struct pool_block *first;
  uint64_t last_number;
  struct pool_device devices[MOST_DEVICES];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- looking up ------------------------------------------------------------------------------------ */

static bool contains(const struct gpu_block *block, uintptr_t start, uint64_t bytes) {
  uintptr_t first = (uintptr_t)block->address;
  return start >= first && bytes <= block->bytes && start - first <= block->bytes - bytes;
}

struct pool_block *pool_find(const void *data, uint64_t bytes, uint64_t *offset) {
  pthread_mutex_lock(&pool.mutex);
  struct pool_block *found = pool.first;
  while (found && (atomic_load(&found->freed) || !contains(&found->block, (uintptr_t)data, bytes)))
    found = found->next;
  if (found) {
    found->uses++;
    *offset = (uint64_t)((uintptr_t)data - (uintptr_t)found->block.address);
  }
  pthread_mutex_unlock(&pool.mutex);
  return found;
}

/* ---- devices ---------------------------------------------------------------------------------------- */

/* Another thread may open the same one meanwhile: the later one is given back. */
static int open_device(int ordinal, struct gpu_device **device) {
  struct gpu_device *opened = NULL;
  if (ordinal < 0 || ordinal >= MOST_DEVICES)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_pool_alloc: device %d; it is 0 to %d", ordinal, MOST_DEVICES - 1);
  struct pool_device *place = &pool.devices[ordinal];
  pthread_mutex_lock(&pool.mutex);
  if (place->device) place->blocks++;
  *device = place->device;
  pthread_mutex_unlock(&pool.mutex);
  if (*device) return CUDALINK_OK;
  int status = gpu_device_open(CUDALINK_KIND_VMM, CUDALINK_DEVICE(ordinal), NULL, &opened);
  if (status < 0) return status;
  pthread_mutex_lock(&pool.mutex);
  if (!place->device) {
    place->device = opened;
    opened = NULL;
  }
  place->blocks++;
  *device = place->device;
  pthread_mutex_unlock(&pool.mutex);
  reaper_device(opened);
  return CUDALINK_OK;
}

/* Behind its blocks, which the reaper has destroyed or comes to first. */
static void leave_device(struct gpu_device *device) {
  bool last = false;
  pthread_mutex_lock(&pool.mutex);
  for (uint32_t i = 0; i < MOST_DEVICES; i++) {
    struct pool_device *place = &pool.devices[i];
    if (place->device != device) continue;
    last = --place->blocks == 0;
    if (last) place->device = NULL;
  }
  pthread_mutex_unlock(&pool.mutex);
  if (last) reaper_device(device);
}

/* ---- uses --------------------------------------------------------------------------------------------- */

/* Nobody can find it any more. May block. */
static void destroy(void *argument) {
  struct pool_block *block = argument;
  struct gpu_device *device = block->block.device;
  service_close(block->inside);
  device->operations->block_destroy(&block->block);
  leave_device(device);
  free(block);
}

/* Under the mutex. */
static void unlink_block(const struct pool_block *block) {
  struct pool_block **link = &pool.first;
  while (*link != block)
    link = &(*link)->next;
  *link = block->next;
}

void pool_use(struct pool_block *block) {
  pthread_mutex_lock(&pool.mutex);
  block->uses++;
  pthread_mutex_unlock(&pool.mutex);
}

/* Was it the last one? */
static bool end_use(struct pool_block *block) {
  pthread_mutex_lock(&pool.mutex);
  bool last = --block->uses == 0;
  if (last) unlink_block(block);
  pthread_mutex_unlock(&pool.mutex);
  return last;
}

void pool_leave(struct pool_block *block) {
  if (end_use(block)) reaper_call(destroy, block);
}

/* ---- the allocator -------------------------------------------------------------------------------------- */

static int make(struct gpu_device *device, uint64_t bytes, struct pool_block **made) {
  struct pool_block *block = calloc(1, sizeof *block);
  if (!block) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a pool block");
  block->inside = OS_NO_HANDLE;
  int status = device->operations->block_create(device, bytes, &block->block);
  if (status == CUDALINK_OK) {
    status = service_give(block->block.shared.handle, &block->inside);
    os_handle_close(&block->block.shared.handle);
    if (status < 0) reaper_block(&block->block);
  }
  if (status < 0) {
    free(block);
    return status;
  }
  block->uses = 1;
  pthread_mutex_lock(&pool.mutex);
  block->number = ++pool.last_number;
  block->next = pool.first;
  pool.first = block;
  pthread_mutex_unlock(&pool.mutex);
  *made = block;
  return CUDALINK_OK;
}

static int round_up(const struct gpu_device *device, size_t bytes, uint64_t *rounded) {
  uint64_t unit = device->granularity ? device->granularity : 1, value = bytes ? bytes : 1;
  if (value <= (uint64_t)INT64_MAX - unit) {
    *rounded = (value + unit - 1) / unit * unit;
    return CUDALINK_OK;
  }
  return error_set(CUDALINK_ERROR_NO_SPACE, "no room for %zu byte%s on GPU %d", bytes,
                   error_s(bytes), device->ordinal);
}

void *cudalink_pool_alloc(size_t bytes, int ordinal, void *stream) {
  (void)stream; /* the memory is there at once */
  struct gpu_device *device = NULL;
  struct pool_block *block = NULL;
  uint64_t rounded;
  int status = service_start();
  if (status == CUDALINK_OK) status = open_device(ordinal, &device);
  if (status < 0 || !device) return NULL;
  status = round_up(device, bytes, &rounded);
  if (status == CUDALINK_OK) status = make(device, rounded, &block);
  if (status == CUDALINK_OK) return block->block.address;
  leave_device(device);
  return NULL;
}

/* CUDA's numbers for the default streams. */
static cudalink_stream stream_of(const void *stream) {
  switch ((uintptr_t)stream) {
  case 0:
  case 1: return CUDALINK_STREAM_LEGACY;
  case 2: return CUDALINK_STREAM_PER_THREAD;
  default: return CUDALINK_STREAM_HANDLE(stream);
  }
}

/* The block that begins there, which is its owner's no more. */
static struct pool_block *take_back(const void *address) {
  pthread_mutex_lock(&pool.mutex);
  struct pool_block *block = pool.first;
  while (block && (block->block.address != address || atomic_load(&block->freed)))
    block = block->next;
  if (block) atomic_store(&block->freed, true);
  pthread_mutex_unlock(&pool.mutex);
  return block;
}

void cudalink_pool_free(void *address, size_t bytes, int ordinal, void *stream) {
  (void)bytes;
  (void)ordinal;
  if (!address || service_check_fork() < 0) return; /* a forked child's copy is dead */
  struct pool_block *block = take_back(address);
  if (!block) return;
  struct gpu_device *device = block->block.device;
  device->operations->stream_finish(device, stream_of(stream));
  link_share_freed(block);
  if (end_use(block)) destroy(block); /* here and now: who frees may need the room */
}
