/* SPDX-License-Identifier: MIT
 *
 * What surrounds a conversion: nothing on another stream, no hidden cost, the module's life, and what
 * is refused, with which words.
 */
#include "convert_stage.h"
#include "link/reaper.h"

static void make_example(struct example *example) {
  memset(example, 0, sizeof *example);
  CHECK_OK(cudalink_describe_picture(&example->source, CUDALINK_FORMAT_NV12, 64, 48, 0));
  CHECK_OK(cudalink_describe_picture(&example->target, CUDALINK_FORMAT_RGBA8, 64, 48, 0));
  example_fill(example, NULL);
  example_random(example);
  example_expect(example);
}

static void begin(struct stage *stage, const struct example *example, cudalink_slot *slot) {
  CHECK_OK(cudalink_exporter_begin(stage->exporter, &example->target, 10 * SECOND, slot));
}

/* A frame that looks like the example's source, held. */
static void hold(struct stage *stage, const struct example *example, cudalink_frame *frame) {
  CHECK_OK(cudalink_exporter_send(stage->exporter, &example->source, example->picture, NULL,
                                  CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  CHECK_OK(
      cudalink_importer_acquire(stage->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, frame));
}

static void *memory_for(const struct stage *stage) {
  return gpu_memory(GPU_MEMORY_DEVICE, 1 << 20, stage->stream);
}

static void let_go(cudalink_frame *frame) {
  CHECK_OK(cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE));
}

static void give_up(struct stage *stage, const cudalink_slot *slot) {
  CHECK_OK(cudalink_exporter_abandon(stage->exporter, slot, CUDALINK_STREAM_COMPLETE));
}

/* Both ways once more, whatever was refused before. */
static void check_works(struct stage *stage, struct example *example, void *memory) {
  cudalink_frame frame;
  cudalink_slot slot;
  hold(stage, example, &frame);
  CHECK_OK(cudalink_frame_convert(&frame, example->plan, memory, ON(stage->stream)));
  get_on(stage->stream, example->found, memory, example->target_bytes);
  CHECK_EQUAL(memcmp(example->found, example->expected, example->target_bytes), 0);
  let_go(&frame);
  put_on(stage->stream, memory, example->picture, example->source_bytes);
  begin(stage, example, &slot);
  CHECK_OK(
      cudalink_exporter_convert(stage->exporter, example->plan, memory, &slot, ON(stage->stream)));
  get_on(stage->stream, example->found, slot.data, example->target_bytes);
  CHECK_EQUAL(memcmp(example->found, example->expected, example->target_bytes), 0);
  give_up(stage, &slot);
}

static bool only_on_the_fake(void) {
  gpu_start();
  if (!gpu_is_fake()) printf("needs the fake driver\n");
  return gpu_is_fake();
}

/* ---- streams and cost ------------------------------------------------------------------------------ */

static bool is_idle(CUstream stream) { return cuda->cuStreamQuery(stream) == CUDA_SUCCESS; }

/* While nothing runs: one operation is queued per conversion, and it is on the stream. */
TEST(a_conversion_is_one_kernel_on_its_stream, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_slot slot;
  cudalink_frame frame;
  if (!only_on_the_fake()) return;
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  void *memory = memory_for(&stage);
  check_works(&stage, &example, memory);
  CUstream other = gpu_stream();
  hold(&stage, &example, &frame);
  begin(&stage, &example, &slot);
  CHECK(is_idle(stage.stream) && is_idle(CU_STREAM_LEGACY));
  reaper_drain(); /* it prepares mailboxes when someone joins */
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_ABORT,
       FAKECUDA_WAITING | FAKECUDA_ALLOCATING | FAKECUDA_OPENING);
  FAKE(fakecuda_pause, 1);
  uint64_t launches = FAKE_NUMBER(fakecuda_calls, "cuLaunchKernel");
  uint64_t copies = FAKE_NUMBER(fakecuda_copies), legacy = FAKE_NUMBER(fakecuda_legacy_operations);
  uint64_t pending = FAKE_NUMBER(fakecuda_pending);
  CHECK_OK(
      cudalink_exporter_convert(stage.exporter, example.plan, memory, &slot, ON(stage.stream)));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_pending) - pending, 1);
  CHECK(!is_idle(stage.stream));
  CHECK_OK(cudalink_frame_convert(&frame, example.plan, memory, ON(other)));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_pending) - pending, 2);
  CHECK(!is_idle(other));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_calls, "cuLaunchKernel") - launches, 2);
  FAKE(fakecuda_pause, 0);
  CU(cuStreamSynchronize(stage.stream));
  CU(cuStreamSynchronize(other));
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_copies), copies);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_legacy_operations), legacy);
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0);
  give_up(&stage, &slot);
  let_go(&frame);
  close_stage(&stage);
  example_free(&example);
}

/* With COMPLETE it was to be done: when waiting for it fails, its slot is lent again only behind it. */
TEST(a_failed_conversion_keeps_its_slot, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_slot slot, other;
  if (!only_on_the_fake()) return;
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  void *memory = memory_for(&stage);
  check_works(&stage, &example, memory);
  begin(&stage, &example, &slot);
  FAKE(fakecuda_pause, 1);
  FAKE(fakecuda_fail, "cuStreamSynchronize", 1, (int)CUDA_ERROR_UNKNOWN);
  CHECK_STATUS(cudalink_exporter_convert(stage.exporter, example.plan, memory, &slot,
                                         CUDALINK_STREAM_COMPLETE),
               CUDALINK_ERROR_GPU);
  give_up(&stage, &slot);
  begin(&stage, &example, &other);
  CHECK(other.index != slot.index);
  give_up(&stage, &other);
  FAKE(fakecuda_pause, 0);
  check_works(&stage, &example, memory);
  close_stage(&stage);
  example_free(&example);
}

/* The plan is copied by the call. */
TEST(a_plan_may_go_before_its_work_is_done, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_frame frame;
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  void *memory = memory_for(&stage);
  hold(&stage, &example, &frame);
  FAKE(fakecuda_set_delay, 5000);
  CHECK_OK(cudalink_frame_convert(&frame, example.plan, memory, ON(stage.stream)));
  cudalink_convert_plan_destroy(example.plan);
  example.plan = NULL;
  get_on(stage.stream, example.found, memory, example.target_bytes);
  CHECK_EQUAL(memcmp(example.found, example.expected, example.target_bytes), 0);
  let_go(&frame);
  close_stage(&stage);
  example_free(&example);
}

/* A frame whose pixels are still being made is converted behind them. */
TEST(pending_frames_are_converted_in_order, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_slot slot;
  cudalink_frame frame;
  gpu_start();
  stage.stream = gpu_stream();
  CUstream producer = gpu_stream();
  CHECK_OK(cudalink_exporter_open(
      &stage.exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "convert",
                                .kind = CUDALINK_KIND_VMM, .slot_bytes = 1 << 20}));
  CHECK_OK(cudalink_importer_open(
      &stage.importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "convert", .gpu_wait = 1,
                                .convert = 1, .open_timeout = 10 * SECOND}));
  make_example(&example);
  void *memory = memory_for(&stage);
  CHECK_OK(cudalink_exporter_wait_consumers(stage.exporter, 1, 10 * SECOND));
  for (int i = 0; i < 20; i++) {
    bool complete = i % 2;
    CHECK_OK(cudalink_exporter_begin(stage.exporter, &example.source, 10 * SECOND, &slot));
    fill_on(stage.stream, memory, BACKGROUND, example.target_bytes);
    CU(cuStreamSynchronize(stage.stream)); /* COMPLETE is behind nothing of this stream */
    FAKE(fakecuda_set_delay, i < 10 ? 0 : 3000);
    fill_on(producer, slot.data, 0xee, example.source_bytes);
    put_on(producer, slot.data, example.picture, example.source_bytes);
    CHECK_OK(cudalink_exporter_publish(stage.exporter, &slot, ON(producer)));
    CHECK_OK(cudalink_importer_acquire(stage.importer, ON(stage.stream), 10 * SECOND, &frame));
    CHECK_OK(cudalink_frame_convert(&frame, example.plan, memory,
                                    complete ? CUDALINK_STREAM_COMPLETE : ON(stage.stream)));
    get_on(stage.stream, example.found, memory, example.target_bytes);
    CHECK_EQUAL(memcmp(example.found, example.expected, example.target_bytes), 0);
    let_go(&frame);
  }
  close_stage(&stage);
  example_free(&example);
}

/* ---- the module -------------------------------------------------------------------------------------- */

static uint64_t loads(void) { return FAKE_NUMBER(fakecuda_calls, "cuModuleLoadData"); }
static uint64_t unloads(void) { return FAKE_NUMBER(fakecuda_calls, "cuModuleUnload"); }

static int open_named(cudalink_exporter *exporter, const char *name, uint32_t convert) {
  return cudalink_exporter_open(
      exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = name, .kind = CUDALINK_KIND_VMM,
                                .slot_bytes = 1 << 16, .plane_count = 4, .convert = convert});
}

/* Loaded once, when it is asked for, and let go with the last channel on that GPU. */
TEST(the_module_is_shared_and_goes_last, 60) {
  cudalink_exporter plain, first, second;
  if (!only_on_the_fake()) return;
  size_t handles = (size_t)FAKE_NUMBER(fakecuda_live_handles);
  uint64_t loaded = loads(), unloaded = unloads();
  CHECK_OK(open_named(&plain, "plain", 0));
  CHECK_EQUAL(loads() - loaded, 0);
  CHECK_OK(open_named(&first, "first", 1));
  CHECK_EQUAL(loads() - loaded, 1);
  CHECK_OK(open_named(&second, "second", 1));
  CHECK_EQUAL(loads() - loaded, 1);
  size_t open = (size_t)FAKE_NUMBER(fakecuda_live_handles);
  CHECK_OK(cudalink_exporter_close(first));
  CHECK_OK(cudalink_exporter_close(second));
  WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) < open - 4); /* streams and events of both */
  CHECK_EQUAL(unloads() - unloaded, 0);                      /* frames of `plain` may flow */
  CHECK_OK(open_named(&second, "second", 1));
  CHECK_EQUAL(loads() - loaded, 1);
  CHECK_OK(cudalink_exporter_close(second));
  CHECK_OK(cudalink_exporter_close(plain));
  WAIT_UNTIL(unloads() - unloaded == 1);
  WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) <= handles);
}

/* Each step of loading fails once: the open says why, nothing is left, and the next open works. */
TEST(a_module_that_does_not_load, 60) {
  static const struct {
    const char *entry;
    unsigned nth;
    CUresult error;
    int status;
    const char *says;
  } failures[] = {{"cuModuleLoadData", 1, CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                   CUDALINK_ERROR_UNSUPPORTED, "PTX 7.4 of CUDA 11.4"},
                  {"cuModuleLoadData", 1, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDALINK_ERROR_UNSUPPORTED,
                   "compute capability 9.0"},
                  {"cuModuleLoadData", 1, CUDA_ERROR_OUT_OF_MEMORY, CUDALINK_ERROR_NO_MEMORY,
                   "loading the conversion kernels"},
                  {"cuModuleGetFunction", 3, CUDA_ERROR_NOT_FOUND, CUDALINK_ERROR_GPU,
                   "preparing the conversion kernels"},
                  {"cuLaunchKernel", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDALINK_ERROR_GPU,
                   "preparing the conversion kernels"}};
  cudalink_exporter exporter;
  if (!only_on_the_fake()) return;
  size_t handles = (size_t)FAKE_NUMBER(fakecuda_live_handles);
  for (size_t f = 0; f < sizeof failures / sizeof *failures; f++) {
    FAKE(fakecuda_fail, failures[f].entry, failures[f].nth, (int)failures[f].error);
    CHECK_STATUS(open_named(&exporter, "fails", 1), failures[f].status);
    printf("  %s\n", cudalink_last_error());
    CHECK_CONTAINS(cudalink_last_error(), failures[f].says);
    FAKE(fakecuda_fail_clear);
    CHECK_OK(open_named(&exporter, "fails", 0));
    CHECK_OK(cudalink_exporter_close(exporter));
    WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) <= handles);
  }
}

/* An importer loads when it maps; what went wrong is acquire's to say, and the next one tries again. */
TEST(an_importer_whose_module_does_not_load, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_frame frame;
  if (!only_on_the_fake()) return;
  make_example(&example);
  stage.stream = gpu_stream();
  CHECK_OK(open_named(&stage.exporter, "convert", 0));
  CHECK_OK(cudalink_importer_open(
      &stage.importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "convert",
                                                 .open_timeout = 10 * SECOND, .convert = 1}));
  CHECK_OK(cudalink_exporter_send(stage.exporter, &example.source, example.picture, NULL,
                                  CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  FAKE(fakecuda_fail, "cuModuleLoadData", 1, (int)CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CHECK_STATUS(
      cudalink_importer_acquire(stage.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame),
      CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "without `convert`");
  CHECK_OK(
      cudalink_importer_acquire(stage.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_convert(&frame, example.plan, memory_for(&stage), ON(stage.stream)));
  CU(cuStreamSynchronize(stage.stream));
  let_go(&frame);
  close_stage(&stage);
  example_free(&example);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

struct refusals {
  struct stage stage;
  struct example example;
  cudalink_slot slot;
  cudalink_frame frame;
  void *memory;
};

static void open_refusals(struct refusals *r, uint32_t convert) {
  gpu_start();
  open_stage(&r->stage, CUDALINK_KIND_VMM, convert);
  make_example(&r->example);
  r->memory = memory_for(&r->stage);
  hold(&r->stage, &r->example, &r->frame);
  begin(&r->stage, &r->example, &r->slot);
}

static void close_refusals(struct refusals *r) {
  give_up(&r->stage, &r->slot);
  let_go(&r->frame);
  close_stage(&r->stage);
  example_free(&r->example);
}

static void into_slot(struct refusals *r, const cudalink_convert_plan *plan, const void *source,
                      cudalink_stream stream, int status, const char *says) {
  CHECK_STATUS(cudalink_exporter_convert(r->stage.exporter, plan, source, &r->slot, stream),
               status);
  CHECK_CONTAINS(cudalink_last_error(), says);
}

static void from_frame(struct refusals *r, const cudalink_convert_plan *plan, void *target,
                       cudalink_stream stream, int status, const char *says) {
  CHECK_STATUS(cudalink_frame_convert(&r->frame, plan, target, stream), status);
  CHECK_CONTAINS(cudalink_last_error(), says);
}

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

TEST(conversions_need_an_open_that_said_so, 60) {
  struct refusals r = {0};
  uint64_t loaded;
  gpu_start();
  loaded = loads();
  open_refusals(&r, 0);
  into_slot(&r, r.example.plan, r.memory, ON(r.stage.stream), CUDALINK_ERROR_UNSUPPORTED,
            "set `convert` to 1 in the cudalink_exporter_spec");
  from_frame(&r, r.example.plan, r.memory, ON(r.stage.stream), CUDALINK_ERROR_UNSUPPORTED,
             "set `convert` to 1 in the cudalink_importer_spec");
  CHECK_EQUAL(loads() - loaded, gpu_is_fake() ? 1 : 0); /* the test's own kernels */
  close_refusals(&r);
}

TEST(streams_that_cannot_convert, 60) {
  struct refusals r = {0};
  CUevent event;
  CUgraph graph;
  open_refusals(&r, 1);
  CUstream other = gpu_stream();
  const cudalink_convert_plan *plan = r.example.plan;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CU(cuEventRecord(event, r.stage.stream));
  cudalink_stream bad[] = {
      {0}, CUDALINK_STREAM_EVENT(event), CUDALINK_STREAM_HANDLE(NULL), {.kind = 99}};
  static const char *const says[] = {"no stream was said", "an event was named", "handle 0",
                                     "stream kind 99"};
  for (int i = 0; i < 4; i++) {
    into_slot(&r, plan, r.memory, bad[i], CUDALINK_ERROR_STREAM, says[i]);
    from_frame(&r, plan, r.memory, bad[i], CUDALINK_ERROR_STREAM, says[i]);
  }
  CU(cuStreamBeginCapture(r.stage.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  into_slot(&r, plan, r.memory, ON(r.stage.stream), CUDALINK_ERROR_CAPTURING, "capturing");
  from_frame(&r, plan, r.memory, ON(r.stage.stream), CUDALINK_ERROR_CAPTURING, "capturing");
  /* Another stream's capture is not touched, neither by a stream nor by COMPLETE. */
  CHECK_OK(cudalink_frame_convert(&r.frame, plan, r.memory, ON(other)));
  CHECK_OK(cudalink_frame_convert(&r.frame, plan, r.memory, CUDALINK_STREAM_COMPLETE));
  CU(cuStreamEndCapture(r.stage.stream, &graph));
  CU(cuStreamSynchronize(other)); /* it writes to the same memory */
  CU(cuGraphDestroy(graph));
  CU(cuEventDestroy(event));
  give_up(&r.stage, &r.slot);
  let_go(&r.frame);
  check_works(&r.stage, &r.example, r.memory);
  close_stage(&r.stage);
  example_free(&r.example);
}

/* Addresses that no kernel may be given. */
TEST(memory_that_cannot_be_converted, 60) {
  struct refusals r = {0};
  cudalink_frame other;
  open_refusals(&r, 1);
  const cudalink_convert_plan *plan = r.example.plan;
  cudalink_stream stream = ON(r.stage.stream);
  char *host = malloc(1 << 20);
  void *pinned = gpu_memory(GPU_MEMORY_PINNED, 1 << 20, r.stage.stream);
  void *freed = gpu_memory(GPU_MEMORY_DEVICE, 1 << 20, r.stage.stream);
  char *small = gpu_memory(GPU_MEMORY_DEVICE, 4096, r.stage.stream);
  CU(cuMemFree(device_of(freed)));
  into_slot(&r, plan, NULL, stream, INVALID, "source is NULL");
  into_slot(&r, NULL, r.memory, stream, INVALID, "plan is NULL");
  from_frame(&r, plan, NULL, stream, INVALID, "target is NULL");
  from_frame(&r, NULL, r.memory, stream, INVALID, "plan is NULL");
  struct {
    void *memory;
    const char *says;
  } wrong[] = {{host, "memory of the CPU"},
               {pinned, "memory of the CPU"},
               {freed, "knows no memory"},
               {(void *)(uintptr_t)4096, "knows no memory at 0x1000"}};
  for (int i = 0; i < 4; i++) {
    into_slot(&r, plan, wrong[i].memory, stream, INVALID, wrong[i].says);
    from_frame(&r, plan, wrong[i].memory, stream, INVALID, wrong[i].says);
    from_frame(&r, plan, wrong[i].memory, CUDALINK_STREAM_COMPLETE, INVALID, wrong[i].says);
  }
  if (gpu_is_fake()) /* a real driver rounds what it gives */
    into_slot(&r, plan, small, stream, INVALID, "the allocation ends there");
  from_frame(&r, plan, (char *)r.memory + 1, stream, INVALID, "must be multiples of 4");
  into_slot(&r, plan, r.slot.data, stream, INVALID, "overlap");
  from_frame(&r, plan, (char *)r.frame.data + 64, stream, INVALID, "overlap");
  /* The frame of another slot: mapped read-only. */
  give_up(&r.stage, &r.slot);
  hold(&r.stage, &r.example, &other);
  from_frame(&r, plan, other.data, stream, INVALID, "read-only");
  let_go(&other);
  let_go(&r.frame);
  check_works(&r.stage, &r.example, r.memory);
  free(host);
  close_stage(&r.stage);
  example_free(&r.example);
}

/* Managed memory, memory of a pool, memory that is mapped in pieces. */
TEST(memory_of_all_kinds_is_converted, 60) {
  static const enum gpu_memory kinds[] = {GPU_MEMORY_DEVICE, GPU_MEMORY_MANAGED, GPU_MEMORY_POOL,
                                          GPU_MEMORY_VMM};
  struct stage stage = {0};
  struct example example;
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    void *memory = gpu_memory(kinds[k], 1 << 20, stage.stream);
    CU(cuStreamSynchronize(stage.stream));
    check_works(&stage, &example, memory);
  }
  close_stage(&stage);
  example_free(&example);
}

TEST(plans_for_other_frames, 60) {
  struct refusals r = {0};
  cudalink_description wider = {0}, grey = {0}, pitched = {0};
  cudalink_convert_plan *plan;
  open_refusals(&r, 1);
  cudalink_stream stream = ON(r.stage.stream);
  CHECK_OK(cudalink_describe_picture(&wider, CUDALINK_FORMAT_RGBA8, 66, 48, 0));
  CHECK_OK(cudalink_describe_picture(&grey, CUDALINK_FORMAT_GRAY8, 64, 48, 0));
  CHECK_OK(cudalink_describe_picture(&pitched, CUDALINK_FORMAT_RGBA8, 64, 48, 512));
  CHECK_OK(cudalink_convert_plan_create(&plan, &wider, &wider, NULL));
  into_slot(&r, plan, r.memory, stream, INVALID, "RGBA8 of 66 x 48");
  from_frame(&r, plan, r.memory, stream, INVALID, "the frame NV12 of 64 x 48");
  cudalink_convert_plan_destroy(plan);
  CHECK_OK(cudalink_convert_plan_create(&plan, &grey, &grey, NULL));
  into_slot(&r, plan, r.memory, stream, INVALID, "GRAY8 of 64 x 48");
  from_frame(&r, plan, r.memory, stream, INVALID, "GRAY8 of 64 x 48");
  cudalink_convert_plan_destroy(plan);
  CHECK_OK(cudalink_convert_plan_create(&plan, &grey, &pitched, NULL));
  into_slot(&r, plan, r.memory, stream, INVALID, "first stride 256");
  cudalink_convert_plan_destroy(plan);
  cudalink_slot wrong = r.slot;
  wrong.sequence += 7;
  CHECK_STATUS(
      cudalink_exporter_convert(r.stage.exporter, r.example.plan, r.memory, &wrong, stream),
      INVALID);
  CHECK_STATUS(cudalink_exporter_convert(r.stage.exporter, r.example.plan, r.memory, NULL, stream),
               INVALID);
  CHECK_STATUS(cudalink_frame_convert(NULL, r.example.plan, r.memory, stream), INVALID);
  cudalink_frame released = r.frame;
  released.lease ^= 1;
  CHECK_STATUS(cudalink_frame_convert(&released, r.example.plan, r.memory, stream), INVALID);
  give_up(&r.stage, &r.slot);
  let_go(&r.frame);
  check_works(&r.stage, &r.example, r.memory);
  CHECK_STATUS(
      cudalink_exporter_convert((cudalink_exporter){0}, r.example.plan, r.memory, &r.slot, stream),
      CUDALINK_ERROR_CLOSED);
  close_stage(&r.stage);
  example_free(&r.example);
}

/* A frame without a format is bytes to whoever knows what they are: it has to be large enough. */
TEST(frames_that_are_no_pictures, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_frame frame;
  cudalink_description bytes = {0};
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  void *memory = memory_for(&stage);
  for (int64_t missing = 0; missing < 2; missing++) {
    memset(&bytes, 0, sizeof bytes);
    CHECK_OK(cudalink_describe_tensor(&bytes, "blob", CUDALINK_UINT8, 1,
                                      (int64_t[]){(int64_t)example.source_bytes - missing}));
    CHECK_OK(cudalink_exporter_send(stage.exporter, &bytes, example.picture, NULL,
                                    CUDALINK_STREAM_COMPLETE, 10 * SECOND));
    CHECK_OK(
        cudalink_importer_acquire(stage.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
    int status = cudalink_frame_convert(&frame, example.plan, memory, ON(stage.stream));
    CHECK_EQUAL(status, missing ? INVALID : CUDALINK_OK);
    if (missing) CHECK_CONTAINS(cudalink_last_error(), "bytes, the frame has");
    let_go(&frame);
  }
  close_stage(&stage);
  example_free(&example);
}

TEST(invalid_frames_are_not_converted, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_slot slot;
  cudalink_frame frame;
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  CHECK_OK(cudalink_exporter_begin(stage.exporter, &example.source, 10 * SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish_invalid(stage.exporter, &slot, "no signal"));
  CHECK_OK(
      cudalink_importer_acquire(stage.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_STATUS(cudalink_frame_convert(&frame, example.plan, memory_for(&stage), ON(stage.stream)),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "no signal");
  let_go(&frame);
  close_stage(&stage);
  example_free(&example);
}

TEST(a_lost_context_ends_conversions, 60) {
  struct stage stage = {0};
  struct example example;
  cudalink_slot slot;
  if (!only_on_the_fake()) return;
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  void *memory = memory_for(&stage);
  begin(&stage, &example, &slot);
  FAKE(fakecuda_lose_context, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(
      cudalink_exporter_convert(stage.exporter, example.plan, memory, &slot, ON(stage.stream)),
      CUDALINK_ERROR_GPU_LOST);
  cudalink_importer_close(stage.importer);
  cudalink_exporter_close(stage.exporter);
  example_free(&example);
}

/* ---- other drivers, several GPUs ------------------------------------------------------------------------- */

HELPER(converts) {
  struct stage stage = {0};
  struct example example;
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  check_works(&stage, &example, memory_for(&stage));
  close_stage(&stage);
  example_free(&example);
  say("converted");
}

/* Memory of the second GPU is refused, until the first has access to it. */
HELPER(converts_from_second_gpu) {
  struct stage stage = {0};
  struct example example;
  CUdevice second;
  CUcontext other;
  CUdeviceptr far;
  cudalink_slot slot;
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  make_example(&example);
  CU(cuDeviceGet(&second, 1));
  CU(cuDevicePrimaryCtxRetain(&other, second));
  CU(cuCtxPushCurrent(other));
  CU(cuMemAlloc(&far, 1 << 20));
  CU(cuCtxPopCurrent(&other));
  begin(&stage, &example, &slot);
  int status = cudalink_exporter_convert(stage.exporter, example.plan, (void *)(uintptr_t)far,
                                         &slot, ON(stage.stream));
  CHECK_EQUAL(status, INVALID);
  say("%.400s", cudalink_last_error());
  CU(cuCtxEnablePeerAccess(other, 0));
  CHECK_OK(cudalink_exporter_convert(stage.exporter, example.plan, (void *)(uintptr_t)far, &slot,
                                     ON(stage.stream)));
  CU(cuStreamSynchronize(stage.stream));
  give_up(&stage, &slot);
  close_stage(&stage);
  example_free(&example);
}

static void helper_says(const char *helper, const char *variable, const char *value,
                        const char *expected) {
  setenv(variable, value, 1);
  struct process *process = process_start(helper, "x=1");
  unsetenv(variable);
  const char *said = process_hear(process);
  printf("  %s=%s: %s\n", variable, value, said);
  CHECK_CONTAINS(said, expected);
  process_finish(process);
}

TEST(drivers_of_all_versions_convert, 60) {
  static const char *const versions[] = {"11.4", "11.8", "12.4", "13.0"};
  if (!only_on_the_fake()) return;
  for (int i = 0; i < 4; i++)
    helper_says("converts", "FAKECUDA_VERSION", versions[i], "converted");
}

TEST(memory_of_another_gpu, 60) {
  if (!only_on_the_fake()) return;
  helper_says("converts_from_second_gpu", "FAKECUDA_DEVICES", "2",
              "memory of GPU 1, which GPU 0, where the frames are, has no access to");
}
