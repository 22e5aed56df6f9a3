/* SPDX-License-Identifier: MIT
 *
 * Handles that stay safe after close: numbers that name a record, and records that are never freed,
 * only used again under another number.
 */
#ifndef CUDALINK_SRC_LINK_OBJECT_H
#define CUDALINK_SRC_LINK_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First member of every record that a handle names. `id` is 0 while the record is unused; it changes
 * only under `mutex`, so whoever holds the mutex and sees its number has the right object. */
struct link_object {
  _Atomic uint32_t id;
  uint32_t index;
  uint32_t uses; /* counts how often the record was given out; makes numbers differ */
  pthread_mutex_t mutex;
  struct link_object *next_free;
};

#define LINK_TABLE_SIZE 4096

struct link_table {
  size_t record_bytes;
  pthread_mutex_t mutex;
  _Atomic uint32_t count;         /* records made so far */
  struct link_object *first_free; /* oldest first, so that numbers are used again late */
  struct link_object *last_free;
  _Atomic(struct link_object *) records[LINK_TABLE_SIZE];
};

#define LINK_TABLE(type)                                                                           \
  { .record_bytes = sizeof(type), .mutex = PTHREAD_MUTEX_INITIALIZER }

/* A record of zeros (behind the link_object) with a new id, or NULL: no memory, or 4096 in use. */
void *link_table_take(struct link_table *table);
/* Puts it back: its number is dead from here on. The caller holds no lock of it. */
void link_table_give(struct link_table *table, void *record);

/* Each call of the API begins and ends with these: they are here so that they cost no calls. */

/* The record at `index`, used or not; NULL beyond the last. For walks, which lock and look at id. */
static inline void *link_table_at(struct link_table *table, uint32_t index) {
  if (index >= LINK_TABLE_SIZE) return NULL;
  /* acquire: pairs with the release store in make_record. */
  return atomic_load_explicit(&table->records[index], memory_order_acquire);
}

static inline void link_object_unlock(void *record) {
  pthread_mutex_unlock(&((struct link_object *)record)->mutex);
}

/* The record of that number with its mutex held, or NULL when the number is dead. */
static inline void *link_table_lock(struct link_table *table, uint32_t id) {
  if (!id) return NULL;
  struct link_object *object = link_table_at(table, id & (LINK_TABLE_SIZE - 1));
  if (!object) return NULL;
  pthread_mutex_lock(&object->mutex);
  if (atomic_load_explicit(&object->id, memory_order_relaxed) == id) return object;
  pthread_mutex_unlock(&object->mutex);
  return NULL;
}

#endif
