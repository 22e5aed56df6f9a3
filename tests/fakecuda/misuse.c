/* SPDX-License-Identifier: MIT
 *
 * Misuse of the driver: reported, then the process ends, or the call fails as a real one would. And
 * the guard that turns a stream's bad access into the loss of its context instead of a crash.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static void report(const char *format, va_list arguments) {
  char text[512];
  int length = snprintf(text, sizeof text, "fakecuda[%d]: ", (int)getpid());
  length += vsnprintf(text + length, sizeof text - (size_t)length - 2, format, arguments);
  if ((size_t)length > sizeof text - 2) length = (int)sizeof text - 2;
  text[length] = '\n';
  ssize_t written = write(STDERR_FILENO, text, (size_t)length + 1);
  (void)written;
}

void fake_abort(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(format, arguments);
  va_end(arguments);
  abort();
}

CUresult misuse(CUresult result, const char *format, ...) {
  fake.misuses++;
  if (fake.misuse == FAKECUDA_MISUSE_ERROR) return result;
  va_list arguments;
  va_start(arguments, format);
  report(format, arguments);
  va_end(arguments);
  abort();
}

static _Thread_local sigjmp_buf *landing;
static struct sigaction previous[2];

static void on_fault(int number) {
  if (landing) siglongjmp(*landing, 1);
  /* Not ours: let it happen again under the handler that was there before. */
  sigaction(number, &previous[number == SIGBUS], NULL);
}

/* Each time, because test frameworks and sanitizers put handlers of their own there. */
static void install_handler(int number) {
  struct sigaction now;
  if (sigaction(number, NULL, &now) == 0 && now.sa_handler == on_fault) return;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_fault;
  action.sa_flags = SA_NODEFER;
  previous[number == SIGBUS] = now;
  sigaction(number, &action, NULL);
}

bool guarded_run(void (*run)(void *), void *argument) {
  install_handler(SIGSEGV);
  install_handler(SIGBUS);
  sigjmp_buf here;
  bool whole = false;
  if (sigsetjmp(here, 0) == 0) {
    landing = &here;
    run(argument);
    whole = true;
  }
  landing = NULL;
  return whole;
}
