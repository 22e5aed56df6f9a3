/* SPDX-License-Identifier: MIT
 *
 * A word that the kernel writes when this process dies: an eventfd, named by an asynchronous poll
 * request on a descriptor that never becomes ready. A dying process cancels its requests before it
 * frees its memory, and a cancelled request signals its eventfd.
 */
#include "service_thread.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Small contexts, made as they are needed: each counts against a limit of the whole machine
 * (fs.aio-max-nr, 65536 by default), and a cancel walks through all requests of one. */
#define ROOM 256
#define MOST_CONTEXTS 32

struct request {
  struct iocb control; /* the kernel knows the request by this address */
  uint32_t turn;       /* tells an id from those that had this place before */
  enum { FREE, ARMED, CANCELLED } state;
};

struct context {
  aio_context_t kernel;
  int used, cancelled; /* `used`: not FREE */
  struct request requests[ROOM];
};

struct os_death {
  int count;
  struct context *contexts[MOST_CONTEXTS];
};

/* turn, context, request; turn starts at 1, so that no id is 0 */
static uint64_t id_of(uint32_t turn, int context, int request) {
  return (uint64_t)turn << 32 | (uint64_t)context << 16 | (uint64_t)request;
}

int os_death_word_make(os_handle *word) {
  *word = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (*word >= 0) return CUDALINK_OK;
  *word = OS_NO_HANDLE;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make an eventfd");
}

int os_death_word_check(os_handle word) {
  char path[48], target[32];
  snprintf(path, sizeof path, "/proc/thread-self/fd/%d", word);
  ssize_t length = readlink(path, target, sizeof target - 1);
  if (length < 0 && fcntl(word, F_GETFD) >= 0)
    return error_set_errno(CUDALINK_ERROR_UNSUPPORTED, errno, "can't read %s", path);
  target[length > 0 ? length : 0] = '\0';
  /* No file can have such a name: theirs start with a slash. */
  if (strcmp(target, "anon_inode:[eventfd]") == 0) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL, "the peer sent no eventfd but '%s'", target);
}

bool os_death_signalled(os_handle word) {
  struct pollfd state = {.fd = word, .events = POLLIN};
  return word >= 0 && poll(&state, 1, 0) == 1 && (state.revents & POLLIN);
}

/* ---- contexts and the places in them --------------------------------------------------------- */
static int setup_failed(int reason) {
  switch (reason) {
  case EAGAIN:
    return error_set(CUDALINK_ERROR_NO_SPACE,
                     "the machine has no asynchronous requests left (raise fs.aio-max-nr)");
  case ENOMEM: return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for asynchronous requests");
  default: /* ENOSYS, or what a sandbox answers with */
    return error_set_errno(CUDALINK_ERROR_UNSUPPORTED, reason, "no asynchronous I/O here");
  }
}

static int add_context(struct os_death *death, struct context **added) {
  if (death->count == MOST_CONTEXTS)
    return error_set(CUDALINK_ERROR_NO_SPACE, "%d words are armed, the most there can be",
                     MOST_CONTEXTS * ROOM);
  struct context *context = calloc(1, sizeof *context);
  if (!context) return error_set(CUDALINK_ERROR_NO_MEMORY, "out of memory");
  if (syscall(SYS_io_setup, ROOM, &context->kernel) != 0) {
    int reason = errno;
    free(context);
    return setup_failed(reason);
  }
  *added = death->contexts[death->count++] = context;
  return CUDALINK_OK;
}

/* Frees the places of the cancelled requests that have ended, and waits a little for the first one
 * when `wait`: a worker of the kernel ends them. */
static void reap(struct context *context, bool wait) {
  struct io_event events[32];
  struct timespec patience = {.tv_nsec = wait ? 10000000 : 0};
  long count = 0;
  do {
    if (context->cancelled == 0) return;
    count = syscall(SYS_io_getevents, context->kernel, wait ? 1L : 0L, 32L, events, &patience);
    for (long i = 0; i < count; i++) {
      context->requests[events[i].data].state = FREE;
      context->used--, context->cancelled--;
    }
    wait = false;
  } while (count == 32);
}

static struct context *context_with_room(struct os_death *death) {
  for (int wait = 0; wait < 2; wait++) {
    for (int i = 0; i < death->count; i++) {
      struct context *context = death->contexts[i];
      reap(context, wait && context->used == ROOM);
      if (context->used < ROOM) return context;
    }
  }
  return NULL;
}

/* ---- arming ---------------------------------------------------------------------------------- */
static int find_room(struct os_service_thread *thread, struct context **context) {
  if (os_without(OS_FEATURE_AIO))
    return error_set(CUDALINK_ERROR_UNSUPPORTED, "no asynchronous I/O here");
  if (!thread->death) thread->death = calloc(1, sizeof *thread->death);
  if (!thread->death) return error_set(CUDALINK_ERROR_NO_MEMORY, "out of memory");
  *context = context_with_room(thread->death);
  return *context ? CUDALINK_OK : add_context(thread->death, context);
}

/* `never` must not be the word itself: a peer that wrote to it would end the request, which would
 * write to it while the kernel holds its lock. */
static int submit(struct context *context, int place, os_handle word) {
  struct request *request = &context->requests[place];
  os_handle never = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (never < 0) return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make an eventfd");
  request->control = (struct iocb){
      .aio_data = (uint32_t)place,
      .aio_lio_opcode = IOCB_CMD_POLL,
      .aio_fildes = (uint32_t)never,
      .aio_buf = POLLIN,
      .aio_flags = IOCB_FLAG_RESFD,
      .aio_resfd = (uint32_t)word,
  };
  struct iocb *list = &request->control;
  long submitted = syscall(SYS_io_submit, context->kernel, 1L, &list);
  int reason = errno;
  os_handle_close(&never); /* the request holds it, and nobody else can reach it */
  if (submitted == 1) return CUDALINK_OK;
  if (reason == EAGAIN || reason == ENOMEM) return setup_failed(reason);
  if (reason == EBADF || os_death_word_check(word) == CUDALINK_ERROR_PROTOCOL)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "descriptor %d is no eventfd", word);
  return error_set_errno(CUDALINK_ERROR_UNSUPPORTED, reason, "no asynchronous poll here");
}

int os_death_arm(struct os_service_thread *thread, os_handle word, uint64_t *id) {
  struct context *context;
  *id = 0;
  int result = find_room(thread, &context);
  if (result != CUDALINK_OK) return result;
  int place = 0, which = 0;
  while (context->requests[place].state != FREE)
    place++;
  while (thread->death->contexts[which] != context)
    which++;
  result = submit(context, place, word);
  if (result != CUDALINK_OK) return result;
  struct request *request = &context->requests[place];
  request->state = ARMED;
  if (++request->turn == 0) request->turn = 1;
  context->used++;
  *id = id_of(request->turn, which, place);
  return CUDALINK_OK;
}

void os_death_disarm(struct os_service_thread *thread, uint64_t id) {
  int which = (int)(id >> 16 & 0xFFFF), place = (int)(id & 0xFFFF);
  if (!thread->death || which >= thread->death->count || place >= ROOM) return;
  struct context *context = thread->death->contexts[which];
  struct request *request = &context->requests[place];
  if (request->state != ARMED || id_of(request->turn, which, place) != id) return;
  int saved = errno;
  struct io_event unused; /* the kernel does not fill it in: the event comes as any other */
  syscall(SYS_io_cancel, context->kernel, &request->control, &unused);
  request->state = CANCELLED;
  context->cancelled++;
  reap(context, false);
  errno = saved;
}
