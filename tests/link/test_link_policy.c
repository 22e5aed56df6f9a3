/* SPDX-License-Identifier: MIT
 *
 * Which frame a consumer gets: latest, ready_only, in order, every frame; what it missed.
 */
#include "link_test.h"

static cudalink_exporter exporter;
static cudalink_importer importer;

static void assert_nothing(void) {
  cudalink_frame frame;
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  assert_int_equal(frame.lease, 0);
}

static void end(void) {
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Takes a frame: its number, and how many were missed before it. */
static void expect(uint64_t sequence, uint64_t missed) {
  cudalink_frame frame = test_take(importer);
  assert_int_equal(frame.sequence, sequence);
  assert_int_equal(frame.missed, missed);
  test_release(&frame);
}

static void latest_skips_and_counts(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  expect(1, 0);
  assert_nothing();
  for (int i = 0; i < 5; i++)
    test_send(exporter);
  expect(6, 4);
  assert_nothing();
  test_send(exporter);
  expect(7, 0);
  assert_int_equal(test_got(importer).missed, 4);
  assert_int_equal(test_got(importer).received, 3);
  assert_int_equal(test_got(importer).bytes, 3 * BYTES);
  end();
}

/* What was there before it joined was never its own: not missed. */
static void latest_starts_with_the_newest(void **state) {
  (void)state;
  test_open(&exporter);
  for (int i = 0; i < 5; i++)
    test_send(exporter);
  test_join(&importer);
  expect(5, 0);
  assert_nothing();
  end();
}

static void abandoned_numbers_are_not_missed(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer);
  uint64_t first = test_send(exporter);
  expect(first, 0);
  for (int i = 0; i < 100; i++)
    test_abandon(exporter);
  uint64_t second = test_send(exporter);
  for (int i = 0; i < 10; i++)
    test_abandon(exporter);
  uint64_t third = test_send(exporter);
  expect(third, 1);
  (void)second;
  assert_int_equal(test_sent(exporter).abandoned, 110);
  assert_int_equal(test_sent(exporter).published, 3);
  end();
}

static void in_order_takes_what_is_left(void **state) {
  (void)state;
  test_open(&exporter, .slots = 4);
  test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER);
  test_send(exporter);
  expect(1, 0);
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  expect(2, 0);
  expect(3, 0);
  expect(4, 0);
  assert_nothing();
  uint64_t last = 0;
  for (int i = 0; i < 200; i++)
    last = test_send(exporter);
  uint64_t expected = 5, missed = 0;
  for (;;) {
    cudalink_frame frame = test_take(importer);
    assert_int_equal(frame.sequence, expected + frame.missed);
    expected = frame.sequence + 1;
    missed += frame.missed;
    test_release(&frame);
    if (frame.sequence == last) break;
  }
  assert_nothing();
  assert_in_range(missed, 100, 198); /* at most max_slots of 200 were there still */
  assert_int_equal(test_got(importer).missed, missed);
  assert_int_equal(test_got(importer).received + missed, last);
  end();
}

/* What was published since it joined belongs to it, also before its first acquire. */
static void in_order_begins_where_it_joined(void **state) {
  (void)state;
  test_open(&exporter, .slots = 4, .max_slots = 4);
  test_send(exporter);
  test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER);
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  expect(2, 0);
  expect(3, 0);
  expect(4, 0);
  end();
  test_open(&exporter, .slots = 4, .max_slots = 4);
  test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER);
  for (int i = 0; i < 10; i++)
    test_send(exporter);
  cudalink_frame frame = test_take(importer);
  assert_int_equal(frame.sequence, 1 + frame.missed);
  assert_int_not_equal(frame.missed, 0);
  test_release(&frame);
  end();
}

static void every_frame_makes_the_producer_wait(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .slots = 4, .max_slots = 4, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  uint64_t sent = 0, taken = 0;
  for (int round = 0; round < 200; round++) {
    while (test_try_begin(exporter, 0, &slot) == CUDALINK_OK) {
      assert_int_equal(slot.sequence, ++sent);
      test_paint(slot.data, BYTES, slot.sequence);
      assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    }
    assert_status(CUDALINK_ERROR_BUSY, test_try_begin(exporter, 0, &slot));
    assert_true(sent > taken);
    for (int i = round % 3; i >= 0 && taken < sent; i--)
      expect(++taken, 0);
  }
  while (taken < sent)
    expect(++taken, 0);
  assert_nothing();
  assert_true(taken > 200);
  assert_int_equal(test_sent(exporter).cursors_lost, 0);
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_int_equal(test_got(importer).missed, 0);
  assert_int_equal(test_sent(exporter).dropped, 400);
  end();
}

static void every_frame_skips_what_was_abandoned(void **state) {
  (void)state;
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 50; i++) {
    for (int j = 0; j < i % 4; j++)
      test_abandon(exporter);
    uint64_t sequence = test_send(exporter);
    test_abandon(exporter);
    expect(sequence, 0);
  }
  assert_nothing();
  end();
}

/* A producer that begins and abandons for long must not run into an idle consumer's place. */
static void abandoning_never_blocks(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 300; i++) {
    assert_ok(test_try_begin(exporter, 0, &slot));
    assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  }
  uint64_t sequence = test_send(exporter);
  expect(sequence, 0);
  for (int i = 0; i < 300; i++)
    test_abandon(exporter);
  sequence = test_send(exporter);
  expect(sequence, 0);
  /* And with a frame that it has not taken yet. */
  uint64_t kept = test_send(exporter);
  for (int i = 0; i < 300; i++) {
    int status = test_try_begin(exporter, 0, &slot);
    if (status == CUDALINK_ERROR_BUSY) break; /* the index of 64: it has to wait */
    assert_ok(status);
    assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  }
  expect(kept, 0);
  sequence = test_send(exporter);
  expect(sequence, 0);
  end();
}

/* Its place is lost after hold_limit; it is told how many frames it lost, and goes on. */
static void a_place_is_lost_after_hold_limit(void **state) {
  (void)state;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  expect(1, 0);
  while (!test_sent(exporter).cursors_lost)
    test_send(exporter);
  uint64_t last = test_send(exporter);
  uint64_t at = 1, missed = 0;
  while (at < last) {
    cudalink_frame frame = test_take(importer);
    assert_true(frame.sequence > at);
    assert_int_equal(frame.missed, frame.sequence - at - 1);
    at = frame.sequence;
    missed += frame.missed;
    test_release(&frame);
  }
  assert_nothing();
  assert_true(missed > 0);
  assert_int_equal(test_got(importer).missed, missed);
  assert_int_equal(test_got(importer).evictions, 0);
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_int_equal(test_got(importer).received + missed, last);
  end();
}

/* It takes frames, one of which it holds: the place moves on, so only the lease counts. */
static void every_frame_with_a_frame_held(void **state) {
  (void)state;
  test_open(&exporter, .slots = 4, .max_slots = 8, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY, .hold = 2);
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  for (int i = 0; i < 100; i++) {
    uint64_t sequence = test_send(exporter);
    expect(sequence, 0);
  }
  assert_painted(&held, 1);
  test_release(&held);
  end();
}

/* Two consumers that want every frame: the slower one decides, both get all. */
static void two_want_every_frame(void **state) {
  (void)state;
  cudalink_importer other;
  cudalink_slot slot;
  test_open(&exporter, .slots = 4, .max_slots = 6, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  test_join(&other, .policy = CUDALINK_POLICY_EVERY);
  uint64_t sent = 0, quick = 0, slow = 0;
  for (int i = 0; i < 300; i++) {
    if (test_try_begin(exporter, 0, &slot) == CUDALINK_OK) {
      test_paint(slot.data, BYTES, slot.sequence);
      assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
      sent++;
    }
    while (quick < sent)
      expect(++quick, 0);
    if (i % 3 == 0 && slow < sent) assert_int_equal(test_pass(other), ++slow);
  }
  while (slow < sent)
    assert_int_equal(test_pass(other), ++slow);
  assert_int_equal(quick, sent);
  assert_ok(cudalink_importer_close(other));
  end();
}

/* One that leaves keeps nobody waiting. */
static void a_leaver_gives_its_place_up(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  while (test_try_begin(exporter, 0, &slot) == CUDALINK_OK)
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_importer_close(importer));
  assert_ok(test_try_begin(exporter, FOREVER, &slot));
  assert_ok(cudalink_exporter_close(exporter));
}

/* The same when it left with a frame still in its hands: its place goes at once. */
static void a_leaver_with_a_frame_gives_its_place_up(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  while (test_try_begin(exporter, 0, &slot) == CUDALINK_OK)
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_importer_close(importer));
  for (int i = 0; i < 10; i++) {
    assert_ok(test_try_begin(exporter, FOREVER, &slot));
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  }
  assert_painted(&held, 1);
  test_release(&held);
  assert_ok(cudalink_exporter_close(exporter));
}

static void wait_taken_waits_for_every_frame(void **state) {
  (void)state;
  test_open(&exporter, .slots = 8, .hold_limit = FOREVER);
  assert_ok(cudalink_exporter_wait_taken(exporter, 0));
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  assert_ok(cudalink_exporter_wait_taken(exporter, 0));
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  for (uint64_t s = 1; s <= 3; s++) {
    assert_status(CUDALINK_ERROR_TIMEOUT, cudalink_exporter_wait_taken(exporter, MILLISECOND));
    expect(s, 0);
  }
  assert_ok(cudalink_exporter_wait_taken(exporter, 0));
  end();
}

static void *take_until_end(void *context) {
  cudalink_importer *consumer = context;
  cudalink_frame frame;
  uint64_t count = 0;
  while (cudalink_importer_acquire(*consumer, COMPLETE, FOREVER, &frame) == CUDALINK_OK) {
    assert_painted(&frame, frame.sequence);
    assert_int_equal(frame.sequence, ++count);
    test_release(&frame);
  }
  return (void *)(uintptr_t)count;
}

static void *wait_taken(void *context) {
  cudalink_exporter *producer = context;
  assert_ok(cudalink_exporter_wait_taken(*producer, FOREVER));
  return NULL;
}

/* A begin and a wait_taken sleep at the same time: neither takes the other's wake-up away. */
static void begin_and_wait_taken_together(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    pthread_t consumer, waiter;
    void *count;
    test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
    test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
    test_send(exporter);
    assert_int_equal(pthread_create(&waiter, NULL, wait_taken, &exporter), 0);
    test_send(exporter);
    assert_int_equal(pthread_create(&consumer, NULL, take_until_end, &importer), 0);
    for (int i = 0; i < 100; i++)
      test_send(exporter);
    pthread_join(waiter, NULL);
    assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
    assert_ok(cudalink_exporter_close(exporter));
    pthread_join(consumer, &count);
    assert_int_equal((uintptr_t)count, 102);
    assert_ok(cudalink_importer_close(importer));
  }
}

/* A full run with sleepers on both sides, no frame lost. */
static void every_frame_over_threads(void **state) {
  (void)state;
  enum { CONSUMERS = 3, FRAMES = 3000 };
  cudalink_importer consumers[CONSUMERS];
  pthread_t threads[CONSUMERS];
  test_open(&exporter, .slots = 3, .max_slots = 8, .hold_limit = FOREVER);
  for (int c = 0; c < CONSUMERS; c++) {
    test_join(&consumers[c], .policy = CUDALINK_POLICY_EVERY);
    assert_int_equal(pthread_create(&threads[c], NULL, take_until_end, &consumers[c]), 0);
  }
  for (int i = 0; i < FRAMES; i++)
    test_send(exporter);
  assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  for (int c = 0; c < CONSUMERS; c++) {
    void *count;
    pthread_join(threads[c], &count);
    assert_int_equal((uintptr_t)count, FRAMES);
    assert_int_equal(test_got(consumers[c]).missed, 0);
    assert_ok(cudalink_importer_close(consumers[c]));
  }
}

static const struct CMUnitTest tests[] = {
    test_case(latest_skips_and_counts),
    test_case(latest_starts_with_the_newest),
    test_case(abandoned_numbers_are_not_missed),
    test_case(in_order_takes_what_is_left),
    test_case(in_order_begins_where_it_joined),
    test_case(every_frame_makes_the_producer_wait),
    test_case(every_frame_skips_what_was_abandoned),
    test_case(abandoning_never_blocks),
    test_case(a_place_is_lost_after_hold_limit),
    test_case(every_frame_with_a_frame_held),
    test_case(two_want_every_frame),
    test_case(a_leaver_gives_its_place_up),
    test_case(a_leaver_with_a_frame_gives_its_place_up),
    test_case(wait_taken_waits_for_every_frame),
    test_case(begin_and_wait_taken_together),
    test_case(every_frame_over_threads),
};
test_main(tests)
