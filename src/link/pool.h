/* SPDX-License-Identifier: MIT
 *
 * Blocks of GPU memory that frames may lie in (cudalink/pool.h): one table per process, by address.
 *
 * A block is used by whoever freed it not yet (its owner), by each exporter that has told consumers of it,
 * and by each frame in it. It goes with its last use.
 */
#ifndef CUDALINK_SRC_LINK_POOL_H
#define CUDALINK_SRC_LINK_POOL_H

#include "gpu/gpu.h"

struct pool_block {
  struct pool_block *next;
  uint64_t number; /* from 1, never used again */
  struct gpu_block block;
  os_handle inside; /* of the service thread's table */
  uint32_t uses;    /* under the pool's mutex */
  _Atomic bool freed;
};

/* The block that all these bytes lie in, with a use for the caller, and where; NULL: none. */
struct pool_block *pool_find(const void *data, uint64_t bytes, uint64_t *offset);
/* One use more, by who has one. */
void pool_use(struct pool_block *block);
/* One less. Never blocks. */
void pool_leave(struct pool_block *block);

#endif
