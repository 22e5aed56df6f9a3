/* SPDX-License-Identifier: MIT
 *
 * From RGBA of 16 bits per sample to the samples of any picture format.
 */
#ifndef CUDALINK_MEDIA_PATTERN_CONVERT_H
#define CUDALINK_MEDIA_PATTERN_CONVERT_H

#include "cudalink/format.h"

/* How the numbers of a picture are made. */
struct pattern_scale {
  uint32_t depth; /* bits per sample */
  uint32_t shift; /* unused bits below them */
  int64_t luma_offset, luma_scale;
  int64_t chroma_offset, chroma_scale;
};

struct pattern_scale pattern_scale_of(const cudalink_picture *picture);

/* 3 for a plane {3, rows, columns}, else 1. */
uint32_t pattern_stack(uint32_t format);

/* Whether the luma (or the first sample) of one pixel is above half, for a picture of black and
 * white. `row` counts in memory. */
int pattern_is_bright(const cudalink_description *description, const uint8_t *slot, uint32_t x,
                      uint32_t row);

/* 1 when the format has luma and no chroma. */
int pattern_is_gray(uint32_t format);

/* Rows that one row of this plane covers: 1, or 2 for chroma of half height. */
uint32_t pattern_group_height(const cudalink_picture *picture, const cudalink_plane *plane);

#define PATTERN_LINE_EXTRA 2

/* Writes one row of a plane from `row_count` (1 or 2) rows of RGBA. `stacked` is the component of a
 * plane {3, rows, columns}, else 0. `line` is work space for width + PATTERN_LINE_EXTRA numbers. */
void pattern_convert_row(const cudalink_picture *picture, const cudalink_plane *plane,
                         uint32_t stacked, const uint16_t *const rows[2], uint32_t row_count,
                         uint32_t *line, uint8_t *to);

#endif
