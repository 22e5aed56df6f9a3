/* SPDX-License-Identifier: MIT
 *
 * Views: from planes of frames and slots, cut down, measured, into descriptions.
 */
#include "dlpack_test.h"

static char memory[4096];

/* ---- frames and slots ------------------------------------------------------------------------------ */

static cudalink_frame two_planes(void) {
  cudalink_frame frame = {.data = memory};
  const int64_t shape[] = {4, 6};
  cudalink_describe_tensor(&frame.description, "a", CUDALINK_FLOAT32, 2, shape);
  cudalink_describe_tensor(&frame.description, "b", CUDALINK_UINT8, 1, shape + 1);
  return frame;
}

static void a_plane_of_a_frame(void **state) {
  (void)state;
  cudalink_frame frame = two_planes();
  cudalink_view view;
  assert_ok(cudalink_view_of_frame(&view, &frame, 0));
  assert_ptr_equal(view.data, memory);
  assert_int_equal(view.device.type, CUDALINK_DLPACK_CPU);
  assert_int_equal(view.device.id, 0);
  assert_int_equal(view.flags, READ_ONLY);
  assert_int_equal(view.dimensions, 2);
  assert_int_equal(view.shape[0], 4);
  assert_int_equal(view.shape[1], 6);
  assert_int_equal(view.strides[0], 24);
  assert_int_equal(view.strides[1], 4);
  frame.writable = 1;
  frame.device = CUDALINK_DEVICE(3);
  assert_ok(cudalink_view_of_frame(&view, &frame, 1));
  assert_ptr_equal(view.data, memory + frame.description.planes[1].offset);
  assert_int_equal(view.device.type, CUDALINK_DLPACK_CUDA);
  assert_int_equal(view.device.id, 3);
  assert_int_equal(view.flags, 0);
}

static void planes_that_are_not_there(void **state) {
  (void)state;
  cudalink_frame frame = two_planes();
  cudalink_view view;
  assert_refused(INVALID_ARGUMENT, "plane 2", cudalink_view_of_frame(&view, &frame, 2));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_view_of_frame(&view, NULL, 0));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_view_of_frame(NULL, &frame, 0));
  frame.flags = CUDALINK_FRAME_INVALID;
  strcpy(frame.text, "no signal");
  assert_refused(UNSUPPORTED, "no signal", cudalink_view_of_frame(&view, &frame, 0));
}

static void a_plane_of_a_slot_is_writable(void **state) {
  (void)state;
  cudalink_frame frame = two_planes();
  cudalink_slot slot = {.data = memory, .bytes = sizeof memory, .device = CUDALINK_DEVICE(0)};
  cudalink_view view;
  assert_ok(cudalink_view_of_slot(&view, &slot, &frame.description, 1));
  assert_ptr_equal(view.data, memory + 256);
  assert_int_equal(view.flags, 0);
  assert_int_equal(view.device.type, CUDALINK_DLPACK_CUDA);
  slot.bytes = 200;
  assert_refused(INVALID_ARGUMENT, "262",
                 cudalink_view_of_slot(&view, &slot, &frame.description, 1));
  slot.bytes = 262;
  assert_ok(cudalink_view_of_slot(&view, &slot, &frame.description, 1));
  assert_refused(INVALID_ARGUMENT, "plane 2",
                 cudalink_view_of_slot(&view, &slot, &frame.description, 2));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_view_of_slot(&view, &slot, NULL, 0));
}

static void an_empty_plane_has_no_address(void **state) {
  (void)state;
  cudalink_frame frame = {.data = memory};
  cudalink_view view;
  cudalink_describe_tensor(&frame.description, "", CUDALINK_FLOAT32, 2, NUMBERS(0, 3));
  assert_ok(cudalink_view_of_frame(&view, &frame, 0));
  assert_null(view.data);
}

/* ---- extent ------------------------------------------------------------------------------------------ */

static void expect_extent(const cudalink_view *view, int64_t below, uint64_t bytes) {
  void *low = NULL;
  uint64_t got = 0;
  assert_ok(cudalink_view_extent(view, &low, &got));
  assert_int_equal(got, bytes);
  assert_ptr_equal(low, bytes ? (char *)view->data - below : NULL);
}

static void extents(void **state) {
  (void)state;
  cudalink_view view = view_make(memory, CUDALINK_FLOAT32, 2, NUMBERS(4, 6), NUMBERS(24, 4));
  expect_extent(&view, 0, 96);
  view.strides[0] = 100;
  expect_extent(&view, 0, 300 + 24);
  view.data = memory + 1000;
  view.strides[0] = -100;
  expect_extent(&view, 300, 324);
  view.strides[1] = -4;
  expect_extent(&view, 320, 324);
  view.strides[0] = 0;
  expect_extent(&view, 20, 24);
  view.shape[1] = 0;
  expect_extent(&view, 0, 0);
  view = view_make(memory, DTYPE(COMPLEX, 128), 0, NUMBERS(0), NUMBERS(0));
  expect_extent(&view, 0, 16);
  view = view_make(memory, DTYPE(FLOAT4_E2M1FN, 4), 2, NUMBERS(3, 5), NUMBERS(8, 0));
  expect_extent(&view, 0, 19);
  view.flags = PADDED;
  view.strides[1] = 1;
  expect_extent(&view, 0, 21);
}

static void nonsense_has_no_extent(void **state) {
  (void)state;
  uint64_t bytes;
  cudalink_view good = view_make(memory, CUDALINK_FLOAT32, 2, NUMBERS(4, 6), NUMBERS(24, 4));
  cudalink_view view = good;
  view.dimensions = 9;
  assert_refused(INVALID_ARGUMENT, "9 dimensions", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.shape[1] = -1;
  assert_refused(INVALID_ARGUMENT, "shape[1] is -1", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.dtype.bits = 7;
  assert_refused(INVALID_ARGUMENT, "7 bits", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.data = NULL;
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.strides[0] = INT64_MAX;
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view.strides[0] = INT64_MIN;
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view.strides[0] = INT64_MIN / 3;
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.shape[0] = INT64_MAX;
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.data = (void *)(UINTPTR_MAX - 50);
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view = good, view.data = (void *)40, view.strides[0] = -24;
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view = view_make(memory, DTYPE(UINT, 4), 1, NUMBERS(INT64_MAX), NUMBERS(0));
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_view_extent(&view, NULL, &bytes));
  view.shape[0] = 4, view.strides[0] = 1;
  assert_refused(INVALID_ARGUMENT, "must be 0", cudalink_view_extent(&view, NULL, &bytes));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_view_extent(&view, NULL, NULL));
}

static void what_is_dense(void **state) {
  (void)state;
  cudalink_view view =
      view_make(memory, CUDALINK_FLOAT32, 3, NUMBERS(4, 1, 6), NUMBERS(24, 999, 4));
  assert_true(cudalink_view_is_dense(&view));
  view.strides[0] = 28;
  assert_false(cudalink_view_is_dense(&view));
  view.strides[0] = -24;
  view.data = memory + 500;
  assert_false(cudalink_view_is_dense(&view));
  view.shape[0] = 0;
  assert_true(cudalink_view_is_dense(&view));
  view.shape[0] = -1;
  assert_false(cudalink_view_is_dense(&view));
  view = view_make(memory, DTYPE(UINT, 4), 2, NUMBERS(3, 6), NUMBERS(3, 0));
  assert_true(cudalink_view_is_dense(&view));
  view.shape[1] = 5; /* the next row would begin inside a byte */
  assert_false(cudalink_view_is_dense(&view));
  view.shape[0] = 1;
  assert_true(cudalink_view_is_dense(&view));
}

/* ---- cutting down -------------------------------------------------------------------------------------- */

static void indices_and_slices(void **state) {
  (void)state;
  cudalink_view view = view_make(memory, CUDALINK_UINT16, 3, NUMBERS(4, 5, 6), NUMBERS(100, 12, 2));
  assert_ok(cudalink_view_index(&view, 1, 3));
  assert_int_equal(view.dimensions, 2);
  assert_ptr_equal(view.data, memory + 36);
  assert_int_equal(view.shape[1], 6);
  assert_int_equal(view.strides[1], 2);
  assert_ok(cudalink_view_slice(&view, 0, 3, 2, -2));
  assert_ptr_equal(view.data, memory + 336);
  assert_int_equal(view.shape[0], 2);
  assert_int_equal(view.strides[0], -200);
  assert_ok(cudalink_view_slice(&view, 1, 1, 3, 2));
  assert_ptr_equal(view.data, memory + 338);
  assert_int_equal(view.strides[1], 4);
  assert_ok(cudalink_view_slice(&view, 0, 1, 1, 77)); /* the step of one element means nothing */
  assert_ptr_equal(view.data, memory + 138);
  assert_int_equal(view.strides[0], -200);
  assert_ok(cudalink_view_slice(&view, 0, 0, 0, 1));
  assert_null(view.data);
  assert_ok(cudalink_view_slice(&view, 1, 0, 2, 1)); /* of an empty view */
  assert_null(view.data);
}

static void slices_beyond_the_end(void **state) {
  (void)state;
  cudalink_view good = view_make(memory, CUDALINK_UINT16, 2, NUMBERS(4, 5), NUMBERS(10, 2));
  cudalink_view view = good;
  cudalink_view one = view_make(memory, CUDALINK_UINT16, 2, NUMBERS(1, 5), NUMBERS(10, 2));
  assert_refused(INVALID_ARGUMENT, "index 4", cudalink_view_index(&view, 0, 4));
  assert_refused(INVALID_ARGUMENT, "index 1 of dimension 0, which has 1 element",
                 cudalink_view_index(&one, 0, 1));
  assert_refused(INVALID_ARGUMENT, "slice: 1 element from 4 on",
                 cudalink_view_slice(&view, 0, 4, 1, 1));
  assert_refused(INVALID_ARGUMENT, "index -1", cudalink_view_index(&view, 0, -1));
  assert_refused(INVALID_ARGUMENT, "dimension 2", cudalink_view_index(&view, 2, 0));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_view_index(NULL, 0, 0));
  const int64_t bad[][3] = {{0, 5, 1},         {4, 1, 1},         {-1, 1, 1},
                            {0, 3, 2},         {1, 3, -1},        {0, -1, 1},
                            {0, 1, 0},         {0, INT64_MAX, 2}, {3, 2, INT64_MAX},
                            {3, 2, INT64_MIN}, {0, 3, INT64_MAX}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_refused(INVALID_ARGUMENT, "which has 4",
                   cudalink_view_slice(&view, 0, bad[i][0], bad[i][1], bad[i][2]));
  assert_refused(INVALID_ARGUMENT, "dimension 2", cudalink_view_slice(&view, 2, 0, 1, 1));
  assert_memory_equal(&view, &good, sizeof view);
}

static void packed_elements_are_cut_at_whole_bytes(void **state) {
  (void)state;
  cudalink_view good = view_make(memory, DTYPE(UINT, 4), 2, NUMBERS(4, 10), NUMBERS(8, 0));
  cudalink_view view = good;
  assert_ok(cudalink_view_slice(&view, 1, 4, 5, 1));
  assert_ptr_equal(view.data, memory + 2);
  assert_int_equal(view.strides[1], 0);
  view = good;
  assert_refused(UNSUPPORTED, "whole byte", cudalink_view_slice(&view, 1, 3, 2, 1));
  assert_refused(UNSUPPORTED, "step 1", cudalink_view_slice(&view, 1, 4, 2, 2));
  assert_refused(UNSUPPORTED, "whole byte", cudalink_view_index(&view, 1, 4));
  assert_ok(cudalink_view_index(&view, 0, 2));
  assert_ptr_equal(view.data, memory + 16);
  assert_refused(UNSUPPORTED, "whole byte", cudalink_view_index(&view, 0, 5));
  assert_ok(cudalink_view_index(&view, 0, 6));
  assert_ptr_equal(view.data, memory + 19);
  assert_int_equal(view.dimensions, 0);
}

/* ---- descriptions ------------------------------------------------------------------------------------- */

static void a_view_becomes_a_plane(void **state) {
  (void)state;
  cudalink_description description = {0};
  uint64_t bytes;
  cudalink_view view = view_make(memory, CUDALINK_UINT16, 3, NUMBERS(4, 1, 6), NUMBERS(100, -7, 2));
  assert_ok(cudalink_describe_view(&description, "x", &view));
  const cudalink_plane *plane = &description.planes[0];
  assert_string_equal(plane->name, "x");
  assert_int_equal(plane->offset, 0);
  assert_int_equal(plane->bytes, 312);
  assert_int_equal(plane->strides[0], 100);
  assert_int_equal(plane->strides[1], 0); /* of one element */
  assert_ok(cudalink_description_bytes(&description, &bytes));
  assert_int_equal(bytes, 312);

  view = view_make(NULL, CUDALINK_UINT16, 2, NUMBERS(0, 6), NUMBERS(-100, -2));
  assert_ok(cudalink_describe_view(&description, NULL, &view));
  assert_int_equal(description.planes[1].bytes, 0);
  view = view_make(memory, DTYPE(UINT, 4), 2, NUMBERS(4, 10), NUMBERS(8, 0));
  assert_ok(cudalink_describe_view(&description, "four", &view));
  assert_ok(cudalink_description_bytes(&description, &bytes));
}

static void views_that_are_no_planes(void **state) {
  (void)state;
  cudalink_description description = {0};
  cudalink_view good = view_make(memory + 500, CUDALINK_UINT16, 1, NUMBERS(4), NUMBERS(2));
  cudalink_view view = good;
  view.strides[0] = -2;
  assert_refused(UNSUPPORTED, "cudalink_array_copy",
                 cudalink_describe_view(&description, "", &view));
  view = view_make(memory, DTYPE(UINT, 4), 1, NUMBERS(10), NUMBERS(1));
  view.flags = PADDED;
  assert_refused(UNSUPPORTED, "fills a byte", cudalink_describe_view(&description, "", &view));
  assert_refused(INVALID_ARGUMENT, "24 of 23 bytes",
                 cudalink_describe_view(&description, "123456789012345678901234", &good));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_describe_view(NULL, "", &good));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_describe_view(&description, "", NULL));
  view = view_make(memory, CUDALINK_UINT16, 2, NUMBERS(INT64_C(1) << 40, INT64_C(1) << 40),
                   NUMBERS(0, 0)); /* one element, repeated */
  assert_refused(TOO_LARGE, "63 bits", cudalink_describe_view(&description, "", &view));
  description.plane_count = 16;
  assert_refused(INVALID_ARGUMENT, "plane 17 of 16",
                 cudalink_describe_view(&description, "", &good));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_plane_of_a_frame),
      cmocka_unit_test(planes_that_are_not_there),
      cmocka_unit_test(a_plane_of_a_slot_is_writable),
      cmocka_unit_test(an_empty_plane_has_no_address),
      cmocka_unit_test(extents),
      cmocka_unit_test(nonsense_has_no_extent),
      cmocka_unit_test(what_is_dense),
      cmocka_unit_test(indices_and_slices),
      cmocka_unit_test(slices_beyond_the_end),
      cmocka_unit_test(packed_elements_are_cut_at_whole_bytes),
      cmocka_unit_test(a_view_becomes_a_plane),
      cmocka_unit_test(views_that_are_no_planes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
