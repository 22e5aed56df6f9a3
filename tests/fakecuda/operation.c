/* SPDX-License-Identifier: MIT
 *
 * Operations: what streams queue and graphs are made of.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct operation *operation_new(enum operation_kind kind) {
  struct operation *operation = calloc(1, sizeof *operation);
  if (!operation) fake_abort("out of memory");
  operation->kind = kind;
  return operation;
}

void operation_use(struct operation *operation, uintptr_t address, size_t size, bool write) {
  if (operation->use_count == USES_MAX) fake_abort("internal: too many ranges in one operation");
  operation->uses[operation->use_count++] = (struct use){address, size, write};
}

static bool has_event(const struct operation *operation) {
  return operation->kind == OPERATION_RECORD || operation->kind == OPERATION_WAIT_EVENT;
}

static bool has_semaphore(const struct operation *operation) {
  return operation->kind == OPERATION_SIGNAL || operation->kind == OPERATION_WAIT_SEMAPHORE;
}

void operation_free(struct operation *operation) {
  if (has_event(operation)) event_release(operation->event.event);
  if (has_semaphore(operation)) semaphore_release(operation->semaphore.semaphore);
  if (operation->kind == OPERATION_GRAPH) {
    struct operation *next;
    for (struct operation *part = operation->graph.first; part; part = next) {
      next = part->next;
      operation_free(part);
    }
    exec_release(operation->graph.exec);
  }
  free(operation->owned);
  free(operation);
}

/* For the nodes of graphs; a launch itself is never cloned. */
struct operation *operation_clone(const struct operation *operation) {
  struct operation *clone = operation_new(operation->kind);
  *clone = *operation;
  clone->next = NULL;
  if (has_event(clone)) clone->event.event->references++;
  if (has_semaphore(clone)) semaphore_retain(clone->semaphore.semaphore);
  if (!operation->owned_size) return clone;
  clone->owned = malloc(operation->owned_size);
  if (!clone->owned) fake_abort("out of memory");
  memcpy(clone->owned, operation->owned, operation->owned_size);
  if (clone->kind == OPERATION_MEMORY) clone->memory.params = clone->owned;
  if (clone->kind == OPERATION_KERNEL) clone->kernel.values = clone->owned;
  return clone;
}
