/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: any bytes as a message. The copy has exactly the input's size, so that a read behind
 * it is seen by the address sanitizer.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/geometry.h"
#include "wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A generation that passed must lie inside its memory, summed up in a type that can't overflow. */
static void check_generation(const struct wire_generation *message) {
  struct wire_geometry geometry;
  wire_geometry_from_message(&geometry, message);
  unsigned __int128 slots = (unsigned __int128)geometry.slots * geometry.slot_stride;
  unsigned __int128 metadata = (unsigned __int128)geometry.slots * geometry.metadata_stride;
  metadata += geometry.metadata_offset;
  uint64_t room = geometry.metadata_bytes ? geometry.metadata_bytes : geometry.memory_bytes;
  if (slots > geometry.memory_bytes || metadata > room) abort();
  if (!geometry.metadata_bytes && slots > geometry.metadata_offset) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  void *message = malloc(size ? size : 1);
  if (!message) abort();
  memcpy(message, data, size);
  int type = wire_message_check(message, size);
  if (type == WIRE_GENERATION) check_generation(message);
  if (type == 0 || type > WIRE_POOL_BLOCK_GONE) abort();
  free(message);
  return 0;
}
