/* SPDX-License-Identifier: MIT
 *
 * Frames change hands on the GPU: every word of every frame is checked by a kernel, while slow
 * kernels on both ends would tear a frame that is touched too early.
 */
#include <pthread.h>

#include "gpu.h"

#define MICROSECOND 1000
/* As many slots as it will ever have: more would be allocated while frames flow. */
#define FRAMES "frames=300 drain=1 flow=1 slots=16 "

/* ---- two processes ---------------------------------------------------------------------------------- */

/* One producer, consumers with these options; nothing torn, nothing forbidden was called. */
static void hand_over(const char *feed_options, const char *drain_options, uint32_t consumers) {
  struct process *drains[CUDALINK_MAX_CONSUMERS];
  struct process *feed =
      start_feed(FRAMES "delay=100 consumers=%u %s pause=20000", consumers, feed_options);
  for (uint32_t i = 0; i < consumers; i++)
    drains[i] = start_drain("pause=20000 flow=280 delay=100 %s", drain_options);
  for (uint32_t i = 0; i < consumers; i++) {
    const char *said = process_hear(drains[i]);
    printf("  %s\n", said);
    CHECK_EQUAL(line_number(said, "wrong"), 0);
    CHECK_EQUAL(line_number(said, "ended"), 1);
    CHECK_EQUAL(line_number(said, "lost"), 0);
    CHECK(line_number(said, "checked") > 0);
    if (strstr(drain_options, "pending")) CHECK(line_number(said, "pending") > 0);
    if (strstr(drain_options, "every"))
      CHECK_EQUAL(line_number(said, "checked") + line_number(said, "missed"), 300);
    if (strstr(drain_options, "every")) CHECK_EQUAL(line_number(said, "missed"), 0);
    process_finish(drains[i]);
  }
  const char *said = process_hear(feed);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "published"), 300);
  process_finish(feed);
}

#define HAND_OVER(name, feed_options, drain_options, consumers)                                    \
  TEST(name, 120) {                                                                                \
    gpu_start();                                                                                   \
    hand_over(feed_options, drain_options, consumers);                                             \
  }

/* With one GPU skipped; the fake driver has as many as it is told. */
#define HAND_OVER_TO_ANOTHER(name, feed_options, drain_options)                                    \
  TEST(name, 120) {                                                                                \
    setenv("FAKECUDA_DEVICES", "2", 1);                                                            \
    gpu_start_on(1);                                                                               \
    hand_over(feed_options, drain_options " device=1", 2);                                         \
  }

HAND_OVER(vmm_latest, "kind=vmm", "policy=latest", 1)
HAND_OVER(vmm_every_complete, "kind=vmm", "policy=every complete=1", 1)
HAND_OVER(vmm_every_stream, "kind=vmm pause=4000000", "policy=every gpu_wait=1 pending=1", 1)
HAND_OVER(vmm_ready_only, "kind=vmm", "policy=ready", 1)
HAND_OVER(vmm_in_order, "kind=vmm", "policy=order gpu_wait=1 hold=2", 1)
HAND_OVER(vmm_next, "kind=vmm pause=4000000", "policy=latest gpu_wait=1 next=1 pending=1", 1)
HAND_OVER(vmm_release_by_cpu, "kind=vmm", "policy=every by_cpu=1", 1)
HAND_OVER(vmm_to_host, "kind=vmm", "policy=every complete=1 to_host=1", 1)
HAND_OVER(vmm_to_host_pending, "kind=vmm pause=4000000",
          "policy=every gpu_wait=1 to_host=1 pending=1", 1)
HAND_OVER(vmm_graph, "kind=vmm graph=1", "policy=every", 1)
HAND_OVER(vmm_send, "kind=vmm send=1", "policy=every gpu_wait=1", 1)
HAND_OVER_TO_ANOTHER(another_gpu_stream, "kind=vmm", "policy=every gpu_wait=1")
HAND_OVER_TO_ANOTHER(another_gpu_next, "kind=vmm", "policy=latest gpu_wait=1 next=1")
HAND_OVER_TO_ANOTHER(another_gpu_to_host, "kind=vmm", "policy=every complete=1 to_host=1")
HAND_OVER_TO_ANOTHER(another_gpu_ipc, "kind=ipc", "policy=every gpu_wait=1")
HAND_OVER_TO_ANOTHER(another_gpu_isolated, "kind=vmm", "policy=every isolated=1 gpu_wait=1")
HAND_OVER(vmm_isolated, "kind=vmm", "policy=every isolated=1 gpu_wait=1", 2)
HAND_OVER(vmm_four_consumers, "kind=vmm", "policy=latest gpu_wait=1", 4)
HAND_OVER(ipc_latest, "kind=ipc", "policy=latest", 1)
HAND_OVER(ipc_latest_behind_close, "kind=ipc", "policy=latest behind_close=1", 1)
HAND_OVER(vmm_latest_behind_close, "kind=vmm", "policy=latest behind_close=1", 1)
HAND_OVER(ipc_every_complete, "kind=ipc", "policy=every complete=1", 1)
HAND_OVER(ipc_every_stream, "kind=ipc pause=4000000", "policy=every gpu_wait=1 pending=1", 1)
HAND_OVER(ipc_send, "kind=ipc send=1", "policy=every", 1)
HAND_OVER(ipc_isolated, "kind=ipc", "policy=every isolated=1", 1)

TEST(thirty_two_consumers, 300) {
  gpu_start();
  struct process *drains[32];
  int64_t checked = 0;
  struct process *feed = start_feed("kind=vmm consumers=32 frames=100 max_slots=40 drain=1");
  for (int i = 0; i < 32; i++)
    drains[i] = start_drain("policy=%s gpu_wait=%d", i % 4 < 2 ? "latest" : "every", i % 2);
  for (int i = 0; i < 32; i++) {
    const char *said = process_hear(drains[i]);
    CHECK_EQUAL(line_number(said, "wrong"), 0);
    CHECK_EQUAL(line_number(said, "ended"), 1);
    CHECK_EQUAL(line_number(said, "lost"), 0);
    if (i % 4 >= 2) CHECK_EQUAL(line_number(said, "checked"), 100);
    checked += line_number(said, "checked");
    process_finish(drains[i]);
  }
  printf("  %lld frames were checked\n", (long long)checked);
  CHECK_EQUAL(line_number(process_hear(feed), "published"), 100);
  process_finish(feed);
}

/* As many slots as there can be, and consumers that hold as many as they may. */
TEST(sixty_four_slots, 120) {
  gpu_start();
  enum { FRAMES_SENT = 640, CONSUMERS = 3 };
  struct process *drains[CONSUMERS];
  struct process *feed = start_feed("kind=vmm consumers=%d frames=%d slots=64 max_slots=64 drain=1",
                                    CONSUMERS, FRAMES_SENT);
  for (int i = 0; i < CONSUMERS; i++)
    drains[i] = start_drain("policy=every hold=16 gpu_wait=%d pause=20000", i % 2);
  for (int i = 0; i < CONSUMERS; i++) {
    const char *said = process_hear(drains[i]);
    CHECK_EQUAL(line_number(said, "wrong"), 0);
    CHECK_EQUAL(line_number(said, "checked"), FRAMES_SENT);
    CHECK_EQUAL(line_number(said, "ended"), 1);
    process_finish(drains[i]);
  }
  const char *said = process_hear(feed);
  CHECK_EQUAL(line_number(said, "published"), FRAMES_SENT);
  CHECK_EQUAL(line_number(said, "generations"), 1);
  process_finish(feed);
}

/* ---- new memory under load ------------------------------------------------------------------------------ */

static void resize_under_load(const char *kind) {
  gpu_start();
  struct process *feed =
      start_feed("kind=%s consumers=2 frames=700 resize=10 pause=20000 drain=1", kind);
  struct process *every = start_drain("policy=every gpu_wait=1 pause=20000");
  struct process *latest = start_drain("policy=latest pause=20000");
  const char *said = process_hear(every);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  CHECK_EQUAL(line_number(said, "checked"), 700);
  said = process_hear(latest);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  said = process_hear(feed);
  printf("  %s\n", said);
  CHECK(line_number(said, "generations") >= 7);
  process_finish(every);
  process_finish(latest);
  process_finish(feed);
}
TEST(vmm_resize, 120) { resize_under_load("vmm"); }
TEST(ipc_resize, 120) { resize_under_load("ipc"); }

/* ---- one process ------------------------------------------------------------------------------------------ */

struct pair {
  struct feed feed;
  struct feed_result fed;
  struct drain drain;
  struct drain_result drained;
};

static void *drain_thread(void *argument) {
  struct pair *pair = argument;
  CU(cuCtxSetCurrent(gpu_context()));
  drain_run(&pair->drain, &pair->drained);
  return NULL;
}

static void one_process(cudalink_kind kind, bool gpu_wait) {
  struct pair pair = {.feed = {.name = "gpu",
                               .kind = kind,
                               .width = 64,
                               .height = 64,
                               .consumers = 1,
                               .frames = 500,
                               .pause = 20 * MICROSECOND,
                               .drain = true},
                      .drain = {.name = "gpu",
                                .policy = CUDALINK_POLICY_EVERY,
                                .gpu_wait = gpu_wait,
                                .pause = 20 * MICROSECOND}};
  pthread_t thread;
  gpu_start();
  CHECK_EQUAL(pthread_create(&thread, NULL, drain_thread, &pair), 0);
  feed_run(&pair.feed, &pair.fed);
  pthread_join(thread, NULL);
  CHECK_EQUAL(pair.fed.published, 500);
  CHECK_EQUAL(pair.drained.checked, 500);
  CHECK_EQUAL(pair.drained.wrong, 0);
  CHECK_EQUAL(pair.drained.ended, 1);
  CHECK_EQUAL(pair.fed.statistics.copies, 0);
}
TEST(vmm_one_process, 60) { one_process(CUDALINK_KIND_VMM, false); }
TEST(vmm_one_process_stream, 60) { one_process(CUDALINK_KIND_VMM, true); }
TEST(ipc_one_process, 60) { one_process(CUDALINK_KIND_IPC, false); }
TEST(ipc_one_process_stream, 60) { one_process(CUDALINK_KIND_IPC, true); }

/* ---- a consumer that sits on frames ------------------------------------------------------------------- */

TEST(evicted_consumer_keeps_its_frame, 60) {
  cudalink_exporter exporter;
  cudalink_description description;
  cudalink_importer importer;
  cudalink_frame frame;
  uint64_t bytes;
  gpu_start();
  CUstream stream = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  describe_rgba(&description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&description, &bytes));
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &description, .slots = 3,
                                .max_slots = 3, .hold_limit = 50 * MILLISECOND}));
  CHECK_OK(cudalink_importer_open(
      &importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 1,
                                .policy = CUDALINK_POLICY_EVERY, .open_timeout = 10 * SECOND}));
  uint64_t held = 0;
  for (uint64_t i = 0; i < 50; i++) {
    cudalink_slot slot;
    CHECK_OK(cudalink_exporter_begin(exporter, &description, 20 * SECOND, &slot));
    gpu_fill(stream, slot.data, bytes, slot.sequence, 0);
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(stream)));
    if (held) continue;
    CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
    held = frame.sequence;
  }
  CU(cuStreamSynchronize(stream));
  gpu_check(stream, frame.data, bytes, held, 0, counts);
  struct gpu_counts read = gpu_counts_read(counts, stream);
  CHECK_EQUAL(read.wrong, 0);
  CHECK_EQUAL(read.seen, bytes / 8);
  CHECK_OK(cudalink_frame_release(&frame, ON(stream)));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(exporter));
}
