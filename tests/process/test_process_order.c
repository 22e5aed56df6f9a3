/* SPDX-License-Identifier: MIT
 *
 * Any order: of starting three processes, of closing what is open.
 */
#include "roles.h"

/* ---- starting -------------------------------------------------------------------------------- */

/* The n-th order of `count` things. */
static void permute(int n, int count, int order[]) {
  for (int i = 0; i < count; i++)
    order[i] = i;
  for (int i = count; i > 1; i--) {
    int other = n % i, kept = order[i - 1];
    order[i - 1] = order[other];
    order[other] = kept;
    n /= i;
  }
}

static struct process *start_role(int role, int salt) {
  if (role == 0) return process_start("producer", "salt=%d", salt);
  return process_start("consumer", "policy=%s", role == 1 ? "latest" : "every");
}

/* Frames reach both consumers from this producer, their session-th one. */
static void check_flow(struct process *producer, struct process *latest, struct process *every,
                       int session) {
  char expected[64];
  ASK(producer, "consumers 2", "consumers 2");
  ASK(producer, "publish 3", "published 3");
  snprintf(expected, sizeof expected, "frame 1 %d", session);
  process_tell(every, "until %d", session);
  process_expect(every, expected);
  snprintf(expected, sizeof expected, "frame 3 %d", session);
  process_tell(latest, "until %d", session);
  process_expect(latest, expected);
}

static void start_in_order(int n, bool one_after_the_other, bool kill_producer) {
  struct process *roles[3] = {NULL};
  int order[3];
  permute(n, 3, order);
  for (int i = 0; i < 3; i++) {
    roles[order[i]] = start_role(order[i], 1);
    if (one_after_the_other) process_expect(roles[order[i]], "open");
  }
  for (int i = 0; i < 3 && !one_after_the_other; i++)
    process_expect(roles[i], "open");
  check_flow(roles[0], roles[1], roles[2], 1);
  if (kill_producer) {
    process_kill(roles[0]);
  } else {
    ASK(roles[0], "close", "closed");
    process_finish(roles[0]);
  }
  roles[0] = start_role(0, 2);
  process_expect(roles[0], "open");
  check_flow(roles[0], roles[1], roles[2], 2);
  for (int i = 0; i < 3; i++)
    process_finish(roles[i]);
}

/* P56: all six orders, each process started at once or when the one before is open; the producer is
 * then replaced. */
TEST(field_p56, 60) {
  for (int n = 0; n < 6; n++)
    for (int way = 0; way < 4; way++)
      if (!WITH_SANITIZER || way == n % 4) start_in_order(n, way & 1, way & 2);
}

/* A consumer that comes first and waits in acquire needs nobody to tell it. */
TEST(consumer_waits_for_producer, 30) {
  struct process *consumer = start_consumer("policy=latest");
  process_tell(consumer, "acquire 20000");
  struct process *producer = start_producer("salt=1");
  ASK(producer, "consumers 1", "consumers 1");
  ASK(producer, "publish 1", "published 1");
  process_expect(consumer, "frame 1 1");
  process_finish(consumer);
  process_finish(producer);
}

TEST(open_without_producer, 20) {
  struct process *consumer = process_start("consumer", "name=nobody open_ms=50");
  const char *line = process_hear(consumer);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_NOT_FOUND");
  CHECK_CONTAINS(line, "no channel 'nobody'");
  CHECK_CONTAINS(line, "cudalink send 'nobody'"); /* what to do */
  CHECK_CONTAINS(line, test_folder);              /* where it looked */
  process_finish(consumer);
}

/* ---- closing --------------------------------------------------------------------------------- */

enum thing { EXPORTER, FIRST, SECOND_ONE, FIRST_FRAME, SECOND_FRAME, THINGS };

struct opened {
  cudalink_exporter exporter;
  cudalink_importer importers[2];
  cudalink_frame frames[2];
};

static void open_things(struct opened *opened) {
  CHECK_OK(open_producer(&opened->exporter, "a", 5000));
  for (int i = 0; i < 2; i++)
    CHECK_OK(cudalink_importer_open(
        &opened->importers[i], &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                         .open_timeout = 10 * SECOND}));
  CHECK_OK(publish_frame(opened->exporter, 5000, 1, 0, NULL));
  for (int i = 0; i < 2; i++)
    CHECK_OK(cudalink_importer_acquire(opened->importers[i], CUDALINK_STREAM_COMPLETE, 10 * SECOND,
                                       &opened->frames[i]));
}

static void close_thing(struct opened *opened, int thing) {
  if (thing == EXPORTER)
    CHECK_OK(cudalink_exporter_close(opened->exporter));
  else if (thing <= SECOND_ONE)
    CHECK_OK(cudalink_importer_close(opened->importers[thing - FIRST]));
  else {
    cudalink_frame *frame = &opened->frames[thing - FIRST_FRAME];
    check_frame(frame);
    CHECK_OK(cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE));
  }
}

static void check_dead(const struct opened *opened) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  cudalink_frame frame;
  CHECK_STATUS(cudalink_exporter_close(opened->exporter), CUDALINK_ERROR_CLOSED);
  CHECK_STATUS(cudalink_exporter_get_statistics(opened->exporter, &statistics),
               CUDALINK_ERROR_CLOSED);
  for (int i = 0; i < 2; i++) {
    CHECK_STATUS(cudalink_importer_close(opened->importers[i]), CUDALINK_ERROR_CLOSED);
    CHECK_STATUS(
        cudalink_importer_acquire(opened->importers[i], CUDALINK_STREAM_COMPLETE, 0, &frame),
        CUDALINK_ERROR_CLOSED);
  }
}

static void count_service(void *context, pid_t thread) {
  char path[64], name[32] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
  FILE *file = fopen(path, "r");
  if (file && !fgets(name, sizeof name, file)) name[0] = '\0';
  if (file) fclose(file);
  snprintf(path, sizeof path, "/proc/self/task/%d/fd", thread);
  if (!strcmp(name, "cudalink\n")) *(int *)context = folder_count(path);
}

/* Descriptors in the service thread's table. */
static int count_service_descriptors(void) {
  int count = -1;
  for_each_thread(getpid(), count_service, &count);
  return count;
}

#define KEPT 8 /* descriptors that the service thread may keep for its next search */

/* All 120 orders, in one process; nothing is left of any of them. */
TEST(close_in_any_order, 60) {
  struct opened opened;
  int order[THINGS], mappings = 0, descriptors = 0;
  for (int n = 0; n < 120; n++) {
    permute(n, THINGS, order);
    open_things(&opened);
    for (int i = 0; i < THINGS; i++)
      close_thing(&opened, order[i]);
    check_dead(&opened);
    if (n == 0) WAIT_UNTIL((mappings = count_memory_mappings()) == 0);
    if (n == 0) descriptors = count_service_descriptors();
  }
  WAIT_UNTIL(count_memory_mappings() == 0);
  WAIT_UNTIL(count_service_descriptors() <= descriptors + KEPT);
}

/* The same across processes, some of the orders. */
TEST(close_in_any_order_across_processes, 60) {
  for (int round = 0; round < (WITH_SANITIZER ? 4 : 20); round++) {
    struct process *producer = start_producer("salt=%d", round + 1);
    struct process *consumers[2];
    int order[THINGS];
    permute((int)random_below(120), THINGS, order);
    for (int i = 0; i < 2; i++) {
      consumers[i] = start_consumer("policy=latest");
      wait_joined(consumers[i]);
    }
    ASK(producer, "publish 1", "published 1");
    for (int i = 0; i < 2; i++)
      ASK(consumers[i], "hold", "holds 1");
    for (int i = 0; i < THINGS; i++) {
      if (order[i] == EXPORTER)
        ASK(producer, "close", "closed");
      else if (order[i] <= SECOND_ONE)
        ASK(consumers[order[i] - FIRST], "close", "closed");
      else
        ASK(consumers[order[i] - FIRST_FRAME], "release", "released 1");
    }
    process_finish(producer);
    for (int i = 0; i < 2; i++)
      process_finish(consumers[i]);
    CHECK_EQUAL(folder_count(test_folder), 0);
  }
}

/* An exporter that closes ends the channel: told once as such, after what was published. */
TEST(closed_is_not_lost, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  ASK(producer, "publish 2", "published 2");
  ASK(producer, "close", "closed");
  ASK(consumer, "take 2", "took 1 2 0 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_ENDED");
  CHECK_CONTAINS(process_ask(consumer, "acquire 1"), "error CUDALINK_ERROR_TIMEOUT");
  process_finish(consumer);
  process_finish(producer);
}

/* A program that returns from main with everything open is a death like any other, and its exit
 * code is its own (P12, on kind host). */
HELPER(careless) {
  struct opened opened;
  HELPER_LEAKS();
  open_things(&opened);
  say("open");
  char line[LINE_SIZE];
  hear(line);
  exit(42);
}

TEST(field_p12, 20) {
  struct process *careless = process_start("careless", "name=a");
  struct process *consumer = start_consumer("policy=latest");
  process_expect(careless, "open");
  wait_joined(consumer);
  process_tell(careless, "go");
  CHECK_EQUAL(process_wait(careless), 42 << 8);
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "frame 1 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  process_finish(consumer);
}
