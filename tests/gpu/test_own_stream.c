/* SPDX-License-Identifier: MIT
 *
 * The options of the exporter's copies: a stream of the library's own and its priority, export_sync,
 * flush_probe; and that a send which fails behind its copy gives the slot back behind it.
 *
 * A stream is held up by a word that it waits for, so that an order is shown and not guessed by time.
 */
#include "gpu.h"
#include "link/exporter.h"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream, own;
  CUdeviceptr source;
  _Atomic uint32_t *gate;
};

static CUstream copy_stream_of(cudalink_exporter handle) {
  struct link_exporter *exporter = link_table_lock(&link_exporters, handle.id);
  uint64_t stream = exporter->copy_stream.handle;
  link_object_unlock(exporter);
  return (CUstream)(uintptr_t)stream;
}

static void open_channel(struct channel *channel, cudalink_exporter_spec spec) {
  void *gate;
  describe_rgba(&channel->description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  channel->stream = gpu_stream();
  CU(cuMemAlloc(&channel->source, channel->bytes));
  CU(cuMemHostAlloc(&gate, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  channel->gate = gate;
  atomic_store(channel->gate, 0);
  spec.size = sizeof spec;
  spec.name = "gpu";
  spec.description = &channel->description;
  if (!spec.kind) spec.kind = CUDALINK_KIND_VMM;
  CHECK_OK(cudalink_exporter_open(&channel->exporter, &spec));
  channel->own = copy_stream_of(channel->exporter);
  CHECK_OK(cudalink_importer_open(
      &channel->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                    .open_timeout = 10 * SECOND}));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

/* What is queued on the stream from here on waits for open_gate. */
static void hold_up(const struct channel *channel, CUstream stream) {
  CU(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)channel->gate, 1,
                         CU_STREAM_WAIT_VALUE_GEQ));
}
static void open_gate(const struct channel *channel) { atomic_store(channel->gate, 1); }

static int send_on(struct channel *channel, cudalink_stream stream) {
  return cudalink_exporter_send(channel->exporter, &channel->description,
                                (void *)(uintptr_t)channel->source, NULL, stream, 10 * SECOND);
}

static void fill_source(const struct channel *channel, CUstream stream, uint64_t pattern,
                        uint64_t pause) {
  gpu_fill(stream, (void *)(uintptr_t)channel->source, channel->bytes, pattern, pause);
}

static void acquire(struct channel *channel, cudalink_frame *frame) {
  CHECK_OK(
      cudalink_importer_acquire(channel->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, frame));
}

static void expect_pattern(struct channel *channel, cudalink_frame *frame, uint64_t pattern) {
  char *read = malloc(channel->bytes);
  CHECK_OK(cudalink_frame_to_host(frame, read, channel->bytes));
  CHECK_EQUAL(gpu_pattern_wrong(read, channel->bytes, pattern), 0);
  CHECK_OK(cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE));
  free(read);
}

static bool is_done(CUstream stream) { return cuda->cuStreamQuery(stream) == CUDA_SUCCESS; }

/* ---- a stream of its own --------------------------------------------------------------------------------- */

/* Behind the named stream, which does not wait for the copy. */
TEST(own_stream_follows_the_named_one, 60) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  open_channel(&channel, (cudalink_exporter_spec){.own_stream = 1});
  for (uint64_t i = 1; i < 20; i++) {
    fill_source(&channel, channel.stream, i, 2 * MILLISECOND);
    CHECK_OK(send_on(&channel, ON(channel.stream)));
    acquire(&channel, &frame);
    expect_pattern(&channel, &frame, i);
  }
  hold_up(&channel, channel.own);
  fill_source(&channel, channel.stream, 77, 0);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CU(cuStreamSynchronize(channel.stream));
  CHECK(!is_done(channel.own));
  open_gate(&channel);
  acquire(&channel, &frame);
  expect_pattern(&channel, &frame, 77);
  close_channel(&channel);
}

TEST(wait_sent_keeps_the_source, 60) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  open_channel(&channel, (cudalink_exporter_spec){.own_stream = 1});
  hold_up(&channel, channel.own);
  fill_source(&channel, channel.stream, 1, 0);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(cudalink_exporter_wait_sent(channel.exporter, ON(channel.stream)));
  fill_source(&channel, channel.stream, 2, 0);
  CHECK(!is_done(channel.stream));
  open_gate(&channel);
  acquire(&channel, &frame);
  CU(cuStreamSynchronize(channel.stream));
  expect_pattern(&channel, &frame, 1);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(cudalink_exporter_wait_sent(channel.exporter, CUDALINK_STREAM_COMPLETE));
  CHECK(is_done(channel.own));
  CHECK_STATUS(cudalink_exporter_wait_sent(channel.exporter, (cudalink_stream){0}),
               CUDALINK_ERROR_STREAM);
  close_channel(&channel);
  CHECK_STATUS(cudalink_exporter_wait_sent(channel.exporter, ON(channel.stream)),
               CUDALINK_ERROR_CLOSED);
}

TEST(own_stream_with_complete, 60) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  open_channel(&channel, (cudalink_exporter_spec){.own_stream = 1});
  for (uint64_t i = 1; i < 10; i++) {
    fill_source(&channel, channel.stream, i, 0);
    CU(cuStreamSynchronize(channel.stream));
    CHECK_OK(send_on(&channel, CUDALINK_STREAM_COMPLETE));
    CHECK(is_done(channel.own));
    fill_source(&channel, channel.stream, 99, 0);
    acquire(&channel, &frame);
    expect_pattern(&channel, &frame, i);
  }
  close_channel(&channel);
}

TEST(own_stream_priorities, 60) {
  static const cudalink_priority priorities[] = {CUDALINK_PRIORITY_NORMAL, CUDALINK_PRIORITY_LOW,
                                                 CUDALINK_PRIORITY_HIGH};
  int least, greatest;
  gpu_start();
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  for (int i = 0; i < 3; i++) {
    struct channel channel;
    int priority, expected = i == 0 ? 0 : i == 1 ? least : greatest;
    open_channel(&channel,
                 (cudalink_exporter_spec){.own_stream = 1, .own_stream_priority = priorities[i]});
    CU(cuStreamGetPriority(channel.own, &priority));
    CHECK_EQUAL(priority, expected);
    close_channel(&channel);
  }
  cudalink_exporter exporter;
  CHECK_STATUS(
      cudalink_exporter_open(
          &exporter,
          &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .slot_bytes = 64,
                                    .own_stream_priority = (cudalink_priority)3}),
      CUDALINK_ERROR_INVALID_ARGUMENT);
}

/* ---- export_sync, flush_probe ----------------------------------------------------------------------------- */

TEST(export_sync_returns_when_pixels_are_complete, 60) {
  struct channel channel;
  cudalink_slot slot;
  gpu_start();
  for (uint32_t own = 0; own < 2; own++) {
    open_channel(&channel, (cudalink_exporter_spec){.export_sync = 1, .own_stream = own});
    for (uint64_t i = 0; i < 10; i++) {
      fill_source(&channel, channel.stream, i, 3 * MILLISECOND);
      CHECK_OK(send_on(&channel, ON(channel.stream)));
      CHECK(is_done(channel.stream) && is_done(channel.own));
      CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
      gpu_fill(channel.stream, slot.data, channel.bytes, i, 3 * MILLISECOND);
      CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
      CHECK(is_done(channel.stream));
    }
    close_channel(&channel);
  }
}

static void nap(void *unused) {
  _Atomic uint32_t nobody = 0;
  (void)unused;
  os_sleep_on(&nobody, 0, os_deadline(2 * MILLISECOND), false);
}
static void count_up(void *counter) { atomic_fetch_add((_Atomic uint32_t *)counter, 1); }

TEST(export_sync_on_host_memory, 60) {
  cudalink_exporter exporter;
  cudalink_description description;
  cudalink_host_stream *stream;
  _Atomic uint32_t done = 0;
  cudalink_slot slot;
  describe_rgba(&description, 32, 32);
  CHECK_OK(cudalink_host_stream_create(&stream));
  CHECK_OK(cudalink_exporter_open(
      &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "host",
                                           .kind = CUDALINK_KIND_HOST, .description = &description,
                                           .export_sync = 1, .flush_probe = 1, .own_stream = 1}));
  for (uint32_t i = 1; i < 10; i++) {
    CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
    CHECK_OK(cudalink_host_stream_push(stream, nap, NULL));
    CHECK_OK(cudalink_host_stream_push(stream, count_up, &done));
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_HANDLE(stream)));
    CHECK_EQUAL(atomic_load(&done), i);
  }
  CHECK_OK(cudalink_exporter_wait_sent(exporter, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_exporter_close(exporter));
  cudalink_host_stream_destroy(stream);
}

/* A capture in global mode minds none of these calls, nor the graphs that copies are kept as. Once per
 * process: the reaper asks as well, for channels that were closed. */
static void probe_streams(uint32_t probe) {
  struct channel channel;
  CUgraph graph;
  gpu_start();
  open_channel(&channel,
               (cudalink_exporter_spec){.flush_probe = probe, .slots = 3, .max_slots = 3});
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  CUstream capturing = gpu_stream();
  CU(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  uint64_t queries = FAKE_NUMBER(fakecuda_calls, "cuStreamQuery");
  uint64_t waiting = FAKE_NUMBER(fakecuda_waiting_calls);
  for (int i = 0; i < 10; i++)
    CHECK_OK(send_on(&channel, ON(channel.stream)));
  if (gpu_is_fake())
    CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuStreamQuery") - queries, 10 * probe);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_waiting_calls), waiting);
  if (gpu_is_fake()) CHECK(FAKE_NUMBER(fakecuda_calls, "cuGraphInstantiateWithFlags") > 0);
  CU(cuStreamEndCapture(capturing, &graph));
  close_channel(&channel);
}

TEST(flush_probe_asks_once_per_frame, 60) { probe_streams(1); }
TEST(without_flush_probe_no_stream_is_asked, 60) { probe_streams(0); }

/* A frame's words are still to come from a stream: its slot is not lent, whatever is published meanwhile,
 * since words that come late would say the wrong number. */
TEST(slot_of_late_words_is_not_lent, 60) {
  struct channel channel;
  cudalink_slot slot;
  gpu_start();
  open_channel(&channel, (cudalink_exporter_spec){.slots = 3, .max_slots = 3});
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  hold_up(&channel, channel.stream);
  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
  const void *late = slot.data;
  CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
  for (int i = 0; i < 10; i++) {
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
    CHECK(slot.data != late);
    CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, CUDALINK_STREAM_COMPLETE));
  }
  open_gate(&channel);
  CU(cuStreamSynchronize(channel.stream));
  for (slot.data = NULL; slot.data != late;) {
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
    CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, CUDALINK_STREAM_COMPLETE));
  }
  close_channel(&channel);
}

/* ---- a send that fails behind its copy ------------------------------------------------------------------- */

TEST(failed_send_gives_its_slot_back_behind_the_copy, 60) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver fails when it likes */
  open_channel(&channel, (cudalink_exporter_spec){.slots = 3, .max_slots = 3});
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  CUstream other = gpu_stream();
  CUdeviceptr first = channel.source;
  fill_source(&channel, channel.stream, 1, 0);
  CU(cuStreamSynchronize(channel.stream));
  hold_up(&channel, channel.stream);
  FAKE(fakecuda_fail, "cuStreamWriteValue64", 1, (int)CUDA_ERROR_UNKNOWN);
  CHECK_STATUS(send_on(&channel, ON(channel.stream)), CUDALINK_ERROR_GPU);
  CU(cuMemAlloc(&channel.source, channel.bytes));
  fill_source(&channel, other, 2, 0);
  CHECK_OK(send_on(&channel, ON(other)));
  acquire(&channel, &frame);
  open_gate(&channel); /* now the first copy goes on */
  CU(cuStreamSynchronize(channel.stream));
  expect_pattern(&channel, &frame, 2);
  channel.source = first;
  close_channel(&channel);
}

/* COMPLETE: the copy is on the library's own stream, and it was to be done when the call returns. */
TEST(failed_complete_send_gives_its_slot_back_behind_the_copy, 60) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return;
  for (uint32_t own = 0; own < 2; own++) {
    open_channel(&channel, (cudalink_exporter_spec){.slots = 3, .max_slots = 3, .own_stream = own});
    CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
    CUstream other = gpu_stream();
    fill_source(&channel, channel.stream, 1, 0);
    CU(cuStreamSynchronize(channel.stream));
    hold_up(&channel, channel.own);
    FAKE(fakecuda_fail, "cuStreamSynchronize", 1, (int)CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(send_on(&channel, CUDALINK_STREAM_COMPLETE), CUDALINK_ERROR_GPU);
    CHECK_CONTAINS(cudalink_last_error(), "waiting for the stream");
    cudalink_slot slot;
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
    gpu_fill(other, slot.data, channel.bytes, 2, 0);
    CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(other)));
    acquire(&channel, &frame);
    open_gate(&channel); /* now the first copy goes on */
    CU(cuStreamSynchronize(channel.own));
    expect_pattern(&channel, &frame, 2);
    close_channel(&channel);
  }
}

/* The copy for an isolated consumer reads the slot: it is lent again only when that is done. */
TEST(failed_isolated_copy_keeps_its_slot, 60) {
  struct channel channel;
  cudalink_importer isolated;
  cudalink_slot slot, other;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return;
  open_channel(&channel, (cudalink_exporter_spec){.slots = 3, .max_slots = 3});
  CHECK_OK(cudalink_importer_open(
      &isolated, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .isolated = 1,
                                           .open_timeout = 10 * SECOND}));
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 2, 10 * SECOND));
  for (int again = 0; again < 2; again++) {
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
    gpu_fill(channel.stream, slot.data, channel.bytes, slot.sequence, 0);
    CU(cuStreamSynchronize(channel.stream));
    atomic_store(channel.gate, 0);
    hold_up(&channel, channel.own);
    FAKE(fakecuda_fail, "cuStreamSynchronize", 1, (int)CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(cudalink_exporter_publish(channel.exporter, &slot, CUDALINK_STREAM_COMPLETE),
                 CUDALINK_ERROR_GPU);
    if (again) break;
    CHECK_OK(cudalink_exporter_abandon(channel.exporter, &slot, CUDALINK_STREAM_COMPLETE));
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &other));
    CHECK(other.index != slot.index);
    CHECK_OK(cudalink_exporter_abandon(channel.exporter, &other, CUDALINK_STREAM_COMPLETE));
    open_gate(&channel);
    CU(cuStreamSynchronize(channel.own));
  }
  open_gate(&channel); /* published a second time: behind what the first one left */
  CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
  CHECK(is_done(channel.own));
  CHECK_OK(cudalink_importer_acquire(isolated, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  expect_pattern(&channel, &frame, slot.sequence);
  CHECK_OK(cudalink_importer_close(isolated));
  close_channel(&channel);
}
