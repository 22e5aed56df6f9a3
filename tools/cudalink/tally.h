/* SPDX-License-Identifier: MIT
 *
 * What a consumer counts while it takes frames.
 */
#ifndef CUDALINK_TALLY_H
#define CUDALINK_TALLY_H

#include "cudalink/cudalink.h"
#include "histogram.h"
#include "media/pattern.h"

struct tally {
  uint64_t received;
  uint64_t bytes;
  uint64_t missed;  /* frames that this consumer did not get */
  uint64_t invalid; /* published as invalid, or lost with their producer */
  uint64_t checked;
  uint64_t torn;            /* checked, and some byte was wrong */
  uint64_t first_sequence;  /* of the first torn frame */
  uint64_t first_byte;      /* the first wrong byte in it */
  struct histogram latency; /* publish -> this consumer has the frame, ns */
};

/* Counts a frame that was just taken. 1: it has pixels, 0: it is invalid or lost. */
int tally_frame(struct tally *tally, const cudalink_frame *frame);

/* Compares every byte of the frame, which lies at `data`, with the pattern. Also its number must be
 * the frame's sequence number: a whole frame in the wrong place is torn too. 0, or an error for a
 * frame that can't be checked. */
int tally_check(struct tally *tally, enum pattern pattern, const cudalink_frame *frame,
                const void *data, struct media_error *error);

#endif
