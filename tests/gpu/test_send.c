/* SPDX-License-Identifier: MIT
 *
 * send from memory of all kinds, and reading frames out, with copies counted.
 */
#include <pthread.h>

#include "gpu.h"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream;
  CUdeviceptr counts;
};

static void open_channel(struct channel *channel, cudalink_kind kind) {
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  channel->stream = gpu_stream();
  channel->counts = gpu_counts_make();
  CHECK_OK(cudalink_exporter_open(&channel->exporter,
                                  &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                            .name = "gpu", .kind = kind,
                                                            .description = &channel->description}));
  CHECK_OK(cudalink_importer_open(
      &channel->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                    .open_timeout = 10 * SECOND}));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

static uint64_t exporter_copies(const struct channel *channel) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(channel->exporter, &statistics));
  return statistics.copies;
}

static void put(void *target, const void *source, uint64_t bytes) {
  CU(cuMemcpy((CUdeviceptr)(uintptr_t)target, (CUdeviceptr)(uintptr_t)source, bytes));
}

/* The source is overwritten behind the send, on the same stream, by another pattern. */
static void send_from(struct channel *channel, enum gpu_memory memory, bool complete) {
  void *source = gpu_memory(memory, channel->bytes, channel->stream);
  void *picture = malloc(channel->bytes), *other = malloc(channel->bytes);
  uint64_t pattern = 100 + (uint64_t)memory, copies = exporter_copies(channel);
  cudalink_frame frame;
  gpu_pattern(picture, channel->bytes, pattern);
  memset(other, 0xee, channel->bytes);
  CU(cuStreamSynchronize(channel->stream));
  if (memory == GPU_MEMORY_HOST)
    memcpy(source, picture, channel->bytes);
  else
    put(source, picture, channel->bytes);
  CHECK_OK(cudalink_exporter_send(channel->exporter, &channel->description, source, NULL,
                                  complete ? CUDALINK_STREAM_COMPLETE : ON(channel->stream),
                                  10 * SECOND));
  if (memory == GPU_MEMORY_HOST) CU(cuStreamSynchronize(channel->stream));
  if (memory == GPU_MEMORY_HOST)
    memcpy(source, other, channel->bytes);
  else
    CU(cuMemcpyAsync((CUdeviceptr)(uintptr_t)source, (CUdeviceptr)(uintptr_t)other, channel->bytes,
                     channel->stream));
  CHECK_OK(
      cudalink_importer_acquire(channel->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  gpu_check(channel->stream, frame.data, channel->bytes, pattern, 0, channel->counts);
  CHECK_OK(cudalink_frame_release(&frame, ON(channel->stream)));
  CHECK_EQUAL(exporter_copies(channel), copies + 1);
  CHECK_EQUAL(gpu_counts_read(channel->counts, channel->stream).wrong, 0);
  if (memory == GPU_MEMORY_HOST) free(source); /* the others live as long as the process */
  free(picture);
  free(other);
}

static void send_all(cudalink_kind kind) {
  struct channel channel = {0};
  gpu_start();
  describe_rgba(&channel.description, 64, 64);
  open_channel(&channel, kind);
  for (int memory = 0; memory < GPU_MEMORY_KINDS; memory++) {
    send_from(&channel, (enum gpu_memory)memory, false);
    send_from(&channel, (enum gpu_memory)memory, true);
  }
  struct gpu_counts counts = gpu_counts_read(channel.counts, channel.stream);
  CHECK_EQUAL(counts.seen, 2 * GPU_MEMORY_KINDS * channel.bytes / 8);
  close_channel(&channel);
}
TEST(vmm_send_from_all_memory, 60) { send_all(CUDALINK_KIND_VMM); }
TEST(ipc_send_from_all_memory, 60) { send_all(CUDALINK_KIND_IPC); }

/* A send is one copy of the driver, a lent slot none. */
TEST(copies_are_counted_by_the_driver, 60) {
  struct channel channel = {0};
  cudalink_slot slot;
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver counts nothing */
  describe_rgba(&channel.description, 64, 64);
  open_channel(&channel, CUDALINK_KIND_VMM);
  void *source = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  uint64_t copies = FAKE_NUMBER(fakecuda_copies), bytes = FAKE_NUMBER(fakecuda_copied_bytes);
  uint64_t legacy = FAKE_NUMBER(fakecuda_legacy_operations);
  for (int i = 0; i < 10; i++)
    CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, source, NULL,
                                    ON(channel.stream), 10 * SECOND));
  CU(cuStreamSynchronize(channel.stream));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_copies) - copies, 10);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_copied_bytes) - bytes, 10 * channel.bytes);
  for (int i = 0; i < 10; i++) {
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
    CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
  }
  CU(cuStreamSynchronize(channel.stream));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_copies) - copies, 10);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_legacy_operations) - legacy, 0);
  close_channel(&channel);
}

/* ---- reading out ------------------------------------------------------------------------------------------ */

/* One frame of that description; what to_host gives is what pack makes of the same bytes. */
static void read_out(struct channel *channel) {
  uint64_t packed;
  cudalink_frame frame;
  open_channel(channel, CUDALINK_KIND_VMM);
  CHECK_OK(cudalink_packed_bytes(&channel->description, &packed));
  char *picture = malloc(channel->bytes), *expected = calloc(1, packed + 1);
  char *read = calloc(1, packed + 1);
  for (uint64_t i = 0; i < channel->bytes; i++)
    picture[i] = (char)random_number();
  CHECK_OK(cudalink_pack(&channel->description, picture, expected, packed, 0));
  CHECK_OK(cudalink_exporter_send(channel->exporter, &channel->description, picture, NULL,
                                  CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  CHECK_OK(
      cudalink_importer_acquire(channel->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_STATUS(cudalink_frame_to_host(&frame, read, packed - 1), CUDALINK_ERROR_TOO_LARGE);
  CHECK_OK(cudalink_frame_to_host(&frame, read, packed));
  CHECK_EQUAL(memcmp(read, expected, packed), 0);
  CHECK_EQUAL(read[packed], 0);
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  close_channel(channel);
  free(picture);
  free(expected);
  free(read);
}

TEST(to_host_of_pitched_pictures, 60) {
  static const cudalink_format formats[] = {CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_NV12,
                                            CUDALINK_FORMAT_I420P10, CUDALINK_FORMAT_V210,
                                            CUDALINK_FORMAT_RGB_CHW32F};
  gpu_start();
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
    struct channel channel = {0};
    CHECK_OK(cudalink_describe_picture(&channel.description, formats[f], 333, 77, 0));
    read_out(&channel);
  }
}

/* Rows with gaps, planes with gaps, elements with gaps, repeated rows, a plane without elements. */
TEST(to_host_of_strided_tensors, 60) {
  static const struct {
    uint32_t dimensions;
    int64_t shape[4], strides[4];
  } tensors[] = {{3, {3, 20, 30}, {8192, 256, 4}},
                 {2, {20, 30}, {512, 8}},
                 {3, {2, 5, 7}, {4096, 0, 4}},
                 {4, {2, 3, 4, 5}, {4096, 1024, 64, 4}},
                 {1, {17}, {4}},
                 {0, {0}, {0}},
                 {3, {4, 6, 8}, {4, 16, 96}},
                 {2, {0, 8}, {32, 4}}};
  gpu_start();
  for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
    struct channel channel = {0};
    cudalink_plane *plane = &channel.description.planes[0];
    uint64_t last = 0, empty = 0;
    channel.description.plane_count = 1;
    plane->dtype = CUDALINK_FLOAT32;
    plane->offset = 512;
    plane->dimensions = tensors[t].dimensions;
    for (uint32_t d = 0; d < plane->dimensions; d++) {
      plane->shape[d] = tensors[t].shape[d];
      plane->strides[d] = tensors[t].strides[d];
      if (plane->shape[d]) last += (uint64_t)(plane->shape[d] - 1) * (uint64_t)plane->strides[d];
      empty |= !plane->shape[d];
    }
    plane->bytes = empty ? 0 : last + 4;
    if (empty)
      CHECK_OK(
          cudalink_describe_tensor(&channel.description, "b", CUDALINK_UINT8, 1, (int64_t[]){9}));
    read_out(&channel);
  }
}

/* ---- graphs of copies --------------------------------------------------------------------------------------- */

/* However many sources there are: all graphs are made by the open, and all go with the exporter. */
TEST(graphs_of_copies_are_bounded, 60) {
  enum { SOURCES = 100, ROUNDS = 3, TIMES = 4, MOST_GRAPHS = 12 };
  struct channel channel = {0};
  void *sources[SOURCES];
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver counts nothing */
  uint64_t none = FAKE_NUMBER(fakecuda_live_handles);
  describe_rgba(&channel.description, 16, 16);
  open_channel(&channel, CUDALINK_KIND_VMM);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  for (int i = 0; i < SOURCES; i++)
    sources[i] = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  uint64_t handles = FAKE_NUMBER(fakecuda_live_handles);
  uint64_t made = FAKE_NUMBER(fakecuda_calls, "cuGraphInstantiateWithFlags");
  uint64_t pointed = FAKE_NUMBER(fakecuda_calls, "cuGraphExecMemcpyNodeSetParams");
  uint64_t launches = FAKE_NUMBER(fakecuda_calls, "cuGraphLaunch");
  CHECK(made <= MOST_GRAPHS);
  for (int i = 0; i < SOURCES * ROUNDS * TIMES; i++) {
    /* Each several times in a row, so that each slot sees it twice. */
    void *source = sources[i / TIMES / TIMES % SOURCES];
    CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, source, NULL,
                                    ON(channel.stream), 10 * SECOND));
    CU(cuStreamSynchronize(channel.stream));
  }
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_live_handles), handles);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuGraphInstantiateWithFlags"), made);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuGraphLaunch") - launches, SOURCES * ROUNDS * TIMES);
  pointed = FAKE_NUMBER(fakecuda_calls, "cuGraphExecMemcpyNodeSetParams") - pointed;
  CHECK(pointed >= SOURCES / TIMES && pointed < SOURCES * ROUNDS * TIMES);
  close_channel(&channel);
  /* The sources, and of the test a stream, counts and where they are read. */
  WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) <= none + SOURCES + 3);
}

/* Graphs stay for what comes again: a buffer is pointed to once per slot. The driver points no graph of one
 * sort of memory at another. */
static void use_again(uint32_t slots, enum gpu_memory memory) {
  struct channel channel = {0};
  describe_rgba(&channel.description, 16, 16);
  CHECK_OK(cudalink_description_bytes(&channel.description, &channel.bytes));
  channel.stream = gpu_stream();
  CHECK_OK(cudalink_exporter_open(
      &channel.exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                                   .kind = CUDALINK_KIND_VMM, .slots = slots,
                                                   .description = &channel.description}));
  void *source = gpu_memory(memory, channel.bytes, channel.stream);
  uint64_t pointed = FAKE_NUMBER(fakecuda_calls, "cuGraphExecMemcpyNodeSetParams");
  uint64_t launches = FAKE_NUMBER(fakecuda_calls, "cuGraphLaunch");
  for (uint32_t i = 0; i < slots * 10; i++) {
    CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, source, NULL,
                                    ON(channel.stream), 10 * SECOND));
    CU(cuStreamSynchronize(channel.stream));
  }
  pointed = FAKE_NUMBER(fakecuda_calls, "cuGraphExecMemcpyNodeSetParams") - pointed;
  CHECK(pointed > 0 && pointed <= slots);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuGraphLaunch") - launches, slots * 10);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

TEST(graphs_are_used_again, 60) {
  gpu_start();
  if (!gpu_is_fake()) return;
  use_again(4, GPU_MEMORY_DEVICE);
  use_again(16, GPU_MEMORY_DEVICE);
  use_again(4, GPU_MEMORY_VMM);
  use_again(4, GPU_MEMORY_POOL);
}

/* A driver that makes none, or points none elsewhere: plain copies. */
TEST(no_graphs_of_copies, 60) {
  static const char *const entries[] = {"cuGraphCreate", "cuGraphAddMemcpyNode",
                                        "cuGraphInstantiateWithFlags",
                                        "cuGraphExecMemcpyNodeSetParams"};
  gpu_start();
  if (!gpu_is_fake()) return;
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    struct channel channel = {0};
    describe_rgba(&channel.description, 16, 16);
    for (unsigned nth = 1; nth < 20; nth++)
      FAKE(fakecuda_fail, entries[i], nth, CUDA_ERROR_NOT_SUPPORTED);
    open_channel(&channel, CUDALINK_KIND_VMM);
    void *source = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
    uint64_t launches = FAKE_NUMBER(fakecuda_calls, "cuGraphLaunch");
    for (int k = 0; k < 10; k++)
      CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, source, NULL,
                                      ON(channel.stream), 10 * SECOND));
    CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuGraphLaunch"), launches);
    CU(cuStreamSynchronize(channel.stream));
    FAKE(fakecuda_fail_clear);
    close_channel(&channel);
  }
}

/* Sends wait for nothing else on the GPU, from however many sources: a kernel on the legacy stream runs
 * all the while. */
TEST(graphs_wait_for_nobody, 60) {
  enum { SOURCES = 100, TIMES = 12 };
  int waited = -1;
  struct channel channel = {0};
  void *sources[SOURCES];
  CUdeviceptr busy;
  gpu_start();
  describe_rgba(&channel.description, 16, 16);
  open_channel(&channel, CUDALINK_KIND_VMM);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, SECOND));
  CU(cuMemAlloc(&busy, channel.bytes));
  for (int i = 0; i < SOURCES; i++)
    sources[i] = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  CU(cuStreamSynchronize(channel.stream));
  gpu_fill(NULL, (void *)(uintptr_t)busy, channel.bytes, 1, 2 * SECOND);
  for (int i = 0; i < SOURCES * TIMES; i++) {
    CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, sources[i / TIMES],
                                    NULL, ON(channel.stream), SECOND));
    CU(cuStreamSynchronize(channel.stream));
    if (cuda->cuStreamQuery(NULL) != CUDA_ERROR_NOT_READY && waited < 0) waited = i;
  }
  CHECK_EQUAL(waited, -1); /* the number of the send that did */
  CU(cuStreamSynchronize(NULL));
  close_channel(&channel);
}

/* ---- a close meanwhile -------------------------------------------------------------------------------------- */

struct sender {
  struct channel *channel;
  void *source;
  int status;
};

/* As many copies as a frame may take. */
static void *send_rows(void *argument) {
  struct sender *sender = argument;
  cudalink_description description = {0};
  cudalink_source rows = {.data = sender->source, .strides = {256, 128, 1}};
  CU(cuCtxSetCurrent(gpu_context()));
  CHECK_OK(
      cudalink_describe_tensor(&description, NULL, CUDALINK_UINT8, 3, (int64_t[]){2048, 2, 4}));
  sender->status = cudalink_exporter_send_planes(sender->channel->exporter, &description, &rows,
                                                 NULL, ON(sender->channel->stream), SECOND);
  return NULL;
}

/* The frame ends with its copies queued, and its memory stays until they have run. */
static int close_while_a_send_copies(void) {
  struct channel channel = {0};
  struct sender sender = {.channel = &channel};
  pthread_t thread;
  describe_rgba(&channel.description, 512, 512);
  open_channel(&channel, CUDALINK_KIND_VMM);
  sender.source = gpu_memory(GPU_MEMORY_DEVICE, 1 << 20, channel.stream);
  CU(cuStreamSynchronize(channel.stream));
  FAKE(fakecuda_pause, 1);
  uint64_t copies = FAKE_NUMBER(fakecuda_calls, "cuMemcpy3DAsync");
  CHECK_EQUAL(pthread_create(&thread, NULL, send_rows, &sender), 0);
  WAIT_UNTIL(FAKE_NUMBER(fakecuda_calls, "cuMemcpy3DAsync") - copies > 10);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_EQUAL(pthread_join(thread, NULL), 0);
  FAKE(fakecuda_pause, 0);
  CU(cuStreamSynchronize(
      channel.stream)); /* the fake ends a program whose copies write to memory that went */
  CHECK_OK(cudalink_importer_close(channel.importer));
  return sender.status;
}

TEST(close_during_the_copies_of_a_send, 60) {
  gpu_start();
  if (!gpu_is_fake()) return; /* copies can't be held up there */
  int status = CUDALINK_OK;
  for (int i = 0; i < 10 && status == CUDALINK_OK; i++) /* until one was caught at it */
    status = close_while_a_send_copies();
  CHECK_STATUS(status, CUDALINK_ERROR_CLOSED);
}
