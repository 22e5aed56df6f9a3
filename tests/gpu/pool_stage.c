/* SPDX-License-Identifier: MIT
 *
 * See pool_stage.h. The tensors are what torch's would be: pieces of blocks, and overwritten as soon as their
 * owner may have them again.
 */
#include "pool_stage.h"

#include "link/exporter.h"
#include "link/reaper.h"

/* On the library's thread. The next one's numbers come at once. */
void drop(void *owner) {
  struct tensor *tensor = owner;
  CU(cuCtxSetCurrent(gpu_context()));
  CU(cuMemsetD8((CUdeviceptr)(uintptr_t)tensor->data, 0xdd, tensor->bytes));
  CU(cuStreamSynchronize(
      NULL)); /* the call alone does not wait, and no stream of ours waits for it */
  atomic_fetch_add(&tensor->drops, 1);
  atomic_store(&tensor->lent, false);
}

/* Pieces of one block, none at its begin. */
static void cut(struct pool *pool, char *block) {
  pool->block = block;
  for (int t = 0; t < TENSORS; t++)
    pool->tensors[t] = (struct tensor){.data = block + 512 + 32768 * t, .bytes = 16384};
}

void open_pool_with(struct pool *pool, cudalink_exporter_spec spec) {
  gpu_start();
  memset(pool, 0, sizeof *pool);
  pool->stream = gpu_stream();
  pool->counts = gpu_counts_make();
  describe_rgba(&pool->description, 64, 64);
  spec.size = sizeof spec;
  spec.name = "gpu";
  if (!spec.kind) spec.kind = CUDALINK_KIND_VMM;
  if (!spec.slot_bytes) spec.slot_bytes = 1;
  if (!spec.max_slots) spec.slots = spec.max_slots = 8; /* each may keep a tensor */
  CHECK_OK(cudalink_exporter_open(&pool->exporter, &spec));
  char *block = cudalink_pool_alloc(100, 0, pool->stream); /* rounded up */
  CHECK(block != NULL);
  cut(pool, block);
}
void open_pool(struct pool *pool) { open_pool_with(pool, (cudalink_exporter_spec){0}); }

bool any_lent(const struct pool *pool) {
  for (int t = 0; t < TENSORS; t++)
    if (atomic_load(&pool->tensors[t].lent)) return true;
  return false;
}

/* Its consumers have let go, or are about to. */
void close_pool(struct pool *pool) {
  CHECK_OK(cudalink_exporter_close(pool->exporter));
  WAIT_UNTIL(!any_lent(pool));
  cudalink_pool_free(pool->block, BLOCK, 0, pool->stream);
}

cudalink_exporter_statistics statistics_of(const struct pool *pool) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(pool->exporter, &statistics));
  return statistics;
}

struct tensor *free_tensor(struct pool *pool) {
  for (int t = 0; t < TENSORS; t++)
    if (!atomic_load(&pool->tensors[t].lent)) return &pool->tensors[t];
  return NULL;
}

/* The number of the next frame is its pattern, as the consumers expect. */
int send_tensor(struct pool *pool, struct tensor *tensor, uint64_t pause) {
  uint64_t next = statistics_of(pool).published + 1;
  int shared;
  gpu_fill(pool->stream, tensor->data, tensor->bytes, next, pause);
  atomic_store(&tensor->lent, true);
  CHECK_OK(cudalink_exporter_send_shared(pool->exporter, &pool->description, tensor->data, NULL,
                                         ON(pool->stream), 20 * SECOND, tensor, drop, &shared));
  if (!shared) {
    CU(cuStreamSynchronize(pool->stream));
    atomic_store(&tensor->lent, false);
  }
  return shared;
}

int give(struct pool *pool) {
  struct tensor *tensor;
  WAIT_UNTIL((tensor = free_tensor(pool)) != NULL);
  return send_tensor(pool, tensor, 0);
}

static int nothing(void *argument) {
  (void)argument;
  return CUDALINK_OK;
}

/* What the service thread and the reaper have to do is done. */
void settle(void) {
  for (int i = 0; i < 3; i++) {
    service_call(nothing, NULL);
    reaper_drain();
  }
}

uint64_t dropped(const struct pool *pool) {
  uint64_t drops = 0;
  for (int t = 0; t < TENSORS; t++)
    drops += atomic_load(&pool->tensors[t].drops);
  return drops;
}

void ask(struct process *process, const char *format, ...) {
  char line[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  process_tell(process, "%s", line);
  process_expect(process, line);
}

struct process *start_holder(struct pool *pool, uint32_t isolated) {
  uint32_t consumers = statistics_of(pool).consumers + 1;
  struct process *holder = process_start("holder", "isolated=%u", isolated);
  process_expect(holder, "open");
  CHECK_OK(cudalink_exporter_wait_consumers(pool->exporter, consumers, 20 * SECOND));
  return holder;
}

/* The first tensor, held by a consumer of another process. */
struct process *open_and_hold(struct pool *pool) {
  open_pool(pool);
  struct process *holder = start_holder(pool, 0);
  CHECK_EQUAL(send_tensor(pool, &pool->tensors[0], 0), 1);
  ask(holder, "take 0");
  return holder;
}

void give_many(struct pool *pool, int count) {
  for (int i = 0; i < count; i++)
    CHECK_EQUAL(give(pool), 1);
  settle();
}

void open_importer(cudalink_importer *importer, uint32_t isolated, uint32_t gpu_wait) {
  CHECK_OK(cudalink_importer_open(
      importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 2,
                                          .isolated = isolated, .gpu_wait = gpu_wait, .writable = 1,
                                          .open_timeout = 30 * SECOND}));
}

void pass(struct pool *pool, cudalink_importer importer, uint32_t flags) {
  cudalink_frame frame;
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 30 * SECOND, &frame));
  CHECK_EQUAL(frame.flags, flags);
  CHECK_EQUAL(frame.sequence, statistics_of(pool).published);
  CHECK_EQUAL(frame.writable, flags ? 0 : 1);
  gpu_check(pool->stream, frame.data, pool->tensors[0].bytes, frame.sequence, 0, pool->counts);
  CHECK_EQUAL(gpu_counts_read(pool->counts, pool->stream).wrong, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
}
