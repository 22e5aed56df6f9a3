/* SPDX-License-Identifier: MIT
 *
 * Frames that are published where they lie, in blocks of a pool. The tensors here are what torch's would
 * be: pieces of blocks, and overwritten as soon as their owner may have them again.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudalink/pool.h"
#include "gpu.h"
#include "link/exporter.h"
#include "link/pool.h"
#include "link/reaper.h"

#define NONE CUDALINK_STREAM_COMPLETE
#define BLOCK ((uint64_t)2 << 20)
#define TENSORS 16

/* ---- tensors --------------------------------------------------------------------------------------- */

struct tensor {
  void *data;
  uint64_t bytes;
  _Atomic bool lent;
  _Atomic uint32_t drops;
};

/* On the library's thread. The next one's numbers come at once. */
static void drop(void *owner) {
  struct tensor *tensor = owner;
  CU(cuCtxSetCurrent(gpu_context()));
  CU(cuMemsetD8((CUdeviceptr)(uintptr_t)tensor->data, 0xdd, tensor->bytes));
  CU(cuStreamSynchronize(
      NULL)); /* the call alone does not wait, and no stream of ours waits for it */
  atomic_fetch_add(&tensor->drops, 1);
  atomic_store(&tensor->lent, false);
}

struct pool {
  char *block;
  cudalink_exporter exporter;
  cudalink_description description;
  CUstream stream;
  CUdeviceptr counts;
  struct tensor tensors[TENSORS];
};

/* Pieces of one block, none at its begin. */
static void cut(struct pool *pool, char *block) {
  pool->block = block;
  for (int t = 0; t < TENSORS; t++)
    pool->tensors[t] = (struct tensor){.data = block + 512 + 32768 * t, .bytes = 16384};
}

static void open_pool_with(struct pool *pool, cudalink_exporter_spec spec) {
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
static void open_pool(struct pool *pool) { open_pool_with(pool, (cudalink_exporter_spec){0}); }

static bool any_lent(const struct pool *pool) {
  for (int t = 0; t < TENSORS; t++)
    if (atomic_load(&pool->tensors[t].lent)) return true;
  return false;
}

/* Its consumers have let go, or are about to. */
static void close_pool(struct pool *pool) {
  CHECK_OK(cudalink_exporter_close(pool->exporter));
  WAIT_UNTIL(!any_lent(pool));
  cudalink_pool_free(pool->block, BLOCK, 0, pool->stream);
}

static cudalink_exporter_statistics statistics_of(const struct pool *pool) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(pool->exporter, &statistics));
  return statistics;
}

static struct tensor *free_tensor(struct pool *pool) {
  for (int t = 0; t < TENSORS; t++)
    if (!atomic_load(&pool->tensors[t].lent)) return &pool->tensors[t];
  return NULL;
}

/* The number of the next frame is its pattern, as the consumers expect. */
static int send_tensor(struct pool *pool, struct tensor *tensor, uint64_t pause) {
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

static int give(struct pool *pool) {
  struct tensor *tensor;
  WAIT_UNTIL((tensor = free_tensor(pool)) != NULL);
  return send_tensor(pool, tensor, 0);
}

static int nothing(void *argument) {
  (void)argument;
  return CUDALINK_OK;
}

/* What the service thread and the reaper have to do is done. */
static void settle(void) {
  for (int i = 0; i < 3; i++) {
    service_call(nothing, NULL);
    reaper_drain();
  }
}

static uint64_t dropped(const struct pool *pool) {
  uint64_t drops = 0;
  for (int t = 0; t < TENSORS; t++)
    drops += atomic_load(&pool->tensors[t].drops);
  return drops;
}

/* ---- processes --------------------------------------------------------------------------------------- */

static void hand_over(const char *options, uint32_t consumers, bool all_shared) {
  struct pool pool;
  struct process *drains[4];
  open_pool(&pool);
  for (uint32_t i = 0; i < consumers; i++)
    drains[i] = start_drain("pause=20000 delay=100 %s", options);
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, consumers, 20 * SECOND));
  uint64_t copies = FAKE_NUMBER(fakecuda_copies);
  for (int frame = 0; frame < 300; frame++) {
    struct tensor *tensor;
    WAIT_UNTIL((tensor = free_tensor(&pool)) != NULL);
    send_tensor(&pool, tensor, 20000);
  }
  CHECK_OK(cudalink_exporter_wait_taken(pool.exporter, 20 * SECOND));
  cudalink_exporter_statistics statistics = statistics_of(&pool);
  CHECK_EQUAL(statistics.published, 300);
  CHECK_EQUAL(statistics.shared + statistics.share_copies, 300);
  printf("  shared %llu\n", (unsigned long long)statistics.shared);
  if (all_shared) CHECK_EQUAL(statistics.shared, 300);
  if (all_shared) CHECK_EQUAL(statistics.copies, 0);
  if (all_shared) CHECK_EQUAL(statistics.generations, 1); /* of slots of one byte */
  settle();
  if (gpu_is_fake()) /* it counts fills, too */
    CHECK_EQUAL(FAKE_NUMBER(fakecuda_copies) - copies, statistics.copies + dropped(&pool));
  close_pool(&pool);
  for (uint32_t i = 0; i < consumers; i++) {
    const char *said = process_hear(drains[i]);
    printf("  %s\n", said);
    CHECK_EQUAL(line_number(said, "wrong"), 0);
    CHECK_EQUAL(line_number(said, "ended"), 1);
    CHECK(line_number(said, "checked") > 0);
    if (strstr(options, "every")) CHECK_EQUAL(line_number(said, "checked"), 300);
    process_finish(drains[i]);
  }
}

#define HAND_OVER(name, options, consumers, all_shared)                                            \
  TEST(name, 120) { hand_over(options, consumers, all_shared); }
HAND_OVER(pool_latest, "policy=latest", 1, true)
HAND_OVER(pool_every, "policy=every", 2, true)
HAND_OVER(pool_every_stream, "policy=every gpu_wait=1", 1, true)
HAND_OVER(pool_ready_only, "policy=ready", 1, true)
HAND_OVER(pool_in_order, "policy=order gpu_wait=1 hold=2", 2, true)
HAND_OVER(pool_to_host, "policy=every complete=1 to_host=1", 1, true)
HAND_OVER(pool_next, "policy=latest gpu_wait=1 next=1", 1, true)
HAND_OVER(pool_isolated, "policy=every isolated=1", 1, false)

/* ---- frames that are held ------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void ask(struct process *process, const char *format,
                                                      ...) {
  char line[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  process_tell(process, "%s", line);
  process_expect(process, line);
}

static struct process *start_holder(struct pool *pool, uint32_t isolated) {
  uint32_t consumers = statistics_of(pool).consumers + 1;
  struct process *holder = process_start("holder", "isolated=%u", isolated);
  process_expect(holder, "open");
  CHECK_OK(cudalink_exporter_wait_consumers(pool->exporter, consumers, 20 * SECOND));
  return holder;
}

/* The first tensor, held by a consumer of another process. */
static struct process *open_and_hold(struct pool *pool) {
  open_pool(pool);
  struct process *holder = start_holder(pool, 0);
  CHECK_EQUAL(send_tensor(pool, &pool->tensors[0], 0), 1);
  ask(holder, "take 0");
  return holder;
}

static void give_many(struct pool *pool, int count) {
  for (int i = 0; i < count; i++)
    CHECK_EQUAL(give(pool), 1);
  settle();
}

/* Others come and go; it stays. */
TEST(pool_held_frame_stays_whole, 60) {
  struct pool pool;
  struct process *holder = open_and_hold(&pool);
  give_many(&pool, 50);
  ask(holder, "check 0");
  CHECK_EQUAL(atomic_load(&pool.tensors[0].drops), 0);
  ask(holder, "release 0");
  give_many(&pool, 50);
  CHECK(atomic_load(&pool.tensors[0].drops) > 0);
  process_finish(holder);
  close_pool(&pool);
}

/* Its slot's generation is an older one then. */
TEST(pool_held_through_growth, 60) {
  struct pool pool;
  cudalink_slot slot;
  struct process *holder = open_and_hold(&pool);
  for (uint32_t step = 1; step <= 3; step++) {
    cudalink_description larger;
    describe_rgba(&larger, 64 + 4096 * step, 64);
    CHECK_OK(cudalink_exporter_begin(pool.exporter, &larger, 20 * SECOND, &slot));
    gpu_fill(pool.stream, slot.data, 4 * 64 * (64 + 4096 * (uint64_t)step), slot.sequence, 0);
    CHECK_OK(cudalink_exporter_publish(pool.exporter, &slot, ON(pool.stream)));
    give_many(&pool, 10);
    ask(holder, "take 1");
    ask(holder, "check 1");
    ask(holder, "release 1");
    settle();
    ask(holder, "check 0");
  }
  CHECK_EQUAL(atomic_load(&pool.tensors[0].drops), 0);
  ask(holder, "release 0");
  WAIT_UNTIL(atomic_load(&pool.tensors[0].drops) == 1);
  process_finish(holder);
  close_pool(&pool);
}

/* Longer than what would be wrong needs (a death that is believed takes 50 ms); what is right takes none. */
static void live_on(void) {
  uint64_t end = cudalink_now() + SECOND / 2;
  WAIT_UNTIL(cudalink_now() >= end);
  settle();
}

/* Frames that were published stay to be read; then the last release, or death, ends them. */
static void hold_beyond_close(bool kill) {
  struct pool pool;
  struct process *holder = open_and_hold(&pool);
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[1], 0), 1);
  CU(cuStreamSynchronize(pool.stream)); /* what is not complete is not left behind */
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  settle();
  ask(holder, "take 1");
  ask(holder, "end");
  live_on();
  ask(holder, "check 0");
  ask(holder, "check 1");
  CHECK_EQUAL(dropped(&pool), 0);
  ask(holder, "release 1");
  live_on();
  ask(holder, "check 0");
  CHECK_EQUAL(atomic_load(&pool.tensors[0].drops), 0);
  if (kill)
    process_kill(holder);
  else
    ask(holder, "release 0");
  WAIT_UNTIL(dropped(&pool) == 2);
  if (!kill) process_finish(holder);
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}
TEST(pool_held_beyond_close, 60) { hold_beyond_close(false); }
TEST(pool_held_beyond_close_until_death, 60) { hold_beyond_close(true); }

/* A consumer that has taken nothing yet. */
TEST(pool_close_without_holders, 60) {
  struct pool pool;
  open_pool(&pool);
  struct process *holder = start_holder(&pool, 0);
  give_many(&pool, 3);
  CU(cuStreamSynchronize(pool.stream));
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  ask(holder, "take 0"); /* the newest */
  ask(holder, "check 0");
  ask(holder, "release 0");
  ask(holder, "end");
  WAIT_UNTIL(dropped(&pool) == 3);
  process_finish(holder);
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

/* Taken back while it is held: never written again before its holder lets go. */
TEST(pool_evicted_holder_keeps_its_frame, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  open_pool_with(
      &pool, (cudalink_exporter_spec){.slots = 3, .max_slots = 3, .hold_limit = 20 * MILLISECOND});
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 1,
                                           .open_timeout = 5 * SECOND}));
  struct process *holders[2] = {start_holder(&pool, 0), start_holder(&pool, 0)};
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[0], 0), 1);
  ask(holders[0], "take 0");
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[1], 0), 1);
  ask(holders[1], "take 0");
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[2], 0), 1);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 5 * SECOND, &frame));
  for (int i = 0; i < 20; i++)
    CHECK_EQUAL(give(&pool), 1);
  settle();
  CHECK_EQUAL(statistics_of(&pool).evicted, 1); /* the first one */
  for (int t = 0; t < 3; t++)
    CHECK_EQUAL(atomic_load(&pool.tensors[t].drops), 0);
  ask(holders[0], "check 0");
  ask(holders[1], "check 0");
  ask(holders[0], "release 0");
  ask(holders[1], "release 0");
  process_finish(holders[0]);
  process_finish(holders[1]);
  for (int i = 0; i < 20; i++)
    CHECK_EQUAL(give(&pool), 1);
  live_on();
  CHECK_EQUAL(atomic_load(&pool.tensors[2].drops), 0);
  gpu_check(pool.stream, frame.data, 16384, frame.sequence, 0, pool.counts);
  CHECK_EQUAL(gpu_counts_read(pool.counts, pool.stream).wrong, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
  WAIT_UNTIL(atomic_load(&pool.tensors[2].drops) == 1);
  close_pool(&pool);
}

/* ---- in one process ---------------------------------------------------------------------------------------- */

static void open_importer(cudalink_importer *importer, uint32_t isolated, uint32_t gpu_wait) {
  CHECK_OK(cudalink_importer_open(
      importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 2,
                                          .isolated = isolated, .gpu_wait = gpu_wait, .writable = 1,
                                          .open_timeout = 5 * SECOND}));
}

static void pass(struct pool *pool, cudalink_importer importer, uint32_t flags) {
  cudalink_frame frame;
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 5 * SECOND, &frame));
  CHECK_EQUAL(frame.flags, flags);
  CHECK_EQUAL(frame.sequence, statistics_of(pool).published);
  CHECK_EQUAL(frame.writable, flags ? 0 : 1);
  gpu_check(pool->stream, frame.data, pool->tensors[0].bytes, frame.sequence, 0, pool->counts);
  CHECK_EQUAL(gpu_counts_read(pool->counts, pool->stream).wrong, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
}

TEST(pool_frames_say_what_they_are, 60) {
  struct pool pool;
  cudalink_importer importer;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  void *elsewhere = gpu_memory(GPU_MEMORY_DEVICE, 16384, pool.stream);
  struct tensor plain = {.data = elsewhere, .bytes = 16384};
  CHECK_EQUAL(send_tensor(&pool, &plain, 0), 0);
  pass(&pool, importer, 0);
  cudalink_exporter_statistics statistics = statistics_of(&pool);
  CHECK_EQUAL(statistics.share_copies, 0); /* it lies in no pool: nothing was to be shared */
  CHECK_EQUAL(statistics.copies, 1);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* A slot's description is written again when its frame lies somewhere else. */
TEST(pool_frames_and_others_in_turn, 60) {
  struct pool pool;
  cudalink_importer importer;
  open_pool_with(&pool, (cudalink_exporter_spec){.slot_bytes = 16384});
  open_importer(&importer, 0, 0);
  struct tensor plain = {.data = gpu_memory(GPU_MEMORY_DEVICE, 16384, pool.stream), .bytes = 16384};
  for (int i = 0; i < 90; i++) {
    bool shared = i % 3 != 0;
    CHECK_EQUAL(shared ? give(&pool) : send_tensor(&pool, &plain, 0), shared);
    pass(&pool, importer, shared ? CUDALINK_FRAME_SHARED : 0);
  }
  CHECK_EQUAL(statistics_of(&pool).generations, 1);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* Beyond the end, and across two blocks. */
TEST(pool_looks_at_every_byte, 60) {
  struct pool pool;
  open_pool(&pool);
  struct tensor end = {.data = pool.block + BLOCK - 16384, .bytes = 16384};
  CHECK_EQUAL(send_tensor(&pool, &end, 0), 1);
  int shared;
  int status =
      cudalink_exporter_send_shared(pool.exporter, &pool.description, pool.block + BLOCK - 16376,
                                    NULL, ON(pool.stream), SECOND, &end, drop, &shared);
  if (gpu_is_fake()) CHECK(status < 0); /* a real one may have other memory right behind */
  CHECK_EQUAL(shared, 0);
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  WAIT_UNTIL(!atomic_load(&end.lent));
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

TEST(pool_isolated_consumers_get_copies, 60) {
  struct pool pool;
  cudalink_importer plain, isolated;
  open_pool(&pool);
  open_importer(&plain, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, plain, CUDALINK_FRAME_SHARED);
  open_importer(&isolated, 1, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, 2, SECOND));
  for (int i = 0; i < 5; i++) {
    CHECK_EQUAL(give(&pool), 0);
    pass(&pool, plain, 0);
    pass(&pool, isolated, 0);
  }
  CHECK_EQUAL(statistics_of(&pool).share_copies, 5);
  CHECK_CONTAINS(statistics_of(&pool).share_reason, "isolated");
  CHECK_OK(cudalink_importer_close(isolated));
  WAIT_UNTIL(statistics_of(&pool).consumers == 1);
  settle();
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, plain, CUDALINK_FRAME_SHARED);
  CHECK_OK(cudalink_importer_close(plain));
  close_pool(&pool);
}

TEST(pool_other_kinds_copy, 60) {
  struct pool pool;
  open_pool_with(&pool, (cudalink_exporter_spec){.kind = CUDALINK_KIND_IPC});
  CHECK_EQUAL(give(&pool), 0);
  CHECK_EQUAL(statistics_of(&pool).share_copies, 1);
  CHECK_CONTAINS(statistics_of(&pool).share_reason, "vmm");
  close_pool(&pool);
}

TEST(pool_on_another_gpu_is_refused, 60) {
  struct pool pool;
  CUcontext other;
  int count, shared;
  setenv("FAKECUDA_DEVICES", "2", 1);
  gpu_start();
  CU(cuDeviceGetCount(&count));
  if (count < 2) SKIP("needs a GPU");
  CU(cuDevicePrimaryCtxRetain(&other, 1));
  open_pool(&pool);
  char *block = cudalink_pool_alloc(BLOCK, 1, NULL);
  CHECK(block != NULL);
  struct tensor tensor = {.data = block, .bytes = 16384};
  CHECK_STATUS(cudalink_exporter_send_shared(pool.exporter, &pool.description, block, NULL, NONE,
                                             SECOND, &tensor, drop, &shared),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_EQUAL(shared, 0);
  CHECK_CONTAINS(cudalink_last_error(), "a pool of GPU 1, but the frames are on GPU 0");
  cudalink_pool_free(block, BLOCK, 1, NULL);
  close_pool(&pool);
}

/* A stream that waits for the next frame knows where it will be: it comes there. */
TEST(pool_announced_frame_comes_in_its_slot, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  cudalink_slot slot;
  open_pool(&pool);
  open_importer(&importer, 0, 1);
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, 1, SECOND));
  CHECK_OK(cudalink_exporter_begin(pool.exporter, &pool.description, SECOND, &slot));
  gpu_fill(pool.stream, slot.data, 16384, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(pool.exporter, &slot, ON(pool.stream)));
  pass(&pool, importer, 0);
  CUdeviceptr counts = gpu_counts_make();
  CUstream stream = gpu_stream();
  CHECK_OK(cudalink_importer_wait_next(importer, ON(stream), SECOND, &frame));
  gpu_check(stream, frame.data, 16384, frame.sequence, 0, counts);
  CHECK_EQUAL(give(&pool), 0);
  CHECK_EQUAL(gpu_counts_read(counts, stream).wrong, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_CONTAINS(statistics_of(&pool).share_reason, "wanted in its slot");
  for (int i = 0; i < 10; i++) { /* announced, and wanted by nobody */
    CHECK_EQUAL(give(&pool), 1);
    pass(&pool, importer, CUDALINK_FRAME_SHARED);
  }
  CHECK_STATUS(cudalink_importer_wait_next(importer, ON(stream), 0, &frame), CUDALINK_ERROR_BUSY);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* ---- blocks that come and go ---------------------------------------------------------------------------- */

static uint64_t live(void) { return FAKE_NUMBER(fakecuda_live_bytes); }

/* In both ends, which are in this process: the fake counts what is mapped. */
TEST(pool_freed_blocks_are_unmapped, 60) {
  struct pool pool;
  cudalink_importer importer;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  settle();
  uint64_t handles = FAKE_NUMBER(fakecuda_live_handles), bytes = live();
  for (int i = 0; i < 200; i++) { /* more than are known at a time */
    char *block = cudalink_pool_alloc(3 * BLOCK / 2, 0, NULL);
    CHECK(block != NULL);
    struct tensor tensor = {.data = block + 2 * BLOCK - 16384, .bytes = 16384};
    CHECK_EQUAL(send_tensor(&pool, &tensor, 0), 1);
    pass(&pool, importer, CUDALINK_FRAME_SHARED);
    for (int rest = 0; !atomic_load(&tensor.drops); rest++) {
      CHECK(rest < 16);
      CHECK_EQUAL(give(&pool), 1);
      settle();
    }
    cudalink_pool_free(block, 3 * BLOCK / 2, 0, NULL);
    settle();
    if (gpu_is_fake()) WAIT_UNTIL(live() == bytes);
  }
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_live_handles), handles);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* A consumer that can't map a block is told why, and may try again. */
TEST(pool_mapping_fails_once, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver fails when it likes */
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  struct tensor plain = {.data = gpu_memory(GPU_MEMORY_DEVICE, 16384, pool.stream), .bytes = 16384};
  CHECK_EQUAL(send_tensor(&pool, &plain, 0), 0);
  pass(&pool, importer, 0); /* what is no pool's is mapped */
  CHECK_EQUAL(give(&pool), 1);
  settle();
  FAKE(fakecuda_fail, "cuMemImportFromShareableHandle", 1, CUDA_ERROR_UNKNOWN);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, SECOND, &frame), CUDALINK_ERROR_GPU);
  CHECK_CONTAINS(cudalink_last_error(), "mapping 2097152 bytes");
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* Who frees under a frame gets what is promised all the same. */
TEST(pool_free_waits_for_frames, 60) {
  struct pool pool;
  struct process *holder = open_and_hold(&pool);
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[1], 0), 1);
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
  settle();
  ask(holder, "check 0");
  ask(holder, "take 1");
  ask(holder, "check 1");
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[2], 0), 0); /* it is no block any more, */
  ask(holder, "release 0");
  ask(holder, "release 1");
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  WAIT_UNTIL(dropped(&pool) == 2); /* but its memory was there until now */
}

/* More blocks at a time than consumers are told of: copies, until idle ones have gone. */
TEST(pool_many_blocks, 120) {
  enum { BLOCKS = LINK_MAX_POOL_BLOCKS + 8 };
  struct pool pool;
  cudalink_importer importer;
  char *blocks[BLOCKS];
  struct tensor tensors[BLOCKS];
  open_pool_with(&pool, (cudalink_exporter_spec){.slots = 4, .max_slots = 4});
  open_importer(&importer, 0, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, 1, SECOND));
  int shared = 0;
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = cudalink_pool_alloc(BLOCK, 0, NULL);
    CHECK(blocks[i] != NULL);
    tensors[i] = (struct tensor){.data = blocks[i], .bytes = 16384};
    int was = send_tensor(&pool, &tensors[i], 0);
    pass(&pool, importer, was ? CUDALINK_FRAME_SHARED : 0);
    settle();
    shared += was;
  }
  CHECK_EQUAL(shared, BLOCKS - 1); /* then idle ones had gone */
  CHECK_EQUAL(statistics_of(&pool).share_copies, BLOCKS - shared);
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  for (int i = 0; i < BLOCKS; i++)
    WAIT_UNTIL(!atomic_load(&tensors[i].lent));
  for (int i = 0; i < BLOCKS; i++)
    cudalink_pool_free(blocks[i], BLOCK, 0, NULL);
  cudalink_pool_free(pool.block, BLOCK, 0, NULL);
}

TEST(pool_allocator_says_what_is_wrong, 60) {
  gpu_start();
  CHECK(!cudalink_pool_alloc(100, -1, NULL));
  CHECK_CONTAINS(cudalink_last_error(), "device -1");
  CHECK(!cudalink_pool_alloc(100, 63, NULL));
  CHECK(!cudalink_pool_alloc(SIZE_MAX, 0, NULL));
  CHECK_CONTAINS(cudalink_last_error(), "no room");
  cudalink_pool_free(NULL, 0, 0, NULL);
  cudalink_pool_free((void *)(uintptr_t)gpu_memory_names, 0, 0, NULL); /* nobody's */
  settle();
  uint64_t handles = FAKE_NUMBER(fakecuda_live_handles);
  FAKE(fakecuda_fail, "cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  if (gpu_is_fake()) CHECK(!cudalink_pool_alloc(100, 0, NULL));
  if (gpu_is_fake()) CHECK_CONTAINS(cudalink_last_error(), "no room for 2097152 bytes");
  settle();
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_live_handles), handles);
}

/* ---- peers that know no pools, and that lie ---------------------------------------------------------------- */

/* A consumer of a library from before there were pools, by hand. */
struct old_consumer {
  os_handle handle;
  struct os_segment metadata;
  struct wire_generation generation;
};

static void tell_producer(struct old_consumer *old, void *message, enum wire_message_type type,
                          size_t bytes) {
  wire_message_start(message, type, bytes);
  CHECK_OK(os_send(old->handle, message, bytes, NULL, 0));
}

static int hear_producer(struct old_consumer *old) {
  static _Alignas(64) unsigned char buffer[WIRE_MAX_MESSAGE];
  os_handle handles[OS_MAX_HANDLES];
  int count = OS_MAX_HANDLES;
  size_t size;
  struct pollfd polled = {.fd = old->handle, .events = POLLIN};
  CHECK_EQUAL(poll(&polled, 1, -1), 1);
  CHECK_OK(os_receive(old->handle, buffer, sizeof buffer, &size, handles, &count));
  int type = wire_message_check(buffer, size);
  if (type == WIRE_GENERATION) {
    memcpy(&old->generation, buffer, sizeof old->generation);
    CHECK_OK(
        os_segment_map(&old->metadata, handles[1], old->generation.metadata_bytes, false, true));
    count = 1;
  }
  for (int h = 0; h < count; h++)
    os_handle_close(&handles[h]);
  return type;
}

static void join_as_old(struct old_consumer *old) {
  struct wire_hello hello = {.hold = 1, .kinds = 0xff};
  struct wire_plain mapped = {.value = 0};
  char file[OS_FILE_SIZE];
  *old = (struct old_consumer){.metadata.handle = OS_NO_HANDLE};
  strcpy(hello.channel, "gpu");
  CHECK_OK(os_name_encode("gpu", file));
  CHECK_OK(os_connect(test_folder, file, &old->handle));
  tell_producer(old, &hello, WIRE_HELLO, sizeof hello);
  CHECK_EQUAL(hear_producer(old), WIRE_WELCOME);
  tell_producer(old, &mapped, WIRE_MAPPED, sizeof mapped);
  CHECK_EQUAL(hear_producer(old), WIRE_JOINED);
  CHECK_EQUAL(hear_producer(old), WIRE_GENERATION);
}

static void read_as_old(const struct old_consumer *old, uint32_t slot, cudalink_frame *frame) {
  const struct wire_generation *message = &old->generation;
  struct wire_limits limits = {message->slot_bytes, message->plane_count, message->user_size};
  const char *metadata = (const char *)old->metadata.address + message->metadata_offset +
                         slot * message->metadata_stride;
  *frame = (cudalink_frame){0};
  CHECK_OK(wire_description_decode(frame, metadata, &limits));
}

TEST(pool_old_consumers_get_copies, 60) {
  struct pool pool;
  struct old_consumer old;
  cudalink_importer importer;
  cudalink_frame frame, seen;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, 1, SECOND));
  CHECK_EQUAL(give(&pool), 1);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, SECOND, &frame));
  join_as_old(&old);
  read_as_old(&old, frame.slot, &seen); /* published before it came */
  CHECK_EQUAL(seen.flags, CUDALINK_FRAME_INVALID);
  CHECK_CONTAINS(seen.text, "memory pool");
  CHECK_EQUAL(seen.description.plane_count, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  for (int i = 0; i < 5; i++) {
    CHECK_EQUAL(give(&pool), 0);
    CHECK_OK(cudalink_importer_acquire(importer, NONE, SECOND, &frame));
    if (!i) CHECK_EQUAL(hear_producer(&old), WIRE_GENERATION); /* whose slots are large enough */
    read_as_old(&old, frame.slot, &seen);
    CHECK_EQUAL(seen.flags, 0);
    CHECK_EQUAL(seen.description.plane_count, 1);
    CHECK_EQUAL(seen.sequence, frame.sequence);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  CHECK_CONTAINS(statistics_of(&pool).share_reason, "knows no pools");
  os_handle_close(&old.handle);
  WAIT_UNTIL(statistics_of(&pool).consumers == 1);
  settle();
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* The newest frame's header, which its producer can write to at any time. */
static struct wire_header *newest_header(const struct pool *pool) {
  struct link_exporter *exporter = link_table_lock(&link_exporters, pool->exporter.id);
  struct wire_header *header = link_metadata(exporter->current, (uint32_t)exporter->newest_slot);
  link_object_unlock(exporter);
  return header;
}

static void expect_refused(struct pool *pool, cudalink_importer importer, uint64_t offset) {
  cudalink_frame frame;
  CHECK_EQUAL(give(pool), 1);
  newest_header(pool)->pool_offset = offset;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, SECOND, &frame), CUDALINK_ERROR_PROTOCOL);
  CHECK_CONTAINS(cudalink_last_error(), "are not in pool block");
}

TEST(pool_consumers_believe_nothing, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  expect_refused(&pool, importer, BLOCK - 16383);
  expect_refused(&pool, importer, BLOCK + 1);
  expect_refused(&pool, importer, UINT64_MAX);
  expect_refused(&pool, importer, UINT64_MAX - 16384 + 1);
  CHECK_EQUAL(give(&pool), 1);
  newest_header(&pool)->pool_block = 0;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, SECOND, &frame), CUDALINK_ERROR_PROTOCOL);
  CHECK_EQUAL(give(&pool), 1);
  newest_header(&pool)->pool_block = 77; /* of which nobody told: not there yet */
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* The mailbox is memory of both ends. Service thread. */
static int claim_released(void *argument) {
  struct link_exporter *exporter = argument;
  struct wire_mailbox *mailbox = exporter->mailboxes[0];
  struct wire_pool_block_gone message = {.number = exporter->pools[0].block->number};
  for (uint32_t e = 0; e < exporter->members[0].entries; e++)
    atomic_store(&mailbox->done[e], atomic_load(&mailbox->want[e]));
  link_send(exporter->members[0].connection, &message, WIRE_POOL_BLOCK_GONE, sizeof message, NULL,
            0);
  return CUDALINK_OK;
}

/* What a consumer holds stays mapped, whatever the producer says and writes. */
TEST(pool_held_frame_stays_mapped, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 5 * SECOND, &frame));
  struct link_exporter *exporter = link_table_lock(&link_exporters, pool.exporter.id);
  link_object_unlock(exporter);
  CHECK_OK(service_call(claim_released, exporter));
  settle();
  settle();
  gpu_check(pool.stream, frame.data, 16384, frame.sequence, 0, pool.counts);
  CHECK_EQUAL(gpu_counts_read(pool.counts, pool.stream).wrong, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* ---- calls in odd places ------------------------------------------------------------------------------------ */

static bool is_open(cudalink_exporter exporter) {
  struct link_exporter *found = link_table_lock(&link_exporters, exporter.id);
  if (found) link_object_unlock(found);
  return found != NULL;
}

/* Until its memory is gone. */
static void close_and_wait(void *owner) {
  struct pool *pool = owner;
  if (cudalink_exporter_close(pool->exporter) < 0) return; /* the second frame's */
  WAIT_UNTIL(!is_open(pool->exporter));
  settle();
}

/* The owner of an older frame is told inside of a send. */
TEST(pool_owner_closes_the_channel, 60) {
  struct pool pool;
  char user[64] = "of the frame";
  open_pool_with(&pool, (cudalink_exporter_spec){.slots = 3, .max_slots = 3, .user_size = 64});
  pool.description.user_size = sizeof user;
  int status = CUDALINK_OK, shared = 1;
  for (int t = 0; t < 4 && status == CUDALINK_OK; t++) {
    CHECK_EQUAL(shared, 1);
    status = cudalink_exporter_send_shared(pool.exporter, &pool.description, pool.tensors[t].data,
                                           user, NONE, SECOND, &pool, close_and_wait, &shared);
  }
  CHECK_EQUAL(status, CUDALINK_ERROR_CLOSED);
  CHECK_EQUAL(shared, 0);
  settle();
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

/* The last frames in pools end behind a close, when their work has landed: nothing else is waited for. */
TEST(pool_ends_behind_close, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_description larger;
  cudalink_slot slot;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[1], 200 * MILLISECOND), 1);
  describe_rgba(&larger, 4096, 64);
  CHECK_OK(cudalink_exporter_begin(pool.exporter, &larger, SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish(pool.exporter, &slot, ON(pool.stream)));
  CHECK_OK(cudalink_exporter_close(pool.exporter)); /* the importer asks for nothing meanwhile */
  WAIT_UNTIL(!is_open(pool.exporter));
  WAIT_UNTIL(!any_lent(&pool));
  CHECK_OK(cudalink_importer_close(importer));
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

struct looker {
  const char *block;
  _Atomic bool over;
};

static void *look_often(void *argument) {
  struct looker *looker = argument;
  while (!atomic_load(&looker->over)) {
    uint64_t offset;
    pool_leave(pool_find(looker->block, 1, &offset));
  }
  return NULL;
}

static void send_as_child(const struct pool *pool) {
  int shared;
  alarm(20); /* or it would wait for ever */
  int status =
      cudalink_exporter_send_shared(pool->exporter, &pool->description, pool->tensors[0].data, NULL,
                                    NONE, SECOND, NULL, NULL, &shared);
  _exit(status == CUDALINK_ERROR_FORKED && !shared ? 0 : 1);
}

/* Another thread may hold the table of blocks at the fork. */
TEST(pool_send_in_a_forked_child, 120) {
  struct pool pool;
  pthread_t thread;
  open_pool(&pool);
  struct looker looker = {.block = pool.block};
  CHECK_EQUAL(pthread_create(&thread, NULL, look_often, &looker), 0);
  for (int i = 0; i < 50; i++) {
    int ended;
    pid_t child = fork();
    if (!child) send_as_child(&pool);
    CHECK_EQUAL(waitpid(child, &ended, 0), child);
    CHECK_EQUAL(ended, 0);
  }
  atomic_store(&looker.over, true);
  CHECK_EQUAL(pthread_join(thread, NULL), 0);
  close_pool(&pool);
}

/* ---- a consumer that reads nothing for a while ---------------------------------------------------------------- */

#define MANY 400 /* blocks, each told of twice: more than a socket's queue takes */

static void drop_block(void *owner) {
  struct tensor *tensor = owner;
  cudalink_pool_free(tensor->data, tensor->bytes, 0, NULL);
  atomic_fetch_add(&tensor->drops, 1);
}

/* Each in a block of its own, which goes with it. */
static void send_blocks(struct pool *pool, struct tensor *tensors) {
  for (int i = 0; i < MANY; i++) {
    int shared;
    tensors[i] = (struct tensor){.data = cudalink_pool_alloc(BLOCK, 0, NULL), .bytes = 16384};
    CHECK(tensors[i].data != NULL);
    gpu_fill(pool->stream, tensors[i].data, 16384, statistics_of(pool).published + 1, 0);
    CHECK_OK(cudalink_exporter_send_shared(pool->exporter, &pool->description, tensors[i].data,
                                           NULL, ON(pool->stream), 20 * SECOND, &tensors[i],
                                           drop_block, &shared));
    if (!shared) {
      CU(cuStreamSynchronize(pool->stream));
      drop_block(&tensors[i]);
    }
    settle();
  }
}

static uint32_t dropped_blocks(struct tensor *tensors) {
  uint32_t drops = 0;
  for (int i = 0; i < MANY; i++)
    drops += atomic_load(&tensors[i].drops);
  return drops;
}

static struct process *start_stopped(struct pool *pool) {
  open_pool_with(pool, (cudalink_exporter_spec){.slots = 4, .max_slots = 4});
  struct process *holder = start_holder(pool, 0);
  process_signal(holder, SIGSTOP);
  WAIT_UNTIL(process_is_stopped(holder));
  return holder;
}

/* When it goes on, it knows the block of the newest frame. */
TEST(pool_stopped_consumer_goes_on, 120) {
  static struct tensor tensors[MANY];
  struct pool pool;
  struct process *holder = start_stopped(&pool);
  send_blocks(&pool, tensors);
  process_signal(holder, SIGCONT);
  ask(holder, "take 0");
  ask(holder, "check 0");
  ask(holder, "release 0");
  for (int i = 0; i < 8; i++)
    give(&pool);
  ask(holder, "take 1");
  ask(holder, "check 1");
  ask(holder, "release 1");
  settle();
  WAIT_UNTIL(dropped_blocks(tensors) == MANY);
  CHECK_EQUAL(give(&pool),
              1); /* blocks that it had not heard of the end of are no more in the way */
  process_finish(holder);
  close_pool(&pool);
}

/* It hears of that, too. */
TEST(pool_stopped_consumer_hears_of_the_end, 120) {
  static struct tensor tensors[MANY];
  struct pool pool;
  struct process *holder = start_stopped(&pool);
  send_blocks(&pool, tensors);
  CU(cuStreamSynchronize(pool.stream));
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  settle();
  process_signal(holder, SIGCONT);
  ask(holder, "take 0");
  ask(holder, "check 0");
  ask(holder, "release 0");
  ask(holder, "end");
  WAIT_UNTIL(dropped_blocks(tensors) == MANY);
  process_finish(holder);
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

/* The old wire's copy is under way when the publish fails: the memory is its owner's again only behind it. */
TEST(pool_failed_send_reads_no_more, 60) {
  struct pool pool;
  int shared;
  char name[32];
  snprintf(name, sizeof name, "pool_%d", (int)getpid());
  setenv("FAKECUDA_DELAY_US", "20000", 1);
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver fails when it likes */
  open_pool_with(&pool, (cudalink_exporter_spec){.cipd_name = name});
  for (int i = 0; i < 20; i++) {
    char *block = cudalink_pool_alloc(BLOCK, 0, NULL);
    CHECK(block != NULL);
    FAKE(fakecuda_fail, "cuStreamWriteValue64", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(cudalink_exporter_send_shared(pool.exporter, &pool.description, block, NULL, NONE,
                                               SECOND, NULL, NULL, &shared),
                 CUDALINK_ERROR_GPU);
    CHECK_EQUAL(shared, 0);
    cudalink_pool_free(block, BLOCK, 0, NULL);
  }
  CHECK_EQUAL(give(&pool), 1);
  close_pool(&pool);
}

/* ---- all at once -------------------------------------------------------------------------------------------- */

struct crowd {
  struct pool pool;
  _Atomic uint32_t lent, dropped;
  _Atomic bool over;
};

struct piece {
  struct crowd *crowd;
  void *block;
};

static void drop_piece(void *owner) {
  struct piece *piece = owner;
  cudalink_pool_free(piece->block, BLOCK, 0, NULL);
  atomic_fetch_add(&piece->crowd->dropped, 1);
  free(piece);
}

/* Two of these: only one may have begun a frame. */
static void *send_pieces(void *argument) {
  struct crowd *crowd = argument;
  int status = CUDALINK_OK, shared;
  while (status != CUDALINK_ERROR_CLOSED) {
    struct piece *piece = malloc(sizeof *piece);
    *piece = (struct piece){crowd, cudalink_pool_alloc(BLOCK, 0, NULL)};
    CHECK(piece->block != NULL);
    atomic_fetch_add(&crowd->lent, 1);
    status = cudalink_exporter_send_shared(crowd->pool.exporter, &crowd->pool.description,
                                           piece->block, NULL, NONE, 0, piece, drop_piece, &shared);
    if (!shared) drop_piece(piece);
  }
  return NULL;
}

static void *come_and_go(void *argument) {
  struct crowd *crowd = argument;
  for (uint32_t i = 0; !atomic_load(&crowd->over); i++) {
    cudalink_importer importer;
    cudalink_frame frame;
    if (cudalink_importer_open(&importer,
                               &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                         .hold = 2, .isolated = i % 8 == 7}) < 0)
      continue;
    for (int f = 0; f < 20; f++)
      if (cudalink_importer_acquire(importer, NONE, 10 * MILLISECOND, &frame) == CUDALINK_OK)
        CHECK_OK(cudalink_frame_release(&frame, NONE));
    CHECK_OK(cudalink_importer_close(importer));
  }
  return NULL;
}

TEST(pool_from_all_sides, 120) {
  struct crowd crowd = {0};
  pthread_t threads[4];
  open_pool(&crowd.pool);
  for (int t = 0; t < 4; t++)
    CHECK_EQUAL(pthread_create(&threads[t], NULL, t < 2 ? send_pieces : come_and_go, &crowd), 0);
  WAIT_UNTIL(statistics_of(&crowd.pool).shared > 2000);
  CHECK_OK(cudalink_exporter_close(crowd.pool.exporter));
  for (int t = 0; t < 2; t++)
    CHECK_EQUAL(pthread_join(threads[t], NULL), 0);
  atomic_store(&crowd.over, true);
  for (int t = 2; t < 4; t++)
    CHECK_EQUAL(pthread_join(threads[t], NULL), 0);
  WAIT_UNTIL(atomic_load(&crowd.dropped) == atomic_load(&crowd.lent));
  cudalink_pool_free(crowd.pool.block, BLOCK, 0, NULL);
}
