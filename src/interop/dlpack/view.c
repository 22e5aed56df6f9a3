/* SPDX-License-Identifier: MIT
 *
 * Views: made from frames and slots, cut down, measured. Where an array lies is arithmetic on numbers
 * that others wrote, so all of it notices overflow.
 */
#include "interop/dlpack/view.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "interop/describe.h"

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED CUDALINK_ERROR_UNSUPPORTED

/* ---- from frames and slots --------------------------------------------------------------------- */

static cudalink_dlpack_device device_of(int32_t number) {
  cudalink_dlpack_device device = {CUDALINK_DLPACK_CPU, 0};
  if (number > 0) device = (cudalink_dlpack_device){CUDALINK_DLPACK_CUDA, number - 1};
  return device;
}

static void fill(cudalink_view *view, void *data, int32_t device, const cudalink_plane *plane) {
  *view = (cudalink_view){
      .device = device_of(device), .dtype = plane->dtype, .dimensions = plane->dimensions};
  memcpy(view->shape, plane->shape, sizeof view->shape);
  memcpy(view->strides, plane->strides, sizeof view->strides);
  if (!view_is_empty(view)) view->data = (char *)data + plane->offset;
}

static int no_plane(uint32_t plane, uint32_t count) {
  return error_set(INVALID, "plane %u was asked for, but the frame has %u", plane, count);
}

int cudalink_view_of_frame(cudalink_view *view, const cudalink_frame *frame, uint32_t plane) {
  if (!view || !frame) return error_set(INVALID, "cudalink_view_of_frame: a NULL was given");
  if (frame->flags & CUDALINK_FRAME_INVALID)
    return error_set(UNSUPPORTED, "frame %llu was published as invalid: %s",
                     (unsigned long long)frame->sequence, frame->text);
  if (plane >= frame->description.plane_count)
    return no_plane(plane, frame->description.plane_count);
  fill(view, frame->data, frame->device, &frame->description.planes[plane]);
  if (!frame->writable) view->flags = CUDALINK_DLPACK_READ_ONLY;
  return CUDALINK_OK;
}

int cudalink_view_of_slot(cudalink_view *view, const cudalink_slot *slot,
                          const cudalink_description *description, uint32_t plane) {
  uint64_t bytes;
  if (!view || !slot) return error_set(INVALID, "cudalink_view_of_slot: a NULL was given");
  int status = cudalink_description_bytes(description, &bytes);
  if (status < 0) return status;
  if (plane >= description->plane_count) return no_plane(plane, description->plane_count);
  if (bytes > slot->bytes)
    return error_set(INVALID,
                     "the description needs %llu byte%s, but the slot has %llu; was it begun with "
                     "another description?",
                     (unsigned long long)bytes, error_s(bytes), (unsigned long long)slot->bytes);
  fill(view, slot->data, slot->device, &description->planes[plane]);
  return CUDALINK_OK;
}

/* ---- measuring ----------------------------------------------------------------------------------- */

/* The piece without a check of its size: false when it passes 63 bits. */
static bool find_piece(const cudalink_view *view, struct view_piece *piece) {
  *piece = (struct view_piece){view_element_bytes(view->dtype), view->dimensions};
  if (!view_is_packed(view)) return true;
  uint64_t bits;
  piece->dimensions--;
  if (__builtin_mul_overflow((uint64_t)view->shape[piece->dimensions],
                             (uint64_t)view_element_bits(view->dtype), &bits) ||
      bits > INT64_MAX)
    return false;
  piece->bytes = (bits + 7) / 8;
  return true;
}

struct view_piece view_piece_of(const cudalink_view *view) {
  struct view_piece piece;
  find_piece(view, &piece);
  return piece;
}

bool view_fill_strides(cudalink_view *view, int64_t *bytes) {
  struct view_piece piece;
  if (!find_piece(view, &piece)) return false;
  if (view_is_packed(view)) view->strides[piece.dimensions] = 0;
  *bytes = (int64_t)piece.bytes;
  for (uint32_t k = piece.dimensions; k-- > 0;) {
    view->strides[k] = *bytes;
    /* An empty view has no sizes; its strides only need to be some numbers. */
    int64_t extent = view->shape[k] ? view->shape[k] : 1;
    if (__builtin_mul_overflow(*bytes, extent, bytes)) return false;
  }
  if (view_is_empty(view)) *bytes = 0;
  return true;
}

static int check_shape(const cudalink_view *view) {
  if (view->dimensions > CUDALINK_MAX_DIMENSIONS)
    return error_set(INVALID, "view: %u dimensions, %d is most", view->dimensions,
                     CUDALINK_MAX_DIMENSIONS);
  for (uint32_t k = 0; k < view->dimensions; k++)
    if (view->shape[k] < 0)
      return error_set(INVALID, "view: shape[%u] is %lld", k, (long long)view->shape[k]);
  if (!describe_dtype_is_legal(view->dtype))
    return error_set(INVALID, "view: type code %u with %u bit%s and %u lane%s does not exist",
                     view->dtype.code, view->dtype.bits, error_s(view->dtype.bits),
                     view->dtype.lanes, error_s(view->dtype.lanes));
  if (view_is_packed(view) && view->strides[view->dimensions - 1] != 0)
    return error_set(INVALID,
                     "view: elements of %u bit%s lie side by side in the last dimension, so its "
                     "stride must be 0, not %lld",
                     view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)),
                     (long long)view->strides[view->dimensions - 1]);
  return CUDALINK_OK;
}

/* Bytes below and above the first element that the others reach. False: passes 63 bits. */
static bool reach(const cudalink_view *view, int64_t *below, int64_t *above) {
  struct view_piece piece;
  *below = *above = 0;
  if (!find_piece(view, &piece)) return false;
  for (uint32_t k = 0; k < piece.dimensions; k++) {
    int64_t distance;
    if (__builtin_mul_overflow(view->shape[k] - 1, view->strides[k], &distance)) return false;
    int64_t *side = distance < 0 ? below : above;
    if (__builtin_add_overflow(*side, distance, side)) return false;
  }
  if (__builtin_add_overflow(*above, (int64_t)piece.bytes, above) || *below == INT64_MIN)
    return false;
  *below = -*below;
  return true;
}

int cudalink_view_extent(const cudalink_view *view, void **low, uint64_t *bytes) {
  int64_t below, above, total;
  uintptr_t end;
  if (!view || !bytes) return error_set(INVALID, "cudalink_view_extent: a NULL was given");
  int status = check_shape(view);
  if (status < 0) return status;
  *bytes = 0;
  if (low) *low = NULL;
  if (view_is_empty(view)) return CUDALINK_OK;
  if (!view->data) return error_set(INVALID, "view: it has elements, but data is NULL");
  uintptr_t data = (uintptr_t)view->data;
  if (!reach(view, &below, &above) || __builtin_add_overflow(below, above, &total) ||
      (uintptr_t)below > data || __builtin_add_overflow(data, (uintptr_t)above, &end))
    return error_set(INVALID, "view: shape and strides reach beyond what can be addressed");
  *bytes = (uint64_t)total;
  if (low) *low = (char *)view->data - below;
  return CUDALINK_OK;
}

int cudalink_view_is_dense(const cudalink_view *view) {
  uint64_t bytes;
  if (cudalink_view_extent(view, NULL, &bytes) < 0) return 0;
  if (bytes == 0) return 1;
  struct view_piece piece = view_piece_of(view);
  bool whole_bytes =
      !view_is_packed(view) ||
      (uint64_t)view->shape[piece.dimensions] * view_element_bits(view->dtype) % 8 == 0;
  int64_t dense = (int64_t)piece.bytes;
  for (uint32_t k = piece.dimensions; k-- > 0;) {
    if (view->shape[k] == 1) continue;
    if (!whole_bytes || view->strides[k] != dense) return 0;
    if (__builtin_mul_overflow(dense, view->shape[k], &dense)) return 0;
  }
  return 1;
}

/* ---- cutting down -------------------------------------------------------------------------------- */

static int check_dimension(const cudalink_view *view, uint32_t dimension, const char *call) {
  uint64_t bytes;
  if (!view) return error_set(INVALID, "%s: view is NULL", call);
  int status = cudalink_view_extent(view, NULL, &bytes);
  if (status < 0 || dimension < view->dimensions) return status;
  return error_set(INVALID, "%s: dimension %u, but the view has %u", call, dimension,
                   view->dimensions);
}

static bool shares_bytes(const cudalink_view *view, uint32_t dimension) {
  return view_is_packed(view) && dimension == view->dimensions - 1;
}

/* Element `start` of the dimension becomes the first one. */
static void advance(cudalink_view *view, uint32_t dimension, int64_t start) {
  if (!view->data) return;
  int64_t distance = shares_bytes(view, dimension)
                         ? start * view_element_bits(view->dtype) / 8
                         : start * view->strides[dimension]; /* inside of the checked extent */
  view->data = (char *)view->data + distance;
}

static bool begins_inside_a_byte(const cudalink_view *view, int64_t start) {
  return (uint64_t)start % 8 * view_element_bits(view->dtype) % 8 != 0;
}

static int inside_a_byte(const char *call, const cudalink_view *view) {
  return error_set(UNSUPPORTED,
                   "%s: elements of %u bit%s lie side by side in the last dimension; a part of it "
                   "must begin at a whole byte and have step 1",
                   call, view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)));
}

int cudalink_view_index(cudalink_view *view, uint32_t dimension, int64_t index) {
  static const char call[] = "cudalink_view_index";
  int status = check_dimension(view, dimension, call);
  if (status < 0) return status;
  if (index < 0 || index >= view->shape[dimension])
    return error_set(INVALID, "%s: index %lld of dimension %u, which has %lld element%s", call,
                     (long long)index, dimension, (long long)view->shape[dimension],
                     error_s((uint64_t)view->shape[dimension]));
  if (shares_bytes(view, dimension) && (dimension > 0 || begins_inside_a_byte(view, index)))
    return inside_a_byte(call, view);
  advance(view, dimension, index);
  view->dimensions--;
  for (uint32_t k = dimension; k < view->dimensions; k++) {
    view->shape[k] = view->shape[k + 1];
    view->strides[k] = view->strides[k + 1];
  }
  return CUDALINK_OK;
}

static int check_range(const cudalink_view *view, uint32_t dimension, int64_t start, int64_t count,
                       int64_t step) {
  int64_t last = 0, most = view->shape[dimension];
  bool inside = count >= 0 && step != 0;
  if (inside && count > 0)
    inside = start >= 0 && start < most && !__builtin_mul_overflow(count - 1, step, &last) &&
             !__builtin_add_overflow(last, start, &last) && last >= 0 && last < most;
  if (inside) return CUDALINK_OK;
  return error_set(INVALID,
                   "cudalink_view_slice: %lld element%s from %lld on, %lld apart, of dimension %u, "
                   "which has %lld",
                   (long long)count, error_s((uint64_t)count), (long long)start, (long long)step,
                   dimension, (long long)most);
}

int cudalink_view_slice(cudalink_view *view, uint32_t dimension, int64_t start, int64_t count,
                        int64_t step) {
  int status = check_dimension(view, dimension, "cudalink_view_slice");
  if (status == CUDALINK_OK) status = check_range(view, dimension, start, count, step);
  if (status < 0) return status;
  if (count > 0 && shares_bytes(view, dimension) &&
      (begins_inside_a_byte(view, start) || (count > 1 && step != 1)))
    return inside_a_byte("cudalink_view_slice", view);
  if (count > 0) advance(view, dimension, start);
  view->shape[dimension] = count;
  if (count > 1 && view->data)
    view->strides[dimension] *= step; /* a distance inside of the checked extent */
  if (view_is_empty(view)) view->data = NULL;
  return CUDALINK_OK;
}

/* ---- into a description --------------------------------------------------------------------------- */

int cudalink_describe_view(cudalink_description *description, const char *name,
                           const cudalink_view *view) {
  static const char call[] = "cudalink_describe_view";
  uint64_t bytes;
  if (!description) return error_set(INVALID, "%s: description is NULL", call);
  int status = cudalink_view_extent(view, NULL, &bytes);
  if (status < 0) return status;
  if (!name) name = "";
  if (description->plane_count >= CUDALINK_MAX_PLANES || strlen(name) >= CUDALINK_PLANE_NAME_SIZE)
    return error_set(INVALID, "%s \"%.80s\": plane %u of %d, a name of %zu of %d bytes", call, name,
                     description->plane_count + 1, CUDALINK_MAX_PLANES, strlen(name),
                     CUDALINK_PLANE_NAME_SIZE - 1);
  if (view_element_bits(view->dtype) < 8 && (view->flags & CUDALINK_DLPACK_PADDED))
    return error_set(UNSUPPORTED,
                     "%s: each element of %u bit%s fills a byte; planes have them side by side",
                     call, view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)));
  cudalink_plane plane = {.dtype = view->dtype, .dimensions = view->dimensions, .bytes = bytes};
  for (uint32_t k = 0; k < view->dimensions; k++) {
    bool counts = bytes > 0 && view->shape[k] > 1;
    if (counts && view->strides[k] < 0)
      return error_set(UNSUPPORTED,
                       "%s: strides[%u] is %lld, and planes have no negative strides; copy the "
                       "array first (cudalink_array_copy)",
                       call, k, (long long)view->strides[k]);
    plane.shape[k] = view->shape[k];
    plane.strides[k] = counts ? view->strides[k] : 0;
  }
  struct describe_size size; /* repeated elements count each time in the packed size */
  if (describe_plane_size(&plane, &size))
    return error_set(CUDALINK_ERROR_TOO_LARGE, "%s: the product of the shape does not fit 63 bits",
                     call);
  snprintf(plane.name, sizeof plane.name, "%s", name); /* its length was checked */
  description->planes[description->plane_count++] = plane;
  return CUDALINK_OK;
}
