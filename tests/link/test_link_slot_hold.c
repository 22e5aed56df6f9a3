/* SPDX-License-Identifier: MIT
 *
 * Memory of slots that somebody keeps: it stays mapped beyond publish, larger blocks and close, and
 * goes with the last hold.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "link/exporter.h"
#include "link_test.h"

#define PAGE UINT64_C(4096)

static cudalink_exporter exporter;

static bool is_mapped(const void *address) {
  void *page = (void *)((uintptr_t)address & ~(uintptr_t)(PAGE - 1));
  return msync(page, 1, MS_ASYNC) == 0;
}

static void begin(uint64_t bytes, cudalink_slot *slot) {
  cudalink_description description = test_bytes(bytes);
  description.user_size = 8;
  assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, slot));
}

static void write_all(const cudalink_slot *slot, uint64_t bytes) {
  test_paint(slot->data, bytes, slot->sequence);
  memset(slot->user, 7, 8);
}

/* With the last hold the memory goes. */
static void drop_last(cudalink_slot_hold *hold, const cudalink_slot *slot) {
  cudalink_slot_hold_drop(hold);
  test_settle();
  assert_false(is_mapped(slot->data));
}

static void a_kept_slot_outlives_its_exporter(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_slot_hold *hold;
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &slot);
  assert_ok(cudalink_slot_hold_take(&hold, exporter, &slot));
  write_all(&slot, BYTES);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_exporter_close(exporter));
  test_settle();
  write_all(&slot, BYTES);
  assert_ptr_equal(cudalink_slot_hold_retain(hold), hold);
  cudalink_slot_hold_drop(hold);
  test_settle();
  write_all(&slot, BYTES);
  drop_last(hold, &slot);
}

static void kept_slots_outlive_larger_blocks(void **state) {
  (void)state;
  cudalink_slot slots[5];
  cudalink_slot_hold *holds[5];
  test_open(&exporter, .user_size = 8);
  for (uint64_t i = 0; i < 5; i++) {
    begin(BYTES << i, &slots[i]);
    assert_ok(cudalink_slot_hold_take(&holds[i], exporter, &slots[i]));
    assert_ok(cudalink_exporter_publish(exporter, &slots[i], COMPLETE));
  }
  assert_int_equal(test_sent(exporter).generations, 5);
  test_settle();
  for (uint64_t i = 0; i < 5; i++)
    write_all(&slots[i], BYTES << i);
  drop_last(holds[1], &slots[1]);
  assert_ok(cudalink_exporter_close(exporter));
  test_settle();
  for (uint64_t i = 0; i < 5; i++) {
    if (i == 1) continue;
    write_all(&slots[i], BYTES << i);
    drop_last(holds[i], &slots[i]);
  }
}

static void holds_of_one_block_are_counted_together(void **state) {
  (void)state;
  cudalink_slot first, second;
  cudalink_slot_hold *holds[2];
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &first);
  assert_ok(cudalink_slot_hold_take(&holds[0], exporter, &first));
  assert_ok(cudalink_exporter_abandon(exporter, &first, COMPLETE));
  begin(BYTES, &second);
  assert_ok(cudalink_slot_hold_take(&holds[1], exporter, &second));
  assert_ok(cudalink_exporter_close(exporter)); /* with the slot begun */
  cudalink_slot_hold_drop(holds[0]);
  test_settle();
  write_all(&first, BYTES);
  write_all(&second, BYTES);
  drop_last(holds[1], &first);
}

static bool is_over(cudalink_exporter closed) {
  void *record = link_table_lock(&link_exporters, closed.id);
  if (record) link_object_unlock(record);
  return !record;
}

static void wait_at(void *context) {
  _Atomic bool *open = context;
  UNTIL(atomic_load(open));
}

/* The last hold goes between the moment when its block would have been unmapped and the end of the
 * device: what it kept needs the device. */
static void a_device_outlives_what_is_kept(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_slot_hold *hold;
  _Atomic bool open = false;
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &slot);
  assert_ok(cudalink_slot_hold_take(&hold, exporter, &slot));
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  test_send_bytes(exporter, 64 * BYTES, COMPLETE);
  test_settle(); /* the old block is taken over */
  reaper_call(wait_at, &open);
  assert_ok(cudalink_exporter_close(exporter));
  UNTIL(is_over(exporter)); /* the device's end is queued */
  cudalink_slot_hold_drop(hold);
  atomic_store(&open, true);
  test_settle();
  assert_false(is_mapped(slot.data));
}

/* A record whose last holder has gone, and that another takes before the reaper comes to it. */
static void a_block_is_kept_again(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_slot_hold *hold;
  _Atomic bool open = false;
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &slot);
  assert_ok(reaper_start());
  reaper_call(wait_at, &open);
  for (int i = 0; i < 3; i++) {
    assert_ok(cudalink_slot_hold_take(&hold, exporter, &slot));
    cudalink_slot_hold_drop(hold);
  }
  assert_ok(cudalink_slot_hold_take(&hold, exporter, &slot));
  atomic_store(&open, true);
  test_settle();
  assert_ok(cudalink_exporter_close(exporter));
  test_settle();
  write_all(&slot, BYTES);
  drop_last(hold, &slot);
}

static void a_hold_dropped_early_changes_nothing(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_slot_hold *hold;
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &slot);
  assert_ok(cudalink_slot_hold_take(&hold, exporter, &slot));
  cudalink_slot_hold_drop(hold);
  test_settle();
  write_all(&slot, BYTES);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_exporter_close(exporter));
  test_settle();
  assert_false(is_mapped(slot.data));
  cudalink_slot_hold_drop(NULL);
}

static void only_begun_slots_can_be_kept(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_slot_hold *hold;
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &slot);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_slot_hold_take(NULL, exporter, &slot));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_slot_hold_take(&hold, exporter, NULL));
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_slot_hold_take(&hold, exporter, &slot));
  assert_said("no frame is begun");
  assert_ok(cudalink_exporter_close(exporter));
  assert_status(CUDALINK_ERROR_CLOSED, cudalink_slot_hold_take(&hold, exporter, &slot));
}

static void a_forked_childs_copy_is_dead(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_slot_hold *hold;
  test_open(&exporter, .user_size = 8);
  begin(BYTES, &slot);
  assert_ok(cudalink_slot_hold_take(&hold, exporter, &slot));
  assert_ok(cudalink_exporter_close(exporter));
  pid_t child = fork();
  if (!child) {
    cudalink_slot_hold_drop(hold);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  test_settle();
  write_all(&slot, BYTES);
  cudalink_slot_hold_drop(hold);
}

static const struct CMUnitTest tests[] = {
    test_case(a_kept_slot_outlives_its_exporter),
    test_case(kept_slots_outlive_larger_blocks),
    test_case(holds_of_one_block_are_counted_together),
    test_case(a_device_outlives_what_is_kept),
    test_case(a_block_is_kept_again),
    test_case(a_hold_dropped_early_changes_nothing),
    test_case(only_begun_slots_can_be_kept),
    test_case(a_forked_childs_copy_is_dead),
};
test_main(tests)
