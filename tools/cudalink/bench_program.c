/* SPDX-License-Identifier: MIT
 *
 * The program itself: how long `list` takes, what `watch` costs a channel that it looks at, whether
 * `record` keeps up. The program is started as people start it, on frames in memory of the CPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define LONG 20000000000 /* ns: a time-out that never passes */
#define CHANNELS 200
#define WARM_UP 3
#define PERIOD UINT64_C(1000000) /* ns between frames that are watched */
#define FRAME_TIME 16666667      /* ns, of 60 frames per second */
#define PICTURE_BYTES ((size_t)1920 * 1080 * 4)
#define NEEDED_RATE ((double)PICTURE_BYTES * 60 / 1e6) /* MB/s */
#define SURPLUS 1.25                                   /* a disk that can is faster than that */

/* ---- this program, started again ------------------------------------------------------------- */

static void become_program(const struct bench_scene *scene, pid_t parent, char *const arguments[],
                           int output) {
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* this measurement may be ended */
  if (getppid() != parent) _exit(1);
  setenv("CUDALINK_RUNTIME_DIR", scene->options->directory, 1);
  if (dup2(output < 0 ? nowhere : output, 1) >= 0 && dup2(nowhere, 2) >= 0)
    execv("/proc/self/exe", arguments);
  _exit(127);
}

/* Its output goes into a pipe, or nowhere. The caller must not use the library. */
static pid_t start_program(struct bench_scene *scene, char *const arguments[], int *output) {
  int ends[2] = {-1, -1};
  if (output && pipe2(ends, O_CLOEXEC) != 0) {
    bench_fail(scene, "no pipe can be made: %s", strerror(errno));
    return -1;
  }
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) become_program(scene, parent, arguments, ends[1]);
  if (pid < 0) bench_fail(scene, "can't fork: %s", strerror(errno));
  if (output) {
    close(ends[1]);
    *output = ends[0];
  }
  return pid;
}

/* Its exit code, and the time of the processor that it has used, in ms. */
static int wait_program(pid_t pid, double *cpu) {
  struct rusage usage = {0};
  int status = 0;
  while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR)
    continue;
  *cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int open_host(struct bench_scene *scene, const char *name, uint32_t width, uint32_t height,
                     uint32_t slots, cudalink_exporter *exporter,
                     cudalink_description *description) {
  *description = (cudalink_description){0};
  cudalink_describe_picture(description, CUDALINK_FORMAT_RGBA8, width, height, 1);
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS,
                                 .name = name,
                                 .description = description,
                                 .kind = CUDALINK_KIND_HOST,
                                 .directory = scene->options->directory,
                                 .slots = slots};
  return cudalink_exporter_open(exporter, &spec) < 0 ? bench_fail_library(scene, "open") : BENCH_OK;
}

/* ---- list ------------------------------------------------------------------------------------ */

static void allow_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static int many_channels(struct bench_scene *scene) {
  allow_descriptors();
  for (int i = 0; i < CHANNELS; i++) {
    char name[32];
    cudalink_exporter exporter;
    cudalink_description description;
    snprintf(name, sizeof name, "channel-%03d", i);
    if (open_host(scene, name, 16, 16, 0, &exporter, &description) ||
        bench_publish(scene, exporter, &description))
      return BENCH_FAILED;
  }
  atomic_store(&scene->ready, 1);
  bench_futex_wake(&scene->ready, 1);
  while (!bench_stopped(scene))
    bench_futex_wait(&scene->stop, 0);
  return BENCH_OK;
}

/* parameter 0: wall time, 1: time of the processor. */
static int time_list(struct bench_scene *scene) {
  char *arguments[] = {(char *)"cudalink", (char *)"list", NULL};
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    double cpu;
    uint64_t start = bench_ticks();
    pid_t pid = start_program(scene, arguments, NULL);
    if (pid < 0) return BENCH_FAILED;
    if (wait_program(pid, &cpu) != 0) return bench_fail(scene, "cudalink list failed");
    double wall = bench_nanoseconds(bench_ticks() - start) / 1e6;
    if (i >= WARM_UP) bench_value(scene, scene->parameter ? cpu : wall);
  }
  return BENCH_OK;
}

static int list_them(struct bench_scene *scene, uint32_t seat) {
  (void)seat;
  while (!atomic_load(&scene->ready) && !bench_stopped(scene))
    bench_futex_wait(&scene->ready, 0);
  int status = bench_stopped(scene) ? BENCH_FAILED : time_list(scene);
  atomic_store(&scene->stop, 1);
  bench_futex_wake(&scene->stop, 1);
  return status;
}

int bench_list(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, many_channels, list_them, 1);
}

/* ---- watch ----------------------------------------------------------------------------------- */

static void wait_until(uint64_t time) {
  while (cudalink_now() < time)
    continue;
}

static int watched_producer(struct bench_scene *scene) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (open_host(scene, scene->name, 128, 128, 4, &exporter, &description)) return BENCH_FAILED;
  bench_pin_producer();
  while (atomic_load(&scene->ready) < scene->consumers && !bench_stopped(scene))
    continue;
  uint64_t due = cudalink_now();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    cudalink_slot slot;
    if (cudalink_exporter_begin(exporter, &description, LONG, &slot) < 0)
      return bench_fail_library(scene, "begin");
    wait_until(due += PERIOD);
    if (bench_hand_over(scene, exporter, &slot, i + 1, i >= WARM_UP)) return BENCH_FAILED;
  }
  atomic_store(&scene->stop, 1);
  return BENCH_OK;
}

static int watched_consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  if (bench_import(scene, 10 * PERIOD, &importer)) return BENCH_FAILED;
  bench_pin_consumer(seat);
  atomic_fetch_add(&scene->ready, 1);
  return bench_take_over(scene, importer, scene->rounds + WARM_UP);
}

/* Looks 20 times a second, which is as often as it goes; ready once it has looked. */
static int watcher(struct bench_scene *scene) {
  char *arguments[] = {(char *)"cudalink",   (char *)"watch", (char *)"--json",
                       (char *)"--interval", (char *)"0.05",  NULL};
  char look[4096];
  int output, has_looked = 0;
  double cpu;
  pid_t pid = start_program(scene, arguments, &output);
  if (pid < 0) return BENCH_FAILED;
  while (!bench_stopped(scene) && read(output, look, sizeof look) > 0)
    if (!has_looked) {
      has_looked = 1;
      atomic_fetch_add(&scene->ready, 1);
    }
  kill(pid, SIGKILL);
  wait_program(pid, &cpu);
  close(output);
  return has_looked ? BENCH_OK : bench_fail(scene, "cudalink watch showed nothing");
}

static int watched_end(struct bench_scene *scene, uint32_t seat) {
  return seat == 0 ? watched_consumer(scene, seat) : watcher(scene);
}

/* parameter 1: somebody watches. */
int bench_watched(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, watched_producer, watched_end, test->parameter ? 2 : 1);
}

/* ---- record ---------------------------------------------------------------------------------- */

static void path_of(const struct bench_scene *scene, const char *name, char path[320]) {
  snprintf(path, 320, "%s/%s", scene->options->directory, name);
}

/* MB/s of plain writes of as many pictures as are recorded. 0: it failed. */
static double disk_rate(struct bench_scene *scene, const void *picture) {
  char path[320];
  path_of(scene, "disk", path);
  int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  uint64_t start = bench_ticks();
  uint32_t written = 0;
  while (written < scene->rounds && write(file, picture, PICTURE_BYTES) == (ssize_t)PICTURE_BYTES)
    written++;
  double seconds = bench_nanoseconds(bench_ticks() - start) / 1e9;
  close(file);
  unlink(path);
  return written == scene->rounds ? written * (double)PICTURE_BYTES / 1e6 / seconds : 0;
}

static int send_pictures(struct bench_scene *scene, cudalink_exporter exporter,
                         const cudalink_description *description, const void *picture) {
  if (cudalink_exporter_wait_consumers(exporter, 1, LONG) < 0)
    return bench_fail_library(scene, "wait for the consumer");
  uint64_t due = cudalink_now();
  for (uint32_t i = 0; i < scene->rounds; i++) {
    struct timespec time;
    due += FRAME_TIME;
    time = (struct timespec){(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    int status = cudalink_exporter_send(exporter, description, picture, NULL,
                                        CUDALINK_STREAM_COMPLETE, LONG);
    if (status < 0) return bench_fail_library(scene, "send");
  }
  cudalink_exporter_close(exporter);
  return BENCH_OK;
}

static int send_recorded(struct bench_scene *scene, const void *picture) {
  cudalink_exporter exporter;
  cudalink_description description;
  double rate = disk_rate(scene, picture);
  if (rate < NEEDED_RATE * SURPLUS)
    return bench_leave_out(scene, "the disk of %s takes %.0f MB/s, 1080p60 RGBA8 is %.0f",
                           scene->options->directory, rate, NEEDED_RATE);
  if (open_host(scene, scene->name, 1920, 1080, 16, &exporter, &description)) return BENCH_FAILED;
  return send_pictures(scene, exporter, &description, picture);
}

static int recorded_producer(struct bench_scene *scene) {
  void *picture = malloc(PICTURE_BYTES);
  if (!picture) return bench_fail(scene, "no memory for a picture");
  memset(picture, 17, PICTURE_BYTES);
  int status = send_recorded(scene, picture);
  free(picture);
  return status;
}

static double value_of(const char *text, const char *key) {
  const char *place = strstr(text, key);
  return place ? strtod(place + strlen(key), NULL) : -1;
}

/* parameter 0: how many frames it missed, 1: the part of the time, in %, that it spent in writing. */
static int recorder(struct bench_scene *scene, uint32_t seat) {
  char path[320], text[2048];
  char *arguments[] = {
      (char *)"cudalink", (char *)"record",    scene->name,  path, (char *)"--once",
      (char *)"--json",   (char *)"--timeout", (char *)"60", NULL};
  size_t length = 0;
  int output;
  double cpu;
  (void)seat;
  path_of(scene, "take.rec", path);
  pid_t pid = start_program(scene, arguments, &output);
  if (pid < 0) return BENCH_FAILED;
  for (ssize_t count; length < sizeof text - 1 &&
                      (count = read(output, text + length, sizeof text - 1 - length)) > 0;)
    length += (size_t)count;
  text[length] = '\0';
  int code = wait_program(pid, &cpu);
  unlink(path);
  double missed = value_of(text, "\"missed\": "), writing = value_of(text, "\"writing\": ");
  if (code > 1 || code < 0 || missed < 0) return bench_fail(scene, "cudalink record failed");
  bench_value(scene, scene->parameter ? 100 * writing : missed);
  return BENCH_OK;
}

int bench_record(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, recorded_producer, recorder, 1);
}
