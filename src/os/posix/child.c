/* SPDX-License-Identifier: MIT
 *
 * A helper process of the library's: started without touching the program, bounded, reaped. Its
 * standard output is what it has to say; standard input and error are /dev/null.
 */
#include "posix.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLED_LIMIT 1000000000 /* ns for a killed process to be gone */

bool os_readable(os_handle handle, uint64_t deadline) {
  struct pollfd wanted = {.fd = handle, .events = POLLIN};
  for (;;) {
    uint64_t now = os_now();
    uint64_t left = deadline > now ? deadline - now : 0;
    int milliseconds = left > 60000000000 ? 60000 : (int)((left + 999999) / 1000000);
    int count = poll(&wanted, 1, milliseconds);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (os_now() >= deadline) return false;
  }
}

/* ---- which program ------------------------------------------------------------------------- */

static bool is_program(const char *path) { return access(path, X_OK) == 0; }

/* From the file that this code is in: DIR/libcudalink.so and DIR/../bin/cudalink, as installed;
 * DIR/../../bin with a folder per machine type; DIR itself in a build folder, or linked statically. */
static bool find_beside(char path[OS_PATH_SIZE]) {
  static const char *const places[] = {"cudalink", "../cudalink", "../bin/cudalink",
                                       "../../bin/cudalink"};
  Dl_info own;
  char library[OS_PATH_SIZE * 4];
  if (!dladdr((const void *)places, &own) || !own.dli_fname) return false;
  /* A program's own name may be one without a folder. */
  const char *file = strchr(own.dli_fname, '/') ? own.dli_fname : "/proc/self/exe";
  char *resolved = realpath(file, NULL);
  if (!resolved) return false;
  snprintf(library, sizeof library, "%s", resolved);
  free(resolved);
  *strrchr(library, '/') = '\0';
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    int length = snprintf(path, OS_PATH_SIZE, "%.*s/%s", OS_PATH_SIZE, library, places[i]);
    if (length < OS_PATH_SIZE && is_program(path)) return true;
  }
  return false;
}

static bool find_in_path(char path[OS_PATH_SIZE]) {
  const char *list = secure_getenv("PATH");
  while (list && *list) {
    int length = (int)strcspn(list, ":");
    int written = snprintf(path, OS_PATH_SIZE, "%.*s/cudalink", length, list);
    if (list[0] == '/' && written < OS_PATH_SIZE && is_program(path)) return true;
    list += length;
    if (*list == ':') list++;
  }
  return false;
}

int os_program_find(const char *option, char path[OS_PATH_SIZE]) {
  path[0] = '\0';
  if (option) {
    if (strlen(option) < OS_PATH_SIZE && is_program(option)) {
      snprintf(path, OS_PATH_SIZE, "%s", option);
      return CUDALINK_OK;
    }
    return error_set(CUDALINK_ERROR_NOT_FOUND, "the helper program '%.120s' can't be started: %s",
                     option,
                     strlen(option) < OS_PATH_SIZE ? "it is not there, or not executable"
                                                   : "its path is too long");
  }
  if (find_beside(path) || find_in_path(path)) return CUDALINK_OK;
  path[0] = '\0';
  return error_set(
      CUDALINK_ERROR_NOT_FOUND,
      "the program cudalink is neither beside the library nor in PATH; install it, or name it in "
      "the spec");
}

/* ---- start, read, end ------------------------------------------------------------------------ */

/* Signals as a new program expects them, whatever this one does with its own. */
static void set_signals(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn(const char *program, const char *const *arguments, int output, pid_t *pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  int reason = posix_spawn_file_actions_init(&files);
  if (reason != 0) return reason;
  reason = posix_spawnattr_init(&attributes);
  if (reason == 0) {
    set_signals(&attributes);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    reason = posix_spawn(pid, program, &files, &attributes, (char *const *)(uintptr_t)arguments,
                         environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&files);
  return reason;
}

int os_child_start(struct os_child *child, const char *program, const char *const *arguments) {
  int ends[2];
  *child = (struct os_child){OS_NO_HANDLE, OS_NO_HANDLE, 0};
  os_without_read();
  if (pipe2(ends, O_CLOEXEC) != 0)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make a pipe");
  pid_t pid = 0;
  int reason = spawn(program, arguments, ends[1], &pid);
  close(ends[1]);
  if (reason != 0) {
    close(ends[0]);
    return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "can't start '%s'", program);
  }
  child->output = ends[0];
  child->pid = pid;
  long exited = os_without(OS_FEATURE_PIDFD) ? -1 : syscall(SYS_pidfd_open, pid, 0);
  child->exited = exited < 0 ? OS_NO_HANDLE : (os_handle)exited;
  return CUDALINK_OK;
}

/* The end of the process counts as the end of its output: a fork of the program's own may have kept
 * the pipe open. */
int os_child_read(struct os_child *child, void *bytes, size_t capacity, size_t *size,
                  uint64_t deadline, os_handle stop) {
  *size = 0;
  for (;;) {
    struct pollfd wanted[3] = {{.fd = child->output, .events = POLLIN},
                               {.fd = child->exited, .events = POLLIN},
                               {.fd = stop, .events = POLLIN}};
    uint64_t now = os_now(), left = deadline > now ? deadline - now : 0;
    int count = poll(wanted, 3, left > 60000000000 ? 60000 : (int)((left + 999999) / 1000000));
    if (count > 0 && wanted[2].revents)
      return error_set(CUDALINK_ERROR_CLOSED, "its caller has ended it");
    if (count > 0 && !wanted[0].revents) return CUDALINK_OK;
    if (count > 0) {
      ssize_t length = read(child->output, bytes, capacity);
      if (length < 0 && errno == EINTR) continue;
      *size = length > 0 ? (size_t)length : 0;
      return CUDALINK_OK;
    }
    if (count < 0 && errno != EINTR)
      return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't wait for the helper");
    if (os_now() >= deadline)
      return error_set(CUDALINK_ERROR_TIMEOUT, "the helper did not answer in time");
  }
}

static void kill_child(const struct os_child *child) {
  if (child->exited != OS_NO_HANDLE)
    syscall(SYS_pidfd_send_signal, child->exited, SIGKILL, NULL, 0);
  else
    kill(child->pid, SIGKILL);
}

/* ECHILD: the program waits for any child, or ignores SIGCHLD. Then it is reaped as well. By its
 * descriptor, since its number may be another's by then. */
static void reap(const struct os_child *child) {
  bool numbered = child->exited == OS_NO_HANDLE;
  siginfo_t ended;
  while (waitid(numbered ? P_PID : WAIT_FOR_PIDFD, (id_t)(numbered ? child->pid : child->exited),
                &ended, WEXITED) < 0 &&
         errno == EINTR)
    continue;
}

/* Its processes keep the pipe open. Not for ever: a fork of the program's own may have it, too. */
static void wait_for_all(const struct os_child *child) {
  uint64_t deadline = os_deadline(KILLED_LIMIT);
  char bytes[256];
  while (os_now() < deadline && os_readable(child->output, deadline))
    if (read(child->output, bytes, sizeof bytes) <= 0 && errno != EINTR) return;
}

void os_child_end(struct os_child *child, uint64_t deadline) {
  if (child->pid <= 0) return;
  if (child->exited == OS_NO_HANDLE || !os_readable(child->exited, deadline)) {
    kill_child(child);
    if (child->exited != OS_NO_HANDLE) os_readable(child->exited, os_deadline(KILLED_LIMIT));
    wait_for_all(child);
  }
  os_handle_close(&child->output);
  reap(child);
  os_handle_close(&child->exited);
  child->pid = 0;
}
