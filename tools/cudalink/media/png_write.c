/* SPDX-License-Identifier: MIT
 *
 * Writes PNG pictures with libpng.
 */
#include "media/writer.h"

#include <png.h>

/* Fast rather than small: frames come 60 times a second. */
#define COMPRESSION_LEVEL 1

struct png_layout {
  cudalink_format format;
  int colour_type;
  int depth;
  int has_filler; /* a fourth sample that is left out */
  int is_bgr;
};

static const struct png_layout layouts[] = {
    {CUDALINK_FORMAT_R8, PNG_COLOR_TYPE_GRAY, 8, 0, 0},
    {CUDALINK_FORMAT_GRAY8, PNG_COLOR_TYPE_GRAY, 8, 0, 0},
    {CUDALINK_FORMAT_R16, PNG_COLOR_TYPE_GRAY, 16, 0, 0},
    {CUDALINK_FORMAT_GRAY16, PNG_COLOR_TYPE_GRAY, 16, 0, 0},
    {CUDALINK_FORMAT_RGB8, PNG_COLOR_TYPE_RGB, 8, 0, 0},
    {CUDALINK_FORMAT_RGBA8, PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, 0},
    {CUDALINK_FORMAT_BGRA8, PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, 1},
    {CUDALINK_FORMAT_RGBX8, PNG_COLOR_TYPE_RGB, 8, 1, 0},
    {CUDALINK_FORMAT_BGRX8, PNG_COLOR_TYPE_RGB, 8, 1, 1},
    {CUDALINK_FORMAT_RGBA16, PNG_COLOR_TYPE_RGB_ALPHA, 16, 0, 0},
};

static const struct png_layout *find_layout(const cudalink_picture *picture) {
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
    if ((uint32_t)layouts[i].format == picture->format) return &layouts[i];
  return NULL;
}

const char *media_png_refusal(const cudalink_description *description) {
  if (!description->picture.format) return "PNG holds pictures, and this frame is none; use .npy";
  if (!find_layout(&description->picture))
    return "PNG holds R8, R16, GRAY8, GRAY16, RGB8, RGBA8, BGRA8, RGBX8, BGRX8 and RGBA16; use "
           ".npy, "
           ".y4m or .raw";
  return NULL;
}

/* All that the code between setjmp and longjmp touches. */
struct png_job {
  png_structp png;
  png_infop info;
  struct media_output *output;
  const struct media_frame *frame;
  struct media_error *error;
  int result;
};

static void on_error(png_structp png, png_const_charp text) {
  struct png_job *job = png_get_error_ptr(png);
  if (!job->result)
    job->result =
        media_fail(job->error, CUDALINK_ERROR_INVALID_ARGUMENT, "%s: %s", job->output->name, text);
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
  (void)png;
  (void)text;
}

static void on_write(png_structp png, png_bytep from, size_t size) {
  struct png_job *job = png_get_io_ptr(png);
  job->result = media_output_write(job->output, from, size, job->error);
  if (job->result) png_error(png, "write");
}

static void on_flush(png_structp png) { (void)png; }

static void write_head(png_structp png, png_infop info, const cudalink_picture *picture) {
  struct png_layout layout = *find_layout(picture);
  if (picture->alpha == CUDALINK_ALPHA_IGNORED && layout.colour_type == PNG_COLOR_TYPE_RGB_ALPHA) {
    layout.colour_type = PNG_COLOR_TYPE_RGB;
    layout.has_filler = 1;
  }
  png_set_IHDR(png, info, picture->width, picture->height, layout.depth, layout.colour_type,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (picture->primaries == 1 && picture->transfer == 13)
    png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
  png_set_compression_level(png, COMPRESSION_LEVEL);
  png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
  png_write_info(png, info);
  if (layout.has_filler) png_set_filler(png, 0, PNG_FILLER_AFTER);
  if (layout.is_bgr) png_set_bgr(png);
  if (layout.depth == 16) png_set_swap(png);
}

static int write_picture(struct png_job *job) {
  const cudalink_picture *picture = &job->frame->description->picture;
  if (setjmp(png_jmpbuf(job->png))) return job->result;
  write_head(job->png, job->info, picture);
  uint64_t pitch = job->frame->bytes / picture->height;
  for (uint32_t y = 0; y < picture->height; y++)
    png_write_row(job->png, job->frame->packed + y * pitch);
  png_write_end(job->png, NULL);
  return CUDALINK_OK;
}

int media_png_write(struct media_output *output, const struct media_frame *frame,
                    struct media_error *error) {
  struct png_job job = {.output = output, .frame = frame, .error = error};
  job.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning);
  if (job.png) job.info = png_create_info_struct(job.png);
  int result;
  if (job.info) {
    png_set_write_fn(job.png, &job, on_write, on_flush);
    result = write_picture(&job);
  } else {
    result =
        media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%s: no memory to write PNG", output->name);
  }
  png_destroy_write_struct(&job.png, &job.info);
  return result;
}
