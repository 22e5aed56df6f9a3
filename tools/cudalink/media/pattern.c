/* SPDX-License-Identifier: MIT
 *
 * Test patterns: from a kind and a number to the bytes of a slot, and back.
 */
#include "media/pattern.h"
#include "media/pattern_bytes.h"
#include "media/pattern_convert.h"
#include "media/pattern_draw.h"
#include "media/runs.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

static const char *const names[] = {
#define PATTERN_NAME(upper, lower) lower,
    PATTERNS(PATTERN_NAME)
#undef PATTERN_NAME
};

const char *pattern_name(enum pattern pattern) { return names[pattern]; }

int pattern_from_name(const char *name) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcasecmp(name, names[i]) == 0) return (int)i;
  return -1;
}

int pattern_is_still(enum pattern pattern) {
  return pattern == PATTERN_BARS || pattern == PATTERN_RAMP;
}

static int has_letter(const cudalink_description *description, char letter) {
  for (uint32_t i = 0; i < description->plane_count; i++)
    if (memchr(description->planes[i].name, letter, sizeof description->planes[i].name)) return 1;
  return 0;
}

void pattern_set_colour(cudalink_description *description) {
  cudalink_picture *picture = &description->picture;
  int is_gray = pattern_is_gray(picture->format);
  int is_yuv = !is_gray && has_letter(description, 'v');
  if (!picture->format) return;
  if (picture->range == CUDALINK_RANGE_NOT_SAID)
    picture->range = is_yuv ? CUDALINK_RANGE_LIMITED : CUDALINK_RANGE_FULL;
  if (picture->primaries == 2) picture->primaries = 1;             /* BT.709 */
  if (picture->transfer == 2) picture->transfer = is_yuv ? 1 : 13; /* BT.709, sRGB */
  if (picture->matrix == 2) picture->matrix = is_yuv || is_gray ? 1 : 0;
  if (picture->alpha == CUDALINK_ALPHA_NOT_SAID && has_letter(description, 'a'))
    picture->alpha = CUDALINK_ALPHA_STRAIGHT;
  if (picture->chroma_location == CUDALINK_CHROMA_NOT_SAID && is_yuv)
    picture->chroma_location = CUDALINK_CHROMA_CENTER;
}

/* Work space for drawing: two rows of RGBA, and a line of numbers. */
struct workshop {
  struct pattern_canvas canvas;
  uint16_t *rows[2];
  uint32_t *line;
};

static void workshop_close(struct workshop *workshop) {
  free(workshop->rows[0]);
  free(workshop->rows[1]);
  free(workshop->line);
}

static int workshop_open(struct workshop *workshop, uint32_t width, struct media_error *error) {
  for (int i = 0; i < 2; i++)
    workshop->rows[i] = malloc(4 * sizeof(uint16_t) * width);
  workshop->line = malloc((width + PATTERN_LINE_EXTRA) * sizeof(uint32_t));
  if (workshop->rows[0] && workshop->rows[1] && workshop->line) return CUDALINK_OK;
  workshop_close(workshop);
  return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory to draw %u pixels", width);
}

static uint32_t row_from_top(const cudalink_picture *picture, uint32_t row) {
  return picture->origin == CUDALINK_ORIGIN_BOTTOM_LEFT ? picture->height - 1 - row : row;
}

static void draw_plane_row(const cudalink_picture *picture, const cudalink_plane *plane,
                           struct workshop *workshop, const uint16_t *const rows[2],
                           uint32_t row_count, uint32_t row, uint8_t *slot) {
  uint32_t stack = pattern_stack(picture->format);
  int64_t pitch = plane->strides[stack > 1 ? 1 : 0];
  for (uint32_t i = 0; i < stack; i++) {
    int64_t offset = row * pitch + (stack > 1 ? i * plane->strides[0] : 0);
    pattern_convert_row(picture, plane, i, rows, row_count, workshop->line,
                        slot + plane->offset + offset);
  }
}

/* Two rows of the picture at a time: one row of chroma may need both. Behind the last row of an odd
 * height the last row counts twice. */
static void draw_row_pair(const cudalink_description *description, struct workshop *workshop,
                          uint32_t row, uint8_t *slot) {
  const cudalink_picture *picture = &description->picture;
  const uint16_t *const both[2] = {workshop->rows[0], workshop->rows[1]};
  const uint16_t *const second[2] = {workshop->rows[1], NULL};
  uint32_t next = row + 1 < picture->height ? row + 1 : row;
  pattern_draw_row(&workshop->canvas, row_from_top(picture, row), workshop->rows[0]);
  pattern_draw_row(&workshop->canvas, row_from_top(picture, next), workshop->rows[1]);
  for (uint32_t i = 0; i < description->plane_count; i++) {
    const cudalink_plane *plane = &description->planes[i];
    if (pattern_group_height(picture, plane) == 2) {
      draw_plane_row(picture, plane, workshop, both, 2, row / 2, slot);
      continue;
    }
    draw_plane_row(picture, plane, workshop, both, 1, row, slot);
    if (next > row) draw_plane_row(picture, plane, workshop, second, 1, next, slot);
  }
}

static int draw(enum pattern pattern, const cudalink_description *description, void *slot,
                uint64_t number, struct media_error *error) {
  const cudalink_picture *picture = &description->picture;
  struct workshop workshop;
  if (!picture->format)
    return media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
                      "pattern %s draws pictures, and this frame is none; use pattern check",
                      pattern_name(pattern));
  int result = workshop_open(&workshop, picture->width, error);
  if (result) return result;
  pattern_canvas_open(&workshop.canvas, pattern, picture->width, picture->height, number);
  for (uint32_t row = 0; row < picture->height; row += 2)
    draw_row_pair(description, &workshop, row, slot);
  workshop_close(&workshop);
  return CUDALINK_OK;
}

int pattern_fill(enum pattern pattern, const cudalink_description *description, void *slot,
                 uint64_t number, struct media_error *error) {
  uint64_t size;
  int result = cudalink_packed_bytes(description, &size);
  if (result) return media_fail_library(error, result, "pattern %s", pattern_name(pattern));
  if (pattern != PATTERN_CHECK) return draw(pattern, description, slot, number, error);
  pattern_bytes_fill(description, slot, size, number);
  return CUDALINK_OK;
}

/* The number as its squares say it, read at the middle of each. */
static uint64_t read_code(const cudalink_description *description, const uint8_t *slot,
                          uint32_t side) {
  const cudalink_picture *picture = &description->picture;
  uint64_t number = 0;
  for (uint32_t i = 0; i < 64; i++) {
    uint32_t x = i % 8 * side + side / 2, y = row_from_top(picture, i / 8 * side + side / 2);
    number = number << 1 | (uint64_t)pattern_is_bright(description, slot, x, y);
  }
  return number;
}

struct comparison {
  const uint8_t *slot;
  const uint8_t *expected; /* laid out in the same way */
};

static int64_t compare_run(void *context, uint64_t offset, uint64_t position, uint64_t bytes) {
  const struct comparison *comparison = context;
  const uint8_t *slot = comparison->slot + offset, *expected = comparison->expected + offset;
  if (memcmp(slot, expected, bytes) == 0) return -1;
  uint64_t i = 0;
  while (slot[i] == expected[i])
    i++;
  return (int64_t)(position + i);
}

/* Draws the frame again and compares. */
static int64_t check_drawn(enum pattern pattern, const cudalink_description *description,
                           const void *slot, uint64_t number, struct media_error *error) {
  uint64_t bytes = 0;
  cudalink_description_bytes(description, &bytes);
  uint8_t *expected = malloc(bytes);
  if (!expected) {
    media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory to check %llu bytes",
               (unsigned long long)bytes);
    return PATTERN_UNCHECKED;
  }
  struct comparison comparison = {slot, expected};
  int64_t result = PATTERN_UNCHECKED;
  if (draw(pattern, description, expected, number, error) == CUDALINK_OK)
    result = runs_visit(description, compare_run, &comparison);
  free(expected);
  return result;
}

static int64_t check_counter(const cudalink_description *description, const void *slot,
                             uint64_t *number, struct media_error *error) {
  const cudalink_picture *picture = &description->picture;
  uint32_t side = picture->format ? pattern_code_side(picture->width, picture->height) : 0;
  if (side == 0) {
    media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
               "pattern counter has no room for its number in %u x %u pixels, use pattern check",
               picture->width, picture->height);
    return PATTERN_UNCHECKED;
  }
  *number = read_code(description, slot, side);
  return check_drawn(PATTERN_COUNTER, description, slot, *number, error);
}

int64_t pattern_check(enum pattern pattern, const cudalink_description *description,
                      const void *slot, uint64_t *number, struct media_error *error) {
  uint64_t size;
  *number = 0;
  if (cudalink_packed_bytes(description, &size)) {
    media_fail_library(error, INVALID, "pattern %s", pattern_name(pattern));
    return PATTERN_UNCHECKED;
  }
  switch (pattern) {
  case PATTERN_CHECK: return pattern_bytes_check(description, slot, size, number);
  case PATTERN_COUNTER: return check_counter(description, slot, number, error);
  case PATTERN_BARS:
  case PATTERN_RAMP: return check_drawn(pattern, description, slot, 0, error);
  default:
    media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
               "pattern %s does not say its number, so it can't be checked", pattern_name(pattern));
    return PATTERN_UNCHECKED;
  }
}
