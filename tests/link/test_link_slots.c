/* SPDX-License-Identifier: MIT
 *
 * A channel with as many slots as there can be: frames go through each of the 64, wait in all of them
 * at once, and are held in nearly all of them.
 */
#include "link_test.h"

#define SLOTS 64

static cudalink_exporter exporter;

/* Publishes until no slot is free; returns how many. */
static unsigned fill_up(uint64_t *last) {
  cudalink_slot slot;
  for (unsigned count = 0;; count++) {
    if (test_try_begin(exporter, 0, &slot) != CUDALINK_OK) return count;
    assert_true(slot.index < SLOTS);
    test_paint(slot.data, BYTES, slot.sequence);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    *last = slot.sequence;
  }
}

static void frames_wait_in_sixty_four_slots(void **state) {
  (void)state;
  enum { ROUNDS = 50 };
  cudalink_importer importer;
  uint64_t seen = 0, published = 0, taken = 0;
  test_open(&exporter, .slots = SLOTS, .max_slots = SLOTS, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  assert_int_equal(test_sent(exporter).slots, SLOTS);
  for (int round = 0; round < ROUNDS; round++) {
    assert_int_equal(fill_up(&published), SLOTS);
    for (unsigned i = 0; i < SLOTS; i++) {
      cudalink_frame frame = test_take(importer);
      assert_int_equal(frame.sequence, ++taken);
      assert_int_equal(frame.missed, 0);
      seen |= UINT64_C(1) << frame.slot;
      test_release(&frame);
    }
  }
  assert_int_equal(taken, published);
  assert_int_equal(seen, UINT64_MAX);
  assert_int_equal(test_sent(exporter).generations, 1);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Each of four consumers keeps fifteen frames of its own while the others' go on. */
enum { HOLDERS = 4, HOLD = 15 };

static void hold_some(cudalink_importer importer, cudalink_frame held[HOLD], uint64_t *slots) {
  for (int i = 0; i < HOLD; i++) {
    uint64_t sequence = test_send(exporter);
    held[i] = test_take(importer);
    assert_int_equal(held[i].sequence, sequence);
    assert_int_equal(*slots >> held[i].slot & 1, 0); /* nobody else's */
    *slots |= UINT64_C(1) << held[i].slot;
  }
}

static void frames_are_held_in_sixty_slots(void **state) {
  (void)state;
  enum { ROUNDS = 20 };
  cudalink_importer importers[HOLDERS];
  static cudalink_frame held[HOLDERS][HOLD];
  test_open(&exporter, .slots = SLOTS, .max_slots = SLOTS, .hold_limit = FOREVER);
  for (int i = 0; i < HOLDERS; i++)
    test_join(&importers[i], .hold = HOLD);
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t slots = 0;
    for (int i = 0; i < HOLDERS; i++)
      hold_some(importers[i], held[i], &slots);
    for (int lap = 0; lap < 3 * SLOTS; lap++) /* through what is left */
      test_send(exporter);
    for (int i = 0; i < HOLDERS; i++)
      for (int j = 0; j < HOLD; j++) {
        assert_painted(&held[i][j], held[i][j].sequence);
        test_release(&held[i][j]);
      }
  }
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_int_equal(test_sent(exporter).generations, 1);
  for (int i = 0; i < HOLDERS; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(frames_wait_in_sixty_four_slots),
    test_case(frames_are_held_in_sixty_slots),
};
test_main(tests)
