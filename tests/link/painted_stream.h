/* SPDX-License-Identifier: MIT
 *
 * Frames whose pixels a host stream writes, behind a gate, and work on another stream that reads them.
 */
#ifndef CUDALINK_TESTS_LINK_PAINTED_STREAM_H
#define CUDALINK_TESTS_LINK_PAINTED_STREAM_H

#include "stream_pair.h"

static struct test_gate gate; /* in `stream` */

/* Lets everything that is mapped lazily be mapped, and mirrors begin. */
static void warm_up(void) {
  test_send(exporter);
  assert_int_equal(test_pass(importer), 1);
}

/* For cudalink_host_stream_push: is every byte of the frame right? */
struct reader {
  const cudalink_frame *frame;
  _Atomic int result; /* 1 = whole */
};
static void read_frame(void *context) {
  struct reader *reader = context;
  const unsigned char *data = reader->frame->data;
  int whole = 1;
  for (uint64_t i = 0; i < BYTES; i++)
    if (data[i] != test_byte(reader->frame->sequence, i)) whole = 2;
  atomic_store(&reader->result, whole);
}
static void paint_slot(void *context) {
  const cudalink_slot *slot = context;
  test_paint(slot->data, BYTES, slot->sequence);
}

/* Begins a frame whose pixels a stream writes, behind a gate. */
static void publish_painted_by_stream(cudalink_slot *slot) {
  assert_ok(test_try_begin(exporter, FOREVER, slot));
  memset(slot->data, 0, BYTES);
  test_gate_push(&gate, stream);
  assert_ok(cudalink_host_stream_push(stream, paint_slot, slot));
  assert_ok(cudalink_exporter_publish(exporter, slot, CUDALINK_STREAM_HANDLE(stream)));
}

#endif
