/* SPDX-License-Identifier: MIT
 *
 * Ends: of the producer, of a consumer, in any order, from any thread; what is told, and how often.
 */
#include "link_test.h"

#include <sys/resource.h>

static cudalink_exporter exporter;
static cudalink_importer importer;

static int acquire(int64_t timeout) {
  cudalink_frame frame;
  int status = cudalink_importer_acquire(importer, COMPLETE, timeout, &frame);
  if (status == CUDALINK_OK) test_release(&frame);
  return status;
}

static void ended_is_told_once(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  assert_ok(acquire(FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
  assert_said("closed the channel");
  assert_status(CUDALINK_ERROR_TIMEOUT, acquire(0));
  assert_status(CUDALINK_ERROR_TIMEOUT, acquire(SHORT));
  assert_int_equal(test_got(importer).connection, CUDALINK_CONNECTION_SEARCHING);
  assert_ok(cudalink_importer_close(importer));
}

static void the_next_producer_is_found(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer);
  for (uint32_t session = 1; session <= 20; session++) {
    test_send(exporter);
    cudalink_frame frame = test_take(importer);
    assert_int_equal(frame.session, session);
    assert_int_equal(frame.sequence, 1);
    assert_int_equal(frame.missed, 0);
    test_release(&frame);
    assert_ok(cudalink_exporter_close(exporter));
    test_open(&exporter, .slot_bytes = BYTES + session);
    UNTIL(acquire(0) == CUDALINK_ERROR_ENDED);
    UNTIL(test_sent(exporter).consumers == 1);
  }
  UNTIL(test_got(importer).sessions == 21);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Three producers come and go while nobody asks: the last two ends are told, all sessions are counted. */
static void of_many_ends_the_last_two_are_told(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer);
  for (uint32_t session = 1; session <= 3; session++) {
    UNTIL(test_got(importer).sessions == session);
    assert_ok(cudalink_exporter_close(exporter));
    UNTIL(test_got(importer).connection != CUDALINK_CONNECTION_JOINED);
    test_open(&exporter);
  }
  test_send(exporter);
  assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
  assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
  cudalink_frame frame = test_take(importer);
  assert_int_equal(frame.session, 4);
  test_release(&frame);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* With `once` it stays with its first producer, and says so again and again. */
static void once_is_once(void **state) {
  (void)state;
  assert_ok(
      cudalink_importer_open(&importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
                                                                  .name = "channel", .once = 1}));
  assert_status(CUDALINK_ERROR_NOT_FOUND, acquire(0));
  assert_status(CUDALINK_ERROR_NOT_FOUND, acquire(MILLISECOND));
  test_open(&exporter);
  test_send(exporter);
  assert_ok(acquire(FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  for (int i = 0; i < 3; i++)
    assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
  assert_int_equal(test_got(importer).connection, CUDALINK_CONNECTION_OVER);
  test_open(&exporter);
  test_send(exporter);
  for (int i = 0; i < 3; i++)
    assert_status(CUDALINK_ERROR_ENDED, acquire(SHORT));
  assert_int_equal(test_sent(exporter).consumers, 0);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* What a producer published before it closed is read first. */
static void frames_are_drained_before_the_end(void **state) {
  (void)state;
  static const unsigned left[] = {1, 1, 5, 5}; /* latest, ready_only: one; in order, every: all */
  for (int policy = CUDALINK_POLICY_LATEST; policy <= CUDALINK_POLICY_EVERY; policy++) {
    test_open(&exporter, .slots = 8);
    test_join(&importer, .policy = (cudalink_policy)policy);
    test_send(exporter);
    assert_ok(acquire(FOREVER));
    for (int i = 0; i < 5; i++)
      test_send(exporter);
    assert_ok(cudalink_exporter_close(exporter));
    unsigned count = 0;
    uint64_t last = 0;
    for (;;) {
      cudalink_frame frame;
      int status = cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame);
      if (status == CUDALINK_ERROR_ENDED) break;
      assert_ok(status);
      assert_painted(&frame, frame.sequence);
      last = frame.sequence;
      test_release(&frame);
      count++;
    }
    assert_int_equal(count, left[policy]);
    assert_int_equal(last, 6);
    assert_int_equal(test_got(importer).received, count + 1);
    assert_int_equal(test_got(importer).missed, 5 - count);
    assert_ok(cudalink_importer_close(importer));
  }
}

/* The newest frame is older than the consumer, who takes it all the same, also behind the end. */
static void a_frame_from_before_the_join_is_drained_too(void **state) {
  (void)state;
  test_open(&exporter);
  test_send(exporter);
  test_join(&importer);
  assert_ok(cudalink_exporter_close(exporter));
  UNTIL(test_got(importer).connection != CUDALINK_CONNECTION_JOINED);
  assert_ok(acquire(0));
  assert_status(CUDALINK_ERROR_ENDED, acquire(0));
  assert_ok(cudalink_importer_close(importer));
}

/* The same for a consumer that had not even mapped the memory when the producer went. */
static void unmapped_frames_are_drained_too(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    test_open(&exporter);
    test_join(&importer);
    uint64_t sequence = test_send(exporter);
    test_settle(); /* it has been told of the memory */
    assert_ok(cudalink_exporter_close(exporter));
    assert_int_equal(test_pass(importer), sequence);
    assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
    assert_ok(cudalink_importer_close(importer));
  }
}

/* New memory, and the end right behind its first frame: consumers are told of both. Mostly the service
 * thread has told of the memory before the close comes, so there are many rounds. */
static void new_memory_is_told_before_the_end(void **state) {
  (void)state;
  for (int round = 0; round < 500; round++) {
    test_open(&exporter);
    test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER);
    uint64_t sequence = test_send_bytes(exporter, 10 * BYTES, COMPLETE);
    assert_ok(cudalink_exporter_close(exporter));
    assert_int_equal(test_pass(importer), sequence);
    assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
    assert_int_equal(test_got(importer).missed, 0);
    assert_ok(cudalink_importer_close(importer));
  }
}

/* Frames that its producer left behind and that can't be read any more were missed: here their memory
 * can't be mapped, since there are no descriptors left. */
static void unread_frames_are_missed_at_the_end(void **state) {
  (void)state;
  for (int policy = CUDALINK_POLICY_LATEST; policy <= CUDALINK_POLICY_EVERY; policy++)
    for (int got = 0; got < 2; got++) { /* a frame before that? */
      struct rlimit limit, none;
      test_open(&exporter, .slots = 8);
      test_join(&importer, .policy = (cudalink_policy)policy);
      if (got) test_send(exporter);
      if (got) assert_ok(acquire(FOREVER));
      for (int i = 0; i < 3; i++)
        test_send_bytes(exporter, 10 * BYTES, COMPLETE);
      test_abandon(exporter);
      assert_ok(cudalink_exporter_close(exporter));
      UNTIL(test_got(importer).connection != CUDALINK_CONNECTION_JOINED); /* all is told */
      assert_int_equal(test_got(importer).missed, 0); /* they still can be read */
      getrlimit(RLIMIT_NOFILE, &limit);
      none = (struct rlimit){0, limit.rlim_max};
      setrlimit(RLIMIT_NOFILE, &none);
      int status = acquire(FOREVER);
      setrlimit(RLIMIT_NOFILE, &limit);
      assert_status(CUDALINK_ERROR_ENDED, status);
      assert_int_equal(test_got(importer).missed, 3);
      assert_int_equal(test_got(importer).received, got);
      assert_ok(cudalink_importer_close(importer));
      test_settle();
    }
}

/* A frame in hand stays whole, whoever closes; and the program may give it back at any time. */
static void frames_outlive_everybody(void **state) {
  (void)state;
  for (int order = 0; order < 6; order++) {
    test_open(&exporter);
    test_join(&importer, .hold = 2, .policy = CUDALINK_POLICY_IN_ORDER);
    test_send(exporter);
    cudalink_frame frame = test_take(importer);
    test_send(exporter);
    cudalink_frame second = test_take(importer);
    int steps[3] = {order / 2, (order / 2 + 1 + order % 2) % 3, (order / 2 + 2 - order % 2) % 3};
    for (int s = 0; s < 3; s++) {
      if (steps[s] == 0) assert_ok(cudalink_exporter_close(exporter));
      if (steps[s] == 1) assert_ok(cudalink_importer_close(importer));
      if (steps[s] == 2) test_release(&second);
      test_settle();
      assert_painted(&frame, 1);
      if (steps[s] != 2 && second.lease) assert_painted(&second, 2);
    }
    uint32_t flags;
    unsigned char bytes[BYTES];
    assert_ok(cudalink_frame_flags(&frame, &flags));
    assert_int_equal(flags, 0);
    assert_ok(cudalink_frame_to_host(&frame, bytes, sizeof bytes));
    cudalink_frame copy = frame;
    test_release(&frame);
    assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_release(&copy, COMPLETE));
    assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_flags(&copy, &flags));
    assert_status(CUDALINK_ERROR_CLOSED, cudalink_exporter_close(exporter));
    assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_close(importer));
  }
}

static void held_counts_frames_of_past_producers(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer, .hold = 2);
  test_send(exporter);
  cudalink_frame frame = test_take(importer);
  assert_ok(cudalink_exporter_close(exporter));
  assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
  assert_int_equal(test_got(importer).held, 1);
  test_open(&exporter);
  UNTIL(test_sent(exporter).consumers == 1);
  test_send(exporter);
  cudalink_frame second = test_take(importer);
  assert_int_equal(second.session, 2);
  assert_painted(&frame, 1);
  assert_int_equal(test_got(importer).held, 2);
  test_release(&frame);
  assert_int_equal(test_got(importer).held, 1);
  test_release(&second);
  assert_int_equal(test_got(importer).held, 0);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* After close every call answers CLOSED, and harms nobody. */
static void closed_handles_are_safe(void **state) {
  (void)state;
  cudalink_slot slot = {0};
  cudalink_frame frame;
  cudalink_description description = test_bytes(BYTES);
  cudalink_exporter_statistics sent = {.size = sizeof sent};
  cudalink_importer_statistics got = {.size = sizeof got};
  int descriptor;
  test_open(&exporter);
  test_join(&importer);
  cudalink_exporter old = exporter, none = {0}, wild = {0xfffff123};
  cudalink_importer past = importer, nothing = {0}, anything = {0xfffff123};
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
  test_settle();
  for (int again = 0; again < 2; again++) {
    const cudalink_exporter exporters[] = {old, none, wild};
    const cudalink_importer importers[] = {past, nothing, anything};
    for (int i = 0; i < 3; i++) {
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_exporter_begin(exporters[i], &description, 0, &slot));
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_exporter_publish(exporters[i], &slot, COMPLETE));
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_exporter_publish_invalid(exporters[i], &slot, ""));
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_exporter_abandon(exporters[i], &slot, COMPLETE));
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_exporter_send(exporters[i], &description, &slot, NULL, COMPLETE, 0));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_exporter_wait_consumers(exporters[i], 0, 0));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_exporter_wait_taken(exporters[i], 0));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_exporter_get_statistics(exporters[i], &sent));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_exporter_close(exporters[i]));
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_importer_acquire(importers[i], COMPLETE, 0, &frame));
      assert_status(CUDALINK_ERROR_CLOSED,
                    cudalink_importer_wait_next(importers[i], COMPLETE, 0, &frame));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_arm(importers[i]));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_descriptor(importers[i], &descriptor));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_get_statistics(importers[i], &got));
      assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_close(importers[i]));
    }
    if (again) break;
    test_open(&exporter); /* the same records, other handles */
    test_join(&importer);
  }
  test_send(exporter);
  assert_ok(acquire(FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
}

/* ---- a call that waits in another thread ------------------------------------------------------------- */

static void *acquire_forever(void *context) {
  (void)context;
  int status;
  do
    status = acquire(FOREVER);
  while (status == CUDALINK_OK || status == CUDALINK_ERROR_ENDED);
  return (void *)(intptr_t)status;
}
static int joined(pthread_t thread) {
  void *status;
  pthread_join(thread, &status);
  return (int)(intptr_t)status;
}
static void close_ends_waiting_acquires(void **state) {
  (void)state;
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  for (int round = 0; round < 40; round++) {
    bool producer = round % 2, sleeping = round % 4 < 2;
    if (producer) test_open(&exporter);
    assert_ok(cudalink_importer_open(
        &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"}));
    if (producer) UNTIL(test_sent(exporter).consumers == 1);
    for (int t = 0; t < THREADS; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, acquire_forever, NULL), 0);
    if (producer && sleeping) UNTIL(test_got(importer).waits == THREADS);
    assert_ok(cudalink_importer_close(importer));
    for (int t = 0; t < THREADS; t++)
      assert_status(CUDALINK_ERROR_CLOSED, joined(threads[t]));
    if (producer) assert_ok(cudalink_exporter_close(exporter));
  }
}

static void *begin_forever(void *context) {
  cudalink_slot slot;
  (void)context;
  return (void *)(intptr_t)test_try_begin(exporter, FOREVER, &slot);
}
static void *wait_consumers_forever(void *context) {
  (void)context;
  return (void *)(intptr_t)cudalink_exporter_wait_consumers(exporter, 3, FOREVER);
}
static void *wait_taken_forever(void *context) {
  (void)context;
  return (void *)(intptr_t)cudalink_exporter_wait_taken(exporter, FOREVER);
}
static void close_ends_waiting_producers(void **state) {
  (void)state;
  cudalink_slot slot;
  pthread_t begin, consumers, taken;
  for (int round = 0; round < 40; round++) {
    test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
    test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
    while (test_try_begin(exporter, 0, &slot) == CUDALINK_OK)
      assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    uint64_t waits = test_sent(exporter).waits;
    assert_int_equal(pthread_create(&begin, NULL, begin_forever, NULL), 0);
    assert_int_equal(pthread_create(&consumers, NULL, wait_consumers_forever, NULL), 0);
    assert_int_equal(pthread_create(&taken, NULL, wait_taken_forever, NULL), 0);
    if (round % 2) UNTIL(test_sent(exporter).waits > waits);
    assert_ok(cudalink_exporter_close(exporter));
    assert_status(CUDALINK_ERROR_CLOSED, joined(begin));
    assert_status(CUDALINK_ERROR_CLOSED, joined(consumers));
    assert_status(CUDALINK_ERROR_CLOSED, joined(taken));
    assert_ok(cudalink_importer_close(importer));
  }
}

/* The end of the producer wakes whoever sleeps, without a frame. */
static void the_end_wakes_sleepers(void **state) {
  (void)state;
  enum { THREADS = 3 };
  pthread_t threads[THREADS];
  for (int round = 0; round < 20; round++) {
    test_open(&exporter);
    test_join(&importer, .once = 1);
    for (int t = 0; t < THREADS; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, acquire_forever, NULL), 0);
    if (round % 2) UNTIL(test_got(importer).waits == THREADS);
    assert_ok(cudalink_exporter_close(exporter));
    /* With `once` ENDED stays: each thread loops on it until the importer is closed. */
    UNTIL(test_got(importer).connection == CUDALINK_CONNECTION_OVER);
    assert_ok(cudalink_importer_close(importer));
    for (int t = 0; t < THREADS; t++)
      assert_status(CUDALINK_ERROR_CLOSED, joined(threads[t]));
  }
}

/* A thread that spins in acquire stops nobody: not the move to new memory, not the close. */
static void *acquire_spinning(void *context) {
  cudalink_frame *frame = context;
  return (void *)(intptr_t)cudalink_importer_acquire(importer, COMPLETE, FOREVER, frame);
}
static void a_spinning_acquire_stops_nobody(void **state) {
  (void)state;
  pthread_t thread;
  cudalink_frame frame;
  test_open(&exporter);
  test_join(&importer, .spin = UINT64_C(3600000000000));
  for (uint64_t i = 1; i <= 5; i++) {
    assert_int_equal(pthread_create(&thread, NULL, acquire_spinning, &frame), 0);
    uint64_t sequence = test_send_bytes(exporter, BYTES + i * 1000, COMPLETE);
    assert_ok(joined(thread));
    assert_int_equal(frame.sequence, sequence);
    assert_painted(&frame, sequence);
    test_release(&frame);
  }
  assert_int_equal(pthread_create(&thread, NULL, acquire_spinning, &frame), 0);
  assert_int_equal(test_got(importer).received, 5);
  assert_ok(cudalink_exporter_close(exporter));
  assert_status(CUDALINK_ERROR_ENDED, joined(thread));
  assert_int_equal(pthread_create(&thread, NULL, acquire_spinning, &frame), 0);
  assert_ok(cudalink_importer_close(importer));
  assert_status(CUDALINK_ERROR_CLOSED, joined(thread));
}

static void a_begun_frame_is_abandoned_by_close(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter);
  test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER);
  uint64_t last = test_send(exporter);
  assert_ok(test_try_begin(exporter, 0, &slot));
  assert_ok(cudalink_exporter_close(exporter));
  assert_int_equal(test_pass(importer), last);
  assert_status(CUDALINK_ERROR_ENDED, acquire(FOREVER));
  assert_ok(cudalink_importer_close(importer));
}

static const struct CMUnitTest tests[] = {
    test_case(ended_is_told_once),
    test_case(the_next_producer_is_found),
    test_case(of_many_ends_the_last_two_are_told),
    test_case(once_is_once),
    test_case(frames_are_drained_before_the_end),
    test_case(a_frame_from_before_the_join_is_drained_too),
    test_case(unmapped_frames_are_drained_too),
    test_case(new_memory_is_told_before_the_end),
    test_case(unread_frames_are_missed_at_the_end),
    test_case(frames_outlive_everybody),
    test_case(held_counts_frames_of_past_producers),
    test_case(closed_handles_are_safe),
    test_case(close_ends_waiting_acquires),
    test_case(close_ends_waiting_producers),
    test_case(the_end_wakes_sleepers),
    test_case(a_spinning_acquire_stops_nobody),
    test_case(a_begun_frame_is_abandoned_by_close),
};
test_main(tests)
