/* SPDX-License-Identifier: MIT
 *
 * Which processors a measurement runs on. Two of them can be threads of one core: then a consumer that
 * looks all the time takes half of its producer's time, and a virtual machine doesn't say which ones are.
 * Others share their core with somebody else's machine. So each is tried: how fast it is now, and how
 * fast the best one is while another one computes.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define MAX_TRIED 32     /* processors; of more the others come last */
#define TRIES 7          /* of each, the median counts */
#define STEPS 40000      /* of one try: 0.1 ms or less */
#define SHARED_CORE 1.25 /* that much slower beside its other thread; 1.5 is usual */

struct processor {
  int number;
  double time; /* of a try, in ticks */
  bool shares; /* its core with the producer's */
};

static struct processor chosen[CPU_SETSIZE];
static int chosen_count;

static bool run_on(int number) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)number, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

/* Enough at a time to keep a core busy. */
static void compute(void) {
  uint64_t a = 1, b = 2, c = 3, d = 4;
  for (int i = 0; i < STEPS; i++) {
    a = a * 3 + 1;
    b = (b ^ a) + 5;
    c = c * 7 + 3;
    d = (d ^ c) + 9;
  }
  __asm__ volatile("" : : "r"(a ^ b ^ c ^ d)); /* so that it is computed */
}

static int compare_times(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double time_here(void) {
  double times[TRIES];
  for (int i = 0; i < TRIES; i++) {
    uint64_t start = bench_ticks();
    compute();
    times[i] = (double)(bench_ticks() - start);
  }
  qsort(times, TRIES, sizeof times[0], compare_times);
  return times[TRIES / 2];
}

/* Computes there until it is killed, and says when it has begun. */
static pid_t keep_busy(int number) {
  int ready[2];
  char byte = 0;
  if (pipe(ready) != 0) return -1;
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool there = run_on(number) && write(ready[1], &byte, 1) == 1;
    while (there)
      compute();
    _exit(1);
  }
  close(ready[1]);
  if (pid > 0 && read(ready[0], &byte, 1) != 1) { /* it failed, or a signal ends us */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    pid = -1;
  }
  close(ready[0]);
  return pid;
}

/* On the producer's processor. */
static bool shares_core(const struct processor *producer, int number) {
  pid_t pid = keep_busy(number);
  if (pid < 0) return false;
  double time = time_here();
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return time > producer->time * SHARED_CORE;
}

static int by_time(const void *left, const void *right) {
  const struct processor *a = left, *b = right;
  return (a->time > b->time) - (a->time < b->time);
}

/* Those of the producer's core last, else the fastest first. */
static int by_use(const void *left, const void *right) {
  const struct processor *a = left, *b = right;
  return a->shares != b->shares ? a->shares - b->shares : by_time(left, right);
}

static int list_allowed(const cpu_set_t *allowed) {
  int count = 0;
  for (int number = 0; number < CPU_SETSIZE; number++)
    if (CPU_ISSET((size_t)number, allowed)) chosen[count++] = (struct processor){.number = number};
  return count;
}

void bench_choose_processors(void) {
  cpu_set_t allowed;
  chosen_count = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  chosen_count = list_allowed(&allowed);
  int tried = chosen_count < MAX_TRIED ? chosen_count : MAX_TRIED;
  if (tried < 3) return; /* there is no choice */
  for (int i = 0; i < tried; i++)
    chosen[i].time = run_on(chosen[i].number) ? time_here() : 1e18;
  qsort(chosen, (size_t)tried, sizeof chosen[0], by_time);
  if (run_on(chosen[0].number))
    for (int i = 1; i < tried; i++)
      chosen[i].shares = shares_core(&chosen[0], chosen[i].number);
  qsort(chosen + 1, (size_t)tried - 1, sizeof chosen[0], by_use);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

void bench_pin_producer(void) {
  if (chosen_count > 1) run_on(chosen[0].number);
}

void bench_pin_consumer(uint32_t seat) {
  if (chosen_count > 1) run_on(chosen[1 + seat % (uint32_t)(chosen_count - 1)].number);
}
