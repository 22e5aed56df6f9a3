/* SPDX-License-Identifier: MIT
 *
 * The colour spaces of Y4M: those of mjpegtools and the longer list of ffmpeg.
 */
#include "media/y4m.h"

#include <stddef.h>
#include <strings.h>

#define DEEP(bits)                                                                                 \
  {"420p" #bits, "420P" #bits, CUDALINK_FORMAT_I420P##bits, CUDALINK_CHROMA_NOT_SAID},             \
      {"422p" #bits, "422P" #bits, CUDALINK_FORMAT_I422P##bits, CUDALINK_CHROMA_NOT_SAID}, {       \
    "444p" #bits, "444P" #bits, CUDALINK_FORMAT_I444P##bits, CUDALINK_CHROMA_NOT_SAID              \
  }

/* The writer takes the first row that fits. */
static const struct y4m_space spaces[] = {
    {"420mpeg2", "420MPEG2", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_LEFT},
    {"420paldv", "420PALDV", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_TOP_LEFT},
    {"420jpeg", "420JPEG", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_CENTER},
    {"420", "420JPEG", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_CENTER},
    {"411", "411", CUDALINK_FORMAT_I411, CUDALINK_CHROMA_NOT_SAID},
    {"422", "422", CUDALINK_FORMAT_I422, CUDALINK_CHROMA_NOT_SAID},
    {"444", "444", CUDALINK_FORMAT_I444, CUDALINK_CHROMA_NOT_SAID},
    {"444alpha", "444", CUDALINK_FORMAT_IA444, CUDALINK_CHROMA_NOT_SAID},
    DEEP(9),
    DEEP(10),
    DEEP(12),
    DEEP(14),
    DEEP(16),
    {"mono", NULL, CUDALINK_FORMAT_GRAY8, CUDALINK_CHROMA_NOT_SAID},
    {"mono9", NULL, CUDALINK_FORMAT_GRAY9, CUDALINK_CHROMA_NOT_SAID},
    {"mono10", NULL, CUDALINK_FORMAT_GRAY10, CUDALINK_CHROMA_NOT_SAID},
    {"mono12", NULL, CUDALINK_FORMAT_GRAY12, CUDALINK_CHROMA_NOT_SAID},
    {"mono16", NULL, CUDALINK_FORMAT_GRAY16, CUDALINK_CHROMA_NOT_SAID},
    {"mono", NULL, CUDALINK_FORMAT_R8, CUDALINK_CHROMA_NOT_SAID},
    {"mono16", NULL, CUDALINK_FORMAT_R16, CUDALINK_CHROMA_NOT_SAID},
};
#define SPACE_COUNT (sizeof spaces / sizeof spaces[0])

const struct y4m_space *y4m_space_from_tag(const char *tag) {
  for (size_t i = 0; i < SPACE_COUNT; i++)
    if (strcasecmp(tag, spaces[i].tag) == 0) return &spaces[i];
  return NULL;
}

/* A place of the chroma samples matters for 8-bit 4:2:0 only; not said counts as centre, as in
 * every program that writes "420jpeg". */
const struct y4m_space *y4m_space_for(const cudalink_picture *picture) {
  cudalink_chroma_location location = (cudalink_chroma_location)picture->chroma_location;
  if (location == CUDALINK_CHROMA_NOT_SAID) location = CUDALINK_CHROMA_CENTER;
  for (size_t i = 0; i < SPACE_COUNT; i++) {
    if ((uint32_t)spaces[i].format != picture->format) continue;
    if (spaces[i].format != CUDALINK_FORMAT_I420 || spaces[i].chroma_location == location)
      return &spaces[i];
  }
  return NULL;
}
