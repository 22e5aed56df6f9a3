/* SPDX-License-Identifier: MIT
 *
 * Input and output are files in memory, so that a daemon which keeps them open holds up nobody.
 */
#include "tool.h"

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

/* 1: it has ended in time. */
static int wait_for(pid_t pid, int64_t limit) {
  int handle = (int)syscall(SYS_pidfd_open, pid, 0);
  if (handle < 0) return 1; /* then waitpid waits without a limit */
  struct pollfd end = {.fd = handle, .events = POLLIN};
  int64_t ms = limit / 1000000;
  int found = poll(&end, 1, ms > INT32_MAX ? -1 : (int)ms);
  close(handle);
  return found != 0;
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
  int status = 0, in_time = wait_for(pid, limit);
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
