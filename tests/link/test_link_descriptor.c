/* SPDX-License-Identifier: MIT
 *
 * The pollable descriptor of an importer: readable once per arming, when there is something.
 */
#include "link_test.h"

#include <poll.h>
#include <sys/socket.h>

/* Waits until it is readable (timeout -1), or looks (0). */
static bool test_readable(int descriptor, int timeout) {
  struct pollfd polled = {.fd = descriptor, .events = POLLIN};
  return poll(&polled, 1, timeout) == 1 && (polled.revents & POLLIN);
}

static cudalink_exporter exporter;
static cudalink_importer importer;

static void becomes_readable_for_a_frame(void **state) {
  (void)state;
  int descriptor;
  test_open(&exporter);
  test_join(&importer);
  assert_ok(cudalink_importer_descriptor(importer, &descriptor));
  test_send(exporter);
  test_pass(importer);
  for (int i = 0; i < 100; i++) {
    assert_ok(cudalink_importer_arm(importer));
    assert_false(test_readable(descriptor, 0));
    uint64_t sequence = test_send(exporter);
    assert_true(test_readable(descriptor, -1));
    assert_int_equal(test_pass(importer), sequence);
  }
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static void one_byte_per_arming(void **state) {
  (void)state;
  int descriptor, again;
  unsigned char bytes[16];
  test_open(&exporter);
  test_join(&importer);
  assert_ok(cudalink_importer_descriptor(importer, &descriptor));
  assert_ok(cudalink_importer_descriptor(importer, &again));
  assert_int_equal(descriptor, again);
  test_send(exporter);
  test_pass(importer);
  assert_ok(cudalink_importer_arm(importer));
  for (int i = 0; i < 50; i++) {
    test_send(exporter);
    test_settle();
  }
  assert_true(test_readable(descriptor, -1));
  assert_int_equal(recv(descriptor, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT), 1);
  /* Unarmed: nothing comes, and arming again drains what was there. */
  test_pass(importer);
  assert_ok(cudalink_importer_arm(importer));
  assert_false(test_readable(descriptor, 0));
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static void arm_says_what_is_there_already(void **state) {
  (void)state;
  int descriptor;
  test_open(&exporter);
  test_join(&importer);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_importer_arm(importer));
  assert_said("descriptor");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_importer_descriptor(importer, NULL));
  assert_ok(cudalink_importer_descriptor(importer, &descriptor));
  test_send(exporter);
  test_pass(importer);
  for (int i = 0; i < 50; i++) {
    cudalink_frame frame;
    uint64_t sequence = test_send(exporter);
    assert_status(CUDALINK_ERROR_BUSY, cudalink_importer_arm(importer));
    assert_ok(test_try(importer, &frame)); /* BUSY means: acquire does not come back empty */
    assert_int_equal(frame.sequence, sequence);
    test_release(&frame);
    assert_ok(cudalink_importer_arm(importer));
  }
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* A loop as a program writes it, over new memory, ends and new producers: it never hangs, and never
 * needs more than the descriptor. */
static void *produce(void *context) {
  (void)context;
  for (int session = 0; session < 5; session++) {
    cudalink_exporter producer;
    test_open(&producer, .hold_limit = FOREVER);
    assert_ok(cudalink_exporter_wait_consumers(producer, 1, FOREVER));
    for (uint64_t i = 0; i < 60; i++)
      test_send_bytes(producer, BYTES + i / 10 * 1000, COMPLETE);
    assert_ok(cudalink_exporter_wait_taken(producer, FOREVER));
    assert_ok(cudalink_exporter_close(producer));
  }
  return NULL;
}
static void a_program_that_polls(void **state) {
  (void)state;
  int descriptor;
  pthread_t thread;
  unsigned frames = 0, ends = 0;
  assert_ok(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel",
                                           .policy = CUDALINK_POLICY_EVERY}));
  assert_ok(cudalink_importer_descriptor(importer, &descriptor));
  assert_int_equal(pthread_create(&thread, NULL, produce, NULL), 0);
  while (ends < 5) {
    int armed = cudalink_importer_arm(importer);
    if (armed == CUDALINK_OK)
      assert_true(test_readable(descriptor, -1));
    else
      assert_status(CUDALINK_ERROR_BUSY, armed);
    cudalink_frame frame;
    int status;
    while ((status = test_try(importer, &frame)) == CUDALINK_OK) {
      assert_painted(&frame, frame.sequence);
      test_release(&frame);
      frames++;
    }
    if (status == CUDALINK_ERROR_ENDED)
      ends++;
    else
      assert_status(CUDALINK_ERROR_TIMEOUT, status);
  }
  pthread_join(thread, NULL);
  assert_int_equal(frames, 300);
  assert_ok(cudalink_importer_close(importer));
}

/* ready_only, or frames of a slow stream: the descriptor tells when they are complete. */
static void a_frame_that_is_complete_later(void **state) {
  (void)state;
  static const cudalink_policy policies[] = {CUDALINK_POLICY_LATEST, CUDALINK_POLICY_READY_ONLY};
  for (int p = 0; p < 2; p++) {
    int descriptor;
    cudalink_host_stream *stream;
    cudalink_frame frame;
    struct test_gate gate = {0};
    assert_ok(cudalink_host_stream_create(&stream));
    test_open(&exporter);
    test_join(&importer, .policy = policies[p]);
    assert_ok(cudalink_importer_descriptor(importer, &descriptor));
    test_send(exporter);
    test_pass(importer);
    test_gate_push(&gate, stream);
    uint64_t sequence = test_send_bytes(exporter, BYTES, CUDALINK_STREAM_HANDLE(stream));
    bool opened = false;
    for (;;) {
      int armed = cudalink_importer_arm(importer);
      if (!opened) {
        test_gate_open(&gate);
        opened = true;
      }
      if (armed == CUDALINK_OK) assert_true(test_readable(descriptor, -1));
      if (cudalink_importer_acquire(importer, COMPLETE, 0, &frame) == CUDALINK_OK) break;
    }
    assert_int_equal(frame.sequence, sequence);
    test_release(&frame);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
    cudalink_host_stream_destroy(stream);
  }
}

static void eviction_is_told(void **state) {
  (void)state;
  cudalink_importer importers[3];
  cudalink_frame held[3], frame;
  cudalink_slot slot;
  int descriptor;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  for (int i = 0; i < 3; i++)
    test_join(&importers[i]);
  for (int i = 2; i >= 0; i--) {
    test_send(exporter);
    held[i] = test_take(importers[i]);
  }
  /* It has the newest frame: nothing is there. Then begin takes the frames of the first one back. */
  assert_ok(cudalink_importer_descriptor(importers[0], &descriptor));
  assert_ok(cudalink_importer_arm(importers[0]));
  assert_ok(test_try_begin(exporter, FOREVER, &slot));
  assert_true(test_sent(exporter).evicted >= 1);
  assert_true(test_readable(descriptor, -1));
  assert_status(CUDALINK_ERROR_EVICTED, test_try(importers[0], &frame));
  for (int i = 0; i < 3; i++) {
    assert_painted(&held[i], held[i].sequence);
    test_release(&held[i]);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_ok(cudalink_exporter_close(exporter));
}

static void *poll_forever(void *context) {
  struct pollfd polled = {.fd = *(int *)context, .events = POLLIN};
  return (void *)(intptr_t)poll(&polled, 1, -1);
}

/* Closed by another thread, while a frame is held. Whoever comes too late finds no descriptor. */
static void close_wakes_who_polls(void **state) {
  (void)state;
  test_open(&exporter);
  for (int round = 0; round < 20; round++) {
    int descriptor;
    pthread_t thread;
    void *count;
    test_join(&importer);
    uint64_t sequence = test_send(exporter);
    cudalink_frame frame = test_take(importer);
    assert_ok(cudalink_importer_descriptor(importer, &descriptor));
    assert_ok(cudalink_importer_arm(importer));
    assert_int_equal(pthread_create(&thread, NULL, poll_forever, &descriptor), 0);
    for (int i = 0; i < round; i++)
      sched_yield();
    assert_ok(cudalink_importer_close(importer));
    pthread_join(thread, &count);
    assert_int_equal((intptr_t)count, 1);
    assert_painted(&frame, sequence);
    test_release(&frame);
  }
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(becomes_readable_for_a_frame),   test_case(one_byte_per_arming),
    test_case(arm_says_what_is_there_already), test_case(a_program_that_polls),
    test_case(a_frame_that_is_complete_later), test_case(eviction_is_told),
    test_case(close_wakes_who_polls),
};
test_main(tests)
