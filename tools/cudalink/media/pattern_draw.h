/* SPDX-License-Identifier: MIT
 *
 * Draws the picture patterns, row by row, as RGBA of 16 bits per sample.
 */
#ifndef CUDALINK_MEDIA_PATTERN_DRAW_H
#define CUDALINK_MEDIA_PATTERN_DRAW_H

#include "media/pattern.h"

#define PATTERN_COSINES 1024

struct pattern_canvas {
  enum pattern pattern;
  uint32_t width;
  uint32_t height;
  uint64_t number;
  uint16_t cosines[PATTERN_COSINES]; /* one period, for the zone plate */
};

void pattern_canvas_open(struct pattern_canvas *canvas, enum pattern pattern, uint32_t width,
                         uint32_t height, uint64_t number);

/* Row `y`, counted from the top: width x 4 samples. */
void pattern_draw_row(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba);

/* Side of one of the 8 x 8 squares that carry the number in `counter`, from the top left corner,
 * highest bit first, white = 1. 0: the picture is too small for them. */
uint32_t pattern_code_side(uint32_t width, uint32_t height);

#endif
