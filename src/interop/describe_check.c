/* SPDX-License-Identifier: MIT
 *
 * Checks a description before anything is done with it. Descriptions come from other processes, so
 * nothing in them is believed: after this check every address that follows from shapes and strides
 * lies inside the bytes that were computed here, and every text ends.
 */
#include "base/error.h"
#include "interop/describe.h"
#include "interop/format_table.h"

#include <string.h>

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT
#define MAX_SIDE 65535u

static int check_dimensions(uint32_t index, const cudalink_plane *plane) {
  if (plane->dimensions > CUDALINK_MAX_DIMENSIONS)
    return error_set(INVALID, "plane %u \"%s\": %u dimensions, %d is most", index, plane->name,
                     plane->dimensions, CUDALINK_MAX_DIMENSIONS);
  for (uint32_t k = 0; k < plane->dimensions; k++) {
    if (plane->shape[k] < 0)
      return error_set(INVALID, "plane %u \"%s\": shape[%u] is %lld", index, plane->name, k,
                       (long long)plane->shape[k]);
    if (plane->strides[k] < 0)
      return error_set(INVALID, "plane %u \"%s\": strides[%u] is %lld, strides are not negative",
                       index, plane->name, k, (long long)plane->strides[k]);
  }
  return CUDALINK_OK;
}

static int check_dtype(uint32_t index, const cudalink_plane *plane) {
  cudalink_dtype dtype = plane->dtype;
  if (!describe_dtype_is_legal(dtype))
    return error_set(INVALID,
                     "plane %u \"%s\": type code %u with %u bit%s and %u lane%s does not exist",
                     index, plane->name, dtype.code, dtype.bits, error_s(dtype.bits), dtype.lanes,
                     error_s(dtype.lanes));
  if ((uint32_t)dtype.bits * dtype.lanes < 8 && plane->dimensions > 0 &&
      plane->strides[plane->dimensions - 1] != 0)
    return error_set(
        INVALID,
        "plane %u \"%s\": elements of %u bit%s lie dense in the last dimension, so its "
        "stride must be 0, not %lld",
        index, plane->name, (uint32_t)dtype.bits * dtype.lanes,
        error_s((uint32_t)dtype.bits * dtype.lanes),
        (long long)plane->strides[plane->dimensions - 1]);
  return CUDALINK_OK;
}

/* `end` becomes the first byte behind the plane. */
static int check_plane(uint32_t index, const cudalink_plane *plane, uint64_t *end) {
  struct describe_size size;
  if (!memchr(plane->name, 0, sizeof plane->name))
    return error_set(INVALID, "plane %u: its name has no end within %d bytes", index,
                     CUDALINK_PLANE_NAME_SIZE);
  int result = check_dimensions(index, plane);
  if (!result) result = check_dtype(index, plane);
  if (result) return result;
  if (describe_plane_size(plane, &size))
    return error_set(INVALID, "plane %u \"%s\": shape and strides reach behind 2^63 bytes", index,
                     plane->name);
  if (plane->bytes != size.extent)
    return error_set(INVALID,
                     "plane %u \"%s\": bytes is %llu, but shape and strides cover %llu byte%s",
                     index, plane->name, (unsigned long long)plane->bytes,
                     (unsigned long long)size.extent, error_s((uint64_t)size.extent));
  if (__builtin_add_overflow(plane->offset, plane->bytes, end) || *end > INT64_MAX)
    return error_set(INVALID, "plane %u \"%s\": offset %llu + %llu byte%s end behind 2^63", index,
                     plane->name, (unsigned long long)plane->offset,
                     (unsigned long long)plane->bytes, error_s(plane->bytes));
  return CUDALINK_OK;
}

static int check_field(const char *name, unsigned value, unsigned most) {
  if (value <= most) return CUDALINK_OK;
  return error_set(INVALID, "picture: %s is %u, %u is most", name, value, most);
}

/* A fraction is said (both parts) or not said (both 0), so that nobody divides by zero. */
static int check_fraction(const char *name, uint32_t numerator, uint32_t denominator) {
  if ((numerator == 0) == (denominator == 0)) return CUDALINK_OK;
  return error_set(INVALID, "%s is %u/%u; write 0/0 for \"not said\"", name, numerator,
                   denominator);
}

static int check_picture_fields(const cudalink_picture *picture) {
  int result = check_field("range", picture->range, CUDALINK_RANGE_FULL);
  if (!result) result = check_field("origin", picture->origin, CUDALINK_ORIGIN_BOTTOM_LEFT);
  if (!result) result = check_field("alpha", picture->alpha, CUDALINK_ALPHA_IGNORED);
  if (!result)
    result = check_field("field_order", picture->field_order, CUDALINK_FIELD_BOTTOM_FIRST);
  if (!result)
    result = check_field("chroma_location", picture->chroma_location, CUDALINK_CHROMA_TOP_LEFT);
  if (!result)
    result = check_fraction("picture: pixel_aspect", picture->pixel_aspect_numerator,
                            picture->pixel_aspect_denominator);
  return result;
}

/* Code that walks over a picture steps by pitch from row to row and reads each row as a whole, so
 * rows are dense, do not overlap and start at whole elements. */
static int check_picture_strides(uint32_t index, const cudalink_plane *plane,
                                 struct format_shape shape) {
  int64_t element = plane->dtype.bits / 8;
  int64_t dense = element;
  for (uint32_t k = shape.dimensions; k-- > shape.row_dimension + 1;) {
    if (plane->strides[k] != dense)
      return error_set(INVALID,
                       "picture plane %u \"%s\": strides[%u] is %lld, dense rows need %lld", index,
                       plane->name, k, (long long)plane->strides[k], (long long)dense);
    dense *= plane->shape[k];
  }
  int64_t pitch = plane->strides[shape.row_dimension];
  if (pitch < dense || pitch % element)
    return error_set(
        INVALID,
        "picture plane %u \"%s\": the pitch is %lld, it must be a multiple of %lld and "
        "at least %lld",
        index, plane->name, (long long)pitch, (long long)element, (long long)dense);
  if (shape.row_dimension > 0 && plane->strides[0] % element)
    return error_set(INVALID, "picture plane %u \"%s\": strides[0] is %lld, no multiple of %lld",
                     index, plane->name, (long long)plane->strides[0], (long long)element);
  if (plane->offset % (uint64_t)element)
    return error_set(INVALID, "picture plane %u \"%s\": offset %llu is no multiple of %lld", index,
                     plane->name, (unsigned long long)plane->offset, (long long)element);
  return CUDALINK_OK;
}

static int check_picture_plane(const struct format_row *row, const cudalink_picture *picture,
                               uint32_t index, const cudalink_plane *plane) {
  struct format_shape shape = format_plane_shape(row, index, picture->width, picture->height);
  if (plane->dtype.code != row->code || plane->dtype.bits != row->bits || plane->dtype.lanes != 1)
    return error_set(INVALID,
                     "picture plane %u: its type is code %u, %u bit%s, %u lane%s, but %s has code "
                     "%u, %u bit%s, 1 lane",
                     index, plane->dtype.code, plane->dtype.bits, error_s(plane->dtype.bits),
                     plane->dtype.lanes, error_s(plane->dtype.lanes), row->name, row->code,
                     row->bits, error_s(row->bits));
  if (plane->dimensions != shape.dimensions)
    return error_set(INVALID, "picture plane %u: %u dimension%s, but %s has %u", index,
                     plane->dimensions, error_s(plane->dimensions), row->name, shape.dimensions);
  for (uint32_t k = 0; k < shape.dimensions; k++)
    if (plane->shape[k] != shape.shape[k])
      return error_set(INVALID, "picture plane %u: shape[%u] is %lld, but %s of %u x %u has %lld",
                       index, k, (long long)plane->shape[k], row->name, picture->width,
                       picture->height, (long long)shape.shape[k]);
  return check_picture_strides(index, plane, shape);
}

static int check_picture(const cudalink_description *description) {
  const cudalink_picture *picture = &description->picture;
  const struct format_row *row = format_find(picture->format);
  if (!row) return error_set(INVALID, "picture: 0x%08x is no picture format", picture->format);
  if (picture->width < 1 || picture->width > MAX_SIDE || picture->height < 1 ||
      picture->height > MAX_SIDE)
    return error_set(INVALID, "picture: %u x %u pixels, each side must be 1 to %u", picture->width,
                     picture->height, MAX_SIDE);
  if (description->plane_count != row->plane_count)
    return error_set(INVALID, "picture: %u plane%s, but %s has %u", description->plane_count,
                     error_s(description->plane_count), row->name, row->plane_count);
  int result = check_picture_fields(picture);
  for (uint32_t i = 0; !result && i < row->plane_count; i++)
    result = check_picture_plane(row, picture, i, &description->planes[i]);
  return result;
}

static int check_timing(const cudalink_timing *timing) {
  if (!memchr(timing->clock, 0, sizeof timing->clock))
    return error_set(INVALID, "timing: the clock's name has no end within %d bytes",
                     CUDALINK_CLOCK_NAME_SIZE);
  int result = check_fraction("timing: time_base", timing->time_base_numerator,
                              timing->time_base_denominator);
  if (result) return result;
  return check_fraction("timing: rate", timing->rate_numerator, timing->rate_denominator);
}

int cudalink_description_bytes(const cudalink_description *description, uint64_t *bytes) {
  if (!description || !bytes)
    return error_set(INVALID, "description: %s is NULL", description ? "bytes" : "description");
  if (description->plane_count < 1 || description->plane_count > CUDALINK_MAX_PLANES)
    return error_set(INVALID, "description: %u planes, a frame has 1 to %d",
                     description->plane_count, CUDALINK_MAX_PLANES);
  if (description->user_size > CUDALINK_MAX_USER_SIZE)
    return error_set(INVALID, "description: user_size is %u, %d is most", description->user_size,
                     CUDALINK_MAX_USER_SIZE);
  uint64_t needed = 0;
  for (uint32_t i = 0; i < description->plane_count; i++) {
    uint64_t end = 0;
    int result = check_plane(i, &description->planes[i], &end);
    if (result) return result;
    if (end > needed) needed = end;
  }
  int result = check_timing(&description->timing);
  if (!result && description->picture.format) result = check_picture(description);
  if (!result) *bytes = needed;
  return result;
}
