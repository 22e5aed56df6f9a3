/* SPDX-License-Identifier: MIT
 *
 * A checked conversion, before it knows where the frames are.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_PLAN_H
#define CUDALINK_SRC_INTEROP_CONVERT_PLAN_H

#include "cudalink/convert.h"
#include "interop/convert/kernels.h"

enum convert_end { CONVERT_SOURCE = 0, CONVERT_TARGET = 1 };

/* Bytes from the start of the slot that a conversion may touch there. */
uint64_t convert_plan_bytes(const cudalink_convert_plan *plan, enum convert_end end);

/* Do frames that look like this fit that end of the plan? What lies where counts: format, size,
 * planes; names and colour do not. A frame that is no picture has to be large enough for a picture's
 * plan. INVALID_ARGUMENT with both. */
int convert_plan_fits(const cudalink_convert_plan *plan, enum convert_end end,
                      const cudalink_description *frame);

/* The job for two slots that start at these addresses (of the CPU or of the GPU). */
struct convert_job convert_plan_bind(const cudalink_convert_plan *plan, uint64_t source,
                                     uint64_t target);

#endif
