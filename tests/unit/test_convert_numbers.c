/* SPDX-License-Identifier: MIT
 *
 * float16, the small floats of R11G11B10F and rounding: every code there and back, and the rounding
 * of what lies between two codes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "interop/convert/numbers.h"

/* A float of 5 bits of exponent, by definition. */
static double value_of(uint32_t code, int mantissa) {
  uint32_t exponent = code >> mantissa, fraction = code & ((1u << mantissa) - 1);
  if (exponent == 0) return ldexp(fraction, -14 - mantissa);
  return ldexp(fraction + (1u << mantissa), (int)exponent - 15 - mantissa);
}

static void test_half_there_and_back(void **state) {
  (void)state;
  for (uint32_t code = 0; code < 0x8000; code++) {
    float plus = convert_float_of_half(code), minus = convert_float_of_half(code | 0x8000);
    if (code > 0x7c00) {
      assert_true(isnan(plus) && isnan(minus));
      assert_int_equal(convert_half_of_float(plus), code | 0x200);
      continue;
    }
    assert_true(plus == (code == 0x7c00 ? INFINITY : (float)value_of(code, 10)));
    assert_true(minus == -plus && signbit(minus));
    assert_int_equal(convert_half_of_float(plus), code);
    assert_int_equal(convert_half_of_float(minus), code | 0x8000);
  }
}

/* The point in the middle of two codes goes to the even one, its neighbours to theirs. */
static void check_middle(uint32_t code, int mantissa, uint32_t (*shrink)(float)) {
  float middle = (float)((value_of(code, mantissa) + value_of(code + 1, mantissa)) / 2);
  assert_int_equal(shrink(middle), code + (code & 1));
  assert_int_equal(shrink(nextafterf(middle, 0.0f)), code);
  assert_int_equal(shrink(nextafterf(middle, INFINITY)), code + 1);
}

static uint32_t shrink_to_half(float value) { return convert_half_of_float(value); }
static uint32_t shrink_to_11(float value) { return convert_unsigned_float(value, 6); }
static uint32_t shrink_to_10(float value) { return convert_unsigned_float(value, 5); }

static void test_half_rounds_to_even(void **state) {
  (void)state;
  for (uint32_t code = 0; code < 0x7bff; code++)
    check_middle(code, 10, shrink_to_half);
  assert_int_equal(convert_half_of_float(65519.996f), 0x7bff);
  assert_int_equal(convert_half_of_float(65520.0f), 0x7c00);
  assert_int_equal(convert_half_of_float(-1e30f), 0xfc00);
  assert_int_equal(convert_half_of_float(1e-30f), 0);
  assert_int_equal(convert_half_of_float(-1e-30f), 0x8000);
}

static void check_unsigned(int mantissa, uint32_t (*shrink)(float)) {
  uint32_t infinity = 31u << mantissa;
  for (uint32_t code = 0; code < infinity; code++)
    assert_int_equal(shrink((float)value_of(code, mantissa)), code);
  for (uint32_t code = 0; code < infinity - 1; code++)
    check_middle(code, mantissa, shrink);
  assert_int_equal(shrink(INFINITY), infinity);
  assert_true(shrink(NAN) > infinity);
  assert_int_equal(shrink(-INFINITY), 0);
  assert_int_equal(shrink(-1.0f), 0);
  assert_int_equal(shrink(-0.0f), 0);
  assert_int_equal(shrink(65535.0f), infinity - 1);
  assert_int_equal(shrink(3e38f), infinity - 1);
}

static void test_unsigned_floats(void **state) {
  (void)state;
  check_unsigned(6, shrink_to_11);
  check_unsigned(5, shrink_to_10);
}

static void test_rounding(void **state) {
  (void)state;
  for (int i = 0; i < 65536 * 4; i++) {
    double value = i / 4.0;
    assert_true(convert_round_double(value) == nearbyint(value));
    assert_true(convert_round_float((float)value) == nearbyintf((float)value));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_half_there_and_back),
      cmocka_unit_test(test_half_rounds_to_even),
      cmocka_unit_test(test_unsigned_floats),
      cmocka_unit_test(test_rounding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
