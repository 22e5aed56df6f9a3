/* SPDX-License-Identifier: MIT
 *
 * A description seen as conversion sees it: four channels and where their samples lie.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_LAYOUT_H
#define CUDALINK_SRC_INTEROP_CONVERT_LAYOUT_H

#include "cudalink/frame.h"
#include "interop/convert/parameters.h"

/* Pictures of one family convert into each other; CONVERT_RGB and CONVERT_YUV do, too. */
enum convert_family { CONVERT_RED = 1, CONVERT_RED_GREEN = 2, CONVERT_RGB = 3, CONVERT_YUV = 4 };

struct convert_layout {
  struct convert_side side; /* addresses count from the start of the slot */
  const char *name;         /* for messages */
  uint32_t family;
  uint32_t width;
  uint32_t height;
  uint32_t depths[4];  /* bits of each channel's numbers, also of one that is missing; 0 = float */
  uint32_t filler;     /* 1: the fourth channel has no meaning (RGBX8) */
  uint32_t cell_width; /* pixels that share a chroma sample, or are in one v210 group */
  uint32_t cell_height;
};

/* `role` ("source", "target") is for messages. Errors: what cudalink_description_bytes answers;
 * UNSUPPORTED for a tensor that does not count as a picture. */
int convert_layout_read(struct convert_layout *layout, const cudalink_description *description,
                        const char *role);

#endif
