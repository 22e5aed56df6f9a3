/* SPDX-License-Identifier: MIT
 *
 * A consumer: every word of every frame is checked by a kernel, while the frame is held.
 *
 * A frame that turns out LOST may be half a frame, so its counts do not count; who leaves waits to a
 * stream therefore looks at each frame by itself.
 */
#include "gpu.h"

#define ACQUIRE_STEP (50 * MILLISECOND)

struct draining {
  const struct drain *drain;
  struct drain_result *result;
  cudalink_importer importer;
  CUstream stream;
  CUdeviceptr counts;
  uint64_t wrong; /* of counts, so far */
  void *host;
  uint64_t host_bytes, words; /* words: given to the kernel */
};

static uint64_t bytes_of(const cudalink_frame *frame) {
  uint64_t bytes;
  CHECK_OK(cudalink_description_bytes(&frame->description, &bytes));
  return bytes;
}

static void check_on_host(struct draining *draining, const cudalink_frame *frame) {
  uint64_t bytes = bytes_of(frame);
  if (bytes > draining->host_bytes) {
    CU(cuMemHostAlloc(&draining->host, bytes, 0));
    draining->host_bytes = bytes;
  }
  CHECK_OK(cudalink_frame_to_host(frame, draining->host, bytes));
  draining->result->wrong += gpu_pattern_wrong(draining->host, bytes, frame->sequence);
}

static void check(struct draining *draining, const cudalink_frame *frame) {
  draining->words += bytes_of(frame) / 8;
  gpu_check(draining->stream, frame->data, bytes_of(frame), frame->sequence, draining->drain->pause,
            draining->counts);
}

/* A peer's death must not make a stream wait for ever. */
static void synchronize(struct draining *draining) {
  uint64_t start = cudalink_now();
  CU(cuStreamSynchronize(draining->stream));
  uint64_t took = cudalink_now() - start;
  if (took > draining->result->longest) draining->result->longest = took;
}

/* Gives the frame back; its words count unless they were lost or never came. */
static void release(struct draining *draining, cudalink_frame *frame) {
  const struct drain *drain = draining->drain;
  struct drain_result *result = draining->result;
  uint64_t wrong = draining->wrong;
  if (drain->gpu_wait || drain->by_cpu) synchronize(draining);
  if (drain->gpu_wait) draining->wrong = gpu_counts_read(draining->counts, draining->stream).wrong;
  int status = cudalink_frame_release(
      frame, drain->by_cpu || drain->to_host ? CUDALINK_STREAM_COMPLETE : ON(draining->stream));
  if (status == CUDALINK_ERROR_LOST)
    result->lost++;
  else if (status == CUDALINK_ERROR_SKIPPED)
    result->skipped++;
  else
    CHECK_OK(status);
  if (status == CUDALINK_OK) result->wrong += draining->wrong - wrong;
}

static int take(struct draining *draining, cudalink_frame *frame) {
  const struct drain *drain = draining->drain;
  if (drain->next && draining->result->checked) { /* its description is the last frame's */
    int status =
        cudalink_importer_wait_next(draining->importer, ON(draining->stream), ACQUIRE_STEP, frame);
    if (status != CUDALINK_ERROR_BUSY && status != CUDALINK_ERROR_TIMEOUT) return status;
  }
  return cudalink_importer_acquire(
      draining->importer, drain->complete ? CUDALINK_STREAM_COMPLETE : ON(draining->stream),
      ACQUIRE_STEP, frame);
}

static void use(struct draining *draining, cudalink_frame *frame) {
  const struct drain *drain = draining->drain;
  bool pending = (frame->flags & CUDALINK_FRAME_PENDING) != 0;
  if (drain->to_host)
    check_on_host(draining, frame);
  else
    check(draining, frame);
  draining->result->pending += pending;
  draining->result->checked++;
  draining->result->missed += frame->missed;
  release(draining, frame);
}

/* True: the consumer goes on. */
static bool go_on(struct draining *draining, int status) {
  struct drain_result *result = draining->result;
  switch (status) {
  case CUDALINK_ERROR_ENDED: result->ended++; break;
  case CUDALINK_ERROR_LOST: result->died++; break;
  case CUDALINK_ERROR_EVICTED: result->evicted++; return true;
  case CUDALINK_ERROR_SKIPPED:
  case CUDALINK_ERROR_BUSY: /* a release by the stream has not landed */
  case CUDALINK_ERROR_TIMEOUT: return true;
  default: CHECK_OK(status);
  }
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0); /* the reaper unmaps now */
  return status == CUDALINK_ERROR_LOST && draining->drain->survivor;
}

static bool over(const struct draining *draining) {
  const struct drain *drain = draining->drain;
  if (drain->frames && draining->result->checked >= drain->frames) return true;
  return drain->stop && drain->stop(draining->result->checked);
}

static void drain_frames(struct draining *draining) {
  while (!over(draining)) {
    cudalink_frame frame;
    int status = take(draining, &frame);
    if (status < 0 && !go_on(draining, status)) return;
    if (status < 0) continue;
    use(draining, &frame);
    if (frame.sequence >= draining->drain->flow)
      FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0);
    else if (draining->result->checked == 20)
      FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_ABORT,
           FAKECUDA_WAITING | FAKECUDA_ALLOCATING | FAKECUDA_OPENING);
  }
}

/* Every frame was looked at, every word of it. */
static void finish(struct draining *draining) {
  struct drain_result *result = draining->result;
  struct gpu_counts counts = gpu_counts_read(draining->counts, draining->stream);
  if (!draining->drain->gpu_wait) result->wrong += counts.wrong;
  CHECK_EQUAL(counts.seen, draining->words);
}

static bool is_joined(cudalink_importer importer) {
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_importer_get_statistics(importer, &statistics));
  return statistics.connection == CUDALINK_CONNECTION_JOINED;
}

void drain_run(const struct drain *drain, struct drain_result *result) {
  struct draining draining = {.drain = drain, .result = result};
  memset(result, 0, sizeof *result);
  draining.stream = gpu_stream();
  draining.counts = gpu_counts_make();
  CHECK_OK(cudalink_importer_open(
      &draining.importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = drain->name,
                                .policy = drain->policy, .hold = drain->hold,
                                .gpu_wait = drain->gpu_wait, .isolated = drain->isolated,
                                .device = drain->device ? CUDALINK_DEVICE(drain->device) : 0,
                                .gpu_wait_limit = drain->wait_limit, .open_timeout = 20 * SECOND}));
  if (drain->behind_close) WAIT_UNTIL(!is_joined(draining.importer));
  drain_frames(&draining);
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0);
  finish(&draining);
  CHECK_OK(cudalink_importer_close(draining.importer));
}

/* ---- as a helper --------------------------------------------------------------------------------------- */

static cudalink_policy policy_option(void) {
  static const char *const names[] = {"latest", "ready", "order", "every", "shared"};
  const char *policy = option("policy", "latest");
  for (int p = 0; p < 5; p++)
    if (!strcmp(policy, names[p])) return (cudalink_policy)p;
  FAIL("policy %s", policy);
}

struct drain drain_from_options(void) {
  return (struct drain){.name = option("name", "gpu"),
                        .device = (int)option_number("device", 0),
                        .policy = policy_option(),
                        .hold = (uint32_t)option_number("hold", 0),
                        .gpu_wait = option_number("gpu_wait", 0) != 0,
                        .next = option_number("next", 0) != 0,
                        .isolated = option_number("isolated", 0) != 0,
                        .complete = option_number("complete", 0) != 0,
                        .by_cpu = option_number("by_cpu", 0) != 0,
                        .to_host = option_number("to_host", 0) != 0,
                        .behind_close = option_number("behind_close", 0) != 0,
                        .pause = (uint64_t)option_number("pause", 0),
                        .frames = (uint64_t)option_number("frames", 0),
                        .survivor = option_number("survivor", 0) != 0,
                        .wait_limit = option_number("wait_limit_ms", 0) * MILLISECOND,
                        .flow = (uint64_t)option_number("flow", 0),
                        .stop = tell_and_hear};
}

/* As feed. */
HELPER(drain) {
  gpu_start_on((int)option_number("device", 0));
  FAKE(fakecuda_set_delay, (unsigned)option_number("delay", 0));
  struct drain drain = drain_from_options();
  struct drain_result result;
  char line[LINE_SIZE];
  say("open");
  drain_run(&drain, &result);
  if (hear_within(0)) hear(line); /* else its end would take what we say along */
  say("checked=%llu wrong=%llu missed=%llu lost=%llu skipped=%llu pending=%llu ended=%llu "
      "died=%llu longest=%llu evicted=%llu",
      (unsigned long long)result.checked, (unsigned long long)result.wrong,
      (unsigned long long)result.missed, (unsigned long long)result.lost,
      (unsigned long long)result.skipped, (unsigned long long)result.pending,
      (unsigned long long)result.ended, (unsigned long long)result.died,
      (unsigned long long)result.longest, (unsigned long long)result.evicted);
}

struct process *start_drain(const char *format, ...) {
  char options[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(options, sizeof options, format, list);
  va_end(list);
  struct process *process = process_start("drain", "%s", options);
  process_expect(process, "open");
  return process;
}
