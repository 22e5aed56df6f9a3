/* SPDX-License-Identifier: MIT
 *
 * Conversion between RGB and Y'CbCr against ffmpeg's swscale, both ways. swscale rounds less
 * strictly and filters chroma, so the picture is smooth and two levels of 8 bits are allowed.
 * Skipped where there is no ffmpeg.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cudalink/convert.h"

#define WIDTH 256u
#define HEIGHT 192u
#define RGBA_BYTES (WIDTH * HEIGHT * 4)

struct colour {
  uint8_t matrix, range;
  const char *matrix_name, *range_name; /* ffmpeg's */
};
static const struct colour colours[] = {{1, CUDALINK_RANGE_LIMITED, "bt709", "tv"},
                                        {6, CUDALINK_RANGE_LIMITED, "bt601", "tv"},
                                        {9, CUDALINK_RANGE_FULL, "bt2020", "pc"}};

static const struct {
  cudalink_format format;
  const char *name; /* ffmpeg's */
  unsigned depth, shift;
} formats[] = {
    {CUDALINK_FORMAT_NV12, "nv12", 8, 0},           {CUDALINK_FORMAT_I420, "yuv420p", 8, 0},
    {CUDALINK_FORMAT_I422, "yuv422p", 8, 0},        {CUDALINK_FORMAT_I444, "yuv444p", 8, 0},
    {CUDALINK_FORMAT_YUYV, "yuyv422", 8, 0},        {CUDALINK_FORMAT_UYVY, "uyvy422", 8, 0},
    {CUDALINK_FORMAT_P010, "p010le", 10, 6},        {CUDALINK_FORMAT_I420P10, "yuv420p10le", 10, 0},
    {CUDALINK_FORMAT_I444P12, "yuv444p12le", 12, 0}};

static char folder[] = "/tmp/cudalink-convert-XXXXXX";

static void write_file(const char *name, const void *bytes, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static void read_file(const char *name, void *bytes, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fread(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* Lets ffmpeg convert the file "in" to the file "out". */
static void run_ffmpeg(const char *from, const char *into, const struct colour *colour,
                       int to_rgb) {
  char command[512];
  snprintf(command, sizeof command,
           "ffmpeg -v error -y -f rawvideo -pix_fmt %s -s %ux%u -i %s/in -vf "
           "scale=%s_color_matrix=%s:in_range=%s:out_range=%s:"
           "flags=accurate_rnd+full_chroma_int+full_chroma_inp+%s "
           "-pix_fmt %s -f rawvideo %s/out </dev/null",
           from, WIDTH, HEIGHT, folder, to_rgb ? "in" : "out", colour->matrix_name,
           to_rgb ? colour->range_name : "pc", to_rgb ? "pc" : colour->range_name,
           to_rgb ? "neighbor" : "bilinear", into, folder);
  assert_int_equal(system(command), 0);
}

static void fill_smooth(uint8_t *rgba) {
  for (uint32_t y = 0; y < HEIGHT; y++)
    for (uint32_t x = 0; x < WIDTH; x++) {
      uint8_t *pixel = rgba + (y * WIDTH + x) * 4;
      pixel[0] = (uint8_t)(20 + x * 3 / 4);
      pixel[1] = (uint8_t)(230 - y);
      pixel[2] = (uint8_t)(40 + (x + y) / 4);
      pixel[3] = 255;
    }
}

static cudalink_description describe(cudalink_format format, const struct colour *colour) {
  cudalink_description description = {0};
  assert_int_equal(0, cudalink_describe_picture(&description, format, WIDTH, HEIGHT, 1));
  if (colour) description.picture.matrix = colour->matrix;
  if (colour) description.picture.range = colour->range;
  return description;
}

static void convert(const cudalink_description *source, const void *from,
                    const cudalink_description *target, void *into) {
  cudalink_convert_plan *plan;
  assert_int_equal(0, cudalink_convert_plan_create(&plan, source, target, NULL));
  assert_int_equal(0, cudalink_convert_host(plan, from, into));
  cudalink_convert_plan_destroy(plan);
}

static uint32_t sample_at(const uint8_t *bytes, size_t i, unsigned depth, unsigned shift) {
  return depth == 8 ? bytes[i] : (uint32_t)(bytes[2 * i] | bytes[2 * i + 1] << 8) >> shift;
}

static void check_same(const char *what, const char *colour, const uint8_t *ours,
                       const uint8_t *theirs, size_t samples, unsigned depth, unsigned shift) {
  uint32_t allowed = 2u << (depth - 8);
  for (size_t i = 0; i < samples; i++) {
    uint32_t a = sample_at(ours, i, depth, shift), b = sample_at(theirs, i, depth, shift);
    if ((a > b ? a - b : b - a) > allowed)
      fail_msg("%s, %s, sample %zu: %u here, %u by ffmpeg", what, colour, i, a, b);
  }
}

static void test_into_yuv_and_back(void **state) {
  (void)state;
  static uint8_t rgba[RGBA_BYTES], back[RGBA_BYTES], their_back[RGBA_BYTES];
  fill_smooth(rgba);
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
    for (size_t c = 0; c < sizeof colours / sizeof *colours; c++) {
      cudalink_description source = describe(CUDALINK_FORMAT_RGBA8, NULL);
      cudalink_description target = describe(formats[f].format, &colours[c]);
      uint64_t bytes;
      assert_int_equal(0, cudalink_description_bytes(&target, &bytes));
      uint8_t *ours = malloc(bytes), *theirs = malloc(bytes);
      convert(&source, rgba, &target, ours);
      write_file("in", rgba, sizeof rgba);
      run_ffmpeg("rgba", formats[f].name, &colours[c], 0);
      read_file("out", theirs, bytes);
      check_same(formats[f].name, colours[c].matrix_name, ours, theirs,
                 bytes / (formats[f].depth == 8 ? 1 : 2), formats[f].depth, formats[f].shift);
      convert(&target, ours, &source, back);
      write_file("in", ours, bytes);
      run_ffmpeg(formats[f].name, "rgba", &colours[c], 1);
      read_file("out", their_back, sizeof their_back);
      check_same(formats[f].name, "to RGBA8", back, their_back, sizeof back, 8, 0);
      free(ours);
      free(theirs);
    }
}

/* Same numbers, other places: swscale and this library must agree exactly. v210 is not a pixel
 * format of ffmpeg's but a codec, so it is decoded and encoded. */
static void test_v210(void **state) {
  (void)state;
  cudalink_description planar = describe(CUDALINK_FORMAT_I422P10, NULL);
  cudalink_description v210 = describe(CUDALINK_FORMAT_V210, NULL);
  uint64_t planar_bytes, v210_bytes;
  assert_int_equal(0, cudalink_description_bytes(&planar, &planar_bytes));
  assert_int_equal(0, cudalink_description_bytes(&v210, &v210_bytes));
  uint8_t *in = malloc(planar_bytes), *packed = calloc(1, v210_bytes), *out = malloc(planar_bytes);
  uint8_t *theirs = malloc(v210_bytes);
  for (size_t i = 0; i < planar_bytes / 2; i++) {
    uint32_t code = 4 + (uint32_t)(i * 2654435761u >> 7) % 1016;
    in[2 * i] = (uint8_t)code, in[2 * i + 1] = (uint8_t)(code >> 8);
  }
  convert(&planar, in, &v210, packed);
  convert(&v210, packed, &planar, out);
  assert_memory_equal(in, out, planar_bytes);
  write_file("in", in, planar_bytes);
  char command[300];
  snprintf(command, sizeof command,
           "ffmpeg -v error -y -f rawvideo -pix_fmt yuv422p10le -s %ux%u -i %s/in -c:v v210 "
           "-f rawvideo %s/out </dev/null",
           WIDTH, HEIGHT, folder, folder);
  assert_int_equal(system(command), 0);
  read_file("out", theirs, v210_bytes);
  /* Only whole groups: bytes behind them are padding, of which this library says nothing. */
  for (uint32_t y = 0; y < HEIGHT; y++) {
    size_t row = y * (size_t)v210.planes[0].strides[0];
    assert_memory_equal(packed + row, theirs + row, WIDTH / 6 * 16);
  }
  free(in);
  free(packed);
  free(out);
  free(theirs);
}

static int remove_folder(void **state) {
  (void)state;
  char path[64];
  snprintf(path, sizeof path, "%s/in", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/out", folder);
  unlink(path);
  return rmdir(folder);
}

int main(void) {
  if (system("ffmpeg -version >/dev/null 2>&1")) {
    puts("skip: needs ffmpeg");
    return 77;
  }
  if (!mkdtemp(folder)) return perror("mkdtemp"), 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_into_yuv_and_back),
      cmocka_unit_test(test_v210),
  };
  return cmocka_run_group_tests(tests, NULL, remove_folder);
}
