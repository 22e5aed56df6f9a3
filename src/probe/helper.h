/* SPDX-License-Identifier: MIT
 *
 * How a helper is called: PROGRAM WORD DEVICE LIMIT. Device as in cudalink_probe_spec, limit in ns for
 * one step.
 */
#ifndef CUDALINK_SRC_PROBE_HELPER_H
#define CUDALINK_SRC_PROBE_HELPER_H

#define PROBE_HELPER_WORD "cudalink-probe-helper"

#endif
