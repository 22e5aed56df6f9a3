/* SPDX-License-Identifier: MIT
 *
 * Many consumers, many sizes, slow ones among fast ones, and nothing at all to do.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "roles.h"

/* ---- how many -------------------------------------------------------------------------------- */

/* 64 consumers get each frame, the next one is told why it doesn't. */
TEST(consumer_65_is_refused, 60) {
  struct process *producer = start_producer("salt=1 hold_ms=60000 begin_ms=60000");
  struct process *consumers[CUDALINK_MAX_CONSUMERS];
  for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
    consumers[i] = start_consumer("policy=every open_ms=60000");
  ASK(producer, "consumers 64", "consumers 64");
  struct process *extra = process_start("consumer", "open_ms=60000");
  const char *line = process_hear(extra);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_BUSY");
  CHECK_CONTAINS(line, "64 consumers");
  process_finish(extra);
  for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
    process_tell(consumers[i], "take 20");
  ASK(producer, "publish 20", "published 20");
  for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
    process_expect(consumers[i], "took 1 20 0 1");
  /* A place that becomes free can be taken. */
  process_kill(consumers[0]);
  consumers[0] = start_consumer("policy=latest");
  wait_joined(consumers[0]);
  for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
    process_finish(consumers[i]);
  process_finish(producer);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

#define STEP 512 /* bytes; each frame of the next size needs larger slots */

/* 1,000 times larger memory while three consumers take what they can. */
HELPER(grower) {
  cudalink_exporter exporter;
  char line[LINE_SIZE];
  CHECK_OK(open_producer(&exporter, "a", 1));
  say("open");
  hear(line);
  CHECK_OK(cudalink_exporter_wait_consumers(exporter, 3, CUDALINK_FOREVER));
  for (uint64_t i = 1; i <= 1000; i++)
    for (uint64_t n = 0; n < 3; n++)
      CHECK_OK(publish_frame(exporter, i * STEP - random_below(STEP), 1, 10 * SECOND, NULL));
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(exporter, &statistics));
  CHECK_EQUAL(statistics.evicted, 0);
  say("generations=%llu", (unsigned long long)statistics.generations);
  hear(line);
  CHECK_OK(cudalink_exporter_close(exporter));
}

TEST(a_thousand_generations, 400) {
  static const char *const policies[] = {"latest", "order", "every"};
  struct process *consumers[3];
  struct process *grower = process_start("grower", "hold_ms=60000");
  process_expect(grower, "open");
  for (int i = 0; i < 3; i++) {
    consumers[i] = start_consumer("policy=%s", policies[i]);
    process_tell(consumers[i], "run");
  }
  int64_t generations = line_number(process_ask(grower, "go"), "generations");
  CHECK(generations >= 1000);
  /* The last frame reaches everybody. */
  for (int i = 0; i < 3; i++) {
    unsigned long long last = 0, missed = 0;
    while (last < 3000) {
      const char *line = process_ask(consumers[i], "stop");
      CHECK_EQUAL(sscanf(line, "stopped %*u %llu %*u %*u %*u %*u %llu", &missed, &last), 2);
      process_tell(consumers[i], "run");
    }
    if (i == 2) CHECK_EQUAL(missed, 0);
  }
  for (int i = 0; i < 3; i++)
    process_finish(consumers[i]);
  process_finish(grower);
}

/* ---- slow ones ------------------------------------------------------------------------------- */

/* P53: one of eight consumers stands still with a frame in its hands. The others get every
 * frame; it is told what happened when it goes on, and joins again. */
TEST(field_p53, 60) {
  /* Long enough for the other seven on a busy machine. */
  struct process *producer = start_producer("hold_ms=3000 begin_ms=20000");
  struct process *consumers[8];
  char expected[64];
  for (int i = 0; i < 8; i++) {
    consumers[i] = start_consumer("policy=every");
    wait_joined(consumers[i]);
  }
  ASK(producer, "publish 1", "published 1");
  for (int i = 1; i < 8; i++)
    ASK(consumers[i], "take 1", "took 1 1 0 1");
  ASK(consumers[0], "hold", "holds 1");
  process_signal(consumers[0], SIGSTOP);
  WAIT_UNTIL(process_is_stopped(consumers[0]));
  for (int i = 1; i < 8; i++)
    process_tell(consumers[i], "take 200");
  ASK(producer, "publish 200", "published 201");
  snprintf(expected, sizeof expected, "took 2 201 0 1");
  for (int i = 1; i < 8; i++)
    process_expect(consumers[i], expected);
  CHECK_EQUAL(statistic(producer, "dropped"), 0);
  CHECK(statistic(producer, "cursors_lost") + statistic(producer, "evicted") >= 1);
  process_signal(consumers[0], SIGCONT);
  ASK(consumers[0], "check", "whole 1");
  ASK(consumers[0], "release", "released 1");
  WAIT_UNTIL(statistic(producer, "consumers") == 8);
  for (int i = 0; i < 8; i++)
    process_finish(consumers[i]);
  process_finish(producer);
}

/* P06: a consumer that has borrowed all it may dies, or stands still; the producer goes on, and waits
 * for the one that stands still once per thing that it had: its place, and a slot. */
static void borrow(bool kill_it) {
  struct process *producer = start_producer("slots=3 max_slots=6 hold_ms=50 begin_ms=20000");
  struct process *consumer = start_consumer("policy=every hold=3");
  char line[64];
  wait_joined(consumer);
  ASK(producer, "publish 3", "published 3");
  for (int i = 1; i <= 3; i++) {
    snprintf(line, sizeof line, "holds %d", i);
    ASK(consumer, "hold", line);
  }
  process_signal(consumer, kill_it ? SIGKILL : SIGSTOP);
  ASK(producer, "publish 1000", "published 1003");
  CHECK_EQUAL(statistic(producer, "dropped"), 0);
  CHECK(statistic(producer, "waits") <= 8);
  if (!kill_it) {
    process_signal(consumer, SIGCONT);
    ASK(consumer, "check", "whole 3");
    process_finish(consumer);
  }
  WAIT_UNTIL(statistic(producer, "consumers") == 0 && statistic(producer, "retired") == 0);
  process_finish(producer);
}

TEST(field_p06_killed, 30) { borrow(true); }
TEST(field_p06_stopped, 30) { borrow(false); }

/* P07: stopped for a while between frames is not dead. */
TEST(field_p07, 30) {
  static const int pauses[] = {50, 200, 1000}; /* ms */
  struct process *producer = start_producer("hold_ms=60000 begin_ms=60000");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  for (int i = 0; i < 3; i++) {
    char line[64];
    snprintf(line, sizeof line, "published %d", i + 1);
    process_signal(consumer, SIGSTOP);
    ASK(producer, "publish 1", line);
    harness_pause((uint64_t)pauses[i] * 1000);
    process_signal(consumer, SIGCONT);
    snprintf(line, sizeof line, "took %d %d 0 1", i + 1, i + 1);
    ASK(consumer, "take 1", line);
  }
  CHECK_EQUAL(statistic(producer, "deaths"), 0);
  process_finish(consumer);
  process_finish(producer);
}

/* ---- nothing to do --------------------------------------------------------------------------- */

struct switches {
  pid_t process;
  int64_t sum;
};

static void add_switches(void *context, pid_t thread) {
  char path[64];
  struct switches *switches = context;
  if (WITH_THREAD_SANITIZER && thread != switches->process) return; /* it has threads of its own */
  snprintf(path, sizeof path, "/proc/%d/task/%d/status", switches->process, thread);
  switches->sum += proc_number(path, "voluntary_ctxt_switches");
}

static int64_t count_switches(const struct process *process) {
  struct switches switches = {.process = process->pid};
  for_each_thread(process->pid, add_switches, &switches);
  return switches.sum;
}

static void look_whether_idle(void *context, pid_t thread) {
  char path[64], state = '?';
  bool *idle = context;
  snprintf(path, sizeof path, "/proc/%d/stat", thread);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
  if (file) fclose(file);
  *idle = *idle && state == 'S';
}

/* Every thread sleeps, and none has gone to sleep since the first look: nobody is about to wake
 * another one. */
static bool are_idle(struct process *const *processes, int count) {
  int64_t before = 0, after = 0;
  bool idle = true;
  for (int i = 0; i < count; i++)
    before += count_switches(processes[i]);
  for (int i = 0; i < count; i++)
    for_each_thread(processes[i]->pid, look_whether_idle, &idle);
  for (int i = 0; i < count; i++)
    after += count_switches(processes[i]);
  return idle && before == after;
}

static bool is_asleep(const struct process *process) {
  char path[64], name[64] = "";
  snprintf(path, sizeof path, "/proc/%d/wchan", process->pid);
  FILE *file = fopen(path, "r");
  if (file && !fgets(name, sizeof name, file)) name[0] = '\0';
  if (file) fclose(file);
  return strstr(name, "futex") != NULL;
}

/* Other programs' names come and go where the old wire has its own; by "test" the harness knows it. */
static void make_noise(void) {
  char name[64];
  snprintf(name, sizeof name, "/cudalink-test-noise-%d", (int)getpid());
  int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  close(fd);
  CHECK_EQUAL(shm_unlink(name), 0);
}

/* P54: ten seconds without a frame: none of a blocked consumer's threads, and none of the
 * producer's, runs once. */
TEST(field_p54, 40) {
  struct process *consumers[2] = {start_consumer("policy=latest")}; /* which looks for a while */
  struct process *producer = start_producer("salt=1");
  consumers[1] = start_consumer("policy=every");
  for (int i = 0; i < 2; i++)
    wait_joined(consumers[i]);
  ASK(producer, "publish 1", "published 1");
  for (int i = 0; i < 2; i++) {
    ASK(consumers[i], "take 1", "took 1 1 0 1");
    process_tell(consumers[i], "acquire 30000");
    WAIT_UNTIL(is_asleep(consumers[i]));
  }
  struct process *all[3] = {consumers[0], consumers[1], producer};
  WAIT_UNTIL(are_idle(all, 3)); /* their last work after joining is done */
  int64_t before[3] = {count_switches(consumers[0]), count_switches(consumers[1]),
                       count_switches(producer)};
  for (int second = 0; second < 10; second++) { /* of the promise */
    make_noise();
    harness_pause(1000000);
  }
  CHECK_EQUAL(count_switches(consumers[0]), before[0]);
  CHECK_EQUAL(count_switches(consumers[1]), before[1]);
  CHECK_EQUAL(count_switches(producer), before[2]);
  ASK(producer, "publish 1", "published 2");
  for (int i = 0; i < 2; i++)
    process_expect(consumers[i], "frame 2 1");
  for (int i = 0; i < 2; i++)
    process_finish(consumers[i]);
  process_finish(producer);
}

/* A consumer without a producer looks now and then for what inotify can't see, no more (P14,
 * P25). Names in /dev/shm wake one that may find its producer there, so this one may not. */
TEST(waiting_for_a_producer_costs_nothing, 20) {
  struct process *consumer = start_consumer("name=nobody policy=latest wire=%d", CUDALINK_WIRE_OWN);
  process_tell(consumer, "acquire 5000");
  WAIT_UNTIL(is_asleep(consumer));
  int64_t before = count_switches(consumer);
  CHECK_CONTAINS(process_hear(consumer), "error CUDALINK_ERROR_TIMEOUT");
  int64_t switches = count_switches(consumer) - before;
  if (switches > 60) FAIL("%lld wake-ups in 5 s of waiting for a producer", (long long)switches);
  process_finish(consumer);
}
