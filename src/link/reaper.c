/* SPDX-License-Identifier: MIT
 *
 * The reaper's queue and its thread.
 */
#include "link/reaper.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "link/keep.h"

#define WAIT_STEP 1000000 /* ns */

struct work {
  struct work *next;
  struct gpu_block block;
  struct os_segment segment;
  struct gpu_device *device;
  struct gpu_device *waits_of, *words_of;
  void (*function)(void *argument);
  void *argument;
  char *line;
  cudalink_log_level level;
};

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t pushed;
  pthread_cond_t finished;
  struct work *first, **last;
  uint64_t pushed_count, finished_count;
  bool running;
} reaper = {.mutex = PTHREAD_MUTEX_INITIALIZER,
            .pushed = PTHREAD_COND_INITIALIZER,
            .finished = PTHREAD_COND_INITIALIZER};

static void do_work(struct work *work) {
  if (work->function) work->function(work->argument);
  if (work->line) log_deliver(work->level, work->line);
  free(work->line);
  _Atomic uint32_t nobody = 0;
  while (work->waits_of && !work->waits_of->operations->waits_landed(work->waits_of))
    os_sleep_on(&nobody, 0, os_deadline(WAIT_STEP), false);
  if (work->block.address && !keep_block(&work->block))
    work->block.device->operations->block_destroy(&work->block);
  if (work->words_of)
    work->words_of->operations->unregister_words(work->words_of, work->segment.address);
  if (work->segment.address && !keep_segment(&work->segment)) os_segment_destroy(&work->segment);
  if (work->device && !keep_device(work->device)) gpu_device_close(work->device);
  free(work);
}

static void *reaper_main(void *argument) {
  (void)argument;
  pthread_mutex_lock(&reaper.mutex);
  for (;;) {
    while (!reaper.first)
      pthread_cond_wait(&reaper.pushed, &reaper.mutex);
    struct work *work = reaper.first;
    reaper.first = work->next;
    if (!reaper.first) reaper.last = &reaper.first;
    pthread_mutex_unlock(&reaper.mutex);
    do_work(work);
    pthread_mutex_lock(&reaper.mutex);
    reaper.finished_count++;
    pthread_cond_broadcast(&reaper.finished);
  }
  return NULL;
}

int reaper_start(void) {
  int failed = 0;
  pthread_mutex_lock(&reaper.mutex);
  if (!reaper.running) {
    sigset_t all, old; /* signals stay the business of the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    reaper.last = &reaper.first;
    pthread_t thread;
    failed = pthread_create(&thread, NULL, reaper_main, NULL);
    if (!failed) pthread_detach(thread);
    reaper.running = !failed;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
  }
  pthread_mutex_unlock(&reaper.mutex);
  if (!failed) return CUDALINK_OK;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, failed,
                         "cannot start the reaper thread (ulimit -u and pids.max limit them)");
}

static void push(struct work filled) {
  struct work *work = malloc(sizeof *work);
  if (!work) {
    /* No memory to remember it: better late than leaked. */
    if (filled.block.address && !keep_block(&filled.block))
      filled.block.device->operations->block_destroy(&filled.block);
    if (filled.segment.address && !keep_segment(&filled.segment))
      os_segment_destroy(&filled.segment);
    if (filled.device && !keep_device(filled.device)) gpu_device_close(filled.device);
    free(filled.line);
    if (filled.function) filled.function(filled.argument);
    return;
  }
  *work = filled;
  pthread_mutex_lock(&reaper.mutex);
  *reaper.last = work;
  reaper.last = &work->next;
  reaper.pushed_count++;
  pthread_cond_signal(&reaper.pushed);
  pthread_mutex_unlock(&reaper.mutex);
}

void reaper_block(struct gpu_block *block) {
  if (!block->address) return;
  push((struct work){.block = *block});
  *block = (struct gpu_block){.shared.handle = OS_NO_HANDLE};
}

void reaper_segment(struct os_segment *segment) {
  if (!segment->address) return;
  push((struct work){.segment = *segment});
  *segment = (struct os_segment){.handle = OS_NO_HANDLE};
}

void reaper_segment_after_waits(struct os_segment *segment, struct gpu_device *device) {
  if (!segment->address) return;
  push((struct work){.segment = *segment, .waits_of = device});
  *segment = (struct os_segment){.handle = OS_NO_HANDLE};
}

void reaper_words(struct os_segment *segment, struct gpu_device *device) {
  push((struct work){.segment = *segment, .waits_of = device, .words_of = device});
  *segment = (struct os_segment){.handle = OS_NO_HANDLE};
}

void reaper_call(void (*function)(void *argument), void *argument) {
  push((struct work){.function = function, .argument = argument});
}

void reaper_log(cudalink_log_level level, const char *text) {
  push((struct work){.line = strdup(text), .level = level});
}

void reaper_device(struct gpu_device *device) {
  if (device) push((struct work){.device = device});
}

void reaper_drain(void) {
  pthread_mutex_lock(&reaper.mutex);
  uint64_t target = reaper.pushed_count;
  while (reaper.finished_count < target)
    pthread_cond_wait(&reaper.finished, &reaper.mutex);
  pthread_mutex_unlock(&reaper.mutex);
}
