/* SPDX-License-Identifier: MIT
 *
 * Test patterns: frames that the program makes itself and can check byte by byte.
 */
#ifndef CUDALINK_MEDIA_PATTERN_H
#define CUDALINK_MEDIA_PATTERN_H

#include "cudalink/format.h"
#include "media/error.h"

/* X(NAME, name) */
#define PATTERNS(X)                                                                                \
  X(BARS, "bars")            /* colour bars of 75 %, PLUGE below; stands still */                  \
  X(RAMP, "ramp")            /* gray, red, green and blue from dark to full; stands still */       \
  X(ZONE_PLATE, "zoneplate") /* rings up to the highest frequency, moving */                       \
  X(COUNTER, "counter")      /* moving stripes, the frame number as digits and as 64 squares */    \
  X(NOISE, "noise")          /* random colours, the same for the same number */                    \
  X(CHECK, "check")          /* every byte follows from frame number and position; for any tensor */

enum pattern {
#define PATTERN_ENUM(upper, lower) PATTERN_##upper,
  PATTERNS(PATTERN_ENUM)
#undef PATTERN_ENUM
};

/* "bars". */
const char *pattern_name(enum pattern pattern);
/* -1: there is none of that name. */
int pattern_from_name(const char *name);

/* 1 when all frames are the same, so that one needs to be drawn only: bars and ramp. */
int pattern_is_still(enum pattern pattern);

/* Says in picture what the patterns draw: sRGB colours full range for RGB and gray, BT.709 limited
 * range for YUV, straight alpha. Fields that say something already are kept. */
void pattern_set_colour(cudalink_description *description);

/* Draws frame `number`. All patterns but `check` need a picture. Range and origin of the picture
 * are honoured; bytes between rows and planes are left alone. */
int pattern_fill(enum pattern pattern, const cudalink_description *description, void *slot,
                 uint64_t number, struct media_error *error);

#define PATTERN_RIGHT (-1)
#define PATTERN_UNCHECKED INT64_MIN /* see `error` */

/* Finds out which frame this is, and compares every byte with it. Returns the first wrong byte,
 * counted in the packed frame, or PATTERN_RIGHT. For `check`, `counter` (pictures of at least 8 x 8
 * pixels), `bars` and `ramp` (whose number is always 0). Frames of less than 16 bytes carry only
 * the lowest 8 bits of the number in `check`. */
int64_t pattern_check(enum pattern pattern, const cudalink_description *description,
                      const void *slot, uint64_t *number, struct media_error *error);

#endif
