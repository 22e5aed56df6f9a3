/* SPDX-License-Identifier: MIT
 *
 * Errors and log. State: one sentence per thread, and the log callback of the process.
 */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_SIZE 512

static _Thread_local char sentence[SENTENCE_SIZE];

static struct {
  pthread_mutex_t mutex;
  cudalink_log_callback callback;
  void *context;
  cudalink_log_level level;
} log_sink = {PTHREAD_MUTEX_INITIALIZER, NULL, NULL, CUDALINK_LOG_WARNING};

void error_record(const char *format, ...) {
  int saved = errno;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  errno = saved;
}

/* For what can run out, whatever the call was; the sentence itself says what to do about the rest. */
static const char *advice_for(int error_number) {
  switch (error_number) {
  case EMFILE: return "; raise the limit of open files (ulimit -n)";
  case ENFILE: return "; raise the machine's limit of open files (fs.file-max)";
  case ENOMEM: return "; free memory, or raise its limit (ulimit -v, memory.max of the cgroup)";
  default: return "";
  }
}

void error_record_errno(int error_number, const char *format, ...) {
  int saved = errno;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  char reason[128];
  if (length >= 0 && (size_t)length < sizeof sentence)
    snprintf(sentence + length, sizeof sentence - (size_t)length, ": %s%s",
             strerror_r(error_number, reason, sizeof reason), advice_for(error_number));
  errno = saved;
}

const char *cudalink_last_error(void) { return sentence; }

void cudalink_set_log(cudalink_log_callback callback, void *context, cudalink_log_level level) {
  pthread_mutex_lock(&log_sink.mutex);
  log_sink.callback = callback;
  log_sink.context = context;
  log_sink.level = level;
  pthread_mutex_unlock(&log_sink.mutex);
}

_Thread_local void (*log_defer)(cudalink_log_level level, const char *text);

static bool log_wanted(cudalink_log_level level, cudalink_log_callback *callback, void **context) {
  pthread_mutex_lock(&log_sink.mutex);
  *callback = log_sink.callback;
  *context = log_sink.context;
  bool wanted = log_sink.callback && level <= log_sink.level;
  pthread_mutex_unlock(&log_sink.mutex);
  return wanted;
}

void log_deliver(cudalink_log_level level, const char *text) {
  cudalink_log_callback callback;
  void *context;
  if (log_wanted(level, &callback, &context)) callback(context, level, text);
}

void log_write(cudalink_log_level level, const char *format, ...) {
  cudalink_log_callback callback;
  void *context;
  if (!log_wanted(level, &callback, &context)) return;
  char text[SENTENCE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (log_defer)
    log_defer(level, text);
  else
    callback(context, level, text);
}

const char *cudalink_error_name(int error) {
  switch (error) {
  case CUDALINK_OK: return "CUDALINK_OK";
#define NAME(name, value, text)                                                                    \
  case value: return "CUDALINK_ERROR_" #name;
    CUDALINK_ERRORS(NAME)
#undef NAME
  default: return "CUDALINK_ERROR_UNKNOWN";
  }
}

const char *cudalink_error_text(int error) {
  switch (error) {
  case CUDALINK_OK: return "no error";
#define TEXT(name, value, text)                                                                    \
  case value: return text;
    CUDALINK_ERRORS(TEXT)
#undef TEXT
  default: return "an error number that this library does not know";
  }
}

uint32_t cudalink_version(void) {
  return CUDALINK_VERSION_MAJOR * 10000 + CUDALINK_VERSION_MINOR * 100 + CUDALINK_VERSION_PATCH;
}
