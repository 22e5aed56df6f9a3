/* SPDX-License-Identifier: MIT
 *
 * Where slots and descriptions lie in a generation's memory.
 */
#include "wire/geometry.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

#define PAGE 4096u
#define PAGED_FROM UINT64_C(65536) /* slots of this size start on a page of their own */

static bool round_up(uint64_t value, uint64_t unit, uint64_t *result) {
  if (unit == 0) unit = 1;
  uint64_t rest = value % unit;
  if (rest == 0) {
    *result = value;
    return value <= INT64_MAX;
  }
  return !__builtin_add_overflow(value, unit - rest, result) && *result <= INT64_MAX;
}

/* True if all sizes fit 63 bits. */
static bool lay_out(struct wire_geometry *geometry, uint64_t granularity, bool inside) {
  uint64_t alignment = geometry->slot_bytes >= PAGED_FROM ? PAGE : WIRE_SLOT_ALIGNMENT;
  uint64_t slot_bytes = geometry->slot_bytes ? geometry->slot_bytes : 1;
  uint64_t slots_end, metadata_bytes, end;
  geometry->metadata_stride = wire_metadata_stride(geometry->plane_count, geometry->user_size);
  if (!round_up(slot_bytes, alignment, &geometry->slot_stride)) return false;
  if (__builtin_mul_overflow(geometry->slot_stride, (uint64_t)geometry->slots, &slots_end) ||
      __builtin_mul_overflow(geometry->metadata_stride, (uint64_t)geometry->slots, &metadata_bytes))
    return false;
  if (!inside) {
    geometry->metadata_bytes = metadata_bytes;
    return round_up(slots_end, granularity, &geometry->memory_bytes);
  }
  geometry->metadata_offset = slots_end; /* a multiple of 256 */
  return !__builtin_add_overflow(slots_end, metadata_bytes, &end) &&
         round_up(end, granularity, &geometry->memory_bytes);
}

int wire_geometry_make(struct wire_geometry *geometry, uint64_t slot_bytes, uint32_t slots,
                       uint32_t plane_count, uint32_t user_size, uint64_t granularity, int inside) {
  memset(geometry, 0, sizeof *geometry);
  geometry->slot_bytes = slot_bytes;
  geometry->slots = slots;
  geometry->plane_count = plane_count;
  geometry->user_size = user_size;
  if (lay_out(geometry, granularity, inside != 0)) return CUDALINK_OK;
  memset(geometry, 0, sizeof *geometry);
  return error_set(CUDALINK_ERROR_TOO_LARGE, "%u slots of %" PRIu64 " bytes do not fit 63 bits",
                   slots, slot_bytes);
}

void wire_geometry_from_message(struct wire_geometry *geometry,
                                const struct wire_generation *message) {
  geometry->slot_bytes = message->slot_bytes;
  geometry->slot_stride = message->slot_stride;
  geometry->metadata_offset = message->metadata_offset;
  geometry->metadata_stride = message->metadata_stride;
  geometry->memory_bytes = message->memory_bytes;
  geometry->metadata_bytes = message->metadata_bytes;
  geometry->slots = message->slots;
  geometry->plane_count = message->plane_count;
  geometry->user_size = message->user_size;
}

void wire_geometry_to_message(const struct wire_geometry *geometry,
                              struct wire_generation *message) {
  message->slot_bytes = geometry->slot_bytes;
  message->slot_stride = geometry->slot_stride;
  message->metadata_offset = geometry->metadata_offset;
  message->metadata_stride = geometry->metadata_stride;
  message->memory_bytes = geometry->memory_bytes;
  message->metadata_bytes = geometry->metadata_bytes;
  message->slots = geometry->slots;
  message->plane_count = geometry->plane_count;
  message->user_size = geometry->user_size;
}
