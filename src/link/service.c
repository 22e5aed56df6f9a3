/* SPDX-License-Identifier: MIT
 *
 * The service thread's loop: sockets, commands of program threads, posted work, timers.
 */
#include "link/service.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "link/reaper.h"

/* A command of a program's thread, which waits on `done`. Lives on that thread's stack. */
#define TIMERS_AT_A_TIME 16

struct command {
  int (*function)(void *argument);
  void *argument;
  int result;
  char sentence[512];
  _Atomic uint32_t done;
  struct command *next;
};

static struct {
  pthread_mutex_t mutex; /* guards start and the queue of commands */
  struct os_service_thread *thread;
  struct command *first;
  struct command **last;
  _Atomic(struct service_work *) posted;          /* a stack */
  struct service_timer *first_timer, *last_timer; /* the next one to fire first */
  _Atomic uint32_t running;
} service = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int service_refuse_fork(void) {
  return error_set(CUDALINK_ERROR_FORKED,
                   "this process was forked after the library was used in its parent; open "
                   "exporters and importers after fork(), or exec");
}

static void run_commands(void) {
  pthread_mutex_lock(&service.mutex);
  struct command *command = service.first;
  service.first = NULL;
  service.last = &service.first;
  pthread_mutex_unlock(&service.mutex);
  while (command) {
    struct command *next = command->next;
    command->result = command->function(command->argument);
    if (command->result < 0)
      strncpy(command->sentence, cudalink_last_error(), sizeof command->sentence - 1);
    /* release: pairs with the acquire load of the waiting caller, who owns the command again. */
    atomic_store_explicit(&command->done, 1, memory_order_release);
    os_wake(&command->done, 1, false);
    command = next;
  }
}

static void run_posted(void) {
  /* acquire: pairs with the release of service_post, sees what was written before the post. */
  struct service_work *work = atomic_exchange_explicit(&service.posted, NULL, memory_order_acq_rel);
  while (work) {
    struct service_work *next = work->next;
    /* From here on it may be posted again; seq_cst so that a flag set before a post that found
     * `posted` still 1 is seen by run(). */
    atomic_store(&work->posted, 0);
    work->run(work);
    work = next;
  }
}

static void unlink_timer(struct service_timer *timer) {
  *(timer->before ? &timer->before->next : &service.first_timer) = timer->next;
  *(timer->next ? &timer->next->before : &service.last_timer) = timer->before;
  timer->linked = false;
}

/* A few at a time: thousands that are due together must not keep the loop from everything else. */
static uint64_t run_timers(void) {
  uint64_t now = os_now();
  for (int i = 0; i < TIMERS_AT_A_TIME; i++) {
    struct service_timer *timer = service.first_timer;
    if (!timer || timer->due > now) break;
    unlink_timer(timer);
    timer->fire(timer);
  }
  return service.first_timer ? service.first_timer->due : OS_FOREVER;
}

static os_handle find_handle(void *context, uint64_t token) {
  (void)context;
  return (os_handle)token;
}

struct given {
  uint64_t token;
  os_handle handle;
  struct given *next;
};
static struct given *given;

static void keep_handle(void *context, uint64_t token, os_handle handle) {
  (void)context;
  struct given *record = malloc(sizeof *record);
  if (!record) {
    os_handle_close(&handle);
    return;
  }
  *record = (struct given){token, handle, given};
  given = record;
}

static struct service_timer exchange_timer;

static void exchange_fire(struct service_timer *timer) {
  if (!os_exchange_resume(service.thread))
    service_timer_set(timer, exchange_fire, os_deadline(SERVICE_LISTEN_AGAIN));
}

static void exchange_ready(struct service_source *source, const struct os_event *event) {
  (void)source;
  (void)event;
  if (os_exchange_accept(service.thread, find_handle, keep_handle, NULL)) return;
  if (!exchange_timer.linked)
    service_timer_set(&exchange_timer, exchange_fire, os_deadline(SERVICE_LISTEN_AGAIN));
}

static struct service_source exchange_source = {.ready = exchange_ready};

static void service_main(void *context) {
  (void)context;
  log_defer = reaper_log;
  while (!atomic_load_explicit(&service.running, memory_order_acquire))
    os_sleep_on(&service.running, 0, OS_FOREVER, false); /* until service.thread is set */
  service_watch(&exchange_source, os_exchange_listener(service.thread), false);
  for (;;) {
    run_commands();
    run_posted();
    uint64_t deadline = run_timers();
    struct os_event event; /* one at a time: what it does may end other sources */
    if (os_poll_wait(service.thread, &event, 1, deadline) < 1) continue;
    struct service_source *source = (struct service_source *)(uintptr_t)event.key;
    if (source) source->ready(source, &event);
  }
}

int service_start(void) {
  int status = service_check_fork();
  if (status < 0) return status;
  pthread_mutex_lock(&service.mutex);
  if (!service.thread) {
    service.last = &service.first;
    status = os_fork_guard_set();
    if (status == CUDALINK_OK) status = reaper_start();
    if (status == CUDALINK_OK)
      status = os_service_thread_start(&service.thread, "cudalink", service_main, NULL);
    if (status == CUDALINK_OK) {
      /* release: the thread reads service.thread only after it has seen this. */
      atomic_store_explicit(&service.running, 1, memory_order_release);
      os_wake(&service.running, 1, false);
    }
  }
  pthread_mutex_unlock(&service.mutex);
  return status;
}

bool service_is_current(void) {
  return service.thread && os_service_thread_current(service.thread);
}

enum os_isolation service_isolation(void) { return os_service_thread_isolation(service.thread); }

int service_call(int (*function)(void *argument), void *argument) {
  if (service_is_current()) return function(argument);
  struct command command = {.function = function, .argument = argument};
  pthread_mutex_lock(&service.mutex);
  *service.last = &command;
  service.last = &command.next;
  pthread_mutex_unlock(&service.mutex);
  os_service_thread_wake(service.thread);
  while (!atomic_load_explicit(&command.done, memory_order_acquire))
    os_sleep_on(&command.done, 0, OS_FOREVER, false);
  if (command.result < 0) error_set(command.result, "%s", command.sentence);
  return command.result;
}

void service_post(struct service_work *work) {
  /* seq_cst: pairs with the store of 0 in run_posted; either that run sees what the caller wrote
   * before, or this exchange sees 0 and posts again. */
  if (atomic_exchange(&work->posted, 1)) return;
  struct service_work *head = atomic_load_explicit(&service.posted, memory_order_relaxed);
  do
    work->next = head;
  while (!atomic_compare_exchange_weak_explicit(&service.posted, &head, work, memory_order_release,
                                                memory_order_relaxed));
  os_service_thread_wake(service.thread);
}

int service_death_arm(os_handle word, uint64_t *id) {
  return os_death_arm(service.thread, word, id);
}

void service_death_disarm(uint64_t id) { os_death_disarm(service.thread, id); }

int service_watch(struct service_source *source, os_handle handle, bool writable) {
  source->handle = handle;
  return os_poll_add(service.thread, handle, (uint64_t)(uintptr_t)source, writable);
}

bool service_word_ended(struct service_source *word) {
  if (!os_death_signalled(word->handle)) return false;
  service_unwatch(word);
  os_handle_close(&word->handle);
  return true;
}

int service_watch_writable(struct service_source *source, bool writable) {
  return os_poll_change(service.thread, source->handle, (uint64_t)(uintptr_t)source, writable);
}

void service_unwatch(struct service_source *source) {
  if (source->handle != OS_NO_HANDLE) os_poll_remove(service.thread, source->handle);
}

/* Sorted; a new one mostly belongs near the end. */
void service_timer_set(struct service_timer *timer, void (*fire)(struct service_timer *timer),
                       uint64_t due) {
  service_timer_stop(timer);
  struct service_timer *before = service.last_timer;
  while (before && before->due > due)
    before = before->before;
  timer->fire = fire;
  timer->due = due;
  timer->before = before;
  timer->next = before ? before->next : service.first_timer;
  *(before ? &before->next : &service.first_timer) = timer;
  *(timer->next ? &timer->next->before : &service.last_timer) = timer;
  timer->linked = true;
}

void service_timer_stop(struct service_timer *timer) {
  if (timer->linked) unlink_timer(timer);
}

struct pick {
  uint64_t token;
  os_handle handle;
};

static int pick_given(void *argument) {
  struct pick *pick = argument;
  for (int i = 0; i < 4; i++)
    exchange_ready(NULL, NULL); /* it was sent before: it is there */
  for (struct given **link = &given; *link; link = &(*link)->next) {
    if ((*link)->token != pick->token) continue;
    struct given *record = *link;
    *link = record->next;
    pick->handle = record->handle;
    free(record);
    return CUDALINK_OK;
  }
  return error_set(CUDALINK_ERROR_SYSTEM,
                   "a descriptor did not reach the service thread; are there descriptors left "
                   "(ulimit -n)?");
}

int service_give(os_handle handle, os_handle *inside) {
  static _Atomic uint64_t tokens;
  struct pick pick = {.token = atomic_fetch_add(&tokens, 1) + 1, .handle = OS_NO_HANDLE};
  int status = os_exchange_give(service.thread, pick.token, handle);
  if (status < 0) return status;
  status = service_call(pick_given, &pick);
  *inside = pick.handle;
  return status;
}

int service_take(os_handle inside, os_handle *handle) {
  return os_exchange_take(service.thread, (uint64_t)inside, handle);
}

static int close_inside(void *argument) {
  os_handle_close(argument);
  return CUDALINK_OK;
}

void service_close(os_handle inside) {
  if (inside != OS_NO_HANDLE) service_call(close_inside, &inside);
}
