/* SPDX-License-Identifier: MIT
 *
 * Errors for people.
 */
#include "report.h"
#include "live.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int report(enum exit_code code, const char *format, ...) {
  char text[1024], escaped[TEXT_ESCAPED_SIZE(sizeof text)];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  live_hide();
  fprintf(stderr, "cudalink: %s\n", text_escape(escaped, sizeof escaped, text));
  return (int)code;
}

static enum exit_code code_of(int error) {
  switch (error) {
  case CUDALINK_ERROR_INVALID_ARGUMENT: return EXIT_CODE_USAGE;
  case CUDALINK_ERROR_NO_MEMORY:
  case CUDALINK_ERROR_NO_SPACE:
  case CUDALINK_ERROR_UNSUPPORTED: /* here: no driver, no such GPU, or one that lacks something */
  case CUDALINK_ERROR_GPU:
  case CUDALINK_ERROR_GPU_LOST:
  case CUDALINK_ERROR_SYSTEM: return EXIT_CODE_SYSTEM;
  default: return EXIT_CODE_CHANNEL;
  }
}

int report_library(int error) {
  const char *sentence = cudalink_last_error();
  return report(code_of(error), "%s", *sentence ? sentence : cudalink_error_text(error));
}

int report_media(const struct media_error *error) {
  int is_memory = error->code == CUDALINK_ERROR_NO_MEMORY;
  return report(is_memory ? EXIT_CODE_SYSTEM : EXIT_CODE_FILE, "%s", error->text);
}

int report_stdout(int code) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  if (errno == EPIPE || errno == 0) return code;
  return report(EXIT_CODE_FILE, "stdout: write failed: %s", strerror(errno));
}
