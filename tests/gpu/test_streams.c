/* SPDX-License-Identifier: MIT
 *
 * Streams are named: capturing ones, ones of another device and none at all are refused, the
 * caller's context stays what it was, and work that a graph has queued is ordered as any other. A stream
 * that waits goes on waiting when an end is closed.
 */
#include <stdatomic.h>

#include "gpu.h"
#include "link/reaper.h"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream;
};

static void open_channel(struct channel *channel, cudalink_kind kind) {
  describe_rgba(&channel->description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  channel->stream = gpu_stream();
  CHECK_OK(cudalink_exporter_open(&channel->exporter,
                                  &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                            .name = "gpu", .kind = kind,
                                                            .description = &channel->description}));
  CHECK_OK(cudalink_importer_open(
      &channel->importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = 1, .hold = 2,
                                .gpu_wait_limit = CUDALINK_FOREVER, .open_timeout = 10 * SECOND}));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

static void publish(struct channel *channel, cudalink_stream stream) {
  cudalink_slot slot;
  CHECK_OK(cudalink_exporter_begin(channel->exporter, &channel->description, 10 * SECOND, &slot));
  gpu_fill(channel->stream, slot.data, channel->bytes, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(channel->exporter, &slot, stream));
}

/* ---- refused streams ------------------------------------------------------------------------------------- */

static int send(const struct channel *channel, void *source, cudalink_stream stream) {
  return cudalink_exporter_send(channel->exporter, &channel->description, source, NULL, stream,
                                10 * SECOND);
}

TEST(capturing_stream_is_refused, 60) {
  struct channel channel;
  cudalink_slot slot;
  cudalink_frame frame, other;
  CUgraph graph;
  CUgraphExec exec;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM);
  CUstream capturing = gpu_stream();
  CUdeviceptr memory = (CUdeviceptr)(uintptr_t)gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, NULL);
  publish(&channel, ON(channel.stream));
  CHECK_OK(
      cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  publish(&channel, ON(channel.stream));
  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));

  CU(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuMemsetD8Async(memory, 1, 64, capturing));
  CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, ON(capturing)),
               CUDALINK_ERROR_CAPTURING);
  CHECK_STATUS(cudalink_importer_acquire(channel.importer, ON(capturing), 0, &other),
               CUDALINK_ERROR_CAPTURING);
  CHECK_STATUS(cudalink_importer_wait_next(channel.importer, ON(capturing), 0, &other),
               CUDALINK_ERROR_CAPTURING);
  CHECK_STATUS(cudalink_frame_release(&frame, ON(capturing)), CUDALINK_ERROR_CAPTURING);
  CHECK_STATUS(cudalink_exporter_abandon(channel.exporter, &slot, ON(capturing)),
               CUDALINK_ERROR_CAPTURING);
  /* Calls that name another stream work meanwhile. */
  CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
  CHECK_STATUS(cudalink_exporter_send(channel.exporter, &channel.description,
                                      (void *)(uintptr_t)memory, NULL, ON(capturing), 10 * SECOND),
               CUDALINK_ERROR_CAPTURING);
  CHECK_OK(cudalink_frame_release(&frame, ON(channel.stream)));
  CU(cuMemsetD8Async(memory + 64, 2, 64, capturing));
  CU(cuStreamEndCapture(capturing, &graph));
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU(cuGraphLaunch(exec, capturing));
  CU(cuStreamSynchronize(capturing));
  publish(&channel, ON(channel.stream));
  close_channel(&channel);
}

/* A whole life of a channel, and what the reaper does behind it, beside a capture that minds every thread. */
static void live_beside_a_capture(cudalink_kind kind) {
  struct channel channel;
  cudalink_frame frame;
  CUgraph graph;
  CUstream capturing = gpu_stream(), consumer = gpu_stream();
  CU(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  open_channel(&channel, kind);
  for (int i = 0; i < 5; i++) {
    publish(&channel, ON(channel.stream));
    CHECK_OK(cudalink_importer_acquire(channel.importer, ON(consumer), 10 * SECOND, &frame));
    CHECK_OK(cudalink_frame_release(&frame, ON(consumer)));
  }
  close_channel(&channel);
  reaper_drain();
  CU(cuStreamEndCapture(capturing, &graph));
}

TEST(a_capture_goes_on_beside_a_channel, 60) {
  gpu_start();
  live_beside_a_capture(CUDALINK_KIND_VMM);
  live_beside_a_capture(CUDALINK_KIND_IPC);
}

TEST(stream_not_said_is_refused, 60) {
  struct channel channel;
  cudalink_slot slot;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_IPC);
  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
  CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, (cudalink_stream){0}),
               CUDALINK_ERROR_STREAM);
  CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, ON(NULL)), CUDALINK_ERROR_STREAM);
  CHECK_CONTAINS(cudalink_last_error(), "CUDALINK_STREAM_LEGACY");
  CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, (cudalink_stream){.kind = 77}),
               CUDALINK_ERROR_STREAM);
  CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, CUDALINK_STREAM_LEGACY));
  void *source = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  CHECK_STATUS(send(&channel, source, (cudalink_stream){0}), CUDALINK_ERROR_STREAM);
  CHECK_STATUS(send(&channel, source, ON(NULL)), CUDALINK_ERROR_STREAM);
  CHECK_CONTAINS(cudalink_last_error(), "CUDALINK_STREAM_LEGACY");
  CHECK_STATUS(send(&channel, source, (cudalink_stream){.kind = 77}), CUDALINK_ERROR_STREAM);
  CHECK_OK(send(&channel, source, CUDALINK_STREAM_LEGACY));
  publish(&channel, CUDALINK_STREAM_PER_THREAD);
  publish(&channel, CUDALINK_STREAM_COMPLETE);
  close_channel(&channel);
}

TEST(stream_of_another_device_is_refused, 60) {
  struct channel channel;
  cudalink_slot slot;
  CUcontext other = gpu_start_beside_another();
  open_channel(&channel, CUDALINK_KIND_VMM);
  CU(cuCtxSetCurrent(other));
  CUstream stream = gpu_stream();
  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
  CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, ON(stream)),
               CUDALINK_ERROR_STREAM);
  CHECK_CONTAINS(cudalink_last_error(), "GPU 1");
  CHECK_CONTAINS(cudalink_last_error(), "GPU 0");
  CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
  void *source = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, stream);
  CHECK_STATUS(send(&channel, source, ON(stream)), CUDALINK_ERROR_STREAM);
  CHECK_CONTAINS(cudalink_last_error(), "GPU 1");
  CHECK_OK(send(&channel, source, ON(channel.stream)));
  close_channel(&channel);
}

/* ---- the caller's context ------------------------------------------------------------------------------------ */

static void expect_context(CUcontext expected, const char *call) {
  CUcontext now;
  CU(cuCtxGetCurrent(&now));
  if (now != expected) FAIL("%s left another context current", call);
}

#define KEEPS(call)                                                                                \
  do {                                                                                             \
    CHECK_OK(call);                                                                                \
    expect_context(expected, #call);                                                               \
  } while (0)

/* All calls of both ends with this context current. */
static void use_everything(cudalink_kind kind, CUcontext expected, CUstream stream, void *source) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  cudalink_slot slot;
  cudalink_frame frame;
  describe_rgba(&description, 32, 32);
  KEEPS(cudalink_exporter_open(&exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                                    .name = "gpu", .kind = kind,
                                                                    .description = &description}));
  KEEPS(cudalink_importer_open(&importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
                                                                    .name = "gpu", .gpu_wait = 1,
                                                                    .open_timeout = 10 * SECOND}));
  KEEPS(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
  KEEPS(cudalink_exporter_publish(exporter, &slot, ON(stream)));
  KEEPS(cudalink_importer_acquire(importer, ON(stream), 10 * SECOND, &frame));
  KEEPS(cudalink_frame_release(&frame, ON(stream)));
  KEEPS(cudalink_exporter_send(exporter, &description, source, NULL, ON(stream), 10 * SECOND));
  KEEPS(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  char *out = malloc(32 * 32 * 4);
  KEEPS(cudalink_frame_to_host(&frame, out, 32 * 32 * 4));
  KEEPS(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  KEEPS(cudalink_importer_close(importer));
  KEEPS(cudalink_exporter_close(exporter));
  free(out);
}

TEST(current_context_is_kept, 60) {
  CUcontext other;
  gpu_start();
  CUstream stream = gpu_stream();
  void *source = gpu_memory(GPU_MEMORY_DEVICE, 4096, stream);
  for (int kind = CUDALINK_KIND_VMM; kind <= CUDALINK_KIND_IPC; kind++) {
    use_everything((cudalink_kind)kind, gpu_context(), stream, source);
    CU(cuCtxSetCurrent(NULL));
    use_everything((cudalink_kind)kind, NULL, stream, source);
    CU(cuCtxCreate(&other, 0, 0));
    use_everything((cudalink_kind)kind, other, stream, source);
    CU(cuCtxSetCurrent(gpu_context()));
  }
}

/* ---- an end is closed while a stream waits ------------------------------------------------------------------ */

enum closer { CONSUMER, CONSUMER_BEHIND_RELEASE, PRODUCER, CLOSERS };

/* The frame's pixels are behind a gate, the check of them behind the frame: it finds no wrong word. */
static void close_while_pending(cudalink_kind kind, enum closer who, CUdeviceptr counts) {
  struct channel channel;
  cudalink_slot slot;
  cudalink_frame frame;
  void *memory;
  uint32_t flags;
  CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  _Atomic uint32_t *gate = memory;
  atomic_store(gate, 0);
  open_channel(&channel, kind);
  CUstream consumer = gpu_stream();
  publish(&channel, ON(channel.stream)); /* from here on streams may wait */
  CHECK_OK(
      cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));

  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
  CU(cuStreamWaitValue32(channel.stream, (CUdeviceptr)(uintptr_t)gate, 1,
                         CU_STREAM_WAIT_VALUE_GEQ));
  gpu_fill(channel.stream, slot.data, channel.bytes, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
  CHECK_OK(cudalink_importer_acquire(channel.importer, ON(consumer), 10 * SECOND, &frame));
  CHECK_EQUAL(frame.flags, CUDALINK_FRAME_PENDING);
  gpu_check(consumer, frame.data, channel.bytes, slot.sequence, 0, counts);
  if (who == CONSUMER_BEHIND_RELEASE) CHECK_OK(cudalink_frame_release(&frame, ON(consumer)));
  if (who == PRODUCER)
    CHECK_OK(cudalink_exporter_close(channel.exporter));
  else
    CHECK_OK(cudalink_importer_close(channel.importer));
  if (frame.lease) {
    CHECK_OK(cudalink_frame_flags(&frame, &flags));
    CHECK_EQUAL(flags, CUDALINK_FRAME_PENDING);
  }
  atomic_store(gate, 1);
  CU(cuStreamSynchronize(consumer));
  if (frame.lease) CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  if (who == PRODUCER)
    CHECK_OK(cudalink_importer_close(channel.importer));
  else
    CHECK_OK(cudalink_exporter_close(channel.exporter));
}

TEST(close_leaves_pending_waits, 60) {
  gpu_start();
  CUstream stream = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  for (int kind = CUDALINK_KIND_VMM; kind <= CUDALINK_KIND_IPC; kind++)
    for (enum closer who = CONSUMER; who < CLOSERS; who++)
      close_while_pending((cudalink_kind)kind, who, counts);
  struct gpu_counts counted = gpu_counts_read(counts, stream);
  CHECK_EQUAL(counted.wrong, 0);
  CHECK(counted.seen > 0);
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

/* What is published on a stream is there when the stream has come so far, and not before. */
static void ready_behind_its_stream(cudalink_kind kind) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return; /* nothing else holds a whole GPU for so long as one likes */
  open_channel(&channel, kind);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  publish(&channel, ON(channel.stream)); /* loads the kernel */
  CHECK_OK(
      cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 30 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  FAKE(fakecuda_pause, 1);
  publish(&channel, ON(channel.stream));
  CHECK_STATUS(cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 0, &frame),
               CUDALINK_ERROR_TIMEOUT);
  FAKE(fakecuda_pause, 0);
  CHECK_OK(
      cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 30 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  close_channel(&channel);
}

/* A publish that was refused described a frame that never came. Also when the index has forgotten its number,
 * whoever waited for it is told so. */
TEST(announced_and_refused_is_skipped_for_ever, 60) {
  struct channel channel;
  cudalink_slot slot;
  cudalink_frame frame, other;
  CUgraph graph;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM);
  CUstream capturing = gpu_stream(), consumer = gpu_stream();
  publish(&channel, ON(channel.stream));
  CHECK_OK(cudalink_importer_acquire(channel.importer, ON(consumer), 10 * SECOND, &other));
  CHECK_OK(cudalink_frame_release(&other, ON(consumer)));
  publish(&channel, ON(channel.stream)); /* announces the next one */
  CHECK_OK(cudalink_importer_wait_next(channel.importer, ON(consumer), 10 * SECOND, &frame));
  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
  CHECK_EQUAL(slot.sequence, frame.sequence);
  CU(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, ON(capturing)),
               CUDALINK_ERROR_CAPTURING);
  CU(cuStreamEndCapture(capturing, &graph));
  CHECK_OK(cudalink_exporter_abandon(channel.exporter, &slot, CUDALINK_STREAM_COMPLETE));
  for (int i = 0; i < 70; i++) /* the index has 64 */
    publish(&channel, ON(channel.stream));
  CHECK_STATUS(cudalink_frame_release(&frame, ON(consumer)), CUDALINK_ERROR_SKIPPED);
  close_channel(&channel);
}

TEST(vmm_is_ready_behind_its_stream, 60) { ready_behind_its_stream(CUDALINK_KIND_VMM); }
TEST(ipc_is_ready_behind_its_stream, 60) { ready_behind_its_stream(CUDALINK_KIND_IPC); }

TEST(publish_behind_a_thousand_graph_launches, 120) {
  gpu_start();
  struct process *feed =
      start_feed("kind=vmm slots=16 graph=1 frames=1000 drain=1 flow=1 pause=5000");
  struct process *drain = start_drain("policy=every gpu_wait=1");
  const char *said = process_hear(drain);
  CHECK_EQUAL(line_number(said, "checked"), 1000);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  CHECK_EQUAL(line_number(process_hear(feed), "published"), 1000);
  process_finish(drain);
  process_finish(feed);
}
