/* SPDX-License-Identifier: MIT
 *
 * A context that is made ahead. Pinned memory makes it, and it stays until the process ends.
 */
#include "record_context.h"
#include "gpus.h"
#include "options.h"

#include "cudalink/cudalink.h"

#include <signal.h>

static void *make_context(void *argument) {
  const struct record_context *context = argument;
  int64_t bytes = 1;
  cudalink_array *array;
  int ordinal = context->device == OPTION_NO_DEVICE ? gpus_only() : (int)context->device;
  if (ordinal >= 0 &&
      cudalink_array_pinned(&array, CUDALINK_DEVICE(ordinal), CUDALINK_UINT8, 1, &bytes) == 0)
    cudalink_array_drop(array);
  return NULL;
}

/* Signals are the main thread's. */
void record_context_start(struct record_context *context, uint64_t device) {
  sigset_t all, before;
  context->device = device;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  context->is_running = pthread_create(&context->thread, NULL, make_context, context) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void record_context_end(struct record_context *context) {
  if (context->is_running) pthread_join(context->thread, NULL);
  context->is_running = 0;
}
