/* SPDX-License-Identifier: MIT
 *
 * Frames that are published where they lie, in blocks of a pool: whole, held, beside others, and blocks that
 * come and go.
 */
#include <sys/wait.h>

#include "link/exporter.h"
#include "link/pool.h"
#include "link/reaper.h"
#include "pool_stage.h"

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

/* Its first frame in that block is its last instruction but one. */
HELPER(block_then_death) {
  struct pool pool;
  int shared;
  open_pool(&pool);
  gpu_fill(pool.stream, pool.tensors[0].data, pool.tensors[0].bytes, 1, 0);
  CU(cuStreamSynchronize(pool.stream));
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, 1, 20 * SECOND));
  CHECK_OK(cudalink_exporter_send_shared(pool.exporter, &pool.description, pool.tensors[0].data,
                                         NULL, NONE, 20 * SECOND, NULL, NULL, &shared));
  kill(getpid(), SIGKILL);
}

/* What was published is read, also where nobody had to know of its block before. */
TEST(pool_killed_behind_a_frame_in_a_new_block, 60) {
  gpu_start();
  CUstream stream = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  for (int round = 0; round < 4; round++) {
    cudalink_importer importer;
    cudalink_frame frame;
    struct process *producer = process_start("block_then_death", "%s", "");
    open_importer(&importer, 0, 0);
    CHECK_OK(cudalink_importer_acquire(importer, NONE, 20 * SECOND, &frame));
    CHECK_EQUAL(frame.flags, CUDALINK_FRAME_SHARED);
    gpu_check(stream, frame.data, 16384, 1, 0, counts);
    CHECK_EQUAL(gpu_counts_read(counts, stream).wrong, 0);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
    CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 20 * SECOND, &frame),
                 CUDALINK_ERROR_LOST);
    CHECK_OK(cudalink_importer_close(importer));
    CHECK_EQUAL(WTERMSIG(process_wait(producer)), SIGKILL);
  }
}

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
