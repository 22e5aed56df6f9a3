/* SPDX-License-Identifier: MIT
 *
 * Test patterns: known colours in every format, and the pattern `check`, which must see one wrong
 * byte anywhere.
 */
#include "media/pattern.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct media_error error;

/* A slot with a picture or tensor in it. */
struct frame {
  cudalink_description description;
  uint8_t *slot;
  uint64_t bytes;
};

static struct frame make_slot(cudalink_description description) {
  struct frame frame = {.description = description};
  assert_int_equal(cudalink_description_bytes(&description, &frame.bytes), 0);
  frame.slot = malloc(frame.bytes + 1);
  assert_non_null(frame.slot);
  memset(frame.slot, 0xee, frame.bytes + 1);
  return frame;
}

static struct frame make_picture(cudalink_format format, uint32_t width, uint32_t height,
                                 uint32_t alignment) {
  cudalink_description description = {0};
  assert_int_equal(cudalink_describe_picture(&description, format, width, height, alignment), 0);
  pattern_set_colour(&description);
  return make_slot(description);
}

static struct frame draw(enum pattern pattern, cudalink_format format, uint32_t width,
                         uint32_t height, uint64_t number) {
  struct frame frame = make_picture(format, width, height, 0);
  assert_int_equal(pattern_fill(pattern, &frame.description, frame.slot, number, &error), 0);
  assert_int_equal(frame.slot[frame.bytes], 0xee);
  return frame;
}

/* Element (row, column, sample) of a plane of 8- or 16-bit elements. */
static uint32_t element(const struct frame *frame, uint32_t plane, int64_t row, int64_t column,
                        int64_t sample) {
  const cudalink_plane *p = &frame->description.planes[plane];
  const uint8_t *at = frame->slot + p->offset + row * p->strides[0] + column * p->strides[1];
  uint16_t half;
  if (p->dimensions == 3) at += sample * p->strides[2];
  if (p->dtype.bits == 8) return *at;
  memcpy(&half, at, 2);
  return half;
}

/* The 75 % bars of BT.709 as tables print them: gray, yellow, cyan, green, magenta, red, blue. */
static const uint32_t bars_8[7][3] = {{180, 128, 128}, {168, 44, 136}, {145, 147, 44},
                                      {133, 63, 52},   {63, 193, 204}, {51, 109, 212},
                                      {28, 212, 120}};
static const uint32_t bars_10[7][3] = {{721, 512, 512}, {674, 176, 543}, {581, 589, 176},
                                       {534, 253, 207}, {251, 771, 817}, {204, 435, 848},
                                       {111, 848, 481}};

static void planar_bars_have_the_known_values(void **state) {
  (void)state;
  static const cudalink_format eight[] = {CUDALINK_FORMAT_I420, CUDALINK_FORMAT_I422,
                                          CUDALINK_FORMAT_I411, CUDALINK_FORMAT_I444,
                                          CUDALINK_FORMAT_IA444};
  for (size_t f = 0; f < sizeof eight / sizeof *eight; f++) {
    struct frame frame = draw(PATTERN_BARS, eight[f], 7 * 16, 48, 0);
    for (int64_t bar = 0; bar < 7; bar++)
      for (uint32_t p = 0; p < 3; p++) {
        int64_t columns = frame.description.planes[p].shape[1];
        assert_int_equal(element(&frame, p, 3, (2 * bar + 1) * columns / 14, 0), bars_8[bar][p]);
      }
    free(frame.slot);
  }
  struct frame deep = draw(PATTERN_BARS, CUDALINK_FORMAT_I422P10, 7 * 16, 48, 0);
  for (int64_t bar = 0; bar < 7; bar++)
    for (uint32_t p = 0; p < 3; p++)
      assert_int_equal(element(&deep, p, 3, p ? 8 * bar + 4 : 16 * bar + 8, 0), bars_10[bar][p]);
  free(deep.slot);
}

static void interleaved_bars_have_the_known_values(void **state) {
  (void)state;
  struct frame high = draw(PATTERN_BARS, CUDALINK_FORMAT_P010, 7 * 16, 48, 0);
  struct frame nv12 = draw(PATTERN_BARS, CUDALINK_FORMAT_NV12, 7 * 16, 48, 0);
  struct frame uyvy = draw(PATTERN_BARS, CUDALINK_FORMAT_UYVY, 7 * 16, 48, 0);
  struct frame yuyv = draw(PATTERN_BARS, CUDALINK_FORMAT_YUYV, 7 * 16, 48, 0);
  struct frame y416 = draw(PATTERN_BARS, CUDALINK_FORMAT_Y416, 7 * 16, 48, 0);
  for (int64_t bar = 0; bar < 7; bar++) {
    assert_int_equal(element(&high, 0, 3, 16 * bar + 8, 0), bars_10[bar][0] << 6);
    assert_int_equal(element(&high, 1, 3, 8 * bar + 4, 0), bars_10[bar][1] << 6);
    assert_int_equal(element(&high, 1, 3, 8 * bar + 4, 1), bars_10[bar][2] << 6);
    assert_int_equal(element(&nv12, 1, 3, 8 * bar + 4, 0), bars_8[bar][1]);
    assert_int_equal(element(&nv12, 1, 3, 8 * bar + 4, 1), bars_8[bar][2]);
    assert_int_equal(element(&uyvy, 0, 3, 16 * bar + 8, 0), bars_8[bar][1]);
    assert_int_equal(element(&uyvy, 0, 3, 16 * bar + 8, 1), bars_8[bar][0]);
    assert_int_equal(element(&uyvy, 0, 3, 16 * bar + 9, 0), bars_8[bar][2]);
    assert_int_equal(element(&uyvy, 0, 3, 16 * bar + 9, 1), bars_8[bar][0]);
    assert_int_equal(element(&yuyv, 0, 3, 16 * bar + 8, 0), bars_8[bar][0]);
    assert_int_equal(element(&yuyv, 0, 3, 16 * bar + 8, 1), bars_8[bar][1]);
    assert_int_equal(element(&yuyv, 0, 3, 16 * bar + 9, 1), bars_8[bar][2]);
    assert_true(fabs(element(&y416, 0, 3, 16 * bar + 8, 0) / 64.0 - bars_10[bar][1]) <= 0.51);
    assert_true(fabs(element(&y416, 0, 3, 16 * bar + 8, 1) / 64.0 - bars_10[bar][0]) <= 0.51);
    assert_true(fabs(element(&y416, 0, 3, 16 * bar + 8, 2) / 64.0 - bars_10[bar][2]) <= 0.51);
    assert_int_equal(element(&y416, 0, 3, 16 * bar + 8, 3), 65535);
  }
  free(high.slot);
  free(nv12.slot);
  free(uyvy.slot);
  free(yuyv.slot);
  free(y416.slot);
}

static void bars_in_rgb_are_75_percent(void **state) {
  (void)state;
  static const uint8_t colours[7][3] = {{1, 1, 1}, {1, 1, 0}, {0, 1, 1}, {0, 1, 0},
                                        {1, 0, 1}, {1, 0, 0}, {0, 0, 1}};
  struct frame rgba = draw(PATTERN_BARS, CUDALINK_FORMAT_RGBA8, 70, 12, 0);
  struct frame bgra = draw(PATTERN_BARS, CUDALINK_FORMAT_BGRA8, 70, 12, 0);
  for (int64_t bar = 0; bar < 7; bar++) {
    for (int64_t c = 0; c < 3; c++) {
      assert_int_equal(element(&rgba, 0, 0, 10 * bar + 5, c), colours[bar][c] * 191);
      assert_int_equal(element(&bgra, 0, 0, 10 * bar + 5, 2 - c), colours[bar][c] * 191);
    }
    assert_int_equal(element(&rgba, 0, 0, 10 * bar + 5, 3), 255);
  }
  assert_int_equal(element(&rgba, 0, 10, 15, 0), 255); /* white below */
  assert_int_equal(element(&rgba, 0, 10, 45, 0), 0);   /* black */
  free(rgba.slot);
  free(bgra.slot);
}

/* Dots of a number's last digits, in the pattern's digits of 3 x 5. */
static uint32_t dots_of(uint64_t number, uint32_t digits) {
  static const uint8_t dots[10] = {12, 8, 11, 11, 9, 11, 12, 7, 13, 12};
  uint32_t sum = 0;
  for (uint32_t i = 0; i < digits; i++, number /= 10)
    sum += dots[number % 10];
  return sum;
}

/* White pixels below the squares that carry the number. */
static uint32_t white_pixels(const struct frame *frame, uint32_t width, uint32_t height) {
  uint32_t count = 0;
  for (uint32_t y = height / 2; y < height; y++)
    for (uint32_t x = 0; x < width; x++)
      count += element(frame, 0, y, x, 0) == 255 && element(frame, 0, y, x, 1) == 255;
  return count;
}

static void the_counter_is_whole_in_every_frame(void **state) {
  (void)state;
  static const uint32_t sizes[][4] = {/* width, height, side of a dot, digits */
                                      {320, 180, 9, 8}, {31, 20, 1, 8},  {640, 32, 1, 8},
                                      {64, 400, 2, 8},  {15, 300, 1, 4}, {248, 160, 8, 8}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (uint64_t number = 0; number < 20000; number += 1 + number / 40) {
      const uint32_t *size = sizes[s];
      struct frame frame = draw(PATTERN_COUNTER, CUDALINK_FORMAT_RGBA8, size[0], size[1], number);
      assert_int_equal(white_pixels(&frame, size[0], size[1]),
                       dots_of(number, size[3]) * size[2] * size[2]);
      free(frame.slot);
    }
}

/* v210 by hand: the words of six pixels. */
static void v210_has_its_words(void **state) {
  (void)state;
  struct frame frame = draw(PATTERN_BARS, CUDALINK_FORMAT_V210, 7 * 12, 12, 0);
  struct frame odd = draw(PATTERN_RAMP, CUDALINK_FORMAT_V210, 3, 1, 0);
  uint32_t words[4], u = bars_10[1][1], v = bars_10[1][2], y = bars_10[1][0];
  memcpy(words, frame.slot + 2 * 16, 16); /* pixels 12 to 17: yellow */
  assert_int_equal(words[0], u | y << 10 | v << 20);
  assert_int_equal(words[1], y | u << 10 | y << 20);
  assert_int_equal(words[2], v | y << 10 | u << 20);
  assert_int_equal(words[3], y | v << 10 | y << 20);
  memcpy(words, odd.slot, 16); /* black, half, white, white again, then nothing */
  assert_int_equal(words[0], 512u | 64u << 10 | 512u << 20);
  assert_int_equal(words[1], 502u | 512u << 10 | 940u << 20);
  assert_int_equal(words[2], 512u | 940u << 10);
  assert_int_equal(words[3], 0);
  free(frame.slot);
  free(odd.slot);
}

struct yuv_layout {
  cudalink_format format;
  int depth, group_width, group_height;
};

/* One sample by BT.709 in double precision, from the same picture in RGBA16. */
static double expected_sample(const struct frame *rgb, const struct yuv_layout *layout, uint32_t p,
                              int row, int column) {
  int gw = p ? layout->group_width : 1, gh = p ? layout->group_height : 1;
  int width = (int)rgb->description.picture.width, height = (int)rgb->description.picture.height;
  double c[3] = {0}, unit = pow(2, layout->depth - 8);
  for (int i = 0; i < gw * gh; i++) {
    int x = column * gw + i % gw, y = row * gh + i / gw;
    for (int s = 0; s < 3; s++)
      c[s] += element(rgb, 0, y < height ? y : height - 1, x < width ? x : width - 1, s) / 65535.0 /
              (gw * gh);
  }
  double luma = 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
  if (p == 0) return unit * (16 + 219 * luma);
  return unit * (128 + 224 * (p == 1 ? (c[2] - luma) / 1.8556 : (c[0] - luma) / 1.5748));
}

static void yuv_follows_bt709(void **state) {
  (void)state;
  static const struct yuv_layout layouts[] = {
      {CUDALINK_FORMAT_I420, 8, 2, 2},     {CUDALINK_FORMAT_I422, 8, 2, 1},
      {CUDALINK_FORMAT_I411, 8, 4, 1},     {CUDALINK_FORMAT_I444, 8, 1, 1},
      {CUDALINK_FORMAT_I420P9, 9, 2, 2},   {CUDALINK_FORMAT_I422P10, 10, 2, 1},
      {CUDALINK_FORMAT_I444P12, 12, 1, 1}, {CUDALINK_FORMAT_I420P14, 14, 2, 2},
      {CUDALINK_FORMAT_I420P16, 16, 2, 2}};
  struct frame rgb = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGBA16, 33, 7, 5);
  for (size_t f = 0; f < sizeof layouts / sizeof *layouts; f++) {
    struct frame frame = draw(PATTERN_NOISE, layouts[f].format, 33, 7, 5);
    for (uint32_t p = 0; p < 3; p++)
      for (int row = 0; row < frame.description.planes[p].shape[0]; row++)
        for (int column = 0; column < frame.description.planes[p].shape[1]; column++)
          assert_true(fabs(element(&frame, p, row, column, 0) -
                           expected_sample(&rgb, &layouts[f], p, row, column)) < 0.501);
    free(frame.slot);
  }
  free(rgb.slot);
}

static double half_value(uint32_t half) {
  return half >> 10 ? ldexp(1024 + (half & 1023), (int)(half >> 10) - 25) : ldexp(half & 1023, -24);
}

static void floats_follow_rgb(void **state) {
  (void)state;
  const uint32_t width = 300;
  struct frame rgba = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGBA16, width, 1, 9);
  struct frame f16 = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGBA16F, width, 1, 9);
  struct frame f32 = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGBA32F, width, 1, 9);
  struct frame chw = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGB_CHW16F, width, 1, 9);
  for (uint32_t x = 0; x < width; x++)
    for (uint32_t c = 0; c < 3; c++) {
      double value = element(&rgba, 0, 0, x, c) / 65535.0;
      uint16_t half;
      float single;
      memcpy(&half, f16.slot + x * 8 + c * 2, 2);
      memcpy(&single, f32.slot + x * 16 + c * 4, 4);
      assert_true(fabs(half_value(half) - value) <= value / 2048 + 4e-5);
      assert_true(fabs(single - value) < 1e-7);
      assert_memory_equal(chw.slot + c * (uint64_t)chw.description.planes[0].strides[0] + x * 2,
                          &half, 2);
    }
  free(rgba.slot);
  free(f16.slot);
  free(f32.slot);
  free(chw.slot);
}

static void packed_words_follow_rgb(void **state) {
  (void)state;
  const uint32_t width = 300;
  struct frame rgba = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGBA16, width, 1, 9);
  struct frame ten = draw(PATTERN_NOISE, CUDALINK_FORMAT_RGB10A2, width, 1, 9);
  struct frame eleven = draw(PATTERN_NOISE, CUDALINK_FORMAT_R11G11B10F, width, 1, 9);
  for (uint32_t x = 0; x < width; x++)
    for (uint32_t c = 0; c < 3; c++) {
      double value = element(&rgba, 0, 0, x, c) / 65535.0;
      uint32_t word;
      memcpy(&word, ten.slot + x * 4, 4);
      assert_int_equal(word >> (10 * c) & 1023, lround(value * 1023));
      assert_int_equal(word >> 30, 3);
      memcpy(&word, eleven.slot + x * 4, 4);
      uint32_t half = c == 2 ? word >> 22 << 5 : (word >> (11 * c) & 2047) << 4;
      assert_true(fabs(half_value(half) - value) <= value / (c == 2 ? 64 : 128) + 4e-5);
    }
  free(rgba.slot);
  free(ten.slot);
  free(eleven.slot);
}

/* One pattern on one picture: it stays inside, and check says the number. */
static void draw_and_check(enum pattern pattern, struct frame *frame, uint64_t sent) {
  const cudalink_description *d = &frame->description;
  uint64_t packed, changed = 0, number = 1;
  cudalink_packed_bytes(d, &packed);
  memset(frame->slot, 0xee, frame->bytes + 1);
  assert_int_equal(pattern_fill(pattern, d, frame->slot, sent, &error), 0);
  for (uint64_t i = 0; i <= frame->bytes; i++)
    changed += frame->slot[i] != 0xee;
  assert_true(changed <= packed);
  assert_int_equal(frame->slot[frame->bytes], 0xee);
  int has_code = d->picture.width >= 8 && d->picture.height >= 8;
  int can_check = pattern == PATTERN_BARS || pattern == PATTERN_RAMP || pattern == PATTERN_CHECK ||
                  (pattern == PATTERN_COUNTER && has_code);
  int64_t result = pattern_check(pattern, d, frame->slot, &number, &error);
  assert_true(result == (can_check ? PATTERN_RIGHT : PATTERN_UNCHECKED));
  if (pattern == PATTERN_CHECK) assert_true(number == (packed < 16 ? sent & 0xff : sent));
  if (pattern != PATTERN_COUNTER || !can_check) return;
  assert_true(number == sent);
  if (d->picture.width == 8) return; /* there the last byte is part of the number */
  frame->slot[frame->bytes - 1] ^= 0x10;
  result = pattern_check(pattern, d, frame->slot, &number, &error);
  assert_true(result == (int64_t)packed - 1);
}

static void every_format_can_be_drawn_and_checked(void **state) {
  (void)state;
  static const uint32_t sizes[][2] = {{1, 1}, {3, 5}, {8, 8}, {127, 63}, {130, 66}};
  for (cudalink_format f = cudalink_format_next(CUDALINK_FORMAT_NONE); f;
       f = cudalink_format_next(f))
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (uint32_t alignment = 0; alignment < 2; alignment++) {
        struct frame frame = make_picture(f, sizes[s][0], sizes[s][1], alignment);
        frame.description.picture.origin = (uint8_t)alignment;
        for (int p = 0; p < 6; p++)
          draw_and_check((enum pattern)p, &frame, UINT64_C(0xfedcba9876543210) >> p);
        free(frame.slot);
      }
}

static void origin_turns_the_picture_over(void **state) {
  (void)state;
  struct frame top = draw(PATTERN_COUNTER, CUDALINK_FORMAT_I420, 32, 32, 77);
  struct frame bottom = make_picture(CUDALINK_FORMAT_I420, 32, 32, 0);
  bottom.description.picture.origin = CUDALINK_ORIGIN_BOTTOM_LEFT;
  assert_int_equal(pattern_fill(PATTERN_COUNTER, &bottom.description, bottom.slot, 77, &error), 0);
  uint8_t a[32 * 48], b[32 * 48];
  assert_int_equal(cudalink_pack(&top.description, top.slot, a, sizeof a, 0), 0);
  assert_int_equal(cudalink_pack(&bottom.description, bottom.slot, b, sizeof b, 1), 0);
  assert_memory_equal(a, b, sizeof a);
  free(top.slot);
  free(bottom.slot);
}

static void check_finds_every_wrong_byte(void **state) {
  (void)state;
  struct frame frame = draw(PATTERN_CHECK, CUDALINK_FORMAT_NV12, 731, 7, UINT64_C(0x123456789a));
  const uint64_t second = frame.description.planes[1].offset;
  uint64_t number;
  for (uint64_t i = 0, position = 0; i < frame.bytes; i++) {
    int is_padding = i < second ? i % 768 >= 731 : (i - second) % 768 >= 732;
    frame.slot[i] ^= 1;
    int64_t wrong = pattern_check(PATTERN_CHECK, &frame.description, frame.slot, &number, &error);
    assert_true(wrong == (is_padding ? PATTERN_RIGHT : (int64_t)position));
    assert_true(number == UINT64_C(0x123456789a));
    frame.slot[i] ^= 1;
    position += !is_padding;
  }
  free(frame.slot);
}

/* What a torn frame looks like: a part of it, of any length and at any place, is another frame. */
static void frames_near_each_other_differ_in_every_byte(void **state) {
  (void)state;
  const int64_t shape[] = {1000};
  cudalink_description d = {0};
  assert_int_equal(cudalink_describe_tensor(&d, NULL, CUDALINK_UINT8, 1, shape), 0);
  struct frame a = make_slot(d), b = make_slot(d);
  static const uint64_t numbers[] = {0, 1, 200, 255, 256, UINT64_C(1) << 40, UINT64_MAX - 255};
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
    for (uint64_t distance = 1; distance < 256; distance++) {
      pattern_fill(PATTERN_CHECK, &d, a.slot, numbers[n], &error);
      pattern_fill(PATTERN_CHECK, &d, b.slot, numbers[n] + distance, &error);
      uint64_t same = 0;
      for (int i = 0; i < 1000; i++)
        same += a.slot[i] == b.slot[i];
      /* Beyond the next multiple of 256 the high part differs too, and may meet by chance. */
      if (numbers[n] >> 8 == (numbers[n] + distance) >> 8)
        assert_int_equal(same, 0);
      else
        assert_true(same < 30);
    }
  free(a.slot);
  free(b.slot);
}

/* Planes, gaps, transposed and empty tensors, elements of 4 bits. */
static void check_works_for_any_tensor(void **state) {
  (void)state;
  cudalink_description d = {0}, plain = {0};
  const int64_t shape[] = {5, 7, 3}, empty[] = {0};
  cudalink_dtype fp4 = cudalink_dtype_make(CUDALINK_DTYPE_FLOAT4_E2M1FN, 4);
  cudalink_describe_tensor(&d, "a", CUDALINK_UINT8, 3, shape);
  cudalink_describe_tensor(&d, "b", CUDALINK_UINT32, 1, empty);
  cudalink_describe_tensor(&d, "c", CUDALINK_FLOAT32, 2, shape);
  cudalink_describe_tensor(&d, "d", fp4, 2, shape);
  d.planes[2].strides[0] = 4; /* transposed: the first index runs fastest */
  d.planes[2].strides[1] = 20;
  struct frame frame = make_slot(d);
  uint64_t number, packed;
  cudalink_packed_bytes(&d, &packed);
  assert_int_equal(pattern_fill(PATTERN_CHECK, &d, frame.slot, 12345, &error), 0);
  assert_int_equal(pattern_check(PATTERN_CHECK, &d, frame.slot, &number, &error), PATTERN_RIGHT);
  assert_int_equal(number, 12345);
  /* The pattern follows the packed bytes: packing gives the pattern of a plain tensor. */
  uint8_t *bytes = malloc(packed);
  const int64_t size = (int64_t)packed;
  assert_int_equal(cudalink_pack(&d, frame.slot, bytes, packed, 0), 0);
  cudalink_describe_tensor(&plain, NULL, CUDALINK_UINT8, 1, &size);
  assert_int_equal(pattern_check(PATTERN_CHECK, &plain, bytes, &number, &error), PATTERN_RIGHT);
  assert_int_equal(number, 12345);
  assert_int_equal(pattern_fill(PATTERN_BARS, &d, frame.slot, 1, &error),
                   CUDALINK_ERROR_UNSUPPORTED);
  free(bytes);
  free(frame.slot);
}

static void check_works_for_few_bytes(void **state) {
  (void)state;
  for (int64_t size = 0; size < 40; size++) {
    uint64_t number;
    cudalink_description small = {0};
    cudalink_describe_tensor(&small, NULL, CUDALINK_UINT8, 1, &size);
    struct frame frame = make_slot(small);
    pattern_fill(PATTERN_CHECK, &small, frame.slot, 1000, &error);
    assert_int_equal(pattern_check(PATTERN_CHECK, &small, frame.slot, &number, &error),
                     PATTERN_RIGHT);
    assert_int_equal(number, size == 0 ? 0 : size < 16 ? 1000 & 255 : 1000);
    free(frame.slot);
  }
}

static void names_go_both_ways(void **state) {
  (void)state;
  for (int p = 0; p < 6; p++)
    assert_int_equal(pattern_from_name(pattern_name((enum pattern)p)), p);
  assert_int_equal(pattern_from_name("Bars"), PATTERN_BARS);
  assert_int_equal(pattern_from_name("bar"), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(planar_bars_have_the_known_values),
      cmocka_unit_test(interleaved_bars_have_the_known_values),
      cmocka_unit_test(bars_in_rgb_are_75_percent),
      cmocka_unit_test(the_counter_is_whole_in_every_frame),
      cmocka_unit_test(v210_has_its_words),
      cmocka_unit_test(yuv_follows_bt709),
      cmocka_unit_test(floats_follow_rgb),
      cmocka_unit_test(packed_words_follow_rgb),
      cmocka_unit_test(every_format_can_be_drawn_and_checked),
      cmocka_unit_test(origin_turns_the_picture_over),
      cmocka_unit_test(check_finds_every_wrong_byte),
      cmocka_unit_test(frames_near_each_other_differ_in_every_byte),
      cmocka_unit_test(check_works_for_any_tensor),
      cmocka_unit_test(check_works_for_few_bytes),
      cmocka_unit_test(names_go_both_ways),
  };
  return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
