/* SPDX-License-Identifier: MIT
 *
 * wait_next: a lease on the frame that the producer works on now.
 */
#include "stream_pair.h"

/* Two frames: the first is taken, from the second on mirrors are written and the next is announced. */
static void warm_up(void) {
  test_send(exporter);
  test_pass(importer);
  test_send(exporter);
  test_pass(importer);
}

/* Streams, both ends, warmed up. */
#define begin_warm(slot_count, ...)                                                                \
  do {                                                                                             \
    begin();                                                                                       \
    test_open(&exporter, .slots = slot_count);                                                     \
    test_join(&importer, .gpu_wait = 1, __VA_ARGS__);                                              \
    warm_up();                                                                                     \
  } while (0)

static int wait_next(int64_t timeout, cudalink_frame *frame) {
  return cudalink_importer_wait_next(importer, CUDALINK_STREAM_HANDLE(other), timeout, frame);
}

static void the_next_frame_is_known_and_pending(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2);
  for (int round = 0; round < 50; round++) {
    assert_ok(wait_next(FOREVER, &frame));
    assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING);
    assert_int_equal(flags_of(&frame), CUDALINK_FRAME_PENDING);
    uint64_t sequence = test_send(exporter);
    assert_int_equal(frame.sequence, sequence);
    assert_ok(cudalink_host_stream_synchronize(other));
    assert_int_equal(flags_of(&frame), 0);
    assert_int_equal(frame.description.plane_count, 1);
    assert_painted(&frame, sequence);
    for (int i = 0; i < 3; i++)
      test_send(exporter); /* it is a lease like any other */
    assert_painted(&frame, sequence);
    test_release(&frame);
    UNTIL(test_got(importer).held == 0);
  }
  end();
}

static void one_pending_frame_at_a_time(void **state) {
  (void)state;
  cudalink_frame frame, second;
  begin_warm(6, .hold = 3);
  assert_ok(wait_next(0, &frame));
  assert_status(CUDALINK_ERROR_BUSY, wait_next(0, &second));
  assert_status(CUDALINK_ERROR_TIMEOUT, wait_next(MILLISECOND, &second));
  test_send(exporter);
  assert_ok(wait_next(FOREVER, &second));
  assert_int_equal(second.sequence, frame.sequence + 1);
  test_release(&frame);
  assert_int_equal(cudalink_frame_release(&second, COMPLETE), CUDALINK_OK); /* given up */
  end();
}

static void *wait_for_ever(void *frame) { return (void *)(intptr_t)wait_next(FOREVER, frame); }

/* All leases are being given back by a stream, whose words ring nobody. Whether the stream or the call comes
 * first is left to chance. */
static void it_waits_for_releases_that_are_left_to_a_stream(void **state) {
  (void)state;
  struct test_gate gate = {0};
  cudalink_frame frame;
  begin_warm(6, .hold = 1);
  for (int round = 0; round < 50; round++) {
    test_gate_push(&gate, stream);
    for (int i = 0; i < 2; i++) {
      test_send(exporter);
      frame = test_take(importer);
      assert_ok(cudalink_frame_release(&frame, CUDALINK_STREAM_HANDLE(stream)));
    }
    int status = wait_next(round % 2 ? 0 : MILLISECOND, &frame);
    assert_int_equal(status, CUDALINK_ERROR_TIMEOUT);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &frame), 0);
    for (int i = 0; i < round * 20; i++)
      sched_yield();
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ok((int)(intptr_t)result);
    assert_int_equal(frame.sequence, test_send(exporter));
    assert_ok(cudalink_host_stream_synchronize(other));
    assert_painted(&frame, frame.sequence);
    test_release(&frame);
  }
  end();
}

static void an_announced_frame_may_be_abandoned(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2);
  assert_ok(wait_next(FOREVER, &frame));
  uint64_t sequence = test_abandon(exporter);
  assert_int_equal(frame.sequence, sequence);
  assert_ok(cudalink_host_stream_synchronize(other)); /* it does not wait for ever */
  assert_int_equal(flags_of(&frame), 0);
  assert_status(CUDALINK_ERROR_SKIPPED, cudalink_frame_release(&frame, COMPLETE));
  assert_int_equal(frame.lease, 0);
  uint64_t next = test_send(exporter);
  assert_true(next > sequence);
  assert_int_equal(test_pass(importer), next);
  /* Told so however late: the producer has gone on by far more than it remembers. */
  assert_ok(wait_next(FOREVER, &frame));
  test_abandon(exporter);
  for (int i = 0; i < 200; i++)
    test_send(exporter);
  assert_int_equal(flags_of(&frame), 0);
  assert_status(CUDALINK_ERROR_SKIPPED, cudalink_frame_release(&frame, COMPLETE));
  end();
}

/* The next frame needs larger memory: what was announced is void. */
static void a_new_generation_skips_the_announced_frame(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2);
  assert_ok(wait_next(FOREVER, &frame));
  uint64_t sequence = test_send_bytes(exporter, 50000, COMPLETE);
  assert_true(sequence > frame.sequence);
  assert_ok(cudalink_host_stream_synchronize(other));
  assert_status(CUDALINK_ERROR_SKIPPED, cudalink_frame_release(&frame, COMPLETE));
  assert_int_equal(test_pass(importer), sequence);
  end();
}

/* A pending frame that was published counts as complete also when its slot number is long in use by
 * a later generation. */
static void ready_stays_ready_across_generations(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2);
  assert_ok(wait_next(FOREVER, &frame));
  uint64_t sequence = test_send(exporter);
  assert_int_equal(frame.sequence, sequence);
  for (int i = 0; i < 20; i++)
    test_send_bytes(exporter, 50000, COMPLETE);
  assert_int_equal(flags_of(&frame), 0);
  assert_painted(&frame, sequence);
  test_release(&frame);
  end();
}

static void close_of_the_producer_ends_the_wait(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2, .gpu_wait_limit = FOREVER);
  assert_ok(wait_next(FOREVER, &frame));
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_host_stream_synchronize(other));
  int status = cudalink_frame_release(&frame, COMPLETE);
  assert_true(status == CUDALINK_ERROR_SKIPPED || status == CUDALINK_ERROR_LOST);
  assert_ok(cudalink_importer_close(importer));
  cudalink_host_stream_destroy(stream);
  cudalink_host_stream_destroy(other);
}

static void it_is_lost_after_the_limit(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2, .gpu_wait_limit = SHORT);
  assert_ok(wait_next(FOREVER, &frame));
  assert_ok(cudalink_host_stream_synchronize(other)); /* nobody publishes */
  assert_int_equal(flags_of(&frame), CUDALINK_FRAME_LOST);
  assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
  assert_int_equal(test_got(importer).lost, 1);
  uint64_t sequence = test_send(exporter);
  (void)sequence;
  end();
}

static void what_makes_no_sense_is_refused(void **state) {
  (void)state;
  cudalink_frame frame;
  cudalink_importer plain;
  begin();
  test_open(&exporter, .slots = 4);
  test_join(&importer, .gpu_wait = 1);
  test_join(&plain);
  assert_status(CUDALINK_ERROR_STREAM, cudalink_importer_wait_next(importer, COMPLETE, 0, &frame));
  assert_said("COMPLETE");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_importer_wait_next(plain, CUDALINK_STREAM_HANDLE(other), 0, &frame));
  assert_said("gpu_wait");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_importer_wait_next(importer, CUDALINK_STREAM_HANDLE(other), 0, NULL));
  assert_status(CUDALINK_ERROR_BUSY, wait_next(0, &frame)); /* nothing was announced yet */
  assert_ok(cudalink_importer_close(plain));
  end();
}

/* Slots grow for holders although a frame is announced after every publish. */
static void slots_grow_beside_announcements(void **state) {
  (void)state;
  cudalink_importer holder;
  cudalink_frame held[3];
  begin();
  test_open(&exporter, .slots = 3, .hold_limit = FOREVER);
  test_join(&importer, .gpu_wait = 1);
  warm_up();
  test_join(&holder, .hold = 3, .policy = CUDALINK_POLICY_IN_ORDER);
  for (int i = 0; i < 3; i++) {
    uint64_t sequence = test_send(exporter);
    do {
      held[i] = test_take(holder);
      if (held[i].sequence < sequence) test_release(&held[i]);
    } while (held[i].sequence < sequence);
  }
  for (int i = 0; i < 20; i++) {
    uint64_t sequence = test_send(exporter);
    assert_int_equal(test_pass(importer), sequence);
  }
  for (int i = 0; i < 3; i++)
    test_release(&held[i]);
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_ok(cudalink_importer_close(holder));
  end();
}

/* The producer paints by a stream, and wait_next's stream reads behind it: always whole. */
struct reader {
  cudalink_frame frame;
  _Atomic int result;
};
static void read_frame(void *context) {
  struct reader *reader = context;
  const unsigned char *data = reader->frame.data;
  int whole = 1;
  for (uint64_t i = 0; i < BYTES; i++)
    if (data[i] != test_byte(reader->frame.sequence, i)) whole = 2;
  atomic_store(&reader->result, whole);
}
static void paint_slot(void *context) {
  const cudalink_slot *slot = context;
  test_paint(slot->data, BYTES, slot->sequence);
}
static void streams_on_both_ends(void **state) {
  (void)state;
  enum { ROUNDS = 500 };
  static cudalink_slot slots[ROUNDS];
  static struct reader readers[ROUNDS];
  begin_warm(6, .hold = 2);
  int got = 0;
  for (int i = 0; i < ROUNDS; i++) {
    bool taken = wait_next(0, &readers[i].frame) == CUDALINK_OK;
    assert_ok(test_try_begin(exporter, FOREVER, &slots[i]));
    assert_ok(cudalink_host_stream_push(stream, paint_slot, &slots[i]));
    assert_ok(cudalink_exporter_publish(exporter, &slots[i], CUDALINK_STREAM_HANDLE(stream)));
    atomic_store(&readers[i].result, taken ? 0 : 1);
    if (!taken) continue;
    assert_int_equal(readers[i].frame.sequence, slots[i].sequence);
    got++;
    assert_ok(cudalink_host_stream_push(other, read_frame, &readers[i]));
    assert_ok(cudalink_frame_release(&readers[i].frame, CUDALINK_STREAM_HANDLE(other)));
  }
  assert_ok(cudalink_host_stream_synchronize(other));
  for (int i = 0; i < ROUNDS; i++)
    assert_int_equal(atomic_load(&readers[i].result), 1);
  assert_true(got > 0);
  end();
}

/* The end is told behind what was published before it, in the order of the ends. */
static void what_is_left_comes_before_the_end(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm(4, .hold = 2);
  uint64_t left = test_send(exporter);
  assert_ok(cudalink_exporter_close(exporter));
  UNTIL(test_got(importer).connection != CUDALINK_CONNECTION_JOINED);
  assert_ok(wait_next(0, &frame));
  assert_int_equal(frame.sequence, left);
  assert_int_equal(frame.flags, 0);
  assert_painted(&frame, left);
  test_release(&frame);
  assert_status(CUDALINK_ERROR_ENDED, wait_next(0, &frame));
  assert_status(CUDALINK_ERROR_TIMEOUT, wait_next(0, &frame));
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  for (uint32_t session = 2; session <= 3; session++) { /* nobody hears of the first end in time */
    test_open(&exporter);
    UNTIL(test_got(importer).sessions == session);
    assert_ok(cudalink_exporter_close(exporter));
    UNTIL(test_got(importer).connection != CUDALINK_CONNECTION_JOINED);
  }
  assert_status(CUDALINK_ERROR_ENDED, wait_next(0, &frame));
  assert_status(CUDALINK_ERROR_ENDED, wait_next(0, &frame));
  assert_status(CUDALINK_ERROR_TIMEOUT, wait_next(0, &frame));
  test_open(&exporter);
  end();
}

/* Whoever asks for nothing but the next frame is told that its frames were taken back, and joins again. */
static void an_eviction_is_told(void **state) {
  (void)state;
  cudalink_importer others[2];
  cudalink_frame held[3], frame;
  cudalink_slot slot;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  test_join(&importer, .gpu_wait = 1);
  for (int i = 0; i < 2; i++)
    test_join(&others[i], .name = "channel");
  for (int i = 0; i < 3; i++) {
    test_send(exporter);
    held[i] = test_take(i ? others[i - 1] : importer);
  }
  assert_ok(test_try_begin(exporter, FOREVER, &slot)); /* takes the frames of the first one back */
  assert_true(test_sent(exporter).evicted >= 1);
  assert_status(CUDALINK_ERROR_EVICTED, wait_next(0, &frame));
  assert_int_equal(test_got(importer).evictions, 1);
  UNTIL(test_got(importer).sessions == 2);
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  for (int i = 0; i < 3; i++)
    test_release(&held[i]);
  for (int i = 0; i < 2; i++)
    assert_ok(cudalink_importer_close(others[i]));
  end();
}

static const struct CMUnitTest tests[] = {
    test_case(the_next_frame_is_known_and_pending),
    test_case(one_pending_frame_at_a_time),
    test_case(it_waits_for_releases_that_are_left_to_a_stream),
    test_case(an_announced_frame_may_be_abandoned),
    test_case(a_new_generation_skips_the_announced_frame),
    test_case(ready_stays_ready_across_generations),
    test_case(close_of_the_producer_ends_the_wait),
    test_case(it_is_lost_after_the_limit),
    test_case(what_makes_no_sense_is_refused),
    test_case(slots_grow_beside_announcements),
    test_case(streams_on_both_ends),
    test_case(what_is_left_comes_before_the_end),
    test_case(an_eviction_is_told),
};
test_main(tests)
