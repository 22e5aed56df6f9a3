/* SPDX-License-Identifier: MIT
 *
 * The service thread's record, and its parts: the table of its own (isolation.c), the way for
 * descriptors (exchange.c), the wait (poll.c).
 */
#ifndef CUDALINK_SRC_OS_POSIX_SERVICE_THREAD_H
#define CUDALINK_SRC_OS_POSIX_SERVICE_THREAD_H

#include <sys/types.h>

#include "posix.h"

/* Written before os_service_thread_start returns, never after, but for `death`, `spare`, `paused` and
 * `unanswered`. All handles are numbers of the thread's own table. */
struct os_service_thread {
  pid_t process;
  pid_t thread;
  enum os_isolation isolation;
  os_handle epoll;
  os_handle signals; /* signalfd for OS_WAKE_SIGNAL */
  struct {
    os_handle epoll; /* the listener and the connections under way: readable when one of them is */
    os_handle listener;
    os_handle spare;             /* given up for a moment when no other is left, to say so */
    bool paused;                 /* the listener is not in the epoll: the thread's */
    _Atomic uint32_t unanswered; /* how often who asked could not even be turned away */
    struct sockaddr_un address;
    socklen_t address_length;
  } exchange;
  struct os_death *death; /* death.c's: NULL until the first arm, touched by the thread only */
};

/* Its default action is to be ignored: harmless wherever it may land. Sent to the one thread that
 * blocks it and reads it. */
#define OS_WAKE_SIGNAL SIGURG

/* ---- isolation.c: gives the calling thread an own, empty table, 0, 1, 2 = /dev/null -------- */
enum os_isolation os_isolate(void);

/* ---- poll.c, exchange.c: their part of the record, on the service thread ------------------- */
int os_poll_open(struct os_service_thread *thread);
int os_exchange_open(struct os_service_thread *thread);

#endif
