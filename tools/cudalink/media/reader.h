/* SPDX-License-Identifier: MIT
 *
 * What the reader and the decoders of the file formats share.
 */
#ifndef CUDALINK_MEDIA_READER_H
#define CUDALINK_MEDIA_READER_H

#include "media/media.h"
#include "media/stream.h"

/* One file format. `next` sets reader->description (dense) and returns 1, or 0 at the end. `read`
 * fills `packed` with reader->packed_bytes bytes. `start` (may be NULL) runs once before the first
 * frame, again after a rewind. `stop` (may be NULL) frees reader->state. */
struct media_decoder {
  int (*start)(struct media_reader *reader, struct media_error *error);
  int (*next)(struct media_reader *reader, struct media_error *error);
  int (*read)(struct media_reader *reader, uint8_t *packed, struct media_error *error);
  void (*stop)(struct media_reader *reader);
};

struct media_reader {
  const struct media_decoder *decoder;
  struct media_reader_options options;
  struct media_input input;
  cudalink_description description;
  uint64_t packed_bytes; /* of the frame that `next` found */
  uint64_t frame;        /* its number in the file, from 0 */
  uint64_t pts;          /* the same, but goes on over rewinds */
  int has_next;          /* it was found and not read yet */
  int has_ended;         /* after an error, until rewound */
  uint8_t *scratch;      /* one packed frame */
  uint64_t scratch_size;
  void *state; /* the decoder's */
};

extern const struct media_decoder media_y4m_decoder;
extern const struct media_decoder media_png_decoder;
extern const struct media_decoder media_npy_decoder;
extern const struct media_decoder media_raw_decoder;
extern const struct media_decoder media_folder_decoder;

/* Reads exactly `size` bytes of the current frame; the sentence for a file that ends before says at
 * which frame and how many bytes are missing. */
int media_read_exactly(struct media_reader *reader, void *to, uint64_t size,
                       struct media_error *error);

#endif
