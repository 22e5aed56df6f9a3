/* SPDX-License-Identifier: MIT
 *
 * Processes that are killed in the middle of kernels, copies and waits: the other side's streams go on,
 * its frames are whole or LOST, and what the dead one held is free again. test_stopped.c stops them.
 *
 * GPU_KILLS in the environment: how many kills per test (4); GPU_KILL_SECONDS: for at most so long.
 */
#include "gpu.h"
#include "link/importer.h"

static void report(const char *whom, const char *feed_options, const char *drain_options,
                   uint32_t killed, uint64_t checked) {
  gpu_report("{\"case\": \"kills\", \"what\": \"%s, %s, %s\", \"unit\": \"kills\", "
             "\"kills\": %u, \"checked\": %llu, \"wrong_words\": 0}",
             whom, feed_options, drain_options, killed, (unsigned long long)checked);
}

/* Producers are killed one after the other, while one consumer goes on; the last one closes. */
static void kill_producers(const char *feed_options, const char *drain_options) {
  uint32_t killed = 0;
  gpu_start();
  struct process *drain = start_drain("survivor=1 %s", drain_options);
  for (; gpu_once_more(killed); killed++) {
    struct process *feed = start_feed("consumers=1 tell=20 %s", feed_options);
    process_expect(feed, "flows");
    gpu_random_pause(100 * MILLISECOND);
    process_kill(feed);
  }
  struct process *last = start_feed("consumers=1 frames=30 drain=1 %s", feed_options);
  const char *said = process_hear(drain);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  CHECK_EQUAL(line_number(said, "died"), killed);
  CHECK_EQUAL(line_number(said, "ended"), 1);
  report("producer", feed_options, drain_options, killed, (uint64_t)line_number(said, "checked"));
  process_finish(drain);
  CHECK_EQUAL(line_number(process_hear(last), "published"), 30);
  process_finish(last);
}

TEST(producer_killed_in_kernel, 400) {
  kill_producers("pause=3000000", "policy=latest pause=100000");
}
TEST(producer_killed_in_kernel_stream, 400) {
  kill_producers("pause=3000000", "policy=order gpu_wait=1 hold=2");
}
TEST(producer_killed_in_kernel_next, 400) {
  kill_producers("pause=3000000", "policy=latest gpu_wait=1 next=1");
}
TEST(producer_killed_in_copy, 400) {
  kill_producers("send=1 width=1920 height=1080", "policy=every gpu_wait=1");
}
TEST(producer_killed_ipc, 400) {
  kill_producers("kind=ipc pause=1000000", "policy=latest gpu_wait=1 pause=100000");
}
TEST(producer_killed_to_host, 400) {
  kill_producers("pause=1000000", "policy=every complete=1 to_host=1");
}

/* The kernel would take longer than this test: the wait ends by the death, as LOST. */
TEST(producer_killed_in_endless_kernel, 60) {
  gpu_start();
  struct process *feed = start_feed("consumers=1 tell=1 pause=20000000000 frames=2");
  struct process *drain = start_drain("policy=latest gpu_wait=1");
  process_expect(feed, "flows");
  gpu_random_pause(100 * MILLISECOND);
  process_kill(feed);
  const char *said = process_hear(drain);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  CHECK(line_number(said, "longest") < 15 * SECOND);
  CHECK_EQUAL(line_number(said, "died"), 1);
  process_finish(drain);
}

/* ---- waits that were left to a stream ------------------------------------------------------------ */

static void expect_lost(cudalink_frame *frame, CUstream stream) {
  CU(cuStreamSynchronize(stream)); /* else this never returns */
  uint32_t flags;
  CHECK_OK(cudalink_frame_flags(frame, &flags));
  CHECK_EQUAL(flags, CUDALINK_FRAME_LOST);
}

static wire_word *mirror_of(const cudalink_frame *frame) {
  struct link_attachment *attachment =
      link_table_at(&link_attachments, (uint32_t)(frame->lease >> 32) % LINK_TABLE_SIZE);
  return &attachment->mailbox->mirror[frame->slot];
}

/* The dead producer's word is completed, and again when its GPU, which goes on for a while, has written
 * over it. */
TEST(dead_producers_words_are_kept, 20) {
  cudalink_importer importer;
  cudalink_frame frame;
  gpu_start();
  CUstream stream = gpu_stream();
  struct process *feed = start_feed("consumers=1 pause=20000000000 frames=3");
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = 1,
                                           .gpu_wait_limit = 100 * (int64_t)SECOND,
                                           .open_timeout = 10 * SECOND}));
  CHECK_OK(cudalink_importer_acquire(importer, ON(stream), 10 * SECOND, &frame));
  CHECK_EQUAL(frame.flags, CUDALINK_FRAME_PENDING);
  process_kill(feed);
  expect_lost(&frame, stream);
  wire_word *mirror = mirror_of(&frame);
  CHECK_EQUAL(atomic_load(mirror), frame.sequence);
  atomic_store(mirror, frame.sequence - 1);
  WAIT_UNTIL(atomic_load(mirror) == frame.sequence);
  CHECK_STATUS(cudalink_frame_release(&frame, ON(stream)), CUDALINK_ERROR_LOST);
  CU(cuStreamSynchronize(stream));
  CHECK_OK(cudalink_importer_close(importer));
}

/* The producer lives, but its kernel takes too long. */
TEST(wait_limit_ends_a_wait, 20) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  cudalink_slot slot;
  cudalink_frame frame;
  void *memory;
  gpu_start();
  CUstream producer = gpu_stream(), consumer = gpu_stream();
  CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  _Atomic uint32_t *gate = memory;
  atomic_store(gate, 0);
  describe_rgba(&description, 32, 32);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &description}));
  CHECK_OK(cudalink_importer_open(
      &importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = 1,
                                .gpu_wait_limit = 50 * MILLISECOND, .open_timeout = 10 * SECOND}));
  for (int i = 0; i < 2; i++) { /* the first one tells from where on streams may wait */
    CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
    if (i) CU(cuStreamWaitValue32(producer, (CUdeviceptr)(uintptr_t)gate, 1, 0));
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(producer)));
    CHECK_OK(cudalink_importer_acquire(importer, ON(consumer), 10 * SECOND, &frame));
    if (!i) CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  }
  CHECK_EQUAL(frame.flags, CUDALINK_FRAME_PENDING);
  expect_lost(&frame, consumer);
  CHECK_STATUS(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE), CUDALINK_ERROR_LOST);
  atomic_store(gate, 1);
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(exporter));
}

/* ---- consumers ------------------------------------------------------------------------------------- */

/* Consumers are killed one after the other, while the producer and another consumer go on. */
static void kill_consumers(const char *feed_options, const char *drain_options) {
  gpu_start();
  struct process *feed = start_feed("consumers=1 tell=10 %s", feed_options);
  struct process *witness = start_drain("policy=latest gpu_wait=1");
  process_expect(feed, "flows");
  uint32_t killed = 0;
  for (; gpu_once_more(killed); killed++) {
    struct process *drain = start_drain("tell=10 %s", drain_options);
    process_expect(drain, "flows");
    gpu_random_pause(100 * MILLISECOND);
    process_kill(drain);
  }
  process_tell(feed, "stop");
  const char *said = process_hear(feed);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "deaths"), killed);
  said = process_hear(witness);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  CHECK_EQUAL(line_number(said, "ended"), 1);
  report("consumer", feed_options, drain_options, killed, (uint64_t)line_number(said, "checked"));
  process_finish(witness);
  process_finish(feed);
}

TEST(consumer_killed_in_kernel, 400) { kill_consumers("", "policy=latest pause=3000000"); }
TEST(consumer_killed_in_kernel_every, 400) { kill_consumers("", "policy=every pause=3000000"); }
TEST(consumer_killed_in_wait, 400) {
  kill_consumers("pause=2000000", "policy=latest gpu_wait=1 next=1");
}
TEST(consumer_killed_ipc, 400) { kill_consumers("kind=ipc", "policy=latest pause=3000000"); }
TEST(consumer_killed_isolated, 400) {
  kill_consumers("", "policy=latest isolated=1 pause=3000000");
}

/* ---- groups ----------------------------------------------------------------------------------------- */

static cudalink_importer join_group(void) {
  cudalink_importer importer;
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                           .policy = CUDALINK_POLICY_SHARED, .group = "workers",
                                           .open_timeout = 10 * SECOND}));
  return importer;
}

HELPER(worker) {
  cudalink_frame frame;
  gpu_start();
  cudalink_importer importer = join_group();
  say("joined");
  CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 60 * SECOND, &frame));
  say("took %llu", (unsigned long long)frame.sequence);
  WAIT_UNTIL(false); /* until it is killed */
}

static uint64_t deaths_of(cudalink_exporter exporter) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(exporter, &statistics));
  return statistics.deaths;
}

/* A dead worker's frame is offered again when no work of its process can be under way any more. Until
 * then, too, the frame is not taken. */
static void redeliver_before_taken(cudalink_kind kind) {
  cudalink_exporter exporter;
  cudalink_description description;
  cudalink_slot slot;
  cudalink_frame frame;
  gpu_start();
  describe_rgba(&description, 32, 32);
  CHECK_OK(cudalink_exporter_open(
      &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .kind = kind,
                                           .description = &description}));
  struct process *worker = process_start("worker", "%s", "");
  process_expect(worker, "joined");
  CHECK_OK(cudalink_exporter_begin(exporter, &description, SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE));
  process_expect(worker, "took 1");
  CHECK_OK(cudalink_exporter_wait_taken(exporter, 10 * SECOND));
  cudalink_importer other = join_group();
  process_kill(worker);
  WAIT_UNTIL(deaths_of(exporter) == 1);
  CHECK_STATUS(cudalink_exporter_wait_taken(exporter, 0), CUDALINK_ERROR_TIMEOUT);
  CHECK_OK(cudalink_importer_acquire(other, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_EQUAL(frame.sequence, 1);
  CHECK_EQUAL(frame.flags, CUDALINK_FRAME_REDELIVERED);
  CHECK_OK(cudalink_exporter_wait_taken(exporter, 10 * SECOND));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_importer_close(other));
  CHECK_OK(cudalink_exporter_close(exporter));
}

TEST(redelivered_before_taken, 60) { redeliver_before_taken(CUDALINK_KIND_VMM); }
TEST(redelivered_before_taken_ipc, 60) { redeliver_before_taken(CUDALINK_KIND_IPC); }
