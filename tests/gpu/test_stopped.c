/* SPDX-License-Identifier: MIT
 *
 * Processes that are stopped in the middle of kernels and of waits on the GPU, and continued: the others
 * go on, no frame is torn, and who was stopped ends well. A GPU goes on without its process; the fake
 * driver's streams stop with it.
 *
 * GPU_KILLS and GPU_KILL_SECONDS count here too.
 */
#include <signal.h>

#include "gpu.h"

#define KERNEL (30 * MILLISECOND)      /* so long is what a process is stopped in */
#define HOLD_LIMIT (200 * MILLISECOND) /* until a stopped consumer's frames are taken back */

static void stop(struct process *process) {
  process_signal(process, SIGSTOP);
  WAIT_UNTIL(process_is_stopped(process));
}

static void report(const char *whom, uint32_t stopped, uint64_t checked) {
  gpu_report("{\"case\": \"stops\", \"what\": \"%s, kind=vmm\", \"unit\": \"stops\", "
             "\"stops\": %u, \"checked\": %llu, \"wrong_words\": 0}",
             whom, stopped, (unsigned long long)checked);
}

/* ---- consumers that sit on frames -------------------------------------------------------------------- */

struct sitter {
  cudalink_importer importer;
  CUstream stream;
  bool waits; /* its stream waits for the last frame, else its kernels are under way */
  uint32_t held;
  cudalink_frame frames[2];
  CUdeviceptr counts[2];
  uint64_t checked, lost, evicted;
};

static void give_back(struct sitter *sitter) {
  while (sitter->held)
    CHECK_OK(cudalink_frame_release(&sitter->frames[--sitter->held], CUDALINK_STREAM_COMPLETE));
}

/* One frame more, or none of those that it had. */
static void take_one(struct sitter *sitter) {
  cudalink_frame *frame = &sitter->frames[sitter->held];
  int status =
      cudalink_importer_acquire(sitter->importer, ON(sitter->stream), 50 * MILLISECOND, frame);
  if (status == CUDALINK_OK) {
    sitter->held++;
    return;
  }
  sitter->evicted += status == CUDALINK_ERROR_EVICTED;
  if (status != CUDALINK_ERROR_EVICTED) CHECK_STATUS(status, CUDALINK_ERROR_TIMEOUT);
  if (sitter->waits) CU(cuStreamSynchronize(sitter->stream)); /* its waits are for these frames */
  give_back(sitter);
}

static bool is_pending(const struct sitter *sitter) {
  return (sitter->frames[1].flags & CUDALINK_FRAME_PENDING) != 0;
}

static void take_two(struct sitter *sitter, bool insists) {
  while (sitter->held < 2) {
    take_one(sitter);
    if (sitter->held < 2 || !insists || is_pending(sitter)) continue;
    CU(cuStreamSynchronize(sitter->stream));
    give_back(sitter);
  }
}

static void sit(struct sitter *sitter, bool insists) {
  take_two(sitter, insists);
  for (int i = 0; i < 2; i++) {
    const cudalink_frame *frame = &sitter->frames[i];
    uint64_t bytes;
    CHECK_OK(cudalink_description_bytes(&frame->description, &bytes));
    CU(cuMemsetD8Async(sitter->counts[i], 0, sizeof(struct gpu_counts), sitter->stream));
    gpu_check(sitter->stream, frame->data, bytes, frame->sequence,
              sitter->waits ? 0 : (uint64_t)KERNEL, sitter->counts[i]);
  }
}

/* What was taken back is whole all the same. Only a wait that its limit has ended says LOST. */
static void check(struct sitter *sitter) {
  for (; sitter->held; sitter->held--) {
    uint32_t last = sitter->held - 1;
    struct gpu_counts counts = gpu_counts_read(sitter->counts[last], sitter->stream);
    CHECK(counts.seen > 0);
    int status = cudalink_frame_release(&sitter->frames[last], ON(sitter->stream));
    if (sitter->waits && status == CUDALINK_ERROR_LOST) {
      sitter->lost++;
      continue;
    }
    CHECK_OK(status);
    CHECK_EQUAL(counts.wrong, 0);
    sitter->checked++;
  }
}

static void open_importer(struct sitter *sitter) {
  sitter->waits = option_number("waits", 0) != 0;
  sitter->stream = gpu_stream();
  for (int i = 0; i < 2; i++)
    sitter->counts[i] = gpu_counts_make();
  CHECK_OK(cudalink_importer_open(
      &sitter->importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 2,
                                .gpu_wait = sitter->waits, .gpu_wait_limit = 60 * SECOND,
                                .open_timeout = 20 * SECOND}));
}

/* "sit" (or "wait": its stream does), "check", and at the end one frame more, so that it hears of the last
 * eviction. */
HELPER(sitter) {
  struct sitter sitter = {0};
  char line[LINE_SIZE];
  gpu_start();
  open_importer(&sitter);
  say("open");
  while (hear(line) && strcmp(line, "end") != 0) {
    if (!strcmp(line, "check"))
      check(&sitter);
    else
      sit(&sitter, !strcmp(line, "wait"));
    say("done");
  }
  sitter.waits = false; /* a frame of any kind */
  while (!sitter.held)
    take_one(&sitter);
  CU(cuStreamSynchronize(sitter.stream));
  give_back(&sitter);
  CHECK_OK(cudalink_importer_close(sitter.importer));
  say("checked=%llu lost=%llu evicted=%llu", (unsigned long long)sitter.checked,
      (unsigned long long)sitter.lost, (unsigned long long)sitter.evicted);
}

/* ---- consumers -------------------------------------------------------------------------------------------- */

struct stage {
  cudalink_exporter exporter;
  cudalink_description description;
  CUstream stream;
  uint64_t bytes, pause, published;
};

/* One frame, or none while all slots are held: `wait` ends before or behind an eviction. */
static void publish(struct stage *stage, int64_t wait) {
  cudalink_slot slot;
  int status = cudalink_exporter_begin(stage->exporter, &stage->description, wait, &slot);
  if (status == CUDALINK_ERROR_BUSY) return;
  CHECK_OK(status);
  gpu_fill(stage->stream, slot.data, stage->bytes, slot.sequence, stage->pause);
  CHECK_OK(cudalink_exporter_publish(stage->exporter, &slot, ON(stage->stream)));
  stage->published++;
}

static void publish_more(struct stage *stage, uint64_t count) {
  for (uint64_t end = stage->published + count; stage->published < end;)
    publish(stage, 20 * SECOND);
}

static void publish_until_it_says(struct stage *stage, struct process *process) {
  while (!process_has_line(process))
    publish(stage, 5 * MILLISECOND);
}

static uint64_t evicted(const struct stage *stage) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(stage->exporter, &statistics));
  return statistics.evicted;
}

static void open_stage(struct stage *stage, bool waits) {
  gpu_start();
  stage->stream = gpu_stream();
  stage->pause = waits ? (uint64_t)KERNEL : 0;
  describe_rgba(&stage->description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&stage->description, &stage->bytes));
  CHECK_OK(cudalink_exporter_open(
      &stage->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &stage->description,

                                .slots = 4, .max_slots = 4, .hold_limit = HOLD_LIMIT}));
}

static void sit_and_stop(struct stage *stage, struct process *sitter, const char *how) {
  process_tell(sitter, "%s", how);
  publish_until_it_says(stage, sitter);
  process_expect(sitter, "done");
  gpu_random_pause(KERNEL);
  stop(sitter);
}

/* Both of them hold all that there is. The witness wants every frame, so what is published behind the
 * eviction it has taken. */
static void stop_once(struct stage *stage, struct process *sitters[2]) {
  uint64_t before = evicted(stage);
  sit_and_stop(stage, sitters[0], stage->pause ? "wait" : "sit");
  publish_more(stage, 2); /* else the other one takes the same frames */
  sit_and_stop(stage, sitters[1], "sit");
  while (evicted(stage) == before)
    publish(stage, 20 * SECOND);
  publish_more(stage, 10);
  for (int i = 0; i < 2; i++) {
    process_signal(sitters[i], SIGCONT);
    process_tell(sitters[i], "check");
    publish_until_it_says(stage, sitters[i]);
    process_expect(sitters[i], "done");
  }
}

/* Its frames that were whole; adds how often it was evicted. */
static uint64_t end_sitter(struct stage *stage, struct process *sitter, uint32_t stopped,
                           uint64_t *told) {
  process_tell(sitter, "end");
  publish_until_it_says(stage, sitter);
  const char *said = process_hear(sitter);
  printf("  %s\n", said);
  uint64_t checked = (uint64_t)line_number(said, "checked");
  CHECK_EQUAL(checked + (uint64_t)line_number(said, "lost"), 2 * stopped);
  *told += (uint64_t)line_number(said, "evicted");
  process_finish(sitter);
  return checked;
}

static uint64_t end_well(struct process *drain, uint64_t *told) {
  const char *said = process_hear(drain);
  printf("  %s\n", said);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  CHECK_EQUAL(line_number(said, "ended"), 1);
  uint64_t checked = (uint64_t)line_number(said, "checked");
  *told += (uint64_t)line_number(said, "evicted");
  process_finish(drain);
  return checked;
}

static void stop_consumers(bool waits, const char *what) {
  struct stage stage = {0};
  struct process *sitters[2];
  uint64_t checked = 0, told = 0;
  uint32_t stopped = 0;
  open_stage(&stage, waits);
  struct process *witness = start_drain("policy=every gpu_wait=1");
  for (int i = 0; i < 2; i++) {
    sitters[i] = process_start("sitter", "waits=%d", waits);
    process_expect(sitters[i], "open");
  }
  CHECK_OK(cudalink_exporter_wait_consumers(stage.exporter, 3, 20 * SECOND));
  for (; gpu_once_more(stopped); stopped++)
    stop_once(&stage, sitters);
  for (int i = 0; i < 2; i++)
    checked += end_sitter(&stage, sitters[i], stopped, &told);
  CU(cuStreamSynchronize(stage.stream));
  CHECK_OK(cudalink_exporter_close(stage.exporter));
  checked += end_well(witness, &told); /* on a busy machine it may be the one that sits */
  CHECK(told >= stopped);
  report(what, stopped, checked);
}

TEST(consumer_stopped_in_kernel, 400) { stop_consumers(false, "consumer in a kernel"); }
TEST(consumer_stopped_in_wait, 400) { stop_consumers(true, "consumer in a wait on the GPU"); }

/* ---- a producer --------------------------------------------------------------------------------------------- */

/* For longer than the consumers' waits may take, or for less. */
TEST(producer_stopped_in_kernel, 400) {
  uint64_t told = 0;
  uint32_t stopped = 0;
  gpu_start();
  struct process *feed = start_feed("consumers=2 tell=20 pause=3000000");
  struct process *order = start_drain("policy=order gpu_wait=1 wait_limit_ms=100");
  struct process *next = start_drain("policy=latest gpu_wait=1 next=1 wait_limit_ms=100");
  process_expect(feed, "flows");
  for (; gpu_once_more(stopped); stopped++) {
    gpu_random_pause(100 * MILLISECOND);
    stop(feed);
    gpu_random_pause(300 * MILLISECOND);
    process_signal(feed, SIGCONT);
  }
  process_tell(feed, "stop");
  CHECK(line_number(process_hear(feed), "published") >= 20);
  report("producer in a kernel", stopped, end_well(order, &told) + end_well(next, &told));
  process_finish(feed);
}
