/* SPDX-License-Identifier: MIT
 *
 * A killed peer is noticed within 50 ms of running time: however much memory it had, whatever it
 * forked, closed, or dumped. What counts is the time for which the dying process runs, and from its
 * end on that for which the survivor does not wait for a processor: each has to on a busy machine.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "roles.h"
#include "witness.h"

#define LIMIT (50 * MILLISECOND)
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)
#define FILL_PART (32 * MIB)

/* ---- who dies -------------------------------------------------------------------------------- */

/* Memory that must be given back page by page when the process ends. */
static void fill_memory(int64_t bytes) {
  if (bytes <= 0) return;
  void *memory =
      mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  madvise(memory, (size_t)bytes, MADV_NOHUGEPAGE);
  for (int64_t at = 0; at < bytes; at += 4096) {
    /* Linux 5.14: faster. In parts, because it keeps other threads from mapping meanwhile. */
    bool start = at % FILL_PART == 0 && bytes - at >= FILL_PART;
    if (start && madvise((char *)memory + at, FILL_PART, MADV_POPULATE_WRITE) == 0)
      at += FILL_PART - 4096;
    else
      ((char *)memory)[at] = 1;
  }
}

/* A child that lives on, with everything that a fork inherits, until the test ends. */
static void leave_child(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child) return;
  struct pollfd channel = {.fd = HELPER_CHANNEL, .events = POLLIN};
  for (char line[LINE_SIZE]; poll(&channel, 1, -1) >= 0;)
    if (recv(HELPER_CHANNEL, line, sizeof line, MSG_PEEK) <= 0) _exit(0);
  _exit(0);
}

static void close_everything(void) {
  syscall(SYS_close_range, 0, HELPER_CHANNEL - 1, 0);
  syscall(SYS_close_range, HELPER_CHANNEL + 1, ~0u, 0);
}

static void allow_core(void) {
  struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  CHECK_EQUAL(setrlimit(RLIMIT_CORE, &all), 0);
  CHECK_EQUAL(chdir(test_scratch), 0);
  prctl(PR_SET_DUMPABLE, 1);
}

/* Options: role=producer|consumer memory=BYTES burden=none|fork|closefrom|core. Opens, says
 * "ready", does nothing until it is killed. */
HELPER(victim) {
  const char *burden = option("burden", "none");
  bool produces = !strcmp(option("role", ""), "producer");
  cudalink_exporter exporter;
  cudalink_importer importer;
  char line[LINE_SIZE];
  if (produces)
    CHECK_OK(open_producer(&exporter, "a", 65536));
  else
    CHECK_OK(cudalink_importer_open(
        &importer,
        &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                  .policy = CUDALINK_POLICY_EVERY, .open_timeout = 10 * SECOND}));
  fill_memory(option_number("memory", 0));
  if (!strcmp(burden, "fork")) leave_child();
  if (!strcmp(burden, "closefrom")) close_everything();
  if (!strcmp(burden, "core")) allow_core();
  if (produces) {
    CHECK_OK(cudalink_exporter_wait_consumers(exporter, 1, CUDALINK_FOREVER));
    CHECK_OK(publish_frame(exporter, 65536, 1, 10 * SECOND, NULL));
  }
  say("ready");
  while (hear(line))
    continue;
}

/* ---- who survives ---------------------------------------------------------------------------- */

static int64_t time_kill(pid_t victim, int handle, int (*notice)(void *context), void *context) {
  struct witness_end end;
  witness_end_begins(&end, victim, handle);
  CHECK_EQUAL(syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0), 0);
  CHECK_OK(notice(context));
  int64_t took = witness_end_since(&end);
  witness_end_is_over(&end);
  return took;
}

/* The time runs from the end of the process. */
static int64_t time_dump(int handle, int number, int (*notice)(void *context), void *context) {
  struct pollfd ended = {.fd = handle, .events = POLLIN};
  CHECK_EQUAL(syscall(SYS_pidfd_send_signal, handle, number, NULL, 0), 0);
  harness_waits(__FILE__, __LINE__, "the core dump");
  while (poll(&ended, 1, -1) != 1)
    continue;
  struct witness_mark mark = witness_now();
  CHECK_OK(notice(context));
  return witness_since(&mark);
}

/* Kills and waits until the other's end has an effect. Returns ns of running time. */
static int64_t time_end(pid_t victim, int number, int (*notice)(void *context), void *context) {
  int handle = (int)syscall(SYS_pidfd_open, victim, 0);
  CHECK(handle >= 0);
  int64_t took = number == SIGKILL ? time_kill(victim, handle, notice, context)
                                   : time_dump(handle, number, notice, context);
  close(handle);
  return took;
}

static int notice_producer(void *context) {
  struct consumer *consumer = context;
  int status = consumer_take(consumer, 20 * SECOND);
  return status == CUDALINK_ERROR_LOST ? CUDALINK_OK : status;
}

static int notice_consumer(void *context) {
  return publish_frame(*(cudalink_exporter *)context, 65536, 2, 20 * SECOND, NULL);
}

static void survive_producer(pid_t victim, int number, struct consumer *consumer) {
  CHECK_OK(consumer_take(consumer, CUDALINK_FOREVER));
  say("%lld", (long long)time_end(victim, number, notice_producer, consumer));
}

/* The victim wants every frame and takes none: the producer is held up until it has noticed. */
static void survive_consumer(pid_t victim, int number, cudalink_exporter exporter) {
  int status = CUDALINK_OK;
  while (status == CUDALINK_OK)
    status = publish_frame(exporter, 65536, 2, 0, NULL);
  CHECK_STATUS(status, CUDALINK_ERROR_BUSY);
  say("%lld", (long long)time_end(victim, number, notice_consumer, &exporter));
}

/* Opens, and for each line "PID SIGNAL" ends that process and says how long that went unnoticed. */
HELPER(survivor) {
  bool produces = !strcmp(option("role", ""), "producer");
  cudalink_exporter exporter;
  struct consumer consumer = {0};
  char line[LINE_SIZE];
  witness_start();
  if (produces)
    CHECK_OK(open_producer(&exporter, "a", 65536));
  else
    CHECK_OK(cudalink_importer_open(
        &consumer.importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a"}));
  say("open");
  while (hear(line)) {
    int victim, number;
    CHECK_EQUAL(sscanf(line, "%d %d", &victim, &number), 2);
    if (produces)
      survive_consumer(victim, number, exporter);
    else
      survive_producer(victim, number, &consumer);
  }
  if (produces)
    CHECK_OK(cudalink_exporter_close(exporter));
  else
    CHECK_OK(cudalink_importer_close(consumer.importer));
}

static int64_t measure(const char *survivor_role, const char *victim_options, int number) {
  bool produces = !strcmp(survivor_role, "producer");
  struct process *survivor = process_start("survivor", "role=%s hold_ms=600000", survivor_role);
  process_expect(survivor, "open");
  struct process *victim =
      process_start("victim", "role=%s %s", produces ? "consumer" : "producer", victim_options);
  process_expect(victim, "ready");
  int64_t took = atoll(process_ask(survivor, "%d %d", victim->pid, number));
  int status = process_wait(victim);
  CHECK_EQUAL(WTERMSIG(status), number);
  if (number != SIGKILL) CHECK(WCOREDUMP(status));
  process_finish(survivor);
  return took;
}

static void check_notice(const char *victim_options, int number, int times) {
  for (int i = 0; i < times; i++) {
    const char *roles[] = {"consumer", "producer"};
    for (int r = 0; r < 2; r++) {
      int64_t took = measure(roles[r], victim_options, number);
      printf("%s survives %s: %.3f ms\n", roles[r], victim_options, (double)took / 1e6);
      if (took > LIMIT)
        FAIL("a %s noticed a killed peer (%s) after %.1f ms of running time", roles[r],
             victim_options, (double)took / 1e6);
    }
  }
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(noticed, 60) { check_notice("burden=none", SIGKILL, 20); }

TEST(noticed_with_256_MiB, 60) { check_notice("burden=none memory=268435456", SIGKILL, 10); }

/* Filling them takes a busy machine its time. */
TEST(noticed_with_8_GiB, 240) {
  char options[64];
  if (available_memory() < 9 * GIB) SKIP("needs 8 GiB of free memory"); /* others need some too */
  snprintf(options, sizeof options, "burden=none memory=%lld", (long long)(8 * GIB));
  check_notice(options, SIGKILL, 1);
}

TEST(noticed_with_a_child_that_lives_on, 60) { check_notice("burden=fork", SIGKILL, 10); }

TEST(noticed_with_a_child_and_1_GiB, 60) {
  check_notice("burden=fork memory=1073741824", SIGKILL, 3);
}

#if !WITH_THREAD_SANITIZER /* there the service thread has no table of its own: closefrom ends it */
TEST(noticed_after_closefrom, 60) { check_notice("burden=closefrom", SIGKILL, 10); }
#endif

TEST(noticed_after_core_dump, 60) { check_notice("burden=core memory=134217728", SIGABRT, 3); }

/* ---- older kernels --------------------------------------------------------------------------- */

/* Each newer feature has a fall-back; a death is noticed with it too, if not that fast with much
 * memory. */
static void check_without(const char *features) {
  setenv("CUDALINK_OS_WITHOUT", features, 1);
  check_notice("burden=none", SIGKILL, 3);
  check_notice("burden=fork", SIGKILL, 3);
}

TEST(noticed_without_close_range, 60) { check_without("close_range"); }
TEST(noticed_without_own_table, 60) { check_without("close_range,unshare"); }
TEST(noticed_without_aio, 60) { check_without("aio"); }
TEST(noticed_without_pidfd, 60) { check_without("pidfd,peerpidfd"); }
TEST(noticed_without_anything_new, 60) {
  check_without("peerpidfd,aio,noexec_seal,populate,close_range");
}
