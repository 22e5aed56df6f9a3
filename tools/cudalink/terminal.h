/* SPDX-License-Identifier: MIT
 *
 * The terminal: its size, a screen of our own on it, and keys.
 */
#ifndef CUDALINK_TERMINAL_H
#define CUDALINK_TERMINAL_H

#include <stddef.h>
#include <stdint.h>

/* 1: a terminal that understands escape sequences. */
int terminal_is(int descriptor);

/* Columns; 0 when it is no terminal. Where it does not say: COLUMNS, else 80. */
size_t terminal_width(int descriptor);

/* Columns and lines of the terminal on stdout; COLUMNS and LINES, else 80 x 24, where it does not say. */
void terminal_size(size_t *columns, size_t *lines);

/* Goes to a screen of our own on stdout, and takes keys one by one where stdin is a terminal too.
 * Needs stop_install. Leaving brings back what was there; doing so twice is fine. */
void terminal_enter(void);
void terminal_leave(void);

enum terminal_key {
  TERMINAL_TIME = 256, /* the time has come */
  TERMINAL_STOP,       /* a signal wants us to end */
  TERMINAL_RESIZE,
  TERMINAL_UP,
  TERMINAL_DOWN,
  TERMINAL_PAGE_UP,
  TERMINAL_PAGE_DOWN,
  TERMINAL_ESCAPE,
  TERMINAL_UNKNOWN
};

/* Waits for a key until cudalink_now() is `time`. A byte, or a terminal_key. Ctrl-Z is dealt with
 * here: it leaves the screen, stops the program, and after its return answers RESIZE. */
int terminal_wait_key(uint64_t time);

#endif
