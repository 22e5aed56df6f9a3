/* SPDX-License-Identifier: MIT
 *
 * Helper processes for the tests of src/os: the test program starts itself again with
 * "--helper NAME ARGUMENT...", and talks with it by lines over a socket. A helper ends when its
 * test does, whatever happens.
 */
#ifndef CUDALINK_TESTS_OS_PROCESS_H
#define CUDALINK_TESTS_OS_PROCESS_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef __has_feature
#define __has_feature(name) 0
#endif
/* What the sanitizers can't run with: a limit of the address space, two descriptor tables. Cases that
 * need it are not built then. */
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define WITH_OWN_TABLE 0
#define WITH_ADDRESS_LIMIT 0
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define WITH_OWN_TABLE 1
#define WITH_ADDRESS_LIMIT 0
#else
#define WITH_OWN_TABLE 1
#define WITH_ADDRESS_LIMIT 1
#endif

#define LINE_SIZE 256

struct process {
  pid_t pid;
  int channel;
};

/* One line from or to the other side. An end of file reads as "". */
static inline void line_read(int channel, char line[LINE_SIZE]) {
  size_t length = 0;
  while (length < LINE_SIZE - 1) {
    ssize_t got = read(channel, &line[length], 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || line[length] == '\n') break;
    length++;
  }
  line[length] = '\0';
}

static inline void line_write(int channel, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vdprintf(channel, format, arguments);
  va_end(arguments);
  if (write(channel, "\n", 1) != 1) _exit(3);
}

/* Starts the helper; its end of the channel is its descriptor 0. `without` is CUDALINK_OS_WITHOUT. */
static inline struct process process_start(const char *without, const char *helper,
                                           const char *first, const char *second) {
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  pid_t parent = getpid();
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);
    dup2(ends[1], 0);
    setenv("CUDALINK_OS_WITHOUT", without, 1);
    execl("/proc/self/exe", "helper", "--helper", helper, first, second, (char *)NULL);
    _exit(3);
  }
  close(ends[1]);
  return (struct process){.pid = pid, .channel = ends[0]};
}

static inline void process_expect(const struct process *process, const char *expected) {
  char line[LINE_SIZE];
  line_read(process->channel, line);
  int status = 0;
  if (line[0] == '\0' && waitpid(process->pid, &status, 0) == process->pid)
    print_error("the helper has ended with status 0x%x\n", (unsigned)status);
  assert_string_equal(line, expected);
}

/* Ends it (0: by closing the channel) and returns its wait status. */
static inline int process_end(struct process *process, int signal) {
  int status = 0;
  if (signal) kill(process->pid, signal);
  close(process->channel);
  waitpid(process->pid, &status, 0);
  return status;
}

/* A folder of the test's own. */
static char test_folder[64];

static inline int test_folder_make(void **state) {
  (void)state;
  strcpy(test_folder, "/tmp/cudalink-test-XXXXXX");
  return mkdtemp(test_folder) ? 0 : -1;
}

static inline int test_folder_remove_one(const char *path, const struct stat *status, int kind,
                                         struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

static inline int test_folder_remove(void **state) {
  (void)state;
  return nftw(test_folder, test_folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
