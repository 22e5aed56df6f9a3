/* SPDX-License-Identifier: MIT
 *
 * Isolated consumers: a block of memory of their own, one copy per frame, out of everybody's reach.
 */
#include "link_test.h"

static cudalink_exporter exporter;
static cudalink_importer importer;

static void end(void) {
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* The first begin after it joined makes its block; frames from then on are its own. */
static void gets_a_copy_of_its_own(void **state) {
  (void)state;
  cudalink_importer plain;
  test_open(&exporter, .user_size = 100);
  test_join(&importer, .isolated = 1, .policy = CUDALINK_POLICY_EVERY);
  test_join(&plain, .policy = CUDALINK_POLICY_EVERY);
  cudalink_description description = test_bytes(BYTES);
  for (uint64_t i = 1; i <= 50; i++) {
    cudalink_slot slot;
    description.user_size = (uint32_t)i;
    assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, &slot));
    test_paint(slot.data, BYTES, i);
    memset(slot.user, (int)i, i);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    cudalink_frame own = test_take(importer), shared = test_take(plain);
    assert_int_equal(own.sequence, i);
    assert_int_equal(shared.sequence, i);
    assert_ptr_not_equal(own.data, shared.data);
    assert_int_equal(own.description.user_size, i);
    for (uint64_t b = 0; b < i; b++)
      assert_int_equal(((const unsigned char *)own.user)[b], i);
    assert_int_equal(own.writable, 0);
    test_release(&own);
    test_release(&shared);
  }
  assert_int_equal(test_sent(exporter).copies, 50);
  assert_ok(cudalink_importer_close(plain));
  end();
}

/* It may write into its copy, and nobody sees that. */
static void a_writable_copy_is_its_own(void **state) {
  (void)state;
  cudalink_importer others[2];
  test_open(&exporter);
  test_join(&importer, .isolated = 1, .writable = 1, .policy = CUDALINK_POLICY_EVERY);
  test_join(&others[0], .isolated = 1, .writable = 1, .policy = CUDALINK_POLICY_EVERY);
  test_join(&others[1], .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 30; i++) {
    test_send(exporter);
    cudalink_frame mine = test_take(importer);
    assert_int_equal(mine.writable, 1);
    memset(mine.data, 0xee, BYTES);
    for (int o = 0; o < 2; o++) {
      cudalink_frame frame = test_take(others[o]); /* every byte as it was sent */
      test_release(&frame);
    }
    test_release(&mine);
  }
  assert_int_equal(test_sent(exporter).copies, 60);
  for (int o = 0; o < 2; o++)
    assert_ok(cudalink_importer_close(others[o]));
  end();
}

/* On kind host, a consumer that is not isolated never gets memory that it can write to. */
static void shared_host_memory_is_never_writable(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer, .writable = 1);
  test_send(exporter);
  cudalink_frame frame = test_take(importer);
  assert_int_equal(frame.writable, 0);
  test_release(&frame);
  end();
}

/* It joins a ring that is full of older frames, and wants every frame. */
static void joins_a_full_ring(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .hold_limit = FOREVER);
  for (int i = 0; i < 20; i++)
    test_send(exporter);
  test_join(&importer, .isolated = 1, .policy = CUDALINK_POLICY_EVERY);
  assert_ok(test_try_begin(exporter, FOREVER, &slot));
  test_paint(slot.data, BYTES, slot.sequence);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_int_equal(test_pass(importer), slot.sequence);
  end();
}

static void follows_every_generation(void **state) {
  (void)state;
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .isolated = 1, .policy = CUDALINK_POLICY_EVERY);
  for (uint64_t i = 0; i < 60; i++) {
    uint64_t sequence = test_send_bytes(exporter, BYTES + i / 3 * 1000, COMPLETE);
    cudalink_frame frame = test_take(importer);
    assert_int_equal(frame.sequence, sequence);
    assert_int_equal(frame.missed, 0);
    test_release(&frame);
  }
  assert_true(test_sent(exporter).generations >= 20);
  end();
}

/* A larger frame is begun and abandoned, then an ordinary one: the copy is where it is looked for. */
static void an_abandoned_move_loses_nothing(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_description large = test_bytes(100000);
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .isolated = 1, .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 40; i++) {
    uint64_t sequence = test_send(exporter);
    assert_int_equal(test_pass(importer), sequence);
    assert_ok(cudalink_exporter_begin(exporter, &large, 0, &slot));
    assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  }
  uint64_t sequence = test_send(exporter);
  assert_int_equal(test_pass(importer), sequence);
  sequence = test_send_bytes(exporter, 100000, COMPLETE);
  assert_int_equal(test_pass(importer), sequence);
  end();
}

/* A frame of the old block is held while the block is replaced. */
static void a_held_copy_stays_whole(void **state) {
  (void)state;
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .isolated = 1, .hold = 2);
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  for (uint64_t i = 1; i < 20; i++) {
    uint64_t sequence = test_send_bytes(exporter, BYTES + i * 1000, COMPLETE);
    assert_int_equal(test_pass(importer), sequence);
    assert_painted(&held, 1);
  }
  test_release(&held);
  end();
}

/* The copy is on the frame's stream: complete no earlier than the frame itself. */
static void paint_slot(void *context) {
  const cudalink_slot *slot = context;
  test_paint(slot->data, BYTES, slot->sequence);
}
static void the_copy_follows_the_stream(void **state) {
  (void)state;
  cudalink_host_stream *stream;
  struct test_gate gate = {0};
  cudalink_slot slot;
  cudalink_frame frame;
  assert_ok(cudalink_host_stream_create(&stream));
  test_open(&exporter);
  test_join(&importer, .isolated = 1);
  test_send(exporter);
  test_pass(importer);
  for (int i = 0; i < 20; i++) {
    assert_ok(test_try_begin(exporter, FOREVER, &slot));
    memset(slot.data, 0, BYTES);
    test_gate_push(&gate, stream);
    assert_ok(cudalink_host_stream_push(stream, paint_slot, &slot));
    assert_ok(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_HANDLE(stream)));
    assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
    test_gate_open(&gate);
    assert_int_equal(test_pass(importer), slot.sequence);
    assert_ok(cudalink_host_stream_synchronize(stream)); /* it has done with `slot` */
  }
  end();
  cudalink_host_stream_destroy(stream);
}

/* Many come and go while frames flow. */
static void members_come_and_go(void **state) {
  (void)state;
  test_open(&exporter, .hold_limit = FOREVER);
  for (int i = 0; i < 40; i++) {
    test_join(&importer, .isolated = 1, .policy = (cudalink_policy)(i % 4));
    cudalink_frame frame;
    uint64_t sequence = test_send(exporter);
    frame = test_take(importer);
    assert_int_equal(frame.sequence, sequence);
    if (i % 2) test_release(&frame);
    assert_ok(cudalink_importer_close(importer));
    for (int j = 0; j < 8; j++)
      test_send(exporter);
    if (i % 2 == 0) {
      assert_painted(&frame, sequence);
      test_release(&frame);
    }
  }
  assert_ok(cudalink_exporter_close(exporter));
}

/* The isolated one is evicted: nothing else than its copy can be lost, and that stays whole too. */
static void an_evicted_copy_stays_whole(void **state) {
  (void)state;
  cudalink_importer others[2];
  cudalink_frame held[3], frame;
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  test_join(&importer, .isolated = 1);
  test_send(exporter);
  held[0] = test_take(importer);
  for (int o = 0; o < 2; o++) {
    test_join(&others[o]);
    if (test_try_begin(exporter, 0, &slot) == CUDALINK_OK) {
      test_paint(slot.data, BYTES, slot.sequence);
      assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    }
    held[o + 1] = test_take(others[o]);
  }
  for (int i = 0; i < 5; i++)
    test_send(exporter);
  assert_true(test_sent(exporter).evicted >= 1);
  assert_painted(&held[0], 1);
  test_try(importer, &frame);
  assert_painted(&held[0], 1);
  test_release(&held[0]);
  for (int o = 0; o < 2; o++) {
    test_release(&held[o + 1]);
    assert_ok(cudalink_importer_close(others[o]));
  }
  end();
}

static const struct CMUnitTest tests[] = {
    test_case(gets_a_copy_of_its_own),
    test_case(a_writable_copy_is_its_own),
    test_case(shared_host_memory_is_never_writable),
    test_case(joins_a_full_ring),
    test_case(follows_every_generation),
    test_case(an_abandoned_move_loses_nothing),
    test_case(a_held_copy_stays_whole),
    test_case(the_copy_follows_the_stream),
    test_case(members_come_and_go),
    test_case(an_evicted_copy_stays_whole),
};
test_main(tests)
