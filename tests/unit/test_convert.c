/* SPDX-License-Identifier: MIT
 *
 * Every pair of formats against a reference in double that shares nothing with the library: its own
 * list of formats, its own addresses, colour computed from Kr and Kb pixel by pixel.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cudalink/convert.h"
#include "interop/convert/plan.h"

enum { INTERLEAVED, PLANAR, SEMI_PLANAR, STACKED, PAIRS, WORD10, SMALL_FLOATS, V210 };

struct reference {
  cudalink_format format;
  int layout;
  char order[5]; /* letters of the first plane, in memory */
  char sample;   /* b, w, h, f: byte, word, half, float */
  unsigned depth, shift, shift_x, shift_y;
};

#define F(name) CUDALINK_FORMAT_##name
static const struct reference references[] = {
    {F(R8), INTERLEAVED, "r", 'b', 8, 0, 0, 0},
    {F(R16), INTERLEAVED, "r", 'w', 16, 0, 0, 0},
    {F(R16F), INTERLEAVED, "r", 'h', 0, 0, 0, 0},
    {F(R32F), INTERLEAVED, "r", 'f', 0, 0, 0, 0},
    {F(RG8), INTERLEAVED, "rg", 'b', 8, 0, 0, 0},
    {F(RG16), INTERLEAVED, "rg", 'w', 16, 0, 0, 0},
    {F(RG16F), INTERLEAVED, "rg", 'h', 0, 0, 0, 0},
    {F(RG32F), INTERLEAVED, "rg", 'f', 0, 0, 0, 0},
    {F(RGB8), INTERLEAVED, "rgb", 'b', 8, 0, 0, 0},
    {F(RGBA8), INTERLEAVED, "rgba", 'b', 8, 0, 0, 0},
    {F(BGRA8), INTERLEAVED, "bgra", 'b', 8, 0, 0, 0},
    {F(RGBX8), INTERLEAVED, "rgbx", 'b', 8, 0, 0, 0},
    {F(BGRX8), INTERLEAVED, "bgrx", 'b', 8, 0, 0, 0},
    {F(RGBA16), INTERLEAVED, "rgba", 'w', 16, 0, 0, 0},
    {F(RGBA16F), INTERLEAVED, "rgba", 'h', 0, 0, 0, 0},
    {F(RGBA32F), INTERLEAVED, "rgba", 'f', 0, 0, 0, 0},
    {F(RGB10A2), WORD10, "rgba", 0, 10, 0, 0, 0},
    {F(R11G11B10F), SMALL_FLOATS, "rgb", 0, 0, 0, 0, 0},
    {F(RGB_CHW8), STACKED, "rgb", 'b', 8, 0, 0, 0},
    {F(RGB_CHW16F), STACKED, "rgb", 'h', 0, 0, 0, 0},
    {F(RGB_CHW32F), STACKED, "rgb", 'f', 0, 0, 0, 0},
    {F(GRAY8), INTERLEAVED, "y", 'b', 8, 0, 0, 0},
    {F(GRAY9), INTERLEAVED, "y", 'w', 9, 0, 0, 0},
    {F(GRAY10), INTERLEAVED, "y", 'w', 10, 0, 0, 0},
    {F(GRAY12), INTERLEAVED, "y", 'w', 12, 0, 0, 0},
    {F(GRAY16), INTERLEAVED, "y", 'w', 16, 0, 0, 0},
    {F(I411), PLANAR, "yuv", 'b', 8, 0, 2, 0},
    {F(I420), PLANAR, "yuv", 'b', 8, 0, 1, 1},
    {F(I422), PLANAR, "yuv", 'b', 8, 0, 1, 0},
    {F(I444), PLANAR, "yuv", 'b', 8, 0, 0, 0},
    {F(IA444), PLANAR, "yuva", 'b', 8, 0, 0, 0},
    {F(I420P9), PLANAR, "yuv", 'w', 9, 0, 1, 1},
    {F(I422P9), PLANAR, "yuv", 'w', 9, 0, 1, 0},
    {F(I444P9), PLANAR, "yuv", 'w', 9, 0, 0, 0},
    {F(I420P10), PLANAR, "yuv", 'w', 10, 0, 1, 1},
    {F(I422P10), PLANAR, "yuv", 'w', 10, 0, 1, 0},
    {F(I444P10), PLANAR, "yuv", 'w', 10, 0, 0, 0},
    {F(I420P12), PLANAR, "yuv", 'w', 12, 0, 1, 1},
    {F(I422P12), PLANAR, "yuv", 'w', 12, 0, 1, 0},
    {F(I444P12), PLANAR, "yuv", 'w', 12, 0, 0, 0},
    {F(I420P14), PLANAR, "yuv", 'w', 14, 0, 1, 1},
    {F(I422P14), PLANAR, "yuv", 'w', 14, 0, 1, 0},
    {F(I444P14), PLANAR, "yuv", 'w', 14, 0, 0, 0},
    {F(I420P16), PLANAR, "yuv", 'w', 16, 0, 1, 1},
    {F(I422P16), PLANAR, "yuv", 'w', 16, 0, 1, 0},
    {F(I444P16), PLANAR, "yuv", 'w', 16, 0, 0, 0},
    {F(NV12), SEMI_PLANAR, "yuv", 'b', 8, 0, 1, 1},
    {F(NV16), SEMI_PLANAR, "yuv", 'b', 8, 0, 1, 0},
    {F(P010), SEMI_PLANAR, "yuv", 'w', 10, 6, 1, 1},
    {F(P210), SEMI_PLANAR, "yuv", 'w', 10, 6, 1, 0},
    {F(UYVY), PAIRS, "uyvy", 'b', 8, 0, 1, 0},
    {F(YUYV), PAIRS, "yuyv", 'b', 8, 0, 1, 0},
    {F(UYVA), PAIRS, "uyvy", 'b', 8, 0, 1, 0},
    {F(Y416), INTERLEAVED, "uyva", 'w', 16, 0, 0, 0},
    {F(V210), V210, "yuv", 0, 10, 0, 1, 0},
};
#define REFERENCE_COUNT (sizeof references / sizeof *references)

/* ---- pictures ---- */

struct image {
  const struct reference *reference;
  cudalink_description description;
  uint64_t bytes;
  uint8_t *slot;
};

#define RED_ZONE 64u

static uint64_t random_state = 1;
static uint32_t random_bits(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 32);
}

static struct image make_image(const struct reference *reference, uint32_t width, uint32_t height,
                               uint32_t alignment) {
  struct image image = {.reference = reference};
  memset(&image.description, 0, sizeof image.description);
  assert_int_equal(0, cudalink_describe_picture(&image.description, reference->format, width,
                                                height, alignment));
  assert_int_equal(0, cudalink_description_bytes(&image.description, &image.bytes));
  image.slot = (uint8_t *)malloc(image.bytes + 2 * RED_ZONE) + RED_ZONE;
  memset(image.slot - RED_ZONE, 0xee, image.bytes + 2 * RED_ZONE);
  return image;
}

static void free_image(struct image *image) {
  for (uint32_t i = 0; i < RED_ZONE; i++) {
    assert_int_equal(image->slot[-(int)i - 1], 0xee);
    assert_int_equal(image->slot[image->bytes + i], 0xee);
  }
  free(image->slot - RED_ZONE);
}

/* Mostly 0..1, some outside, some not numbers. */
static float random_float(void) {
  switch (random_bits() % 64) {
  case 0: return NAN;
  case 1: return INFINITY;
  case 2: return -INFINITY;
  case 3: return -0.0f;
  case 4: return 1e6f;
  case 5: return 0.5f;
  default: return (float)random_bits() / 4294967296.0f * 1.5f - 0.25f;
  }
}

/* Up to 2, some not numbers, some smaller than any normal number. */
static uint16_t random_half(void) {
  static const uint16_t special[] = {0x7e00, 0x7c00, 0xfc00, 0x8000,
                                     0x3800, 0x0001, 0x03ff, 0x7bff};
  uint32_t bits = random_bits();
  if (bits % 8 == 0) return special[bits / 8 % 8];
  uint32_t sign = bits % 8 == 1 ? 0x8000 : 0;
  return (uint16_t)(sign | (8 + (bits >> 8) % 8) << 10 | (bits >> 16 & 1023));
}

static void fill_random(struct image *image) {
  const struct reference *reference = image->reference;
  for (uint64_t i = 0; i < image->bytes; i++)
    image->slot[i] = (uint8_t)random_bits();
  for (uint64_t i = 0; reference->sample == 'f' && i + 4 <= image->bytes; i += 4) {
    float value = random_float();
    memcpy(image->slot + i, &value, 4);
  }
  for (uint64_t i = 0; i + 2 <= image->bytes; i += 2) {
    uint16_t word;
    memcpy(&word, image->slot + i, 2);
    if (reference->sample == 'h') word = random_half();
    if (reference->sample == 'w' && !reference->shift)
      word &= (uint16_t)((1u << reference->depth) - 1);
    memcpy(image->slot + i, &word, 2);
  }
}

/* ---- the numbers in a picture, by the definition of each format ---- */

static double small_float(uint32_t bits, int mantissa) {
  uint32_t exponent = bits >> mantissa, fraction = bits & ((1u << mantissa) - 1);
  if (exponent == 31) return fraction ? (double)NAN : (double)INFINITY;
  if (exponent == 0) return ldexp(fraction, -14 - mantissa);
  return ldexp(fraction + (1u << mantissa), (int)exponent - 15 - mantissa);
}

static double load(const uint8_t *address, const struct reference *reference) {
  uint16_t word;
  float value;
  switch (reference->sample) {
  case 'b': return *address;
  case 'w': return memcpy(&word, address, 2), word >> reference->shift;
  case 'h':
    memcpy(&word, address, 2);
    return word & 0x8000 ? -small_float(word & 0x7fff, 10) : small_float(word, 10);
  default: return memcpy(&value, address, 4), (double)value;
  }
}

static int is_rgb(const struct reference *reference) {
  return strchr(reference->order, 'r') != NULL;
}

/* 1 when the picture has channel i (r, g, b, a or y, u, v, a); x counts as none. */
static int has_channel(const struct reference *reference, int i) {
  if (i == 3 && reference->format == F(UYVA)) return 1;
  return strchr(reference->order, (is_rgb(reference) ? "rgba" : "yuva")[i]) != NULL;
}

static double number_at(const struct image *image, uint32_t x, uint32_t y, int i) {
  const struct reference *reference = image->reference;
  const cudalink_plane *planes = image->description.planes;
  const cudalink_plane *plane = &planes[0];
  char letter = (is_rgb(reference) ? "rgba" : "yuva")[i];
  size_t size = reference->sample == 'f' ? 4 : reference->sample == 'b' ? 1 : 2;
  int is_chroma = !is_rgb(reference) && (i == 1 || i == 2);
  uint32_t sx = is_chroma ? x >> reference->shift_x : x;
  uint32_t sy = is_chroma ? y >> reference->shift_y : y;
  size_t index;
  uint32_t word;
  switch (reference->layout) {
  case INTERLEAVED:
    index = (size_t)(strchr(reference->order, letter) - reference->order);
    index += x * strlen(reference->order);
    break;
  case PLANAR:
    plane = &planes[i];
    index = sx, y = sy;
    break;
  case SEMI_PLANAR:
    plane = &planes[is_chroma];
    index = is_chroma ? sx * 2 + (unsigned)i - 1 : x, y = sy;
    break;
  case STACKED:
    return load(image->slot + plane->offset + (unsigned)i * (uint64_t)plane->strides[0] +
                    y * (uint64_t)plane->strides[1] + x * size,
                reference);
  case PAIRS:
    if (i == 3) plane = &planes[1];
    index = i == 3   ? x
            : i == 0 ? x * 2 + (reference->order[0] == 'u')
                     : x / 2 * 4 + (size_t)(strchr(reference->order, letter) - reference->order);
    break;
  case V210: {
    /* Twelve numbers in four words: U0 Y0 V0 | Y1 U1 Y2 | V1 Y3 U2 | Y4 V2 Y5. */
    static const int places[3][6] = {{1, 3, 5, 7, 9, 11}, {0, 0, 4, 4, 8, 8}, {2, 2, 6, 6, 10, 10}};
    int place = places[i][x % 6];
    memcpy(&word,
           image->slot + plane->offset + y * (uint64_t)plane->strides[0] + x / 6 * 16 +
               (unsigned)(place / 3 * 4),
           4);
    return word >> (place % 3 * 10) & 1023;
  }
  default:
    memcpy(&word, image->slot + plane->offset + y * (uint64_t)plane->strides[0] + x * 4, 4);
    if (reference->layout == WORD10) return i == 3 ? word >> 30 : word >> (10 * i) & 1023;
    return i == 2 ? small_float(word >> 22, 5) : small_float(word >> (11 * i) & 2047, 6);
  }
  return load(image->slot + plane->offset + y * (uint64_t)plane->strides[0] + index * size,
              reference);
}

/* ---- colour ---- */

struct colour {
  double kr, kb;
  int full;
};

static void black_and_span(const struct reference *reference, int i, int full, double *black,
                           double *span) {
  double unit = reference->depth ? ldexp(1.0, (int)reference->depth - 8) : 1.0;
  *black = 0.0;
  *span = reference->depth ? ldexp(1.0, (int)reference->depth) - 1.0 : 1.0;
  if (i == 3 && reference->format == F(RGB10A2)) *span = 3.0;
  if (is_rgb(reference) || i == 3) return;
  if (i > 0) *black = 128 * unit;
  if (full) return;
  if (i == 0) *black = 16 * unit;
  *span = (i == 0 ? 219 : 224) * unit;
}

/* One pixel of the source as 0..1 (Cb, Cr -0.5..0.5). */
static void read_reference(const struct image *image, const struct colour *colour, int mix,
                           uint32_t x, uint32_t y, double *value) {
  for (int i = 0; i < 4; i++) {
    double black, span;
    black_and_span(image->reference, i, colour->full, &black, &span);
    value[i] = i == 3 ? 1.0 : 0.0;
    if (!has_channel(image->reference, i)) continue;
    value[i] = number_at(image, x, y, i);
    if (mix && i < 3 && isnan(value[i])) value[i] = 0.0;
    if (mix && i < 3) value[i] = fmax(fmin(value[i], 65504.0), -65504.0);
    value[i] = (value[i] - black) / span;
  }
}

static void yuv_to_rgb(double *value, const struct colour *colour) {
  double kg = 1 - colour->kr - colour->kb;
  double red = value[0] + 2 * (1 - colour->kr) * value[2];
  double blue = value[0] + 2 * (1 - colour->kb) * value[1];
  double green = (value[0] - colour->kr * red - colour->kb * blue) / kg;
  value[0] = red, value[1] = green, value[2] = blue;
}

static void rgb_to_yuv(double *value, const struct colour *colour) {
  double kg = 1 - colour->kr - colour->kb;
  double luma = colour->kr * value[0] + kg * value[1] + colour->kb * value[2];
  double cb = (value[2] - luma) / (2 * (1 - colour->kb));
  double cr = (value[0] - luma) / (2 * (1 - colour->kr));
  value[0] = luma, value[1] = cb, value[2] = cr;
}

/* ---- comparison ---- */

struct check {
  struct image source, target;
  struct colour from, into;
  uint32_t crop_x, crop_y;
  int flip, mix;
};

/* What channel i of the target should be at a pixel, before rounding. */
static double expected(const struct check *check, uint32_t x, uint32_t y, int i) {
  const struct reference *reference = check->target.reference;
  uint32_t width = check->target.description.picture.width;
  uint32_t height = check->target.description.picture.height;
  int shared = !is_rgb(reference) && (i == 1 || i == 2);
  uint32_t columns = shared ? 1u << reference->shift_x : 1;
  uint32_t rows = shared ? 1u << reference->shift_y : 1;
  double sum = 0.0, black, span;
  for (uint32_t k = 0; k < rows * columns; k++) {
    double value[4];
    uint32_t from_x = x / columns * columns + k % columns, from_y = y / rows * rows + k / columns;
    if (from_x >= width) from_x = width - 1;
    if (from_y >= height) from_y = height - 1;
    if (check->flip) from_y = height - 1 - from_y;
    read_reference(&check->source, &check->from, check->mix, check->crop_x + from_x,
                   check->crop_y + from_y, value);
    if (check->mix && !is_rgb(check->source.reference)) yuv_to_rgb(value, &check->from);
    if (check->mix && !is_rgb(reference)) rgb_to_yuv(value, &check->into);
    sum += value[i];
  }
  black_and_span(reference, i, check->into.full, &black, &span);
  return sum / (rows * columns) * span + black;
}

static int integer_is_right(const struct check *check, double wanted, double got, int i) {
  const struct reference *reference = check->target.reference;
  double largest = ldexp(1.0, (int)reference->depth) - 1, smallest = 0.0;
  if (i == 3 && reference->format == F(RGB10A2)) largest = 3;
  if (reference->layout == V210) smallest = 4, largest = 1019;
  if (isnan(wanted)) wanted = 0.0;
  wanted = fmin(fmax(wanted, smallest), largest);
  if (got == nearbyint(wanted)) return 1;
  /* A tie that only exact arithmetic would see. */
  double to_tie = fabs(wanted - floor(wanted) - 0.5);
  return to_tie < 1e-9 && fabs(got - wanted) < 0.5 + 1e-9;
}

static int float_is_right(const struct check *check, double wanted, double got, int i) {
  const struct reference *reference = check->target.reference;
  double step = 4 * ldexp(1.0, -23) * fmax(1.0, fabs(wanted));
  if (reference->sample == 'h') step += ldexp(fmax(fabs(wanted), ldexp(1.0, -14)), -11);
  if (reference->layout == SMALL_FLOATS) {
    if (wanted < 0) wanted = 0.0;
    if (!isinf(wanted) && !isnan(wanted)) wanted = fmin(wanted, i == 2 ? 64512 : 65024);
    step += ldexp(fmax(wanted, ldexp(1.0, -14)), i == 2 ? -6 : -7);
  }
  if (reference->sample == 'h' && fabs(wanted) >= 65520) wanted = copysign(INFINITY, wanted);
  if (isnan(wanted)) return isnan(got);
  return isinf(wanted) ? got == wanted : fabs(got - wanted) <= step;
}

static void check_pixels(const struct check *check) {
  const struct reference *reference = check->target.reference;
  for (uint32_t y = 0; y < check->target.description.picture.height; y++)
    for (uint32_t x = 0; x < check->target.description.picture.width; x++)
      for (int i = 0; i < 4; i++) {
        if (!has_channel(reference, i)) continue;
        double wanted = expected(check, x, y, i), got = number_at(&check->target, x, y, i);
        if (reference->depth ? integer_is_right(check, wanted, got, i)
                             : float_is_right(check, wanted, got, i))
          continue;
        fail_msg("%s to %s, channel %d at (%u, %u): %.12g wanted, %.12g found",
                 cudalink_format_name(check->source.reference->format),
                 cudalink_format_name(reference->format), i, x, y, wanted, got);
      }
}

/* Stands in for a GPU: runs the twin of the kernel, and sees that the grid covers its cells. */
static int launch_twin(void *context, const struct convert_kernel *kernel, unsigned grid_x,
                       unsigned grid_y, unsigned block_x, unsigned block_y,
                       const struct convert_parameters *parameters) {
  assert_in_range(grid_x * block_x, parameters->cells_x, parameters->cells_x + block_x - 1);
  assert_in_range(grid_y * block_y, parameters->cells_y, parameters->cells_y + block_y - 1);
  kernel->run(parameters);
  ++*(int *)context;
  return CUDALINK_OK;
}

/* Converts twice, into different backgrounds: bytes that follow the background were not written. */
static void check_written(struct check *check, const cudalink_convert_plan *plan) {
  struct image *target = &check->target;
  uint64_t written = 0, wanted;
  uint8_t *first = malloc(target->bytes);
  memset(target->slot, 0xa5, target->bytes);
  assert_int_equal(0, cudalink_convert_host(plan, check->source.slot, target->slot));
  memcpy(first, target->slot, target->bytes);
  memset(target->slot, 0x5a, target->bytes);
  int launched = 0;
  struct convert_launcher launcher = {launch_twin, &launched};
  struct convert_job job =
      convert_plan_bind(plan, (uintptr_t)check->source.slot, (uintptr_t)target->slot);
  assert_int_equal(0, convert_on_device(&job, &launcher));
  assert_int_equal(launched, 1);
  for (uint64_t i = 0; i < target->bytes; i++)
    written += first[i] == target->slot[i];
  free(first);
  assert_int_equal(0, cudalink_packed_bytes(&target->description, &wanted));
  const cudalink_picture *picture = &target->description.picture;
  if (target->reference->layout == V210)
    wanted = (uint64_t)(picture->width + 5) / 6 * 16 * picture->height;
  assert_int_equal(written, wanted);
}

/* The X of RGBX8 is the fourth byte and becomes 255, whatever the source has there. */
static void check_filler(const struct image *image) {
  if (!strchr(image->reference->order, 'x')) return;
  const cudalink_picture *picture = &image->description.picture;
  for (uint32_t y = 0; y < picture->height; y++)
    for (uint32_t x = 0; x < picture->width; x++)
      assert_int_equal(
          image->slot[y * (uint64_t)image->description.planes[0].strides[0] + x * 4 + 3], 255);
}

static int pair_exists(const struct reference *source, const struct reference *target) {
  size_t from = is_rgb(source) ? strlen(source->order) : 3;
  size_t into = is_rgb(target) ? strlen(target->order) : 3;
  return (from < 3 ? from : 3) == (into < 3 ? into : 3);
}

struct variant {
  uint32_t width, height; /* of the target */
  uint32_t crop_x, crop_y, flip, from_matrix, into_matrix, from_full, into_full, alignment;
};

static struct colour colour_of(uint32_t matrix, uint32_t full) {
  struct colour colour = {0.2126, 0.0722, full == 1};
  if (matrix == 6) colour.kr = 0.299, colour.kb = 0.114;
  if (matrix == 9) colour.kr = 0.2627, colour.kb = 0.0593;
  return colour;
}

static void check_pair(const struct reference *source, const struct reference *target,
                       const struct variant *variant) {
  struct check check = {
      .source = make_image(source, variant->width + 2 * variant->crop_x,
                           variant->height + 2 * variant->crop_y, variant->alignment),
      .target = make_image(target, variant->width, variant->height, variant->alignment),
      .from = colour_of(variant->from_matrix, variant->from_full),
      .into = colour_of(variant->into_matrix, variant->into_full),
      .crop_x = variant->crop_x,
      .crop_y = variant->crop_y,
      .flip = variant->flip == 1};
  check.mix =
      is_rgb(source) != is_rgb(target) || (!is_rgb(source) && check.from.kr != check.into.kr);
  cudalink_picture *from = &check.source.description.picture;
  cudalink_picture *into = &check.target.description.picture;
  if (!is_rgb(source)) from->matrix = (uint8_t)variant->from_matrix;
  if (!is_rgb(target)) into->matrix = (uint8_t)variant->into_matrix;
  if (!is_rgb(source))
    from->range = variant->from_full ? CUDALINK_RANGE_FULL : CUDALINK_RANGE_LIMITED;
  if (!is_rgb(target))
    into->range = variant->into_full ? CUDALINK_RANGE_FULL : CUDALINK_RANGE_LIMITED;
  cudalink_convert_options options = {CUDALINK_CONVERT_DEFAULTS,    .flip = variant->flip,
                                      .crop_x = variant->crop_x,    .crop_y = variant->crop_y,
                                      .crop_width = variant->width, .crop_height = variant->height};
  fill_random(&check.source);
  cudalink_convert_plan *plan;
  assert_int_equal(0, cudalink_convert_plan_create(&plan, &check.source.description,
                                                   &check.target.description, &options));
  check_written(&check, plan);
  check_pixels(&check);
  check_filler(&check.target);
  cudalink_convert_plan_destroy(plan);
  free_image(&check.source);
  free_image(&check.target);
}

static const struct reference *find(cudalink_format format) {
  size_t k = 0;
  while (references[k].format != format)
    k++;
  return &references[k];
}

static void check_all_pairs(const struct variant *variant) {
  for (size_t i = 0; i < REFERENCE_COUNT; i++)
    for (size_t k = 0; k < REFERENCE_COUNT; k++) {
      if (!pair_exists(&references[i], &references[k])) continue;
      random_state = i * 1000 + k;
      check_pair(&references[i], &references[k], variant);
    }
}

static void test_odd_size(void **state) {
  (void)state;
  check_all_pairs(&(struct variant){13, 7, 0, 0, 0, 1, 1, 0, 0, 0});
}

static void test_one_pixel(void **state) {
  (void)state;
  check_all_pairs(&(struct variant){1, 1, 0, 0, 0, 1, 1, 0, 0, 1});
}

static void test_crop_and_flip(void **state) {
  (void)state;
  check_all_pairs(&(struct variant){8, 6, 3, 1, 1, 9, 9, 0, 0, 64});
}

static void test_full_range_and_other_matrix(void **state) {
  (void)state;
  check_all_pairs(&(struct variant){12, 4, 0, 0, 0, 6, 1, 1, 0, 0});
  check_all_pairs(&(struct variant){6, 5, 0, 0, 1, 1, 6, 0, 1, 0});
}

/* Many pixels of the pairs that matter most: what float gets wrong near a tie is one in thousands.
 * */
static void test_many_pixels(void **state) {
  (void)state;
  static const struct {
    cudalink_format from, into;
  } pairs[] = {{F(I444), F(RGBA8)},    {F(RGBA8), F(I444)},   {F(RGBA8), F(NV12)},
               {F(I444P10), F(BGRA8)}, {F(RGBA16), F(P010)},  {F(RGBA32F), F(NV12)},
               {F(RGBA32F), F(RGBA8)}, {F(RGBA16), F(RGBA8)}, {F(RGB10A2), F(RGBA8)},
               {F(I444P10), F(I420)},  {F(V210), F(RGBA16)},  {F(RGBA16F), F(V210)}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    for (uint32_t full = 0; full < 2; full++)
      check_pair(find(pairs[i].from), find(pairs[i].into),
                 &(struct variant){200, 200, 0, 0, 0, 1 + 8 * full, 1 + 8 * full, full, full, 0});
}

/* The list above has every format of the library. */
static void test_every_format_is_here(void **state) {
  (void)state;
  size_t count = 0;
  for (cudalink_format f = cudalink_format_next(0); f; f = cudalink_format_next(f), count++) {
    size_t k = 0;
    while (k < REFERENCE_COUNT && references[k].format != f)
      k++;
    if (k == REFERENCE_COUNT) fail_msg("%s is missing", cudalink_format_name(f));
  }
  assert_int_equal(count, REFERENCE_COUNT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_format_is_here),
      cmocka_unit_test(test_odd_size),
      cmocka_unit_test(test_one_pixel),
      cmocka_unit_test(test_crop_and_flip),
      cmocka_unit_test(test_full_range_and_other_matrix),
      cmocka_unit_test(test_many_pixels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
