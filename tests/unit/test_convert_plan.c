/* SPDX-License-Identifier: MIT
 *
 * Conversion by the words of convert.h: well-known colours, scale and mean, tensors, what is said
 * and not said about colour, and every way to ask for something that is not possible.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cudalink/convert.h"
#include "interop/convert/plan.h"

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED CUDALINK_ERROR_UNSUPPORTED
#define OPTIONS(...)                                                                               \
  &(cudalink_convert_options) { CUDALINK_CONVERT_DEFAULTS, __VA_ARGS__ }

static cudalink_description picture(cudalink_format format, uint32_t width, uint32_t height) {
  cudalink_description description = {0};
  assert_int_equal(0, cudalink_describe_picture(&description, format, width, height, 1));
  return description;
}

static cudalink_description tensor(cudalink_dtype dtype, int64_t a, int64_t b, int64_t c) {
  cudalink_description description = {0};
  const int64_t shape[] = {a, b, c};
  assert_int_equal(0, cudalink_describe_tensor(&description, "x", dtype, 3, shape));
  return description;
}

static void convert(const cudalink_description *source, const void *from,
                    const cudalink_description *target, void *into,
                    const cudalink_convert_options *options) {
  cudalink_convert_plan *plan;
  assert_int_equal(0, cudalink_convert_plan_create(&plan, source, target, options));
  assert_int_equal(0, cudalink_convert_host(plan, from, into));
  cudalink_convert_plan_destroy(plan);
}

static void refuse(int code, const char *text, const cudalink_description *source,
                   const cudalink_description *target, const cudalink_convert_options *options) {
  cudalink_convert_plan *plan = (cudalink_convert_plan *)&plan;
  assert_int_equal(code, cudalink_convert_plan_create(&plan, source, target, options));
  assert_null(plan);
  if (!strstr(cudalink_last_error(), text))
    fail_msg("\"%s\" does not say \"%s\"", cudalink_last_error(), text);
}

/* ---- colour ---- */

/* 100 % colour bars in 8 bits, as broadcast books print them for BT.709. */
static void test_colour_bars(void **state) {
  (void)state;
  static const uint8_t rgb[8][3] = {{255, 255, 255}, {255, 255, 0}, {0, 255, 255}, {0, 255, 0},
                                    {255, 0, 255},   {255, 0, 0},   {0, 0, 255},   {0, 0, 0}};
  static const uint8_t yuv[8][3] = {{235, 128, 128}, {219, 16, 138}, {188, 154, 16},
                                    {173, 42, 26},   {78, 214, 230}, {63, 102, 240},
                                    {32, 240, 118},  {16, 128, 128}};
  cudalink_description source = picture(CUDALINK_FORMAT_RGB8, 8, 1);
  cudalink_description target = picture(CUDALINK_FORMAT_I444, 8, 1);
  uint8_t planes[3][8], back[8][3];
  convert(&source, rgb, &target, planes, NULL);
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 3; k++)
      assert_int_equal(planes[k][i], yuv[i][k]);
  convert(&target, planes, &source, back, NULL);
  for (int i = 0; i < 24; i++)
    assert_in_range(back[i / 3][i % 3] + 1, rgb[i / 3][i % 3], rgb[i / 3][i % 3] + 2);
}

/* The description comes first, then the option, then the other side, then BT.709 limited. */
static void test_who_says_the_colour(void **state) {
  (void)state;
  const uint8_t red[3] = {255, 0, 0};
  cudalink_description rgb = picture(CUDALINK_FORMAT_RGB8, 1, 1);
  cudalink_description yuv = picture(CUDALINK_FORMAT_I444, 1, 1), other = yuv;
  uint8_t out[3], copy[3];
  convert(&rgb, red, &yuv, out, OPTIONS(.matrix = 6, .range = CUDALINK_RANGE_FULL));
  assert_int_equal(out[0], 76); /* 255 * 0.299 */
  yuv.picture.matrix = 1;
  yuv.picture.range = CUDALINK_RANGE_LIMITED;
  convert(&rgb, red, &yuv, out, OPTIONS(.matrix = 6, .range = CUDALINK_RANGE_FULL));
  assert_int_equal(out[0], 63);
  yuv.picture.matrix = 6;
  convert(&yuv, out, &other, copy, NULL);
  assert_memory_equal(out, copy, 3);
  other.picture.matrix = 1;
  convert(&yuv, out, &other, copy, NULL);
  assert_int_not_equal(out[0], copy[0]);
  yuv.picture.matrix = 8; /* YCgCo */
  refuse(UNSUPPORTED, "matrix 8", &yuv, &rgb, NULL);
  yuv.picture.matrix = 0; /* RGB in the planes */
  refuse(UNSUPPORTED, "matrix 0", &yuv, &rgb, NULL);
}

static void test_limited_rgb(void **state) {
  (void)state;
  const uint8_t in[3] = {16, 235, 8};
  cudalink_description limited = picture(CUDALINK_FORMAT_RGB8, 1, 1), full = limited;
  uint8_t out[3];
  limited.picture.range = CUDALINK_RANGE_LIMITED;
  convert(&limited, in, &full, out, NULL);
  assert_int_equal(out[0], 0);
  assert_int_equal(out[1], 255);
  assert_int_equal(out[2], 0);
  convert(&limited, in, &limited, out, NULL);
  assert_memory_equal(in, out, 3);
}

/* ---- orientation ---- */

static void test_origin_and_flip(void **state) {
  (void)state;
  const uint8_t in[4] = {1, 2, 3, 4};
  cudalink_description top = picture(CUDALINK_FORMAT_R8, 1, 4), bottom = top;
  uint8_t out[4];
  bottom.picture.origin = CUDALINK_ORIGIN_BOTTOM_LEFT;
  convert(&top, in, &top, out, NULL);
  assert_memory_equal(out, "\1\2\3\4", 4);
  convert(&bottom, in, &top, out, NULL);
  assert_memory_equal(out, "\4\3\2\1", 4);
  convert(&bottom, in, &top, out, OPTIONS(.flip = 1));
  assert_memory_equal(out, "\1\2\3\4", 4);
  convert(&bottom, in, &bottom, out, OPTIONS(.flip = 1));
  assert_memory_equal(out, "\4\3\2\1", 4);
}

/* ---- scale, mean, tensors ---- */

static void test_scale_and_mean(void **state) {
  (void)state;
  const float in[3][4] = {
      {0.5f, 1.5f, -9.0f, INFINITY}, {0.0f, NAN, 2.5f, -INFINITY}, {-0.5f, 3.5f, 100.0f, 1.0f}};
  cudalink_description chw = picture(CUDALINK_FORMAT_RGB_CHW32F, 4, 1);
  cudalink_description rgba = picture(CUDALINK_FORMAT_RGBA8, 4, 1);
  uint8_t out[4][4];
  float back[3][4];
  const cudalink_convert_options *options =
      OPTIONS(.scale = {1.0, 2.0, -2.0}, .mean = {1.0, 10.0, 8.0});
  convert(&chw, in, &rgba, out, options);
  static const uint8_t wanted[4][4] = {
      {2, 10, 9, 255}, {2, 0, 1, 255}, {0, 15, 0, 255}, {255, 0, 6, 255}};
  assert_memory_equal(out, wanted, sizeof wanted);
  convert(&rgba, wanted, &chw, back, options);
  assert_true(back[0][3] == 254.0f && back[1][0] == 0.0f && back[2][1] == 3.5f);
}

/* Values that float32 arithmetic would put on the wrong side of a tie. */
static void test_scale_is_exact(void **state) {
  (void)state;
  enum { COUNT = 4096 };
  static float in[COUNT * 4];
  static uint8_t out[COUNT * 4];
  const cudalink_convert_options *options =
      OPTIONS(.scale = {58.395, 57.12, 57.375, 255}, .mean = {123.675, 116.28, 103.53, 0});
  for (int i = 0; i < COUNT; i++)
    for (int k = 0; k < 4; k++) {
      float value = (float)((i % 256 + 0.5 - options->mean[k]) / options->scale[k]);
      in[i * 4 + k] = i / 256 % 2 ? nextafterf(value, 9.0f) : value;
    }
  cudalink_description hwc = tensor(CUDALINK_FLOAT32, 1, COUNT, 4);
  cudalink_description bgra = picture(CUDALINK_FORMAT_BGRA8, COUNT, 1);
  convert(&hwc, in, &bgra, out, options);
  for (int i = 0; i < COUNT * 4; i++) {
    int k = i % 4;
    double wanted = in[i] * options->scale[k] + options->mean[k];
    wanted = nearbyint(fmin(fmax(wanted, 0), 255));
    assert_int_equal(out[i / 4 * 4 + (k < 3 ? 2 - k : 3)], (int)wanted);
  }
}

/* A tensor with gaps everywhere and a one in front, into a planar one, into a picture. */
static void test_strided_tensor(void **state) {
  (void)state;
  cudalink_description source = {0}, planar = tensor(CUDALINK_FLOAT16, 3, 2, 5);
  cudalink_description target = picture(CUDALINK_FORMAT_RGBA32F, 5, 2);
  const int64_t shape[] = {1, 2, 5, 4};
  static const int64_t strides[] = {0, 480, 80, 12};
  float in[240] = {0}, out[2][5][4];
  uint16_t halves[3][2][5];
  assert_int_equal(0, cudalink_describe_tensor(&source, "", CUDALINK_FLOAT32, 4, shape));
  memcpy(source.planes[0].strides, strides, sizeof strides);
  source.planes[0].bytes = 480 + 4 * 80 + 3 * 12 + 4;
  for (int y = 0; y < 2; y++)
    for (int x = 0; x < 5; x++)
      for (int c = 0; c < 4; c++)
        in[y * 120 + x * 20 + c * 3] = (float)(y * 100 + x * 10 + c);
  convert(&source, in, &planar, halves, NULL);
  assert_int_equal(halves[1][0][0], 0x3c00); /* 1.0 */
  convert(&planar, halves, &target, out, NULL);
  for (int y = 0; y < 2; y++)
    for (int x = 0; x < 5; x++)
      for (int c = 0; c < 4; c++)
        assert_true(out[y][x][c] == (c == 3 ? 1.0f : (float)(y * 100 + x * 10 + c)));
}

/* float32 and float16 into float32 keep what arithmetic likes to lose. */
static void test_float_is_exact(void **state) {
  (void)state;
  const uint32_t in[4] = {0x80000000, 0x00000001, 0x7f800000, 0xff7fffff};
  const uint16_t halves[4] = {0x8000, 0x0001, 0xfc00, 0x7e00};
  uint32_t out[4];
  cudalink_description floats = picture(CUDALINK_FORMAT_R32F, 4, 1);
  cudalink_description half = picture(CUDALINK_FORMAT_R16F, 4, 1);
  convert(&floats, in, &floats, out, NULL);
  assert_memory_equal(in, out, sizeof in);
  convert(&half, halves, &floats, out, NULL);
  assert_int_equal(out[0], 0x80000000);
  assert_int_equal(out[1], 0x33800000);
  assert_int_equal(out[2], 0xff800000);
  assert_true((out[3] & 0x7fffffff) > 0x7f800000);
}

/* ---- what is not possible ---- */

static void test_no_path(void **state) {
  (void)state;
  cudalink_description red = picture(CUDALINK_FORMAT_R8, 4, 4);
  cudalink_description rg = picture(CUDALINK_FORMAT_RG16F, 4, 4);
  cudalink_description rgb = picture(CUDALINK_FORMAT_RGB8, 4, 4);
  cudalink_description gray = picture(CUDALINK_FORMAT_GRAY8, 4, 4);
  refuse(UNSUPPORTED, "R8 to RGB8", &red, &rgb, NULL);
  refuse(UNSUPPORTED, "RG16F to R8", &rg, &red, NULL);
  refuse(UNSUPPORTED, "R8 to GRAY8", &red, &gray, NULL);
  cudalink_description doubles = tensor(cudalink_dtype_make(CUDALINK_DTYPE_FLOAT, 64), 4, 4, 3);
  cudalink_description both = tensor(CUDALINK_FLOAT32, 3, 4, 4);
  cudalink_description none = tensor(CUDALINK_FLOAT32, 5, 4, 5), two = none;
  refuse(UNSUPPORTED, "64 bits", &doubles, &rgb, NULL);
  refuse(UNSUPPORTED, "planar or interleaved", &both, &rgb, NULL);
  refuse(UNSUPPORTED, "no channels", &rgb, &none, NULL);
  assert_int_equal(0, cudalink_describe_tensor(&two, "y", CUDALINK_FLOAT32, 0, NULL));
  refuse(UNSUPPORTED, "2 tensors", &two, &rgb, NULL);
}

static void test_wrong_options(void **state) {
  (void)state;
  cudalink_description source = picture(CUDALINK_FORMAT_RGBA8, 8, 6);
  cudalink_description target = picture(CUDALINK_FORMAT_RGB_CHW32F, 4, 3), small = target;
  cudalink_description yuv = picture(CUDALINK_FORMAT_NV12, 8, 6);
  refuse(INVALID, "do not fit", &source, &target, NULL);
  refuse(INVALID, "(5, 0)", &source, &target,
         OPTIONS(.crop_x = 5, .crop_width = 4, .crop_height = 3));
  refuse(INVALID, "(0, 4294967295)", &source, &target,
         OPTIONS(.crop_y = 0xffffffff, .crop_width = 4, .crop_height = 3));
  refuse(INVALID, "5 x 3", &source, &target, OPTIONS(.crop_width = 5, .crop_height = 3));
  refuse(INVALID, "flip is 2", &source, &source, OPTIONS(.flip = 2));
  refuse(INVALID, "range is 3", &source, &yuv, OPTIONS(.range = 3));
  refuse(UNSUPPORTED, "matrix 99", &source, &yuv, OPTIONS(.matrix = 99));
  refuse(UNSUPPORTED, "RGBA8 to NV12", &source, &yuv, OPTIONS(.scale = {1, 1, 1, 1}));
  small.picture.width = 8;
  refuse(INVALID, "shape", &source, &small, NULL);
  target = picture(CUDALINK_FORMAT_RGB_CHW32F, 8, 6);
  refuse(INVALID, "scale[2]", &source, &target, OPTIONS(.scale = {1, 1}));
  refuse(INVALID, "mean[1]", &source, &target, OPTIONS(.scale = {1, 1, 1}, .mean = {0, NAN}));
  refuse(INVALID, "scale[0]", &source, &target, OPTIONS(.scale = {1e-310, 1, 1}));
  cudalink_convert_options options = {.size = 8};
  refuse(INVALID, "options.size is 8", &source, &target, &options);
  refuse(INVALID, "target is NULL", &source, NULL, NULL);
  assert_int_equal(INVALID, cudalink_convert_plan_create(NULL, &source, &target, NULL));
  assert_int_equal(INVALID, cudalink_convert_host(NULL, &source, &target));
}

/* Options of a later version: longer, but nothing new said. */
static void test_longer_options(void **state) {
  (void)state;
  struct {
    cudalink_convert_options options;
    uint64_t later;
  } longer = {{.size = sizeof longer}, 0};
  cudalink_description rgb = picture(CUDALINK_FORMAT_RGB8, 1, 1);
  cudalink_convert_plan *plan;
  assert_int_equal(0, cudalink_convert_plan_create(&plan, &rgb, &rgb, &longer.options));
  cudalink_convert_plan_destroy(plan);
  longer.later = 1;
  refuse(INVALID, "this library knows", &rgb, &rgb, &longer.options);
}

static void test_target_that_repeats(void **state) {
  (void)state;
  cudalink_description rgb = picture(CUDALINK_FORMAT_RGB8, 5, 2);
  cudalink_description repeated = tensor(CUDALINK_UINT8, 2, 5, 3);
  repeated.planes[0].strides[0] = 0;
  repeated.planes[0].bytes = 15;
  uint8_t row[15] = {1, 2, 3, 4, 5, 6, 7}, out[30];
  convert(&repeated, row, &rgb, out, NULL);
  assert_memory_equal(out, row, 15);
  assert_memory_equal(out + 15, row, 15);
  refuse(INVALID, "stride of 0", &rgb, &repeated, NULL);
}

/* ---- the device's side ---- */

static int count_launch(void *context, const struct convert_kernel *kernel, unsigned grid_x,
                        unsigned grid_y, unsigned block_x, unsigned block_y,
                        const struct convert_parameters *parameters) {
  (void)grid_x, (void)grid_y, (void)block_x, (void)block_y, (void)parameters;
  ++*(int *)context;
  return strcmp(kernel->name, "convert_to_floats") ? CUDALINK_ERROR_GPU : CUDALINK_OK;
}

static void test_device_alignment(void **state) {
  (void)state;
  cudalink_description rgba = picture(CUDALINK_FORMAT_RGBA8, 4, 4);
  cudalink_description floats = picture(CUDALINK_FORMAT_RGBA32F, 4, 4);
  cudalink_convert_plan *plan;
  int launches = 0;
  struct convert_launcher launcher = {count_launch, &launches};
  assert_int_equal(0, cudalink_convert_plan_create(&plan, &rgba, &floats, NULL));
  struct convert_job job = convert_plan_bind(plan, 4096, 8192);
  assert_int_equal(0, convert_on_device(&job, &launcher));
  job = convert_plan_bind(plan, 4096 + 2, 8192);
  assert_int_equal(INVALID, convert_on_device(&job, &launcher));
  assert_non_null(strstr(cudalink_last_error(), "source"));
  job = convert_plan_bind(plan, 4096, 8192 + 1);
  assert_int_equal(INVALID, convert_on_device(&job, &launcher));
  assert_int_equal(launches, 1);
  cudalink_convert_plan_destroy(plan);
}

/* The PTX in the library has every kernel that a plan can ask for. */
static void test_ptx_has_the_kernels(void **state) {
  (void)state;
  for (int kernel = 0; kernel < CONVERT_KERNEL_COUNT; kernel++) {
    char entry[64] = ".visible .entry ";
    strcat(entry, convert_kernels[kernel].name);
    assert_non_null(strstr(convert_ptx, strcat(entry, "(")));
  }
  assert_null(convert_kernel_find("convert_nothing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_colour_bars),      cmocka_unit_test(test_who_says_the_colour),
      cmocka_unit_test(test_limited_rgb),      cmocka_unit_test(test_origin_and_flip),
      cmocka_unit_test(test_scale_and_mean),   cmocka_unit_test(test_scale_is_exact),
      cmocka_unit_test(test_strided_tensor),   cmocka_unit_test(test_float_is_exact),
      cmocka_unit_test(test_no_path),          cmocka_unit_test(test_wrong_options),
      cmocka_unit_test(test_longer_options),   cmocka_unit_test(test_target_that_repeats),
      cmocka_unit_test(test_device_alignment), cmocka_unit_test(test_ptx_has_the_kernels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
