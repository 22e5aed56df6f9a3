/* SPDX-License-Identifier: MIT
 *
 * From RGBA of 16 bits per sample to the samples of any picture format. The name of a plane says
 * which components it has, in the order of memory ("bgra", "uv", "uyvy"), so each component is made
 * as a line of numbers and then spread over the row. YUV follows BT.709; chroma is the mean of the
 * pixels that it stands for.
 */
#include "media/pattern_convert.h"

#include <string.h>

#define WHITE 65535
#define V210_GROUP 6      /* pixels in four words */
#define V210_ROW_GROUP 48 /* pixels in 128 bytes */

static uint32_t depth_of(uint32_t format) {
  switch (format) {
  case CUDALINK_FORMAT_GRAY9:
  case CUDALINK_FORMAT_I420P9:
  case CUDALINK_FORMAT_I422P9:
  case CUDALINK_FORMAT_I444P9: return 9;
  case CUDALINK_FORMAT_GRAY10:
  case CUDALINK_FORMAT_I420P10:
  case CUDALINK_FORMAT_I422P10:
  case CUDALINK_FORMAT_I444P10:
  case CUDALINK_FORMAT_P010:
  case CUDALINK_FORMAT_P210:
  case CUDALINK_FORMAT_V210:
  case CUDALINK_FORMAT_RGB10A2: return 10;
  case CUDALINK_FORMAT_GRAY12:
  case CUDALINK_FORMAT_I420P12:
  case CUDALINK_FORMAT_I422P12:
  case CUDALINK_FORMAT_I444P12: return 12;
  case CUDALINK_FORMAT_I420P14:
  case CUDALINK_FORMAT_I422P14:
  case CUDALINK_FORMAT_I444P14: return 14;
  case CUDALINK_FORMAT_R16:
  case CUDALINK_FORMAT_RG16:
  case CUDALINK_FORMAT_RGBA16:
  case CUDALINK_FORMAT_GRAY16:
  case CUDALINK_FORMAT_I420P16:
  case CUDALINK_FORMAT_I422P16:
  case CUDALINK_FORMAT_I444P16:
  case CUDALINK_FORMAT_Y416: return 16;
  default: return 8; /* floats do not ask */
  }
}

int pattern_is_gray(uint32_t format) {
  return format == CUDALINK_FORMAT_GRAY8 || format == CUDALINK_FORMAT_GRAY9 ||
         format == CUDALINK_FORMAT_GRAY10 || format == CUDALINK_FORMAT_GRAY12 ||
         format == CUDALINK_FORMAT_GRAY16;
}

uint32_t pattern_stack(uint32_t format) {
  return format == CUDALINK_FORMAT_RGB_CHW8 || format == CUDALINK_FORMAT_RGB_CHW16F ||
                 format == CUDALINK_FORMAT_RGB_CHW32F
             ? 3
             : 1;
}

struct pattern_scale pattern_scale_of(const cudalink_picture *picture) {
  struct pattern_scale scale = {.depth = depth_of(picture->format)};
  int64_t most = (INT64_C(1) << scale.depth) - 1, unit = INT64_C(1) << (scale.depth - 8);
  int is_full = picture->range == CUDALINK_RANGE_FULL ||
                (picture->range == CUDALINK_RANGE_NOT_SAID && pattern_is_gray(picture->format));
  if (picture->format == CUDALINK_FORMAT_P010 || picture->format == CUDALINK_FORMAT_P210)
    scale.shift = 6;
  scale.luma_offset = is_full ? 0 : 16 * unit;
  scale.luma_scale = is_full ? most : 219 * unit;
  scale.chroma_offset = 128 * unit;
  scale.chroma_scale = is_full ? most : 224 * unit;
  return scale;
}

/* BT.709 in units of 1/10000: Y = 0.2126 R + 0.7152 G + 0.0722 B, and the ranges of B - Y and R - Y
 * are 1.8556 and 1.5748. All divisors are constants, so the compiler multiplies instead. */
static int64_t luma_sum(int64_t red, int64_t green, int64_t blue) {
  return 2126 * red + 7152 * green + 722 * blue;
}

static uint32_t clamp(int64_t value, uint32_t depth) {
  int64_t most = (INT64_C(1) << depth) - 1;
  return (uint32_t)(value < 0 ? 0 : value > most ? most : value);
}

static void luma_line(const struct pattern_scale *scale, const uint16_t *rgba, uint32_t width,
                      uint32_t *line) {
  const int64_t divisor = INT64_C(10000) * WHITE;
  for (uint32_t x = 0; x < width; x++, rgba += 4) {
    int64_t sum = luma_sum(rgba[0], rgba[1], rgba[2]) * scale->luma_scale;
    line[x] = (uint32_t)(scale->luma_offset + (sum + divisor / 2) / divisor);
  }
}

/* Chroma is made from four times the mean of its pixels, so that the sums stay whole. */
struct chroma {
  char letter;        /* u or v */
  uint32_t group;     /* pixels in x */
  uint32_t rows;      /* pixels in y */
  uint32_t width;     /* of the picture */
  uint32_t component; /* blue for u, red for v */
  int64_t divisor;
};

static struct chroma chroma_of(char letter, uint32_t group, uint32_t rows, uint32_t width) {
  struct chroma chroma = {letter,
                          group,
                          rows,
                          width,
                          letter == 'u' ? 2 : 0,
                          (letter == 'u' ? INT64_C(18556) : INT64_C(15748)) * WHITE * 4};
  return chroma;
}

/* A pixel behind the edge is the last one. */
static inline void add_pixels(const uint16_t *row, uint32_t first, uint32_t group, uint32_t width,
                              int64_t sums[3]) {
  for (uint32_t i = 0; i < group; i++) {
    const uint16_t *pixel = row + 4 * (size_t)(first + i < width ? first + i : width - 1);
    for (uint32_t c = 0; c < 3; c++)
      sums[c] += pixel[c];
  }
}

static int64_t rounded(int64_t value, int64_t divisor) {
  return value < 0 ? -((-value + divisor / 2) / divisor) : (value + divisor / 2) / divisor;
}

static void chroma_line(const struct pattern_scale *scale, struct chroma chroma,
                        const uint16_t *const rows[2], uint32_t *line) {
  const int64_t factor = 4 / (int64_t)(chroma.rows * chroma.group);
  for (uint32_t i = 0, x = 0; x < chroma.width; i++, x += chroma.group) {
    int64_t sums[3] = {0};
    for (uint32_t r = 0; r < chroma.rows; r++)
      add_pixels(rows[r], x, chroma.group, chroma.width, sums);
    int64_t difference = 10000 * sums[chroma.component] - luma_sum(sums[0], sums[1], sums[2]);
    int64_t value = rounded(difference * factor * scale->chroma_scale, chroma.divisor);
    line[i] = clamp(scale->chroma_offset + value, scale->depth);
  }
}

/* The bits of a float of 5 exponent bits and `mantissa` more, for 0 and numbers of 2^-14 to 2.
 * Drops bits of a 32-bit float, rounding to even; a carry runs into the exponent, as it should. */
static uint32_t small_float(float value, uint32_t mantissa) {
  uint32_t bits, drop = 23 - mantissa;
  memcpy(&bits, &value, sizeof bits);
  if (bits == 0) return 0;
  bits -= (127 - 15) << 23;
  return (bits + (1u << (drop - 1)) - 1 + (bits >> drop & 1)) >> drop;
}

/* The smallest value that a pattern draws besides 0 may be less than 2^-14: that is 0 too. */
static float float_of(uint16_t sample) { return sample < 4 ? 0.0f : (float)sample / (float)WHITE; }

static uint32_t rgb_number(const cudalink_dtype *dtype, uint32_t depth, uint16_t sample) {
  if (dtype->code == CUDALINK_DTYPE_UINT)
    return (uint32_t)(((uint64_t)sample * ((1u << depth) - 1) + WHITE / 2) / WHITE);
  if (dtype->bits == 16) return small_float(float_of(sample), 10);
  float value = (float)sample / (float)WHITE;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static void rgb_line(const cudalink_dtype *dtype, uint32_t depth, uint32_t component,
                     const uint16_t *rgba, uint32_t width, uint32_t *line) {
  rgba += component;
  if (dtype->code == CUDALINK_DTYPE_UINT && depth == 8) /* the same, rounded in one step */
    for (size_t x = 0; x < width; x++)
      line[x] = (rgba[4 * x] * 255u + 32895u) >> 16;
  else
    for (size_t x = 0; x < width; x++)
      line[x] = rgb_number(dtype, depth, rgba[4 * x]);
}

/* One component of one row, one number per column. Returns how many numbers. */
static uint32_t component_line(const cudalink_plane *plane, const struct pattern_scale *scale,
                               char letter, const uint16_t *const rows[2], uint32_t row_count,
                               uint32_t width, uint32_t group, uint32_t *line) {
  switch (letter) {
  case 'y': luma_line(scale, rows[0], width, line); return width;
  case 'u':
  case 'v':
    chroma_line(scale, chroma_of(letter, group, row_count, width), rows, line);
    return (width + group - 1) / group;
  case 'g': rgb_line(&plane->dtype, scale->depth, 1, rows[0], width, line); return width;
  case 'b': rgb_line(&plane->dtype, scale->depth, 2, rows[0], width, line); return width;
  case 'a':
  case 'x': rgb_line(&plane->dtype, scale->depth, 3, rows[0], width, line); return width;
  default: rgb_line(&plane->dtype, scale->depth, 0, rows[0], width, line); return width;
  }
}

/* Writes line[i] to element `first` + i * step of the row. */
static void spread(const uint32_t *line, uint32_t count, uint32_t element_bytes, uint32_t shift,
                   uint8_t *to, uint32_t first, uint32_t step) {
  const size_t bytes = (size_t)step * element_bytes;
  to += (size_t)first * element_bytes;
  switch (element_bytes) {
  case 1:
    for (uint32_t i = 0; i < count; i++)
      to[i * bytes] = (uint8_t)line[i];
    return;
  case 2:
    for (uint32_t i = 0; i < count; i++) {
      uint16_t value = (uint16_t)(line[i] << shift);
      memcpy(to + i * bytes, &value, sizeof value);
    }
    return;
  default:
    for (uint32_t i = 0; i < count; i++)
      memcpy(to + i * bytes, &line[i], sizeof line[i]);
  }
}

static uint32_t count_letter(const char *name, char letter) {
  uint32_t count = 0;
  for (; *name; name++)
    count += *name == letter;
  return count;
}

/* Pixels per chroma sample in x. The size of a plane tells: u has as many columns as samples. */
static uint32_t chroma_group(const cudalink_picture *picture, const cudalink_plane *plane) {
  uint32_t columns = (uint32_t)plane->shape[1];
  if (strchr(plane->name, 'y')) return count_letter(plane->name, 'y') == 2 ? 2 : 1;
  if (columns == picture->width) return 1;
  return columns == (picture->width + 1) / 2 ? 2 : 4;
}

uint32_t pattern_group_height(const cudalink_picture *picture, const cudalink_plane *plane) {
  int is_chroma = plane->name[0] == 'u' || plane->name[0] == 'v';
  if (!is_chroma || picture->format == CUDALINK_FORMAT_V210 || strchr(plane->name, 'y')) return 1;
  return (uint32_t)plane->shape[0] == picture->height ? 1 : 2;
}

/* A row of whole letters: "rgba" is one group per pixel, "uyvy" one group per two pixels, where
 * both y belong to one line. A second y of an odd width repeats the last one. */
static void convert_letters(const cudalink_picture *picture, const cudalink_plane *plane,
                            const struct pattern_scale *scale, const uint16_t *const rows[2],
                            uint32_t row_count, uint32_t *line, uint8_t *to) {
  uint32_t letters = (uint32_t)strlen(plane->name);
  uint32_t group = chroma_group(picture, plane);
  for (uint32_t i = 0; i < letters; i++) {
    char letter = plane->name[i];
    if (strchr(plane->name, letter) != plane->name + i) continue; /* the second y */
    uint32_t times = 1 + count_letter(plane->name + i + 1, letter);
    uint32_t count =
        component_line(plane, scale, letter, rows, row_count, picture->width, group, line);
    if (count % times) line[count] = line[count - 1], count++;
    spread(line, count, plane->dtype.bits / 8u, scale->shift, to, i, letters / times);
  }
}

static void put_word(uint8_t *to, uint32_t word) { memcpy(to, &word, sizeof word); }

/* Words of three 10-bit samples, in the order u y v y u y v y ... Behind the last pixel: zeros. */
static void convert_v210(const cudalink_picture *picture, const struct pattern_scale *scale,
                         const uint16_t *const rows[2], uint32_t *line, uint8_t *to) {
  uint32_t width = picture->width;
  uint32_t padded = (width + V210_ROW_GROUP - 1) / V210_ROW_GROUP * V210_ROW_GROUP;
  uint32_t pairs = (width + 1) / 2, luma_count = (width + 1) / 2 * 2;
  memset(to, 0, (size_t)padded / V210_GROUP * 16);
  for (int pass = 0; pass < 3; pass++) {
    uint32_t count = pass == 1 ? luma_count : pairs;
    if (pass == 1)
      luma_line(scale, rows[0], width, line);
    else
      chroma_line(scale, chroma_of(pass == 0 ? 'u' : 'v', 2, 1, width), rows, line);
    if (pass == 1) line[luma_count - 1] = line[width - 1];
    for (uint32_t i = 0; i < count; i++) {
      uint32_t sample = pass == 1 ? 2 * i + 1 : 4 * i + (pass == 0 ? 0 : 2);
      uint8_t *place = to + (size_t)4 * (sample / 3);
      uint32_t word;
      memcpy(&word, place, sizeof word);
      put_word(place, word | line[i] << (10 * (sample % 3)));
    }
  }
}

static void convert_packed_rgb(const cudalink_picture *picture, const uint16_t *rgba, uint8_t *to) {
  static const cudalink_dtype whole = {CUDALINK_DTYPE_UINT, 32, 1};
  for (uint32_t x = 0; x < picture->width; x++, rgba += 4, to += 4) {
    if (picture->format == CUDALINK_FORMAT_RGB10A2)
      put_word(to, rgb_number(&whole, 10, rgba[0]) | rgb_number(&whole, 10, rgba[1]) << 10 |
                       rgb_number(&whole, 10, rgba[2]) << 20 |
                       rgb_number(&whole, 2, rgba[3]) << 30);
    else
      put_word(to, small_float(float_of(rgba[0]), 6) | small_float(float_of(rgba[1]), 6) << 11 |
                       small_float(float_of(rgba[2]), 5) << 22);
  }
}

void pattern_convert_row(const cudalink_picture *picture, const cudalink_plane *plane,
                         uint32_t stacked, const uint16_t *const rows[2], uint32_t row_count,
                         uint32_t *line, uint8_t *to) {
  struct pattern_scale scale = pattern_scale_of(picture);
  if (pattern_stack(picture->format) > 1) {
    rgb_line(&plane->dtype, scale.depth, stacked, rows[0], picture->width, line);
    spread(line, picture->width, plane->dtype.bits / 8u, 0, to, 0, 1);
    return;
  }
  switch (picture->format) {
  case CUDALINK_FORMAT_V210: convert_v210(picture, &scale, rows, line, to); return;
  case CUDALINK_FORMAT_RGB10A2:
  case CUDALINK_FORMAT_R11G11B10F: convert_packed_rgb(picture, rows[0], to); return;
  default: convert_letters(picture, plane, &scale, rows, row_count, line, to);
  }
}

/* Where the first sample of pixel x is in its row, and its value. */
static uint32_t first_sample(const cudalink_plane *plane, uint32_t format, const uint8_t *row,
                             uint32_t x) {
  uint32_t bytes = plane->dtype.bits / 8u, element = x, value = 0;
  if (format == CUDALINK_FORMAT_V210) {
    element = (2 * x + 1) / 3;
  } else if (pattern_stack(format) == 1 && plane->dimensions == 3) {
    const char *luma = strchr(plane->name, 'y');
    element = x * (uint32_t)plane->shape[2] + (luma ? (uint32_t)(luma - plane->name) : 0);
  }
  memcpy(&value, row + (size_t)element * bytes, bytes);
  if (format == CUDALINK_FORMAT_V210) return value >> (10 * ((2 * x + 1) % 3)) & 0x3ff;
  if (format == CUDALINK_FORMAT_RGB10A2) return value & 0x3ff;
  if (format == CUDALINK_FORMAT_R11G11B10F) return value & 0x7ff;
  return value;
}

int pattern_is_bright(const cudalink_description *description, const uint8_t *slot, uint32_t x,
                      uint32_t row) {
  const cudalink_picture *picture = &description->picture;
  const cudalink_plane *plane = &description->planes[0];
  int64_t pitch = plane->strides[pattern_stack(picture->format) > 1 ? 1 : 0];
  uint32_t value = first_sample(plane, picture->format, slot + plane->offset + row * pitch, x);
  struct pattern_scale scale = pattern_scale_of(picture);
  if (picture->format == CUDALINK_FORMAT_R11G11B10F) return value > small_float(0.5f, 6);
  if (plane->dtype.code == CUDALINK_DTYPE_UINT)
    return value >> scale.shift >> (scale.depth - 1) & 1;
  return value > (plane->dtype.bits == 16 ? small_float(0.5f, 10) : 0x3f000000u); /* 0.5 */
}
