/* SPDX-License-Identifier: MIT
 *
 * The rules for one plane: types, spans, overflow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/plane.h"

#define CODE CUDALINK_ERROR_PROTOCOL

static cudalink_dtype dtype(unsigned code, unsigned bits, unsigned lanes) {
  return (cudalink_dtype){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
}

static cudalink_plane picture_plane(void) {
  cudalink_plane plane = {.name = "pixels", .dtype = CUDALINK_UINT8, .dimensions = 3};
  plane.offset = 256;
  plane.bytes = 2 * 100 + 4 * 4;
  memcpy(plane.shape, (int64_t[]){3, 4, 4}, 3 * sizeof(int64_t));
  memcpy(plane.strides, (int64_t[]){100, 4, 1}, 3 * sizeof(int64_t));
  return plane;
}

static uint64_t span_is(const cudalink_plane *plane) {
  uint64_t end = 0;
  assert_int_equal(wire_plane_span(CODE, 0, plane, &end), CUDALINK_OK);
  return end;
}

static void refused(const cudalink_plane *plane, const char *words) {
  uint64_t end = 0;
  assert_int_equal(wire_plane_span(CODE, 7, plane, &end), CODE);
  if (!strstr(cudalink_last_error(), "plane 7") || !strstr(cudalink_last_error(), words))
    fail_msg("\"%s\" does not say \"%s\"", cudalink_last_error(), words);
}

static void types_of_dlpack_are_legal(void **state) {
  (void)state;
  static const struct {
    unsigned code, bits, lanes;
  } legal[] = {{0, 1, 1},   {0, 4, 1},  {0, 8, 1},  {0, 16, 1}, {0, 32, 4},  {0, 64, 1},
               {1, 1, 1},   {1, 8, 4},  {1, 64, 1}, {2, 16, 1}, {2, 32, 2},  {2, 64, 1},
               {2, 128, 1}, {4, 16, 1}, {5, 32, 1}, {5, 64, 1}, {5, 128, 1}, {6, 8, 1},
               {7, 8, 1},   {8, 8, 1},  {9, 8, 1},  {10, 8, 1}, {11, 8, 1},  {12, 8, 1},
               {13, 8, 1},  {14, 8, 1}, {15, 6, 1}, {16, 6, 4}, {17, 4, 2},  {17, 4, 65535}};
  for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++)
    assert_true(wire_dtype_legal(dtype(legal[i].code, legal[i].bits, legal[i].lanes)));
}

static void other_types_are_not(void **state) {
  (void)state;
  static const struct {
    unsigned code, bits, lanes;
  } illegal[] = {{0, 0, 1},   {0, 8, 0},  {0, 128, 1}, {0, 3, 1},  {1, 24, 1},  {2, 8, 1},
                 {2, 255, 1}, {3, 64, 1}, {4, 32, 1},  {5, 16, 1}, {6, 1, 1},   {7, 4, 1},
                 {15, 8, 1},  {16, 4, 1}, {17, 8, 1},  {18, 8, 1}, {200, 8, 1}, {255, 255, 65535}};
  for (size_t i = 0; i < sizeof illegal / sizeof illegal[0]; i++)
    assert_false(wire_dtype_legal(dtype(illegal[i].code, illegal[i].bits, illegal[i].lanes)));
  cudalink_plane plane = picture_plane();
  plane.dtype = dtype(3, 64, 1);
  refused(&plane, "code 3");
}

static void a_span_ends_with_the_last_element(void **state) {
  (void)state;
  cudalink_plane plane = picture_plane();
  assert_int_equal(span_is(&plane), 256 + 216);
  plane.bytes = 300; /* padding behind the last row is fine */
  assert_int_equal(span_is(&plane), 556);
  plane.bytes = 215;
  refused(&plane, "bytes is 215");

  cudalink_plane scalar = {.dtype = CUDALINK_FLOAT32, .bytes = 4, .offset = 12};
  assert_int_equal(span_is(&scalar), 16);
  scalar.bytes = 3;
  refused(&scalar, "reach over 4");
}

static void a_stride_of_zero_repeats_an_element(void **state) {
  (void)state;
  cudalink_plane plane = picture_plane();
  plane.strides[0] = 0;
  plane.shape[0] = INT64_MAX;
  plane.bytes = 16;
  assert_int_equal(span_is(&plane), 256 + 16);
}

static void an_empty_plane_has_no_span(void **state) {
  (void)state;
  cudalink_plane plane = picture_plane();
  plane.bytes = 0;
  plane.shape[1] = 0;
  plane.shape[0] = plane.strides[0] = INT64_MAX; /* would overflow if it had elements */
  assert_int_equal(span_is(&plane), 256);
  plane.shape[2] = -1; /* emptiness excuses nothing behind it */
  refused(&plane, "shape[2] is -1");
}

static void short_elements_are_packed(void **state) {
  (void)state;
  cudalink_plane plane = {.dtype = dtype(CUDALINK_DTYPE_FLOAT6_E2M3FN, 6, 1), .dimensions = 2};
  plane.shape[0] = 2;
  plane.shape[1] = 5; /* 30 bits: 4 bytes */
  plane.strides[0] = 10;
  plane.bytes = 14;
  assert_int_equal(span_is(&plane), 14);
  plane.bytes = 13;
  refused(&plane, "reach over 14");
  plane.bytes = 14;
  plane.strides[1] = 1;
  refused(&plane, "strides[1] is 1");
  plane.dtype = dtype(CUDALINK_DTYPE_FLOAT4_E2M1FN, 4, 2); /* a whole byte: strides count again */
  plane.strides[1] = 2;
  plane.bytes = 10 + 4 * 2 + 1;
  assert_int_equal(span_is(&plane), 19);
}

static void overflow_is_found(void **state) {
  (void)state;
  cudalink_plane plane = picture_plane();
  plane.bytes = INT64_MAX;
  plane.shape[0] = INT64_MAX;
  refused(&plane, "does not fit 63 bits");
  plane = picture_plane();
  plane.shape[0] = plane.shape[1] = INT64_C(1) << 32;
  plane.strides[0] = plane.strides[1] = INT64_C(1) << 31;
  plane.bytes = UINT64_MAX;
  refused(&plane, "does not fit 63 bits");
  plane = picture_plane(); /* 2^32 * 2^32 is 0 in 64 bits */
  plane.shape[0] = (INT64_C(1) << 32) + 1;
  plane.strides[0] = INT64_C(1) << 32;
  refused(&plane, "does not fit 63 bits");
  plane = picture_plane(); /* 2^63 + 2^63 is 0 as well */
  plane.shape[0] = plane.shape[1] = 3;
  plane.strides[0] = plane.strides[1] = INT64_C(1) << 62;
  refused(&plane, "does not fit 63 bits");
  plane = picture_plane();
  plane.offset = UINT64_MAX - 100;
  refused(&plane, "offset");
  plane.offset = INT64_MAX; /* no overflow of 64 bits, but of 63 */
  refused(&plane, "offset");
  cudalink_plane bits = {.dtype = dtype(0, 4, 1), .dimensions = 1, .bytes = INT64_MAX};
  bits.shape[0] = INT64_MAX;
  refused(&bits, "does not fit 63 bits");
}

static void negative_numbers_are_refused(void **state) {
  (void)state;
  cudalink_plane plane = picture_plane();
  plane.strides[1] = -4;
  refused(&plane, "strides[1] is -4");
  plane = picture_plane();
  plane.shape[2] = INT64_MIN;
  refused(&plane, "shape[2]");
}

static void names_and_dimensions_have_limits(void **state) {
  (void)state;
  cudalink_plane plane = picture_plane();
  memset(plane.name, 'x', sizeof plane.name);
  refused(&plane, "name");
  plane.name[3] = '\0'; /* ends early, whatever is behind it */
  span_is(&plane);
  plane.dimensions = CUDALINK_MAX_DIMENSIONS + 1;
  refused(&plane, "9 dimensions");
  plane.dimensions = UINT32_MAX;
  refused(&plane, "dimensions");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types_of_dlpack_are_legal),
      cmocka_unit_test(other_types_are_not),
      cmocka_unit_test(a_span_ends_with_the_last_element),
      cmocka_unit_test(a_stride_of_zero_repeats_an_element),
      cmocka_unit_test(an_empty_plane_has_no_span),
      cmocka_unit_test(short_elements_are_packed),
      cmocka_unit_test(overflow_is_found),
      cmocka_unit_test(negative_numbers_are_refused),
      cmocka_unit_test(names_and_dimensions_have_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
