/* SPDX-License-Identifier: MIT
 *
 * Tensors of GPU memory: what they say and what is believed of others', and frames with several holders
 * on several streams, in stream order, with no wait of the CPU.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "gpu.h"
#include "link/reaper.h"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream; /* the producer's */
};

static int64_t wait_limit; /* ns, of the importer; 0 = the default */

static void open_channel(struct channel *channel, cudalink_kind kind, bool writable) {
  describe_rgba(&channel->description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  channel->stream = gpu_stream();
  CHECK_OK(cudalink_exporter_open(
      &channel->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .kind = kind,
                                .description = &channel->description, .max_slots = 4,
                                .hold_limit = CUDALINK_FOREVER}));
  CHECK_OK(cudalink_importer_open(
      &channel->importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = 1, .hold = 2,
                                .writable = writable, .open_timeout = 10 * SECOND}));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

/* Filled by a kernel that takes its time; returns the frame's number, which is its pattern. */
static uint64_t publish(struct channel *channel, uint64_t pause) {
  cudalink_slot slot;
  CHECK_OK(cudalink_exporter_begin(channel->exporter, &channel->description, 10 * SECOND, &slot));
  CHECK_EQUAL(slot.device, CUDALINK_DEVICE(0));
  gpu_fill(channel->stream, slot.data, channel->bytes, slot.sequence, pause);
  CHECK_OK(cudalink_exporter_publish(channel->exporter, &slot, ON(channel->stream)));
  return slot.sequence;
}

static cudalink_hold *take(struct channel *channel, cudalink_stream stream) {
  cudalink_frame frame;
  cudalink_hold *hold;
  CHECK_OK(cudalink_importer_acquire(channel->importer, stream, 10 * SECOND, &frame));
  CHECK_OK(cudalink_hold_take(&hold, &frame));
  return hold;
}

static cudalink_dlpack_versioned *tensor_of(cudalink_hold *hold) {
  cudalink_view view;
  cudalink_dlpack_versioned *tensor;
  CHECK_OK(cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0));
  CHECK_OK(cudalink_dlpack_export(&view, cudalink_hold_retain(hold), cudalink_hold_drop, &tensor));
  return tensor;
}

static uint32_t held(const struct channel *channel) {
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_importer_get_statistics(channel->importer, &statistics));
  return statistics.held;
}

/* ---- what tensors say ---------------------------------------------------------------------------------- */

static void say_where(cudalink_kind kind, bool writable) {
  struct channel channel;
  cudalink_view view;
  open_channel(&channel, kind, writable);
  publish(&channel, 0);
  cudalink_hold *hold = take(&channel, CUDALINK_STREAM_COMPLETE);
  const cudalink_frame *frame = cudalink_hold_frame(hold);
  cudalink_dlpack_versioned *tensor = tensor_of(hold);
  CHECK_EQUAL(frame->device, CUDALINK_DEVICE(0));
  CHECK_EQUAL(tensor->tensor.device.type, CUDALINK_DLPACK_CUDA);
  CHECK_EQUAL(tensor->tensor.device.id, 0);
  CHECK_EQUAL(tensor->flags, frame->writable ? 0 : CUDALINK_DLPACK_READ_ONLY);
  CHECK(frame->writable == writable || kind == CUDALINK_KIND_IPC);
  tensor->tensor.device.id = 5; /* another library's number: the driver knows better */
  CHECK_OK(cudalink_dlpack_import(tensor, &view));
  CHECK_EQUAL(view.device.type, CUDALINK_DLPACK_CUDA);
  CHECK_EQUAL(view.device.id, 0);
  tensor->deleter(tensor);
  cudalink_hold_drop(hold);
  close_channel(&channel);
}

TEST(dlpack_says_where_a_frame_is, 60) {
  gpu_start();
  say_where(CUDALINK_KIND_VMM, false);
  say_where(CUDALINK_KIND_VMM, true);
  say_where(CUDALINK_KIND_IPC, false);
}

static int import_at(void *data, int32_t type, cudalink_view *view) {
  int64_t shape[] = {100}, strides[] = {1};
  cudalink_dlpack_tensor tensor = {.data = data,
                                   .device = {type, 3},
                                   .dimensions = 1,
                                   .dtype = CUDALINK_UINT8,
                                   .shape = shape,
                                   .strides = strides};
  return cudalink_dlpack_import_tensor(&tensor, 0, view);
}

TEST(dlpack_asks_the_driver_where_memory_is, 60) {
  cudalink_view view;
  CUcontext now;
  gpu_start();
  CUstream stream = gpu_stream();
  static const struct {
    enum gpu_memory memory;
    int32_t type;
  } cases[] = {{GPU_MEMORY_DEVICE, CUDALINK_DLPACK_CUDA},
               {GPU_MEMORY_POOL, CUDALINK_DLPACK_CUDA},
               {GPU_MEMORY_VMM, CUDALINK_DLPACK_CUDA},
               {GPU_MEMORY_MANAGED, CUDALINK_DLPACK_CUDA_MANAGED},
               {GPU_MEMORY_PINNED, CUDALINK_DLPACK_CUDA_HOST}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    void *memory = gpu_memory(cases[i].memory, 4096, stream);
    CU(cuStreamSynchronize(stream));
    CU(cuCtxSetCurrent(i % 2 ? NULL : gpu_context())); /* no context is needed */
    CHECK_OK(import_at(memory, CUDALINK_DLPACK_CUDA, &view));
    CHECK_EQUAL(view.device.type, cases[i].type);
    CHECK_EQUAL(view.device.id, 0);
    CHECK_OK(import_at(memory, CUDALINK_DLPACK_CUDA_MANAGED, &view));
    CHECK_EQUAL(view.device.type, cases[i].type);
    CU(cuCtxGetCurrent(&now));
    CHECK(now == (i % 2 ? NULL : gpu_context()));
    CU(cuCtxSetCurrent(gpu_context()));
  }
  static char plain[4096];
  CHECK_STATUS(import_at(plain, CUDALINK_DLPACK_CUDA, &view), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "CUDA 3");
  CHECK_CONTAINS(cudalink_last_error(), "freed");
  CHECK_OK(import_at(plain, CUDALINK_DLPACK_CPU, &view));
}

/* ---- stream order --------------------------------------------------------------------------------------- */

static void *delete_tensor(void *context) {
  cudalink_dlpack_versioned *tensor = context;
  tensor->deleter(tensor);
  return NULL;
}

static void flow(bool on) {
  reaper_drain(); /* it prepares mailboxes when someone joins */
  FAKE(fakecuda_frames_flow, on ? FAKECUDA_FLOW_ABORT : FAKECUDA_FLOW_OFF,
       FAKECUDA_WAITING | FAKECUDA_ALLOCATING | FAKECUDA_OPENING);
}

/* One stream after the other is the slowest. */
static uint64_t pause_of(int stream, int round) { return stream == round % 3 ? 5000000 : 20000; }

/* Each frame is used on three streams: the acquire's and two that tensors of it were made for. The
 * tensors go while the kernels that read them are still queued, on a thread that has no context. The
 * producer has few slots, so a frame that is given back too early is overwritten under their eyes. */
static void use_on_streams(cudalink_kind kind) {
  struct channel channel;
  CUstream streams[3];
  CUdeviceptr counts[3];
  setenv("FAKECUDA_DELAY_US", "300", 1);
  gpu_start();
  open_channel(&channel, kind, false);
  for (int s = 0; s < 3; s++) {
    streams[s] = gpu_stream();
    counts[s] = gpu_counts_make();
  }
  uint64_t legacy = FAKE_NUMBER(fakecuda_legacy_operations), frames = 0;
  for (int round = 0; round < 200; round++) {
    pthread_t threads[2];
    publish(&channel, round < 3 ? 0 : 100000);
    if (round == 3) flow(true); /* everything is mapped and seen once */
    cudalink_hold *hold = take(&channel, ON(streams[0]));
    const cudalink_frame *frame = cudalink_hold_frame(hold);
    uint64_t pattern = frame->sequence;
    CHECK_OK(cudalink_hold_use(hold, ON(streams[0])));
    gpu_check(streams[0], frame->data, channel.bytes, pattern, pause_of(0, round), counts[0]);
    for (int s = 1; s < 3; s++) {
      cudalink_dlpack_versioned *tensor = tensor_of(hold);
      CHECK_OK(cudalink_hold_wait(hold, ON(streams[s])));
      gpu_check(streams[s], tensor->tensor.data, channel.bytes, pattern, pause_of(s, round),
                counts[s]);
      CHECK(pthread_create(&threads[s - 1], NULL, delete_tensor, tensor) == 0);
    }
    cudalink_hold_drop(hold);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    frames++;
  }
  for (int s = 0; s < 3; s++) {
    struct gpu_counts got = gpu_counts_read(counts[s], streams[s]);
    CHECK_EQUAL(got.wrong, 0);
    CHECK_EQUAL(got.seen, frames * channel.bytes / 8);
  }
  flow(false);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_legacy_operations) - legacy, 0);
  WAIT_UNTIL(held(&channel) == 0);
  close_channel(&channel);
}
TEST(vmm_dlpack_in_stream_order, 120) { use_on_streams(CUDALINK_KIND_VMM); }
TEST(ipc_dlpack_in_stream_order, 120) { use_on_streams(CUDALINK_KIND_IPC); }

static void stay_shut(void *gate) { WAIT_UNTIL(atomic_load((_Atomic bool *)gate)); }

/* A second wait that can't be queued does not make the library forget the first one. */
TEST(dlpack_failed_wait_leaves_the_first_one, 20) {
  struct channel channel;
  cudalink_frame frame;
  static _Atomic bool gate; /* the host function may look at it when this function has returned */
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver does not fail on demand */
  wait_limit = SECOND / 10;
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  CUstream first = gpu_stream(), second = gpu_stream();
  publish(&channel, 0);
  CHECK_OK(cudalink_importer_acquire(channel.importer, ON(first), 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, ON(first)));
  CU(cuLaunchHostFunc(channel.stream, stay_shut, (void *)(uintptr_t)&gate));
  publish(&channel, 0);
  CHECK_OK(cudalink_importer_acquire(channel.importer, ON(first), 10 * SECOND, &frame));
  CHECK_EQUAL(frame.flags, CUDALINK_FRAME_PENDING);
  FAKE(fakecuda_fail, "cuStreamWaitEvent", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cudalink_frame_wait(&frame, ON(second)) < 0);
  CU(cuStreamSynchronize(second));
  CU(cuStreamSynchronize(first)); /* the limit ends its wait */
  CHECK_STATUS(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE), CUDALINK_ERROR_LOST);
  atomic_store(&gate, true);
  close_channel(&channel);
}

/* In a host function no CUDA call is allowed: the last reference goes there all the same. */
static void delete_in_host_function(void *context) { delete_tensor(context); }

TEST(dlpack_deleter_in_a_host_function, 60) {
  struct channel channel;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  CUstream stream = gpu_stream();
  for (int round = 0; round < 50; round++) {
    publish(&channel, 0);
    cudalink_hold *hold = take(&channel, round % 2 ? ON(stream) : CUDALINK_STREAM_COMPLETE);
    if (round % 2) CHECK_OK(cudalink_hold_wait(hold, ON(stream)));
    CU(cuLaunchHostFunc(stream, delete_in_host_function, tensor_of(hold)));
    cudalink_hold_drop(hold);
    WAIT_UNTIL(held(&channel) == 0);
  }
  close_channel(&channel);
}

/* The per-thread stream of a thread can't be named from another one. */
TEST(dlpack_per_thread_stream, 60) {
  struct channel channel;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  CUdeviceptr counts = gpu_counts_make();
  for (int round = 0; round < 50; round++) {
    pthread_t thread;
    publish(&channel, 0);
    cudalink_hold *hold = take(&channel, CUDALINK_STREAM_PER_THREAD);
    cudalink_dlpack_versioned *tensor = tensor_of(hold);
    CHECK_OK(cudalink_hold_wait(hold, CUDALINK_STREAM_PER_THREAD));
    gpu_check(CU_STREAM_PER_THREAD, tensor->tensor.data, channel.bytes,
              cudalink_hold_frame(hold)->sequence, 300000, counts);
    cudalink_hold_drop(hold);
    CHECK(pthread_create(&thread, NULL, delete_tensor, tensor) == 0);
    pthread_join(thread, NULL);
  }
  CHECK_EQUAL(gpu_counts_read(counts, CU_STREAM_PER_THREAD).wrong, 0);
  WAIT_UNTIL(held(&channel) == 0);
  close_channel(&channel);
}

/* A capture is not disturbed: what is complete needs no wait; the release comes behind the capture. */
TEST(dlpack_while_a_stream_captures, 60) {
  struct channel channel;
  CUgraph graph;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  CUstream stream = gpu_stream(), other = gpu_stream();
  CUdeviceptr memory = (CUdeviceptr)(uintptr_t)gpu_memory(GPU_MEMORY_DEVICE, 4096, NULL);
  publish(&channel, 0);
  cudalink_hold *hold = take(&channel, CUDALINK_STREAM_COMPLETE);
  CHECK_OK(cudalink_hold_wait(hold, ON(stream)));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuMemsetD8Async(memory, 1, 64, stream));
  CHECK_OK(cudalink_hold_wait(hold, ON(stream)));
  CHECK_STATUS(cudalink_hold_use(hold, ON(stream)), CUDALINK_ERROR_CAPTURING);
  CHECK_OK(cudalink_hold_use(hold, ON(other)));
  cudalink_hold_drop(hold);
  publish(&channel, 0);
  cudalink_hold *next = take(&channel, ON(other)); /* two may be held */
  CU(cuMemsetD8Async(memory + 64, 2, 64, stream));
  CU(cuStreamEndCapture(stream, &graph));
  WAIT_UNTIL(held(&channel) == 1);
  cudalink_hold_drop(next);
  WAIT_UNTIL(held(&channel) == 0);
  close_channel(&channel);
}

/* ---- written to ------------------------------------------------------------------------------------------ */

static void expect_on_host(cudalink_hold *hold, uint64_t bytes, uint64_t pattern) {
  char *read = malloc(bytes);
  CHECK_OK(cudalink_hold_wait(hold, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_frame_to_host(cudalink_hold_frame(hold), read, bytes));
  CHECK_EQUAL(gpu_pattern_wrong(read, bytes, pattern), 0);
  free(read);
}

/* A stream that is not the reader's writes slowly: readers come behind it, and so does the next frame in that
 * slot, whatever stream the release names. */
static void write_and_read(struct channel *channel, CUstream writer, CUstream reader,
                           cudalink_stream named, CUdeviceptr counts) {
  publish(channel, 0);
  cudalink_hold *hold = take(channel, CUDALINK_STREAM_COMPLETE);
  void *data = cudalink_hold_frame(hold)->data;
  gpu_fill(writer, data, channel->bytes, 77, 2 * MILLISECOND);
  CHECK_OK(cudalink_hold_written(hold, ON(writer)));
  CHECK_OK(cudalink_hold_wait(hold, named));
  gpu_check(reader, data, channel->bytes, 77, 0, counts);
  CHECK_EQUAL(gpu_counts_read(counts, reader).wrong, 0);
  gpu_fill(writer, data, channel->bytes, 78, 2 * MILLISECOND);
  expect_on_host(hold, channel->bytes, 78);
  gpu_fill(writer, data, channel->bytes, 79, 2 * MILLISECOND);
  CHECK_OK(cudalink_hold_written(hold, ON(writer)));
  CHECK_OK(cudalink_hold_release(hold, named));
  for (int i = 0; i < 6; i++) {
    uint64_t sequence = publish(channel, 0);
    hold = take(channel, CUDALINK_STREAM_COMPLETE);
    expect_on_host(hold, channel->bytes, sequence);
    cudalink_hold_drop(hold);
  }
}

TEST(hold_comes_behind_what_wrote, 60) {
  struct channel channel;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, true);
  CUstream writer = gpu_stream(), reader = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  for (int round = 0; round < 10; round++) {
    write_and_read(&channel, writer, reader, ON(reader), counts);
    write_and_read(&channel, writer, CU_STREAM_LEGACY, CUDALINK_STREAM_LEGACY, counts);
    write_and_read(&channel, CU_STREAM_LEGACY, reader, ON(reader), counts);
    write_and_read(&channel, writer, CU_STREAM_PER_THREAD, CUDALINK_STREAM_PER_THREAD, counts);
    write_and_read(&channel, writer, writer, ON(writer), counts);
  }
  close_channel(&channel);
}

TEST(hold_written_refuses, 60) {
  struct channel channel;
  gpu_start();
  CHECK_STATUS(cudalink_hold_written(NULL, CUDALINK_STREAM_COMPLETE),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  for (int writable = 0; writable < 2; writable++) {
    open_channel(&channel, CUDALINK_KIND_VMM, writable);
    publish(&channel, 0);
    cudalink_hold *hold = take(&channel, CUDALINK_STREAM_COMPLETE);
    if (writable) {
      CHECK_OK(cudalink_hold_written(hold, CUDALINK_STREAM_COMPLETE));
      CHECK_STATUS(cudalink_hold_written(hold, (cudalink_stream){.kind = 77}),
                   CUDALINK_ERROR_STREAM);
      CHECK_STATUS(cudalink_hold_written(
                       hold, (cudalink_stream){.kind = CUDALINK_STREAM_KIND_EVENT, .handle = 8}),
                   CUDALINK_ERROR_STREAM);
    } else {
      CHECK_STATUS(cudalink_hold_written(hold, ON(channel.stream)),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
    }
    cudalink_hold_drop(hold);
    close_channel(&channel);
  }
}

/* ---- arrays --------------------------------------------------------------------------------------------- */

#define SIDE 64 /* of the picture; words of 8 bytes: SIDE / 2 a row */

/* An array over a part of a frame's pixels, seen as 8-byte words. */
static cudalink_array *words_of(cudalink_hold *hold, const int64_t cuts[][4], int count) {
  cudalink_view view;
  cudalink_dlpack_versioned *tensor;
  cudalink_array *array;
  CHECK_OK(cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0));
  view.dtype = cudalink_dtype_make(CUDALINK_DTYPE_UINT, 64);
  view.dimensions = 2;
  view.shape[0] = SIDE, view.shape[1] = SIDE / 2;
  view.strides[0] = SIDE * 4, view.strides[1] = 8;
  for (int i = 0; i < count; i++)
    CHECK_OK(cudalink_view_slice(&view, (uint32_t)cuts[i][0], cuts[i][1], cuts[i][2], cuts[i][3]));
  CHECK_OK(cudalink_dlpack_export(&view, cudalink_hold_retain(hold), cudalink_hold_drop, &tensor));
  CHECK_OK(cudalink_array_take(&array, tensor));
  return array;
}

/* Word (row, column) of the picture `pattern`, as gpu_fill writes it. */
static void expect_words(const cudalink_array *host, const uint64_t *picture,
                         const cudalink_view *of, const void *start) {
  const cudalink_view *view = cudalink_array_view(host);
  const uint64_t *words = view->data;
  for (int64_t row = 0; row < of->shape[0]; row++)
    for (int64_t column = 0; column < of->shape[1]; column++) {
      int64_t at = (const char *)of->data - (const char *)start + row * of->strides[0] +
                   column * of->strides[1];
      CHECK_EQUAL(words[row * of->shape[1] + column], picture[at / 8]);
    }
}

static const int64_t all_cuts[][2][4] = {
    {{0, 0, SIDE, 1}, {1, 0, SIDE / 2, 1}},          /* all of it */
    {{0, 3, 10, 2}, {1, 4, 9, 1}},                   /* rows with gaps */
    {{0, SIDE - 1, SIDE, -1}, {1, 0, SIDE / 2, 1}},  /* upside down */
    {{0, 5, 6, 1}, {1, SIDE / 2 - 1, SIDE / 4, -2}}, /* single words */
    {{0, 5, 0, 1}, {1, 0, 3, 1}},                    /* nothing */
};

/* A copy is made, handed to another stream and dropped while all of that is only queued. */
TEST(dlpack_arrays_are_copied_in_stream_order, 120) {
  struct channel channel;
  static uint64_t picture[SIDE * SIDE / 2];
  setenv("FAKECUDA_DELAY_US", "300", 1);
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  CUstream first = gpu_stream(), second = gpu_stream();
  uint64_t legacy = FAKE_NUMBER(fakecuda_legacy_operations);
  for (int round = 0; round < 50; round++) {
    uint64_t number = publish(&channel, 100000);
    gpu_pattern(picture, sizeof picture, number);
    cudalink_hold *hold = take(&channel, ON(first));
    cudalink_array *array = words_of(hold, all_cuts[round % 5], 2), *copy, *host, *direct;
    cudalink_view of = *cudalink_array_view(array);
    const void *start = cudalink_hold_frame(hold)->data;
    CHECK_OK(cudalink_hold_use(hold, ON(first)));
    CHECK_OK(cudalink_array_ready(array, ON(first)));
    bool complete = round % 3 == 2;
    cudalink_stream on = complete ? CUDALINK_STREAM_COMPLETE : ON(first);
    CHECK_OK(cudalink_array_copy(&copy, array, on));
    CHECK_OK(cudalink_array_to_host(&direct, array, complete ? on : ON(second)));
    CHECK_OK(cudalink_hold_use(hold, ON(second)));
    cudalink_array_drop(array);
    cudalink_hold_drop(hold);
    CHECK_OK(cudalink_array_to_host(&host, copy, complete ? on : ON(second)));
    const cudalink_view *view = cudalink_array_view(copy);
    CHECK(cudalink_view_is_dense(view));
    CHECK_EQUAL(view->flags, CUDALINK_DLPACK_IS_COPIED);
    CHECK_EQUAL(view->device.type, CUDALINK_DLPACK_CUDA); /* an empty one too */
    CHECK_EQUAL(cudalink_array_view(host)->device.type, CUDALINK_DLPACK_CPU);
    cudalink_array_drop(copy);
    if (of.data) expect_words(host, picture, &of, start);
    if (of.data) expect_words(direct, picture, &of, start);
    cudalink_array_drop(host);
    cudalink_array_drop(direct);
  }
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_legacy_operations) - legacy, 0);
  WAIT_UNTIL(held(&channel) == 0);
  close_channel(&channel);
}

/* The memory of a copy goes behind the last stream that reads it: the fake ends the process when a
 * kernel touches memory that was freed. */
TEST(dlpack_copies_are_freed_behind_their_readers, 60) {
  struct channel channel;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  CUstream first = gpu_stream(), second = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  size_t bytes = 0;
  uint64_t waiting = 0;
  for (int round = 0; round < 100; round++) {
    cudalink_array *copy;
    publish(&channel, 0);
    cudalink_hold *hold = take(&channel, CUDALINK_STREAM_COMPLETE);
    cudalink_array *array = words_of(hold, NULL, 0);
    CHECK_OK(cudalink_array_copy(&copy, array, ON(first)));
    CHECK_OK(cudalink_hold_use(hold, ON(first)));
    CHECK_OK(cudalink_array_wait(copy, ON(second)));
    gpu_check(second, cudalink_array_view(copy)->data, channel.bytes,
              cudalink_hold_frame(hold)->sequence, 500000, counts);
    cudalink_array_drop(array);
    cudalink_hold_drop(hold);
    cudalink_array_drop(copy);
    if (round == 50) bytes = FAKE_NUMBER(fakecuda_live_bytes);
    if (round == 2) waiting = FAKE_NUMBER(fakecuda_waiting_calls);
  }
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_waiting_calls) - waiting, 0);
  struct gpu_counts got = gpu_counts_read(counts, second);
  CHECK_EQUAL(got.wrong, 0);
  CHECK_EQUAL(got.seen, 100 * channel.bytes / 8);
  WAIT_UNTIL(held(&channel) == 0 && FAKE_NUMBER(fakecuda_live_bytes) <= bytes);
  close_channel(&channel);
}

/* Wherever it was said to lie: a driver gives no memory of no bytes. */
TEST(dlpack_empty_parts_are_copied, 60) {
  struct channel channel;
  cudalink_array *part, *copy;
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  publish(&channel, 0);
  cudalink_hold *hold = take(&channel, CUDALINK_STREAM_COMPLETE);
  cudalink_array *array = words_of(hold, NULL, 0);
  cudalink_view view = *cudalink_array_view(array);
  view.shape[0] = 0;
  CHECK_OK(cudalink_array_part(&part, array, &view));
  CHECK_OK(cudalink_array_copy(&copy, part, CUDALINK_STREAM_COMPLETE));
  CHECK_EQUAL(cudalink_array_view(copy)->device.type, CUDALINK_DLPACK_CUDA);
  CHECK_EQUAL(cudalink_array_view(copy)->shape[0], 0);
  cudalink_array_drop(copy);
  cudalink_array_drop(part);
  cudalink_array_drop(array);
  cudalink_hold_drop(hold);
  close_channel(&channel);
}

TEST(dlpack_arrays_refuse, 60) {
  struct channel channel;
  cudalink_array *copy;
  cudalink_dlpack_versioned tensor = {.version = {1, 3}};
  int64_t shape[] = {100, 100}, strides[] = {1, -100};
  gpu_start();
  open_channel(&channel, CUDALINK_KIND_VMM, false);
  publish(&channel, 0);
  cudalink_hold *hold = take(&channel, CUDALINK_STREAM_COMPLETE);
  cudalink_array *array = words_of(hold, NULL, 0);
  CHECK_STATUS(cudalink_array_copy(&copy, array, (cudalink_stream){0}), CUDALINK_ERROR_STREAM);
  CHECK_STATUS(cudalink_array_wait(array, CUDALINK_STREAM_EVENT(8)), CUDALINK_ERROR_STREAM);
  CHECK_STATUS(cudalink_array_ready(array, ON(NULL)), CUDALINK_ERROR_STREAM);
  cudalink_array_drop(array);
  tensor.tensor = (cudalink_dlpack_tensor){.data = cudalink_hold_frame(hold)->data,
                                           .device = {CUDALINK_DLPACK_CUDA, 0},
                                           .dimensions = 2,
                                           .dtype = CUDALINK_UINT8,
                                           .shape = shape,
                                           .strides = strides,
                                           .byte_offset = 9900};
  CHECK_OK(cudalink_array_take(&array, &tensor)); /* a transposed picture of bytes, mirrored */
  CHECK_STATUS(cudalink_array_copy(&copy, array, CUDALINK_STREAM_COMPLETE),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "10000 copies of 1 byte,");
  CHECK_STATUS(cudalink_array_to_host(&copy, array, CUDALINK_STREAM_COMPLETE),
               CUDALINK_ERROR_UNSUPPORTED);
  cudalink_array_drop(array);
  cudalink_hold_drop(hold);
  close_channel(&channel);
}
