/* SPDX-License-Identifier: MIT
 *
 * Child processes that measure together: forked, seated on processors, waited for, ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "stop.h"

#define LIMIT 120000000000 /* ns that one measurement may take */

/* ---- failures and values -------------------------------------------------------------------- */

/* Once `failed` is seen, whoever still writes may be killed: so it comes behind the text. */
static void keep_text(struct bench_scene *scene, uint32_t left_out, const char *format,
                      va_list arguments) {
  if (atomic_exchange(&scene->telling, 1)) return; /* the first one counts */
  vsnprintf(scene->text, sizeof scene->text, format, arguments);
  atomic_store(&scene->left_out, left_out);
  atomic_store(&scene->failed, 1);
}

int bench_fail(struct bench_scene *scene, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep_text(scene, 0, format, arguments);
  va_end(arguments);
  return BENCH_FAILED;
}

int bench_leave_out(struct bench_scene *scene, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep_text(scene, 1, format, arguments);
  va_end(arguments);
  return BENCH_FAILED;
}

int bench_fail_library(struct bench_scene *scene, const char *call) {
  return bench_fail(scene, "%s: %s", call, cudalink_last_error());
}

void bench_value(struct bench_scene *scene, double value) {
  if (scene->value_count < BENCH_MAX_VALUES) scene->values[scene->value_count++] = value;
}

bool bench_stopped(struct bench_scene *scene) {
  return atomic_load(&scene->stop) || atomic_load(&scene->failed);
}

/* ---- waiting for one another ---------------------------------------------------------------- */

void bench_futex_wait(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

void bench_futex_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

static bool is_asleep(int32_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return false;
  text[size] = 0;
  const char *end = strrchr(text, ')'); /* "pid (name) S ..." */
  return end && end[1] == ' ' && end[2] == 'S';
}

bool bench_wait_asleep(int32_t pid) {
  uint64_t limit = cudalink_now() + 5000000000u;
  while (!is_asleep(pid)) {
    if (cudalink_now() > limit) return false;
    sched_yield();
  }
  return true;
}

bool bench_wait_for(struct bench_scene *scene, _Atomic uint64_t *word, uint64_t value) {
  uint64_t rounds = 0;
  while (atomic_load_explicit(word, memory_order_acquire) < value) {
    if (atomic_load_explicit(&scene->failed, memory_order_relaxed)) return false;
    if (++rounds > 2000) sched_yield(); /* it may need this processor */
  }
  return true;
}

/* ---- the play ------------------------------------------------------------------------------- */

/* 0: in the child, which ends with its parent. */
static pid_t fork_bound(void) {
  pid_t parent = getpid();
  fflush(NULL);
  pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  return 0;
}

static _Noreturn void end_child(struct bench_scene *scene, int status) {
  if (status != BENCH_OK) bench_fail(scene, "a process of the measurement failed");
  _exit(0);
}

static pid_t fork_producer(struct bench_scene *scene, bench_producer producer) {
  pid_t pid = fork_bound();
  if (pid != 0) return pid;
  end_child(scene, producer(scene));
}

static pid_t fork_consumer(struct bench_scene *scene, bench_consumer consumer, uint32_t seat) {
  pid_t pid = fork_bound();
  if (pid != 0) return pid;
  scene->seats[seat].pid = getpid();
  end_child(scene, consumer(scene, seat));
}

/* Waits for all children; after a failure, or too long, kills those that are left. */
static void wait_all(struct bench_scene *scene, pid_t *pids, uint32_t count) {
  uint64_t limit = cudalink_now() + LIMIT;
  uint32_t left = 0;
  for (uint32_t i = 0; i < count; i++)
    left += pids[i] > 0;
  while (left) {
    int end = BENCH_OK;
    for (uint32_t i = 0; i < count; i++) {
      int status;
      if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
      pids[i] = 0;
      left--;
      if (WIFSIGNALED(status))
        end = bench_fail(scene, "a process of the measurement died of signal %d", WTERMSIG(status));
    }
    if (cudalink_now() > limit) end = bench_fail(scene, "the measurement took too long");
    if (stop_requested()) end = bench_fail(scene, "a signal ended it");
    if (end != BENCH_OK) atomic_store(&scene->failed, 1); /* the one that was telling may be dead */
    if (atomic_load(&scene->failed))
      for (uint32_t i = 0; i < count; i++)
        if (pids[i] > 0) kill(pids[i], SIGKILL);
    if (left) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
}

static struct bench_scene *scene_make(const struct bench_case *test, uint32_t consumers) {
  static unsigned number;
  struct bench_scene *scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (scene == MAP_FAILED) return NULL;
  scene->options = test->options;
  scene->parameter = test->parameter;
  scene->rounds = test->rounds;
  scene->consumers = consumers;
  snprintf(scene->name, sizeof scene->name, "bench %u", ++number);
  return scene;
}

int bench_play(struct bench_case *test, struct bench_samples *samples, bench_producer producer,
               bench_consumer consumer, uint32_t consumers) {
  struct bench_scene *scene = scene_make(test, consumers);
  if (!scene) {
    snprintf(test->text, sizeof test->text, "no memory for the measurement");
    return BENCH_FAILED;
  }
  pid_t pids[BENCH_MAX_CONSUMERS + 1];
  pids[0] = fork_producer(scene, producer);
  for (uint32_t seat = 0; seat < consumers; seat++)
    pids[seat + 1] = fork_consumer(scene, consumer, seat);
  for (uint32_t i = 0; i <= consumers; i++)
    if (pids[i] < 0) bench_fail(scene, "can't fork: %s", strerror(errno));
  wait_all(scene, pids, consumers + 1);
  bool failed = atomic_load(&scene->failed) != 0;
  if (failed) snprintf(test->text, sizeof test->text, "%s", scene->text);
  for (uint32_t i = 0; i < scene->value_count && !failed; i++)
    bench_samples_add(samples, scene->values[i]);
  int status = !failed ? BENCH_OK : atomic_load(&scene->left_out) ? BENCH_LEFT_OUT : BENCH_FAILED;
  munmap(scene, sizeof *scene);
  return status;
}

/* ---- channels ------------------------------------------------------------------------------- */

int bench_export(struct bench_scene *scene, uint64_t slot_bytes, uint32_t slots,
                 cudalink_exporter *exporter, cudalink_description *description) {
  /* A picture of about so many bytes. */
  *description = (cudalink_description){0};
  uint32_t width = slot_bytes < 1 << 20 ? 128 : 1024;
  uint32_t height = (uint32_t)(slot_bytes / ((uint64_t)width * 4));
  if (cudalink_describe_picture(description, CUDALINK_FORMAT_RGBA8, width, height ? height : 1, 0))
    return bench_fail_library(scene, "describe");
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS,
                                 .name = scene->name,
                                 .description = description,
                                 .kind = scene->options->kind,
                                 .device = scene->options->device,
                                 .directory = scene->options->directory,
                                 .slots = slots};
  if (cudalink_exporter_open(exporter, &spec) < 0) return bench_fail_library(scene, "open");
  return BENCH_OK;
}

int bench_import(struct bench_scene *scene, uint64_t spin, cudalink_importer *importer) {
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = scene->name,
                                 .directory = scene->options->directory, .spin = spin,
                                 .open_timeout = 20000000000};
  int status = CUDALINK_ERROR_TIMEOUT; /* of the handshake: 64 processes start at the same time */
  for (int i = 0; i < 10 && status == CUDALINK_ERROR_TIMEOUT; i++)
    status = cudalink_importer_open(importer, &spec);
  return status < 0 ? bench_fail_library(scene, "attach") : BENCH_OK;
}

int bench_publish(struct bench_scene *scene, cudalink_exporter exporter,
                  const cudalink_description *description) {
  cudalink_slot slot;
  if (cudalink_exporter_begin(exporter, description, 5000000000, &slot) < 0)
    return bench_fail_library(scene, "begin");
  if (cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE) < 0)
    return bench_fail_library(scene, "publish");
  return BENCH_OK;
}
