/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: any bytes as a segment of the old wire. What passes must be the same after we have
 * written it ourselves.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/cipd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct wire_cipd_session *session) {
  static _Alignas(64) uint8_t block[128 * WIRE_CIPD_MAX_SLOTS + 49];
  static struct wire_cipd_session again;
  const struct wire_cipd_format *format = &session->format;
  if ((uint64_t)format->width * format->height > UINT32_MAX) abort();
  wire_cipd_begin_session(block, session);
  wire_cipd_publish(block, &session->layout, session->index, 1);
  if (wire_cipd_read_session(&again, block, session->layout.bytes) < 0) abort();
  if (again.version != session->version || again.index != session->index) abort();
  if (memcmp(again.handles, session->handles, sizeof again.handles) != 0) abort();
  if (again.format.data_size != format->data_size || again.format.bgra != format->bgra) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct wire_cipd_session session;
  void *block = malloc(size ? size : 1);
  if (!block) abort();
  memcpy(block, data, size);
  if (wire_cipd_read_session(&session, block, size) == 0) {
    struct wire_cipd_frame frame;
    if (wire_cipd_poll(block, &session, 0, &frame) != WIRE_CIPD_NEW_FRAME) abort();
    if (frame.slot >= session.layout.slots || frame.index != session.index) abort();
    wire_cipd_nanoseconds(frame.timestamp);
    wire_cipd_intact(block, &session, frame.index);
    check_again(&session);
  }
  free(block);
  return 0;
}
