/* SPDX-License-Identifier: MIT
 *
 * The live line.
 */
#include "live.h"
#include "terminal.h"
#include "text.h"

#include "cudalink/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PERIOD UINT64_C(200000000)

static int is_active;
static int is_shown;
static uint64_t last_shown;

void live_start(void) { is_active = terminal_is(STDERR_FILENO); }

/* A job in the background of a shell leaves the line to whoever is in front. */
static int is_in_background(void) {
  pid_t front = tcgetpgrp(STDERR_FILENO);
  return front > 0 && front != getpgrp();
}

int live_is_seen(void) { return is_active && !is_in_background(); }

int live_is_due(void) {
  return is_active && cudalink_now() - last_shown >= PERIOD && !is_in_background();
}

void live_show(const char *format, ...) {
  char text[1024], escaped[TEXT_ESCAPED_SIZE(sizeof text)];
  va_list arguments;
  if (!is_active) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  text_escape(escaped, sizeof escaped, text);
  /* A full line would wrap on some terminals. */
  size_t length = text_fit(escaped, terminal_width(STDERR_FILENO) - 1);
  fprintf(stderr, "\r%.*s\033[K", (int)length, escaped);
  fflush(stderr);
  is_shown = 1;
  last_shown = cudalink_now();
}

void live_note(const char *format, ...) {
  char text[1024], escaped[TEXT_ESCAPED_SIZE(sizeof text)];
  va_list arguments;
  if (!is_active) return;
  live_hide();
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s\n", text_escape(escaped, sizeof escaped, text));
}

void live_hide(void) {
  if (!is_shown) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  is_shown = 0;
}

double live_rate(struct live_meter *meter, uint64_t frames) {
  uint64_t now = cudalink_now();
  double seconds = (double)(now - meter->time) / 1e9, count = (double)(frames - meter->frames);
  int is_first = meter->time == 0;
  *meter = (struct live_meter){now, frames};
  return is_first || seconds <= 0 ? 0 : count / seconds;
}

const char *live_colour(int descriptor, enum live_colour colour) {
  static const char *const sequences[] = {"\033[0m", "\033[32m", "\033[31m"};
  const char *no_colour = getenv("NO_COLOR");
  if ((no_colour && *no_colour) || !terminal_is(descriptor)) return "";
  return sequences[colour];
}
