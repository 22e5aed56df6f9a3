/* SPDX-License-Identifier: MIT
 *
 * A GPU's context for a channel that is not there yet. It takes long to make, so a thread makes it while the
 * producer is waited for; beside the search, since a channel in memory of the CPU needs none and must not wait.
 */
#ifndef CUDALINK_RECORD_CONTEXT_H
#define CUDALINK_RECORD_CONTEXT_H

#include <pthread.h>
#include <stdint.h>

struct record_context {
  pthread_t thread;
  uint64_t device; /* OPTION_NO_DEVICE: the only GPU, if there is one only */
  int is_running;
};

/* Without the thread the context is made on joining, so nothing is reported. */
void record_context_start(struct record_context *context, uint64_t device);
void record_context_end(struct record_context *context);

#endif
