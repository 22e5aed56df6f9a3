/* SPDX-License-Identifier: MIT
 *
 * The terminal. SIGWINCH is blocked but for the waits, so that none gets lost between a look and a
 * wait.
 */
#include "terminal.h"
#include "stop.h"

#include "cudalink/base.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define CTRL_Z 0x1a
#define ESCAPE 0x1b

static struct termios saved_modes;
static sigset_t wait_mask; /* of the waits: SIGWINCH comes through */
static int is_entered;
static int has_keys;
static volatile sig_atomic_t is_resized;

int terminal_is(int descriptor) {
  const char *terminal = getenv("TERM");
  return isatty(descriptor) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

/* Some terminals (a serial line, containers, ssh -tt) do not know their size; then a variable may say it. */
static size_t size_or(unsigned short known, const char *text, size_t otherwise) {
  unsigned long said = text && !known ? strtoul(text, NULL, 10) : 0;
  if (known) return known;
  return said > 0 && said <= USHRT_MAX ? said : otherwise;
}

size_t terminal_width(int descriptor) {
  struct winsize size = {0};
  if (!isatty(descriptor)) return 0;
  ioctl(descriptor, TIOCGWINSZ, &size);
  return size_or(size.ws_col, getenv("COLUMNS"), 80);
}

void terminal_size(size_t *columns, size_t *lines) {
  struct winsize size = {0};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  *columns = size_or(size.ws_col, getenv("COLUMNS"), 80);
  *lines = size_or(size.ws_row, getenv("LINES"), 24);
}

static void on_resize(int number) {
  (void)number;
  is_resized = 1;
}

static void catch_resize(void) {
  struct sigaction action = {.sa_handler = on_resize};
  sigset_t resize;
  sigemptyset(&action.sa_mask);
  sigaction(SIGWINCH, &action, NULL);
  sigemptyset(&resize);
  sigaddset(&resize, SIGWINCH);
  sigprocmask(SIG_BLOCK, &resize, &wait_mask);
  sigdelset(&wait_mask, SIGWINCH);
}

/* Ctrl-C stays a signal; Ctrl-Z becomes a key, so that the screen is left before the stop. */
static void take_keys(void) {
  struct termios modes;
  has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &saved_modes) == 0;
  if (!has_keys) return;
  modes = saved_modes;
  modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
  modes.c_cc[VSUSP] = _POSIX_VDISABLE;
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
}

void terminal_enter(void) {
  if (is_entered) return;
  is_entered = 1;
  catch_resize();
  take_keys();
  fputs("\033[?1049h\033[?25l", stdout); /* the other screen, no cursor */
  fflush(stdout);
}

void terminal_leave(void) {
  if (!is_entered) return;
  is_entered = 0;
  fputs("\033[?25h\033[?1049l", stdout);
  fflush(stdout);
  if (has_keys) tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_modes);
}

static int suspend(void) {
  terminal_leave();
  raise(SIGTSTP);
  terminal_enter();
  return TERMINAL_RESIZE;
}

static int has_input(void) {
  struct pollfd entry = {.fd = STDIN_FILENO, .events = POLLIN};
  return poll(&entry, 1, 0) > 0;
}

/* What follows an escape character that did not come alone. */
static int read_sequence(void) {
  static const struct {
    const char *text;
    enum terminal_key key;
  } sequences[] = {{"[A", TERMINAL_UP},   {"OA", TERMINAL_UP},       {"[B", TERMINAL_DOWN},
                   {"OB", TERMINAL_DOWN}, {"[5~", TERMINAL_PAGE_UP}, {"[6~", TERMINAL_PAGE_DOWN}};
  char text[16] = "";
  ssize_t length = read(STDIN_FILENO, text, sizeof text - 1);
  for (size_t i = 0; length > 0 && i < sizeof sequences / sizeof sequences[0]; i++)
    if (strcmp(text, sequences[i].text) == 0) return (int)sequences[i].key;
  return TERMINAL_UNKNOWN;
}

static int read_key(void) {
  unsigned char byte;
  if (read(STDIN_FILENO, &byte, 1) != 1) {
    has_keys = 0; /* closed: the screen goes on without */
    return TERMINAL_UNKNOWN;
  }
  if (byte == CTRL_Z) return suspend();
  if (byte != ESCAPE) return byte;
  return has_input() ? read_sequence() : TERMINAL_ESCAPE;
}

int terminal_wait_key(uint64_t time) {
  for (;;) {
    struct pollfd entries[] = {{.fd = stop_descriptor(), .events = POLLIN},
                               {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    uint64_t now = cudalink_now(), left = time > now ? time - now : 0;
    struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    if (stop_requested()) return TERMINAL_STOP;
    int ready = ppoll(entries, 2, &timeout, &wait_mask);
    if (is_resized) {
      is_resized = 0;
      return TERMINAL_RESIZE;
    }
    if (ready > 0 && entries[1].revents) return read_key();
    if (ready == 0) return TERMINAL_TIME;
  }
}
