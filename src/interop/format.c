/* SPDX-License-Identifier: MIT
 *
 * Names of picture formats, and the description of a picture in memory that we lay out ourselves.
 */
#include "base/error.h"
#include "interop/format_table.h"

#include <string.h>

#define MAX_SIDE 65535u
#define GPU_ALIGNMENT 256u

static const uint32_t all_formats[] = {
#define NUMBER(name, fourcc) fourcc,
    CUDALINK_FORMATS(NUMBER)
#undef NUMBER
};
#define FORMAT_COUNT (sizeof all_formats / sizeof all_formats[0])

const char *cudalink_format_name(uint32_t format) {
  const struct format_row *row = format_find(format);
  return row ? row->name : NULL;
}

/* Not tolower(): names are ASCII whatever the program's locale is. */
static char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

static int same_name(const char *a, const char *b) {
  while (*a && lower(*a) == lower(*b))
    a++, b++;
  return lower(*a) == lower(*b);
}

cudalink_format cudalink_format_from_name(const char *name) {
  if (!name) return CUDALINK_FORMAT_NONE;
  for (size_t i = 0; i < FORMAT_COUNT; i++)
    if (same_name(name, cudalink_format_name(all_formats[i])))
      return (cudalink_format)all_formats[i];
  return CUDALINK_FORMAT_NONE;
}

cudalink_format cudalink_format_next(cudalink_format format) {
  if (format == CUDALINK_FORMAT_NONE) return (cudalink_format)all_formats[0];
  for (size_t i = 0; i + 1 < FORMAT_COUNT; i++)
    if (all_formats[i] == (uint32_t)format) return (cudalink_format)all_formats[i + 1];
  return CUDALINK_FORMAT_NONE;
}

static uint64_t align(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

static void describe_plane(cudalink_plane *plane, const struct format_row *row, uint32_t index,
                           struct format_shape shape, uint64_t pitch) {
  memset(plane, 0, sizeof *plane);
  memcpy(plane->name, row->planes[index].name, sizeof row->planes[index].name);
  plane->dtype = cudalink_dtype_make((cudalink_dtype_code)row->code, row->bits);
  plane->dimensions = shape.dimensions;
  plane->bytes = (shape.rows - 1) * pitch + shape.row_bytes;
  int64_t stride = row->bits / 8;
  for (uint32_t k = shape.dimensions; k-- > 0;) {
    if (k == shape.row_dimension) stride = (int64_t)pitch;
    plane->shape[k] = shape.shape[k];
    plane->strides[k] = stride;
    stride *= shape.shape[k];
  }
}

/* Sizes are at most 65535 x 65535 x 16 bytes per plane and the alignment is a 32-bit number, so
 * nothing here can pass 63 bits. */
static void describe_planes(cudalink_description *description, const struct format_row *row,
                            uint32_t pitch_alignment) {
  const cudalink_picture *picture = &description->picture;
  uint64_t plane_alignment = pitch_alignment == 1 ? 1 : GPU_ALIGNMENT;
  uint64_t end = 0;
  memset(description->planes, 0, sizeof description->planes);
  description->plane_count = row->plane_count;
  for (uint32_t i = 0; i < row->plane_count; i++) {
    struct format_shape shape = format_plane_shape(row, i, picture->width, picture->height);
    uint64_t pitch = row->own_pitch ? shape.row_bytes : align(shape.row_bytes, pitch_alignment);
    cudalink_plane *plane = &description->planes[i];
    describe_plane(plane, row, i, shape, pitch);
    plane->offset = align(end, plane_alignment);
    end = plane->offset + plane->bytes;
  }
}

int cudalink_describe_picture(cudalink_description *description, cudalink_format format,
                              uint32_t width, uint32_t height, uint32_t pitch_alignment) {
  const struct format_row *row = format_find((uint32_t)format);
  if (!description)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "describe a picture: description is NULL");
  if (!row)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "describe a picture: 0x%08x is no picture format; cudalink_format_next lists "
                     "them",
                     (unsigned)format);
  if (width < 1 || width > MAX_SIDE || height < 1 || height > MAX_SIDE)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "describe a picture: %s of %u x %u pixels is not possible, each side must be "
                     "1 to %u",
                     row->name, width, height, MAX_SIDE);
  if (pitch_alignment & (pitch_alignment - 1))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "describe a picture: pitch_alignment %u is no power of two", pitch_alignment);
  description->picture = (cudalink_picture){.format = row->format,
                                            .width = width,
                                            .height = height,
                                            .primaries = 2,
                                            .transfer = 2,
                                            .matrix = 2};
  describe_planes(description, row, pitch_alignment ? pitch_alignment : GPU_ALIGNMENT);
  return CUDALINK_OK;
}
