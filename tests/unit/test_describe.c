/* SPDX-License-Identifier: MIT
 *
 * Descriptions: what describe_tensor makes, and that the check finds each thing that can be wrong
 * with a description from another process.
 */
#include "cudalink/format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

static cudalink_description tensor(cudalink_dtype dtype, uint32_t dimensions,
                                   const int64_t *shape) {
  cudalink_description description = {0};
  assert_int_equal(cudalink_describe_tensor(&description, "t", dtype, dimensions, shape), 0);
  return description;
}

static void assert_bytes(const cudalink_description *description, uint64_t expected) {
  uint64_t bytes = 0;
  assert_int_equal(cudalink_description_bytes(description, &bytes), 0);
  assert_int_equal(bytes, expected);
}

static void assert_wrong(const cudalink_description *description, const char *text) {
  uint64_t bytes = 4711;
  assert_int_equal(cudalink_description_bytes(description, &bytes), INVALID);
  if (!strstr(cudalink_last_error(), text))
    fail_msg("\"%s\" does not say \"%s\"", cudalink_last_error(), text);
  assert_int_equal(bytes, 4711);
}

static void tensors_are_dense_and_aligned(void **state) {
  (void)state;
  cudalink_description d = {0};
  const int64_t shape[] = {2, 3, 5};
  assert_int_equal(cudalink_describe_tensor(&d, "latent", CUDALINK_FLOAT32, 3, shape), 0);
  assert_int_equal(cudalink_describe_tensor(&d, NULL, CUDALINK_UINT8, 0, NULL), 0);
  assert_int_equal(cudalink_describe_tensor(&d, "end", CUDALINK_UINT16, 1, shape), 0);
  assert_int_equal(d.plane_count, 3);
  assert_string_equal(d.planes[0].name, "latent");
  assert_int_equal(d.planes[0].strides[0], 60);
  assert_int_equal(d.planes[0].strides[1], 20);
  assert_int_equal(d.planes[0].strides[2], 4);
  assert_int_equal(d.planes[0].bytes, 120);
  assert_string_equal(d.planes[1].name, "");
  assert_int_equal(d.planes[1].offset, 256);
  assert_int_equal(d.planes[1].bytes, 1);
  assert_int_equal(d.planes[2].offset, 512);
  assert_bytes(&d, 516);
}

static void empty_tensors_are_allowed(void **state) {
  (void)state;
  const int64_t shape[] = {4, 0, 1000};
  cudalink_description d = tensor(CUDALINK_FLOAT16, 3, shape);
  assert_int_equal(d.planes[0].bytes, 0);
  assert_bytes(&d, 0);
  d.planes[0].bytes = 2;
  assert_wrong(&d, "cover 0 bytes");
}

static void elements_below_a_byte_share_bytes(void **state) {
  (void)state;
  const int64_t square[] = {64, 64}, odd[] = {3, 5}, one[] = {1};
  cudalink_dtype fp4 = cudalink_dtype_make(CUDALINK_DTYPE_FLOAT4_E2M1FN, 4);
  cudalink_dtype fp6 = cudalink_dtype_make(CUDALINK_DTYPE_FLOAT6_E2M3FN, 6);
  cudalink_description d = tensor(fp4, 2, square);
  assert_int_equal(d.planes[0].strides[0], 32);
  assert_int_equal(d.planes[0].strides[1], 0);
  assert_bytes(&d, 2048);
  d.planes[0].strides[1] = 1;
  assert_wrong(&d, "its stride must be 0");

  d = tensor(fp6, 2, odd); /* a row of 30 bits takes 4 bytes */
  assert_int_equal(d.planes[0].strides[0], 4);
  assert_bytes(&d, 12);
  d = tensor(cudalink_dtype_make(CUDALINK_DTYPE_UINT, 1), 1, one);
  assert_bytes(&d, 1);
  d = tensor(fp4, 0, NULL);
  assert_bytes(&d, 1);

  fp4.lanes = 2; /* two lanes fill a byte: ordinary strides again */
  d = tensor(fp4, 2, odd);
  assert_int_equal(d.planes[0].strides[1], 1);
  assert_bytes(&d, 15);
}

static void every_type_has_its_legal_bits(void **state) {
  (void)state;
  static const struct {
    uint8_t code;
    uint8_t bits[9];
  } legal[] = {
      {CUDALINK_DTYPE_INT, {1, 2, 4, 8, 16, 32, 64}},
      {CUDALINK_DTYPE_UINT, {1, 2, 4, 8, 16, 32, 64}},
      {CUDALINK_DTYPE_FLOAT, {16, 32, 64, 128}},
      {3, {0}}, /* opaque handles mean nothing in another process */
      {CUDALINK_DTYPE_BFLOAT, {16}},
      {CUDALINK_DTYPE_COMPLEX, {32, 64, 128}},
      {CUDALINK_DTYPE_BOOL, {8}},
      {CUDALINK_DTYPE_FLOAT8_E3M4, {8}},
      {CUDALINK_DTYPE_FLOAT8_E4M3, {8}},
      {CUDALINK_DTYPE_FLOAT8_E4M3B11FNUZ, {8}},
      {CUDALINK_DTYPE_FLOAT8_E4M3FN, {8}},
      {CUDALINK_DTYPE_FLOAT8_E4M3FNUZ, {8}},
      {CUDALINK_DTYPE_FLOAT8_E5M2, {8}},
      {CUDALINK_DTYPE_FLOAT8_E5M2FNUZ, {8}},
      {CUDALINK_DTYPE_FLOAT8_E8M0FNU, {8}},
      {CUDALINK_DTYPE_FLOAT6_E2M3FN, {6}},
      {CUDALINK_DTYPE_FLOAT6_E3M2FN, {6}},
      {CUDALINK_DTYPE_FLOAT4_E2M1FN, {4}},
      {18, {0}},
      {255, {0}},
  };
  for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
    for (int bits = 0; bits < 256; bits++) {
      cudalink_description d = {0};
      cudalink_dtype dtype = {legal[i].code, (uint8_t)bits, 1};
      int expected = bits && memchr(legal[i].bits, bits, sizeof legal[i].bits) ? 0 : INVALID;
      assert_int_equal(cudalink_describe_tensor(&d, NULL, dtype, 0, NULL), expected);
      d.plane_count = 1;
      d.planes[0].dtype = dtype;
      d.planes[0].bytes = (uint64_t)(bits + 7) / 8;
      uint64_t bytes;
      assert_int_equal(cudalink_description_bytes(&d, &bytes), expected);
      d.planes[0].dtype.lanes = 0;
      assert_int_equal(cudalink_description_bytes(&d, &bytes), INVALID);
    }
}

static void bad_tensors_are_refused(void **state) {
  (void)state;
  cudalink_description d = {0};
  const int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {2, -1};
  const int64_t huge[] = {INT64_C(1) << 32, INT64_C(1) << 31}, max[] = {INT64_MAX};
  const int64_t empty_huge[] = {INT64_C(1) << 40, INT64_C(1) << 40, 0};
  assert_int_equal(cudalink_describe_tensor(NULL, "a", CUDALINK_UINT8, 1, shape), INVALID);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 9, shape), INVALID);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 2, NULL), INVALID);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 2, negative), INVALID);
  assert_int_equal(cudalink_describe_tensor(&d, "a", (cudalink_dtype){99, 1, 1}, 1, shape),
                   INVALID);
  assert_non_null(strstr(cudalink_last_error(), "code 99 with 1 bit and 1 lane does"));
  assert_int_equal(cudalink_describe_tensor(&d, "a", (cudalink_dtype){99, 8, 3}, 1, shape),
                   INVALID);
  assert_non_null(strstr(cudalink_last_error(), "code 99 with 8 bits and 3 lanes does"));
  assert_int_equal(
      cudalink_describe_tensor(&d, "a name of twenty-four b.", CUDALINK_UINT8, 1, shape), INVALID);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 2, huge),
                   CUDALINK_ERROR_TOO_LARGE);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT16, 1, max),
                   CUDALINK_ERROR_TOO_LARGE);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 3, empty_huge), 0);
  d = (cudalink_description){0};
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 1, max), 0);
  assert_int_equal(cudalink_describe_tensor(&d, "b", CUDALINK_UINT8, 1, shape),
                   CUDALINK_ERROR_TOO_LARGE);
  d = (cudalink_description){0};
  for (int i = 0; i < CUDALINK_MAX_PLANES; i++)
    assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 1, shape), 0);
  assert_int_equal(cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 1, shape), INVALID);
  assert_non_null(strstr(cudalink_last_error(), "16"));
}

static void the_check_finds_wrong_planes(void **state) {
  (void)state;
  const int64_t shape[] = {2, 3};
  const cudalink_description good = tensor(CUDALINK_UINT16, 2, shape);
  cudalink_description d;
  uint64_t bytes;
  assert_bytes(&good, 12);
  assert_int_equal(cudalink_description_bytes(NULL, &bytes), INVALID);
  assert_int_equal(cudalink_description_bytes(&good, NULL), INVALID);
#define WRONG(change, text)                                                                        \
  do {                                                                                             \
    d = good;                                                                                      \
    change;                                                                                        \
    assert_wrong(&d, text);                                                                        \
  } while (0)
  WRONG(d.plane_count = 0, "0 planes");
  WRONG(d.plane_count = 17, "17 planes");
  WRONG(d.plane_count = 0xffffffff, "4294967295 planes");
  WRONG(d.user_size = 65537, "user_size is 65537");
  WRONG(memset(d.planes[0].name, 'x', sizeof d.planes[0].name), "name has no end");
  WRONG(memset(d.timing.clock, 'x', sizeof d.timing.clock), "clock");
  WRONG(d.planes[0].dimensions = 9, "9 dimensions");
  WRONG(d.planes[0].shape[1] = -1, "shape[1] is -1");
  WRONG(d.planes[0].strides[0] = -6, "strides[0] is -6");
  WRONG(d.planes[0].bytes = 13, "cover 12 bytes");
  WRONG(d.planes[0].strides[0] = 8, "cover 14 bytes");
  WRONG(d.planes[0].shape[0] = INT64_MAX, "2^63");
  WRONG(d.planes[0].strides[0] = INT64_MAX, "2^63");
  WRONG((d.planes[0].strides[0] = 0, d.planes[0].strides[1] = 0,
         d.planes[0].shape[0] = d.planes[0].shape[1] = INT64_C(1) << 40, d.planes[0].bytes = 2),
        "2^63"); /* few bytes, but too many elements to ever pack */
  WRONG((d.planes[0].strides[0] = 0, d.planes[0].strides[1] = 0,
         d.planes[0].shape[0] = INT64_C(1) << 40, d.planes[0].shape[1] = INT64_C(1) << 22,
         d.planes[0].bytes = 2),
        "2^63"); /* exactly 2^63 */
  WRONG(d.planes[0].offset = UINT64_MAX, "offset");
  WRONG(d.planes[0].offset = INT64_MAX, "offset");
  WRONG(d.planes[0].dtype.code = 3, "type code 3");
  WRONG(d.planes[0].dtype.lanes = 0, "0 lanes");
  WRONG(d.timing.time_base_numerator = 1, "time_base is 1/0");
  WRONG(d.timing.rate_denominator = 1, "rate is 0/1");
  d = good;
  d.planes[0].strides[0] = 0; /* a repeated row is fine */
  d.planes[0].bytes = 6;
  d.planes[0].offset = 100;
  assert_bytes(&d, 106);
}

static void the_check_finds_wrong_pictures(void **state) {
  (void)state;
  cudalink_description good = {0}, d;
  assert_int_equal(cudalink_describe_picture(&good, CUDALINK_FORMAT_P010, 7, 5, 0), 0);
  WRONG(d.picture.format = 5, "no picture format");
  WRONG(d.picture.format = CUDALINK_FORMAT_I420P10, "2 planes, but I420P10 has 3");
  WRONG(d.picture.width = 0, "0 x 5");
  WRONG(d.picture.width = 8, "P010 of 8 x 5");
  WRONG(d.picture.height = 65536, "7 x 65536");
  WRONG(d.picture.range = 3, "range is 3");
  WRONG(d.picture.origin = 2, "origin is 2");
  WRONG(d.picture.alpha = 4, "alpha is 4");
  WRONG(d.picture.field_order = 3, "field_order is 3");
  WRONG(d.picture.chroma_location = 4, "chroma_location is 4");
  WRONG(d.picture.pixel_aspect_numerator = 1, "pixel_aspect is 1/0");
  WRONG(d.picture.pixel_aspect_denominator = 1, "pixel_aspect is 0/1");
  WRONG(d.planes[0].dtype.code = CUDALINK_DTYPE_INT, "its type is code 0");
  WRONG((d.planes[0].dimensions = 1, d.planes[0].bytes = 4 * 256 + 2), "1 dimension, but");
  WRONG((d.planes[0].shape[1] = 6, d.planes[0].bytes -= 2), "shape[1] is 6");
  WRONG((d.planes[0].strides[0] = 12, d.planes[0].bytes = 4 * 12 + 14), "pitch is 12");
  WRONG((d.planes[0].strides[0] = 15, d.planes[0].bytes = 4 * 15 + 14), "pitch is 15");
  WRONG(d.planes[1].offset++, "no multiple of 2");
  WRONG((d.planes[1].strides[1] = 8, d.planes[1].bytes += 3 * 4), "strides[1] is 8");
  assert_int_equal(cudalink_describe_picture(&good, CUDALINK_FORMAT_RGB_CHW16F, 7, 5, 0), 0);
  WRONG((d.planes[0].strides[0] += 1, d.planes[0].bytes += 2), "strides[0]");
#undef WRONG
}

static void kinds_have_names(void **state) {
  (void)state;
  assert_string_equal(cudalink_kind_name(CUDALINK_KIND_AUTO), "auto");
  assert_string_equal(cudalink_kind_name(CUDALINK_KIND_HOST), "host");
  assert_string_equal(cudalink_kind_name(CUDALINK_KIND_VMM), "vmm");
  assert_string_equal(cudalink_kind_name(CUDALINK_KIND_IPC), "ipc");
  assert_string_equal(cudalink_kind_name((cudalink_kind)99), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_are_dense_and_aligned),
      cmocka_unit_test(empty_tensors_are_allowed),
      cmocka_unit_test(elements_below_a_byte_share_bytes),
      cmocka_unit_test(every_type_has_its_legal_bits),
      cmocka_unit_test(bad_tensors_are_refused),
      cmocka_unit_test(the_check_finds_wrong_planes),
      cmocka_unit_test(the_check_finds_wrong_pictures),
      cmocka_unit_test(kinds_have_names),
  };
  return cmocka_run_group_tests_name("describe", tests, NULL, NULL);
}
