/* SPDX-License-Identifier: MIT
 *
 * Recordings: every frame of a channel as it was, with its description, user data and time.
 * docs/recording.md has every byte.
 */
#ifndef CUDALINK_MEDIA_RECORDING_H
#define CUDALINK_MEDIA_RECORDING_H

#include "cudalink/frame.h"
#include "media/stream.h"

/* ---- the file ------------------------------------------------------------------------------- */

#define MEDIA_RECORDING_MAGIC "CUDALREC"
#define MEDIA_RECORDING_VERSION 2u
#define MEDIA_RECORDING_MARK "FRAM"
#define MEDIA_RECORDING_INVALID 1u /* published as invalid: no planes, no pixels, a text */
#define MEDIA_RECORDING_LOST 2u    /* its producer died before the pixels were complete: the same */

struct media_recording_head {
  char magic[8];
  uint32_t version;
  uint32_t crc;  /* of the rest of the head */
  uint64_t time; /* ns since 1970: when the recording was begun */
  char channel[208];
  uint8_t reserved[32];
};
_Static_assert(sizeof(struct media_recording_head) == 264, "layout");

/* Followed by planes, user data, pixels. */
struct media_recording_frame {
  char mark[4];
  uint32_t crc;        /* of the rest of this, the planes and the user data */
  uint64_t data_bytes; /* of the pixels: the slot up to the end of the plane that ends last */
  uint32_t data_crc;
  uint32_t flags;
  uint64_t sequence;
  uint64_t timestamp; /* CLOCK_MONOTONIC of the publish, ns */
  uint64_t missed;    /* frames between the one before and this one that were not recorded */
  uint32_t session;   /* counts producers, from 1 */
  uint32_t plane_count;
  uint32_t user_size;
  uint32_t picture_format, picture_width, picture_height;
  uint8_t primaries, transfer, matrix, range, origin, alpha, field_order, chroma_location;
  int64_t pts, duration;
  uint32_t time_base_numerator, time_base_denominator;
  uint32_t rate_numerator, rate_denominator;
  char clock[CUDALINK_CLOCK_NAME_SIZE];
  char text[CUDALINK_TEXT_SIZE];
  uint32_t pixel_aspect_numerator, pixel_aspect_denominator; /* not in version 1 */
};
_Static_assert(sizeof(struct media_recording_frame) == 232, "layout");
#define MEDIA_RECORDING_FRAME_BYTES_1 224u /* in version 1 */

struct media_recording_plane {
  char name[CUDALINK_PLANE_NAME_SIZE];
  uint8_t code, bits;
  uint16_t lanes;
  uint32_t dimensions;
  uint64_t offset, bytes;
  int64_t shape[CUDALINK_MAX_DIMENSIONS], strides[CUDALINK_MAX_DIMENSIONS];
};
_Static_assert(sizeof(struct media_recording_plane) == 176, "layout");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structs are the file's bytes");

/* Where the plane that ends last ends; UINT64_MAX when that is beyond any memory. */
uint64_t media_recording_span(const cudalink_description *description);

/* ---- writing -------------------------------------------------------------------------------- */

struct media_recorder {
  struct media_output output;
  char channel[CUDALINK_NAME_MAX + 1];
  uint64_t frames;
};

/* `path` "-" is stdout. */
int media_recorder_open(struct media_recorder *recorder, const char *path, const char *channel,
                        const volatile sig_atomic_t *stop, struct media_error *error);

/* Appends a frame; `data` is its slot where the CPU can read it. What could not be written whole is
 * cut off again, if this is a file. */
int media_recorder_write(struct media_recorder *recorder, const cudalink_frame *frame,
                         const void *data, struct media_error *error);

/* A file without a frame is removed. */
int media_recorder_close(struct media_recorder *recorder, struct media_error *error);

/* ---- reading -------------------------------------------------------------------------------- */

struct media_recording {
  struct media_input input;
  struct media_recording_head head;
  uint32_t head_bytes;                /* of a frame, in this version */
  struct media_recording_frame frame; /* the current one */
  cudalink_description description;   /* of it; plane_count 0 when it has no pixels */
  uint8_t *user;                      /* user_size bytes */
  uint64_t frames;                    /* read so far, in this round */
  uint64_t offset;                    /* in the file, of what comes next */
  uint64_t file_bytes;                /* 0 = not known, a pipe */
  int is_cut;                         /* the last error was: the file ends too early */
};

int media_recording_open(struct media_recording *recording, const char *path,
                         const volatile sig_atomic_t *stop, struct media_error *error);

/* Goes to the next frame and reads all of it but its pixels. 1, 0 at the end, or an error that names
 * the offset. */
int media_recording_next(struct media_recording *recording, struct media_error *error);

/* Reads the pixels, frame.data_bytes, and checks them. Due once after each `next`. */
int media_recording_read(struct media_recording *recording, void *to, struct media_error *error);

/* Back to the first frame. Pipes can't. */
int media_recording_rewind(struct media_recording *recording, struct media_error *error);

void media_recording_close(struct media_recording *recording);

#endif
