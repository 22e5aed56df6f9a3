/* SPDX-License-Identifier: MIT
 *
 * How the old wire writes element types and sizes; shared by the files of the old wire only.
 */
#ifndef CUDALINK_SRC_WIRE_CIPD_FORMAT_H
#define CUDALINK_SRC_WIRE_CIPD_FORMAT_H

#include "wire/cipd.h"

struct wire_cipd_triple {
  uint8_t kind; /* cudaChannelFormatKind: 0 signed, 1 unsigned, 2 float */
  uint8_t bits;
  uint16_t flags; /* WIRE_CIPD_BFLOAT16 is the only bit that says something about the type */
};

/* False: there is no such type on the other side. Never a guess: a wrong one reads 4 times too far. */
bool wire_cipd_dtype_to_wire(cudalink_dtype dtype, struct wire_cipd_triple *triple);
bool wire_cipd_dtype_from_wire(struct wire_cipd_triple triple, cudalink_dtype *dtype);

/* UINT64_MAX when it does not fit 64 bits. */
uint64_t wire_cipd_frame_bytes(uint32_t width, uint32_t height, uint32_t channels, uint8_t bits);

bool wire_cipd_is_bgra(uint32_t channels, cudalink_dtype dtype);

#endif
