/* SPDX-License-Identifier: MIT
 *
 * One end stays, the other one is a new process again and again, every second one killed: what the one that
 * stays has is flat.
 *
 * GPU_RESTARTS in the environment: how many (8).
 */
#include "flat.h"
#include "link/exporter.h"

#define WARM_UP 4

/* A restart: plays with the other end until that is gone. */
typedef void (*play)(void *stage, bool killed);

/* `producer`: one that stays keeps mailboxes of those who left, until many have come together. */
static void stay_flat(const char *what, play restart, void *stage, bool producer) {
  struct flat before, now;
  uint64_t restarts = gpu_number("GPU_RESTARTS", 8);
  for (uint64_t i = 0; i < WARM_UP; i++)
    restart(stage, i % 2 != 0);
  flat_start(&before);
  for (uint64_t i = 0; i < restarts; i++)
    restart(stage, i % 2 != 0);
  flat_check(&before, &now, producer ? restarts + 2 * LINK_MAILBOX_ROW : 0);
  printf("  %llu restarts\n", (unsigned long long)restarts);
  flat_report(what, restarts, &before, &now);
}

/* ---- a consumer stays ------------------------------------------------------------------------------------- */

struct consumer {
  const char *feed;
  cudalink_importer importer;
  CUstream stream;
  CUdeviceptr counts;
  uint64_t taken;
};

static void use(struct consumer *consumer, cudalink_frame *frame) {
  uint64_t bytes;
  CHECK_OK(cudalink_description_bytes(&frame->description, &bytes));
  gpu_check(consumer->stream, frame->data, bytes, frame->sequence, 0, consumer->counts);
  CU(cuStreamSynchronize(consumer->stream)); /* a dead producer's frame may be half a frame */
  int status = cudalink_frame_release(frame, ON(consumer->stream));
  if (status != CUDALINK_ERROR_LOST) CHECK_OK(status);
  consumer->taken += status == CUDALINK_OK;
}

static void producer_restarts(void *stage, bool killed) {
  struct consumer *consumer = stage;
  struct process *feed = start_feed("consumers=1 frames=%d %s", killed ? 0 : 20, consumer->feed);
  for (uint64_t end = consumer->taken + 10;;) {
    cudalink_frame frame;
    int status = cudalink_importer_acquire(consumer->importer, ON(consumer->stream),
                                           50 * MILLISECOND, &frame);
    if (status == CUDALINK_ERROR_ENDED || status == CUDALINK_ERROR_LOST) break;
    if (status == CUDALINK_OK) use(consumer, &frame);
    if (killed && feed->pid && consumer->taken >= end) process_kill(feed);
  }
  if (killed) return;
  CHECK_EQUAL(line_number(process_hear(feed), "published"), 20);
  process_finish(feed);
}

static void consumer_stays(const char *feed, const char *what) {
  struct consumer consumer = {.feed = feed};
  gpu_start();
  consumer.stream = gpu_stream();
  consumer.counts = gpu_counts_make();
  CHECK_OK(cudalink_importer_open(
      &consumer.importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = 1}));
  stay_flat(what, producer_restarts, &consumer, false);
  CHECK_OK(cudalink_importer_close(consumer.importer));
}

TEST(producer_restarts, 560) { consumer_stays("", "a consumer, its producer restarts"); }
TEST(producer_restarts_ipc, 560) {
  consumer_stays("kind=ipc", "a consumer, its producer restarts, kind=ipc");
}

/* ---- a producer stays --------------------------------------------------------------------------------------- */

struct producer {
  cudalink_exporter exporter;
  cudalink_description description;
  CUstream stream;
  uint64_t bytes;
};

static void publish(struct producer *producer) {
  cudalink_slot slot;
  CHECK_OK(cudalink_exporter_begin(producer->exporter, &producer->description, 20 * SECOND, &slot));
  gpu_fill(producer->stream, slot.data, producer->bytes, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(producer->exporter, &slot, ON(producer->stream)));
}

static uint32_t consumers_of(const struct producer *producer) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(producer->exporter, &statistics));
  return statistics.consumers;
}

static void consumer_restarts(void *stage, bool killed) {
  struct producer *producer = stage;
  struct process *drain =
      start_drain("policy=order gpu_wait=1 %s", killed ? "tell=10" : "frames=20");
  while (!process_has_line(drain))
    publish(producer);
  if (killed) {
    process_expect(drain, "flows");
    process_kill(drain);
  } else {
    CHECK_EQUAL(line_number(process_hear(drain), "wrong"), 0);
    process_finish(drain);
  }
  WAIT_UNTIL(consumers_of(producer) == 0);
  publish(producer); /* begin sees what the dead one has left */
}

static void producer_stays(cudalink_kind kind, const char *what) {
  struct producer producer;
  gpu_start();
  producer.stream = gpu_stream();
  describe_rgba(&producer.description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&producer.description, &producer.bytes));
  CHECK_OK(cudalink_exporter_open(&producer.exporter,
                                  &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                            .name = "gpu", .kind = kind,
                                                            .description = &producer.description}));
  stay_flat(what, consumer_restarts, &producer, true);
  CU(cuStreamSynchronize(producer.stream));
  CHECK_OK(cudalink_exporter_close(producer.exporter));
}

TEST(consumer_restarts, 560) {
  producer_stays(CUDALINK_KIND_VMM, "a producer, its consumer restarts");
}
TEST(consumer_restarts_ipc, 560) {
  producer_stays(CUDALINK_KIND_IPC, "a producer, its consumer restarts, kind=ipc");
}
