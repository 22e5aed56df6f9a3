/* SPDX-License-Identifier: MIT
 *
 * The witness thread, and the kernel's count of time spent ready but not running.
 */
#include "witness.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "harness.h"

#define TICK 1000000
#define USUAL 200000 /* ns: a timer is never exact */

static _Atomic uint64_t late;

static void *watch(void *context) {
  (void)context;
  for (;;) {
    uint64_t planned = cudalink_now() + TICK;
    struct timespec until = {.tv_sec = (time_t)(planned / 1000000000),
                             .tv_nsec = (long)(planned % 1000000000)};
    /* This is a measurement; nothing waits for it. */
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    uint64_t now = cudalink_now();
    if (now > planned + USUAL) atomic_fetch_add(&late, now - planned - USUAL);
  }
  return NULL;
}

void witness_start(void) {
  pthread_t thread;
  CHECK_EQUAL(pthread_create(&thread, NULL, watch, NULL), 0);
  pthread_detach(thread);
}

uint64_t witness_late(void) { return atomic_load(&late); }

static void add_delay(void *context, pid_t thread) {
  char path[64];
  unsigned long long ran, delayed = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", thread);
  FILE *file = fopen(path, "r");
  if (!file) return;
  if (fscanf(file, "%llu %llu", &ran, &delayed) != 2) delayed = 0;
  fclose(file);
  *(uint64_t *)context += delayed;
}

struct witness_mark witness_now(void) {
  struct witness_mark mark = {.late = atomic_load(&late), .time = cudalink_now()};
  for_each_thread(getpid(), add_delay, &mark.delayed);
  return mark;
}

int64_t witness_since(const struct witness_mark *mark) {
  struct witness_mark now = {.time = cudalink_now()};
  for_each_thread(getpid(), add_delay, &now.delayed);
  now.late = atomic_load(&late);
  /* The two see the same thing from two sides. */
  uint64_t waited = now.late - mark->late, delayed = now.delayed - mark->delayed;
  if (delayed > waited) waited = delayed;
  return (int64_t)(now.time - mark->time) - (int64_t)waited;
}

/* ---- a process that ends ------------------------------------------------------------------------ */

static void *await_end(void *context) {
  struct witness_end *end = context;
  struct pollfd process = {.fd = end->process, .events = POLLIN};
  while (poll(&process, 1, -1) != 1)
    continue;
  end->mark = witness_now();
  /* release: pairs with the acquire load of witness_end_since, which reads the mark. */
  atomic_store_explicit(&end->ended, true, memory_order_release);
  return NULL;
}

/* Of all its threads, those that have ended too. */
static uint64_t running_time(clockid_t clock) {
  struct timespec time;
  CHECK_EQUAL(clock_gettime(clock, &time), 0);
  return (uint64_t)time.tv_sec * (uint64_t)SECOND + (uint64_t)time.tv_nsec;
}

void witness_end_begins(struct witness_end *end, pid_t pid, int process) {
  *end = (struct witness_end){.process = process};
  CHECK_EQUAL(clock_getcpuclockid(pid, &end->clock), 0);
  CHECK_EQUAL(pthread_create(&end->thread, NULL, await_end, end), 0);
  end->ran = running_time(end->clock);
}

int64_t witness_end_since(const struct witness_end *end) {
  bool ended = atomic_load_explicit(&end->ended, memory_order_acquire);
  int64_t since = ended ? witness_since(&end->mark) : 0;
  return (int64_t)(running_time(end->clock) - end->ran) + since;
}

void witness_end_is_over(const struct witness_end *end) { pthread_join(end->thread, NULL); }
