/* SPDX-License-Identifier: MIT
 *
 * What travels with a frame: descriptions of every kind, user data, timing, text, and what the library
 * says about it.
 */
#include "link_test.h"

static cudalink_exporter exporter;
static cudalink_importer importer;
static cudalink_slot slot;
static cudalink_frame frame;

static void end(void) {
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static void pass(const cudalink_description *description) {
  assert_ok(cudalink_exporter_begin(exporter, description, FOREVER, &slot));
  uint64_t bytes;
  assert_ok(cudalink_description_bytes(description, &bytes));
  assert_true(slot.bytes >= bytes);
  assert_int_equal((uintptr_t)slot.data % 256, 0);
  memset(slot.data, (int)slot.sequence & 255, bytes);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_int_equal(frame.sequence, slot.sequence);
  test_same(&frame.description, description);
  for (uint64_t i = 0; i < bytes; i++)
    if (((const unsigned char *)frame.data)[i] != (slot.sequence & 255)) fail();
  test_release(&frame);
}

static void every_dtype_and_shape(void **state) {
  (void)state;
  static const uint8_t bits_of[18][4] = {
      {8, 16, 32, 64}, {8, 16, 32, 64}, {16, 32, 64, 0}, {0},    {16, 0}, {64, 128, 0},
      {8, 0},          {8, 0},          {8, 0},          {8, 0}, {8, 0},  {8, 0},
      {8, 0},          {8, 0},          {8, 0},          {6, 0}, {6, 0},  {4, 0}};
  test_open(&exporter, .slot_bytes = 1 << 18, .plane_count = 16);
  test_join(&importer);
  for (uint8_t code = 0; code < 18; code++)
    for (int b = 0; b < 4 && bits_of[code][b]; b++)
      for (uint32_t dimensions = 0; dimensions <= CUDALINK_MAX_DIMENSIONS; dimensions++) {
        cudalink_description description = {0};
        assert_ok(cudalink_describe_tensor(
            &description, "t", cudalink_dtype_make((cudalink_dtype_code)code, bits_of[code][b]),
            dimensions, (int64_t[]){3, 1, 2, 5, 1, 2, 2, 4}));
        pass(&description);
      }
  assert_int_equal(test_sent(exporter).generations, 1);
  end();
}

static void sixteen_planes(void **state) {
  (void)state;
  cudalink_description description = {0};
  test_open(&exporter, .slot_bytes = 1 << 16);
  test_join(&importer);
  for (int p = 0; p < CUDALINK_MAX_PLANES; p++) {
    char name[CUDALINK_PLANE_NAME_SIZE];
    snprintf(name, sizeof name, "plane-%017d", p);
    assert_ok(cudalink_describe_tensor(&description, name, CUDALINK_UINT16, 2,
                                       (int64_t[]){p + 1, 2 * p + 1}));
    pass(&description);
  }
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_describe_tensor(&description, "x", CUDALINK_UINT8, 0, NULL));
  end();
}

static void nothing_at_all(void **state) {
  (void)state;
  cudalink_description scalar = {0}, empty = {0}, large = {0};
  assert_ok(cudalink_describe_tensor(&scalar, NULL, CUDALINK_FLOAT32, 0, NULL));
  assert_ok(
      cudalink_describe_tensor(&empty, NULL, CUDALINK_FLOAT32, 3, (int64_t[]){0, 1000, 1000}));
  test_open(&exporter, .description = &empty);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  pass(&empty);
  pass(&scalar); /* more than nothing: may need new memory */
  pass(&empty);
  assert_ok(cudalink_describe_tensor(&large, NULL, CUDALINK_UINT8, 1, (int64_t[]){100}));
  pass(&large);
  assert_true(frame.data != NULL);
  end();
}

static void pictures_timing_and_strides(void **state) {
  (void)state;
  cudalink_description description = {0};
  assert_ok(cudalink_describe_picture(&description, CUDALINK_FORMAT_NV12, 1919, 1079, 0));
  description.picture.primaries = 9;
  description.picture.transfer = 16;
  description.picture.matrix = 9;
  description.picture.range = CUDALINK_RANGE_FULL;
  description.picture.origin = CUDALINK_ORIGIN_BOTTOM_LEFT;
  description.picture.alpha = CUDALINK_ALPHA_PREMULTIPLIED;
  description.picture.field_order = CUDALINK_FIELD_BOTTOM_FIRST;
  description.picture.chroma_location = CUDALINK_CHROMA_TOP_LEFT;
  description.picture.pixel_aspect_numerator = UINT32_MAX;
  description.picture.pixel_aspect_denominator = 11;
  description.timing.pts = INT64_MIN;
  description.timing.duration = INT64_MAX;
  description.timing.time_base_numerator = 1001;
  description.timing.time_base_denominator = 30000;
  description.timing.rate_numerator = UINT32_MAX;
  description.timing.rate_denominator = 1;
  strcpy(description.timing.clock, "ptp-clock-name.");
  test_open(&exporter, .description = &description);
  test_join(&importer);
  uint64_t before = cudalink_now();
  pass(&description);
  assert_in_range(frame.timestamp, before, cudalink_now());
  cudalink_description strided = {0};
  assert_ok(cudalink_describe_tensor(&strided, "rows", CUDALINK_UINT8, 2, (int64_t[]){10, 7}));
  strided.planes[0].strides[0] = 64;
  strided.planes[0].bytes = 9 * 64 + 7;
  strided.planes[0].offset = 1024;
  pass(&strided);
  strided.planes[0].strides[0] = 0; /* one row, ten times */
  strided.planes[0].bytes = 7;
  pass(&strided);
  end();
}

static void user_data_of_any_size(void **state) {
  (void)state;
  static const uint32_t sizes[] = {0, 1, 63, 64, 65, 4096, 65535, 65536};
  static unsigned char user[CUDALINK_MAX_USER_SIZE];
  static unsigned char data[BYTES];
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    test_open(&exporter, .user_size = sizes[s]);
    test_join(&importer);
    cudalink_description description = test_bytes(BYTES);
    for (uint32_t round = 0; round < 6; round++) {
      uint32_t size = round * sizes[s] / 5;
      for (uint32_t i = 0; i < size; i++)
        user[i] = (unsigned char)(i * 3 + round);
      description.user_size = size;
      if (round % 2) {
        assert_ok(cudalink_exporter_send(exporter, &description, data, user, COMPLETE, FOREVER));
      } else {
        assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, &slot));
        assert_int_equal(slot.user != NULL, sizes[s] != 0);
        if (size) memcpy(slot.user, user, size);
        assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
      }
      assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
      assert_int_equal(frame.description.user_size, size);
      if (size)
        assert_memory_equal(frame.user, user, size);
      else
        assert_null(frame.user);
      test_release(&frame);
    }
    description.user_size = sizes[s] + 1;
    assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                  cudalink_exporter_begin(exporter, &description, 0, &slot));
    char number[16];
    snprintf(number, sizeof number, "%u", sizes[s] + 1);
    assert_said(number);
    snprintf(number, sizeof number, "%u", sizes[s]);
    assert_said(number);
    end();
  }
}

/* send without user data publishes none of an earlier frame's. */
static void no_stale_user_data(void **state) {
  (void)state;
  static unsigned char user[256], data[BYTES];
  test_open(&exporter, .user_size = 256, .slots = 3, .max_slots = 3);
  test_join(&importer);
  cudalink_description description = test_bytes(BYTES);
  description.user_size = 256;
  memset(user, 0xaa, sizeof user);
  for (int i = 0; i < 6; i++)
    assert_ok(cudalink_exporter_send(exporter, &description, data, user, COMPLETE, FOREVER));
  for (int i = 0; i < 6; i++) {
    assert_ok(cudalink_exporter_send(exporter, &description, data, NULL, COMPLETE, FOREVER));
    assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
    for (uint32_t b = 0; b < frame.description.user_size; b++)
      assert_int_equal(((const unsigned char *)frame.user)[b], 0);
    test_release(&frame);
  }
  end();
}

static void invalid_frames_say_why(void **state) {
  (void)state;
  static char longest[300];
  memset(longest, 'w', sizeof longest - 1);
  const char *const texts[] = {"the camera was unplugged", "", longest, NULL, "\xc3\xbc\xc3\xa4"};
  test_open(&exporter);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
    test_send(exporter);
    test_pass(importer);
    assert_ok(test_try_begin(exporter, 0, &slot));
    assert_ok(cudalink_exporter_publish_invalid(exporter, &slot, texts[t]));
    assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
    assert_int_equal(frame.sequence, slot.sequence);
    assert_int_equal(frame.flags, CUDALINK_FRAME_INVALID);
    if (texts[t] == longest) {
      assert_int_equal(strlen(frame.text), CUDALINK_TEXT_SIZE - 1);
      assert_memory_equal(frame.text, longest, CUDALINK_TEXT_SIZE - 1);
    } else {
      assert_string_equal(frame.text, texts[t] ? texts[t] : "");
    }
    unsigned char out[BYTES];
    assert_status(CUDALINK_ERROR_UNSUPPORTED, cudalink_frame_to_host(&frame, out, sizeof out));
    test_release(&frame);
    uint64_t sequence = test_send(exporter);
    frame = test_take(importer);
    assert_int_equal(frame.sequence, sequence);
    assert_string_equal(frame.text, ""); /* nothing is left of it */
    test_release(&frame);
  }
  assert_int_equal(test_sent(exporter).published, 15);
  end();
}

static void bytes_in_host_memory(void **state) {
  (void)state;
  unsigned char out[BYTES], expected[BYTES];
  test_open(&exporter);
  test_join(&importer);
  uint64_t sequence = test_send(exporter);
  frame = test_take(importer);
  test_paint(expected, BYTES, sequence);
  assert_int_equal(test_got(importer).copies, 0);
  assert_ok(cudalink_frame_to_host(&frame, out, sizeof out));
  assert_memory_equal(out, expected, BYTES);
  assert_int_equal(test_got(importer).copies, 1);
  assert_status(CUDALINK_ERROR_TOO_LARGE, cudalink_frame_to_host(&frame, out, BYTES - 1));
  assert_said("1000");
  assert_said("999");
  assert_int_equal(test_got(importer).copies, 1); /* none was made */
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_to_host(&frame, NULL, BYTES));
  test_release(&frame);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_to_host(&frame, out, BYTES));
  end();
}

/* Each wrong member of a description is named, with its value, and nothing is begun. */
static void refuse(const cudalink_description *description, const char *said) {
  int status = cudalink_exporter_begin(exporter, description, 0, &slot);
  assert_true(status == CUDALINK_ERROR_INVALID_ARGUMENT || status == CUDALINK_ERROR_TOO_LARGE);
  assert_said(said);
  assert_ok(test_try_begin(exporter, 0, &slot));
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
}
static void wrong_descriptions_are_named(void **state) {
  (void)state;
  const cudalink_description right = test_bytes(BYTES);
  cudalink_description wrong = right;
  test_open(&exporter);
  wrong.plane_count = 0;
  refuse(&wrong, "0 planes");
  wrong.plane_count = 17;
  refuse(&wrong, "17");
  wrong = right;
  wrong.planes[0].dimensions = 9;
  refuse(&wrong, "9");
  wrong = right;
  wrong.planes[0].shape[0] = -5;
  refuse(&wrong, "-5");
  wrong = right;
  wrong.planes[0].strides[0] = -7;
  refuse(&wrong, "-7");
  wrong = right;
  wrong.planes[0].bytes = 999;
  refuse(&wrong, "999");
  wrong = right;
  wrong.planes[0].offset = UINT64_MAX - 3;
  refuse(&wrong, "18446744073709551612");
  wrong = right;
  wrong.planes[0].dtype.code = 99;
  refuse(&wrong, "99");
  wrong = right;
  wrong.planes[0].dtype.bits = 13;
  refuse(&wrong, "13");
  wrong = right;
  wrong.planes[0].dtype.lanes = 0;
  refuse(&wrong, "0");
  wrong = right;
  memset(wrong.planes[0].name, 'x', sizeof wrong.planes[0].name);
  refuse(&wrong, "name");
  wrong = right;
  wrong.planes[0].shape[0] = INT64_MAX;
  wrong.planes[0].strides[0] = INT64_MAX;
  refuse(&wrong, "2^63");
  wrong = right;
  wrong.picture.format = 12345678;
  refuse(&wrong, "0x00bc614e");
  wrong = right;
  memset(wrong.timing.clock, 'x', sizeof wrong.timing.clock);
  refuse(&wrong, "clock");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_exporter_begin(exporter, NULL, 0, &slot));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_begin(exporter, &right, 0, NULL));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Only the begun slot can be published, once. */
static void only_what_was_begun(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  cudalink_slot none = {0}, second;
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_publish(exporter, &none, COMPLETE));
  assert_string_equal(strstr(cudalink_last_error(), "frame 0, "), "frame 0, but no frame is begun");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_publish(exporter, NULL, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_abandon(exporter, &none, COMPLETE));
  assert_ok(test_try_begin(exporter, 0, &slot));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, test_try_begin(exporter, 0, &second));
  assert_said("begun already");
  cudalink_slot wrong = slot;
  wrong.sequence++;
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_publish(exporter, &wrong, COMPLETE));
  test_paint(slot.data, BYTES, slot.sequence);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_publish_invalid(exporter, &slot, "no"));
  assert_int_equal(test_pass(importer), 1);
  assert_int_equal(test_sent(exporter).published, 1);
  assert_int_equal(test_sent(exporter).bytes, BYTES);
  assert_int_equal(test_sent(exporter).abandoned, 0);
  end();
}

static void send_is_one_copy(void **state) {
  (void)state;
  unsigned char data[BYTES];
  cudalink_description description = test_bytes(BYTES);
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (uint64_t i = 1; i <= 20; i++) {
    test_paint(data, BYTES, i);
    assert_ok(cudalink_exporter_send(exporter, &description, data, NULL, COMPLETE, 0));
    assert_int_equal(test_pass(importer), i);
    assert_int_equal(test_sent(exporter).copies, i);
  }
  assert_int_equal(test_got(importer).copies, 0);
  while (cudalink_exporter_send(exporter, &description, data, NULL, COMPLETE, 0) == CUDALINK_OK) {
  }
  assert_said("no slot");
  assert_int_equal(test_sent(exporter).dropped, 1);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_send(exporter, &description, NULL, NULL, COMPLETE, 0));
  end();
}

static const struct CMUnitTest tests[] = {
    test_case(every_dtype_and_shape),
    test_case(sixteen_planes),
    test_case(nothing_at_all),
    test_case(pictures_timing_and_strides),
    test_case(user_data_of_any_size),
    test_case(no_stale_user_data),
    test_case(invalid_frames_say_why),
    test_case(bytes_in_host_memory),
    test_case(wrong_descriptions_are_named),
    test_case(only_what_was_begun),
    test_case(send_is_one_copy),
};
test_main(tests)
