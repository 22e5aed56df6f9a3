/* SPDX-License-Identifier: MIT
 *
 * Descriptions on their way into and out of shared memory.
 *
 * A hostile producer can write there while we read. So each byte is copied once, a compiler barrier
 * follows, and everything after it looks at the copy only.
 */
#include "wire/description.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "cudalink/format.h"
#include "wire/plane.h"

/* The compiler may otherwise read the source again where the code names the copy. The empty assembly
 * could have changed either, so both a second read and a reordering are off. */
#define COPY_ENDS(copy) __asm__ volatile("" : : "r"(copy) : "memory")

_Static_assert(sizeof(((cudalink_plane *)0)->shape) == sizeof(((struct wire_plane *)0)->shape),
               "copied whole");
_Static_assert(sizeof(((cudalink_plane *)0)->name) == sizeof(((struct wire_plane *)0)->name),
               "copied whole");

/* Text of at most size - 1 bytes, cut between UTF-8 characters; the rest is zero. */
static void encode_text(char *field, size_t size, const char *text) {
  if (!text[0]) { /* as nearly always */
    memset(field, 0, size);
    return;
  }
  size_t length = strnlen(text, size);
  if (length == size) {
    length = size - 1;
    while (length > 0 && ((unsigned char)text[length] & 0xc0u) == 0x80u)
      length--;
  }
  memcpy(field, text, length);
  memset(field + length, 0, size - length);
}

static void encode_plane(struct wire_plane *wire, const cudalink_plane *plane) {
  memset(wire, 0, sizeof *wire);
  wire->offset = plane->offset;
  wire->bytes = plane->bytes;
  for (uint32_t k = 0; k < plane->dimensions; k++) {
    wire->shape[k] = plane->shape[k];
    wire->strides[k] = plane->strides[k];
  }
  wire->dtype_code = plane->dtype.code;
  wire->dtype_bits = plane->dtype.bits;
  wire->dtype_lanes = plane->dtype.lanes;
  wire->dimensions = plane->dimensions;
  encode_text(wire->name, sizeof wire->name, plane->name);
}

static void encode_picture(struct wire_header *header, const cudalink_picture *picture) {
  header->picture_format = picture->format;
  header->picture_width = picture->width;
  header->picture_height = picture->height;
  header->primaries = picture->primaries;
  header->transfer = picture->transfer;
  header->matrix = picture->matrix;
  header->range = picture->range;
  header->origin = picture->origin;
  header->alpha = picture->alpha;
  header->field_order = picture->field_order;
  header->chroma_location = picture->chroma_location;
  header->pixel_aspect_numerator = picture->pixel_aspect_numerator;
  header->pixel_aspect_denominator = picture->pixel_aspect_denominator;
}

static void encode_timing(struct wire_header *header, const cudalink_timing *timing) {
  header->pts = timing->pts;
  header->duration = timing->duration;
  header->time_base_numerator = timing->time_base_numerator;
  header->time_base_denominator = timing->time_base_denominator;
  header->rate_numerator = timing->rate_numerator;
  header->rate_denominator = timing->rate_denominator;
  encode_text(header->clock, sizeof header->clock, timing->clock);
}

void wire_description_encode(void *metadata, const cudalink_description *description,
                             uint64_t sequence, uint64_t timestamp, const char *invalid_text) {
  struct wire_header header = {0};
  header.sequence = sequence;
  header.timestamp = timestamp;
  header.plane_count = description->plane_count;
  header.user_size = description->user_size;
  encode_picture(&header, &description->picture);
  encode_timing(&header, &description->timing);
  if (invalid_text) {
    header.flags = WIRE_HEADER_INVALID;
    encode_text(header.text, sizeof header.text, invalid_text);
  }
  memcpy(metadata, &header, sizeof header);
  struct wire_plane *planes = (struct wire_plane *)((char *)metadata + sizeof header);
  for (uint32_t i = 0; i < description->plane_count; i++)
    encode_plane(&planes[i], &description->planes[i]);
}

void wire_description_stamp(void *metadata, const cudalink_timing *timing, uint64_t sequence,
                            uint64_t timestamp) {
  struct wire_header header;
  header.sequence = sequence;
  header.timestamp = timestamp;
  encode_timing(&header, timing);
  memcpy(metadata, &header, offsetof(struct wire_header, plane_count));
}

void wire_description_forget(void *metadata) { ((struct wire_header *)metadata)->sequence = 0; }

void wire_description_share(void *metadata, uint64_t block, uint64_t offset) {
  struct wire_header *header = metadata;
  header->flags = WIRE_HEADER_INVALID | WIRE_HEADER_SHARED;
  header->pool_block = block;
  header->pool_offset = offset;
}

static int out_of_range(int code, const char *field, uint32_t value, uint32_t max) {
  return error_set(code, "picture: %s is %u; it must be 0 to %u", field, value, max);
}

static int check_aspect(int code, uint32_t numerator, uint32_t denominator) {
  if ((numerator == 0) == (denominator == 0)) return CUDALINK_OK;
  return error_set(code, "picture: pixel_aspect is %u/%u; it must be 0/0 where it is not said",
                   numerator, denominator);
}

/* Of a frame that is no picture nothing is checked: decode hands out zeros for it. */
static int check_picture(int code, const cudalink_picture *picture) {
  if (picture->format == CUDALINK_FORMAT_NONE) return CUDALINK_OK;
  if (picture->width > WIRE_MAX_PICTURE_SIDE)
    return out_of_range(code, "width", picture->width, WIRE_MAX_PICTURE_SIDE);
  if (picture->height > WIRE_MAX_PICTURE_SIDE)
    return out_of_range(code, "height", picture->height, WIRE_MAX_PICTURE_SIDE);
  if (picture->width == 0 || picture->height == 0)
    return error_set(code, "picture: %u x %u pixels; both sides must be at least 1", picture->width,
                     picture->height);
  if (picture->range > CUDALINK_RANGE_FULL)
    return out_of_range(code, "range", picture->range, CUDALINK_RANGE_FULL);
  if (picture->origin > CUDALINK_ORIGIN_BOTTOM_LEFT)
    return out_of_range(code, "origin", picture->origin, CUDALINK_ORIGIN_BOTTOM_LEFT);
  if (picture->alpha > CUDALINK_ALPHA_IGNORED)
    return out_of_range(code, "alpha", picture->alpha, CUDALINK_ALPHA_IGNORED);
  if (picture->field_order > CUDALINK_FIELD_BOTTOM_FIRST)
    return out_of_range(code, "field_order", picture->field_order, CUDALINK_FIELD_BOTTOM_FIRST);
  if (picture->chroma_location > CUDALINK_CHROMA_TOP_LEFT)
    return out_of_range(code, "chroma_location", picture->chroma_location,
                        CUDALINK_CHROMA_TOP_LEFT);
  return check_aspect(code, picture->pixel_aspect_numerator, picture->pixel_aspect_denominator);
}

static int check_timing(int code, const cudalink_timing *timing) {
  if (timing->time_base_denominator == 0 && timing->time_base_numerator != 0)
    return error_set(code, "timing: time_base is %u/0", timing->time_base_numerator);
  if (timing->rate_denominator == 0 && timing->rate_numerator != 0)
    return error_set(code, "timing: rate is %u/0", timing->rate_numerator);
  /* What was encoded is filled up with zeros, so looking at the last byte is nearly always enough. */
  if (timing->clock[sizeof timing->clock - 1] != '\0' &&
      !memchr(timing->clock, 0, sizeof timing->clock))
    return error_set(code, "timing: the clock's name does not end within %d bytes",
                     CUDALINK_CLOCK_NAME_SIZE);
  return CUDALINK_OK;
}

/* All but the planes. */
static int check_frame(int code, const cudalink_description *description) {
  if (description->user_size > CUDALINK_MAX_USER_SIZE)
    return error_set(code, "user_size is %u; at most %d is possible", description->user_size,
                     CUDALINK_MAX_USER_SIZE);
  int status = check_picture(code, &description->picture);
  if (status < 0) return status;
  return check_timing(code, &description->timing);
}

static int check_planes(int code, const cudalink_description *description, uint64_t *bytes) {
  if (description->plane_count == 0 || description->plane_count > CUDALINK_MAX_PLANES)
    return error_set(code, "%u planes; a frame has 1 to %d", description->plane_count,
                     CUDALINK_MAX_PLANES);
  uint64_t last = 0;
  for (uint32_t i = 0; i < description->plane_count; i++) {
    uint64_t end = 0;
    int status = wire_plane_span(code, i, &description->planes[i], &end);
    if (status < 0) return status;
    if (end > last) last = end;
  }
  *bytes = last;
  return CUDALINK_OK;
}

int wire_description_check(int code, const cudalink_description *description, uint64_t *bytes) {
  int status = check_frame(code, description);
  if (status < 0) return status;
  return check_planes(code, description, bytes);
}

static void decode_picture(cudalink_picture *picture, const struct wire_header *header) {
  if (header->picture_format == CUDALINK_FORMAT_NONE) {
    memset(picture, 0, sizeof *picture);
    return;
  }
  picture->format = header->picture_format;
  picture->width = header->picture_width;
  picture->height = header->picture_height;
  picture->primaries = header->primaries;
  picture->transfer = header->transfer;
  picture->matrix = header->matrix;
  picture->range = header->range;
  picture->origin = header->origin;
  picture->alpha = header->alpha;
  picture->field_order = header->field_order;
  picture->chroma_location = header->chroma_location;
  picture->pixel_aspect_numerator = header->pixel_aspect_numerator;
  picture->pixel_aspect_denominator = header->pixel_aspect_denominator;
}

static void decode_timing(cudalink_timing *timing, const struct wire_header *header) {
  timing->pts = header->pts;
  timing->duration = header->duration;
  timing->time_base_numerator = header->time_base_numerator;
  timing->time_base_denominator = header->time_base_denominator;
  timing->rate_numerator = header->rate_numerator;
  timing->rate_denominator = header->rate_denominator;
  memcpy(timing->clock, header->clock, sizeof timing->clock);
}

/* Copies only: what it copied is checked afterwards, like everything else. */
static void copy_plane(cudalink_plane *plane, const struct wire_plane *wire) {
  memcpy(plane->name, wire->name, sizeof plane->name);
  plane->dtype.code = wire->dtype_code;
  plane->dtype.bits = wire->dtype_bits;
  plane->dtype.lanes = wire->dtype_lanes;
  plane->dimensions = wire->dimensions;
  plane->offset = wire->offset;
  plane->bytes = wire->bytes;
  memcpy(plane->shape, wire->shape, sizeof plane->shape);
  memcpy(plane->strides, wire->strides, sizeof plane->strides);
}

/* The text is copied only where there is one: straight out of shared memory, and ended then. */
static void decode_text(cudalink_frame *frame, const void *metadata, bool invalid) {
  frame->flags &= ~(uint32_t)CUDALINK_FRAME_INVALID;
  frame->text[0] = '\0';
  if (!invalid) return;
  frame->flags |= CUDALINK_FRAME_INVALID;
  memcpy(frame->text, (const char *)metadata + offsetof(struct wire_header, text),
         sizeof frame->text);
  COPY_ENDS(frame->text);
  frame->text[sizeof frame->text - 1] = '\0';
}

static int beyond_slot(uint64_t bytes, uint64_t slot_bytes) {
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "the planes end at byte %" PRIu64 " of a slot of %" PRIu64, bytes, slot_bytes);
}

static int decode_planes(cudalink_description *description, const struct wire_plane *planes,
                         uint32_t plane_count, const struct wire_limits *limits, uint64_t *bytes) {
  if (plane_count > limits->plane_count || plane_count > CUDALINK_MAX_PLANES)
    return error_set(CUDALINK_ERROR_PROTOCOL, "plane_count is %u, the channel has room for %u",
                     plane_count, limits->plane_count);
  for (uint32_t i = 0; i < plane_count; i++)
    copy_plane(&description->planes[i], &planes[i]);
  COPY_ENDS(description);
  description->plane_count = plane_count;
  return check_planes(CUDALINK_ERROR_PROTOCOL, description, bytes);
}

/* Of a frame that is not invalid. */
static int decode_place(const struct wire_header *header, struct wire_place *place) {
  if (!(header->flags & WIRE_HEADER_SHARED)) return CUDALINK_OK;
  place->block = header->pool_block;
  place->offset = header->pool_offset;
  if (place->block) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL, "pool_block is 0 in a shared frame; they count from 1");
}

int wire_place_check(const struct wire_place *place, uint64_t block_bytes) {
  if (place->offset <= block_bytes && place->bytes <= block_bytes - place->offset)
    return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "%" PRIu64 " bytes from byte %" PRIu64 " on are not in pool block %" PRIu64
                   ", which has %" PRIu64,
                   place->bytes, place->offset, place->block, block_bytes);
}

static int decode_frame(cudalink_frame *frame, const struct wire_header *header,
                        const struct wire_limits *limits) {
  cudalink_description *description = &frame->description;
  if (header->user_size > limits->user_size)
    return error_set(CUDALINK_ERROR_PROTOCOL, "user_size is %u, the channel has room for %u",
                     header->user_size, limits->user_size);
  frame->sequence = header->sequence;
  frame->timestamp = header->timestamp;
  description->user_size = header->user_size;
  decode_picture(&description->picture, header);
  decode_timing(&description->timing, header);
  return check_frame(CUDALINK_ERROR_PROTOCOL, description);
}

/* Header and planes of a frame that is not INVALID to this reader. */
static int decode_body(cudalink_frame *frame, const struct wire_header *header, const void *planes,
                       const struct wire_limits *limits, struct wire_place *place) {
  int status = decode_place(header, place);
  if (status == CUDALINK_OK)
    status = decode_planes(&frame->description, planes, header->plane_count, limits, &place->bytes);
  if (status < 0 || place->block || place->bytes <= limits->slot_bytes) return status;
  return beyond_slot(place->bytes, limits->slot_bytes);
}

/* All but the text. In two parts of a fixed size, which take a few instructions each. */
static void copy_header(struct wire_header *header, const void *metadata) {
  const size_t text = offsetof(struct wire_header, text);
  const size_t behind = text + sizeof header->text;
  memcpy(header, metadata, text);
  memcpy((char *)header + behind, (const char *)metadata + behind,
         offsetof(struct wire_header, reserved) - behind);
  COPY_ENDS(header);
}

static int decode(cudalink_frame *frame, const void *metadata, const struct wire_limits *limits,
                  uint32_t known_flags, struct wire_place *place) {
  struct wire_header header;
  copy_header(&header, metadata);

  cudalink_description *description = &frame->description;
  description->plane_count = 0;
  description->user_size = 0;
  place->block = 0;
  header.flags &= known_flags;
  bool invalid = header.flags == WIRE_HEADER_INVALID;
  decode_text(frame, metadata, invalid);
  int status = decode_frame(frame, &header, limits);
  if (status == CUDALINK_OK && !invalid)
    status = decode_body(frame, &header, (const char *)metadata + sizeof header, limits, place);
  if (status < 0) { /* a caller that goes on regardless finds nothing to touch */
    description->plane_count = 0;
    description->user_size = 0;
  }
  return status;
}

int wire_description_decode(cudalink_frame *frame, const void *metadata,
                            const struct wire_limits *limits) {
  struct wire_place place;
  return decode(frame, metadata, limits, WIRE_HEADER_INVALID, &place);
}

int wire_description_decode_place(cudalink_frame *frame, const void *metadata,
                                  const struct wire_limits *limits, struct wire_place *place) {
  return decode(frame, metadata, limits, WIRE_HEADER_INVALID | WIRE_HEADER_SHARED, place);
}
