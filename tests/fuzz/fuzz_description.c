/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: any bytes as a frame's metadata. What passes must lie inside the slot, and must be the
 * same after another trip.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/description.h"

#define SLOT_BYTES UINT64_C(1000000)
#define ROOM (sizeof(struct wire_header) + CUDALINK_MAX_PLANES * sizeof(struct wire_plane))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_plane(const cudalink_plane *plane) {
  unsigned __int128 reach = plane->offset;
  int empty = 0;
  if (plane->dimensions > CUDALINK_MAX_DIMENSIONS) abort();
  for (uint32_t k = 0; k < plane->dimensions; k++) {
    if (plane->shape[k] < 0 || plane->strides[k] < 0) abort();
    if (plane->shape[k] == 0)
      empty = 1;
    else
      reach += (unsigned __int128)(plane->shape[k] - 1) * (uint64_t)plane->strides[k];
  }
  if (!empty && reach >= SLOT_BYTES) abort();
  if ((unsigned __int128)plane->offset + plane->bytes > SLOT_BYTES) abort();
}

/* As who maps pools reads it: what passes the check lies in the block. */
static void check_place(const uint8_t *metadata, const struct wire_limits *limits) {
  static cudalink_frame frame;
  struct wire_place place;
  frame.flags = 0;
  if (wire_description_decode_place(&frame, metadata, limits, &place) < 0 || !place.block) return;
  if (wire_place_check(&place, SLOT_BYTES) < 0) return;
  if ((unsigned __int128)place.offset + place.bytes > SLOT_BYTES) abort();
  for (uint32_t i = 0; i < frame.description.plane_count; i++)
    check_plane(&frame.description.planes[i]);
}

static void check_again(const cudalink_frame *frame, const struct wire_limits *limits) {
  static _Alignas(64) uint8_t metadata[ROOM];
  cudalink_frame again = {0};
  const char *text = frame->flags & CUDALINK_FRAME_INVALID ? frame->text : NULL;
  wire_description_encode(metadata, &frame->description, frame->sequence, frame->timestamp, text);
  if (wire_description_decode(&again, metadata, limits) < 0) abort();
  if (again.sequence != frame->sequence || again.flags != frame->flags) abort();
  if (again.description.plane_count != frame->description.plane_count) abort();
  if (strcmp(again.text, frame->text) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static _Alignas(64) uint8_t metadata[ROOM];
  static cudalink_frame frame;
  struct wire_limits limits = {SLOT_BYTES, CUDALINK_MAX_PLANES, 64};
  memset(metadata, 0, sizeof metadata);
  memcpy(metadata, data, size < ROOM ? size : ROOM);
  frame.flags = 0;
  check_place(metadata, &limits);
  if (wire_description_decode(&frame, metadata, &limits) < 0) return 0;
  if (frame.description.user_size > limits.user_size) abort();
  for (uint32_t i = 0; i < frame.description.plane_count; i++)
    check_plane(&frame.description.planes[i]);
  check_again(&frame, &limits);
  return 0;
}
