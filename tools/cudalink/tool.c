/* SPDX-License-Identifier: MIT
 *
 * Input and output are files in memory, so that a daemon which keeps them open holds up nobody.
 */
#include "tool.h"
#include "stop.h"

#include "cudalink/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PUT_AWAY_LIMIT INT64_C(10000000000) /* ns; only what hangs comes near */

static pid_t start(char *const arguments[], int input, int output, int *error) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  pid_t pid = -1;
  *error = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return *error ? -1 : pid;
}

enum wait { WAIT_ENDED, WAIT_STOPPED, WAIT_TOO_LONG };

/* `stop`: a descriptor that ends the wait, -1 for none. */
static enum wait wait_for(int handle, int stop, int64_t limit) {
  uint64_t start = cudalink_now();
  for (;;) {
    struct pollfd ends[] = {{.fd = handle, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    int64_t left = limit - (int64_t)(cudalink_now() - start), ms = left > 0 ? left / 1000000 : 0;
    int found = poll(ends, 2, ms > INT32_MAX ? -1 : (int)ms);
    if (found > 0 && ends[0].revents) return WAIT_ENDED;
    if (found > 0) return WAIT_STOPPED;
    if (found == 0 || errno != EINTR) return WAIT_TOO_LONG;
  }
}

/* 1: it ends by itself. Who is asked to end puts things away first, for which it gets time. */
static int wait_to_the_end(pid_t pid, int64_t limit) {
  int handle = (int)syscall(SYS_pidfd_open, pid, 0);
  if (handle < 0) return 1; /* then waitpid waits without a limit */
  enum wait wait = wait_for(handle, stop_descriptor(), limit);
  if (wait == WAIT_STOPPED) {
    kill(pid, SIGTERM);
    wait = wait_for(handle, -1, PUT_AWAY_LIMIT);
  }
  close(handle);
  return wait == WAIT_ENDED;
}

/* Where memfds are forbidden a file that has no name does as well. */
static int make_file(void) {
  const char *folder = getenv("TMPDIR");
  int file = memfd_create("cudalink", MFD_CLOEXEC);
  if (file >= 0) return file;
  return open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static void read_output(struct tool *tool, int output) {
  ssize_t count = pread(output, tool->output, sizeof tool->output - 1, 0);
  size_t length = count > 0 ? (size_t)count : 0;
  while (length && tool->output[length - 1] == '\n')
    length--;
  tool->output[length] = '\0';
}

static void finish(struct tool *tool, pid_t pid, int64_t limit) {
  int status = 0, in_time = wait_to_the_end(pid, limit);
  if (!in_time) kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  tool->end = in_time ? TOOL_ENDED : TOOL_STUCK;
  tool->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void tool_run(struct tool *tool, char *const arguments[], const char *text, int64_t limit) {
  memset(tool, 0, sizeof *tool);
  tool->end = TOOL_FAILED;
  int error = 0;
  int input = make_file(), output = make_file();
  if (input >= 0 && output >= 0 && pwrite(input, text, strlen(text), 0) == (ssize_t)strlen(text)) {
    pid_t pid = start(arguments, input, output, &error);
    if (error == ENOENT) tool->end = TOOL_MISSING;
    if (pid > 0) {
      finish(tool, pid, limit);
      read_output(tool, output);
    }
  } else {
    error = errno;
  }
  if (input >= 0) close(input);
  if (output >= 0) close(output);
  errno = error;
}
