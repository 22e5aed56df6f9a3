/* SPDX-License-Identifier: MIT
 *
 * From a description to channels. Where samples lie follows from the table of formats: the name of
 * a plane is the order of its samples in memory ("uyvy"), its group says how many pixels they
 * cover.
 */
#include "interop/convert/layout.h"

#include <string.h>

#include "base/error.h"
#include "interop/format_table.h"

static const char channel_letters[2][5] = {"rgba", "yuva"};

/* Group sizes are 1, 2 and 4. */
static uint32_t shift_of(uint32_t size) { return size == 4 ? 2 : size == 2 ? 1 : 0; }

static uint32_t occurrences(const char *name, char letter) {
  uint32_t count = 0;
  for (; *name; name++)
    count += *name == letter;
  return count;
}

static uint32_t storage_of(const struct format_row *row) {
  if (row->format == CUDALINK_FORMAT_V210) return CONVERT_V210;
  if (row->format == CUDALINK_FORMAT_R11G11B10F) return CONVERT_R11G11B10F;
  if (row->format == CUDALINK_FORMAT_RGB10A2) return CONVERT_PACKED;
  if (row->code == CUDALINK_DTYPE_FLOAT) return row->bits == 16 ? CONVERT_HALF : CONVERT_FLOAT;
  if (row->bits == 16) return CONVERT_WORDS;
  int is_word = row->model == FORMAT_MODEL_RGB && row->planes[0].samples == 4;
  return is_word ? CONVERT_PACKED : CONVERT_BYTES;
}

static uint32_t family_of(const struct format_row *row) {
  if (row->model != FORMAT_MODEL_RGB) return CONVERT_YUV;
  if (!strcmp(row->planes[0].name, "r")) return CONVERT_RED;
  if (!strcmp(row->planes[0].name, "rg")) return CONVERT_RED_GREEN;
  return CONVERT_RGB;
}

/* One channel in the plane that has its letter. */
static void read_channel(struct convert_layout *layout, uint32_t i, const struct format_row *row,
                         const struct format_plane *format, const cudalink_plane *plane,
                         char letter) {
  struct convert_channel *channel = &layout->side.channels[i];
  const char *first = strchr(format->name, letter);
  uint64_t place = (uint64_t)(first - format->name);
  uint32_t bytes = row->bits / 8u;
  uint32_t count = 1 + occurrences(first + 1, letter);
  uint32_t stacked = format->stack > 1;
  channel->present = 1;
  channel->pitch = (uint64_t)plane->strides[stacked];
  channel->address = plane->offset + place * (stacked ? (uint64_t)plane->strides[0] : bytes);
  channel->step = (uint64_t)format->group_columns * format->samples * bytes / count;
  channel->shift_x = shift_of(format->group_width / count);
  channel->shift_y = shift_of(format->group_height);
  channel->width = (layout->width + count - 1) / count * count;
  layout->depths[i] = row->code == CUDALINK_DTYPE_FLOAT ? 0 : row->depth;
  if (format->group_width > layout->cell_width) layout->cell_width = format->group_width;
  if (format->group_height > layout->cell_height) layout->cell_height = format->group_height;
}

static void read_channels(struct convert_layout *layout, const cudalink_description *description,
                          const struct format_row *row) {
  const char *letters = channel_letters[layout->family == CONVERT_YUV];
  for (uint32_t i = 0; i < 4; i++)
    for (uint32_t k = 0; k < row->plane_count; k++) {
      char letter = letters[i];
      if (i == 3 && strchr(row->planes[k].name, 'x')) letter = 'x', layout->filler = 1;
      if (strchr(row->planes[k].name, letter))
        read_channel(layout, i, row, &row->planes[k], &description->planes[k], letter);
    }
}

/* A pixel in a word: every channel has the word's address and its own bits. */
static void read_packed(struct convert_layout *layout, const struct format_row *row,
                        const cudalink_plane *plane) {
  for (uint32_t i = 0; i < 4; i++) {
    struct convert_channel *channel = &layout->side.channels[i];
    if (row->bits == 8) {
      channel->position = (uint32_t)(channel->address - plane->offset) * 8;
    } else {
      channel->position = i * 10;
      layout->depths[i] = i < 3 ? 10 : 2;
    }
    channel->mask = (1u << layout->depths[i]) - 1;
    channel->address = plane->offset;
    channel->step = 4;
  }
}

/* All of a v210 group, or of an R11G11B10F word, is read and written at once, so channels say no
 * more than that they are there. */
static void read_grouped(struct convert_layout *layout, const struct format_row *row,
                         const cudalink_plane *plane) {
  int is_v210 = layout->side.storage == CONVERT_V210;
  for (uint32_t i = 0; i < 3; i++) {
    struct convert_channel *channel = &layout->side.channels[i];
    channel->present = 1;
    channel->address = plane->offset;
    channel->pitch = (uint64_t)plane->strides[0];
    channel->step = 4;
    channel->width = layout->width;
    layout->depths[i] = is_v210 ? row->depth : 0;
  }
  if (is_v210) layout->cell_width = 6;
}

static void read_picture(struct convert_layout *layout, const cudalink_description *description) {
  const struct format_row *row = format_find(description->picture.format);
  layout->name = row->name;
  layout->family = family_of(row);
  layout->width = description->picture.width;
  layout->height = description->picture.height;
  layout->side.storage = storage_of(row);
  layout->side.sample_shift = row->shift;
  if (layout->side.storage == CONVERT_V210 || layout->side.storage == CONVERT_R11G11B10F) {
    read_grouped(layout, row, &description->planes[0]);
    return;
  }
  read_channels(layout, description, row);
  if (layout->side.storage == CONVERT_PACKED) read_packed(layout, row, &description->planes[0]);
}

static int tensor_storage(struct convert_layout *layout, cudalink_dtype dtype, const char *role) {
  uint32_t depth = 0;
  if (dtype.lanes == 1 && dtype.code == CUDALINK_DTYPE_UINT && dtype.bits == 8) {
    layout->side.storage = CONVERT_BYTES, layout->name = "a uint8 tensor", depth = 8;
  } else if (dtype.lanes == 1 && dtype.code == CUDALINK_DTYPE_FLOAT && dtype.bits == 16) {
    layout->side.storage = CONVERT_HALF, layout->name = "a float16 tensor";
  } else if (dtype.lanes == 1 && dtype.code == CUDALINK_DTYPE_FLOAT && dtype.bits == 32) {
    layout->side.storage = CONVERT_FLOAT, layout->name = "a float32 tensor";
  } else {
    return error_set(
        CUDALINK_ERROR_UNSUPPORTED,
        "convert: the %s is a tensor of type code %u, %u bit%s, %u lane%s; only uint8, "
        "float16 and float32 count as pictures",
        role, dtype.code, dtype.bits, error_s(dtype.bits), dtype.lanes, error_s(dtype.lanes));
  }
  for (int i = 0; i < 4; i++)
    layout->depths[i] = depth;
  return CUDALINK_OK;
}

static int is_channels(int64_t size) { return size == 3 || size == 4; }

/* Finds which of the last three dimensions are rows, columns and channels. */
static int tensor_dimensions(const cudalink_plane *plane, const char *role, uint32_t *rows,
                             uint32_t *channels) {
  uint32_t ones = 0;
  while (ones + 3 < plane->dimensions && plane->shape[ones] == 1)
    ones++;
  if (plane->dimensions < 3 || ones + 3 != plane->dimensions)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "convert: the %s is a tensor of %u dimension%s; a picture is {height, width, "
                     "3 or 4} or {3 or 4, height, width}, with nothing but ones in front",
                     role, plane->dimensions, error_s(plane->dimensions));
  const int64_t *shape = plane->shape + ones;
  int planar = is_channels(shape[0]), interleaved = is_channels(shape[2]);
  if (planar == interleaved)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "convert: the %s is a tensor {%lld, %lld, %lld}, which %s; a picture is "
                     "{height, width, 3 or 4} or {3 or 4, height, width}",
                     role, (long long)shape[0], (long long)shape[1], (long long)shape[2],
                     planar ? "could be planar or interleaved: describe it as a picture"
                            : "has no channels");
  *rows = planar ? ones + 1 : ones;
  *channels = planar ? ones : ones + 2;
  return CUDALINK_OK;
}

static int read_tensor(struct convert_layout *layout, const cudalink_description *description,
                       const char *role) {
  const cudalink_plane *plane = &description->planes[0];
  uint32_t rows = 0, channels = 0;
  if (description->plane_count != 1)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "convert: the %s is no picture and has %u tensors; one is needed", role,
                     description->plane_count);
  int result = tensor_storage(layout, plane->dtype, role);
  if (!result) result = tensor_dimensions(plane, role, &rows, &channels);
  if (result) return result;
  int64_t height = plane->shape[rows], width = plane->shape[rows + 1];
  if (height < 1 || height > 65535 || width < 1 || width > 65535)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "convert: the %s is a tensor of %lld x %lld pixels, each side must be 1 to "
                     "65535",
                     role, (long long)width, (long long)height);
  layout->family = CONVERT_RGB;
  layout->width = (uint32_t)width;
  layout->height = (uint32_t)height;
  for (uint32_t i = 0; i < (uint32_t)plane->shape[channels]; i++) {
    struct convert_channel *channel = &layout->side.channels[i];
    channel->present = 1;
    channel->address = plane->offset + i * (uint64_t)plane->strides[channels];
    channel->pitch = (uint64_t)plane->strides[rows];
    channel->step = (uint64_t)plane->strides[rows + 1];
    channel->width = layout->width;
  }
  return CUDALINK_OK;
}

int convert_layout_read(struct convert_layout *layout, const cudalink_description *description,
                        const char *role) {
  uint64_t bytes;
  int result = cudalink_description_bytes(description, &bytes);
  if (result) return result;
  *layout = (struct convert_layout){.cell_width = 1, .cell_height = 1};
  if (description->picture.format)
    read_picture(layout, description);
  else
    result = read_tensor(layout, description, role);
  for (uint32_t i = 1; i < 4; i++)
    if (!layout->side.channels[i].present) layout->depths[i] = layout->depths[0];
  return result;
}
