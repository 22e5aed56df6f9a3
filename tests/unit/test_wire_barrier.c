/* SPDX-License-Identifier: MIT
 *
 * The old wire's activation barrier: bytes where old programs expect them, and no count that holds
 * anybody back for ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cudalink/base.h"
#include "wire/activation_barrier.h"

#define NOW UINT64_C(100000000000)

static _Alignas(64) uint8_t block[64];
static struct wire_barrier *const barrier = (void *)block;

static uint64_t get(unsigned at, unsigned bytes) {
  uint64_t value = 0;
  memcpy(&value, block + at, bytes);
  return value;
}

static void fresh(void) {
  memset(block, 0, sizeof block);
  assert_int_equal(wire_barrier_open(block, sizeof block), CUDALINK_OK);
}

static void the_bytes_are_those_of_the_reference(void **state) {
  (void)state;
  uint8_t zeros[32] = {0};
  fresh();
  wire_barrier_hold(barrier, NOW, 4711);
  wire_barrier_ask(barrier, NOW, WIRE_BARRIER_STALE_AFTER);
  assert_int_equal(get(0, 4), 0xcda1baaa);
  assert_int_equal(get(4, 4), 1);
  assert_int_equal(get(8, 4), 1);
  assert_int_equal(get(12, 4), 0);
  assert_int_equal(get(16, 8), NOW);
  assert_int_equal(get(24, 4), 1);
  assert_int_equal(get(28, 4), 4711);
  assert_memory_equal(block + 32, zeros, 32);
  assert_string_equal(WIRE_BARRIER_NAME, "cudalink_activation_barrier");
}

static void a_holder_holds_others_back(void **state) {
  (void)state;
  fresh();
  assert_int_equal(wire_barrier_ask(barrier, NOW, WIRE_BARRIER_STALE_AFTER), WIRE_BARRIER_GO);
  wire_barrier_hold(barrier, NOW, 1);
  wire_barrier_hold(barrier, NOW, 2);
  assert_int_equal(wire_barrier_ask(barrier, NOW + 1, WIRE_BARRIER_STALE_AFTER), WIRE_BARRIER_SKIP);
  wire_barrier_release(barrier, NOW, 1);
  assert_int_equal(wire_barrier_ask(barrier, NOW + 1, WIRE_BARRIER_STALE_AFTER), WIRE_BARRIER_SKIP);
  wire_barrier_release(barrier, NOW, 2);
  assert_int_equal(wire_barrier_ask(barrier, NOW + 1, WIRE_BARRIER_STALE_AFTER), WIRE_BARRIER_GO);
  wire_barrier_release(barrier, NOW, 2); /* one too many */
  assert_int_equal(get(8, 4), 0);
}

static void a_dead_holder_holds_nobody_back_for_long(void **state) {
  (void)state;
  fresh();
  wire_barrier_hold(barrier, NOW, 1);
  assert_int_equal(wire_barrier_ask(barrier, NOW + UINT64_C(5000000000), WIRE_BARRIER_STALE_AFTER),
                   WIRE_BARRIER_SKIP);
  assert_int_equal(wire_barrier_ask(barrier, NOW + UINT64_C(5000000001), WIRE_BARRIER_STALE_AFTER),
                   WIRE_BARRIER_STALE);
  assert_int_equal(wire_barrier_ask(barrier, NOW - 1, WIRE_BARRIER_STALE_AFTER),
                   WIRE_BARRIER_STALE); /* a time ahead */
  assert_int_equal(get(24, 4), 1);      /* only a skip is counted */
}

static void what_is_there_is_kept_or_refused(void **state) {
  (void)state;
  fresh();
  wire_barrier_hold(barrier, NOW, 1);
  assert_int_equal(wire_barrier_open(block, 4096), CUDALINK_OK); /* pages of Windows */
  assert_int_equal(get(8, 4), 1);
  assert_int_equal(wire_barrier_open(block, 63), CUDALINK_ERROR_PROTOCOL);
  block[4] = 2;
  assert_int_equal(wire_barrier_open(block, 64), CUDALINK_ERROR_PROTOCOL);
  block[4] = 1;
  block[0] = 1;
  assert_int_equal(wire_barrier_open(block, 64), CUDALINK_ERROR_PROTOCOL);
  assert_non_null(strstr(cudalink_last_error(), "another program"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_bytes_are_those_of_the_reference),
      cmocka_unit_test(a_holder_holds_others_back),
      cmocka_unit_test(a_dead_holder_holds_nobody_back_for_long),
      cmocka_unit_test(what_is_there_is_kept_or_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
