/* SPDX-License-Identifier: MIT
 *
 * Packing and unpacking: every format at awkward sizes goes there and back, gaps are not touched,
 * and the bytes are where shape and strides say.
 */
#include "cudalink/format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

static uint8_t *random_bytes(uint64_t size) {
  uint8_t *bytes = malloc(size + 1);
  assert_non_null(bytes);
  uint64_t x = 88172645463325252u;
  for (uint64_t i = 0; i < size; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    bytes[i] = (uint8_t)(x >> 24);
  }
  return bytes;
}

/* One picture: unpack random bytes into a slot filled with 0xee, pack them again, and count that
 * nothing but the elements changed. */
static void check_round_trip(const cudalink_description *d) {
  uint64_t slot_bytes, size;
  assert_int_equal(cudalink_description_bytes(d, &slot_bytes), 0);
  assert_int_equal(cudalink_packed_bytes(d, &size), 0);
  uint8_t *in = random_bytes(size), *out = malloc(size + 1), *slot = malloc(slot_bytes + 1);
  memset(slot, 0xee, slot_bytes + 1);
  memset(out, 0xdd, size + 1);
  assert_int_equal(cudalink_unpack(d, in, size, slot), 0);
  assert_int_equal(slot[slot_bytes], 0xee);
  uint64_t changed = 0, same_value = 0;
  for (uint64_t i = 0; i < slot_bytes; i++)
    changed += slot[i] != 0xee;
  for (uint64_t i = 0; i < size; i++)
    same_value += in[i] == 0xee;
  assert_int_equal(changed, size - same_value);
  assert_int_equal(cudalink_pack(d, slot, out, size, 0), 0);
  assert_memory_equal(in, out, size);
  assert_int_equal(out[size], 0xdd);
  free(in);
  free(out);
  free(slot);
}

static void every_format_goes_there_and_back(void **state) {
  (void)state;
  static const uint32_t widths[] = {1, 3, 127, 129, 416, 1366, 1550, 1919};
  for (cudalink_format f = cudalink_format_next(CUDALINK_FORMAT_NONE); f;
       f = cudalink_format_next(f))
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
      for (uint32_t alignment = 0; alignment < 2; alignment++) {
        cudalink_description d = {0};
        assert_int_equal(cudalink_describe_picture(&d, f, widths[w], 5, alignment), 0);
        check_round_trip(&d);
      }
}

static void rows_can_be_turned_over(void **state) {
  (void)state;
  cudalink_description d = {0};
  uint8_t out[24];
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_NV12, 3, 3, 0), 0);
  uint8_t *slot = calloc(1, 4096);
  for (uint8_t y = 0; y < 3; y++)
    for (uint8_t x = 0; x < 3; x++)
      slot[y * 256 + x] = (uint8_t)(10 * y + x);
  for (uint8_t y = 0; y < 2; y++)
    for (uint8_t x = 0; x < 4; x++)
      slot[d.planes[1].offset + y * 256u + x] = (uint8_t)(100 + 10 * y + x);
  assert_int_equal(cudalink_pack(&d, slot, out, sizeof out, 1), 0);
  const uint8_t expected[] = {20,  21,  22,  10,  11,  12,  0,   1,  2,
                              110, 111, 112, 113, 100, 101, 102, 103};
  assert_memory_equal(out, expected, sizeof expected);

  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_RGB_CHW8, 2, 2, 1), 0);
  for (uint8_t i = 0; i < 12; i++)
    slot[i] = i;
  assert_int_equal(cudalink_pack(&d, slot, out, sizeof out, 1), 0);
  const uint8_t stacked[] = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9};
  assert_memory_equal(out, stacked, sizeof stacked);

  const int64_t shape[] = {2, 2};
  d = (cudalink_description){0};
  assert_int_equal(cudalink_describe_tensor(&d, "t", CUDALINK_UINT8, 2, shape), 0);
  assert_int_equal(cudalink_pack(&d, slot, out, sizeof out, 1), INVALID);
  free(slot);
}

/* A transposed tensor of 3-byte elements with a gap, compared with the address rule of frame.h. */
static void any_strides_are_packed_row_major(void **state) {
  (void)state;
  cudalink_description d = {.plane_count = 1};
  d.planes[0] = (cudalink_plane){.dtype = {CUDALINK_DTYPE_UINT, 8, 3},
                                 .dimensions = 4,
                                 .offset = 5,
                                 .bytes = 3 + 3 * 4 + 4 * 20 + 0 + 1 * 200,
                                 .shape = {4, 5, 1, 2},
                                 .strides = {4, 20, 999, 200}};
  check_round_trip(&d);
  uint8_t *slot = random_bytes(512), out[120];
  assert_int_equal(cudalink_pack(&d, slot, out, sizeof out, 0), 0);
  for (int a = 0, n = 0; a < 4; a++)
    for (int b = 0; b < 5; b++)
      for (int c = 0; c < 2; c++, n++)
        assert_memory_equal(out + 3 * n, slot + 5 + 4 * a + 20 * b + 200 * c, 3);
  free(slot);
}

static void elements_below_a_byte_keep_their_bytes(void **state) {
  (void)state;
  cudalink_description d = {.plane_count = 1};
  d.planes[0] = (cudalink_plane){.dtype = {CUDALINK_DTYPE_FLOAT4_E2M1FN, 4, 1},
                                 .dimensions = 2,
                                 .bytes = 2 * 8 + 3,
                                 .shape = {3, 5},
                                 .strides = {8, 0}};
  uint64_t size;
  assert_int_equal(cudalink_packed_bytes(&d, &size), 0);
  assert_int_equal(size, 9);
  check_round_trip(&d);
}

static void several_planes_lie_one_behind_the_other(void **state) {
  (void)state;
  cudalink_description d = {0};
  const int64_t three[] = {3}, none[] = {0}, two[] = {2};
  cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 1, three);
  cudalink_describe_tensor(&d, "b", CUDALINK_UINT32, 1, none);
  cudalink_describe_tensor(&d, "c", CUDALINK_UINT16, 1, two);
  check_round_trip(&d);
  uint8_t slot[1024] = {1, 2, 3}, out[7];
  memcpy(slot + d.planes[2].offset, "abcd", 4);
  assert_int_equal(cudalink_pack(&d, slot, out, sizeof out, 0), 0);
  assert_memory_equal(out, "\1\2\3abcd", 7);
}

static void repeated_elements_pack_but_do_not_unpack(void **state) {
  (void)state;
  cudalink_description d = {.plane_count = 1};
  d.planes[0] = (cudalink_plane){.dtype = {CUDALINK_DTYPE_UINT, 8, 1},
                                 .dimensions = 2,
                                 .bytes = 2,
                                 .shape = {3, 2},
                                 .strides = {0, 1}};
  uint8_t slot[2] = {7, 8}, out[6];
  assert_int_equal(cudalink_pack(&d, slot, out, 6, 0), 0);
  assert_memory_equal(out, "\7\10\7\10\7\10", 6);
  assert_int_equal(cudalink_unpack(&d, out, 6, slot), INVALID);
  assert_non_null(strstr(cudalink_last_error(), "repeats"));
}

static void sizes_that_do_not_fit_are_refused(void **state) {
  (void)state;
  cudalink_description d = {0};
  uint8_t bytes[16] = {0};
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_RGBA8, 2, 2, 1), 0);
  assert_int_equal(cudalink_pack(&d, bytes, bytes, 15, 0), CUDALINK_ERROR_TOO_LARGE);
  assert_non_null(strstr(cudalink_last_error(), "16"));
  assert_non_null(strstr(cudalink_last_error(), "15"));
  assert_int_equal(cudalink_unpack(&d, bytes, 15, bytes), INVALID);
  assert_int_equal(cudalink_unpack(&d, bytes, 17, bytes), INVALID);
  assert_int_equal(cudalink_pack(&d, NULL, bytes, 16, 0), INVALID);
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_GRAY8, 1, 1, 1), 0);
  assert_int_equal(cudalink_unpack(&d, bytes, 2, bytes), INVALID);
  assert_non_null(strstr(cudalink_last_error(), "the frame has 1 byte, 2 were given"));
  assert_int_equal(cudalink_pack(&d, bytes, NULL, 16, 0), INVALID);
  assert_int_equal(cudalink_unpack(&d, NULL, 16, bytes), INVALID);
  assert_int_equal(cudalink_packed_bytes(&d, NULL), INVALID);
  d.planes[0].bytes = 17;
  assert_int_equal(cudalink_pack(&d, bytes, bytes, 16, 0), INVALID);

  const int64_t half[] = {INT64_C(1) << 62};
  d = (cudalink_description){.plane_count = 2};
  for (int i = 0; i < 2; i++)
    d.planes[i] = (cudalink_plane){
        .dtype = CUDALINK_UINT8, .dimensions = 1, .bytes = 1, .shape = {half[0]}, .strides = {0}};
  uint64_t size;
  assert_int_equal(cudalink_packed_bytes(&d, &size), CUDALINK_ERROR_TOO_LARGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_format_goes_there_and_back),
      cmocka_unit_test(rows_can_be_turned_over),
      cmocka_unit_test(any_strides_are_packed_row_major),
      cmocka_unit_test(elements_below_a_byte_keep_their_bytes),
      cmocka_unit_test(several_planes_lie_one_behind_the_other),
      cmocka_unit_test(repeated_elements_pack_but_do_not_unpack),
      cmocka_unit_test(sizes_that_do_not_fit_are_refused),
  };
  return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
