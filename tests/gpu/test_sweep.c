/* SPDX-License-Identifier: MIT
 *
 * The life of a channel, with each driver call that it makes failing once, whichever it is: the fake
 * driver counts them in a life without failures. A call of ours then says so, or does without; the same
 * call works when it is made again, and so does all else; no pixel is wrong, nothing is left.
 */
#include "cudalink/convert.h"
#include "cudalink/pool.h"
#include "flat.h"
#include "link/reaper.h"

#define SIDE 64
#define BYTES ((uint64_t)SIDE * SIDE * 4)
#define LARGE (4 * BYTES) /* of twice the width and height */
#define MAILBOXES 8       /* that the reaper may have made for who comes next */
#define MOST 12           /* of one entry point's calls; later ones are made in the same places */

struct life {
  cudalink_exporter_spec exporter;
  cudalink_importer_spec importer;
  enum gpu_memory memory; /* of what is sent */
  bool shared, grows;
};

struct ends {
  const struct life *life;
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description small, large;
  CUstream stream, other;
  void *source, *large_source, *block;
  unsigned char *expected, *found;
  cudalink_convert_plan *plan;
  uint32_t failures; /* of our calls */
};

static bool failed(struct ends *ends, const char *call, int status) {
  if (status >= 0) return false;
  ends->failures++;
  printf("    %.40s: %s: %s\n", call, cudalink_error_name(status), cudalink_last_error());
  CHECK(strlen(cudalink_last_error()) > 20);
  return true;
}

/* A call that fails works when it is made again. */
#define STEP(call)                                                                                 \
  do {                                                                                             \
    if (failed(ends, #call, call)) CHECK_OK(call);                                                 \
  } while (0)

static CUdeviceptr place(const void *address) { return (CUdeviceptr)(uintptr_t)address; }

static int open_life(struct ends *ends) {
  cudalink_exporter_spec exporter = ends->life->exporter;
  cudalink_importer_spec importer = ends->life->importer;
  exporter.size = sizeof exporter;
  importer.size = sizeof importer;
  exporter.name = importer.name = "gpu";
  exporter.description = &ends->small;
  importer.open_timeout = 10 * SECOND;
  int status = cudalink_exporter_open(&ends->exporter, &exporter);
  if (status < 0) return status;
  status = cudalink_importer_open(&ends->importer, &importer);
  if (status < 0) CHECK_OK(cudalink_exporter_close(ends->exporter));
  return status;
}

static void close_life(struct ends *ends) {
  CHECK_OK(cudalink_importer_close(ends->importer));
  CHECK_OK(cudalink_exporter_close(ends->exporter));
}

static void check_pixels(struct ends *ends, const cudalink_frame *frame) {
  uint64_t bytes;
  CHECK_OK(cudalink_description_bytes(&frame->description, &bytes));
  memset(ends->found, 0, bytes);
  STEP(cudalink_frame_to_host(frame, ends->found, bytes));
  CHECK_EQUAL(memcmp(ends->found, ends->expected, bytes), 0);
}

static void acquire(struct ends *ends, cudalink_frame *frame) {
  STEP(cudalink_importer_acquire(ends->importer, ON(ends->stream), 10 * SECOND, frame));
}

static void take(struct ends *ends) {
  cudalink_frame frame;
  acquire(ends, &frame);
  STEP(cudalink_frame_wait(&frame, ON(ends->stream)));
  check_pixels(ends, &frame);
  STEP(cudalink_frame_release(&frame, ON(ends->stream)));
}

/* The copy that gives the frame back; it is over in any case. */
static void take_away(struct ends *ends) {
  cudalink_frame frame;
  cudalink_host_copy copy;
  acquire(ends, &frame);
  STEP(cudalink_frame_to_host_begin(&frame, NULL, 0, &copy));
  const void *data = copy.data;
  if (!failed(ends, "finish", cudalink_frame_to_host_finish(&copy)))
    CHECK_EQUAL(memcmp(data, ends->expected, BYTES), 0);
}

static void begin(struct ends *ends, cudalink_slot *slot) {
  STEP(cudalink_exporter_begin(ends->exporter, &ends->small, 10 * SECOND, slot));
}

/* What waits for the stream, or asks it, does so behind the publish: its error is the frame's no more. */
static void publish(struct ends *ends, const cudalink_slot *slot) {
  const cudalink_exporter_spec *spec = &ends->life->exporter;
  cudalink_exporter_statistics before = {.size = sizeof before}, after = {.size = sizeof after};
  CHECK_OK(cudalink_exporter_get_statistics(ends->exporter, &before));
  int status = cudalink_exporter_publish(ends->exporter, slot, ON(ends->stream));
  if (!failed(ends, "publish", status)) return;
  CHECK_OK(cudalink_exporter_get_statistics(ends->exporter, &after));
  if (after.published > before.published)
    CHECK(spec->export_sync || spec->flush_probe);
  else
    CHECK_OK(cudalink_exporter_publish(ends->exporter, slot, ON(ends->stream)));
}

static void take_next(struct ends *ends) {
  cudalink_slot slot;
  cudalink_frame frame;
  STEP(cudalink_importer_wait_next(ends->importer, ON(ends->other), 10 * SECOND, &frame));
  begin(ends, &slot);
  publish(ends, &slot);
  STEP(cudalink_frame_release(&frame, ON(ends->other)));
}

static void convert_both_ways(struct ends *ends) {
  cudalink_slot slot;
  cudalink_frame frame;
  begin(ends, &slot);
  STEP(
      cudalink_exporter_convert(ends->exporter, ends->plan, ends->source, &slot, ON(ends->stream)));
  publish(ends, &slot);
  acquire(ends, &frame);
  check_pixels(ends, &frame);
  STEP(cudalink_frame_convert(&frame, ends->plan, ends->large_source, ON(ends->stream)));
  STEP(cudalink_frame_release(&frame, ON(ends->stream)));
}

static void send(struct ends *ends, const cudalink_description *description, const void *data) {
  STEP(cudalink_exporter_send(ends->exporter, description, data, NULL, ON(ends->stream),
                              10 * SECOND));
}

static void dropped(void *owner) { (void)owner; }

/* A frame by each way. */
static void live(struct ends *ends) {
  const cudalink_source planes = {.data = ends->source, .strides = {SIDE * 4, 4, 1}};
  cudalink_slot slot;
  int shared;
  send(ends, &ends->small, ends->source);
  if (ends->life->exporter.own_stream)
    STEP(cudalink_exporter_wait_sent(ends->exporter, ON(ends->stream)));
  take_away(ends);
  send(ends, &ends->small, ends->source);
  take(ends);
  STEP(cudalink_exporter_send_planes(ends->exporter, &ends->small, &planes, NULL, ON(ends->stream),
                                     10 * SECOND));
  STEP(cudalink_exporter_keep(ends->exporter, ends, dropped));
  take_away(ends);
  if (ends->life->importer.gpu_wait) take_next(ends);
  begin(ends, &slot);
  STEP(cudalink_exporter_abandon(ends->exporter, &slot, ON(ends->stream)));
  if (ends->life->exporter.convert) convert_both_ways(ends);
  if (ends->life->shared) {
    STEP(cudalink_exporter_send_shared(ends->exporter, &ends->small, ends->block, NULL,
                                       ON(ends->stream), 10 * SECOND, ends, dropped, &shared));
    take(ends);
  }
  if (ends->life->grows) {
    send(ends, &ends->large, ends->large_source);
    take(ends);
  }
}

static const char *const entries[] = {
#define NAME(kind, name, symbol, version, arguments) #name,
    CUDA_DRIVER_FUNCTIONS(NAME)
#undef NAME
};
#define ENTRIES (sizeof entries / sizeof *entries)

/* Whose failure leaves something by its nature; and what only says which failure it was. */
static bool is_exempt(const char *entry) {
  static const char *const parts[] = {"Destroy", "Free",       "Unmap",
                                      "Release", "Unregister", "CloseMemHandle",
                                      "Unload",  "Current",    "GetError"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strstr(entry, parts[i])) return true;
  return false;
}

static void prepare(struct ends *ends) {
  describe_rgba(&ends->small, SIDE, SIDE);
  describe_rgba(&ends->large, 2 * SIDE, 2 * SIDE);
  ends->stream = gpu_stream();
  ends->other = gpu_stream();
  ends->source = gpu_memory(ends->life->memory, BYTES, ends->stream);
  ends->large_source = gpu_memory(GPU_MEMORY_DEVICE, LARGE, ends->stream);
  ends->block = cudalink_pool_alloc(BYTES, 0, ends->stream);
  CHECK(ends->block != NULL);
  ends->expected = malloc(LARGE);
  ends->found = ends->life->memory == GPU_MEMORY_DEVICE /* by staging, or straight */
                    ? malloc(LARGE)
                    : gpu_memory(GPU_MEMORY_PINNED, LARGE, ends->stream);
  for (uint64_t i = 0; i < LARGE; i++)
    ends->expected[i] = (unsigned char)random_number();
  CU(cuMemcpy(place(ends->source), place(ends->expected), BYTES));
  CU(cuMemcpy(place(ends->block), place(ends->expected), BYTES));
  CU(cuMemcpy(place(ends->large_source), place(ends->expected), LARGE));
  CHECK_OK(cudalink_convert_plan_create(&ends->plan, &ends->small, &ends->small, NULL));
}

static void synchronise(struct ends *ends) {
  CU(cuStreamSynchronize(ends->stream));
  CU(cuStreamSynchronize(ends->other));
}

/* What calls one life makes. The first one also makes what stays for the process. */
static void count_calls(struct ends *ends, uint64_t counts[ENTRIES]) {
  for (int i = 0; i < 2; i++) {
    for (size_t e = 0; e < ENTRIES; e++)
      counts[e] = FAKE_NUMBER(fakecuda_calls, entries[e]);
    CHECK_OK(open_life(ends));
    live(ends);
    close_life(ends);
    reaper_drain();
    for (size_t e = 0; e < ENTRIES; e++)
      counts[e] = FAKE_NUMBER(fakecuda_calls, entries[e]) - counts[e];
    synchronise(ends);
  }
  CHECK_EQUAL(ends->failures, 0);
}

/* Whether a call of ours told of it. */
static bool fail_once(struct ends *ends, const char *entry, unsigned nth) {
  ends->failures = 0;
  FAKE(fakecuda_fail, entry, nth, CUDA_ERROR_UNKNOWN);
  int status = open_life(ends);
  bool opened = !failed(ends, "open", status);
  if (opened) live(ends);
  FAKE(fakecuda_fail_clear);
  uint32_t failures = ends->failures;
  if (!opened) CHECK_OK(open_life(ends));
  live(ends);
  CHECK_EQUAL(ends->failures, failures);
  close_life(ends);
  synchronise(ends);
  return failures;
}

static void fail_each(const struct life *life) {
  struct ends ends = {.life = life};
  uint64_t counts[ENTRIES];
  struct flat before, now;
  uint32_t tried = 0, told = 0;
  gpu_start();
  if (!gpu_is_fake()) {
    printf("needs the fake driver\n");
    return;
  }
  prepare(&ends);
  FAKE(fakecuda_set_delay, 100); /* what was not waited for is seen */
  count_calls(&ends, counts);
  flat_start(&before);
  for (size_t e = 0; e < ENTRIES; e++) {
    for (unsigned nth = 1; !is_exempt(entries[e]) && nth <= counts[e] && nth <= MOST; nth++) {
      printf("  %s %u of %u\n", entries[e], nth, (unsigned)counts[e]);
      tried++;
      told += fail_once(&ends, entries[e], nth);
      flat_check(&before, &now, MAILBOXES);
    }
  }
  printf("  %u failures, %u told of\n", tried, told);
  CHECK(tried > 100 && told > 30);
}

TEST(each_call_of_a_life_fails_vmm, 400) {
  fail_each(&(struct life){.exporter = {.kind = CUDALINK_KIND_VMM}, .shared = true, .grows = true});
}
TEST(each_call_of_a_life_fails_own_stream, 400) {
  fail_each(&(struct life){.exporter = {.kind = CUDALINK_KIND_VMM,
                                        .own_stream = 1,
                                        .flush_probe = 1,
                                        .strict_device = 1},
                           .importer = {.gpu_wait = 1, .host_streams = 2}});
}
TEST(each_call_of_a_life_fails_isolated, 400) {
  fail_each(&(struct life){.exporter = {.kind = CUDALINK_KIND_VMM, .export_sync = 1},
                           .importer = {.isolated = 1, .gpu_wait = 1},
                           .shared = true,
                           .grows = true});
}
TEST(each_call_of_a_life_fails_ipc, 400) {
  fail_each(&(struct life){.exporter = {.kind = CUDALINK_KIND_IPC, .flush_probe = 1},
                           .importer = {.gpu_wait = 1},
                           .memory = GPU_MEMORY_PINNED,
                           .grows = true});
}
TEST(each_call_of_a_life_fails_ipc_isolated, 400) {
  fail_each(
      &(struct life){.exporter = {.kind = CUDALINK_KIND_IPC, .own_stream = 1, .export_sync = 1},
                     .importer = {.isolated = 1},
                     .memory = GPU_MEMORY_HOST,
                     .grows = true});
}
TEST(each_call_of_a_life_fails_convert, 400) {
  fail_each(&(struct life){.exporter = {.kind = CUDALINK_KIND_VMM, .convert = 1},
                           .importer = {.convert = 1, .host_pipelined = 1},
                           .memory = GPU_MEMORY_MANAGED});
}
