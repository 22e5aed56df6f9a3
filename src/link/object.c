/* SPDX-License-Identifier: MIT
 *
 * The tables of link_object. Numbers are index + 1 in the low 12 bits and the use count above.
 */
#include "link/object.h"

#include "os/os.h"

static uint32_t make_id(const struct link_object *object) {
  uint32_t id = object->uses << 12 | object->index;
  return id ? id : 1u << 12;
}

static struct link_object *take_free(struct link_table *table) {
  struct link_object *object = table->first_free;
  if (!object) return NULL;
  table->first_free = object->next_free;
  if (!table->first_free) table->last_free = NULL;
  return object;
}

static struct link_object *make_record(struct link_table *table) {
  uint32_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
  if (count == LINK_TABLE_SIZE) return NULL;
  struct link_object *object = os_pages(table->record_bytes); /* most of it is for many consumers */
  if (!object) return NULL;
  object->index = count;
  pthread_mutex_init(&object->mutex, NULL);
  /* release: pairs with the acquire load in link_table_at, which reads the record made above. */
  atomic_store_explicit(&table->records[count], object, memory_order_release);
  atomic_store_explicit(&table->count, count + 1, memory_order_release);
  return object;
}

void *link_table_take(struct link_table *table) {
  pthread_mutex_lock(&table->mutex);
  struct link_object *object = take_free(table);
  if (!object) object = make_record(table);
  pthread_mutex_unlock(&table->mutex);
  if (!object) return NULL;
  pthread_mutex_lock(&object->mutex);
  if (object->uses++) /* a new one is zeros already */
    os_pages_clear(object, sizeof *object, table->record_bytes);
  atomic_store_explicit(&object->id, make_id(object), memory_order_relaxed);
  pthread_mutex_unlock(&object->mutex);
  return object;
}

void link_table_give(struct link_table *table, void *record) {
  struct link_object *object = record;
  pthread_mutex_lock(&object->mutex);
  atomic_store_explicit(&object->id, 0, memory_order_relaxed);
  pthread_mutex_unlock(&object->mutex);
  pthread_mutex_lock(&table->mutex);
  object->next_free = NULL;
  if (table->last_free)
    table->last_free->next_free = object;
  else
    table->first_free = object;
  table->last_free = object;
  pthread_mutex_unlock(&table->mutex);
}
