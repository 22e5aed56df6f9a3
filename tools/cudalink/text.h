/* SPDX-License-Identifier: MIT
 *
 * Text that others chose (names of channels, programs, files) on its way to a person: nothing in it
 * can steer a terminal or hide, and its width is known.
 */
#ifndef CUDALINK_TEXT_H
#define CUDALINK_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_NO_CHARACTER UINT32_MAX

/* The character of UTF-8 at *text, which moves behind it; TEXT_NO_CHARACTER for a byte that starts
 * none. Not to be called at the end. */
uint32_t text_next(const char **text);

/* Room for any text of `length` bytes, escaped. */
#define TEXT_ESCAPED_SIZE(length) (4 * (length) + 1)

/* Copies, with control characters, characters that nobody sees, and bytes that are no UTF-8 as
 * \x1b or \u202e. What does not fit is left out. Returns `to`. */
char *text_escape(char *to, size_t size, const char *text);

/* How many columns of a terminal this takes, and how many bytes of it fit into so many columns. */
size_t text_columns(const char *text);
size_t text_fit(const char *text, size_t columns);

/* Prints it in lines of so many columns, broken at spaces; a word that is longer is not broken. 0: no
 * limit. Lines behind the first are indented; the last one has no end. */
void text_print_wrapped(const char *text, size_t columns, size_t indent, FILE *stream);

/* "%u frame%s": nothing behind a one, else an s. */
static inline const char *text_s(uint64_t count) { return count == 1 ? "" : "s"; }

#define TEXT_DURATION_SIZE 32

/* "850 µs", "12 ms", "3.4 s", "5 min", "2 h", "3 d". */
const char *text_duration(char to[TEXT_DURATION_SIZE], uint64_t nanoseconds);

#endif
