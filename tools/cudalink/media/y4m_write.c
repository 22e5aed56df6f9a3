/* SPDX-License-Identifier: MIT
 *
 * Writes Y4M, byte for byte as ffmpeg does.
 */
#include "media/writer.h"
#include "media/y4m.h"

#include <stdio.h>

const char *media_y4m_refusal(const cudalink_description *description) {
  if (!description->picture.format) return "Y4M holds pictures, and this frame is none";
  if (!y4m_space_for(&description->picture))
    return "Y4M holds planar YUV and gray formats (GRAY8 to GRAY16, I411, I420, I422, I444, IA444 "
           "and their 9- to 16-bit forms); use .npy, .raw or a folder";
  return NULL;
}

static char interlace_letter(uint8_t field_order) {
  switch (field_order) {
  case CUDALINK_FIELD_TOP_FIRST: return 't';
  case CUDALINK_FIELD_BOTTOM_FIRST: return 'b';
  default: return 'p';
  }
}

static const char *range_word(uint8_t range) {
  switch (range) {
  case CUDALINK_RANGE_FULL: return " XCOLORRANGE=FULL";
  case CUDALINK_RANGE_LIMITED: return " XCOLORRANGE=LIMITED";
  default: return "";
  }
}

int media_y4m_write_header(struct media_output *output, const cudalink_description *description,
                           struct media_error *error) {
  const cudalink_picture *picture = &description->picture;
  const cudalink_timing *timing = &description->timing;
  const struct y4m_space *space = y4m_space_for(picture);
  char line[256];
  int length =
      snprintf(line, sizeof line, "YUV4MPEG2 W%u H%u F%u:%u I%c A%u:%u C%s%s%s%s\n", picture->width,
               picture->height, timing->rate_numerator, timing->rate_denominator,
               interlace_letter(picture->field_order), picture->pixel_aspect_numerator,
               picture->pixel_aspect_denominator, space->tag, space->old ? " XYSCSS=" : "",
               space->old ? space->old : "", range_word(picture->range));
  return media_output_write(output, line, (uint64_t)length, error);
}

int media_y4m_write(struct media_output *output, const struct media_frame *frame,
                    struct media_error *error) {
  int result = media_output_write(output, "FRAME\n", 6, error);
  return result ? result : media_output_write(output, frame->packed, frame->bytes, error);
}
