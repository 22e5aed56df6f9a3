/* SPDX-License-Identifier: MIT
 *
 * The calls that wait for the whole GPU though frames may flow: the few that there are, are counted. The
 * consumers are in processes of their own, so the calls of this one are the exporter's.
 */
#include "gpu.h"
#include "link/reaper.h"
#include "link/service.h"

#define NONE CUDALINK_STREAM_COMPLETE
#define MANY 1024 /* departed consumers whose words are given back together */

/* Opens and closes an importer for each line "N", so many times, and says so. */
HELPER(visitor) {
  char line[LINE_SIZE];
  gpu_start();
  say("ready");
  while (hear(line)) {
    for (int64_t left = atoll(line); left > 0; left--) {
      cudalink_importer importer;
      CHECK_OK(cudalink_importer_open(
          &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                               .open_timeout = 20 * SECOND}));
      CHECK_OK(cudalink_importer_close(importer));
    }
    say("visited");
  }
}

static cudalink_exporter exporter;
static cudalink_description description;

static void open_exporter(cudalink_kind kind, uint32_t width) {
  describe_rgba(&description, width, 32);
  CHECK_OK(cudalink_exporter_open(
      &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "a", .kind = kind,
                                           .description = &description}));
}

static void publish(uint32_t width) {
  cudalink_slot slot;
  describe_rgba(&description, width, 32);
  CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish(exporter, &slot, NONE));
}

static cudalink_exporter_statistics statistics(void) {
  cudalink_exporter_statistics s = {.size = sizeof s};
  CHECK_OK(cudalink_exporter_get_statistics(exporter, &s));
  return s;
}

static int nothing(void *argument) {
  (void)argument;
  return CUDALINK_OK;
}

/* What the service thread and the reaper have to do is done. */
static void settle(void) {
  for (int i = 0; i < 3; i++)
    service_call(nothing, NULL);
  reaper_drain();
}

/* All have left, the exporter too has noticed. */
static void visit(struct process *visitor, int count) {
  process_tell(visitor, "%d", count);
  process_expect(visitor, "visited");
  WAIT_UNTIL(statistics().consumers == 0);
  settle();
}

TEST(departed_consumers_wait_for_the_gpu_in_the_thousand, 240) {
  gpu_start();
  open_exporter(CUDALINK_KIND_VMM, 64);
  struct process *visitor = process_start("visitor", "none=");
  process_expect(visitor, "ready");
  uint64_t before = FAKE_NUMBER(fakecuda_waiting_calls);
  for (int round = 0; round < 10; round++) {
    visit(visitor, (MANY - 24) / 10);
    publish(64);
  }
  CHECK_EQUAL(statistics().gpu_waits, 0);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_waiting_calls) - before, 0);
  visit(visitor, 24 + 1); /* one connection may have ended before it had a mailbox */
  publish(64);
  uint64_t waits = statistics().gpu_waits;
  printf("  %llu calls\n", (unsigned long long)waits);
  CHECK(waits > 0);
  if (gpu_is_fake()) CHECK_EQUAL(FAKE_NUMBER(fakecuda_waiting_calls) - before, waits);
  visit(visitor, 100); /* and then for a long time none */
  CHECK_EQUAL(statistics().gpu_waits, waits);
  process_finish(visitor);
  CHECK_OK(cudalink_exporter_close(exporter));
}

/* How often the channel grows, and how often it waited for the GPU. */
static void grow(cudalink_kind kind, uint64_t expected) {
  enum { STEPS = 5 };
  gpu_start();
  open_exporter(kind, 512);
  settle();
  uint64_t before = FAKE_NUMBER(fakecuda_waiting_calls);
  for (uint32_t step = 0; step <= STEPS; step++) {
    publish(512U << step);
    settle();
  }
  CHECK_EQUAL(statistics().generations, STEPS + 1);
  CHECK_EQUAL(statistics().gpu_waits, expected);
  if (gpu_is_fake()) CHECK_EQUAL(FAKE_NUMBER(fakecuda_waiting_calls) - before, expected);
  CHECK_OK(cudalink_exporter_close(exporter));
}
TEST(growth_of_kind_ipc_waits_for_the_gpu_and_counts_it, 60) { grow(CUDALINK_KIND_IPC, 5); }
TEST(growth_of_kind_vmm_never_waits_for_the_gpu, 60) { grow(CUDALINK_KIND_VMM, 0); }
