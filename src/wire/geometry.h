/* SPDX-License-Identifier: MIT
 *
 * How slots and metadata of one generation lie in their block.
 */
#ifndef CUDALINK_SRC_WIRE_GEOMETRY_H
#define CUDALINK_SRC_WIRE_GEOMETRY_H

#include <stdint.h>

#include "wire/description.h"
#include "wire/message.h"

struct wire_geometry {
  uint64_t slot_bytes;
  uint64_t slot_stride;
  uint64_t metadata_offset; /* behind the slots when `inside`, else 0 */
  uint64_t metadata_stride;
  uint64_t memory_bytes;   /* slots (and metadata when inside), rounded up to `granularity` */
  uint64_t metadata_bytes; /* of the segment of its own; 0 when inside */
  uint32_t slots;
  uint32_t plane_count;
  uint32_t user_size;
};

/* Lays a generation out: slots at multiples of 256 bytes (4096 from 64 KiB up), then the metadata.
 * TOO_LARGE when it does not fit 63 bits, naming slots and bytes. */
int wire_geometry_make(struct wire_geometry *geometry, uint64_t slot_bytes, uint32_t slots,
                       uint32_t plane_count, uint32_t user_size, uint64_t granularity, int inside);

/* Takes a checked GENERATION message apart / puts one together (without device and generation). */
void wire_geometry_from_message(struct wire_geometry *geometry,
                                const struct wire_generation *message);
void wire_geometry_to_message(const struct wire_geometry *geometry,
                              struct wire_generation *message);

#endif
