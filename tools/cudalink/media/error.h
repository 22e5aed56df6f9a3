/* SPDX-License-Identifier: MIT
 *
 * Errors of the file code: a code for the program, a sentence for the person, kept by the caller.
 */
#ifndef CUDALINK_MEDIA_ERROR_H
#define CUDALINK_MEDIA_ERROR_H

#include "cudalink/base.h"

struct media_error {
  int code; /* cudalink_error */
  char text[512];
};

/* Keeps code and sentence, returns the code. */
int media_fail(struct media_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same after a failed system call: the code follows from errno, its text is appended. */
int media_fail_errno(struct media_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same after a failed call of the library: its sentence is appended. */
int media_fail_library(struct media_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
