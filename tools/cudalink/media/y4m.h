/* SPDX-License-Identifier: MIT
 *
 * The colour spaces of Y4M, for its reader and its writer.
 */
#ifndef CUDALINK_MEDIA_Y4M_H
#define CUDALINK_MEDIA_Y4M_H

#include "cudalink/format.h"

struct y4m_space {
  const char *tag; /* behind C in the header */
  const char *old; /* behind XYSCSS=, which older programs read; NULL = there is none */
  cudalink_format format;
  cudalink_chroma_location chroma_location;
};

/* By tag, without regard to case. NULL: there is none of that name. */
const struct y4m_space *y4m_space_from_tag(const char *tag);
/* For writing. NULL: Y4M can't hold this picture. */
const struct y4m_space *y4m_space_for(const cudalink_picture *picture);

#endif
