/* SPDX-License-Identifier: MIT
 *
 * Descriptors between a program's thread and the service thread, whose tables differ. Each exchange
 * is one connection to an abstract address of the service thread: both ends check that the other is
 * this very process, one message goes each way, and the connection is closed.
 */
#include "service_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum purpose { GIVE = 1, TAKE = 2 };
struct request {
  uint64_t token;
  uint32_t purpose;
  uint32_t reserved;
};

#define MAX_AT_ONCE 16
#define ASKER_LOOKS 100 /* ms between two looks at whether anybody can be served */

static int watch(os_handle epoll, os_handle handle) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = handle};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, handle, &event);
}

static os_handle spare_of(os_handle any) { return fcntl(any, F_DUPFD_CLOEXEC, 0); }

int os_exchange_open(struct os_service_thread *thread) {
  struct sockaddr_un *address = &thread->exchange.address;
  address->sun_family = AF_UNIX;
  thread->exchange.address_length = sizeof *address;
  os_handle listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  thread->exchange.listener = listener;
  thread->exchange.epoll = epoll_create1(EPOLL_CLOEXEC);
  /* Bound to an address without a name, the kernel chooses a free one. */
  if (listener >= 0 && thread->exchange.epoll >= 0 &&
      bind(listener, (struct sockaddr *)address, sizeof address->sun_family) == 0 &&
      getsockname(listener, (struct sockaddr *)address, &thread->exchange.address_length) == 0 &&
      listen(listener, MAX_AT_ONCE) == 0 && watch(thread->exchange.epoll, listener) == 0 &&
      (thread->exchange.spare = spare_of(listener)) >= 0)
    return CUDALINK_OK;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno,
                         "can't set up the way for descriptors to the service thread");
}

os_handle os_exchange_listener(struct os_service_thread *thread) { return thread->exchange.epoll; }

/* The kernel says who connected, or who listened; nobody can pretend. */
static bool is_this_process(os_handle connection) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.pid == getpid();
}

/* ---- the program's side -------------------------------------------------------------------- */
static int full(void) {
  struct rlimit limit = {0};
  getrlimit(RLIMIT_NOFILE, &limit);
  return error_set(CUDALINK_ERROR_SYSTEM,
                   "the library has no descriptor left in the table of its service thread; %" PRIu64
                   " are allowed; raise the limit (ulimit -n)",
                   (uint64_t)limit.rlim_cur);
}

/* Has somebody been left without an answer since? Then it may be us, or we stand behind him. */
static bool left_alone_since(struct os_service_thread *thread, uint32_t before) {
  /* seq_cst: pairs with the count in pause_listener. */
  return atomic_load(&thread->exchange.unanswered) != before;
}

/* Waits while others are being served. */
static int connect_waiting(struct os_service_thread *thread, os_handle made, uint32_t before) {
  struct timeval look = {.tv_usec = ASKER_LOOKS * 1000L};
  setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &look, sizeof look);
  int status;
  do
    status = connect(made, (struct sockaddr *)&thread->exchange.address,
                     thread->exchange.address_length);
  while (status != 0 && (errno == EINTR || (errno == EAGAIN && !left_alone_since(thread, before))));
  return status;
}

static int reach(struct os_service_thread *thread, uint32_t before, os_handle *connection) {
  if (os_service_thread_current(thread))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "the service thread can't wait for itself");
  os_handle made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (made < 0)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno,
                           "no descriptor is left to reach the service thread");
  int status = connect_waiting(thread, made, before);
  if (status == 0 && is_this_process(made)) {
    *connection = made;
    return CUDALINK_OK;
  }
  int reason = status == 0 ? EPERM : errno;
  os_handle_close(&made);
  if (reason == EAGAIN) return full();
  return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "the service thread can't be reached");
}

static int told(int32_t answer) {
  if (answer == CUDALINK_OK) return CUDALINK_OK;
  if (answer == CUDALINK_ERROR_NOT_FOUND)
    return error_set(answer, "the service thread has no such descriptor");
  return full();
}

/* Sends the request, waits for the answer: a code, and for TAKE a descriptor. Who is turned away may have
 * his answer before he has asked. Where not even that could be done, he gives up: from the shutdown on no
 * answer can come, and one that came before counts. */
static int ask(struct os_service_thread *thread, uint32_t before, os_handle connection,
               const struct request *request, os_handle given, os_handle received[OS_MAX_HANDLES],
               int *count) {
  int32_t answer;
  size_t size;
  bool given_up = false;
  int result = os_send(connection, request, sizeof *request, &given, given == OS_NO_HANDLE ? 0 : 1);
  if (result != CUDALINK_OK && result != CUDALINK_ERROR_LOST) return result;
  do {
    struct pollfd state = {.fd = connection, .events = POLLIN};
    given_up = poll(&state, 1, ASKER_LOOKS) == 0 && left_alone_since(thread, before);
    if (given_up) shutdown(connection, SHUT_RDWR);
    result = os_receive(connection, &answer, sizeof answer, &size, received, count);
  } while (result == CUDALINK_ERROR_BUSY); /* not yet, or interrupted by a signal */
  if (given_up && result == CUDALINK_ERROR_LOST) return full();
  return result != CUDALINK_OK ? result : told(answer);
}

static int exchange(struct os_service_thread *thread, const struct request *request,
                    os_handle given, os_handle *taken) {
  os_handle connection, received[OS_MAX_HANDLES];
  int count = 0;
  uint32_t before = atomic_load(&thread->exchange.unanswered);
  int result = reach(thread, before, &connection);
  if (result != CUDALINK_OK) return result;
  result = ask(thread, before, connection, request, given, received, &count);
  os_handle_close(&connection);
  bool expected = result == CUDALINK_OK && count == (taken ? 1 : 0);
  if (expected) {
    if (taken) *taken = received[0];
    return CUDALINK_OK;
  }
  for (int i = 0; i < count; i++)
    os_handle_close(&received[i]);
  return result != CUDALINK_OK
             ? result
             : error_set(CUDALINK_ERROR_SYSTEM, "the service thread answered with %d descriptor%s",
                         count, error_s((uint64_t)count));
}

int os_exchange_give(struct os_service_thread *thread, uint64_t token, os_handle handle) {
  struct request request = {.token = token, .purpose = GIVE};
  if (handle < 0) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "there is nothing to give");
  return exchange(thread, &request, handle, NULL);
}

int os_exchange_take(struct os_service_thread *thread, uint64_t token, os_handle *handle) {
  struct request request = {.token = token, .purpose = TAKE};
  *handle = OS_NO_HANDLE;
  return exchange(thread, &request, OS_NO_HANDLE, handle);
}

/* ---- the service thread's side ------------------------------------------------------------- */
static bool answer(os_handle connection, int32_t code, os_handle handle) {
  return os_send(connection, &code, sizeof code, &handle, handle == OS_NO_HANDLE ? 0 : 1) ==
         CUDALINK_OK;
}

static void regain_spare(struct os_service_thread *thread) {
  if (thread->exchange.spare < 0) thread->exchange.spare = spare_of(thread->exchange.listener);
}

/* Not even who waits can be told: in a shared table another thread was faster to take the spare's number, or
 * the whole machine has no file left. The listener would be readable all the time. */
static void pause_listener(struct os_service_thread *thread) {
  epoll_ctl(thread->exchange.epoll, EPOLL_CTL_DEL, thread->exchange.listener, NULL);
  thread->exchange.paused = true;
  atomic_fetch_add(&thread->exchange.unanswered, 1);
}

/* No descriptor is left to serve him with, and he waits for an answer. */
static void turn_away(struct os_service_thread *thread) {
  os_handle connection;
  os_handle_close(&thread->exchange.spare);
  int status = os_accept(thread->exchange.listener, &connection);
  if (status == CUDALINK_ERROR_SYSTEM) pause_listener(thread);
  if (status != CUDALINK_OK) return;
  answer(connection, CUDALINK_ERROR_SYSTEM, OS_NO_HANDLE);
  os_handle_close(&connection);
}

static void welcome(struct os_service_thread *thread) {
  os_handle connection;
  int status = os_accept(thread->exchange.listener, &connection);
  if (status == CUDALINK_ERROR_SYSTEM) turn_away(thread);
  if (status != CUDALINK_OK) return;
  if (!is_this_process(connection) || watch(thread->exchange.epoll, connection) != 0)
    os_handle_close(&connection);
}

static void serve(os_handle connection, os_handle (*find)(void *context, uint64_t token),
                  void (*keep)(void *context, uint64_t token, os_handle handle), void *context) {
  struct request request;
  size_t size;
  os_handle handles[OS_MAX_HANDLES];
  int count;
  int result = os_receive(connection, &request, sizeof request, &size, handles, &count);
  if (result == CUDALINK_ERROR_SYSTEM) /* what he gives found no free number */
    answer(connection, CUDALINK_ERROR_SYSTEM, OS_NO_HANDLE);
  if (result != CUDALINK_OK) return;
  if (size == sizeof request && request.purpose == GIVE && count == 1) {
    /* Who has given up meanwhile would never ask for it. */
    if (answer(connection, CUDALINK_OK, OS_NO_HANDLE))
      keep(context, request.token, handles[0]);
    else
      os_handle_close(&handles[0]);
    return;
  }
  for (int i = 0; i < count; i++)
    os_handle_close(&handles[i]);
  os_handle found = OS_NO_HANDLE;
  if (size == sizeof request && request.purpose == TAKE) found = find(context, request.token);
  answer(connection, found == OS_NO_HANDLE ? CUDALINK_ERROR_NOT_FOUND : CUDALINK_OK, found);
}

bool os_exchange_accept(struct os_service_thread *thread,
                        os_handle (*find)(void *context, uint64_t token),
                        void (*keep)(void *context, uint64_t token, os_handle handle),
                        void *context) {
  struct epoll_event events[MAX_AT_ONCE];
  int count = epoll_wait(thread->exchange.epoll, events, MAX_AT_ONCE, 0);
  for (int i = 0; i < count; i++) {
    os_handle handle = events[i].data.fd;
    if (handle == thread->exchange.listener) {
      welcome(thread);
      continue;
    }
    serve(handle, find, keep, context);
    os_handle_close(&handle); /* which takes it out of the epoll: nobody has a copy */
  }
  regain_spare(thread);
  return !thread->exchange.paused;
}

bool os_exchange_resume(struct os_service_thread *thread) {
  regain_spare(thread);
  if (thread->exchange.paused)
    thread->exchange.paused = watch(thread->exchange.epoll, thread->exchange.listener) != 0;
  return !thread->exchange.paused;
}
