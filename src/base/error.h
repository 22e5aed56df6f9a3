/* SPDX-License-Identifier: MIT
 *
 * The one way in which this library reports a failure: a code for the program, a sentence for the
 * person. The sentence is kept per thread (cudalink_last_error).
 */
#ifndef CUDALINK_SRC_BASE_ERROR_H
#define CUDALINK_SRC_BASE_ERROR_H

#include "cudalink/base.h"

/* Keeps the sentence and is `code`, so that a failing function can end with
 * `return error_set(CUDALINK_ERROR_..., "...")`. errno is left as it was. A macro, so that compilers and
 * analysers see which code a function returns. */
#define error_set(code, ...) (error_record(__VA_ARGS__), error_value(code))

/* The same for a failed system call: appends the text of `error_number`. */
#define error_set_errno(code, error_number, ...)                                                   \
  (error_record_errno(error_number, __VA_ARGS__), error_value(code))

/* cold: what leads to a sentence lies apart from what each frame runs through. */
void error_record(const char *format, ...) __attribute__((cold, format(printf, 1, 2)));
void error_record_errno(int error_number, const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));
static inline int error_value(int code) { return code; }

/* "%u frame%s": nothing behind a one, else an s. */
static inline const char *error_s(uint64_t count) { return count == 1 ? "" : "s"; }

/* Log lines go to the callback of cudalink_set_log, and nowhere else. */
void log_write(cudalink_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A thread on which no user code may run sets this: its lines are handed there instead, to be given
 * to log_deliver by another thread. NULL: lines go to the callback at once. */
extern _Thread_local void (*log_defer)(cudalink_log_level level, const char *text);
void log_deliver(cudalink_log_level level, const char *text);

#endif
