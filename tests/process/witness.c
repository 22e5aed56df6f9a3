/* SPDX-License-Identifier: MIT
 *
 * The witness thread, and the kernel's count of time spent ready but not running.
 */
#include "witness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
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
