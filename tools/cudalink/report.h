/* SPDX-License-Identifier: MIT
 *
 * Errors for people: one line on stderr that says what failed, on what, and what to do. Each
 * function returns the exit code, so that a caller can end with `return report(...)`.
 */
#ifndef CUDALINK_REPORT_H
#define CUDALINK_REPORT_H

#include "exit_code.h"
#include "media/error.h"

int report(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The sentence that the library's last failing call left. */
int report_library(int error);

/* A file could not be read or written. */
int report_media(const struct media_error *error);

/* Ends stdout: says so when it could not be written. A reader that went away is no error. */
int report_stdout(int code);

#endif
