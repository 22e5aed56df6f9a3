/* SPDX-License-Identifier: MIT
 *
 * How a generation is laid out: aligned, without overlap, inside its memory, and never by overflow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/geometry.h"

static struct wire_geometry geometry;

static int make(uint64_t slot_bytes, uint32_t slots, uint64_t granularity, int inside) {
  return wire_geometry_make(&geometry, slot_bytes, slots, 3, 10, granularity, inside);
}

static void descriptions_follow_the_slots(void **state) {
  (void)state;
  assert_int_equal(make(1000, 4, 4096, 1), CUDALINK_OK);
  assert_int_equal(geometry.slot_bytes, 1000);
  assert_int_equal(geometry.slot_stride, 1024);
  assert_int_equal(geometry.metadata_offset, 4096);
  assert_int_equal(geometry.metadata_stride, 896); /* 256 + 3 * 192 + 10, up to 64 */
  assert_int_equal(geometry.memory_bytes, 8192);   /* 4096 + 4 * 896 = 7680 */
  assert_int_equal(geometry.metadata_bytes, 0);
}

static void or_have_a_segment_of_their_own(void **state) {
  (void)state;
  assert_int_equal(make(1000, 4, 2097152, 0), CUDALINK_OK);
  assert_int_equal(geometry.memory_bytes, 2097152);
  assert_int_equal(geometry.metadata_offset, 0);
  assert_int_equal(geometry.metadata_bytes, 4 * 896);
}

static void large_slots_start_on_pages(void **state) {
  (void)state;
  assert_int_equal(make(65535, 3, 1, 1), CUDALINK_OK);
  assert_int_equal(geometry.slot_stride, 65536);
  assert_int_equal(make(65536, 3, 1, 1), CUDALINK_OK);
  assert_int_equal(geometry.slot_stride, 65536);
  assert_int_equal(make(65537, 3, 1, 1), CUDALINK_OK);
  assert_int_equal(geometry.slot_stride, 69632);
}

static void slots_of_nothing_are_still_apart(void **state) {
  (void)state;
  assert_int_equal(make(0, 3, 4096, 1), CUDALINK_OK);
  assert_int_equal(geometry.slot_bytes, 0);
  assert_int_equal(geometry.slot_stride, 256);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  static const struct {
    uint64_t slot_bytes;
    uint32_t slots;
    uint64_t granularity;
  } cases[] = {{UINT64_MAX, 1, 1},
               {INT64_MAX, 1, 1},
               {(uint64_t)INT64_MAX / 64, 64, 4096},
               {UINT64_C(1) << 58, 64, 1},
               {UINT64_C(1) << 62, 1, UINT64_C(1) << 63},
               {1, 1, UINT64_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int inside = 0; inside < 2; inside++) {
      assert_int_equal(make(cases[i].slot_bytes, cases[i].slots, cases[i].granularity, inside),
                       CUDALINK_ERROR_TOO_LARGE);
      assert_non_null(strstr(cudalink_last_error(), "slots of"));
      assert_int_equal(geometry.memory_bytes, 0);
    }
}

static void what_was_made_passes_as_a_message(void **state) {
  (void)state;
  static const uint64_t sizes[] = {0, 1, 255, 256, 65535, 65536, 8294400, UINT64_C(1) << 40};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (uint32_t slots = 1; slots <= WIRE_MAX_SLOTS; slots++)
      for (int inside = 0; inside < 2; inside++) {
        struct wire_generation message = {.generation = 1};
        struct wire_geometry again;
        assert_int_equal(make(sizes[i], slots, 4096, inside), CUDALINK_OK);
        wire_message_start(&message, WIRE_GENERATION, sizeof message);
        message.kind = inside ? CUDALINK_KIND_HOST : CUDALINK_KIND_VMM;
        wire_geometry_to_message(&geometry, &message);
        assert_int_equal(wire_message_check(&message, sizeof message), WIRE_GENERATION);
        memset(&again, 0xff, sizeof again);
        wire_geometry_from_message(&again, &message);
        assert_memory_equal(&again, &geometry, offsetof(struct wire_geometry, user_size) + 4);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(descriptions_follow_the_slots),
      cmocka_unit_test(or_have_a_segment_of_their_own),
      cmocka_unit_test(large_slots_start_on_pages),
      cmocka_unit_test(slots_of_nothing_are_still_apart),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(what_was_made_passes_as_a_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
