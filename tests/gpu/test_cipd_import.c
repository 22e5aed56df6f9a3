/* SPDX-License-Identifier: MIT
 *
 * Our importer on the old wire, the original's producer as the other end. docs/old-wire.md says which
 * fault of the original each test is about.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "original.h"

#define NONE CUDALINK_STREAM_COMPLETE

static struct process *start_producer(const char *name, const char *format, ...) {
  char options[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(options, sizeof options, format, list);
  va_end(list);
  struct process *producer = process_start("old_producer", "name=%s %s", name, options);
  process_expect(producer, "open");
  return producer;
}

static cudalink_importer open_importer(const char *name, uint32_t wire, uint32_t hold) {
  cudalink_importer importer;
  CHECK_OK(cudalink_importer_open(&importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
                                                                       .name = name, .wire = wire,
                                                                       .hold = hold}));
  return importer;
}

static cudalink_importer_statistics statistics_of(cudalink_importer importer) {
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_importer_get_statistics(importer, &statistics));
  return statistics;
}

static uint64_t bytes_of(const cudalink_frame *frame) {
  uint64_t bytes;
  CHECK_OK(cudalink_description_bytes(&frame->description, &bytes));
  return bytes;
}

/* The words of a held frame that are not those of the pattern. */
static uint64_t wrong_words(const cudalink_frame *frame, uint64_t pattern, int expected) {
  uint64_t bytes = bytes_of(frame);
  void *pixels = malloc(bytes);
  CHECK_STATUS(cudalink_frame_to_host(frame, pixels, bytes), expected);
  uint64_t wrong = gpu_pattern_wrong(pixels, bytes, pattern);
  free(pixels);
  return wrong;
}

/* No frame comes, and once the segment was looked at that is why. */
static void expect_none_because(cudalink_importer importer, const char *part) {
  cudalink_frame frame;
  harness_waits(__FILE__, __LINE__, part);
  do
    CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 50 * MILLISECOND, &frame),
                 CUDALINK_ERROR_TIMEOUT);
  while (!strstr(cudalink_last_error(), part));
}

static void next_frame(cudalink_importer importer, cudalink_frame *frame) {
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 10 * SECOND, frame));
}

/* The next frame is whole, and is this one. */
static void expect_frame(cudalink_importer importer, uint64_t version, uint64_t index) {
  cudalink_frame frame;
  next_frame(importer, &frame);
  CHECK_EQUAL(wrong_words(&frame, original_pattern(version, index), CUDALINK_OK), 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
}

/* A producer with these options and an importer of its segment, whose name is returned. */
static const char *start_pair(const char *options, struct process **producer,
                              cudalink_importer *importer) {
  gpu_start();
  const char *name = segment_name();
  *producer = start_producer(name, "%s", options);
  *importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  return name;
}

static void finish(struct process *producer, cudalink_importer importer) {
  CHECK_OK(cudalink_importer_close(importer));
  process_ask(producer, "stop");
  process_finish(producer);
}

/* Whoever waits for a producer that was joined already is content with that session. */
TEST(old_producer_is_waited_for_twice, 60) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("", &producer, &importer);
  process_ask(producer, "frames 1");
  for (int i = 0; i < 3; i++)
    CHECK_OK(cudalink_importer_wait_producer(importer, 10 * SECOND));
  CHECK_EQUAL(statistics_of(importer).generations, 1);
  expect_frame(importer, 1, 1);
  finish(producer, importer);
}

/* ---- types, slots, formats --------------------------------------------------------------------------- */

static void check_description(const cudalink_frame *frame, const struct original_type *type,
                              unsigned comps, unsigned flags) {
  const cudalink_plane *plane = &frame->description.planes[0];
  CHECK_EQUAL(frame->description.plane_count, 1);
  CHECK_EQUAL(plane->dtype.code, type->code);
  CHECK_EQUAL(plane->dtype.bits, type->bits);
  CHECK_EQUAL(plane->shape[0], 6);
  CHECK_EQUAL(plane->shape[1], 8);
  CHECK_EQUAL(plane->dimensions == 3 ? plane->shape[2] : 1, comps);
  CHECK_EQUAL(bytes_of(frame), 8 * 6 * comps * (type->bits / 8));
  CHECK_EQUAL(frame->description.picture.format == CUDALINK_FORMAT_BGRA8, (flags & 4) != 0);
  CHECK_EQUAL(frame->description.picture.alpha == CUDALINK_ALPHA_STRAIGHT,
              (flags & 2) && frame->description.picture.format);
}

/* Each change is a new version in the same segment. */
TEST(old_types_and_channels, 60) {
  gpu_start();
  const char *name = segment_name();
  struct process *producer = start_producer(name, "");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 1);
  uint64_t version = 1;
  for (int t = 0; t < ORIGINAL_TYPES; t++) {
    for (unsigned comps = 1; comps <= 4; comps++) {
      const struct original_type *type = &original_types[t];
      cudalink_frame frame;
      unsigned flags = type->flag | (comps == 2 ? 2u : 0u) |
                       (comps == 4 && type->kind == 1 && type->bits == 8 ? 4u : 0u);
      process_ask(producer, "format 8 6 %u %u %u %u", comps, type->kind, type->bits, flags);
      process_ask(producer, "frames 2");
      version++;
      next_frame(importer, &frame);
      CHECK_EQUAL(frame.device, CUDALINK_DEVICE(0));
      check_description(&frame, type, comps, flags);
      CHECK_EQUAL(wrong_words(&frame, original_pattern(version, 2), CUDALINK_OK), 0);
      CHECK_OK(cudalink_frame_release(&frame, NONE));
    }
  }
  cudalink_importer_statistics statistics = statistics_of(importer);
  CHECK_EQUAL(statistics.sessions, 1);
  CHECK_EQUAL(statistics.generations, version);
  CHECK_EQUAL(statistics.kind, CUDALINK_KIND_IPC);
  CHECK_CONTAINS(statistics.path, "cipd");
  finish(producer, importer);
}

TEST(old_slots_1_to_10, 60) {
  gpu_start();
  for (unsigned slots = 1; slots <= 10; slots++) {
    const char *name = segment_name();
    struct process *producer = start_producer(name, "slots=%u", slots);
    cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
    /* With one slot no frame can be proven, with others each. */
    int expected = slots == 1 ? CUDALINK_ERROR_OVERWRITTEN : CUDALINK_OK;
    for (unsigned i = 1; i <= 2 * slots + 1; i++) {
      cudalink_frame frame;
      process_ask(producer, "frames 1");
      next_frame(importer, &frame);
      CHECK_EQUAL(frame.slot, (i - 1) % slots);
      CHECK_EQUAL(frame.sequence, i);
      CHECK_EQUAL(wrong_words(&frame, original_pattern(1, i), expected), 0);
      CHECK_STATUS(cudalink_frame_release(&frame, NONE), expected);
    }
    finish(producer, importer);
  }
}

/* F1: a format of zeros is waited for, never guessed. */
TEST(old_format_of_zeros_is_waited_for, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  struct process *producer = start_producer(name, "");
  uint8_t saved[20];
  uint8_t *block = segment_map(name, NULL);
  memcpy(saved, block + AT_WIDTH(3), sizeof saved);
  memset(block + AT_WIDTH(3), 0, sizeof saved);
  process_ask(producer, "frames 1");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 60 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  memcpy(block + AT_WIDTH(3), saved, sizeof saved);
  expect_frame(importer, 1, 1);
  finish(producer, importer);
}

/* A slot without an event is complete when it is published. */
TEST(old_slots_without_events, 30) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("eventless=1", &producer, &importer);
  for (unsigned i = 1; i <= 5; i++) {
    process_ask(producer, "frames 1");
    expect_frame(importer, 1, i);
  }
  finish(producer, importer);
}

/* Memory that is no multiple of 2 MiB, as the C++ producers have it. */
TEST(old_memory_of_exact_size, 30) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("exact=1", &producer, &importer);
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 1);
  finish(producer, importer);
}

/* W8, W9, W10, F57, F62: versions that are seen before handles and format, again and again, while
 * frames are taken. No frame is another's, and none of a new session is missed. */
TEST(old_weak_order_of_beginning, 60) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("weak=1", &producer, &importer);
  for (unsigned round = 2; round <= 40; round++) {
    cudalink_frame frame;
    unsigned width = 8 + 8 * (round % 5);
    process_tell(producer, "format %u 16 4 1 8 0", width);
    while (!process_has_line(producer)) {
      int status = cudalink_importer_acquire(importer, NONE, 0, &frame);
      CHECK(status == CUDALINK_ERROR_TIMEOUT);
    }
    process_hear(producer);
    process_ask(producer, "frames 1");
    next_frame(importer, &frame);
    CHECK_EQUAL(frame.description.picture.width, width);
    CHECK_EQUAL(wrong_words(&frame, original_pattern(round, 1), CUDALINK_OK), 0);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  finish(producer, importer);
}

/* ---- the proof ----------------------------------------------------------------------------------------- */

/* W1: N - 2 newer frames leave a frame alone for certain, one more does not. */
TEST(old_overwritten_is_told, 60) {
  gpu_start();
  for (unsigned slots = 2; slots <= 5; slots++) {
    const char *name = segment_name();
    struct process *producer = start_producer(name, "slots=%u", slots);
    cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
    cudalink_frame frame;
    process_ask(producer, "frames 1");
    next_frame(importer, &frame);
    process_ask(producer, "frames %u", slots - 2);
    CHECK_EQUAL(wrong_words(&frame, original_pattern(1, 1), CUDALINK_OK), 0);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
    process_ask(producer, "frames 1");
    next_frame(importer, &frame);
    CHECK_EQUAL(statistics_of(importer).overwritten, 0);
    process_ask(producer, "frames %u", slots - 1);
    wrong_words(&frame, 0, CUDALINK_ERROR_OVERWRITTEN);
    CHECK_STATUS(cudalink_frame_release(&frame, NONE), CUDALINK_ERROR_OVERWRITTEN);
    CHECK_CONTAINS(cudalink_last_error(), "may have been overwritten");
    CHECK_EQUAL(frame.lease, 0);
    CHECK_EQUAL(statistics_of(importer).overwritten, 1); /* a frame, however often it was told */
    finish(producer, importer);
  }
}

/* The copy does not end with the driver's call then, and is waited for; no default stream has it. */
TEST(old_frames_to_pinned_memory, 60) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("width=64 height=64", &producer, &importer);
  cudalink_frame frame;
  void *pixels = gpu_memory(GPU_MEMORY_PINNED, 64 * 64 * 4, gpu_stream());
  FAKE(fakecuda_set_delay, 2000);
  for (uint64_t i = 1; i <= 20; i++) {
    process_ask(producer, "frames 1");
    next_frame(importer, &frame);
    uint64_t legacy = FAKE_NUMBER(fakecuda_legacy_operations);
    memset(pixels, 0, 64 * 64 * 4);
    CHECK_OK(cudalink_frame_to_host(&frame, pixels, bytes_of(&frame)));
    CHECK_EQUAL(gpu_pattern_wrong(pixels, bytes_of(&frame), original_pattern(1, i)), 0);
    CHECK_EQUAL(FAKE_NUMBER(fakecuda_legacy_operations), legacy);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  finish(producer, importer);
}

/* W1, W2: a producer at full speed. Whatever is not OVERWRITTEN is whole, and some are OVERWRITTEN:
 * the pixels of a lapped frame were found changed. */
static void read_from_fast_producer(bool by_stream) {
  gpu_start();
  const char *name = segment_name();
  struct process *producer = start_producer(name, "slots=8 width=256 height=256 pause=2000000");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 2);
  CUstream stream = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  uint64_t proven = 0, overwritten = 0, torn = 0;
  const uint8_t *block = segment_map(name, NULL);
  process_tell(producer, "run");
  while (proven < 100 || overwritten < 40) {
    cudalink_frame frame;
    next_frame(importer, &frame);
    uint64_t pattern = original_pattern(1, frame.sequence), before, after;
    before = gpu_counts_read(counts, stream).wrong;
    uint64_t until = frame.sequence + random_below(12);
    if (random_below(3) == 0) /* be slow now and then */
      WAIT_UNTIL(segment_get(block, AT_INDEX, 4) > until);
    gpu_check(stream, frame.data, bytes_of(&frame), pattern, 0, counts);
    after = gpu_counts_read(counts, stream).wrong; /* synchronises */
    int status = cudalink_frame_release(&frame, by_stream ? ON(stream) : NONE);
    if (status != CUDALINK_ERROR_OVERWRITTEN) CHECK_OK(status);
    if (status == CUDALINK_OK) CHECK_EQUAL(after - before, 0);
    if (status == CUDALINK_OK)
      proven++;
    else
      overwritten++;
    torn += after != before;
  }
  process_tell(producer, "enough");
  process_hear(producer);
  printf("  %" PRIu64 " proven, %" PRIu64 " overwritten, %" PRIu64 " of them found torn\n", proven,
         overwritten, torn);
  CHECK(statistics_of(importer).missed > 0); /* W7: skipped frames are counted */
  finish(producer, importer);
}
TEST(old_fast_producer, 120) { read_from_fast_producer(false); }
TEST(old_fast_producer_release_by_stream, 120) { read_from_fast_producer(true); }

/* A release that is left to a stream is proven when the stream has come so far, and counted. */
TEST(old_release_by_stream_is_proven_later, 30) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("", &producer, &importer);
  CUstream stream = gpu_stream();
  CUdeviceptr counts = gpu_counts_make();
  cudalink_frame frame;
  process_ask(producer, "frames 1");
  CHECK_OK(cudalink_importer_acquire(importer, ON(stream), 10 * SECOND, &frame));
  gpu_check(stream, frame.data, bytes_of(&frame), original_pattern(1, 1), 300 * MILLISECOND,
            counts);
  CHECK_OK(cudalink_frame_release(&frame, ON(stream)));
  process_ask(producer, "frames 5");
  CU(cuStreamSynchronize(stream));
  CHECK_EQUAL(statistics_of(importer).overwritten, 0);
  next_frame(importer, &frame);
  CHECK_EQUAL(statistics_of(importer).overwritten, 1);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  /* Closing under a stream that still reads keeps the memory until it has ended. */
  process_ask(producer, "frames 1");
  CHECK_OK(cudalink_importer_acquire(importer, ON(stream), 10 * SECOND, &frame));
  gpu_check(stream, frame.data, bytes_of(&frame), original_pattern(1, 7), 300 * MILLISECOND,
            counts);
  CHECK_OK(cudalink_frame_release(&frame, ON(stream)));
  CHECK_OK(cudalink_importer_close(importer));
  CU(cuStreamSynchronize(stream));
  process_ask(producer, "stop");
  process_finish(producer);
}

/* W3, F12: a wait that runs out of time loses no frame, and a newer counter is not taken for ready. */
TEST(old_pending_frame_is_not_ready, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  CUstream stream = gpu_stream();
  struct process *producer = start_producer(name, "");
  cudalink_importer importer;
  CHECK_OK(cudalink_importer_open(&importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
                                                                       .name = name, .gpu_wait = 1,
                                                                       .open_timeout = 0}));
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 1);
  process_ask(producer, "hang");
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_TIMEOUT);
  uint64_t start = cudalink_now();
  CHECK_STATUS(cudalink_importer_acquire(importer, ON(stream), 50 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_CONTAINS(cudalink_last_error(), "frame 2");
  CHECK(cudalink_now() - start < 5 * (uint64_t)SECOND);
  CHECK_EQUAL(cuda->cuStreamQuery(stream), CUDA_SUCCESS); /* W37: nothing waits on it */
  /* W24: killed in the middle of it: a time-out again, for COMPLETE and for a stream. */
  process_kill(producer);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 50 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_STATUS(cudalink_importer_acquire(importer, ON(stream), 50 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_EQUAL(cuda->cuStreamQuery(stream), CUDA_SUCCESS);
  /* Its successor takes the segment over, as the original does. */
  producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  expect_frame(importer, 2, 1);
  finish(producer, importer);
}

TEST(old_frames_that_were_missed_are_counted, 30) {
  struct process *producer;
  cudalink_importer importer;
  cudalink_frame frame;
  start_pair("", &producer, &importer);
  process_ask(producer, "frames 4");
  next_frame(importer, &frame);
  CHECK_EQUAL(frame.missed, 0); /* before its time */
  uint64_t now = cudalink_now();
  CHECK(frame.timestamp <= now && now - frame.timestamp < 20 * (uint64_t)SECOND);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  process_ask(producer, "frames 5");
  next_frame(importer, &frame);
  CHECK_EQUAL(frame.missed, 4);
  CHECK_EQUAL(statistics_of(importer).missed, 4);
  CHECK_EQUAL(statistics_of(importer).held, 1);
  cudalink_frame more;
  process_ask(producer, "frames 1");
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &more), CUDALINK_ERROR_BUSY);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  finish(producer, importer);
}

/* ---- ends and beginnings ------------------------------------------------------------------------------ */

/* W17: told once; then the next producer is looked for. */
TEST(old_shutdown_is_told_once, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame, held;
  struct process *producer = start_producer(name, "");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 2);
  process_ask(producer, "frames 1");
  next_frame(importer, &held);
  process_ask(producer, "stop");
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_ENDED);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 50 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  /* W22: what is held stays mapped; that it is whole can't be known any more. */
  CHECK_EQUAL(wrong_words(&held, original_pattern(1, 1), CUDALINK_ERROR_OVERWRITTEN), 0);
  CHECK_STATUS(cudalink_frame_release(&held, NONE), CUDALINK_ERROR_OVERWRITTEN);
  process_finish(producer);
  producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 1);
  CHECK_EQUAL(statistics_of(importer).sessions, 2);
  finish(producer, importer);
}

/* A segment whose shutdown is set was left behind. */
TEST(old_stale_segment_is_no_producer, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  process_ask(producer, "poke %u 1 1", AT_SHUTDOWN(3));
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  for (int i = 0; i < 2; i++)
    CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 60 * MILLISECOND, &frame),
                 CUDALINK_ERROR_TIMEOUT);
  process_ask(producer, "frames 1"); /* clears it */
  expect_frame(importer, 1, 2);
  finish(producer, importer);
}

/* W24, W26: a producer is killed, its name removed, another one made: followed without a word. */
TEST(old_segment_is_replaced, 30) {
  struct process *producer;
  cudalink_importer importer;
  const char *name = start_pair("", &producer, &importer);
  process_ask(producer, "frames 7");
  expect_frame(importer, 1, 7);
  process_kill(producer);
  shm_unlink(name);
  producer = start_producer(name, "slots=5"); /* W9: another number of slots, too */
  process_ask(producer, "frames 7");          /* W10: the same counter */
  expect_frame(importer, 1, 7);
  CHECK_EQUAL(statistics_of(importer).sessions, 2);
  /* The same while a frame is pending that never comes. */
  process_ask(producer, "hang");
  cudalink_frame frame;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_TIMEOUT);
  process_kill(producer);
  shm_unlink(name);
  producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  int status;
  do
    status = cudalink_importer_acquire(importer, NONE, 50 * MILLISECOND, &frame);
  while (status == CUDALINK_ERROR_TIMEOUT);
  CHECK_OK(status);
  CHECK_EQUAL(wrong_words(&frame, original_pattern(1, 1), CUDALINK_OK), 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  finish(producer, importer);
}

/* The segment of a killed producer, whose handles lead nowhere, is like no producer. */
TEST(old_segment_of_a_dead_producer, 30) {
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver may keep a dead process's memory for a while */
  const char *name = segment_name();
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  process_kill(producer);
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  expect_none_because(importer, "there is a segment, but not its memory");
  CHECK_OK(cudalink_importer_close(importer));
  shm_unlink(name);
}

TEST(old_once_stays_with_the_first, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  struct process *producer = start_producer(name, "");
  cudalink_importer importer;
  process_ask(producer, "frames 1");
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = name, .once = 1,
                                           .open_timeout = 10 * SECOND}));
  expect_frame(importer, 1, 1);
  process_ask(producer, "format 8 8 4 1 8 0"); /* the same one */
  process_ask(producer, "frames 1");
  expect_frame(importer, 2, 1);
  process_ask(producer, "stop");
  process_finish(producer);
  producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  for (int i = 0; i < 3; i++)
    CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 60 * MILLISECOND, &frame),
                 CUDALINK_ERROR_ENDED);
  CHECK_EQUAL(statistics_of(importer).connection, CUDALINK_CONNECTION_OVER);
  finish(producer, importer);
}

/* W6: the counter went around, or back, in one version. */
TEST(old_counter_goes_back, 30) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("", &producer, &importer);
  process_ask(producer, "frames 5");
  expect_frame(importer, 1, 5);
  process_ask(producer, "poke %u 4 1", AT_INDEX);
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 2);
  process_ask(producer, "poke %u 4 %u", AT_INDEX, UINT32_MAX);
  cudalink_frame frame;
  int status = cudalink_importer_acquire(importer, NONE, 50 * MILLISECOND, &frame);
  if (status == CUDALINK_OK) cudalink_frame_release(&frame, NONE);
  process_ask(producer, "poke %u 4 0", AT_INDEX);
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 1);
  finish(producer, importer);
}

/* ---- hostile segments ------------------------------------------------------------------------------- */

static void poked(struct process *producer, const char *name, unsigned at, unsigned bytes,
                  uint64_t value, int expected, const char *part) {
  cudalink_frame frame;
  uint8_t *block = segment_map(name, NULL);
  uint64_t before = segment_get(block, at, bytes);
  segment_put(block, at, bytes, value);
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  uint64_t began = cudalink_now();
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame), expected);
  CHECK_CONTAINS(cudalink_last_error(), part);
  /* Told once, then looked at again slowly, each half second, without an end to the patience. */
  int status = cudalink_importer_acquire(importer, NONE, 20 * MILLISECOND, &frame);
  if (cudalink_now() - began < SECOND / 2) CHECK_STATUS(status, CUDALINK_ERROR_TIMEOUT);
  segment_put(block, at, bytes, before);
  if (at != AT_MAGIC) { /* the same one goes on, too, but that takes half a second each */
    CHECK_OK(cudalink_importer_close(importer));
    importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  }
  int64_t index = line_number(process_ask(producer, "frames 1"), "index");
  expect_frame(importer, 1, (uint64_t)index);
  CHECK_OK(cudalink_importer_close(importer));
  munmap(block, ORIGINAL_BYTES(3));
}

/* W12, W14, W15, W33, W34, W38, F30, F49, F63, F64: each field is checked before it is used. */
TEST(old_hostile_fields, 60) {
  gpu_start();
  const char *name = segment_name();
  int protocol = CUDALINK_ERROR_PROTOCOL;
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  poked(producer, name, AT_MAGIC, 4, 0x12345678, protocol, "starts with");
  poked(producer, name, AT_MAGIC, 4, 0x43495043, CUDALINK_ERROR_VERSION, "older than 1.0.0");
  poked(producer, name, AT_SLOTS, 4, 0, protocol, "num_slots is 0");
  poked(producer, name, AT_SLOTS, 4, 65, protocol, "num_slots is 65");
  poked(producer, name, AT_SLOTS, 4, 0xffffffff, protocol, "num_slots");
  poked(producer, name, AT_SLOTS, 4, 4, protocol, "takes 561 bytes");
  poked(producer, name, AT_WIDTH(3), 4, 0, protocol, "width 0");
  poked(producer, name, AT_HEIGHT(3), 4, 17, protocol, "data_size");
  poked(producer, name, AT_WIDTH(3), 4, 0x40000010, protocol, "data_size");
  poked(producer, name, AT_COMPS(3), 4, 5, protocol, "num_comps 5");
  poked(producer, name, AT_KIND(3), 1, 3, protocol, "no element type");
  poked(producer, name, AT_BITS(3), 1, 64, protocol, "no element type");
  poked(producer, name, AT_SIZE(3), 4, 16 * 16 * 4 + 1, protocol, "data_size");
  process_ask(producer, "stop");
  process_finish(producer);
}

/* W38: dimensions that agree with each other, but not with the memory behind the handle. */
TEST(old_sizes_beyond_the_memory, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  struct process *producer = start_producer(name, "");
  uint8_t *block = segment_map(name, NULL);
  process_ask(producer, "frames 1");
  segment_put(block, AT_WIDTH(3), 4, 1024);
  segment_put(block, AT_HEIGHT(3), 4, 1024);
  segment_put(block, AT_SIZE(3), 4, 4u << 20); /* the slots have 2 MiB */
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_PROTOCOL);
  CHECK_CONTAINS(cudalink_last_error(), "4194304 bytes");
  finish(producer, importer);
}

/* W15: handles of zeros and of garbage. */
TEST(old_hostile_handles, 30) {
  gpu_start();
  if (!gpu_is_fake()) return; /* what a real driver makes of garbage is its own business */
  const char *name = segment_name();
  cudalink_frame frame;
  struct process *producer = start_producer(name, "");
  uint8_t *block = segment_map(name, NULL);
  process_ask(producer, "frames 1");
  uint8_t saved[64];
  memcpy(saved, block + AT_MEMORY(1), 64);
  memset(block + AT_MEMORY(1), 0, 64);
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_PROTOCOL);
  CHECK_CONTAINS(cudalink_last_error(), "no memory handle");
  memset(block + AT_MEMORY(1), 0x5a, 64);
  memcpy(block + AT_MEMORY(1) + 32, saved + 32, 8);
  expect_none_because(importer, "not its memory");
  memcpy(block + AT_MEMORY(1), saved, 64);
  expect_frame(importer, 1, 1);
  finish(producer, importer);
}

/* W39: whoever only reads can't spoil the producer's fields. */
TEST(old_segment_is_mapped_for_reading, 30) {
  gpu_start();
  const char *name = segment_name();
  char line[LINE_SIZE];
  int mappings = 0;
  cudalink_frame frame;
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  next_frame(importer, &frame);
  FILE *file = fopen("/proc/self/maps", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (!strstr(line, name)) continue;
    CHECK_CONTAINS(line, " r--s ");
    mappings++;
  }
  fclose(file);
  CHECK(mappings > 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  finish(producer, importer);
}

/* W40: something else under that name: another program's, another kind of file, nothing in it. */
TEST(old_name_is_something_else, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 60 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT); /* empty: it may be starting */
  CHECK_EQUAL(ftruncate(fd, 10), 0);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_PROTOCOL);
  CHECK_CONTAINS(cudalink_last_error(), "too few");
  CHECK_OK(cudalink_importer_close(importer));
  close(fd);
  shm_unlink(name);
  char path[96];
  snprintf(path, sizeof path, "/dev/shm/%s", name);
  CHECK_EQUAL(mkfifo(path, 0600), 0);
  importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_REFUSED);
  CHECK_OK(cudalink_importer_close(importer));
  unlink(path);
}

/* ---- choosing, options, waiting ------------------------------------------------------------------------ */

TEST(old_options_that_it_has_not, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_frame frame;
  cudalink_importer importer;
  int invalid = CUDALINK_ERROR_INVALID_ARGUMENT;
#define OPEN(...)                                                                                  \
  cudalink_importer_open(                                                                          \
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = name, __VA_ARGS__})
  CHECK_STATUS(OPEN(.wire = 3), invalid);
  CHECK_STATUS(OPEN(.wire = CUDALINK_WIRE_CIPD, .policy = CUDALINK_POLICY_EVERY), invalid);
  CHECK_STATUS(OPEN(.wire = CUDALINK_WIRE_CIPD, .isolated = 1), invalid);
  CHECK_STATUS(OPEN(.wire = CUDALINK_WIRE_CIPD, .writable = 1), invalid);
  CHECK_STATUS(cudalink_importer_open(
                   &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a/b",
                                                        .wire = CUDALINK_WIRE_CIPD}),
               invalid);
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  CHECK_OK(OPEN(.policy = CUDALINK_POLICY_IN_ORDER));
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "policy LATEST");
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(OPEN(.wire = CUDALINK_WIRE_OWN)); /* never looks at it */
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 60 * MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(OPEN(.wire = CUDALINK_WIRE_CIPD, .gpu_wait = 1));
  CHECK_STATUS(cudalink_importer_wait_next(importer, ON(gpu_stream()), 0, &frame),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_STATUS(cudalink_importer_acquire(importer, (cudalink_stream){0}, 0, &frame),
               CUDALINK_ERROR_STREAM);
  finish(producer, importer);
}

TEST(old_hold_and_leases, 30) {
  gpu_start();
  const char *name = segment_name();
  struct process *producer = start_producer(name, "slots=6");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 2);
  cudalink_frame one, two, three;
  uint32_t flags = 77;
  process_ask(producer, "frames 1");
  next_frame(importer, &one);
  process_ask(producer, "frames 1");
  next_frame(importer, &two);
  process_ask(producer, "frames 1");
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 20 * MILLISECOND, &three),
               CUDALINK_ERROR_BUSY);
  CHECK_OK(cudalink_frame_flags(&one, &flags));
  CHECK_EQUAL(flags, 0);
  cudalink_frame copy = one;
  CHECK_OK(cudalink_frame_release(&one, NONE));
  CHECK_STATUS(cudalink_frame_release(&copy, NONE), CUDALINK_ERROR_INVALID_ARGUMENT);
  next_frame(importer, &three);
  CHECK_STATUS(cudalink_frame_release(&copy, NONE), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_EQUAL(wrong_words(&two, original_pattern(1, 2), CUDALINK_OK), 0); /* after close, too */
  CHECK_OK(cudalink_frame_release(&two, NONE));
  CHECK_OK(cudalink_frame_release(&three, NONE));
  process_ask(producer, "stop");
  process_finish(producer);
}

/* A hold on an old frame, used on two streams: given back behind both. */
TEST(old_holds_behind_several_streams, 30) {
  struct process *producer;
  cudalink_importer importer;
  start_pair("slots=4", &producer, &importer);
  CUstream streams[2] = {gpu_stream(), gpu_stream()};
  CUdeviceptr counts = gpu_counts_make();
  cudalink_frame frame;
  cudalink_hold *hold;
  void *memory;
  CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  _Atomic int *gate = memory;
  atomic_store(gate, 0);
  process_ask(producer, "frames 1");
  for (int late = 0; late < 2; late++) { /* which of the two is the slower one */
    next_frame(importer, &frame);
    uint64_t pattern = original_pattern(1, frame.sequence), bytes = bytes_of(&frame);
    void *data = frame.data;
    CHECK_OK(cudalink_frame_wait(&frame, ON(streams[0])));
    CHECK_OK(cudalink_frame_wait(&frame, NONE));
    CHECK_OK(cudalink_hold_take(&hold, &frame));
    for (int s = 0; s < 2; s++) {
      CHECK_OK(cudalink_hold_use(hold, ON(streams[s])));
      if (s == late)
        CU(cuStreamWaitValue32(streams[s], (CUdeviceptr)(uintptr_t)gate, (cuuint32_t)late + 1,
                               CU_STREAM_WAIT_VALUE_GEQ));
      gpu_check(streams[s], data, bytes, pattern, 0, counts);
    }
    cudalink_hold_drop(hold);
    process_ask(producer, "frames 1");
    CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_BUSY);
    CHECK_EQUAL(cuda->cuStreamQuery(streams[late]), CUDA_ERROR_NOT_READY);
    atomic_store(gate, late + 1);
  }
  next_frame(importer, &frame); /* once both have come so far */
  CHECK_EQUAL(cuda->cuStreamQuery(streams[1]), CUDA_SUCCESS);
  CHECK_EQUAL(gpu_counts_read(counts, streams[0]).wrong, 0);
  CHECK_OK(cudalink_hold_take(&hold, &frame));
  cudalink_hold_drop(hold); /* at once */
  CHECK_EQUAL(statistics_of(importer).held, 0);
  CHECK_EQUAL(statistics_of(importer).overwritten, 0);
  finish(producer, importer);
}

/* Our channel goes first, also when it comes later. */
TEST(old_wire_comes_second, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_exporter exporter;
  cudalink_description description;
  cudalink_frame frame;
  cudalink_slot slot;
  struct process *producer = start_producer(name, "");
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  process_ask(producer, "frames 1");
  expect_frame(importer, 1, 1);
  describe_rgba(&description, 32, 32);
  CHECK_OK(cudalink_exporter_open(&exporter,
                                  &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                            .name = name, .kind = CUDALINK_KIND_VMM,
                                                            .description = &description}));
  CHECK_OK(cudalink_exporter_wait_consumers(exporter, 1, 10 * SECOND));
  process_ask(producer, "frames 1");
  CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish(exporter, &slot, NONE));
  next_frame(importer, &frame);
  if (frame.kind == CUDALINK_KIND_IPC) { /* it was joined a moment later */
    CHECK_OK(cudalink_frame_release(&frame, NONE));
    next_frame(importer, &frame);
  }
  CHECK_EQUAL(frame.kind, CUDALINK_KIND_VMM);
  process_ask(producer, "frames 1"); /* nobody looks at it now */
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  cudalink_frame none;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 20 * MILLISECOND, &none),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_OK(cudalink_exporter_close(exporter));
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_ENDED);
  process_ask(producer, "frames 1"); /* now it is the old one's turn again */
  expect_frame(importer, 1, 4);
  finish(producer, importer);
}

struct sleeper {
  pthread_t thread;
  cudalink_importer importer;
  int status;
};
static void *sleep_in_acquire(void *argument) {
  struct sleeper *sleeper = argument;
  cudalink_frame frame;
  sleeper->status = cudalink_importer_acquire(sleeper->importer, NONE, CUDALINK_FOREVER, &frame);
  return NULL;
}

/* Who waits in acquire is woken by close, on a session and without one, and while pixels are awaited. */
TEST(old_close_wakes, 30) {
  gpu_start();
  const char *name = segment_name();
  struct process *producer = start_producer(name, "");
  for (int i = 0; i < 3; i++) {
    struct sleeper sleeper = {.importer = open_importer(name, CUDALINK_WIRE_CIPD, 1)};
    if (i == 1) {
      process_ask(producer, "frames 1");
      expect_frame(sleeper.importer, 1, 1);
    }
    if (i == 2) process_ask(producer, "hang");
    CHECK_EQUAL(pthread_create(&sleeper.thread, NULL, sleep_in_acquire, &sleeper), 0);
    harness_pause(random_below(30000));
    CHECK_OK(cudalink_importer_close(sleeper.importer));
    CHECK_EQUAL(pthread_join(sleeper.thread, NULL), 0);
    CHECK_EQUAL(sleeper.status, CUDALINK_ERROR_CLOSED);
  }
  process_kill(producer);
  shm_unlink(name);
}

/* The descriptor becomes readable for a producer that comes, a frame, an end. */
TEST(old_descriptor, 30) {
  gpu_start();
  const char *name = segment_name();
  cudalink_importer importer = open_importer(name, CUDALINK_WIRE_AUTO, 1);
  struct pollfd wait = {.events = POLLIN};
  cudalink_frame frame;
  CHECK_OK(cudalink_importer_descriptor(importer, &wait.fd));
  CHECK_OK(cudalink_importer_arm(importer));
  CHECK_EQUAL(poll(&wait, 1, 0), 0);
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  CHECK_EQUAL(poll(&wait, 1, 10000), 1);
  CHECK_STATUS(cudalink_importer_arm(importer), CUDALINK_ERROR_BUSY);
  expect_frame(importer, 1, 1);
  CHECK_OK(cudalink_importer_arm(importer));
  CHECK_EQUAL(poll(&wait, 1, 0), 0);
  process_ask(producer, "frames 1");
  CHECK_EQUAL(poll(&wait, 1, 10000), 1);
  expect_frame(importer, 1, 2);
  CHECK_OK(cudalink_importer_arm(importer));
  process_ask(producer, "stop");
  CHECK_EQUAL(poll(&wait, 1, 10000), 1);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_ENDED);
  CHECK_OK(cudalink_importer_close(importer));
  process_finish(producer);
}

/* F8, F59: opening fails at each of its driver calls, and nothing is left open. */
TEST(old_opening_fails_at_each_call, 60) {
  static const char *const entries[] = {"cuIpcOpenMemHandle", "cuIpcOpenEventHandle",
                                        "cuMemGetAddressRange"};
  gpu_start();
  if (!gpu_is_fake()) return;
  const char *name = segment_name();
  struct process *producer = start_producer(name, "");
  process_ask(producer, "frames 1");
  for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
    for (unsigned nth = 1; nth <= 3; nth++) {
      cudalink_frame frame;
      cudalink_importer importer = open_importer(name, CUDALINK_WIRE_CIPD, 1);
      size_t handles = (size_t)FAKE_NUMBER(fakecuda_live_handles);
      FAKE(fakecuda_fail, entries[e], nth, CUDA_ERROR_UNKNOWN);
      CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_TIMEOUT);
      CHECK_CONTAINS(cudalink_last_error(), "not its memory");
      FAKE(fakecuda_fail_clear);
      next_frame(importer, &frame);
      CHECK_OK(cudalink_frame_release(&frame, NONE));
      CHECK_OK(cudalink_importer_close(importer));
      WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) <= handles);
    }
  }
  process_ask(producer, "stop");
  process_finish(producer);
}
