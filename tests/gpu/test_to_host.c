/* SPDX-License-Identifier: MIT
 *
 * Reading frames out: into plain and pinned memory, by one and by several streams, in the background;
 * and that nobody's event holds a copy up.
 */
#include "gpu.h"
#include "gpu/cuda/cuda.h"
#include "link/importer.h"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes, packed;
  CUstream stream;
  _Atomic uint32_t *gate;
};

static void open_ends(struct channel *channel, cudalink_kind kind, cudalink_importer_spec spec) {
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  CHECK_OK(cudalink_packed_bytes(&channel->description, &channel->packed));
  spec.size = sizeof spec;
  spec.name = "gpu";
  spec.open_timeout = 10 * SECOND;
  CHECK_OK(cudalink_exporter_open(
      &channel->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .kind = kind,
                                .description = &channel->description, .slots = 3, .max_slots = 4}));
  CHECK_OK(cudalink_importer_open(&channel->importer, &spec));
  CHECK_OK(cudalink_exporter_wait_consumers(channel->exporter, 1, 10 * SECOND));
}

static void open_channel(struct channel *channel, cudalink_importer_spec spec) {
  void *gate;
  channel->stream = gpu_stream();
  CU(cuMemHostAlloc(&gate, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  channel->gate = gate;
  atomic_store(channel->gate, 0);
  open_ends(channel, CUDALINK_KIND_VMM, spec);
}

static void open_pictures(struct channel *channel, cudalink_importer_spec spec) {
  memset(channel, 0, sizeof *channel);
  describe_rgba(&channel->description, 64, 64);
  open_channel(channel, spec);
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

static void hold_up(const struct channel *channel, CUstream stream) {
  CU(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)channel->gate, 1,
                         CU_STREAM_WAIT_VALUE_GEQ));
}
static void open_gate(const struct channel *channel) { atomic_store(channel->gate, 1); }

/* The stream that this importer's copies are on. */
static CUstream host_stream_of(const struct channel *channel) {
  struct link_importer *importer = link_table_lock(&link_importers, channel->importer.id);
  CUstream stream = cuda_of(importer->device)->host.streams[0];
  link_object_unlock(importer);
  return stream;
}

static void publish(struct channel *channel) {
  cudalink_slot slot;
  CHECK_OK(cudalink_exporter_begin(channel->exporter, &channel->description, 10 * SECOND, &slot));
  gpu_fill(channel->stream, slot.data, channel->bytes, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(channel->exporter, &slot, ON(channel->stream)));
}

static void acquire(struct channel *channel, cudalink_frame *frame) {
  CHECK_OK(
      cudalink_importer_acquire(channel->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, frame));
}

static void next(struct channel *channel, cudalink_frame *frame) {
  publish(channel);
  acquire(channel, frame);
}

static void expect_pattern(const void *data, uint64_t bytes, uint64_t pattern) {
  CHECK_EQUAL(gpu_pattern_wrong(data, bytes, pattern), 0);
}

/* ---- layouts and sizes ------------------------------------------------------------------------------------ */

struct shape {
  uint32_t dimensions;
  int64_t shape[3], strides[3]; /* of bytes */
};

static void read_out(const struct shape *shape, uint32_t streams, bool pinned) {
  struct channel channel = {0};
  cudalink_frame frame;
  cudalink_plane *plane = &channel.description.planes[0];
  CHECK_OK(cudalink_describe_tensor(&channel.description, "t", CUDALINK_UINT8, shape->dimensions,
                                    shape->shape));
  plane->bytes = 1;
  for (uint32_t d = 0; d < shape->dimensions; d++) {
    plane->strides[d] = shape->strides[d];
    plane->bytes += (uint64_t)((shape->shape[d] - 1) * shape->strides[d]);
  }
  open_channel(&channel, (cudalink_importer_spec){.host_streams = streams});
  char *picture = malloc(channel.bytes), *expected = malloc(channel.packed);
  char *read = gpu_memory(pinned ? GPU_MEMORY_PINNED : GPU_MEMORY_HOST, channel.packed + 1, NULL);
  for (uint64_t i = 0; i < channel.bytes; i++)
    picture[i] = (char)(i * 2654435761u >> 13);
  read[channel.packed] = 77;
  CHECK_OK(cudalink_pack(&channel.description, picture, expected, channel.packed, 0));
  CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, picture, NULL,
                                  CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  acquire(&channel, &frame);
  for (int again = 0; again < 2; again++) {
    memset(read, 0, channel.packed);
    CHECK_OK(cudalink_frame_to_host(&frame, read, channel.packed));
    CHECK_EQUAL(memcmp(read, expected, channel.packed), 0);
    CHECK_EQUAL(read[channel.packed], 77);
  }
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  close_channel(&channel);
  free(picture);
  free(expected);
  if (!pinned) free(read);
}

#define MEBI (INT64_C(1) << 20)
/* Around the two staging buffers of 4 MiB each: less, exactly, more; rows that cross their ends, that
 * are larger than both; slices. */
static const struct shape shapes[] = {
    {1, {300 * 1024}, {1}},
    {1, {4 * MEBI}, {1}},
    {1, {4 * MEBI + 1}, {1}},
    {1, {13 * MEBI + 12345}, {1}},
    {2, {1000, 5000}, {5120, 1}},
    {2, {2048, 4096}, {4352, 1}},
    {2, {3, 5 * MEBI}, {6 * MEBI, 1}},
    {3, {5, 300, 1000}, {400000, 1024, 1}},
    {2, {40, 262144}, {0, 1}},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

static void read_out_all(uint32_t streams, bool pinned) {
  gpu_start();
  for (size_t i = 0; i < SHAPES; i++)
    read_out(&shapes[i], streams, pinned);
}
TEST(to_host_plain_memory, 120) { read_out_all(1, false); }
TEST(to_host_plain_memory_by_three_streams, 120) { read_out_all(3, false); }
TEST(to_host_pinned_memory, 120) { read_out_all(0, true); }
TEST(to_host_pinned_memory_by_eight_streams, 120) { read_out_all(8, true); }

/* Several streams share the work: each has a part of a large copy, none of a small one. */
TEST(to_host_streams_share, 60) {
  struct channel channel;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return;
  memset(&channel, 0, sizeof channel);
  describe_rgba(&channel.description, 512, 512);
  open_channel(&channel, (cudalink_importer_spec){.host_streams = 4});
  void *pinned = gpu_memory(GPU_MEMORY_PINNED, channel.packed, NULL);
  next(&channel, &frame);
  uint64_t copies = FAKE_NUMBER(fakecuda_copies);
  CHECK_OK(cudalink_frame_to_host(&frame, pinned, channel.packed));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_copies) - copies, 4);
  expect_pattern(pinned, channel.bytes, frame.sequence);
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  close_channel(&channel);
  cudalink_importer importer;
  CHECK_STATUS(cudalink_importer_open(&importer,
                                      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
                                                                .name = "gpu", .host_streams = 9}),
               CUDALINK_ERROR_INVALID_ARGUMENT);
}

/* ---- in the background ------------------------------------------------------------------------------------- */

/* The frame is given back behind the copy, not before: the producer laps it otherwise. */
TEST(to_host_begin_gives_back_behind_the_copy, 60) {
  struct channel channel;
  cudalink_frame frame;
  cudalink_host_copy copy;
  gpu_start();
  open_pictures(&channel, (cudalink_importer_spec){0});
  next(&channel, &frame);
  hold_up(&channel, host_stream_of(&channel));
  uint64_t sequence = frame.sequence;
  CHECK_OK(cudalink_frame_to_host_begin(&frame, NULL, 0, &copy));
  CHECK_EQUAL(frame.lease, 0);
  CHECK_EQUAL(copy.sequence, sequence);
  CHECK_EQUAL(copy.bytes, channel.packed);
  CHECK_STATUS(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < 20; i++)
    publish(&channel);
  CU(cuStreamSynchronize(channel.stream));
  open_gate(&channel);
  CHECK_OK(cudalink_frame_to_host_finish(&copy));
  CHECK_EQUAL(copy.id, 0);
  expect_pattern(copy.data, channel.bytes, sequence);
  CHECK_STATUS(cudalink_frame_to_host_finish(&copy), CUDALINK_ERROR_INVALID_ARGUMENT);
  close_channel(&channel);
}

/* The same of a hold, which is the caller's until then. */
TEST(hold_to_host_begin_gives_back_behind_the_copy, 60) {
  struct channel channel;
  cudalink_frame frame;
  cudalink_host_copy copy;
  cudalink_hold *hold;
  gpu_start();
  open_pictures(&channel, (cudalink_importer_spec){0});
  next(&channel, &frame);
  uint64_t sequence = frame.sequence;
  char *plain = malloc(channel.packed);
  CHECK_OK(cudalink_hold_take(&hold, &frame));
  CHECK_STATUS(cudalink_hold_to_host_begin(NULL, NULL, 0, &copy), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_hold_to_host_begin(hold, NULL, 0, NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_hold_to_host_begin(hold, plain, channel.packed, &copy),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  cudalink_hold_retain(hold);
  CHECK_STATUS(cudalink_hold_to_host_begin(hold, NULL, 0, &copy), CUDALINK_ERROR_BUSY);
  CHECK_CONTAINS(cudalink_last_error(), "other users");
  CHECK_EQUAL(copy.id, 0);
  cudalink_hold_drop(hold);
  hold_up(&channel, host_stream_of(&channel));
  CHECK_OK(cudalink_hold_to_host_begin(hold, NULL, 0, &copy));
  for (int i = 0; i < 20; i++)
    publish(&channel);
  CU(cuStreamSynchronize(channel.stream));
  open_gate(&channel);
  CHECK_OK(cudalink_frame_to_host_finish(&copy));
  expect_pattern(copy.data, channel.bytes, sequence);
  next(&channel, &frame);
  CHECK_OK(cudalink_hold_take(&hold, &frame));
  CHECK_OK(cudalink_hold_use(hold, ON(channel.stream)));
  CHECK_STATUS(cudalink_hold_to_host_begin(hold, NULL, 0, &copy), CUDALINK_ERROR_BUSY);
  cudalink_hold_drop(hold);
  close_channel(&channel);
  free(plain);
}

/* One frame late, nothing allocated, nothing waits for the GPU as a whole. */
static void pipeline(cudalink_kind kind) {
  struct channel channel = {0};
  cudalink_frame frame;
  cudalink_host_copy copies[2] = {{0}};
  uint64_t checked = 0;
  describe_rgba(&channel.description, 256, 256); /* enough for both streams */
  channel.stream = gpu_stream();
  open_ends(&channel, kind, (cudalink_importer_spec){.host_pipelined = 1, .host_streams = 2});
  FAKE(fakecuda_set_delay, 300); /* one stream may be far behind the other */
  for (uint64_t i = 0; i < 60; i++) {
    next(&channel, &frame);
    CHECK_OK(cudalink_frame_to_host_begin(&frame, NULL, 0, &copies[i % 2]));
    if (i == 10)
      FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_ABORT,
           FAKECUDA_WAITING | FAKECUDA_ALLOCATING | FAKECUDA_OPENING);
    if (!i) continue;
    cudalink_host_copy *before = &copies[(i + 1) % 2];
    CHECK_OK(cudalink_frame_to_host_finish(before));
    expect_pattern(before->data, channel.bytes, before->sequence);
    checked++;
  }
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0);
  CHECK_OK(cudalink_frame_to_host_finish(&copies[1]));
  expect_pattern(copies[1].data, channel.bytes, copies[1].sequence);
  CHECK_EQUAL(checked, 59);
  close_channel(&channel);
}
TEST(to_host_pipelined_vmm, 60) {
  gpu_start();
  pipeline(CUDALINK_KIND_VMM);
}
TEST(to_host_pipelined_ipc, 60) {
  gpu_start();
  pipeline(CUDALINK_KIND_IPC);
}

TEST(to_host_pipelined_on_host_memory, 60) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  cudalink_frame frame;
  cudalink_host_copy copies[2];
  char *picture = malloc(32 * 32 * 4);
  describe_rgba(&description, 32, 32);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "host",
                                .kind = CUDALINK_KIND_HOST, .description = &description}));
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "host",
                                           .host_pipelined = 1, .open_timeout = 10 * SECOND}));
  for (uint64_t i = 0; i < 10; i++) {
    memset(picture, (int)i + 1, 32 * 32 * 4);
    CHECK_OK(cudalink_exporter_send(exporter, &description, picture, NULL, CUDALINK_STREAM_COMPLETE,
                                    10 * SECOND));
    CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
    CHECK_OK(cudalink_frame_to_host_begin(&frame, NULL, 0, &copies[i % 2]));
    if (i) {
      CHECK_OK(cudalink_frame_to_host_finish(&copies[(i + 1) % 2]));
      CHECK_EQUAL(((char *)copies[(i + 1) % 2].data)[4095], (char)i);
    }
  }
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_STATUS(cudalink_frame_to_host_finish(&copies[1]), CUDALINK_ERROR_CLOSED);
  CHECK_OK(cudalink_exporter_close(exporter));
  free(picture);
}

TEST(to_host_begin_refuses, 60) {
  struct channel channel;
  cudalink_frame frame, other;
  cudalink_host_copy copy, second;
  gpu_start();
  open_pictures(&channel, (cudalink_importer_spec){.hold = 2});
  next(&channel, &frame);
  char *plain = malloc(channel.packed);
  char *device = gpu_memory(GPU_MEMORY_DEVICE, channel.packed, NULL);
  char *pinned = gpu_memory(GPU_MEMORY_PINNED, channel.packed, NULL);
  CHECK_STATUS(cudalink_frame_to_host_begin(&frame, plain, channel.packed, &copy),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "plain host memory");
  CHECK_STATUS(cudalink_frame_to_host_begin(&frame, device, channel.packed, &copy),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "memory of GPU 0");
  CHECK_STATUS(cudalink_frame_to_host(&frame, device, channel.packed),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_frame_to_host_begin(&frame, pinned, channel.packed - 1, &copy),
               CUDALINK_ERROR_TOO_LARGE);
  CHECK_STATUS(cudalink_frame_to_host_begin(&frame, pinned, channel.packed, NULL),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_OK(cudalink_frame_to_host_begin(&frame, pinned, channel.packed, &copy));
  next(&channel, &other);
  CHECK_STATUS(cudalink_frame_to_host_begin(&other, NULL, 0, &second), CUDALINK_ERROR_BUSY);
  CHECK_CONTAINS(cudalink_last_error(), "host_pipelined");
  CHECK_EQUAL(second.id, 0);
  CHECK_OK(cudalink_frame_to_host_finish(&copy));
  CHECK(copy.data == pinned);
  expect_pattern(pinned, channel.bytes, copy.sequence);
  CHECK_OK(cudalink_frame_to_host_begin(&other, NULL, 0, &second));
  close_channel(&channel);
  CHECK_STATUS(cudalink_frame_to_host_finish(&second), CUDALINK_ERROR_CLOSED);
  free(plain);
}

/* Larger frames get larger memory; what a copy before has read stays as it is. */
TEST(to_host_begin_grows, 60) {
  struct channel channel = {0};
  cudalink_frame frame;
  cudalink_host_copy copies[2] = {{0}};
  gpu_start();
  describe_rgba(&channel.description, 16, 16);
  open_channel(&channel, (cudalink_importer_spec){.host_pipelined = 1});
  for (uint64_t i = 0; i < 12; i++) {
    describe_rgba(&channel.description, 16u << (i / 2), 16u << (i / 2));
    CHECK_OK(cudalink_description_bytes(&channel.description, &channel.bytes));
    next(&channel, &frame);
    CHECK_OK(cudalink_frame_to_host_begin(&frame, NULL, 0, &copies[i % 2]));
    CHECK_OK(cudalink_frame_to_host_finish(&copies[i % 2]));
    for (uint64_t c = 0; c < 2; c++)
      if (copies[c].data) expect_pattern(copies[c].data, copies[c].bytes, copies[c].sequence);
  }
  close_channel(&channel);
}

/* ---- nobody's event ------------------------------------------------------------------------------------------ */

/* A frame given back behind an event that does not come holds no other copy up. */
TEST(to_host_does_not_wait_for_events, 60) {
  struct channel channel;
  cudalink_frame first, second;
  CUevent event;
  gpu_start();
  open_pictures(&channel, (cudalink_importer_spec){.hold = 2});
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUstream late = gpu_stream();
  next(&channel, &first);
  next(&channel, &second);
  hold_up(&channel, late);
  CU(cuEventRecord(event, late));
  CHECK_OK(cudalink_frame_release(&first, CUDALINK_STREAM_EVENT(event)));
  char *read = malloc(channel.packed);
  CHECK_OK(cudalink_frame_to_host(&second, read, channel.packed)); /* else this never returns */
  expect_pattern(read, channel.bytes, second.sequence);
  open_gate(&channel);
  CHECK_OK(cudalink_frame_release(&second, CUDALINK_STREAM_COMPLETE));
  close_channel(&channel);
  free(read);
}

/* The producer does not write to a frame that was given back behind an event, until that has come. */
TEST(release_behind_an_event_keeps_the_frame, 60) {
  struct channel channel;
  cudalink_frame frame;
  CUevent event;
  gpu_start();
  open_pictures(&channel, (cudalink_importer_spec){0});
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUstream late = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  next(&channel, &frame);
  hold_up(&channel, late);
  gpu_check(late, frame.data, channel.bytes, frame.sequence, 0, counts);
  CU(cuEventRecord(event, late));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_EVENT(event)));
  for (int i = 0; i < 50; i++) {
    publish(&channel);
    CU(cuStreamSynchronize(channel.stream)); /* so that a release by mistake has time to land */
  }
  open_gate(&channel);
  CHECK_EQUAL(gpu_counts_read(counts, late).wrong, 0);
  close_channel(&channel);
}

/* ---- the next producer has another kind of memory ------------------------------------------------------------ */

static void change_kind(cudalink_kind before, cudalink_kind after) {
  struct channel channel = {0};
  cudalink_frame held, frame;
  gpu_start();
  describe_rgba(&channel.description, 64, 64);
  channel.stream = gpu_stream();
  open_ends(&channel, before, (cudalink_importer_spec){.hold = 2});
  char *picture = malloc(channel.bytes), *read = malloc(channel.bytes);
  for (int i = 1; i <= 2; i++) {
    memset(picture, i, channel.bytes);
    CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, picture, NULL,
                                    CUDALINK_STREAM_COMPLETE, 10 * SECOND));
    if (i == 1) acquire(&channel, &held);
    if (i == 2) acquire(&channel, &frame);
    CHECK_OK(cudalink_exporter_close(channel.exporter));
    if (i == 2) break;
    CHECK_STATUS(
        cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame),
        CUDALINK_ERROR_ENDED);
    CHECK_OK(cudalink_exporter_open(
        &channel.exporter,
        &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .kind = after,
                                  .description = &channel.description}));
  }
  CHECK_OK(cudalink_frame_to_host(&held, read, channel.bytes));
  CHECK_EQUAL(read[channel.bytes - 1], 1);
  CHECK_OK(cudalink_frame_to_host(&frame, read, channel.bytes));
  CHECK_EQUAL(read[channel.bytes - 1], 2);
  CHECK_OK(cudalink_frame_release(&held, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_importer_close(channel.importer));
  free(picture);
  free(read);
}
TEST(held_frame_outlives_its_kind_vmm_host, 60) {
  change_kind(CUDALINK_KIND_VMM, CUDALINK_KIND_HOST);
}
TEST(held_frame_outlives_its_kind_ipc_vmm, 60) {
  change_kind(CUDALINK_KIND_IPC, CUDALINK_KIND_VMM);
}
