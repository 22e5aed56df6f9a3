/* SPDX-License-Identifier: MIT
 *
 * One exporter, one importer and two host streams: the stage of the tests that order work by streams.
 */
#ifndef CUDALINK_TESTS_LINK_STREAM_PAIR_H
#define CUDALINK_TESTS_LINK_STREAM_PAIR_H

#include "link_test.h"

static cudalink_exporter exporter;
static cudalink_importer importer;
static cudalink_host_stream *stream, *other;

static void begin(void) {
  assert_ok(cudalink_host_stream_create(&stream));
  assert_ok(cudalink_host_stream_create(&other));
}
static void end(void) {
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
  cudalink_host_stream_destroy(stream);
  cudalink_host_stream_destroy(other);
}

static uint32_t flags_of(const cudalink_frame *frame) {
  uint32_t flags = UINT32_MAX;
  assert_ok(cudalink_frame_flags(frame, &flags));
  return flags;
}

#endif
