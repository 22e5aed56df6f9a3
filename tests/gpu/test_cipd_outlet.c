/* SPDX-License-Identifier: MIT
 *
 * An exporter's outlet on the old wire, the original's consumer as the other end.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "cudalink/pool.h"
#include "link/exporter.h"
#include "original.h"

#define NONE CUDALINK_STREAM_COMPLETE

/* ---- an exporter with an outlet ------------------------------------------------------------------- */

struct outlet {
  const char *name; /* of the segment */
  cudalink_exporter exporter;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream;
  uint64_t frames; /* of this session */
};

static void describe(struct outlet *outlet, const cudalink_description *description) {
  outlet->description = *description;
  CHECK_OK(cudalink_description_bytes(description, &outlet->bytes));
  outlet->frames = 0;
}

static int try_open(struct outlet *outlet, cudalink_exporter_spec spec) {
  spec.size = sizeof spec;
  spec.name = "outlet";
  if (!spec.cipd_name) spec.cipd_name = outlet->name;
  if (!spec.kind) spec.kind = spec.cipd_only ? CUDALINK_KIND_AUTO : CUDALINK_KIND_VMM;
  spec.description = &outlet->description;
  return cudalink_exporter_open(&outlet->exporter, &spec);
}

/* RGBA8 of 16 x 16, and a stream. */
static void start(struct outlet *outlet) {
  cudalink_description description;
  gpu_start();
  outlet->name = segment_name();
  describe_rgba(&description, 16, 16);
  describe(outlet, &description);
  outlet->stream = gpu_stream();
}

/* By a lent slot; patterns count from 1 in each session of the segment. */
static int give_after(struct outlet *outlet, uint64_t pause) {
  cudalink_slot slot;
  int status = cudalink_exporter_begin(outlet->exporter, &outlet->description, 10 * SECOND, &slot);
  if (status < 0) return status;
  gpu_fill(outlet->stream, slot.data, outlet->bytes, ++outlet->frames, pause);
  return cudalink_exporter_publish(outlet->exporter, &slot, ON(outlet->stream));
}
static void give(struct outlet *outlet) { CHECK_OK(give_after(outlet, 0)); }

static cudalink_exporter_statistics statistics_of(const struct outlet *outlet) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(outlet->exporter, &statistics));
  return statistics;
}

static struct process *start_consumer(const char *name) {
  struct process *consumer = process_start("old_consumer", "name=%s plain=1", name);
  process_expect(consumer, "open");
  return consumer;
}

/* Its next frame: whole, and of this index. */
static const char *expect_taken(struct process *consumer, uint64_t index) {
  const char *said = process_ask(consumer, "take");
  if (!strncmp(said, "version", 7)) said = process_ask(consumer, "take");
  if (strncmp(said, "frame", 5)) FAIL("the consumer says '%s'", said);
  CHECK_EQUAL(line_number(said, "index"), index);
  CHECK_EQUAL(line_number(said, "wrong"), 0);
  return said;
}

/* ---- frames ---------------------------------------------------------------------------------------------- */

/* The bytes of the segment, as the original lays them out. */
TEST(outlet_segment_is_as_documented, 30) {
  struct outlet outlet;
  size_t bytes;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  uint8_t *block = segment_map(outlet.name, &bytes);
  CHECK_EQUAL(bytes, 433);
  CHECK_EQUAL(segment_get(block, 0, 4), 0x43495044);
  CHECK_EQUAL(segment_get(block, 4, 8), 1);
  CHECK_EQUAL(segment_get(block, 12, 4), 3);
  CHECK_EQUAL(segment_get(block, 16, 4), 0);
  CHECK_EQUAL(segment_get(block, 404, 1), 0);
  CHECK_EQUAL(segment_get(block, 405, 4), 16);
  CHECK_EQUAL(segment_get(block, 409, 4), 16);
  CHECK_EQUAL(segment_get(block, 413, 4), 4);
  CHECK_EQUAL(segment_get(block, 417, 1), 1);
  CHECK_EQUAL(segment_get(block, 418, 1), 8);
  CHECK_EQUAL(segment_get(block, 419, 2), 0);
  CHECK_EQUAL(segment_get(block, 421, 4), 1024); /* F49: of a frame, not of the allocation */
  for (unsigned i = 0; i < 3; i++) {
    static const uint8_t zeros[64];
    CHECK(memcmp(block + 20 + 128 * i, zeros, 64) && memcmp(block + 84 + 128 * i, zeros, 64));
  }
  uint64_t before = cudalink_now();
  give(&outlet);
  double stamp;
  memcpy(&stamp, block + 425, sizeof stamp);
  CHECK(stamp >= (double)before / 1e9 - 0.001 && stamp <= (double)cudalink_now() / 1e9); /* F58 */
  CHECK_EQUAL(segment_get(block, 16, 4), 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  CHECK_EQUAL(segment_get(block, 404, 1), 1);
  for (unsigned i = 20; i < 404; i++)
    CHECK_EQUAL(block[i], 0);
  CHECK(!segment_exists(outlet.name));
}

static void take_with_slots(bool only) {
  struct outlet outlet;
  start(&outlet);
  for (unsigned slots = 1; slots <= 10; slots++) {
    CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_slots = slots, .cipd_only = only}));
    struct process *consumer = start_consumer(outlet.name);
    outlet.frames = 0;
    for (unsigned i = 1; i <= 2 * slots + 1; i++) {
      give(&outlet);
      CHECK_EQUAL(line_number(expect_taken(consumer, i), "slot"), (i - 1) % slots);
    }
    CHECK_EQUAL(statistics_of(&outlet).cipd_published, 2 * slots + 1);
    CHECK_EQUAL(statistics_of(&outlet).published, 2 * slots + 1);
    CHECK_EQUAL(statistics_of(&outlet).copies, only ? 0 : 2 * slots + 1);
    CHECK_OK(cudalink_exporter_close(outlet.exporter));
    CHECK(!strcmp(process_ask(consumer, "take"), "shutdown"));
    process_finish(consumer);
  }
}
TEST(outlet_slots_1_to_10, 60) { take_with_slots(false); }
TEST(outlet_only_slots_1_to_10, 60) { take_with_slots(true); }

static void drop_nothing(void *owner) { ++*(_Atomic int *)owner; }

/* Frames that are published where they lie are copied out of there. */
static void take_from_pool(bool only) {
  struct outlet outlet;
  _Atomic int dropped = 0;
  int shared;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = only}));
  struct process *consumer = start_consumer(outlet.name);
  char *block = cudalink_pool_alloc(2 << 20, 0, outlet.stream);
  CHECK(block != NULL);
  for (unsigned i = 1; i <= 30; i++) {
    char *tensor = block + (size_t)4096 * i;
    gpu_fill(outlet.stream, tensor, outlet.bytes, ++outlet.frames, 0);
    CHECK_OK(cudalink_exporter_send_shared(outlet.exporter, &outlet.description, tensor, NULL,
                                           ON(outlet.stream), SECOND, &dropped, drop_nothing,
                                           &shared));
    CHECK_EQUAL(shared, !only);
    expect_taken(consumer, i);
  }
  CHECK_EQUAL(statistics_of(&outlet).copies, 30);
  CHECK_EQUAL(statistics_of(&outlet).shared, only ? 0 : 30);
  CHECK_EQUAL(statistics_of(&outlet).share_copies, only ? 30 : 0);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  WAIT_UNTIL(atomic_load(&dropped) == (only ? 0 : 30));
  cudalink_pool_free(block, 2 << 20, 0, outlet.stream);
  process_finish(consumer);
}
TEST(outlet_of_frames_in_a_pool, 60) { take_from_pool(false); }
TEST(outlet_only_of_frames_in_a_pool, 60) { take_from_pool(true); }

/* Into a lent slot of the old wire alone: nothing else holds pixels there. */
TEST(outlet_only_is_converted_into, 60) {
  struct outlet outlet;
  cudalink_description bgra;
  cudalink_convert_plan *plan;
  cudalink_slot slot;
  start(&outlet);
  memset(&bgra, 0, sizeof bgra);
  CHECK_OK(cudalink_describe_picture(&bgra, CUDALINK_FORMAT_BGRA8, 16, 16, 1));
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1, .convert = 1}));
  CHECK_OK(cudalink_convert_plan_create(&plan, &bgra, &outlet.description, NULL));
  void *source = gpu_memory(GPU_MEMORY_DEVICE, outlet.bytes, NULL);
  CHECK_OK(cudalink_exporter_begin(outlet.exporter, &outlet.description, 10 * SECOND, &slot));
  CHECK_OK(cudalink_exporter_convert(outlet.exporter, plan, source, &slot, ON(outlet.stream)));
  CHECK_OK(cudalink_exporter_publish(outlet.exporter, &slot, ON(outlet.stream)));
  CHECK_EQUAL(statistics_of(&outlet).cipd_published, 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  cudalink_convert_plan_destroy(plan);
}

static void take_types(bool only) {
  struct outlet outlet;
  uint64_t version = 1;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = only}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  for (int t = 0; t < ORIGINAL_TYPES; t++) {
    for (unsigned comps = 1; comps <= 4; comps++) {
      const struct original_type *type = &original_types[t];
      cudalink_description description = {0};
      int64_t shape[] = {6, 8, comps};
      CHECK_OK(cudalink_describe_tensor(
          &description, NULL, cudalink_dtype_make(type->code, (uint8_t)type->bits), 3, shape));
      describe(&outlet, &description);
      give(&outlet);
      const char *said = expect_taken(consumer, 1);
      CHECK_EQUAL(line_number(said, "version"), ++version);
      CHECK_EQUAL(line_number(said, "width"), 8);
      CHECK_EQUAL(line_number(said, "height"), 6);
      CHECK_EQUAL(line_number(said, "comps"), comps);
      CHECK_EQUAL(line_number(said, "kind"), type->kind);
      CHECK_EQUAL(line_number(said, "bits"), type->bits);
      CHECK_EQUAL(line_number(said, "flags"), type->flag);
    }
  }
  CHECK_EQUAL(statistics_of(&outlet).cipd_skipped, 0);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}
TEST(outlet_types_and_channels, 60) { take_types(false); }
TEST(outlet_only_types_and_channels, 60) { take_types(true); }

static int64_t sum_of(const uint8_t *bytes, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; i++)
    sum = sum * 31 + bytes[i];
  return (int64_t)(sum & INT64_MAX);
}

/* Pictures: flags, and rows with gaps, which are copied without them. */
TEST(outlet_pictures, 60) {
  static const struct {
    cudalink_format format;
    uint8_t alpha;
    unsigned comps, kind, bits, flags;
  } cases[] = {
      {CUDALINK_FORMAT_BGRA8, 0, 4, 1, 8, 4},   {CUDALINK_FORMAT_RGBA8, 1, 4, 1, 8, 0},
      {CUDALINK_FORMAT_RG8, 1, 2, 1, 8, 2},     {CUDALINK_FORMAT_RG8, 0, 2, 1, 8, 0},
      {CUDALINK_FORMAT_RGB8, 0, 3, 1, 8, 0},    {CUDALINK_FORMAT_R8, 0, 1, 1, 8, 0},
      {CUDALINK_FORMAT_GRAY8, 0, 1, 1, 8, 0},   {CUDALINK_FORMAT_GRAY16, 0, 1, 1, 16, 0},
      {CUDALINK_FORMAT_RGBA16, 0, 4, 1, 16, 0}, {CUDALINK_FORMAT_RGBA16F, 0, 4, 2, 16, 0},
      {CUDALINK_FORMAT_RG16F, 2, 2, 2, 16, 2},  {CUDALINK_FORMAT_RGBA32F, 0, 4, 2, 32, 0},
  };
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (int gaps = 0; gaps < 2; gaps++) {
      cudalink_description *description = &outlet.description;
      cudalink_slot slot;
      memset(description, 0, sizeof *description);
      CHECK_OK(cudalink_describe_picture(description, cases[c].format, 24, 10, gaps ? 0 : 1));
      description->picture.alpha = cases[c].alpha;
      uint64_t packed;
      CHECK_OK(cudalink_packed_bytes(description, &packed));
      uint8_t *dense = malloc(packed), *slot_bytes = calloc(1, 65536);
      gpu_pattern(dense, packed, 1);
      CHECK_OK(cudalink_unpack(description, dense, packed, slot_bytes));
      CHECK_OK(cudalink_exporter_begin(outlet.exporter, description, 10 * SECOND, &slot));
      uint64_t bytes;
      CHECK_OK(cudalink_description_bytes(description, &bytes));
      CU(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)slot.data, slot_bytes, bytes));
      CHECK_OK(cudalink_exporter_publish(outlet.exporter, &slot, NONE));
      /* What looks the same there is the next frame of the same session. */
      const char *said = process_ask(consumer, "take");
      if (!strncmp(said, "version", 7)) said = process_ask(consumer, "take");
      if (line_number(said, "index") == 1) CHECK_EQUAL(line_number(said, "wrong"), 0);
      CHECK_EQUAL(line_number(said, "sum"), sum_of(dense, packed));
      CHECK_EQUAL(line_number(said, "width"), 24);
      CHECK_EQUAL(line_number(said, "comps"), cases[c].comps);
      CHECK_EQUAL(line_number(said, "kind"), cases[c].kind);
      CHECK_EQUAL(line_number(said, "bits"), cases[c].bits);
      CHECK_EQUAL(line_number(said, "flags"), cases[c].flags);
      free(dense);
      free(slot_bytes);
    }
  }
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* What the old wire has no word for is passed over and counted beside a wire of our own, and an error
 * without one. */
TEST(outlet_passes_over_what_it_cannot_carry, 60) {
  struct outlet outlet;
  cudalink_description nv12 = {0}, rgba, planar = {0}, five = {0}, words = {0}, unused = {0};
  start(&outlet);
  describe_rgba(&rgba, 16, 16);
  CHECK_OK(cudalink_describe_picture(&nv12, CUDALINK_FORMAT_NV12, 16, 16, 1));
  CHECK_OK(cudalink_describe_picture(&planar, CUDALINK_FORMAT_RGB_CHW8, 16, 16, 1));
  CHECK_OK(cudalink_describe_picture(&unused, CUDALINK_FORMAT_RGBX8, 16, 16, 1));
  CHECK_OK(cudalink_describe_tensor(&five, NULL, CUDALINK_UINT8, 3, (int64_t[]){4, 4, 5}));
  CHECK_OK(cudalink_describe_tensor(&words, NULL, CUDALINK_UINT32, 3, (int64_t[]){4, 4, 4}));
  const cudalink_description *refused[] = {&nv12, &planar, &five, &words, &unused};
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  struct process *consumer = start_consumer(outlet.name);
  for (size_t r = 0; r < 5; r++) {
    describe(&outlet, refused[r]);
    give(&outlet);
    cudalink_exporter_statistics statistics = statistics_of(&outlet);
    printf("  %s\n", statistics.cipd_reason);
    CHECK_EQUAL(statistics.cipd_skipped, r + 1);
    CHECK_EQUAL(statistics.cipd_published, 0);
    CHECK_CONTAINS(statistics.cipd_reason, "old wire");
  }
  cudalink_slot slot;
  describe(&outlet, &rgba);
  CHECK_OK(cudalink_exporter_begin(outlet.exporter, &rgba, 10 * SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish_invalid(outlet.exporter, &slot, "no signal"));
  CHECK_EQUAL(statistics_of(&outlet).cipd_skipped, 6);
  CHECK_CONTAINS(statistics_of(&outlet).cipd_reason, "invalid");
  give(&outlet);
  expect_taken(consumer, 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  /* Beside our own wire it opens with what it can't carry; alone it does not. */
  describe(&outlet, &nv12);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  CHECK_CONTAINS(statistics_of(&outlet).cipd_reason, "NV12");
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK(!segment_exists(outlet.name));
  describe(&outlet, &rgba);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  for (size_t r = 0; r < 5; r++) {
    CHECK_STATUS(cudalink_exporter_begin(outlet.exporter, refused[r], 0, &slot),
                 CUDALINK_ERROR_UNSUPPORTED);
    CHECK_CONTAINS(cudalink_last_error(), "old wire");
    CHECK_STATUS(cudalink_exporter_begin(outlet.exporter, refused[r], 0, &slot),
                 CUDALINK_ERROR_UNSUPPORTED);
    CHECK_CONTAINS(cudalink_last_error(), "old wire");
  }
  cudalink_description gaps = {0};
  CHECK_OK(cudalink_describe_picture(&gaps, CUDALINK_FORMAT_RGBA8, 24, 4, 256));
  CHECK_STATUS(cudalink_exporter_begin(outlet.exporter, &gaps, 0, &slot),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "without gaps");
  CHECK_OK(cudalink_exporter_begin(outlet.exporter, &rgba, 0, &slot));
  CHECK_STATUS(cudalink_exporter_publish_invalid(outlet.exporter, &slot, "x"),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_EQUAL(slot.sequence, 1); /* no number was used up */
  CHECK_OK(cudalink_exporter_abandon(outlet.exporter, &slot, NONE));
  CHECK_OK(cudalink_exporter_begin(outlet.exporter, &rgba, 0, &slot));
  CHECK_EQUAL(slot.sequence, 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* Our own consumer and the original's, side by side. */
TEST(outlet_beside_our_own_wire, 60) {
  struct outlet outlet;
  cudalink_importer importer;
  cudalink_frame frame;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "outlet",
                                           .open_timeout = 10 * SECOND}));
  struct process *consumer = start_consumer(outlet.name);
  void *pixels = malloc(outlet.bytes), *source = gpu_memory(GPU_MEMORY_DEVICE, outlet.bytes, NULL);
  for (uint64_t i = 1; i <= 20; i++) {
    if (i % 3 == 0) { /* by send: one copy more; with COMPLETE nothing blocks for the outlet */
      gpu_pattern(pixels, outlet.bytes, ++outlet.frames);
      CU(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)source, pixels, outlet.bytes));
      CHECK_OK(cudalink_exporter_send(outlet.exporter, &outlet.description, source, NULL,
                                      i % 2 ? NONE : ON(outlet.stream), 10 * SECOND));
    } else {
      CHECK_OK(give_after(&outlet, 2 * MILLISECOND));
    }
    expect_taken(consumer, i);
    CHECK_OK(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame));
    CHECK_OK(cudalink_frame_to_host(&frame, pixels, outlet.bytes));
    CHECK_EQUAL(gpu_pattern_wrong(pixels, outlet.bytes, i), 0);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  CHECK_EQUAL(statistics_of(&outlet).copies, 20 + 6);
  free(pixels);
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* Slots are reused while their copies are still queued: behind each other, on any stream. */
TEST(outlet_publishes_on_two_streams, 60) {
  struct outlet outlet;
  start(&outlet);
  CUstream streams[2] = {outlet.stream, gpu_stream()};
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_slots = 1, .max_slots = 16}));
  struct process *consumer = start_consumer(outlet.name);
  for (uint64_t i = 1; i <= 6; i++) { /* the first of each pair is the slower one */
    outlet.stream = streams[i % 2];
    CHECK_OK(give_after(&outlet, i % 2 ? 20 * MILLISECOND : 0));
    if (i % 2) continue;
    CU(cuStreamSynchronize(streams[0])); /* a slower copy that came late would show now */
    CU(cuStreamSynchronize(streams[1]));
    expect_taken(consumer, i);
  }
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* Promise 4: per frame no waiting, allocating or opening call, with and without our own wire. */
static void flow(bool only) {
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = only}));
  struct process *consumer = start_consumer(outlet.name);
  for (int i = 0; i < 200; i++) {
    if (i == 100) FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_ABORT, 7);
    give(&outlet);
    if (i % 2) CU(cuStreamSynchronize(outlet.stream)); /* else there would be more slots soon */
    if (i % 10 == 0) process_ask(consumer, "take");
  }
  expect_taken(consumer, 200);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_legacy_operations), 0);
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}
TEST(outlet_flow, 60) { flow(false); }
TEST(outlet_only_flow, 60) { flow(true); }

/* begin of a lone outlet waits for its own work of a round ago, never for readers. */
TEST(outlet_only_waits_for_its_own_work, 30) {
  struct outlet outlet;
  cudalink_slot slot;
  void *memory;
  start(&outlet);
  CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  _Atomic int *gate = memory;
  atomic_store(gate, 0);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1, .cipd_slots = 2}));
  CU(cuStreamWaitValue32(outlet.stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
  CHECK_OK(give_after(&outlet, 200 * MILLISECOND));
  give(&outlet);
  CHECK_STATUS(cudalink_exporter_begin(outlet.exporter, &outlet.description, 0, &slot),
               CUDALINK_ERROR_BUSY);
  CHECK_CONTAINS(cudalink_last_error(), "2 frames ago");
  atomic_store(gate, 1);
  give(&outlet); /* waits */
  CHECK_EQUAL(statistics_of(&outlet).dropped, 1);
  CHECK_STATUS(cudalink_exporter_wait_consumers(outlet.exporter, 1, 0), CUDALINK_ERROR_UNSUPPORTED);
  CHECK_STATUS(cudalink_exporter_wait_taken(outlet.exporter, 0), CUDALINK_ERROR_UNSUPPORTED);
  CHECK_EQUAL(statistics_of(&outlet).kind, CUDALINK_KIND_IPC);
  CHECK_EQUAL(statistics_of(&outlet).slots, 2);
  CHECK_CONTAINS(statistics_of(&outlet).path, "cipd");
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
}

/* Both ends in one process: the driver refuses its own handles, so the ring itself is shared. */
TEST(outlet_in_one_process, 30) {
  struct outlet outlet;
  cudalink_importer importer;
  cudalink_frame frame;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = outlet.name}));
  void *pixels = malloc(outlet.bytes);
  for (uint64_t i = 1; i <= 10; i++) {
    CHECK_OK(give_after(&outlet, 5 * MILLISECOND));
    CHECK_OK(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame));
    CHECK_OK(cudalink_frame_to_host(&frame, pixels, outlet.bytes));
    CHECK_EQUAL(gpu_pattern_wrong(pixels, outlet.bytes, i), 0);
    if (i < 10) CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  /* What is held outlives the exporter. */
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  CHECK_STATUS(cudalink_frame_to_host(&frame, pixels, outlet.bytes), CUDALINK_ERROR_OVERWRITTEN);
  CHECK_EQUAL(gpu_pattern_wrong(pixels, outlet.bytes, 10), 0);
  CHECK_STATUS(cudalink_frame_release(&frame, NONE), CUDALINK_ERROR_OVERWRITTEN);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_ENDED);
  CHECK_OK(cudalink_importer_close(importer));
  free(pixels);
}

/* ---- the segment ------------------------------------------------------------------------------------------ */

/* It vanished: a new one is made, and readers of the old one are told to look for it. */
static void unlink_under_way(bool only) {
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = only}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  shm_unlink(outlet.name);
  WAIT_UNTIL((give(&outlet), segment_exists(outlet.name)));
  CHECK(!strcmp(process_ask(consumer, "take"), "shutdown"));
  CU(cuStreamSynchronize(outlet.stream));
  const char *said = process_ask(consumer, "take"); /* by its name */
  CHECK_EQUAL(line_number(said, "version"), 2);
  CHECK_EQUAL(line_number(said, "index"), 1);
  /* Somebody else's segment of that name is left alone. */
  shm_unlink(outlet.name);
  int fd = shm_open(outlet.name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK_EQUAL(ftruncate(fd, 100), 0);
  CHECK_EQUAL(pwrite(fd, "precious", 8, 0), 8);
  if (only) {
    WAIT_UNTIL(give_after(&outlet, 0) == CUDALINK_ERROR_REFUSED);
  } else {
    uint64_t skipped = statistics_of(&outlet).cipd_skipped;
    WAIT_UNTIL((give(&outlet), statistics_of(&outlet).cipd_skipped > skipped));
    CHECK_CONTAINS(statistics_of(&outlet).cipd_reason, "left alone");
  }
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  char text[9] = "";
  CHECK_EQUAL(pread(fd, text, 8, 0), 8);
  CHECK(!strcmp(text, "precious") && segment_exists(outlet.name)); /* W26 */
  close(fd);
  shm_unlink(outlet.name);
  process_finish(consumer);
}
TEST(outlet_segment_unlinked, 60) { unlink_under_way(false); }
TEST(outlet_only_segment_unlinked, 60) { unlink_under_way(true); }

/* Whatever others write into the segment changes nothing but what they read. */
TEST(outlet_reads_nothing_back, 60) {
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  give(&outlet);
  uint8_t *block = segment_map(outlet.name, NULL);
  memset(block, 0xee, 433);
  give(&outlet);
  CHECK_EQUAL(segment_get(block, 16, 4), 2);
  CHECK_EQUAL(segment_get(block, 404, 1), 0);
  cudalink_description description;
  describe_rgba(&description, 8, 8);
  describe(&outlet, &description); /* a new session mends the rest */
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  CHECK_EQUAL(line_number(expect_taken(consumer, 1), "version"), 2);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* A session is joined with a frame in it. Who waits for it is told that a producer is there. */
TEST(outlet_that_has_published_nothing, 30) {
  struct outlet outlet;
  cudalink_importer importer;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = outlet.name,
                                 .open_timeout = 20 * MILLISECOND};
  CHECK_STATUS(cudalink_importer_open(&importer, &spec), CUDALINK_ERROR_NOT_FOUND);
  CHECK_CONTAINS(cudalink_last_error(), "there is a segment: the producer has published nothing");
  give(&outlet);
  spec.open_timeout = 10 * SECOND;
  CHECK_OK(cudalink_importer_open(&importer, &spec));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
}

/* The memory behind the slot that is lent next. */
static size_t bytes_behind(struct outlet *outlet) {
  cudalink_slot slot;
  CUdeviceptr base;
  size_t size;
  CHECK_OK(cudalink_exporter_begin(outlet->exporter, &outlet->description, 10 * SECOND, &slot));
  CU(cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)slot.data));
  CHECK_OK(cudalink_exporter_abandon(outlet->exporter, &slot, NONE));
  return size;
}

/* W35: a legacy handle exports the whole 2 MiB that its memory lies in. All of it is the channel's. */
TEST(outlet_exports_no_neighbours, 30) {
  const size_t granule = 2u << 20;
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  CHECK_EQUAL(bytes_behind(&outlet), granule);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.kind = CUDALINK_KIND_IPC}));
  CHECK_EQUAL(bytes_behind(&outlet) % granule, 0);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
}

/* W25: one producer per name; F56 and others: what is not ours is left alone. */
TEST(outlet_owns_its_name, 60) {
  struct outlet outlet, other;
  start(&outlet);
  other = outlet;
  cudalink_exporter_spec only = {.cipd_only = 1};
  CHECK_OK(try_open(&outlet, only));
  CHECK_STATUS(try_open(&other, only), CUDALINK_ERROR_NAME_IN_USE);
  CHECK_CONTAINS(cudalink_last_error(), "another exporter");
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  int fd = shm_open(outlet.name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK_EQUAL(ftruncate(fd, 4096), 0);
  CHECK_EQUAL(pwrite(fd, "precious", 8, 0), 8);
  CHECK_STATUS(try_open(&outlet, only), CUDALINK_ERROR_REFUSED);
  CHECK_CONTAINS(cudalink_last_error(), "left alone");
  CHECK(segment_exists(outlet.name));
  close(fd);
  shm_unlink(outlet.name);
  process_finish(consumer);
}

/* An exporter that can't be opened because of its outlet has never been there: who waits for the channel is
 * told of no end. */
TEST(outlet_that_fails_ends_nothing, 60) {
  struct outlet outlet;
  cudalink_importer importer;
  cudalink_frame frame;
  start(&outlet);
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "outlet",
                                           .policy = CUDALINK_POLICY_IN_ORDER}));
  int fd = shm_open(outlet.name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK_EQUAL(ftruncate(fd, 4096), 0);
  CHECK_EQUAL(pwrite(fd, "precious", 8, 0), 8);
  for (int i = 0; i < 20; i++) {
    CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){0}), CUDALINK_ERROR_REFUSED);
    CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * MILLISECOND, &frame),
                 CUDALINK_ERROR_TIMEOUT);
  }
  close(fd);
  shm_unlink(outlet.name);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  CHECK_OK(cudalink_exporter_wait_consumers(outlet.exporter, 1, 20 * SECOND));
  give(&outlet);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 20 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
}

/* Maps each segment of the name that it meets. */
static void *meet_segment(void *context) {
  const char *name = context;
  uint8_t *block;
  while (!(block = segment_map(name, NULL)))
    sched_yield();
  return block;
}

/* The same on the old wire: what the exporter needs is there before readers see a session. */
TEST(outlet_only_that_fails_ends_nothing, 60) {
  struct outlet outlet;
  pthread_t reader;
  void *met;
  start(&outlet);
  if (!gpu_is_fake()) return;
  CHECK_EQUAL(pthread_create(&reader, NULL, meet_segment, (void *)(uintptr_t)outlet.name), 0);
  do {
    FAKE(fakecuda_fail, "cuModuleLoadData", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1, .convert = 1}) < 0);
    FAKE(fakecuda_fail_clear);
  } while (pthread_tryjoin_np(reader, &met) != 0);
  CHECK_EQUAL(segment_get(met, 0, 4), 0);
}

/* Old producers lock nothing; one that writes is left alone, one that was killed is replaced. */
TEST(outlet_leaves_a_living_old_producer_alone, 60) {
  struct outlet outlet;
  start(&outlet);
  struct process *producer = process_start("old_producer", "name=%s", outlet.name);
  process_expect(producer, "open");
  process_tell(producer, "run");
  uint8_t *block = segment_map(outlet.name, NULL);
  WAIT_UNTIL(segment_get(block, AT_INDEX, 4) > 3);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}),
               CUDALINK_ERROR_NAME_IN_USE);
  CHECK_CONTAINS(cudalink_last_error(), "another producer");
  CHECK_EQUAL(segment_get(block, AT_SHUTDOWN(3), 1), 0);
  CHECK(segment_exists(outlet.name));
  process_kill(producer);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  CHECK_EQUAL(segment_get(block, AT_SHUTDOWN(3), 1), 1); /* its readers look for ours */
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
}

HELPER(own_producer) {
  struct outlet outlet = {0};
  char line[LINE_SIZE];
  cudalink_description description;
  gpu_start();
  outlet.name = option("name", "?");
  describe_rgba(&description, 16, 16);
  describe(&outlet, &description);
  outlet.stream = gpu_stream();
  int status = try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1});
  say("%s", cudalink_error_name(status));
  while (hear(line)) {
    CHECK_OK(give_after(&outlet, !strcmp(line, "hang") ? 60 * (uint64_t)SECOND : 0));
    if (strcmp(line, "hang")) CU(cuStreamSynchronize(outlet.stream));
    say("done");
  }
}

/* A killed outlet: its readers see nothing new, and its successor tells them to look for a new one. */
TEST(outlet_killed, 60) {
  gpu_start();
  const char *name = segment_name();
  struct process *first = process_start("own_producer", "name=%s", name);
  process_expect(first, "CUDALINK_OK");
  struct process *second = process_start("own_producer", "name=%s", name);
  process_expect(second, "CUDALINK_ERROR_NAME_IN_USE");
  process_kill(second);
  struct process *consumer = start_consumer(name);
  cudalink_importer importer;
  cudalink_frame frame;
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = name}));
  process_ask(first, "give");
  expect_taken(consumer, 1);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  process_ask(first, "hang");
  process_kill(first);
  CHECK(!strcmp(process_ask(consumer, "take"), "timeout"));
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 50 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  struct process *third = process_start("own_producer", "name=%s", name);
  process_expect(third, "CUDALINK_OK");
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_ENDED);
  CHECK(!strcmp(process_ask(consumer, "take"), "shutdown"));
  process_ask(third, "give");
  CHECK_EQUAL(line_number(process_ask(consumer, "take"), "version"), 2);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
  process_kill(third);
  process_finish(consumer);
  shm_unlink(name);
}

/* W18, F27: what a consumer maps when the format changes, or the exporter closes, stays for a while. */
TEST(outlet_memory_outlives_its_session, 60) {
  struct outlet outlet;
  cudalink_description description;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  size_t bytes = (size_t)FAKE_NUMBER(fakecuda_live_bytes);
  describe_rgba(&description, 32, 32);
  describe(&outlet, &description);
  give(&outlet);
  if (gpu_is_fake()) CHECK(FAKE_NUMBER(fakecuda_live_bytes) > bytes); /* both */
  CHECK(!strncmp(process_ask(consumer, "take"), "version", 7));       /* lets the old handles go */
  if (gpu_is_fake()) WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_bytes) <= bytes);
  expect_taken(consumer, 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  CHECK(!strcmp(process_ask(consumer, "take"), "shutdown"));
  process_finish(consumer);
}

/* A frame that can't be lent for its gaps leaves the readers of the frames before it alone. */
TEST(outlet_only_refuses_gaps_first, 60) {
  struct outlet outlet;
  cudalink_description gaps = {0}, dense;
  cudalink_slot slot;
  start(&outlet);
  dense = outlet.description;
  CHECK_OK(cudalink_describe_picture(&gaps, CUDALINK_FORMAT_RGBA8, 24, 4, 256));
  describe(&outlet, &gaps);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "without gaps");
  CHECK(!segment_exists(outlet.name));
  describe(&outlet, &dense);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  CHECK_STATUS(cudalink_exporter_begin(outlet.exporter, &gaps, 0, &slot),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "without gaps");
  CHECK(!strcmp(process_ask(consumer, "take"), "none"));
  give(&outlet);
  expect_taken(consumer, 2);
  CHECK_EQUAL(statistics_of(&outlet).generations, 1);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* F25, F37, F50: sizes and types change back and forth, each in a session of its own. */
TEST(outlet_format_changes_back_and_forth, 60) {
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  for (uint32_t i = 0; i < 12; i++) {
    cudalink_description description = {0};
    CHECK_OK(cudalink_describe_picture(&description,
                                       i % 3 ? CUDALINK_FORMAT_RGBA8 : CUDALINK_FORMAT_RGBA32F,
                                       16 + 16 * (i % 4), 16, 1));
    describe(&outlet, &description);
    give(&outlet);
    CHECK_EQUAL(line_number(expect_taken(consumer, 1), "version"), i + 2);
    CHECK(!strcmp(process_ask(consumer, "take"), "none"));
  }
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* W6: behind the last index there is a new session, and 0 never means a frame. */
TEST(outlet_counter_comes_to_its_end, 30) {
  struct outlet outlet;
  start(&outlet);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  struct process *consumer = start_consumer(outlet.name);
  give(&outlet);
  expect_taken(consumer, 1);
  struct link_exporter *exporter = link_table_lock(&link_exporters, outlet.exporter.id);
  exporter->outlet->index = UINT32_MAX - 1;
  link_object_unlock(exporter);
  give(&outlet);
  uint8_t *block = segment_map(outlet.name, NULL);
  CHECK_EQUAL(segment_get(block, AT_INDEX, 4), UINT32_MAX);
  outlet.frames = 0;
  give(&outlet);
  CHECK_EQUAL(line_number(expect_taken(consumer, 1), "version"), 2);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  process_finish(consumer);
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

TEST(outlet_specs_that_are_refused, 30) {
  struct outlet outlet;
  start(&outlet);
  int invalid = CUDALINK_ERROR_INVALID_ARGUMENT;
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_slots = 11}), invalid);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_name = "a/b"}), invalid);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_name = ".."}), invalid);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_name = ""}), invalid);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.kind = CUDALINK_KIND_HOST}), invalid);
  CHECK_CONTAINS(cudalink_last_error(), "GPU");
  CHECK_STATUS(
      try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1, .kind = CUDALINK_KIND_VMM}),
      invalid);
  CHECK_STATUS(try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1, .user_size = 8}),
               invalid);
  cudalink_exporter exporter;
  CHECK_STATUS(
      cudalink_exporter_open(
          &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "x",
                                               .description = &outlet.description, .cipd_only = 1}),
      invalid);
  CHECK(!segment_exists(outlet.name));
}

/* W19, F8: opening, or a new session, fails at each of its calls; nothing is left, and the name free. */
TEST(outlet_opening_fails_at_each_call, 60) {
  static const char *const entries[] = {"cuMemAlloc", "cuIpcGetMemHandle", "cuEventCreate",
                                        "cuIpcGetEventHandle", "cuStreamCreate"};
  struct outlet outlet;
  cudalink_description small, large;
  start(&outlet);
  if (!gpu_is_fake()) return;
  describe_rgba(&small, 16, 16);
  describe_rgba(&large, 32, 32);
  size_t handles = (size_t)FAKE_NUMBER(fakecuda_live_handles), failed = 0;
  for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
    for (unsigned nth = 1; nth <= 4; nth++) {
      FAKE(fakecuda_fail, entries[e], nth, CUDA_ERROR_OUT_OF_MEMORY);
      int status = try_open(&outlet, (cudalink_exporter_spec){.cipd_only = 1});
      FAKE(fakecuda_fail_clear);
      failed += status < 0;
      if (status < 0) CHECK(!segment_exists(outlet.name) && *cudalink_last_error());
      if (status == CUDALINK_OK) CHECK_OK(cudalink_exporter_close(outlet.exporter));
      WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) <= handles);
    }
  }
  CHECK(failed >= 12);
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  for (size_t e = 0; e < 4; e++) { /* beside our own wire: passed over, then tried again */
    describe(&outlet, &large);
    FAKE(fakecuda_fail, entries[e], 5 - (unsigned)e, CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t skipped = statistics_of(&outlet).cipd_skipped;
    give(&outlet);
    FAKE(fakecuda_fail_clear);
    uint64_t published = statistics_of(&outlet).cipd_published;
    if (statistics_of(&outlet).cipd_skipped > skipped)
      WAIT_UNTIL((give(&outlet), statistics_of(&outlet).cipd_published > published));
    describe(&outlet, &small);
    give(&outlet);
  }
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
}

/* ---- the activation barrier ------------------------------------------------------------------------------- */

#define BARRIER "cudalink_activation_barrier"
#define BARRIER_LIMIT 60 /* s */

static uint8_t *make_barrier(uint32_t magic, uint32_t count, uint64_t changed) {
  int fd = shm_open(BARRIER, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0);
  CHECK_EQUAL(ftruncate(fd, 64), 0);
  uint8_t *block = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  segment_put(block, 0, 4, magic);
  segment_put(block, 4, 4, 1);
  segment_put(block, 8, 4, count);
  segment_put(block, 16, 8, changed);
  return block;
}

/* The segment is the machine's, and no TouchDesigner runs on Linux. One that is older than this test may take is of
 * a run that was killed. */
static bool somebody_has_the_barrier(void) {
  struct stat info;
  if (stat("/dev/shm/" BARRIER, &info) < 0) return false;
  if (time(NULL) - info.st_mtime <= BARRIER_LIMIT) return true;
  shm_unlink(BARRIER);
  return false;
}

/* W28, F3. */
TEST(outlet_obeys_the_activation_barrier, BARRIER_LIMIT) {
  struct outlet outlet, only, deaf, hasty;
  if (somebody_has_the_barrier()) SKIP("another run has the activation barrier");
  start(&outlet);
  char second[80], third[80], fourth[80];
  snprintf(second, sizeof second, "%s-2", outlet.name);
  snprintf(third, sizeof third, "%s-3", outlet.name);
  snprintf(fourth, sizeof fourth, "%s-4", outlet.name);
  only = deaf = hasty = outlet;
  only.name = second;
  deaf.name = third;
  hasty.name = fourth;
  uint8_t *block = make_barrier(0xcda1baaa, 1, cudalink_now());
  CHECK_OK(try_open(&outlet, (cudalink_exporter_spec){0}));
  CHECK_OK(try_open(&only, (cudalink_exporter_spec){.cipd_only = 1}));
  CHECK_OK(try_open(&deaf, (cudalink_exporter_spec){.cipd_only = 1, .cipd_ignore_barrier = 1}));
  CHECK_OK(try_open(&hasty, (cudalink_exporter_spec){.cipd_only = 1, .cipd_barrier_limit = 1}));
  give(&outlet); /* our own wire is not held back */
  CHECK_EQUAL(statistics_of(&outlet).published, 1);
  CHECK_EQUAL(statistics_of(&outlet).cipd_published, 0);
  CHECK_EQUAL(statistics_of(&outlet).cipd_held_back, 1);
  CHECK_STATUS(give_after(&only, 0), CUDALINK_ERROR_BUSY);
  CHECK_CONTAINS(cudalink_last_error(), "TouchDesigner");
  CHECK_EQUAL(statistics_of(&only).cipd_held_back, 1);
  give(&deaf);
  CHECK_EQUAL(statistics_of(&deaf).cipd_held_back, 0);
  give(&hasty);
  CHECK_EQUAL(statistics_of(&hasty).cipd_held_back, 0);
  CHECK_EQUAL(statistics_of(&hasty).cipd_stale, 1);
  CHECK_EQUAL(segment_get(block, 24, 4), 2); /* the segment's own count of skips */
  segment_put(block, 16, 8, cudalink_now() - 6 * (uint64_t)SECOND); /* stale */
  give(&outlet);
  CHECK_EQUAL(statistics_of(&outlet).cipd_published, 1);
  CHECK_EQUAL(statistics_of(&outlet).cipd_stale, 1);
  segment_put(block, 8, 4, 0); /* nobody */
  give(&outlet);
  give(&only);
  CHECK_EQUAL(statistics_of(&outlet).cipd_published, 2);
  CHECK_EQUAL(statistics_of(&outlet).cipd_stale, 1);
  shm_unlink(BARRIER);
  block = make_barrier(0x11111111, 1, cudalink_now()); /* not a barrier at all */
  uint64_t end = cudalink_now() + 300 * (uint64_t)MILLISECOND;
  WAIT_UNTIL((give(&outlet), cudalink_now() > end));
  CHECK_EQUAL(statistics_of(&outlet).cipd_held_back, 1);
  CHECK_EQUAL(segment_get(block, 24, 4), 0);
  shm_unlink(BARRIER);
  CHECK_OK(cudalink_exporter_close(outlet.exporter));
  CHECK_OK(cudalink_exporter_close(only.exporter));
  CHECK_OK(cudalink_exporter_close(deaf.exporter));
  CHECK_OK(cudalink_exporter_close(hasty.exporter));
}
