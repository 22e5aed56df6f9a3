/* SPDX-License-Identifier: MIT
 *
 * The affine map of a conversion: what numbers mean on both sides, multiplied out.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_COLOR_H
#define CUDALINK_SRC_INTEROP_CONVERT_COLOR_H

#include "cudalink/convert.h"
#include "interop/convert/layout.h"

/* Fills in the coefficients, limits, `mix` and what missing channels read as; `parameters` must
 * have both sides. Errors: INVALID_ARGUMENT, UNSUPPORTED (matrix, range, scale and mean). */
int convert_color(struct convert_parameters *parameters, const struct convert_layout *source,
                  const cudalink_picture *source_picture, const struct convert_layout *target,
                  const cudalink_picture *target_picture, const cudalink_convert_options *options);

#endif
