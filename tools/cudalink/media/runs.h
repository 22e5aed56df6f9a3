/* SPDX-License-Identifier: MIT
 *
 * Walks over a frame in the order of its packed bytes, whatever its strides are.
 */
#ifndef CUDALINK_MEDIA_RUNS_H
#define CUDALINK_MEDIA_RUNS_H

#include "cudalink/frame.h"

/* One run of bytes that lie side by side: `offset` in the slot, `position` in the packed frame.
 * Returns -1 to go on; anything else ends the walk and is what runs_visit returns. */
typedef int64_t (*runs_visitor)(void *context, uint64_t offset, uint64_t position, uint64_t bytes);

/* The description must be valid. Returns -1 at the end. */
int64_t runs_visit(const cudalink_description *description, runs_visitor visitor, void *context);

#endif
