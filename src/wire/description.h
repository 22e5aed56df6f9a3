/* SPDX-License-Identifier: MIT
 *
 * A frame's description in shared memory: a header and its planes, behind the slots of a generation.
 *
 * Slot i's metadata starts at metadata_offset + i * metadata_stride; the header is followed by the
 * planes that the channel declared room for, then by the user data (64-byte aligned).
 */
#ifndef CUDALINK_SRC_WIRE_DESCRIPTION_H
#define CUDALINK_SRC_WIRE_DESCRIPTION_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cudalink/frame.h"

struct wire_plane { /* 192 bytes */
  uint64_t offset;
  uint64_t bytes;
  int64_t shape[CUDALINK_MAX_DIMENSIONS];
  int64_t strides[CUDALINK_MAX_DIMENSIONS];
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  uint32_t dimensions;
  char name[CUDALINK_PLANE_NAME_SIZE];
  uint8_t reserved[16];
};
_Static_assert(sizeof(struct wire_plane) == 192, "layout");

struct wire_header { /* 256 bytes */
  uint64_t sequence;
  uint64_t timestamp;
  int64_t pts;
  int64_t duration;
  uint32_t time_base_numerator;
  uint32_t time_base_denominator;
  uint32_t rate_numerator;
  uint32_t rate_denominator;
  char clock[CUDALINK_CLOCK_NAME_SIZE];
  uint32_t plane_count;
  uint32_t user_size;
  uint32_t flags; /* WIRE_HEADER_INVALID */
  uint32_t picture_format;
  uint32_t picture_width;
  uint32_t picture_height;
  uint8_t primaries, transfer, matrix, range, origin, alpha, field_order, chroma_location;
  char text[CUDALINK_TEXT_SIZE];
  uint64_t pool_block; /* with WIRE_HEADER_SHARED: where the planes' offsets count from */
  uint64_t pool_offset;
  uint32_t pixel_aspect_numerator; /* both 0 = not said, as an older producer leaves it */
  uint32_t pixel_aspect_denominator;
  uint8_t reserved[40];
};
_Static_assert(sizeof(struct wire_header) == 256, "layout");
_Static_assert(offsetof(struct wire_header, plane_count) == 64, "a stamp is one line");
#define WIRE_HEADER_INVALID 1u
/* The planes lie in a block of a pool. Always together with INVALID, which is what a reader that knows no
 * pools takes the frame for. */
#define WIRE_HEADER_SHARED 2u

/* What surrounds one description: known from the handshake, never from shared memory. */
struct wire_limits {
  uint64_t slot_bytes;
  uint32_t plane_count; /* room for so many */
  uint32_t user_size;
};

/* Bytes of one slot's metadata (a multiple of 64), and where the user data starts in it. */
static inline uint64_t wire_metadata_user_offset(uint32_t plane_count) {
  return sizeof(struct wire_header) + (uint64_t)plane_count * sizeof(struct wire_plane);
}
static inline uint64_t wire_metadata_stride(uint32_t plane_count, uint32_t user_size) {
  return (wire_metadata_user_offset(plane_count) + user_size + 63u) & ~UINT64_C(63);
}

#define WIRE_MAX_PICTURE_SIDE 65535u

/* Of a checked one; no more planes than it has. */
static inline void wire_description_copy(cudalink_description *copy,
                                         const cudalink_description *description) {
  memcpy(copy, description,
         offsetof(cudalink_description, planes) +
             description->plane_count * sizeof description->planes[0]);
}

/* Everything that can be wrong with a description, with 64-bit arithmetic: what passes here on the
 * producer's side passes wire_description_decode on the consumer's. Gives the end of the plane that
 * ends last. On failure returns `code` with a sentence that names field and value. */
int wire_description_check(int code, const cudalink_description *description, uint64_t *bytes);

/* Producer: writes header and planes at `metadata` (8-byte aligned). The description was validated
 * before (wire_description_check) and fits the limits. Never fails. */
void wire_description_encode(void *metadata, const cudalink_description *description,
                             uint64_t sequence, uint64_t timestamp, const char *invalid_text);

/* The same where `metadata` holds this description already, all but its timing: writes one line. */
void wire_description_stamp(void *metadata, const cudalink_timing *timing, uint64_t sequence,
                            uint64_t timestamp);

/* No frame is described there any more: its number is none. */
void wire_description_forget(void *metadata);

/* Behind it: the planes lie in that block of a pool, from `offset` on. */
void wire_description_share(void *metadata, uint64_t block, uint64_t offset);

/* Consumer: copies header and planes out of shared memory once, checks the copy against the limits
 * with 64-bit arithmetic, and fills in sequence, timestamp, text, description and the INVALID flag of
 * the frame. Only planes that are there are written. PROTOCOL names the field that is wrong. For a
 * frame flagged INVALID the planes are not looked at: plane_count becomes 0. So is a SHARED one. */
int wire_description_decode(cudalink_frame *frame, const void *metadata,
                            const struct wire_limits *limits);

/* Where the planes of a frame lie. */
struct wire_place {
  uint64_t block;  /* of a pool; 0 = in the slot, and the rest means nothing */
  uint64_t offset; /* in the block */
  uint64_t bytes;  /* from there to the end of the plane that ends last */
};

/* The same for a reader that maps blocks of pools: a SHARED frame is not INVALID to it. Where
 * place->block is not 0 the caller has to find that block, and to ask wire_place_check, before it uses the
 * planes. */
int wire_description_decode_place(cudalink_frame *frame, const void *metadata,
                                  const struct wire_limits *limits, struct wire_place *place);

/* Does it lie in a block of so many bytes? PROTOCOL, with the numbers. */
int wire_place_check(const struct wire_place *place, uint64_t block_bytes);

#endif
