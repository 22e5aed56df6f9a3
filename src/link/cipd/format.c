/* SPDX-License-Identifier: MIT
 *
 * The old wire knows pictures of 1 to 4 interleaved channels of seven types, and three flags. Mono and
 * alpha is an RG picture whose alpha is said; B, G, R, A is the format BGRA8.
 */
#include "link/cipd/format.h"

#include <string.h>

#include "base/error.h"
#include "cudalink/format.h"

/* Pictures that look to an old reader as they are: no chroma, no packed words, no unused bytes that
 * it would take for alpha. */
static bool is_carried(uint32_t format) {
  switch (format) {
  case CUDALINK_FORMAT_NONE:
  case CUDALINK_FORMAT_R8:
  case CUDALINK_FORMAT_RG8:
  case CUDALINK_FORMAT_RGB8:
  case CUDALINK_FORMAT_RGBA8:
  case CUDALINK_FORMAT_BGRA8:
  case CUDALINK_FORMAT_R16:
  case CUDALINK_FORMAT_RG16:
  case CUDALINK_FORMAT_RGBA16:
  case CUDALINK_FORMAT_R16F:
  case CUDALINK_FORMAT_RG16F:
  case CUDALINK_FORMAT_RGBA16F:
  case CUDALINK_FORMAT_R32F:
  case CUDALINK_FORMAT_RG32F:
  case CUDALINK_FORMAT_RGBA32F:
  case CUDALINK_FORMAT_GRAY8:
  case CUDALINK_FORMAT_GRAY16: return true;
  default: return false;
  }
}

static int check_layout(const cudalink_description *description, uint64_t element) {
  const cudalink_plane *plane = &description->planes[0];
  const char *format = cudalink_format_name(description->picture.format);
  if (!is_carried(description->picture.format))
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "the old wire has no word for pictures of format %s; convert them to RGBA8 or "
                     "another of 1 to 4 interleaved channels",
                     format ? format : "?");
  if (description->plane_count != 1)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "the old wire carries one plane; this frame has %u", description->plane_count);
  if (plane->dimensions != 2 && plane->dimensions != 3)
    return error_set(
        CUDALINK_ERROR_UNSUPPORTED,
        "the old wire carries {height, width} or {height, width, channels}; this plane "
        "has %u dimension%s",
        plane->dimensions, error_s(plane->dimensions));
  uint64_t channels = plane->dimensions == 3 ? (uint64_t)plane->shape[2] : 1;
  if (channels == 0 || channels > 4 || plane->shape[0] <= 0 || plane->shape[1] <= 0 ||
      plane->shape[0] > UINT32_MAX || plane->shape[1] > UINT32_MAX)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "the old wire carries {height, width, 1 to 4 channels}; this plane has {%lld, "
                     "%lld, %llu}",
                     (long long)plane->shape[0], (long long)plane->shape[1],
                     (unsigned long long)channels);
  uint64_t pixel = channels * element, row = pixel * (uint64_t)plane->shape[1];
  bool dense = (plane->shape[1] == 1 || (uint64_t)plane->strides[1] == pixel) &&
               (channels == 1 || (uint64_t)plane->strides[2] == element);
  if (!dense || (plane->shape[0] > 1 && (uint64_t)plane->strides[0] < row))
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "the old wire carries rows of pixels without gaps between the pixels; strides "
                     "{%lld, %lld} of this plane are other",
                     (long long)plane->strides[0], (long long)plane->strides[1]);
  return CUDALINK_OK;
}

int link_cipd_format_of(const cudalink_description *description, struct wire_cipd_format *format,
                        struct link_cipd_rows *rows) {
  const cudalink_plane *plane = &description->planes[0];
  const cudalink_picture *picture = &description->picture;
  uint64_t element = plane->dtype.bits / 8u;
  int status = check_layout(description, element);
  if (status < 0) return status;
  uint32_t channels = plane->dimensions == 3 ? (uint32_t)plane->shape[2] : 1;
  bool alpha =
      picture->alpha == CUDALINK_ALPHA_STRAIGHT || picture->alpha == CUDALINK_ALPHA_PREMULTIPLIED;
  status = wire_cipd_format_make(format, (uint32_t)plane->shape[1], (uint32_t)plane->shape[0],
                                 channels, plane->dtype, picture->format && channels == 2 && alpha,
                                 picture->format == CUDALINK_FORMAT_BGRA8);
  if (status == CUDALINK_ERROR_INVALID_ARGUMENT) return CUDALINK_ERROR_UNSUPPORTED;
  if (status < 0) return status;
  rows->offset = plane->offset;
  rows->count = (uint64_t)plane->shape[0];
  rows->bytes = format->data_size / rows->count;
  rows->pitch = rows->count > 1 ? (uint64_t)plane->strides[0] : rows->bytes;
  return CUDALINK_OK;
}

static uint32_t picture_of(const struct wire_cipd_format *format) {
  static const uint32_t bytes[] = {CUDALINK_FORMAT_R8, CUDALINK_FORMAT_RG8, CUDALINK_FORMAT_RGB8,
                                   CUDALINK_FORMAT_RGBA8};
  static const uint32_t words[] = {CUDALINK_FORMAT_R16, CUDALINK_FORMAT_RG16, 0,
                                   CUDALINK_FORMAT_RGBA16};
  static const uint32_t halves[] = {CUDALINK_FORMAT_R16F, CUDALINK_FORMAT_RG16F, 0,
                                    CUDALINK_FORMAT_RGBA16F};
  static const uint32_t floats[] = {CUDALINK_FORMAT_R32F, CUDALINK_FORMAT_RG32F, 0,
                                    CUDALINK_FORMAT_RGBA32F};
  uint32_t c = format->channels - 1;
  if (format->width > 65535 || format->height > 65535) return CUDALINK_FORMAT_NONE;
  if (format->bgra) return CUDALINK_FORMAT_BGRA8;
  if (format->dtype.code == CUDALINK_DTYPE_UINT)
    return format->dtype.bits == 8 ? bytes[c] : words[c];
  if (format->dtype.code == CUDALINK_DTYPE_FLOAT)
    return format->dtype.bits == 16 ? halves[c] : floats[c];
  return CUDALINK_FORMAT_NONE;
}

int link_cipd_describe(const struct wire_cipd_format *format, cudalink_description *description) {
  uint32_t picture = picture_of(format);
  memset(description, 0, sizeof *description);
  if (picture == CUDALINK_FORMAT_NONE) {
    int64_t shape[] = {format->height, format->width, format->channels};
    return cudalink_describe_tensor(description, NULL, format->dtype, 3, shape);
  }
  int status = cudalink_describe_picture(description, (cudalink_format)picture, format->width,
                                         format->height, 1);
  if (format->mono_alpha) description->picture.alpha = CUDALINK_ALPHA_STRAIGHT;
  return status;
}
