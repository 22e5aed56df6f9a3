/* SPDX-License-Identifier: MIT
 *
 * The live line: one line on stderr that is written over and over while a command runs. Only on a
 * terminal; elsewhere every function here does nothing. Colour only without NO_COLOR.
 */
#ifndef CUDALINK_LIVE_H
#define CUDALINK_LIVE_H

#include <stdint.h>

void live_start(void);

/* 1 when there is a terminal, and this is no job in its background. */
int live_is_seen(void);

/* The same, and the last line was shown 200 ms ago or earlier. */
int live_is_due(void);

/* Shows a line, cut at the width of the terminal. */
void live_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says something that stays, above the live line. */
void live_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes the line away, so that something else can be printed. */
void live_hide(void);

/* Frames per second since the call before; all zeros to begin with. */
struct live_meter {
  uint64_t time;
  uint64_t frames;
};
double live_rate(struct live_meter *meter, uint64_t frames);

enum live_colour { LIVE_PLAIN, LIVE_GOOD, LIVE_BAD };

/* The escape sequence that starts a colour on the given stream (1 = stdout, 2 = stderr), or "". */
const char *live_colour(int descriptor, enum live_colour colour);

#endif
