/* SPDX-License-Identifier: MIT
 *
 * Picture formats: the table is complete, and pictures of every format and awkward size are
 * described as the documents of those formats say.
 */
#include "cudalink/format.h"
#include "interop/format_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t widths[] = {1, 2, 3, 127, 128, 129, 416, 1366, 1550, 1919, 1920, 65535};

static uint32_t round_up(uint32_t value, uint32_t step) { return (value + step - 1) / step * step; }

static cudalink_description describe(cudalink_format format, uint32_t width, uint32_t height,
                                     uint32_t alignment) {
  cudalink_description description = {0};
  assert_int_equal(cudalink_describe_picture(&description, format, width, height, alignment), 0);
  return description;
}

static uint64_t packed_bytes(cudalink_format format, uint32_t width, uint32_t height) {
  cudalink_description description = describe(format, width, height, 0);
  uint64_t bytes = 0;
  assert_int_equal(cudalink_packed_bytes(&description, &bytes), 0);
  return bytes;
}

static void names_go_both_ways(void **state) {
  (void)state;
  int count = 0;
  for (cudalink_format f = cudalink_format_next(CUDALINK_FORMAT_NONE); f;
       f = cudalink_format_next(f), count++) {
    const char *name = cudalink_format_name(f);
    assert_non_null(name);
    assert_int_equal(cudalink_format_from_name(name), f);
  }
  int expected = 0;
#define ONE(name, fourcc) expected++;
  CUDALINK_FORMATS(ONE)
#undef ONE
  assert_int_equal(count, expected);
  assert_int_equal(cudalink_format_from_name("rgba8"), CUDALINK_FORMAT_RGBA8);
  assert_int_equal(cudalink_format_from_name("v210"), CUDALINK_FORMAT_V210);
  assert_int_equal(cudalink_format_from_name("i420p10"), CUDALINK_FORMAT_I420P10);
  assert_int_equal(cudalink_format_from_name("RGBA"), CUDALINK_FORMAT_NONE);
  assert_int_equal(cudalink_format_from_name("RGBA80"), CUDALINK_FORMAT_NONE);
  assert_int_equal(cudalink_format_from_name(""), CUDALINK_FORMAT_NONE);
  assert_int_equal(cudalink_format_from_name(NULL), CUDALINK_FORMAT_NONE);
  assert_null(cudalink_format_name(0));
  assert_null(cudalink_format_name(0x12345678));
  assert_int_equal(cudalink_format_next((cudalink_format)0x12345678), CUDALINK_FORMAT_NONE);
}

static void table_rows_make_sense(void **state) {
  (void)state;
  for (cudalink_format f = cudalink_format_next(CUDALINK_FORMAT_NONE); f;
       f = cudalink_format_next(f)) {
    const struct format_row *row = format_find(f);
    assert_int_equal(row->format, f);
    assert_in_range(row->plane_count, 1, FORMAT_MAX_PLANES);
    assert_true(row->bits == 8 || row->bits == 16 || row->bits == 32);
    assert_true(row->depth + row->shift <= row->bits);
    for (uint32_t i = 0; i < row->plane_count; i++) {
      assert_true(row->planes[i].group_width && row->planes[i].group_height);
      assert_true(row->planes[i].name[0] && memchr(row->planes[i].name, 0, 8));
    }
  }
}

/* Every format at every width, dense and pitched: the check accepts what describe made, planes do
 * not overlap, rows are aligned. */
static void every_picture_is_valid(void **state) {
  (void)state;
  static const uint32_t alignments[] = {1, 0, 64, 4096};
  for (cudalink_format f = cudalink_format_next(CUDALINK_FORMAT_NONE); f;
       f = cudalink_format_next(f))
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
      for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++) {
        cudalink_description d = describe(f, widths[w], w % 2 ? 1 : 7, alignments[a]);
        uint64_t bytes, packed, end = 0;
        assert_int_equal(cudalink_description_bytes(&d, &bytes), 0);
        assert_int_equal(cudalink_packed_bytes(&d, &packed), 0);
        assert_true(alignments[a] == 1 ? bytes == packed : bytes >= packed);
        for (uint32_t i = 0; i < d.plane_count; i++) {
          uint32_t alignment = alignments[a] ? alignments[a] : 256;
          uint32_t pitch_index = d.planes[i].dimensions > 2 && d.planes[i].shape[0] == 3 &&
                                 d.planes[i].strides[2] <= 4 && d.planes[i].shape[2] == widths[w];
          if (f != CUDALINK_FORMAT_V210)
            assert_int_equal(d.planes[i].strides[pitch_index] % alignment, 0);
          if (alignments[a] != 1) assert_int_equal(d.planes[i].offset % 256, 0);
          assert_true(d.planes[i].offset >= end);
          end = d.planes[i].offset + d.planes[i].bytes;
        }
        assert_int_equal(end, bytes);
      }
}

/* Sizes computed here from the formats' own documents, not from the table. */
static void packed_sizes_are_the_known_ones(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    uint32_t w = widths[i], h = 35, half = (w + 1) / 2, quarter = (w + 3) / 4;
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_RGBA8, w, h), (uint64_t)4 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_RGB8, w, h), (uint64_t)3 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_RGBA16F, w, h), (uint64_t)8 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_RGBA32F, w, h), (uint64_t)16 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_RGB10A2, w, h), (uint64_t)4 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_RGB_CHW32F, w, h), (uint64_t)12 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_I420, w, h), w * h + 2 * half * 18);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_I411, w, h), w * h + 2 * quarter * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_I422P10, w, h), 2 * (w * h + 2 * half * h));
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_I444P16, w, h), (uint64_t)6 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_IA444, w, h), (uint64_t)4 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_NV12, w, h), w * h + 2 * half * 18);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_P010, w, h), 2 * (w * h + 2 * half * 18));
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_P210, w, h), 2 * (w * h + 2 * half * h));
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_UYVY, w, h), 2 * round_up(w, 2) * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_UYVA, w, h), (2 * round_up(w, 2) + w) * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_Y416, w, h), (uint64_t)8 * w * h);
    assert_int_equal(packed_bytes(CUDALINK_FORMAT_V210, w, h), round_up(w, 48) / 48 * 128 * h);
  }
}

/* Bytes of 48 x 4 pixels in every format. */
static void every_format_has_its_bytes_per_pixel(void **state) {
  (void)state;
/* clang-format off */
#define SIZES(X)                                                                                   \
  X(R8, 192) X(RG8, 384) X(RGB8, 576) X(RGBA8, 768) X(BGRA8, 768) X(RGBX8, 768) X(BGRX8, 768)      \
  X(R16, 384) X(RG16, 768) X(RGBA16, 1536) X(R16F, 384) X(RG16F, 768) X(RGBA16F, 1536)             \
  X(R32F, 768) X(RG32F, 1536) X(RGBA32F, 3072) X(RGB10A2, 768) X(R11G11B10F, 768)                  \
  X(GRAY8, 192) X(GRAY9, 384) X(GRAY10, 384) X(GRAY12, 384) X(GRAY16, 384)                         \
  X(I411, 288) X(I420, 288) X(I422, 384) X(I444, 576) X(IA444, 768)                                \
  X(I420P9, 576) X(I422P9, 768) X(I444P9, 1152) X(I420P10, 576) X(I422P10, 768) X(I444P10, 1152)   \
  X(I420P12, 576) X(I422P12, 768) X(I444P12, 1152) X(I420P14, 576) X(I422P14, 768)                 \
  X(I444P14, 1152) X(I420P16, 576) X(I422P16, 768) X(I444P16, 1152)                                \
  X(NV12, 288) X(NV16, 384) X(P010, 576) X(P210, 768) X(UYVY, 384) X(YUYV, 384) X(UYVA, 576)       \
  X(Y416, 1536) X(V210, 512) X(RGB_CHW8, 576) X(RGB_CHW16F, 1152) X(RGB_CHW32F, 2304)
/* clang-format on */
#define CHECK(name, bytes)                                                                         \
  assert_int_equal(packed_bytes(CUDALINK_FORMAT_##name, 48, 4), bytes);                            \
  count++;
#define ONE(name, fourcc) -1
  int count = 0;
  SIZES(CHECK)
  assert_int_equal(count CUDALINK_FORMATS(ONE), 0);
#undef ONE
}

static void planes_have_the_documented_shapes(void **state) {
  (void)state;
  cudalink_description d = describe(CUDALINK_FORMAT_NV12, 1919, 1079, 0);
  assert_int_equal(d.plane_count, 2);
  assert_string_equal(d.planes[0].name, "y");
  assert_int_equal(d.planes[0].dimensions, 2);
  assert_int_equal(d.planes[0].strides[0], 2048);
  assert_string_equal(d.planes[1].name, "uv");
  assert_int_equal(d.planes[1].dimensions, 3);
  assert_int_equal(d.planes[1].shape[0], 540);
  assert_int_equal(d.planes[1].shape[1], 960);
  assert_int_equal(d.planes[1].shape[2], 2);
  assert_int_equal(d.planes[1].offset, 2048 * 1079);

  d = describe(CUDALINK_FORMAT_RGB_CHW16F, 129, 5, 0);
  assert_int_equal(d.plane_count, 1);
  assert_string_equal(d.planes[0].name, "rgb");
  assert_int_equal(d.planes[0].shape[0], 3);
  assert_int_equal(d.planes[0].strides[0], 512 * 5);
  assert_int_equal(d.planes[0].strides[1], 512);
  assert_int_equal(d.planes[0].strides[2], 2);
  assert_int_equal(d.planes[0].bytes, 512 * 14 + 258);

  d = describe(CUDALINK_FORMAT_V210, 1, 2, 0);
  assert_int_equal(d.planes[0].strides[0], 128);
  d = describe(CUDALINK_FORMAT_V210, 49, 2, 1);
  assert_int_equal(d.planes[0].strides[0], 256);

  d = describe(CUDALINK_FORMAT_BGRA8, 10, 10, 0);
  assert_int_equal(d.picture.primaries, 2);
  assert_int_equal(d.picture.transfer, 2);
  assert_int_equal(d.picture.matrix, 2);
  assert_int_equal(d.picture.range, CUDALINK_RANGE_NOT_SAID);
}

static void timing_and_user_size_are_left_alone(void **state) {
  (void)state;
  cudalink_description d = describe(CUDALINK_FORMAT_IA444, 4, 4, 0);
  d.timing.pts = 77;
  d.user_size = 5;
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_R8, 4, 4, 0), 0);
  assert_int_equal(d.timing.pts, 77);
  assert_int_equal(d.user_size, 5);
  assert_int_equal(d.plane_count, 1);
  assert_int_equal(d.planes[3].dimensions, 0);
}

static void refused(cudalink_format format, uint32_t width, uint32_t height, uint32_t alignment,
                    const char *text) {
  cudalink_description before = describe(CUDALINK_FORMAT_R8, 2, 2, 0), d = before;
  assert_int_equal(cudalink_describe_picture(&d, format, width, height, alignment),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(cudalink_last_error(), text));
  assert_memory_equal(&d, &before, sizeof d);
}

static void bad_pictures_are_refused(void **state) {
  (void)state;
  refused(CUDALINK_FORMAT_RGBA8, 0, 4, 0, "0 x 4");
  refused(CUDALINK_FORMAT_RGBA8, 4, 0, 0, "4 x 0");
  refused(CUDALINK_FORMAT_RGBA8, 65536, 4, 0, "65536 x 4");
  refused(CUDALINK_FORMAT_RGBA8, 4, 0xffffffff, 0, "4294967295");
  refused(CUDALINK_FORMAT_RGBA8, 4, 4, 3, "pitch_alignment 3");
  refused(CUDALINK_FORMAT_NONE, 4, 4, 0, "0x00000000");
  refused((cudalink_format)0x31313131, 4, 4, 0, "0x31313131");
  assert_int_equal(cudalink_describe_picture(NULL, CUDALINK_FORMAT_R8, 1, 1, 0),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void the_largest_picture_does_not_overflow(void **state) {
  (void)state;
  cudalink_description d = describe(CUDALINK_FORMAT_RGBA32F, 65535, 65535, 1u << 31);
  uint64_t bytes;
  assert_int_equal(cudalink_description_bytes(&d, &bytes), 0);
  assert_int_equal(bytes, ((uint64_t)65534 << 31) + (uint64_t)65535 * 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_go_both_ways),
      cmocka_unit_test(table_rows_make_sense),
      cmocka_unit_test(every_picture_is_valid),
      cmocka_unit_test(packed_sizes_are_the_known_ones),
      cmocka_unit_test(every_format_has_its_bytes_per_pixel),
      cmocka_unit_test(planes_have_the_documented_shapes),
      cmocka_unit_test(timing_and_user_size_are_left_alone),
      cmocka_unit_test(bad_pictures_are_refused),
      cmocka_unit_test(the_largest_picture_does_not_overflow),
  };
  return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
