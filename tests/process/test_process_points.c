/* SPDX-License-Identifier: MIT
 *
 * Death at exact points: at each system call of opening, joining, taking and closing, and at
 * instructions of publish and acquire. And what those cost in system calls.
 *
 * The instructions and calls of a sanitizer are not ours, and tracing them takes long: not built
 * then.
 */
#include "roles.h"
#include "trace.h"

#if !WITH_SANITIZER

#define SAMPLES 24 /* instructions at which to die, spread over all of them */
#define SMALL 256  /* bytes: most instructions should be the library's */

/* ---- what is traced -------------------------------------------------------------------------- */

HELPER(opener) {
  cudalink_exporter exporter;
  char line[LINE_SIZE];
  HELPER_LEAKS();
  say("ready");
  hear(line);
  trace_begin();
  CHECK_OK(open_producer(&exporter, "a", 8192));
  CHECK_OK(publish_frame(exporter, 8192, 1, 0, NULL));
  CHECK_OK(cudalink_exporter_close(exporter));
  trace_end();
}

HELPER(joiner) {
  struct consumer consumer = {.policy = policy_from_name(option("policy", "latest"))};
  char line[LINE_SIZE];
  say("ready");
  hear(line);
  trace_begin();
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .policy = consumer.policy}));
  CHECK_OK(consumer_take(&consumer, CUDALINK_FOREVER));
  CHECK_OK(cudalink_importer_close(consumer.importer));
  trace_end();
}

/* Publishes a frame of SMALL bytes, and while it is traced the others, again for each line. */
HELPER(publisher) {
  cudalink_exporter exporter;
  char line[LINE_SIZE];
  uint64_t salt = (uint64_t)option_number("salt", 1);
  CHECK_OK(open_producer(&exporter, "a", SMALL));
  CHECK_OK(cudalink_exporter_wait_consumers(exporter, (uint32_t)option_number("consumers", 0),
                                            CUDALINK_FOREVER));
  CHECK_OK(publish_frame(exporter, SMALL, salt, 0, NULL));
  say("ready");
  while (hear(line)) {
    trace_begin();
    for (int64_t i = option_number("frames", 1); i > 0; i--)
      CHECK_OK(publish_frame(exporter, SMALL, salt, 0, NULL));
    trace_end();
    say("done");
  }
  CHECK_OK(cudalink_exporter_close(exporter));
}

HELPER(taker) {
  struct consumer consumer = {.policy = policy_from_name(option("policy", "latest"))};
  char line[LINE_SIZE];
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .policy = consumer.policy,
                                                            .open_timeout = 10 * SECOND}));
  CHECK_OK(consumer_take(&consumer, CUDALINK_FOREVER));
  say("ready");
  while (hear(line)) {
    trace_begin();
    for (int64_t i = option_number("frames", 1); i > 0; i--)
      CHECK_OK(consumer_take(&consumer, CUDALINK_FOREVER));
    trace_end();
    say("done");
  }
  CHECK_OK(cudalink_importer_close(consumer.importer));
}

static struct process *start_traced(const char *helper, const char *options) {
  struct process *process = process_start(helper, "%s", options);
  process_expect(process, "ready");
  trace_attach(process);
  return process;
}

/* ---- system calls ---------------------------------------------------------------------------- */

/* The name can be taken again, with frames of another size, and they arrive. */
static void check_name_works(int64_t point) {
  cudalink_exporter exporter;
  struct consumer consumer = {0};
  uint64_t bytes = 100000, sequence;
  int status = open_producer(&exporter, "a", bytes);
  if (status < 0)
    FAIL("after a death at call %lld: %s: %s", (long long)point, cudalink_error_name(status),
         cudalink_last_error());
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .open_timeout = 10 * SECOND}));
  CHECK_OK(publish_frame(exporter, bytes, 2, 0, &sequence));
  CHECK_OK(consumer_take(&consumer, 10 * SECOND));
  CHECK_EQUAL(consumer.salt, 2);
  CHECK_OK(cudalink_importer_close(consumer.importer));
  CHECK_OK(cudalink_exporter_close(exporter));
}

static void check_folder_is_empty(int64_t point) {
  static const char *const pieces[] = {"a.sock", "a.lock", ".a.new"};
  for (int i = 0; i < 3; i++)
    if (folder_has(pieces[i]))
      FAIL("%s is left after a death at call %lld", pieces[i], (long long)point);
  CHECK_EQUAL(folder_count(test_folder), 0);
}

/* P02: SIGKILL at each step of creating a channel (and of publishing and closing). */
TEST(field_p02, 120) {
  int64_t point = 1;
  for (bool killed = true; killed; point++) {
    struct process *opener = start_traced("opener", "");
    killed = trace_kill_at_call(opener, point);
    if (!killed) process_finish(opener);
    if (point % 4 == 0) {
      CHECK_OK(cudalink_channels_clean(test_folder, NULL));
      check_folder_is_empty(point);
    }
    check_name_works(point);
    check_folder_is_empty(point);
  }
  printf("%lld system calls\n", (long long)point - 1);
  CHECK(point > 50); /* else nothing was looked at */
}

/* The same for a consumer: the producer goes on, and what it may have held is free. */
static void die_while_joining(const char *options) {
  struct process *producer = start_producer("slots=3 max_slots=3 hold_ms=600000 begin_ms=30000");
  int64_t point = 1;
  process_tell(producer, "run 1");
  for (bool killed = true; killed; point += 1 + (int64_t)random_below(3)) {
    struct process *joiner = start_traced("joiner", options);
    killed = trace_kill_at_call(joiner, point);
    if (!killed) process_finish(joiner);
  }
  unsigned long long last, dropped;
  const char *line = process_ask(producer, "stop");
  CHECK_EQUAL(sscanf(line, "stopped %llu %llu", &last, &dropped), 2);
  CHECK_EQUAL(dropped, 0);
  CHECK_CONTAINS(process_ask(producer, "publish 10"), "published");
  WAIT_UNTIL(statistic(producer, "consumers") == 0);
  printf("%lld system calls\n", (long long)point - 1);
  CHECK(point > 50);
  process_finish(producer);
}

TEST(consumer_dies_at_each_call, 120) { die_while_joining("policy=latest"); }
TEST(every_frame_consumer_dies_at_each_call, 120) { die_while_joining("policy=every"); }

/* ---- instructions ---------------------------------------------------------------------------- */

static int64_t next_point(int64_t count, int sample) {
  return 1 + count * sample / SAMPLES + (int64_t)random_below((uint64_t)(count / SAMPLES + 1));
}

/* A producer dies at an instruction of begin, fill, publish: the frame arrives whole or not at
 * all. */
TEST(producer_dies_at_instructions, 120) {
  struct process *counted = start_traced("publisher", "salt=1");
  int64_t count = trace_count_instructions(counted);
  process_expect(counted, "done");
  process_finish(counted);
  struct process *every = start_consumer("policy=every");
  struct process *latest = start_consumer("policy=latest");
  process_tell(every, "run");
  process_tell(latest, "run");
  for (int i = 0; i < SAMPLES; i++) {
    char options[64];
    snprintf(options, sizeof options, "consumers=2 salt=%d", i + 2);
    struct process *publisher = start_traced("publisher", options);
    if (trace_kill_at_instruction(publisher, next_point(count, i))) continue;
    process_expect(publisher, "done");
    process_finish(publisher);
  }
  unsigned long long received, missed, lost, ended, evicted, session;
  const char *line = process_ask(every, "stop");
  CHECK_EQUAL(sscanf(line, "stopped %llu %llu %llu %llu %llu %llu", &received, &missed, &lost,
                     &ended, &evicted, &session),
              6);
  printf("%lld instructions, %llu frames, %llu ends\n", (long long)count, received, lost + ended);
  CHECK(received >= SAMPLES);
  CHECK_EQUAL(session, SAMPLES);
  CHECK_EQUAL(missed, 0);
  CHECK_CONTAINS(process_ask(latest, "stop"), "stopped");
  process_finish(every);
  process_finish(latest);
}

/* A consumer dies at an instruction of acquire, check, release: the producer never lacks a slot. */
static void taker_dies(const char *policy) {
  struct process *producer = start_producer("slots=3 max_slots=3 bytes=256 hold_ms=600000 "
                                            "begin_ms=30000");
  char options[64];
  snprintf(options, sizeof options, "policy=%s", policy);
  /* Slowly: a consumer that is stepped takes milliseconds from the look to the lease. */
  process_tell(producer, "run 10");
  struct process *counted = start_traced("taker", options);
  int64_t count = trace_count_instructions(counted);
  process_expect(counted, "done");
  process_finish(counted);
  for (int i = 0; i < SAMPLES; i++) {
    struct process *taker = start_traced("taker", options);
    if (trace_kill_at_instruction(taker, next_point(count, i))) continue;
    process_expect(taker, "done");
    process_finish(taker);
  }
  unsigned long long last, dropped;
  const char *line = process_ask(producer, "stop");
  CHECK_EQUAL(sscanf(line, "stopped %llu %llu", &last, &dropped), 2);
  printf("%lld instructions\n", (long long)count);
  CHECK_EQUAL(dropped, 0);
  CHECK_CONTAINS(process_ask(producer, "publish 10"), "published");
  process_finish(producer);
}

TEST(consumer_dies_at_instructions, 120) { taker_dies("latest"); }
TEST(every_frame_consumer_dies_at_instructions, 120) { taker_dies("every"); }

/* ---- counts ---------------------------------------------------------------------------------- */

static void count_publish(const char *options, int64_t consumers) {
  struct process *readers[3];
  for (int64_t i = 0; i < consumers; i++)
    readers[i] = start_consumer("policy=latest");
  struct process *publisher = process_start("publisher", "%s", options);
  process_expect(publisher, "ready");
  CHECK_EQUAL(trace_count_calls(publisher, NULL, NULL), 0);
  process_finish(publisher);
  for (int64_t i = 0; i < consumers; i++)
    process_finish(readers[i]);
}

/* A publish with no sleeper makes no system call: 1000 frames, none. */
TEST(publish_makes_no_system_call, 30) { count_publish("frames=1000", 0); }
TEST(publish_to_three_makes_no_system_call, 30) { count_publish("frames=1000 consumers=3", 3); }

static void publish_ten_more(void *producer) {
  CHECK_CONTAINS(process_ask(producer, "publish 10"), "published");
}

/* Nor does taking a frame that is there. */
TEST(take_makes_no_system_call, 30) {
  struct process *producer = start_producer("slots=20 max_slots=20");
  process_tell(producer, "consumers 1");
  struct process *taker = process_start("taker", "policy=every frames=10");
  process_expect(producer, "consumers 1");
  ASK(producer, "publish 12", "published 12");
  process_expect(taker, "ready");
  CHECK_EQUAL(trace_count_calls(taker, publish_ten_more, producer), 0);
  process_finish(taker);
  process_finish(producer);
}

#else

TEST(points, 10) { printf("not with a sanitizer\n"); }

#endif
