/* SPDX-License-Identifier: MIT
 *
 * Colour: matrices and ranges of ITU-T H.273, worked out in double once per plan.
 */
#include "interop/convert/color.h"

#include <string.h>

#include "base/error.h"

#define MATRIX_NOT_SAID 2

/* What the numbers of one side mean: channel = (number - black) / span, so that R'G'B' and Y' lie
 * in 0..1, Cb and Cr in -0.5..0.5. */
struct meaning {
  double black[4];
  double span[4];
  double red_weight;  /* Kr; 0 on an RGB side */
  double blue_weight; /* Kb */
};

/* Kr and Kb: H.273, table 4. */
static int find_weights(uint32_t matrix, struct meaning *meaning) {
  static const struct {
    uint32_t matrix;
    double red, blue;
  } weights[] = {{1, 0.2126, 0.0722}, {4, 0.30, 0.11},   {5, 0.299, 0.114},
                 {6, 0.299, 0.114},   {7, 0.212, 0.087}, {9, 0.2627, 0.0593}};
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    if (weights[i].matrix == matrix) {
      meaning->red_weight = weights[i].red;
      meaning->blue_weight = weights[i].blue;
      return CUDALINK_OK;
    }
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "convert: matrix %u of H.273 is not supported; 1 (BT.709), 4 (FCC), 5 and 6 "
                   "(BT.601), 7 (SMPTE 240M) and 9 (BT.2020) are",
                   matrix);
}

static double largest(uint32_t depth) { return (double)((1u << depth) - 1); }

/* Quantisation as in H.273, clause 8.3. Alpha always has full range. */
static void set_range(struct meaning *meaning, const struct convert_layout *layout, int limited) {
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t depth = layout->depths[i];
    int is_chroma = layout->family == CONVERT_YUV && (i == 1 || i == 2);
    meaning->black[i] = 0.0;
    meaning->span[i] = depth ? largest(depth) : 1.0;
    if (!depth || i == 3) continue;
    double unit = (double)(1u << depth) / 256.0; /* one step of 8 bits */
    if (is_chroma) meaning->black[i] = 128.0 * unit;
    if (!limited) continue;
    if (!is_chroma) meaning->black[i] = 16.0 * unit;
    meaning->span[i] = (is_chroma ? 224.0 : 219.0) * unit;
  }
}

/* The first of these that says something: the side's own description, the option, the other side if
 * that is Y'CbCr too, the default. `not_said` is one more number, besides 0 for options. */
static uint32_t first_said(uint32_t own, uint32_t option, uint32_t other, uint32_t not_said,
                           uint32_t usual) {
  if (own != not_said) return own;
  if (option != 0 && option != not_said) return option;
  return other != not_said ? other : usual;
}

static int find_meaning(struct meaning *meaning, const struct convert_layout *layout,
                        const cudalink_picture *picture, const struct convert_layout *other,
                        const cudalink_picture *other_picture,
                        const cudalink_convert_options *options) {
  *meaning = (struct meaning){.red_weight = 0.0};
  if (layout->family != CONVERT_YUV) {
    set_range(meaning, layout, picture->range == CUDALINK_RANGE_LIMITED);
    return CUDALINK_OK;
  }
  int both = other->family == CONVERT_YUV;
  uint32_t range = first_said(picture->range, options->range, both ? other_picture->range : 0, 0,
                              CUDALINK_RANGE_LIMITED);
  uint32_t matrix = first_said(picture->matrix, options->matrix,
                               both ? other_picture->matrix : MATRIX_NOT_SAID, MATRIX_NOT_SAID, 1);
  set_range(meaning, layout, range == CUDALINK_RANGE_LIMITED);
  return find_weights(matrix, meaning);
}

/* Y'CbCr to R'G'B': the inverse of the next one. */
static void to_rgb(double matrix[3][3], const struct meaning *meaning) {
  double red = meaning->red_weight, blue = meaning->blue_weight, green = 1.0 - red - blue;
  double rows[3][3] = {{1.0, 0.0, 2.0 * (1.0 - red)},
                       {1.0, -2.0 * (1.0 - blue) * blue / green, -2.0 * (1.0 - red) * red / green},
                       {1.0, 2.0 * (1.0 - blue), 0.0}};
  memcpy(matrix, rows, sizeof rows);
}

/* R'G'B' to Y'CbCr: Y' = Kr R' + Kg G' + Kb B', Cb = (B' - Y') / (2 (1 - Kb)), Cr likewise. */
static void to_yuv(double matrix[3][3], const struct meaning *meaning) {
  double red = meaning->red_weight, blue = meaning->blue_weight, green = 1.0 - red - blue;
  double blue_size = 2.0 * (1.0 - blue), red_size = 2.0 * (1.0 - red);
  double rows[3][3] = {{red, green, blue},
                       {-red / blue_size, -green / blue_size, 0.5},
                       {0.5, -green / red_size, -blue / red_size}};
  memcpy(matrix, rows, sizeof rows);
}

static void multiply(double product[3][3], double left[3][3], double right[3][3]) {
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      product[i][j] =
          left[i][0] * right[0][j] + left[i][1] * right[1][j] + left[i][2] * right[2][j];
}

static void set_matrix(struct convert_parameters *parameters, const struct meaning *source,
                       const struct meaning *target) {
  double mixed[3][3], from[3][3], into[3][3];
  int from_yuv = source->red_weight > 0.0, into_yuv = target->red_weight > 0.0;
  if (from_yuv) to_rgb(from, source);
  if (into_yuv) to_yuv(into, target);
  if (from_yuv && into_yuv)
    multiply(mixed, into, from);
  else
    memcpy(mixed, from_yuv ? from : into, sizeof mixed);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      parameters->exact.matrix[i][j] = target->span[i] * mixed[i][j] / source->span[j];
}

static int scale_is_said(const cudalink_convert_options *options) {
  for (int i = 0; i < 4; i++)
    if (options->scale[i] != 0.0 || options->mean[i] != 0.0) return 1;
  return 0;
}

static int is_finite(double value) { return value - value == 0.0; }

static int is_rgb8(const struct convert_layout *layout) {
  return layout->family == CONVERT_RGB && layout->depths[0] == 8;
}

static int is_rgb_float(const struct convert_layout *layout) {
  return layout->family == CONVERT_RGB && layout->depths[0] == 0;
}

static int has_alpha(const struct convert_layout *layout) {
  return layout->side.channels[3].present && !layout->filler;
}

/* 8-bit value = float * scale + mean takes the place of 255 and 0. */
static int apply_scale(struct convert_coefficients *exact, const struct convert_layout *source,
                       const struct convert_layout *target,
                       const cudalink_convert_options *options) {
  int forward = is_rgb_float(source) && is_rgb8(target);
  if (!forward && !(is_rgb8(source) && is_rgb_float(target)))
    return error_set(
        CUDALINK_ERROR_UNSUPPORTED,
        "convert: scale and mean are for 8-bit RGB from and to float, not for %s to %s",
        source->name, target->name);
  int count = has_alpha(source) && has_alpha(target) ? 4 : 3;
  for (int i = 0; i < count; i++) {
    double scale = options->scale[i], mean = options->mean[i];
    if (scale == 0.0 || !is_finite(scale) || !is_finite(mean) || !is_finite(1.0 / scale))
      return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                       "convert: scale[%d] is %g and mean[%d] is %g; both must be finite and the "
                       "scale not 0",
                       i, scale, i, mean);
    exact->gain[i] = forward ? scale : 1.0 / scale;
    exact->black[i] = forward ? 0.0 : mean;
    exact->offset[i] = forward ? mean : 0.0;
  }
  return CUDALINK_OK;
}

/* A channel that the source lacks: chroma neutral, alpha 1.0. An alpha that the target only fills
 * up with 255 is not looked at, so that a NaN there does no harm. */
static void set_missing(struct convert_parameters *parameters, const struct meaning *meaning,
                        int ignore_alpha) {
  struct convert_channel *channels = parameters->source.channels;
  for (int i = 0; i < 3; i++)
    channels[i].missing = (float)meaning->black[i];
  channels[3].missing = (float)meaning->span[3];
  if (ignore_alpha) channels[3].present = 0;
}

static void set_limits(struct convert_parameters *parameters, const struct convert_layout *target) {
  for (int i = 0; i < 4; i++) {
    int is_v210 = target->side.storage == CONVERT_V210;
    parameters->minimum[i] = is_v210 ? 4.0f : 0.0f;
    parameters->maximum[i] = is_v210 ? 1019.0f : (float)largest(target->depths[i]);
  }
}

/* An offset of 0 is written as -0.0: adding that changes nothing, not even the sign of a zero. */
static void set_fast(struct convert_parameters *parameters) {
  struct convert_coefficients *exact = &parameters->exact;
  struct convert_fast_coefficients *fast = &parameters->fast;
  for (int i = 0; i < 4; i++) {
    if (exact->offset[i] == 0.0) exact->offset[i] = -0.0;
    fast->gain[i] = (float)exact->gain[i];
    fast->black[i] = (float)exact->black[i];
    fast->offset[i] = (float)exact->offset[i];
    for (int j = 0; i < 3 && j < 3; j++)
      fast->matrix[i][j] = (float)exact->matrix[i][j];
  }
}

int convert_color(struct convert_parameters *parameters, const struct convert_layout *source,
                  const cudalink_picture *source_picture, const struct convert_layout *target,
                  const cudalink_picture *target_picture, const cudalink_convert_options *options) {
  struct meaning from, into;
  int result = find_meaning(&from, source, source_picture, target, target_picture, options);
  if (!result)
    result = find_meaning(&into, target, target_picture, source, source_picture, options);
  if (result) return result;
  for (int i = 0; i < 4; i++) {
    parameters->exact.black[i] = from.black[i];
    parameters->exact.offset[i] = into.black[i];
    parameters->exact.gain[i] = into.span[i] / from.span[i];
  }
  parameters->mix = from.red_weight != into.red_weight || from.blue_weight != into.blue_weight;
  if (parameters->mix) set_matrix(parameters, &from, &into);
  set_missing(parameters, &from, source->filler || target->filler);
  set_limits(parameters, target);
  if (scale_is_said(options)) result = apply_scale(&parameters->exact, source, target, options);
  set_fast(parameters);
  return result;
}
