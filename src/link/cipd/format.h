/* SPDX-License-Identifier: MIT
 *
 * Descriptions in the words of the old wire and back.
 */
#ifndef CUDALINK_SRC_LINK_CIPD_FORMAT_H
#define CUDALINK_SRC_LINK_CIPD_FORMAT_H

#include "wire/cipd.h"

/* Where the pixels of a frame are; on the old wire they have no gaps. */
struct link_cipd_rows {
  uint64_t offset; /* in the slot */
  uint64_t bytes;  /* of one row */
  uint64_t pitch;
  uint64_t count;
};

/* UNSUPPORTED says what the old wire has no word for, TOO_LARGE that it can't count the bytes. */
int link_cipd_format_of(const cudalink_description *description, struct wire_cipd_format *format,
                        struct link_cipd_rows *rows);
/* A picture where there is a format for it, else a tensor {height, width, channels}. */
int link_cipd_describe(const struct wire_cipd_format *format, cudalink_description *description);

#endif
