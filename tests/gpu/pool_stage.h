/* SPDX-License-Identifier: MIT
 *
 * What the tests of memory pools share: a channel with a block that is cut into tensors.
 */
#ifndef CUDALINK_TESTS_GPU_POOL_STAGE_H
#define CUDALINK_TESTS_GPU_POOL_STAGE_H

#include "cudalink/pool.h"
#include "gpu.h"

#define NONE CUDALINK_STREAM_COMPLETE
#define BLOCK ((uint64_t)2 << 20)
#define TENSORS 16

struct tensor {
  void *data;
  uint64_t bytes;
  _Atomic bool lent;
  _Atomic uint32_t drops;
};

struct pool {
  char *block;
  cudalink_exporter exporter;
  cudalink_description description;
  CUstream stream;
  CUdeviceptr counts;
  struct tensor tensors[TENSORS];
};

/* For send_shared: overwrites the tensor of its owner, and gives it back. */
void drop(void *owner);
void open_pool_with(struct pool *pool, cudalink_exporter_spec spec);
void open_pool(struct pool *pool);
bool any_lent(const struct pool *pool);
/* Its consumers have let go, or are about to. */
void close_pool(struct pool *pool);
cudalink_exporter_statistics statistics_of(const struct pool *pool);
struct tensor *free_tensor(struct pool *pool);
/* The number of the next frame is its pattern, as the consumers expect; 1: shared. */
int send_tensor(struct pool *pool, struct tensor *tensor, uint64_t pause);
/* The next frame from a tensor that is free; 1: shared. */
int give(struct pool *pool);
/* What the service thread and the reaper have to do is done. */
void settle(void);
uint64_t dropped(const struct pool *pool);
/* A holder does it, and says it back. */
__attribute__((format(printf, 2, 3))) void ask(struct process *process, const char *format, ...);
struct process *start_holder(struct pool *pool, uint32_t isolated);
/* The first tensor, held by a consumer of another process. */
struct process *open_and_hold(struct pool *pool);
void give_many(struct pool *pool, int count);
void open_importer(cudalink_importer *importer, uint32_t isolated, uint32_t gpu_wait);
/* The newest frame has these flags and its own pattern. */
void pass(struct pool *pool, cudalink_importer importer, uint32_t flags);

#endif
