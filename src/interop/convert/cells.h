/* SPDX-License-Identifier: MIT
 *
 * The pixel functions: read, map, write one cell. Shared by the CPU twins and the CUDA kernels,
 * word for word. CONVERT_KERNELS lists them: a kernel, its twin and their name come from one line.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_CELLS_H
#define CUDALINK_SRC_INTEROP_CONVERT_CELLS_H

#include "interop/convert/numbers.h"
#include "interop/convert/parameters.h"

/* A pixel's numbers, or the mean of several pixels: high + low, where low is what float could not
 * hold. All 8-, 10- and 16-bit numbers, and their means, fit `high` exactly. */
struct convert_pixel {
  float high[4];
  float low[4];
};

CONVERT_INLINE uint64_t convert_address(const struct convert_channel *channel, uint32_t x,
                                        uint32_t y) {
  return channel->address + (uint64_t)(y >> channel->shift_y) * channel->pitch +
         (uint64_t)(x >> channel->shift_x) * channel->step;
}

/* ---- read: the numbers of one pixel, exact in float ---- */

/* v210 is the sequence Cb Y Cr Y of 4:2:2, three numbers to a word, the first in the low bits. */
CONVERT_INLINE float convert_read_v210(uint64_t group, uint32_t index) {
  uint32_t word = convert_load_32(group + (uint64_t)(index / 3) * 4);
  return (float)((word >> (10 * (index % 3))) & 1023u);
}

CONVERT_INLINE void convert_read_v210_pixel(const struct convert_side *side, uint32_t x, uint32_t y,
                                            float *value) {
  uint64_t group = convert_address(&side->channels[0], 0, y) + (uint64_t)(x / 6) * 16;
  uint32_t pair = x % 6 / 2;
  value[0] = convert_read_v210(group, 2 * (x % 6) + 1);
  value[1] = convert_read_v210(group, 4 * pair);
  value[2] = convert_read_v210(group, 4 * pair + 2);
  value[3] = side->channels[3].missing;
}

CONVERT_INLINE float convert_read_sample(const struct convert_side *side, uint64_t address) {
  switch (side->storage) {
  case CONVERT_BYTES: return (float)convert_load_8(address);
  case CONVERT_WORDS: return (float)(convert_load_16(address) >> side->sample_shift);
  case CONVERT_HALF: return convert_float_of_half(convert_load_16(address));
  default: return convert_float_of(convert_load_32(address));
  }
}

CONVERT_INLINE void convert_read_packed(const struct convert_side *side, uint32_t word,
                                        float *value) {
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    const struct convert_channel *channel = &side->channels[i];
    value[i] =
        channel->present ? (float)((word >> channel->position) & channel->mask) : channel->missing;
  }
}

CONVERT_INLINE void convert_read_small_floats(const struct convert_side *side, uint32_t word,
                                              float *value) {
  /* With zeros behind the mantissa these are float16 without a sign. */
  value[0] = convert_float_of_half((word & 0x7ffu) << 4);
  value[1] = convert_float_of_half(((word >> 11) & 0x7ffu) << 4);
  value[2] = convert_float_of_half((word >> 22) << 5);
  value[3] = side->channels[3].missing;
}

CONVERT_INLINE void convert_read_side(const struct convert_side *side, uint32_t x, uint32_t y,
                                      float *value) {
  if (side->storage == CONVERT_PACKED) {
    convert_read_packed(side, convert_load_32(convert_address(&side->channels[0], x, y)), value);
  } else if (side->storage == CONVERT_R11G11B10F) {
    convert_read_small_floats(side, convert_load_32(convert_address(&side->channels[0], x, y)),
                              value);
  } else if (side->storage == CONVERT_V210) {
    convert_read_v210_pixel(side, x, y, value);
  } else {
    CONVERT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
      const struct convert_channel *channel = &side->channels[i];
      value[i] = channel->present ? convert_read_sample(side, convert_address(channel, x, y))
                                  : channel->missing;
    }
  }
}

/* In a matrix one NaN or infinity would spoil all three channels, and what is left of the
 * difference of two huge numbers means nothing. The limit is the largest finite float16. */
CONVERT_INLINE float convert_tame(float value) {
  const float largest = 65504.0f;
  if (value != value) return 0.0f;
  if (value > largest) return largest;
  return value < -largest ? -largest : value;
}

/* Reads the source at a pixel of the target. Beyond the picture's end the last pixel repeats. */
CONVERT_INLINE void convert_read(const struct convert_parameters *p, uint32_t x, uint32_t y,
                                 struct convert_pixel *pixel) {
  if (x >= p->width) x = p->width - 1;
  if (y >= p->height) y = p->height - 1;
  if (p->flip) y = p->height - 1 - y;
  convert_read_side(&p->source, p->crop_x + x, p->crop_y + y, pixel->high);
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    pixel->low[i] = 0.0f;
    if (p->mix && i < 3) pixel->high[i] = convert_tame(pixel->high[i]);
  }
}

/* Adds a pixel to a sum. What `high` loses is known exactly (Knuth's two-sum) and goes to `low`. */
CONVERT_INLINE void convert_add(struct convert_pixel *sum, const struct convert_pixel *pixel) {
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    float a = sum->high[i], b = pixel->high[i];
    float total = a + b;
    float kept = total - a;
    sum->high[i] = total;
    sum->low[i] += (a - (total - kept)) + (b - kept);
  }
}

/* The mean of 2 or 4 pixels; a power of two, so nothing is lost. Afterwards `high` alone is right
 * to half a unit in the last place, also where the sum cancelled. */
CONVERT_INLINE void convert_divide(struct convert_pixel *sum, uint32_t count) {
  float share = count == 4 ? 0.25f : 0.5f;
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    float total = sum->high[i] + sum->low[i];
    sum->low[i] = (sum->low[i] - (total - sum->high[i])) * share;
    sum->high[i] = total * share;
  }
}

/* ---- map: from the source's numbers to one of the target ---- */

/* One number of the target, in float. `size` becomes the sum of the terms' sizes, to which the
 * error is in proportion. An offset of -0.0 keeps the sign of a zero, so the plan writes 0 that
 * way. */
CONVERT_INLINE float convert_map_fast(const struct convert_parameters *p, uint32_t i,
                                      const struct convert_pixel *pixel, float *size) {
  const struct convert_fast_coefficients *c = &p->fast;
  float offset = c->offset[i];
  if (!p->mix || i == 3) {
    float term = (pixel->high[i] - c->black[i]) * c->gain[i];
    *size = convert_absolute(term) + convert_absolute(offset);
    return term + offset;
  }
  float first = (pixel->high[0] - c->black[0]) * c->matrix[i][0];
  float second = (pixel->high[1] - c->black[1]) * c->matrix[i][1];
  float third = (pixel->high[2] - c->black[2]) * c->matrix[i][2];
  *size = convert_absolute(first) + convert_absolute(second) + convert_absolute(third) +
          convert_absolute(offset);
  return first + second + third + offset;
}

CONVERT_INLINE double convert_term_exact(const struct convert_parameters *p, uint32_t j,
                                         const struct convert_pixel *pixel, double factor) {
  return ((double)pixel->high[j] + (double)pixel->low[j] - p->exact.black[j]) * factor;
}

/* The same in double: slow on most GPUs, but beyond doubt. */
CONVERT_INLINE double convert_map_exact(const struct convert_parameters *p, uint32_t i,
                                        const struct convert_pixel *pixel) {
  const struct convert_coefficients *c = &p->exact;
  if (!p->mix || i == 3) return convert_term_exact(p, i, pixel, c->gain[i]) + c->offset[i];
  return convert_term_exact(p, 0, pixel, c->matrix[i][0]) +
         convert_term_exact(p, 1, pixel, c->matrix[i][1]) +
         convert_term_exact(p, 2, pixel, c->matrix[i][2]) + c->offset[i];
}

/* One integer of the target, as double arithmetic would round it. Float decides wherever its error
 * can't change the result: at most 9 roundings lie on the way, each of at most 2^-24 of `size`, so
 * 2^-20 of it bounds the error. The rest, near a tie, is computed again in double. */
CONVERT_INLINE uint32_t convert_quantize(const struct convert_parameters *p, uint32_t i,
                                         const struct convert_pixel *pixel) {
  float size;
  float value = convert_map_fast(p, i, pixel, &size);
  float minimum = p->minimum[i], maximum = p->maximum[i];
  if (value < minimum) value = minimum;
  if (value > maximum) value = maximum;
  float nearest = convert_round_float(value);
  /* Written so that NaN goes on to double. */
  if (convert_absolute(value - nearest) + size * 9.5367431640625e-7f < 0.5f)
    return (uint32_t)nearest;
  double exact = convert_map_exact(p, i, pixel);
  if (exact != exact) exact = 0.0;
  if (exact < (double)minimum) exact = (double)minimum;
  if (exact > (double)maximum) exact = (double)maximum;
  return (uint32_t)convert_round_double(exact);
}

CONVERT_INLINE float convert_real(const struct convert_parameters *p, uint32_t i,
                                  const struct convert_pixel *pixel) {
  float size;
  return convert_map_fast(p, i, pixel, &size);
}

/* ---- write: one cell ---- */

CONVERT_INLINE void convert_write_code(const struct convert_parameters *p, uint32_t i, uint32_t x,
                                       uint32_t y, const struct convert_pixel *pixel) {
  uint64_t address = convert_address(&p->target.channels[i], x, y);
  uint32_t code = convert_quantize(p, i, pixel);
  if (p->target.storage == CONVERT_BYTES)
    convert_store_8(address, (uint8_t)code);
  else
    convert_store_16(address, (uint16_t)(code << p->target.sample_shift));
}

/* The channels that several pixels share (`shared` = 1), or the others. */
CONVERT_INLINE void convert_write_codes(const struct convert_parameters *p, uint32_t shared,
                                        uint32_t x, uint32_t y, const struct convert_pixel *pixel) {
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    const struct convert_channel *channel = &p->target.channels[i];
    uint32_t is_shared = (channel->shift_x | channel->shift_y) != 0;
    if (!channel->present || is_shared != shared || x >= channel->width) continue;
    convert_write_code(p, i, x, y, pixel);
  }
}

/* A pixel, or the pixels that share a chroma sample, into integers. */
CONVERT_INLINE void convert_cell_samples(const struct convert_parameters *p, uint32_t cell_x,
                                         uint32_t cell_y) {
  uint32_t count = p->cell_width * p->cell_height;
  uint32_t left = cell_x * p->cell_width, top = cell_y * p->cell_height;
  struct convert_pixel pixel, sum = {{0}, {0}};
  CONVERT_KEEP_LOOP
  for (uint32_t k = 0; k < count; k++) {
    uint32_t x = left + k % p->cell_width, y = top + k / p->cell_width;
    convert_read(p, x, y, &pixel);
    if (y < p->height) convert_write_codes(p, 0, x, y, &pixel);
    if (count > 1) convert_add(&sum, &pixel);
  }
  if (count == 1) return;
  convert_divide(&sum, count);
  convert_write_codes(p, 1, left, top, &sum);
}

CONVERT_INLINE void convert_cell_packed(const struct convert_parameters *p, uint32_t x,
                                        uint32_t y) {
  struct convert_pixel pixel;
  uint32_t word = 0;
  convert_read(p, x, y, &pixel);
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++)
    word |= convert_quantize(p, i, &pixel) << p->target.channels[i].position;
  convert_store_32(convert_address(&p->target.channels[0], x, y), word);
}

CONVERT_INLINE void convert_cell_floats(const struct convert_parameters *p, uint32_t x,
                                        uint32_t y) {
  struct convert_pixel pixel;
  convert_read(p, x, y, &pixel);
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    const struct convert_channel *channel = &p->target.channels[i];
    if (!channel->present) continue;
    float value = convert_real(p, i, &pixel);
    if (p->target.storage == CONVERT_HALF)
      convert_store_16(convert_address(channel, x, y), convert_half_of_float(value));
    else
      convert_store_32(convert_address(channel, x, y), convert_bits_of(value));
  }
}

CONVERT_INLINE void convert_cell_small_floats(const struct convert_parameters *p, uint32_t x,
                                              uint32_t y) {
  struct convert_pixel pixel;
  convert_read(p, x, y, &pixel);
  uint32_t word = convert_unsigned_float(convert_real(p, 0, &pixel), 6) |
                  convert_unsigned_float(convert_real(p, 1, &pixel), 6) << 11 |
                  convert_unsigned_float(convert_real(p, 2, &pixel), 5) << 22;
  convert_store_32(convert_address(&p->target.channels[0], x, y), word);
}

/* A group of v210: for each two of its 6 pixels Cb Y Cr Y, three numbers to a word. */
CONVERT_INLINE void convert_cell_v210(const struct convert_parameters *p, uint32_t cell_x,
                                      uint32_t y) {
  uint64_t address = convert_address(&p->target.channels[0], 0, y) + (uint64_t)cell_x * 16;
  uint64_t pending = 0; /* numbers not yet written, the oldest in the low bits */
  uint32_t bits = 0;
  CONVERT_KEEP_LOOP
  for (uint32_t x = cell_x * 6; x < cell_x * 6 + 6; x += 2) {
    struct convert_pixel left, right, mean;
    convert_read(p, x, y, &left);
    convert_read(p, x + 1, y, &right);
    mean = left;
    convert_add(&mean, &right);
    convert_divide(&mean, 2);
    pending |= (uint64_t)(convert_quantize(p, 1, &mean) | convert_quantize(p, 0, &left) << 10 |
                          convert_quantize(p, 2, &mean) << 20)
               << bits;
    pending |= (uint64_t)convert_quantize(p, 0, &right) << (bits + 30);
    for (bits += 40; bits >= 30; bits -= 30, pending >>= 30, address += 4)
      convert_store_32(address, (uint32_t)pending & 0x3fffffffu);
  }
}

/* The bytes of a word, each to its new place: BGRA8 to RGBA8 and their like. */
CONVERT_INLINE void convert_cell_swizzle_word(const struct convert_parameters *p, uint32_t x,
                                              uint32_t y) {
  uint32_t source_y = p->crop_y + (p->flip ? p->height - 1 - y : y);
  uint32_t read = convert_load_32(convert_address(&p->source.channels[0], p->crop_x + x, source_y));
  uint32_t written = 0;
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    const struct convert_channel *from = &p->source.channels[i];
    uint32_t code = from->present ? (read >> from->position) & 255u : 255u;
    written |= code << p->target.channels[i].position;
  }
  convert_store_32(convert_address(&p->target.channels[0], x, y), written);
}

/* 8-bit numbers that stay as they are and only change places, where a side has no words. */
CONVERT_INLINE void convert_cell_swizzle(const struct convert_parameters *p, uint32_t x,
                                         uint32_t y) {
  const struct convert_side *source = &p->source, *target = &p->target;
  uint32_t source_x = p->crop_x + x;
  uint32_t source_y = p->crop_y + (p->flip ? p->height - 1 - y : y);
  uint32_t read = 0, written = 0;
  if (source->storage == CONVERT_PACKED)
    read = convert_load_32(convert_address(&source->channels[0], source_x, source_y));
  CONVERT_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    const struct convert_channel *from = &source->channels[i], *to = &target->channels[i];
    if (!to->present) continue;
    uint32_t code;
    if (!from->present)
      code = (uint32_t)from->missing;
    else if (source->storage == CONVERT_PACKED)
      code = (read >> from->position) & 255u;
    else
      code = convert_load_8(convert_address(from, source_x, source_y));
    if (target->storage == CONVERT_PACKED)
      written |= code << to->position;
    else
      convert_store_8(convert_address(to, x, y), (uint8_t)code);
  }
  if (target->storage == CONVERT_PACKED)
    convert_store_32(convert_address(&target->channels[0], x, y), written);
}

#endif
