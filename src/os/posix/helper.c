/* SPDX-License-Identifier: MIT
 *
 * Inside of a helper process: one thread, nothing of a program's. Here forking is safe, as long as
 * CUDA is not loaded.
 */
#include "posix.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESULTS 3 /* the descriptor of what the helper has to say */

/* What the program forgot to mark close-on-exec is none of ours. */
static void close_from(unsigned first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  unsigned most = limit.rlim_cur > 65536 ? 65536 : (unsigned)limit.rlim_cur; /* before 5.9 */
  for (unsigned handle = first; handle < most; handle++)
    close((int)handle);
}

/* A driver may print: that goes nowhere. */
int os_helper_begin(os_handle *results) {
  *results = OS_NO_HANDLE;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (dup3(1, RESULTS, O_CLOEXEC) < 0)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "the helper has no output");
  close_from(RESULTS + 1);
  int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, 1);
    close(nowhere);
  }
  *results = RESULTS;
  return CUDALINK_OK;
}

/* No memfd: whether those work is one of the things that a helper finds out. */
void *os_helper_share(size_t size) {
  void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? NULL : address;
}

int os_helper_fork(int32_t *pid) {
  pid_t parent = getpid();
  *pid = fork();
  if (*pid < 0) return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make a process");
  if (*pid > 0) return CUDALINK_OK;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1); /* it died before the line above */
  return CUDALINK_OK;
}

void os_helper_exit(int code) { _exit(code); }

/* Ends this process by SIGALRM when it is not called again in time; 0 = no limit. */
void os_helper_limit(int64_t ns) {
  struct itimerval timer = {.it_value = {ns / 1000000000, ns % 1000000000 / 1000}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

bool os_helper_wait(int32_t pid, char how[OS_HOW_SIZE]) {
  int status = 0;
  pid_t waited;
  do
    waited = waitpid(pid, &status, 0);
  while (waited < 0 && errno == EINTR);
  how[0] = '\0';
  if (waited == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (waited == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    snprintf(how, OS_HOW_SIZE, "it did not end in time");
  else if (waited == pid && WIFSIGNALED(status))
    snprintf(how, OS_HOW_SIZE, "the process was ended by signal %d", WTERMSIG(status));
  else
    snprintf(how, OS_HOW_SIZE, "the process ended with code %d", WEXITSTATUS(status));
  return false;
}

bool os_write_all(os_handle handle, const char *text, size_t length) {
  while (length > 0) {
    ssize_t written = write(handle, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text += written;
    length -= (size_t)written;
  }
  return true;
}
