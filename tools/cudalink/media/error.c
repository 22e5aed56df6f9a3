/* SPDX-License-Identifier: MIT
 *
 * Errors of the file code.
 */
#include "media/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct media_error *error, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void set_text(struct media_error *error, const char *format, va_list arguments) {
  vsnprintf(error->text, sizeof error->text, format, arguments);
}

static void append(struct media_error *error, const char *text) {
  size_t length = strlen(error->text);
  snprintf(error->text + length, sizeof error->text - length, ": %s", text);
}

int media_fail(struct media_error *error, int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_text(error, format, arguments);
  va_end(arguments);
  return error->code = code;
}

static int code_of(int number) {
  switch (number) {
  case ENOENT: return CUDALINK_ERROR_NOT_FOUND;
  case EACCES:
  case EPERM:
  case EROFS: return CUDALINK_ERROR_REFUSED;
  case ENOSPC:
  case EDQUOT:
  case EFBIG: return CUDALINK_ERROR_NO_SPACE;
  case ENOMEM: return CUDALINK_ERROR_NO_MEMORY;
  case EPIPE: return CUDALINK_ERROR_CLOSED;
  default: return CUDALINK_ERROR_SYSTEM;
  }
}

int media_fail_errno(struct media_error *error, const char *format, ...) {
  int number = errno;
  va_list arguments;
  va_start(arguments, format);
  set_text(error, format, arguments);
  va_end(arguments);
  append(error, strerror(number));
  return error->code = code_of(number);
}

int media_fail_library(struct media_error *error, int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_text(error, format, arguments);
  va_end(arguments);
  append(error, cudalink_last_error());
  return error->code = code;
}
