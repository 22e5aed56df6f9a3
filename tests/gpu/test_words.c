/* SPDX-License-Identifier: MIT
 *
 * The ways in which streams reach words in shared memory: 64-bit memory operations, 32-bit ones, host
 * functions. The first two need a driver that lacks something, which only the fake one does. Suite
 * gpu-drivers runs the other tests in each way.
 */
#include "gpu.h"
#include "link/exporter.h"

#define NARROW "122=0"
#define NONE "cuStreamWriteValue32:0:801,cuStreamWaitValue32:0:801,cuStreamBatchMemOp:0:801"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream producer, consumer;
  CUdeviceptr counts;
};

static void start_with(const char *attributes, const char *fail) {
  setenv("FAKECUDA_ATTRIBUTES", attributes, 1);
  setenv("FAKECUDA_FAIL", fail, 1);
  gpu_start();
}

static void open_channel(struct channel *channel) {
  describe_rgba(&channel->description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  channel->producer = gpu_stream();
  channel->consumer = gpu_stream();
  channel->counts = gpu_counts_make();
  CHECK_OK(cudalink_exporter_open(
      &channel->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &channel->description}));
  CHECK_OK(cudalink_importer_open(
      &channel->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                    .gpu_wait = 1, .open_timeout = 10 * SECOND}));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

/* As if so many frames had been published before. */
static void begin_at(const struct channel *channel, uint64_t sequence) {
  struct link_exporter *exporter = link_table_lock(&link_exporters, channel->exporter.id);
  exporter->last_sequence = sequence - 1;
  link_object_unlock(exporter);
}

static uint64_t announced_by(const struct channel *channel) {
  struct link_exporter *exporter = link_table_lock(&link_exporters, channel->exporter.id);
  uint64_t sequence = exporter->announced ? exporter->begun_sequence : 0;
  link_object_unlock(exporter);
  return sequence;
}

/* One frame whose pixels are late, checked behind the wait of a stream. Returns its flags. */
static uint32_t pass_frame(struct channel *channel, uint64_t expected) {
  cudalink_slot slot;
  cudalink_frame frame;
  CHECK_OK(cudalink_exporter_begin(channel->exporter, &channel->description, 10 * SECOND, &slot));
  gpu_fill(channel->producer, slot.data, channel->bytes, slot.sequence, MILLISECOND);
  CHECK_OK(cudalink_exporter_publish(channel->exporter, &slot, ON(channel->producer)));
  CHECK_OK(
      cudalink_importer_acquire(channel->importer, ON(channel->consumer), 10 * SECOND, &frame));
  CHECK_EQUAL(frame.sequence, expected);
  gpu_check(channel->consumer, frame.data, channel->bytes, expected, 0, channel->counts);
  uint32_t flags = frame.flags;
  CU(cuStreamSynchronize(channel->consumer));
  CHECK_OK(cudalink_frame_release(&frame, ON(channel->consumer))); /* else it was LOST */
  CU(cuStreamSynchronize(channel->consumer)); /* the next one may be held: hold is 1 */
  return flags;
}

static void pass_frames(struct channel *channel, uint64_t first, uint64_t count) {
  uint64_t pending = 0;
  begin_at(channel, first);
  for (uint64_t i = 0; i < count; i++)
    pending += (pass_frame(channel, first + i) & CUDALINK_FRAME_PENDING) != 0;
  CHECK_EQUAL(gpu_counts_read(channel->counts, channel->consumer).wrong, 0);
  CHECK(pending >= count / 2); /* the first one waits by the CPU */
}

static void pass_at(const char *attributes, uint64_t first) {
  struct channel channel;
  start_with(attributes, "");
  open_channel(&channel);
  pass_frames(&channel, first, 20);
  close_channel(&channel);
}

#define HALF_CYCLE (UINT64_C(1) << 31)
TEST(narrow_words, 60) { pass_at(NARROW, 1); }
/* A new consumer's mirrors are 0, which is cyclically newer than these. */
TEST(narrow_words_late, 60) { pass_at(NARROW, HALF_CYCLE + HALF_CYCLE / 2); }
TEST(narrow_words_wrap, 60) { pass_at(NARROW, 2 * HALF_CYCLE - 10); }
TEST(wide_words_wrap, 60) { pass_at("", 2 * HALF_CYCLE - 10); }

/* Slots that rest for more than half a cycle, and are used again. */
TEST(narrow_words_rest, 60) {
  struct channel channel;
  start_with(NARROW, "");
  open_channel(&channel);
  pass_frames(&channel, 100, 8);
  for (uint64_t i = 1; i < 4; i++) {
    uint64_t announced = announced_by(&channel), first = i * (HALF_CYCLE + 1000);
    begin_at(&channel, first);
    if (announced) pass_frame(&channel, announced); /* it had its number already */
    for (uint64_t k = 0; k < 8; k++)
      pass_frame(&channel, first + k);
  }
  CHECK_EQUAL(gpu_counts_read(channel.counts, channel.consumer).wrong, 0);
  close_channel(&channel);
}

/* The same for a frame that a stream waits for before it is published. */
TEST(narrow_words_rest_next, 60) {
  struct channel channel;
  cudalink_frame frame;
  cudalink_slot slot;
  start_with(NARROW, "");
  open_channel(&channel);
  pass_frames(&channel, 100, 8);
  for (uint64_t i = 1; i < 4; i++) {
    uint64_t first = i * (HALF_CYCLE + 1000);
    uint64_t announced = announced_by(&channel);
    CHECK(announced != 0);
    begin_at(&channel, first);
    pass_frame(&channel, announced);
    CHECK_OK(
        cudalink_importer_wait_next(channel.importer, ON(channel.consumer), 10 * SECOND, &frame));
    CHECK_EQUAL(frame.sequence, first);
    gpu_check(channel.consumer, frame.data, channel.bytes, first, 0, channel.counts);
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, 10 * SECOND, &slot));
    gpu_fill(channel.producer, slot.data, channel.bytes, first, MILLISECOND);
    CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.producer)));
    CHECK_OK(cudalink_frame_release(&frame, ON(channel.consumer)));
    CU(cuStreamSynchronize(channel.consumer));
  }
  CHECK_EQUAL(gpu_counts_read(channel.counts, channel.consumer).wrong, 0);
  close_channel(&channel);
}

/* ---- which way, and that it can be read ------------------------------------------------------------- */

static void expect_words(const char *attributes, const char *fail, const char *words) {
  struct channel channel;
  cudalink_exporter_statistics sent = {.size = sizeof sent};
  start_with(attributes, fail);
  open_channel(&channel);
  CHECK_OK(cudalink_exporter_get_statistics(channel.exporter, &sent));
  printf("  %s\n", sent.reason);
  CHECK_CONTAINS(sent.reason, words);
  for (uint64_t i = 1; i <= 20; i++)
    pass_frame(&channel, i);
  CHECK_EQUAL(gpu_counts_read(channel.counts, channel.consumer).wrong, 0);
  close_channel(&channel);
}

static bool on_the_fake(void) {
  if (gpu_is_fake()) return true;
  printf("  needs the fake driver\n");
  return false;
}

TEST(words_of_64_bits, 60) {
  gpu_start();
  if (on_the_fake()) expect_words("", "", "words by 64-bit stream memory operations");
}
TEST(words_of_32_bits, 60) {
  setenv("FAKECUDA_ATTRIBUTES", NARROW, 1);
  gpu_start();
  if (on_the_fake()) expect_words(NARROW, "", "words by 32-bit stream memory operations");
}
/* The attribute promises them, but they don't work when tried. */
TEST(words_of_64_bits_that_fail, 60) {
  setenv("FAKECUDA_FAIL", "cuStreamWriteValue64:0:801", 1);
  gpu_start();
  if (on_the_fake()) expect_words("", "cuStreamWriteValue64:0:801", "32-bit");
}

/* Streams can't wait: acquire does, says so, and hands out what is complete. */
TEST(words_by_host_functions, 60) {
  struct channel channel;
  cudalink_exporter_statistics sent = {.size = sizeof sent};
  cudalink_importer_statistics got = {.size = sizeof got};
  cudalink_frame frame;
  start_with(NARROW, NONE);
  if (!on_the_fake()) return;
  open_channel(&channel);
  for (uint64_t i = 1; i <= 20; i++)
    CHECK_EQUAL(pass_frame(&channel, i) & CUDALINK_FRAME_PENDING, 0);
  CHECK_EQUAL(gpu_counts_read(channel.counts, channel.consumer).wrong, 0);
  CHECK_OK(cudalink_exporter_get_statistics(channel.exporter, &sent));
  CHECK_OK(cudalink_importer_get_statistics(channel.importer, &got));
  CHECK_CONTAINS(sent.reason, "words by host functions");
  CHECK_CONTAINS(got.reason, "acquire waits by the CPU; words by host functions");
  CHECK_STATUS(cudalink_importer_wait_next(channel.importer, ON(channel.consumer), 0, &frame),
               CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "use acquire");
  close_channel(&channel);
}
