/* SPDX-License-Identifier: MIT
 *
 * Which number a GPU has in this process.
 */
#ifndef CUDALINK_GPU_ORDINAL_H
#define CUDALINK_GPU_ORDINAL_H

#include <stdint.h>

/* -1: it is not visible here, or there is no driver that says so. Makes no context. */
int gpu_ordinal(const uint8_t uuid[16]);

#endif
