/* SPDX-License-Identifier: MIT
 *
 * Who a peer is, and whether its process is still there.
 */
#include "posix.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

uint32_t os_own_uid(void) { return geteuid(); } /* what the peer's SO_PEERCRED shows */
int32_t os_own_pid(void) { return getpid(); }

/* The first line of a small file, control characters as '?'. "" when it can't be read. */
static void read_line(const char *path, char *line, size_t size) {
  line[0] = '\0';
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ssize_t length = read(file, line, size - 1);
  close(file);
  line[length > 0 ? length : 0] = '\0';
  line[strcspn(line, "\n")] = '\0';
  for (char *at = line; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7F) *at = '?';
}

void os_own_program(char program[32]) {
  read_line("/proc/self/comm", program, 32);
  if (program[0] == '\0') prctl(PR_GET_NAME, program); /* writes at most 16 bytes */
}

void os_program_of(int32_t pid, char program[32]) {
  char path[32];
  program[0] = '\0';
  if (pid <= 0) return;
  snprintf(path, sizeof path, "/proc/%d/comm", pid);
  read_line(path, program, 32);
}

#define EXITING 0x4 /* PF_EXITING in the flags of /proc/PID/task/TID/stat (proc(5)) */
#define KILLED                                                                                     \
  UINT64_C(0x100) /* SIGKILL in a mask of its status: each thread has it pending until it exits */

/* A field of status, which is hexadecimal; 0 when there is none. */
static uint64_t status_mask(const char *status, const char *name) {
  const char *at = strstr(status, name);
  return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

/* False, with errno: it can't be read. */
static bool read_file(int folder, const char *thread, const char *name, char *text, size_t size) {
  char path[40];
  snprintf(path, sizeof path, "%.20s/%s", thread, name);
  int file = openat(folder, path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = '\0';
  return length > 0;
}

/* The ninth field. The second one is the program's name, which may be anything, up to the last parenthesis. */
static unsigned long flags_of(const char *stat) {
  const char *at = strrchr(stat, ')');
  for (int field = 2; at && field < 9; field++)
    at = strchr(at + 1, ' ');
  return at ? strtoul(at, NULL, 10) : 0;
}

static bool thread_is_ending(int folder, const char *thread) {
  char text[4096];
  if (!read_file(folder, thread, "stat", text, sizeof text))
    return errno == ENOENT || errno == ESRCH; /* it has gone meanwhile */
  if (flags_of(text) & EXITING) return true;
  if (!read_file(folder, thread, "status", text, sizeof text))
    return errno == ENOENT || errno == ESRCH;
  return ((status_mask(text, "\nSigPnd:") | status_mask(text, "\nShdPnd:")) & KILLED) != 0;
}

/* All of its threads are: the first one may have ended long before the others. */
bool os_process_is_ending(int32_t pid) {
  char path[40];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *threads = pid > 0 ? opendir(path) : NULL;
  if (!threads) return false;
  bool any = false, ending = true;
  for (struct dirent *entry; ending && (entry = readdir(threads));) {
    if (entry->d_name[0] == '.') continue;
    any = true;
    ending = thread_is_ending(dirfd(threads), entry->d_name);
  }
  closedir(threads);
  return any && ending;
}

/* The user that the kernel shows for users that have no number in this namespace. */
static uint32_t overflow_uid(void) {
  char line[16];
  char *rest;
  read_line("/proc/sys/kernel/overflowuid", line, sizeof line);
  unsigned long uid = strtoul(line, &rest, 10);
  return rest != line && uid <= UINT32_MAX ? (uint32_t)uid : 65534;
}

int os_peer_credentials(os_handle connection, struct os_credentials *credentials) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  *credentials = (struct os_credentials){0};
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't learn who the peer is");
  credentials->pid = peer.pid;
  credentials->uid = peer.uid;
  credentials->uid_known = peer.uid != (uid_t)-1 && peer.uid != overflow_uid();
  return CUDALINK_OK;
}

static bool connection_ended(os_handle connection) {
  struct pollfd state = {.fd = connection, .events = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & (POLLHUP | POLLERR));
}

int os_peer_open(os_handle connection, int32_t pid, os_handle *handle) {
  *handle = OS_NO_HANDLE;
  os_handle found;
  socklen_t length = sizeof found;
  if (!os_without(OS_FEATURE_PIDFD) && !os_without(OS_FEATURE_PEERPIDFD) &&
      getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &found, &length) == 0) {
    *handle = found;
    return CUDALINK_OK;
  }
  if (pid <= 0)
    return error_set(CUDALINK_ERROR_UNSUPPORTED, "the peer's process is not visible here");
  found = os_without(OS_FEATURE_PIDFD) ? (errno = ENOSYS, -1)
                                       : (os_handle)syscall(SYS_pidfd_open, pid, 0);
  int reason = errno;
  if (found < 0 && reason == ESRCH)
    return error_set(CUDALINK_ERROR_LOST, "the peer's process %d is gone", pid);
  if (found < 0)
    return error_set_errno(CUDALINK_ERROR_UNSUPPORTED, reason, "no pidfd of process %d", pid);
  /* The number may have passed to another process, but not while the peer's end is open. */
  if (connection_ended(connection)) {
    os_handle_close(&found);
    return error_set(CUDALINK_ERROR_LOST, "the peer's process %d is gone", pid);
  }
  *handle = found;
  return CUDALINK_OK;
}

bool os_peer_exited(os_handle handle) {
  struct pollfd state = {.fd = handle, .events = POLLIN};
  return handle >= 0 && poll(&state, 1, 0) == 1 && (state.revents & POLLIN);
}
