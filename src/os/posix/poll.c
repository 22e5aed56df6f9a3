/* SPDX-License-Identifier: MIT
 *
 * The service thread's wait: epoll over its connections, and a signalfd that other threads reach
 * with a signal, because no descriptor of this table can be written to from theirs.
 */
#include "service_thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define WAKE_KEY 0
#define MAX_EVENTS 64           /* more stay pending for the next wait */
#define SHARED_TABLE_LIMIT 1000 /* ms */

static int control(struct os_service_thread *thread, int operation, os_handle handle, uint64_t key,
                   bool writable) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = key};
  if (writable) event.events |= EPOLLOUT;
  if (epoll_ctl(thread->epoll, operation, handle, &event) == 0) return CUDALINK_OK;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't wait for descriptor %d", handle);
}

int os_poll_open(struct os_service_thread *thread) {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, OS_WAKE_SIGNAL);
  thread->epoll = epoll_create1(EPOLL_CLOEXEC);
  thread->signals = signalfd(-1, &wake, SFD_CLOEXEC | SFD_NONBLOCK);
  if (thread->epoll >= 0 && thread->signals >= 0)
    return control(thread, EPOLL_CTL_ADD, thread->signals, WAKE_KEY, false);
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't set up the service thread's wait");
}

int os_poll_add(struct os_service_thread *thread, os_handle handle, uint64_t key, bool writable) {
  return control(thread, EPOLL_CTL_ADD, handle, key, writable);
}

int os_poll_change(struct os_service_thread *thread, os_handle handle, uint64_t key,
                   bool writable) {
  return control(thread, EPOLL_CTL_MOD, handle, key, writable);
}

void os_poll_remove(struct os_service_thread *thread, os_handle handle) {
  int saved = errno;
  epoll_ctl(thread->epoll, EPOLL_CTL_DEL, handle, NULL);
  errno = saved;
}

/* Rounded up: never early by less than a millisecond, which would spin. */
static int milliseconds_until(uint64_t deadline) {
  if (deadline == OS_FOREVER) return -1;
  uint64_t now = os_now();
  if (deadline <= now) return 0;
  uint64_t left = (deadline - now - 1) / 1000000U + 1;
  return left > INT_MAX ? INT_MAX : (int)left;
}

static void drain_wakes(os_handle signals) {
  struct signalfd_siginfo information;
  while (read(signals, &information, sizeof information) > 0)
    continue;
}

/* In a shared table (OS_ISOLATED_NOT) the program can close our epoll, and a wait that is under way
 * then never ends: so it ends each second, and the next one fails. */
static int wait_limit(const struct os_service_thread *thread, uint64_t deadline) {
  int limit = milliseconds_until(deadline);
  if (thread->isolation != OS_ISOLATED_NOT) return limit;
  return limit < 0 || limit > SHARED_TABLE_LIMIT ? SHARED_TABLE_LIMIT : limit;
}

/* For when the epoll is closed: its connections are gone, and asking again would spin. Wakes still
 * come, as the signals that they are. */
static void wait_for_wake(uint64_t deadline) {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, OS_WAKE_SIGNAL);
  int milliseconds = milliseconds_until(deadline);
  struct timespec timeout = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  sigtimedwait(&wake, NULL, milliseconds < 0 ? NULL : &timeout);
}

int os_poll_wait(struct os_service_thread *thread, struct os_event *events, int capacity,
                 uint64_t deadline) {
  struct epoll_event found[MAX_EVENTS];
  if (capacity > MAX_EVENTS) capacity = MAX_EVENTS;
  int count = epoll_wait(thread->epoll, found, capacity, wait_limit(thread, deadline));
  if (count < 0 && errno != EINTR) wait_for_wake(deadline);
  int kept = 0;
  for (int i = 0; i < count; i++) {
    if (found[i].data.u64 == WAKE_KEY) {
      drain_wakes(thread->signals);
      continue;
    }
    events[kept++] = (struct os_event){
        .key = found[i].data.u64,
        .readable = found[i].events & EPOLLIN,
        .writable = found[i].events & EPOLLOUT,
        .ended = found[i].events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR),
    };
  }
  return kept;
}
