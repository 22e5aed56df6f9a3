/* SPDX-License-Identifier: MIT
 *
 * Reads PNG pictures with libpng. Whatever a file stores becomes one of GRAY8, GRAY16, RGB8, RGBA8
 * and RGBA16.
 */
#include "media/reader.h"

#include <png.h>
#include <stdlib.h>

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT
#define MAX_SIDE 65535

/* libpng reports errors by longjmp(). So that no local variable is lost there, all that its
 * functions touch is kept here. */
struct png_state {
  png_structp png; /* NULL: between two pictures */
  png_infop info;
  struct media_reader *reader;
  struct media_error *error;
  int result; /* set when our own code failed inside libpng */
};

static void on_error(png_structp png, png_const_charp text) {
  struct png_state *state = png_get_error_ptr(png);
  if (!state->result)
    state->result =
        media_fail(state->error, INVALID, "%s: picture %llu (the first is 0): %s",
                   state->reader->input.name, (unsigned long long)state->reader->frame, text);
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
  (void)png;
  (void)text;
}

static void on_read(png_structp png, png_bytep to, size_t size) {
  struct png_state *state = png_get_io_ptr(png);
  state->result = media_read_exactly(state->reader, to, size, state->error);
  if (state->result) png_error(png, "read");
}

static void end_picture(struct png_state *state) {
  png_destroy_read_struct(&state->png, &state->info, NULL);
}

static int begin_picture(struct png_state *state) {
  state->result = 0;
  state->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, state, on_error, on_warning);
  if (state->png) state->info = png_create_info_struct(state->png);
  if (!state->png || !state->info)
    return media_fail(state->error, CUDALINK_ERROR_NO_MEMORY, "no memory to read PNG");
  png_set_read_fn(state->png, state, on_read);
  png_set_user_limits(state->png, MAX_SIDE, MAX_SIDE);
  return CUDALINK_OK;
}

/* Asks libpng for gray, RGB or RGBA of 8 or 16 bits, little-endian. */
static void set_transforms(png_structp png, png_infop info) {
  int type = png_get_color_type(png, info);
  int has_transparency = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  int depth = png_get_bit_depth(png, info);
  png_set_expand(png); /* palettes, 1 to 4 bits, transparent colours */
  if (depth == 16) png_set_swap(png);
  if (type == PNG_COLOR_TYPE_GRAY_ALPHA || (type == PNG_COLOR_TYPE_GRAY && has_transparency))
    png_set_gray_to_rgb(png);
  /* There is no format of three 16-bit samples. */
  if (type == PNG_COLOR_TYPE_RGB && !has_transparency && depth == 16)
    png_set_add_alpha(png, 0xffff, PNG_FILLER_AFTER);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

static cudalink_format find_format(png_structp png, png_infop info) {
  int deep = png_get_bit_depth(png, info) == 16;
  switch (png_get_channels(png, info)) {
  case 1: return deep ? CUDALINK_FORMAT_GRAY16 : CUDALINK_FORMAT_GRAY8;
  case 3: return deep ? CUDALINK_FORMAT_NONE : CUDALINK_FORMAT_RGB8;
  case 4: return deep ? CUDALINK_FORMAT_RGBA16 : CUDALINK_FORMAT_RGBA8;
  default: return CUDALINK_FORMAT_NONE;
  }
}

static void set_colour(cudalink_picture *picture, png_structp png, png_infop info,
                       int alpha_was_added) {
  int intent;
  picture->range = CUDALINK_RANGE_FULL;
  if (png_get_channels(png, info) == 4)
    picture->alpha = alpha_was_added ? CUDALINK_ALPHA_IGNORED : CUDALINK_ALPHA_STRAIGHT;
  if (!png_get_sRGB(png, info, &intent)) return;
  picture->primaries = 1;                                   /* BT.709, as sRGB has them */
  picture->transfer = 13;                                   /* sRGB */
  if (png_get_channels(png, info) > 1) picture->matrix = 0; /* RGB itself */
}

static int describe(struct png_state *state) {
  struct media_reader *reader = state->reader;
  int plain_rgb = png_get_color_type(state->png, state->info) == PNG_COLOR_TYPE_RGB &&
                  !png_get_valid(state->png, state->info, PNG_INFO_tRNS);
  set_transforms(state->png, state->info);
  reader->description = (cudalink_description){0};
  int result = cudalink_describe_picture(&reader->description, find_format(state->png, state->info),
                                         png_get_image_width(state->png, state->info),
                                         png_get_image_height(state->png, state->info), 1);
  if (result) return media_fail_library(state->error, result, "%s", reader->input.name);
  set_colour(&reader->description.picture, state->png, state->info, plain_rgb);
  return CUDALINK_OK;
}

static int png_start(struct media_reader *reader, struct media_error *error) {
  struct png_state *state = calloc(1, sizeof *state);
  if (!state) return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory to read PNG");
  state->reader = reader;
  reader->state = state;
  return CUDALINK_OK;
}

static void png_stop(struct media_reader *reader) {
  struct png_state *state = reader->state;
  if (state) end_picture(state);
  free(state);
  reader->state = NULL;
}

static int read_head(struct png_state *state) {
  if (setjmp(png_jmpbuf(state->png))) return state->result;
  png_read_info(state->png, state->info);
  return describe(state);
}

static int png_next(struct media_reader *reader, struct media_error *error) {
  struct png_state *state = reader->state;
  const uint8_t *bytes;
  int64_t count = media_input_peek(&reader->input, 1, &bytes, error);
  if (count <= 0) return (int)count;
  state->error = error;
  int result = begin_picture(state);
  if (!result) result = read_head(state);
  if (!result) return 1;
  end_picture(state);
  return result;
}

static int read_rows(struct png_state *state, uint8_t *packed) {
  if (setjmp(png_jmpbuf(state->png))) return state->result;
  size_t pitch = png_get_rowbytes(state->png, state->info);
  uint32_t height = png_get_image_height(state->png, state->info);
  int passes = png_get_interlace_type(state->png, state->info) == PNG_INTERLACE_ADAM7
                   ? PNG_INTERLACE_ADAM7_PASSES
                   : 1;
  for (int pass = 0; pass < passes; pass++)
    for (uint32_t y = 0; y < height; y++)
      png_read_row(state->png, packed + y * pitch, NULL);
  png_read_end(state->png, NULL);
  return CUDALINK_OK;
}

static int png_read(struct media_reader *reader, uint8_t *packed, struct media_error *error) {
  struct png_state *state = reader->state;
  state->error = error;
  int result = read_rows(state, packed);
  end_picture(state);
  return result;
}

const struct media_decoder media_png_decoder = {.start = png_start,
                                                .next = png_next,
                                                .read = png_read,
                                                .stop = png_stop};
