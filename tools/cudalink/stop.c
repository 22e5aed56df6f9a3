/* SPDX-License-Identifier: MIT
 *
 * Ending on request. The handler writes to a pipe as well, so that a signal that comes just before
 * a wait still ends it.
 */
#include "stop.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 3 /* signals */

static volatile sig_atomic_t is_requested;
static volatile sig_atomic_t signal_count;
static volatile sig_atomic_t signal_number;
static int wake_pipe[2] = {-1, -1};

static void on_signal(int number) {
  int saved = errno;
  is_requested = 1;
  signal_number = number;
  if (++signal_count >= PATIENCE) _exit(EXIT_CODE_SIGNAL + number);
  ssize_t ignored = write(wake_pipe[1], "", 1);
  (void)ignored;
  errno = saved;
}

/* A signal that the caller has set to be ignored stays so: nohup, or `&` in a script. */
static void catch_signal(int number) {
  struct sigaction action = {.sa_handler = on_signal}, old;
  sigemptyset(&action.sa_mask);
  if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN) return;
  sigaction(number, &action, NULL);
}

int stop_install(void) {
  if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return report(EXIT_CODE_SYSTEM, "no pipe can be made (ulimit -n limits them): %s",
                  strerror(errno));
  catch_signal(SIGINT);
  catch_signal(SIGTERM);
  catch_signal(SIGHUP);
  return EXIT_CODE_OK;
}

const volatile sig_atomic_t *stop_flag(void) { return &is_requested; }

int stop_requested(void) { return is_requested; }

int stop_descriptor(void) { return wake_pipe[0]; }

int stop_wait_until(uint64_t time) {
  struct pollfd entry = {.fd = wake_pipe[0], .events = POLLIN};
  while (!is_requested) {
    uint64_t now = cudalink_now();
    if (now >= time) return 0;
    struct timespec left = {.tv_sec = (time_t)((time - now) / 1000000000u),
                            .tv_nsec = (long)((time - now) % 1000000000u)};
    ppoll(&entry, 1, &left, NULL);
  }
  return 1;
}

int stop_exit_code(int code) {
  return is_requested && code == EXIT_CODE_OK ? EXIT_CODE_SIGNAL + signal_number : code;
}
