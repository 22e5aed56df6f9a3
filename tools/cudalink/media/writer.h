/* SPDX-License-Identifier: MIT
 *
 * What the writer and the encoders of the file formats share.
 */
#ifndef CUDALINK_MEDIA_WRITER_H
#define CUDALINK_MEDIA_WRITER_H

#include "media/media.h"
#include "media/stream.h"

/* One frame as it goes into a file: dense, top row first. */
struct media_frame {
  const cudalink_description *description;
  const uint8_t *packed;
  uint64_t bytes;
};

/* NULL, or why a file of this kind can't hold such a frame (the end of a sentence). */
const char *media_y4m_refusal(const cudalink_description *description);
const char *media_png_refusal(const cudalink_description *description);
const char *media_npy_refusal(const cudalink_description *description);

/* Each writes one frame at the end of the file. */
int media_y4m_write_header(struct media_output *output, const cudalink_description *description,
                           struct media_error *error);
int media_y4m_write(struct media_output *output, const struct media_frame *frame,
                    struct media_error *error);
int media_png_write(struct media_output *output, const struct media_frame *frame,
                    struct media_error *error);
/* An NPY file holds one array: plane number `plane` of the frame. */
int media_npy_write(struct media_output *output, const struct media_frame *frame, uint32_t plane,
                    struct media_error *error);

#endif
