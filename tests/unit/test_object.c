/* SPDX-License-Identifier: MIT
 *
 * Handles that stay safe after close (link/object.h): numbers, records, and who gets which when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/object.h"

struct record {
  struct link_object object;
  uint64_t payload[3];
};

static uint32_t id_of(const struct record *record) { return atomic_load(&record->object.id); }

static void a_record_starts_with_zeros(void **state) {
  (void)state;
  static struct link_table table = LINK_TABLE(struct record);
  for (int i = 0; i < 100; i++) {
    struct record *record = link_table_take(&table);
    assert_non_null(record);
    assert_int_not_equal(id_of(record), 0);
    for (int p = 0; p < 3; p++)
      assert_int_equal(record->payload[p], 0);
    for (int p = 0; p < 3; p++)
      record->payload[p] = 7;
    link_table_give(&table, record);
    assert_int_equal(id_of(record), 0);
  }
  assert_int_equal(atomic_load(&table.count), 1); /* always the same one */
}

static void a_dead_number_finds_nothing(void **state) {
  (void)state;
  static struct link_table table = LINK_TABLE(struct record);
  enum { ROUNDS = 5000 };
  static uint32_t ids[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    struct record *record = link_table_take(&table);
    ids[i] = id_of(record);
    assert_ptr_equal(link_table_lock(&table, ids[i]), record);
    link_object_unlock(record);
    for (int j = i > 50 ? i - 50 : 0; j < i; j++) {
      assert_int_not_equal(ids[j], ids[i]);
      assert_null(link_table_lock(&table, ids[j]));
    }
    link_table_give(&table, record);
    assert_null(link_table_lock(&table, ids[i]));
  }
  assert_null(link_table_lock(&table, 0));
  assert_null(link_table_lock(&table, UINT32_MAX));
}

static void numbers_are_used_again_late(void **state) {
  (void)state;
  static struct link_table table = LINK_TABLE(struct record);
  struct record *records[8];
  for (int i = 0; i < 8; i++)
    records[i] = link_table_take(&table);
  for (int i = 0; i < 8; i++)
    link_table_give(&table, records[(i * 3) % 8]);
  for (int i = 0; i < 8; i++)
    assert_ptr_equal(link_table_take(&table), records[(i * 3) % 8]);
}

static void no_more_than_4096(void **state) {
  (void)state;
  static struct link_table table = LINK_TABLE(struct record);
  static struct record *records[LINK_TABLE_SIZE];
  for (int i = 0; i < LINK_TABLE_SIZE; i++) {
    records[i] = link_table_take(&table);
    assert_non_null(records[i]);
    assert_int_not_equal(id_of(records[i]), 0);
    assert_ptr_equal(link_table_at(&table, (uint32_t)i), records[i]);
  }
  assert_null(link_table_take(&table));
  assert_null(link_table_at(&table, LINK_TABLE_SIZE));
  for (int i = 0; i < LINK_TABLE_SIZE; i++) {
    assert_ptr_equal(link_table_lock(&table, id_of(records[i])), records[i]);
    link_object_unlock(records[i]);
  }
  link_table_give(&table, records[1234]);
  assert_ptr_equal(link_table_take(&table), records[1234]);
  assert_null(link_table_take(&table));
}

/* 0 means "none": no record's number is ever 0, also when its count of uses has gone round. */
static void a_number_is_never_zero(void **state) {
  (void)state;
  static struct link_table table = LINK_TABLE(struct record);
  struct record *record = link_table_take(&table);
  record->object.uses = (1u << 20) - 3;
  for (int i = 0; i < 6; i++) {
    link_table_give(&table, record);
    record = link_table_take(&table);
    assert_int_not_equal(id_of(record), 0);
    assert_ptr_equal(link_table_lock(&table, id_of(record)), record);
    link_object_unlock(record);
  }
}

/* Threads take, find and give at the same time; whoever finds a number has the right record. */
static struct link_table shared_table = LINK_TABLE(struct record);
static _Atomic uint32_t published[8];
static void *churn(void *context) {
  uint32_t which = (uint32_t)(uintptr_t)context;
  for (int i = 0; i < 20000; i++) {
    struct record *record = link_table_take(&shared_table);
    uint32_t id = id_of(record);
    pthread_mutex_lock(&record->object.mutex);
    record->payload[0] = id;
    pthread_mutex_unlock(&record->object.mutex);
    atomic_store(&published[which], id);
    uint32_t other = atomic_load(&published[(which + 1) % 4]);
    struct record *found = link_table_lock(&shared_table, other);
    if (found) {
      if (found->payload[0] != other) return (void *)1;
      link_object_unlock(found);
    }
    link_table_give(&shared_table, record);
  }
  return NULL;
}
static void threads_never_mix_records(void **state) {
  (void)state;
  pthread_t threads[4];
  for (uintptr_t t = 0; t < 4; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, churn, (void *)t), 0);
  for (int t = 0; t < 4; t++) {
    void *wrong;
    pthread_join(threads[t], &wrong);
    assert_null(wrong);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_record_starts_with_zeros),  cmocka_unit_test(a_dead_number_finds_nothing),
      cmocka_unit_test(numbers_are_used_again_late), cmocka_unit_test(no_more_than_4096),
      cmocka_unit_test(a_number_is_never_zero),      cmocka_unit_test(threads_never_mix_records),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
