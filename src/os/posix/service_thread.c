/* SPDX-License-Identifier: MIT
 *
 * Starting the service thread, and waking it. Nothing of the program reaches it: it blocks every
 * signal and has a descriptor table of its own.
 */
#include "service_thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STACK_SIZE ((size_t)128 * 1024)

/* Lives on the starter's stack until the thread says that it runs. */
struct start {
  struct os_service_thread *thread;
  const char *name;
  void (*main)(void *context);
  void *context;
  sem_t running;
  int result;
  char sentence[256];
};

static _Thread_local const struct os_service_thread *current;

static int set_up(struct os_service_thread *thread, const char *name) {
  prctl(PR_SET_NAME, name);
  thread->thread = (pid_t)syscall(SYS_gettid);
  /* Batch: a thread that wakes it by publishing is not preempted by it on the spot. */
  sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
  thread->isolation = os_isolate();
  int result = os_poll_open(thread);
  return result != CUDALINK_OK ? result : os_exchange_open(thread);
}

static void *run(void *argument) {
  struct start *start = argument;
  void (*main)(void *context) = start->main;
  void *context = start->context;
  struct os_service_thread *thread = start->thread;
  current = thread;
  int result = start->result = set_up(thread, start->name);
  /* The sentence is kept per thread; it has to cross. */
  snprintf(start->sentence, sizeof start->sentence, "%s", cudalink_last_error());
  if (result != CUDALINK_OK) {
    os_handle_close(&thread->exchange.spare);
    os_handle_close(&thread->exchange.listener);
    os_handle_close(&thread->exchange.epoll);
    os_handle_close(&thread->signals);
    os_handle_close(&thread->epoll);
  }
  sem_post(&start->running); /* `start` is gone from here on */
  if (result == CUDALINK_OK) main(context);
  return NULL;
}

/* Creates the thread with all signals blocked from its first instruction on. */
static int create(struct start *start, size_t stack_size) {
  pthread_attr_t attributes;
  sigset_t all, before;
  pthread_t created;
  int reason = pthread_attr_init(&attributes);
  if (reason != 0) return reason;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (stack_size) reason = pthread_attr_setstacksize(&attributes, stack_size);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (reason == 0) reason = pthread_create(&created, &attributes, run, start);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return reason;
}

static int start_and_wait(struct start *start) {
  int reason = create(start, STACK_SIZE);
  /* A program with much thread-local data needs more: the C library takes it from the stack. */
  if (reason == EINVAL) reason = create(start, 0);
  if (reason != 0)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, reason,
                           "can't start the service thread (ulimit -u and pids.max limit them)");
  while (sem_wait(&start->running) != 0)
    continue; /* interrupted by a signal */
  return start->result == CUDALINK_OK ? CUDALINK_OK
                                      : error_set(start->result, "%s", start->sentence);
}

int os_service_thread_start(struct os_service_thread **thread, const char *name,
                            void (*main)(void *context), void *context) {
  *thread = NULL;
  os_without_read();
  struct os_service_thread *made = malloc(sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "out of memory");
  *made = (struct os_service_thread){
      .process = getpid(),
      .epoll = OS_NO_HANDLE,
      .signals = OS_NO_HANDLE,
      .exchange = {.epoll = OS_NO_HANDLE, .listener = OS_NO_HANDLE, .spare = OS_NO_HANDLE},
  };
  struct start start = {.thread = made, .name = name, .main = main, .context = context};
  sem_init(&start.running, 0, 0);
  int result = start_and_wait(&start);
  sem_destroy(&start.running);
  if (result != CUDALINK_OK)
    free(made);
  else
    *thread = made;
  return result;
}

enum os_isolation os_service_thread_isolation(const struct os_service_thread *thread) {
  return thread->isolation;
}

void os_service_thread_wake(const struct os_service_thread *thread) {
  int saved = errno; /* for signal handlers */
  syscall(SYS_tgkill, thread->process, thread->thread, OS_WAKE_SIGNAL);
  errno = saved;
}

bool os_service_thread_current(const struct os_service_thread *thread) { return current == thread; }
