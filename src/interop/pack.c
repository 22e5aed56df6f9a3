/* SPDX-License-Identifier: MIT
 *
 * Packing: between a slot, where rows have a pitch, and plain bytes without gaps.
 */
#include "base/error.h"
#include "interop/describe.h"
#include "interop/format_table.h"

#include <string.h>

/* One copy between a slot and packed bytes. Exactly one of the two pairs is set. */
struct copy {
  const char *slot_in; /* packing */
  char *packed_out;
  const char *packed_in; /* unpacking */
  char *slot_out;
};

/* The dimensions of a plane that are left when everything dense is one run. */
struct walk {
  uint32_t dimensions;
  int64_t shape[CUDALINK_MAX_DIMENSIONS];
  int64_t strides[CUDALINK_MAX_DIMENSIONS]; /* in the slot; negative when rows are turned over */
  uint64_t run;                             /* bytes that are dense on both sides */
};

static void copy_run(const struct copy *copy, int64_t slot, uint64_t packed, uint64_t bytes) {
  if (copy->packed_out)
    memcpy(copy->packed_out + packed, copy->slot_in + slot, bytes);
  else
    memcpy(copy->slot_out + slot, copy->packed_in + packed, bytes);
}

/* Copies everything below dimension `k`, returns the place behind it in the packed bytes. */
static uint64_t copy_dimension(const struct copy *copy, const struct walk *walk, uint32_t k,
                               int64_t slot, uint64_t packed) {
  if (k == walk->dimensions) {
    copy_run(copy, slot, packed, walk->run);
    return packed + walk->run;
  }
  for (int64_t i = 0; i < walk->shape[k]; i++, slot += walk->strides[k])
    packed = copy_dimension(copy, walk, k + 1, slot, packed);
  return packed;
}

/* Dimensions of one element are left out, dense ones at the end become part of the run. */
static struct walk plan_walk(const cudalink_plane *plane, const struct describe_size *size,
                             const int64_t *strides) {
  struct walk walk = {.run = size->unit};
  for (uint32_t k = 0; k < size->dimensions; k++) {
    if (plane->shape[k] == 1) continue;
    walk.shape[walk.dimensions] = plane->shape[k];
    walk.strides[walk.dimensions++] = strides[k];
  }
  while (walk.dimensions > 0 && walk.strides[walk.dimensions - 1] == (int64_t)walk.run)
    walk.run *= (uint64_t)walk.shape[--walk.dimensions];
  return walk;
}

/* Turning over = start at the last row and step backwards. */
static int64_t turn_over(const cudalink_description *description, uint32_t index,
                         int64_t *strides) {
  const cudalink_picture *picture = &description->picture;
  const struct format_row *row = format_find(picture->format);
  struct format_shape shape = format_plane_shape(row, index, picture->width, picture->height);
  uint32_t k = shape.row_dimension;
  int64_t last_row = strides[k] * (shape.shape[k] - 1);
  strides[k] = -strides[k];
  return last_row;
}

static void copy_frame(const struct copy *copy, const cudalink_description *description,
                       int rows_bottom_up) {
  uint64_t packed = 0;
  for (uint32_t i = 0; i < description->plane_count; i++) {
    const cudalink_plane *plane = &description->planes[i];
    struct describe_size size;
    if (describe_plane_size(plane, &size) || size.packed == 0) continue;
    int64_t strides[CUDALINK_MAX_DIMENSIONS];
    memcpy(strides, plane->strides, sizeof strides);
    int64_t slot = (int64_t)plane->offset;
    if (rows_bottom_up) slot += turn_over(description, i, strides);
    struct walk walk = plan_walk(plane, &size, strides);
    packed = copy_dimension(copy, &walk, 0, slot, packed);
  }
}

int cudalink_packed_bytes(const cudalink_description *description, uint64_t *bytes) {
  uint64_t slot_bytes, total = 0;
  int result = cudalink_description_bytes(description, &slot_bytes);
  if (result) return result;
  if (!bytes) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "packed bytes: bytes is NULL");
  for (uint32_t i = 0; i < description->plane_count; i++) {
    struct describe_size size;
    if (describe_plane_size(&description->planes[i], &size) ||
        __builtin_add_overflow(total, size.packed, &total) || total > INT64_MAX)
      return error_set(CUDALINK_ERROR_TOO_LARGE, "packed bytes: planes 0 to %u pass 2^63 bytes", i);
  }
  *bytes = total;
  return CUDALINK_OK;
}

int cudalink_pack(const cudalink_description *description, const void *slot, void *out,
                  uint64_t size, int rows_bottom_up) {
  uint64_t needed;
  int result = cudalink_packed_bytes(description, &needed);
  if (result) return result;
  if (needed > 0 && (!slot || !out))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "pack: %s is NULL", slot ? "out" : "slot");
  if (size < needed)
    return error_set(CUDALINK_ERROR_TOO_LARGE,
                     "pack: the frame has %llu byte%s, there is room for %llu",
                     (unsigned long long)needed, error_s(needed), (unsigned long long)size);
  if (rows_bottom_up && !description->picture.format)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "pack: only a picture can be turned over, and this frame is none");
  struct copy copy = {.slot_in = slot, .packed_out = out};
  copy_frame(&copy, description, rows_bottom_up);
  return CUDALINK_OK;
}

/* Packed elements have no place of their own where a stride of 0 repeats one. */
static int check_no_repeats(const cudalink_description *description) {
  for (uint32_t i = 0; i < description->plane_count; i++) {
    const cudalink_plane *plane = &description->planes[i];
    struct describe_size size;
    if (describe_plane_size(plane, &size) || size.packed == 0) continue;
    for (uint32_t k = 0; k < size.dimensions; k++)
      if (plane->shape[k] > 1 && plane->strides[k] == 0)
        return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                         "unpack: plane %u \"%s\" repeats its elements (strides[%u] is 0), so it "
                         "has no room for them all",
                         i, plane->name, k);
  }
  return CUDALINK_OK;
}

int cudalink_unpack(const cudalink_description *description, const void *packed, uint64_t size,
                    void *slot) {
  uint64_t needed;
  int result = cudalink_packed_bytes(description, &needed);
  if (!result) result = check_no_repeats(description);
  if (result) return result;
  if (needed > 0 && (!slot || !packed))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "unpack: %s is NULL",
                     packed ? "slot" : "packed");
  if (size != needed)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "unpack: the frame has %llu byte%s, %llu were given",
                     (unsigned long long)needed, error_s(needed), (unsigned long long)size);
  struct copy copy = {.packed_in = packed, .slot_out = slot};
  copy_frame(&copy, description, 0);
  return CUDALINK_OK;
}
