/* SPDX-License-Identifier: MIT
 *
 * Draws the picture patterns, row by row, as RGBA of 16 bits per sample.
 */
#include "media/pattern_draw.h"

#include <math.h>
#include <string.h>

#define WHITE 65535u
#define SEVENTY_FIVE 49151 /* 75 % */
#define CODE_SIDE 8        /* squares per row and column */
#define DIGITS 8
#define DIGIT_WIDTH 4 /* 3 dots and a gap */
#define DIGIT_HEIGHT 5

static void set_pixel(uint16_t *pixel, uint32_t red, uint32_t green, uint32_t blue) {
  pixel[0] = (uint16_t)red;
  pixel[1] = (uint16_t)green;
  pixel[2] = (uint16_t)blue;
  pixel[3] = WHITE;
}

/* Bars after SMPTE EG 1: seven bars, a strip of their opposites, then black and white with PLUGE.
 * Each colour is 3 bits, red = 4, green = 2, blue = 1. */
static void draw_bars(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  static const uint8_t upper[7] = {7, 6, 3, 2, 5, 4, 1};
  static const uint8_t strip[7] = {1, 0, 5, 0, 3, 0, 7};
  uint32_t twelfth = y * 12 / canvas->height;
  for (uint32_t x = 0; x < canvas->width; x++, rgba += 4) {
    uint32_t bar = x * 7 / canvas->width;
    uint32_t colour = twelfth < 8 ? upper[bar] : strip[bar];
    if (twelfth < 9)
      set_pixel(rgba, colour & 4 ? SEVENTY_FIVE : 0, colour & 2 ? SEVENTY_FIVE : 0,
                colour & 1 ? SEVENTY_FIVE : 0);
    else if (bar == 1 || bar == 2)
      set_pixel(rgba, WHITE, WHITE, WHITE);
    else if (bar == 5)
      set_pixel(rgba, WHITE / 25, WHITE / 25, WHITE / 25); /* 4 % above black */
    else
      set_pixel(rgba, 0, 0, 0);
  }
}

static void draw_ramp(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  uint32_t band = y * 4 / canvas->height; /* gray, red, green, blue */
  uint32_t last = canvas->width > 1 ? canvas->width - 1 : 1;
  for (uint32_t x = 0; x < canvas->width; x++, rgba += 4) {
    uint32_t value = x * WHITE / last;
    set_pixel(rgba, band < 2 ? value : 0, band == 0 || band == 2 ? value : 0,
              band == 0 || band == 3 ? value : 0);
  }
}

/* The phase grows with the square of the distance from the centre, so that the frequency at the
 * nearer edges is half a period per pixel, the highest there is. */
static void draw_zone_plate(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  uint64_t side = canvas->width > canvas->height ? canvas->width : canvas->height;
  uint64_t scale = (PATTERN_COSINES / 2 << 20) / side; /* 20 bits behind the point */
  int64_t dy = (int64_t)y - canvas->height / 2;
  uint64_t moved = canvas->number % PATTERN_COSINES * 16;
  for (uint32_t x = 0; x < canvas->width; x++, rgba += 4) {
    int64_t dx = (int64_t)x - canvas->width / 2;
    uint64_t phase = (((uint64_t)(dx * dx + dy * dy) * scale) >> 20) + moved;
    uint16_t value = canvas->cosines[phase % PATTERN_COSINES];
    set_pixel(rgba, value, value, value);
  }
}

/* SplitMix64's way to mix bits: neighbours get unrelated numbers. */
static uint64_t hash(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static void draw_noise(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  uint64_t seed = hash(canvas->number * UINT64_C(0x9e3779b97f4a7c15) + 1);
  for (uint32_t x = 0; x < canvas->width; x++, rgba += 4) {
    uint64_t random = hash(seed + ((uint64_t)y << 16 | x));
    set_pixel(rgba, random & 0xffff, random >> 16 & 0xffff, random >> 32 & 0xffff);
  }
}

static void draw_stripes(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  uint32_t moved = (uint32_t)(canvas->number * 2 % 128) + y;
  for (uint32_t x = 0; x < canvas->width; x++, rgba += 4) {
    uint32_t step = (x + moved) % 128;
    uint32_t value = step < 64 ? step : 127 - step; /* up and down again */
    set_pixel(rgba, value * 200, value * 300, 16000 + value * 500);
  }
}

static uint32_t smaller_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* From the left edge to the right one and back, a dot per frame; never over an edge. */
static uint32_t digits_left(const struct pattern_canvas *canvas, uint32_t text_width,
                            uint32_t dot) {
  uint32_t room = canvas->width - text_width;
  uint64_t round = 2 * (uint64_t)room;
  uint64_t way = round ? canvas->number % round * dot % round : 0;
  return (uint32_t)(way <= room ? way : round - way);
}

/* All eight digits where there is room for them, else the last ones; always whole. */
static void draw_digits(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  /* 3 x 5 dots, highest bit top left. */
  static const uint16_t dots[10] = {075557, 026227, 071747, 071717, 055711,
                                    074717, 074757, 071111, 075757, 075717};
  if (canvas->height < DIGIT_HEIGHT || canvas->width < DIGIT_WIDTH - 1) return;
  uint32_t dot = smaller_of(canvas->height / 20, canvas->width / (DIGITS * DIGIT_WIDTH - 1));
  if (dot == 0) dot = 1;
  uint32_t digits = smaller_of(DIGITS, (canvas->width / dot + 1) / DIGIT_WIDTH);
  uint32_t top = smaller_of(canvas->height / 2, canvas->height - DIGIT_HEIGHT * dot);
  uint32_t row = (y - top) / dot;
  if (y < top || row >= DIGIT_HEIGHT) return;
  uint32_t left = digits_left(canvas, (digits * DIGIT_WIDTH - 1) * dot, dot);
  uint64_t value = canvas->number;
  for (uint32_t i = digits; i-- > 0; value /= 10) {
    uint16_t digit = dots[value % 10];
    for (uint32_t column = 0; column < 3; column++) {
      if (!(digit >> (14 - (row * 3 + column)) & 1)) continue;
      uint32_t start = left + (i * DIGIT_WIDTH + column) * dot;
      for (uint32_t x = start; x < start + dot; x++)
        set_pixel(rgba + (size_t)4 * x, WHITE, WHITE, WHITE);
    }
  }
}

uint32_t pattern_code_side(uint32_t width, uint32_t height) {
  uint32_t smaller = width < height ? width : height;
  if (smaller < CODE_SIDE) return 0;
  return smaller < 4 * CODE_SIDE ? 1 : smaller / (4 * CODE_SIDE);
}

static void draw_code(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  uint32_t side = pattern_code_side(canvas->width, canvas->height);
  if (y >= CODE_SIDE * side) return;
  uint8_t bits = (uint8_t)(canvas->number >> (56 - 8 * (y / side)));
  for (uint32_t x = 0; x < CODE_SIDE * side; x++) {
    uint32_t value = bits >> (7 - x / side) & 1 ? WHITE : 0;
    set_pixel(rgba + (size_t)4 * x, value, value, value);
  }
}

void pattern_canvas_open(struct pattern_canvas *canvas, enum pattern pattern, uint32_t width,
                         uint32_t height, uint64_t number) {
  canvas->pattern = pattern;
  canvas->width = width;
  canvas->height = height;
  canvas->number = number;
  if (pattern != PATTERN_ZONE_PLATE) return;
  for (int i = 0; i < PATTERN_COSINES; i++)
    canvas->cosines[i] =
        (uint16_t)lround((0.5 + 0.5 * cos(i * 2 * M_PI / PATTERN_COSINES)) * (double)WHITE);
}

void pattern_draw_row(const struct pattern_canvas *canvas, uint32_t y, uint16_t *rgba) {
  switch (canvas->pattern) {
  case PATTERN_BARS: draw_bars(canvas, y, rgba); return;
  case PATTERN_RAMP: draw_ramp(canvas, y, rgba); return;
  case PATTERN_ZONE_PLATE: draw_zone_plate(canvas, y, rgba); return;
  case PATTERN_COUNTER:
    draw_stripes(canvas, y, rgba);
    draw_digits(canvas, y, rgba);
    draw_code(canvas, y, rgba);
    return;
  case PATTERN_NOISE:
  case PATTERN_CHECK: draw_noise(canvas, y, rgba); return;
  }
}
