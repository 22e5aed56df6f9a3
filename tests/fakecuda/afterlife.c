/* SPDX-License-Identifier: MIT
 *
 * What the GPU of a killed process still does. On an H200 queued work went on writing to shared
 * memory for 30 ms after SIGKILL. A process of its own that shares our memory waits for our death
 * and carries out what the streams had queued. It stops a stream at a kernel or an event: a process
 * that dies in a kernel leaves its event pending for ever.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake.h"

#define STACK_SIZE ((size_t)256 << 10)

static uint64_t microseconds_left;

static bool can_advance(const struct stream *stream) {
  if (!stream->head || stream->context->lost) return false;
  enum operation_kind kind = stream->head->kind;
  return kind == OPERATION_MEMORY || kind == OPERATION_COPY || kind == OPERATION_FILL ||
         kind == OPERATION_NOTHING;
}

/* Nobody else is left: no lock is taken, and none could be, since a dead thread may hold it. */
static bool advance(struct stream *stream) {
  struct operation *operation = stream->head;
  if (!can_advance(stream)) return false;
  bool ready = true;
  if (operation->kind == OPERATION_MEMORY && operation->memory.count == 0) {
    stream->head = operation->next;
    return true;
  }
  if (!operation_poll(operation, &ready) || !ready || !operation_run(operation)) return false;
  if (operation->kind != OPERATION_MEMORY || --operation->memory.count == 0) {
    stream->head = operation->next;
    return true;
  }
  operation->memory.params++;
  return true;
}

static void carry_on(void) {
  uint64_t end = fake_now() + microseconds_left * 1000u;
  bool more = true;
  while (more && fake_now() < end) {
    more = false;
    bool moved = false;
    for (struct context *context = context_list(); context; context = context->next)
      for (struct stream *stream = context->streams; stream; stream = stream->next) {
        if (advance(stream)) moved = true;
        if (can_advance(stream)) more = true;
      }
    if (!moved || fake.delay) nap_microseconds(200);
  }
}

/* Our descriptors are copied, so they are closed: peers have to see our sockets close. Until our
 * death it only sleeps in system calls, because it shares our thread's variables. */
static int wait_for_death(void *argument) {
  int pidfd = *(int *)argument;
  syscall(SYS_close_range, 0u, (unsigned)pidfd - 1, 0u);
  syscall(SYS_close_range, (unsigned)pidfd + 1, ~0u, 0u);
  struct pollfd death = {.fd = pidfd, .events = POLLIN};
  while (syscall(SYS_ppoll, &death, 1, NULL, NULL, 0) != 1)
    continue;
  carry_on();
  _exit(0);
}

void afterlife_start(void) {
  const char *text = getenv("FAKECUDA_AFTERLIFE_US");
  if (!text) return;
#if defined(__SANITIZE_THREAD__)
  fake_abort("ThreadSanitizer does not bear a second process in its memory: no afterlife");
#endif
  microseconds_left = strtoull(text, NULL, 10);
  static int pidfd;
  pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
  unsigned char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (pidfd < 0 || stack == MAP_FAILED) fake_abort("no afterlife: pidfd_open or mmap failed");
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  sigprocmask(SIG_SETMASK, &all, &before);
  /* No signal at its end: nobody's wait() sees it. */
  int child = clone(wait_for_death, stack + STACK_SIZE, CLONE_VM, &pidfd);
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (child < 0) fake_abort("no afterlife: clone failed");
  close(pidfd);
}
