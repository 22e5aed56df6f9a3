/* SPDX-License-Identifier: MIT
 *
 * The pattern `check`.
 */
#ifndef CUDALINK_MEDIA_PATTERN_BYTES_H
#define CUDALINK_MEDIA_PATTERN_BYTES_H

#include "cudalink/frame.h"

/* `size` is the frame's packed size. */
void pattern_bytes_fill(const cudalink_description *description, void *slot, uint64_t size,
                        uint64_t number);

/* The first wrong byte, or -1. `number` is what the frame says of itself. */
int64_t pattern_bytes_check(const cudalink_description *description, const void *slot,
                            uint64_t size, uint64_t *number);

#endif
