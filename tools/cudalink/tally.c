/* SPDX-License-Identifier: MIT
 *
 * What a consumer counts.
 */
#include "tally.h"

int tally_frame(struct tally *tally, const cudalink_frame *frame) {
  uint64_t now = cudalink_now(), bytes = 0;
  tally->received++;
  tally->missed += frame->missed;
  histogram_add(&tally->latency, now > frame->timestamp ? now - frame->timestamp : 0);
  if (frame->flags & (CUDALINK_FRAME_INVALID | CUDALINK_FRAME_LOST)) {
    tally->invalid++;
    return 0;
  }
  cudalink_packed_bytes(&frame->description, &bytes);
  tally->bytes += bytes;
  return 1;
}

/* Still pictures say no number; frames of less than 16 bytes say only its lowest 8 bits. */
static int is_number_right(enum pattern pattern, const cudalink_frame *frame, uint64_t number) {
  uint64_t bytes = 0;
  if (pattern_is_still(pattern)) return 1;
  cudalink_packed_bytes(&frame->description, &bytes);
  uint64_t mask = pattern == PATTERN_CHECK && bytes < 16 ? 0xff : UINT64_MAX;
  return bytes == 0 || (number & mask) == (frame->sequence & mask);
}

int tally_check(struct tally *tally, enum pattern pattern, const cudalink_frame *frame,
                const void *data, struct media_error *error) {
  uint64_t number;
  int64_t wrong = pattern_check(pattern, &frame->description, data, &number, error);
  if (wrong == PATTERN_UNCHECKED) return error->code;
  tally->checked++;
  if (wrong == PATTERN_RIGHT && is_number_right(pattern, frame, number)) return CUDALINK_OK;
  if (tally->torn++ == 0) {
    tally->first_sequence = frame->sequence;
    tally->first_byte = wrong == PATTERN_RIGHT ? 0 : (uint64_t)wrong;
  }
  return CUDALINK_OK;
}
