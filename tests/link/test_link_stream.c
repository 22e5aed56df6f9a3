/* SPDX-License-Identifier: MIT
 *
 * Work in stream order, with host streams: a frame published on a stream is complete when the stream
 * has come so far, and a slot released on a stream is free no earlier. A gate in a stream says when.
 */
#include "painted_stream.h"

static uint64_t send_on(cudalink_host_stream *on) {
  return test_send_bytes(exporter, BYTES, CUDALINK_STREAM_HANDLE(on));
}

/* Both ends as they are by default, warmed up. */
static void begin_warm(void) {
  begin();
  test_open(&exporter);
  test_join(&importer);
  warm_up();
}

static void a_frame_is_not_there_before_its_stream(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_warm();
  test_gate_push(&gate, stream);
  uint64_t sequence = send_on(stream);
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  assert_said("not complete");
  assert_status(CUDALINK_ERROR_TIMEOUT,
                cudalink_importer_acquire(importer, COMPLETE, MILLISECOND, &frame));
  assert_int_equal(test_got(importer).held, 0);
  test_gate_open(&gate);
  assert_int_equal(test_pass(importer), sequence); /* it is offered again, and not missed */
  assert_int_equal(test_got(importer).missed, 0);
  assert_int_equal(test_got(importer).received, 2);
  end();
}

static void every_policy_offers_an_unfinished_frame_again(void **state) {
  (void)state;
  for (int policy = CUDALINK_POLICY_LATEST; policy <= CUDALINK_POLICY_SHARED; policy++) {
    cudalink_frame frame;
    begin();
    test_open(&exporter);
    test_join(&importer, .policy = (cudalink_policy)policy,
              .group = policy == CUDALINK_POLICY_SHARED ? "group" : NULL);
    warm_up();
    for (int i = 0; i < 20; i++) {
      test_gate_push(&gate, stream);
      uint64_t sequence = send_on(stream);
      for (int j = 0; j < 3; j++)
        assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
      test_gate_open(&gate);
      frame = test_take(importer);
      assert_int_equal(frame.sequence, sequence);
      assert_int_equal(frame.flags, 0);
      assert_int_equal(frame.missed, 0);
      test_release(&frame);
    }
    end();
  }
}

static void ready_only_takes_the_newest_finished(void **state) {
  (void)state;
  cudalink_frame frame;
  begin();
  test_open(&exporter, .slots = 5);
  test_join(&importer, .policy = CUDALINK_POLICY_READY_ONLY);
  warm_up();
  uint64_t finished = test_send(exporter);
  test_gate_push(&gate, stream);
  uint64_t first = send_on(stream), second = send_on(stream);
  frame = test_take(importer);
  assert_int_equal(frame.sequence, finished);
  test_release(&frame);
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  test_gate_open(&gate);
  assert_ok(cudalink_host_stream_synchronize(stream));
  frame = test_take(importer); /* without a new publish */
  assert_int_equal(frame.sequence, second);
  assert_int_equal(frame.missed, 1);
  test_release(&frame);
  (void)first;
  end();
}

static void *take_one(void *context) {
  cudalink_frame *frame = context;
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, frame));
  return NULL;
}

/* ready_only in a sleeping consumer: nobody rings when a GPU is done, so it has to look by itself. */
static void ready_only_wakes_without_a_bell(void **state) {
  (void)state;
  cudalink_frame frame;
  pthread_t consumer;
  begin();
  test_open(&exporter);
  test_join(&importer, .policy = CUDALINK_POLICY_READY_ONLY);
  warm_up();
  uint64_t wakes = test_got(importer).wakes;
  test_gate_push(&gate, stream);
  uint64_t sequence = send_on(stream);
  assert_int_equal(pthread_create(&consumer, NULL, take_one, &frame), 0);
  UNTIL(test_got(importer).wakes > wakes + 3);
  test_gate_open(&gate);
  pthread_join(consumer, NULL);
  assert_int_equal(frame.sequence, sequence);
  test_release(&frame);
  end();
}

/* The producer may not use a slot again before its own work on it is done. */
static void an_unfinished_slot_is_not_lent(void **state) {
  (void)state;
  cudalink_slot slot;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3);
  test_join(&importer);
  test_gate_push(&gate, stream);
  for (int i = 0; i < 3; i++)
    send_on(stream);
  assert_status(CUDALINK_ERROR_BUSY, test_try_begin(exporter, 0, &slot));
  assert_status(CUDALINK_ERROR_BUSY, test_try_begin(exporter, MILLISECOND, &slot));
  assert_int_equal(test_sent(exporter).evicted, 0);
  test_gate_open(&gate);
  assert_ok(test_try_begin(exporter, FOREVER, &slot)); /* nobody tells: it looks */
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  end();
}

/* An abandoned slot that a stream still writes to. */
static void an_abandoned_slot_waits_for_its_stream(void **state) {
  (void)state;
  cudalink_slot slot;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3);
  test_join(&importer);
  test_gate_push(&gate, stream);
  for (int i = 0; i < 3; i++) {
    int status = test_try_begin(exporter, 0, &slot);
    if (status < 0) break;
    assert_ok(cudalink_exporter_abandon(exporter, &slot, CUDALINK_STREAM_HANDLE(stream)));
  }
  assert_status(CUDALINK_ERROR_BUSY, test_try_begin(exporter, 0, &slot));
  test_gate_open(&gate);
  assert_ok(test_try_begin(exporter, FOREVER, &slot));
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  end();
}

/* A release on a stream: until it has come so far, the frame is not written to. */
static void a_release_waits_for_its_stream(void **state) {
  (void)state;
  cudalink_slot slot;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer);
  warm_up();
  for (int round = 0; round < 50; round++) {
    test_send(exporter);
    cudalink_frame frame = test_take(importer);
    cudalink_frame kept = frame;
    test_gate_push(&gate, stream);
    assert_ok(cudalink_frame_release(&frame, CUDALINK_STREAM_HANDLE(stream)));
    assert_int_equal(frame.lease, 0);
    assert_int_equal(test_got(importer).held, 0);
    for (int i = 0; i < 4; i++) { /* the other two slots go round */
      assert_ok(test_try_begin(exporter, FOREVER, &slot));
      assert_int_not_equal(slot.index, kept.slot);
      test_paint(slot.data, BYTES, slot.sequence);
      assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    }
    assert_painted(&kept, kept.sequence);
    test_gate_open(&gate);
  }
  end();
}

/* A producer that sleeps for a slot that a stream gives back: nobody can tell it. */
static void *begin_one(void *context) {
  cudalink_slot *slot = context;
  assert_ok(test_try_begin(exporter, FOREVER, slot));
  return NULL;
}
static void a_begin_sees_a_release_by_a_stream(void **state) {
  (void)state;
  cudalink_slot slot;
  pthread_t producer;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer, .hold = 2);
  warm_up();
  cudalink_importer second;
  test_join(&second);
  cudalink_frame frames[2];
  test_send(exporter);
  frames[0] = test_take(importer);
  test_send(exporter);
  frames[1] = test_take(second);
  test_send(exporter);
  uint64_t waits = test_sent(exporter).waits;
  assert_int_equal(pthread_create(&producer, NULL, begin_one, &slot), 0);
  UNTIL(test_sent(exporter).waits > waits);
  test_gate_push(&gate, stream);
  assert_ok(cudalink_frame_release(&frames[0], CUDALINK_STREAM_HANDLE(stream)));
  test_gate_open(&gate);
  pthread_join(producer, NULL);
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  test_release(&frames[1]);
  assert_ok(cudalink_importer_close(second));
  end();
}

/* acquire leaves its wait to a stream: work pushed there sees the finished frame. */
static void a_stream_waits_for_the_pixels(void **state) {
  (void)state;
  begin();
  test_open(&exporter);
  test_join(&importer, .gpu_wait = 1);
  warm_up();
  for (int round = 0; round < 50; round++) {
    cudalink_slot slot;
    cudalink_frame frame;
    struct reader reader = {&frame, 0};
    publish_painted_by_stream(&slot);
    assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frame));
    assert_int_equal(frame.sequence, slot.sequence);
    assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING);
    assert_int_equal(flags_of(&frame), CUDALINK_FRAME_PENDING);
    assert_ok(cudalink_host_stream_push(other, read_frame, &reader));
    assert_int_equal(atomic_load(&reader.result), 0);
    test_gate_open(&gate);
    assert_ok(cudalink_host_stream_synchronize(other));
    assert_ok(cudalink_host_stream_synchronize(stream)); /* it has done with `slot` */
    assert_int_equal(atomic_load(&reader.result), 1);
    UNTIL(flags_of(&frame) == 0);
    assert_ok(cudalink_frame_release(&frame, CUDALINK_STREAM_HANDLE(other)));
  }
  assert_int_equal(test_got(importer).lost, 0);
  end();
}

/* A wait that was left to a stream ends after gpu_wait_limit; the frame is LOST, whoever used it is
 * told. The same frame number is complete later all the same: nothing breaks. */
static void a_stream_never_waits_for_ever(void **state) {
  (void)state;
  begin();
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = SHORT);
  warm_up();
  for (int round = 0; round < 3; round++) {
    cudalink_slot slot;
    cudalink_frame frame;
    publish_painted_by_stream(&slot);
    assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frame));
    assert_ok(
        cudalink_host_stream_synchronize(other)); /* the gate is shut: only the limit ends it */
    assert_int_equal(flags_of(&frame), CUDALINK_FRAME_LOST);
    assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
    assert_int_equal(frame.lease, 0);
    assert_int_equal(test_got(importer).lost, round + 1);
    test_gate_open(&gate);
    assert_ok(cudalink_host_stream_synchronize(stream));
  }
  uint64_t sequence = test_send(exporter);
  assert_int_equal(test_pass(importer), sequence);
  end();
}

/* ---- an end is closed while a stream waits ---------------------------------------------------------- */

/* Acquires a frame whose pixels are not complete, with a reader queued behind them. */
static void take_pending(cudalink_slot *slot, cudalink_frame *frame, struct reader *reader) {
  publish_painted_by_stream(slot);
  assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, frame));
  assert_int_equal(frame->flags, CUDALINK_FRAME_PENDING);
  *reader = (struct reader){frame, 0};
  assert_ok(cudalink_host_stream_push(other, read_frame, reader));
}

/* Returns when the service thread's timers have looked at all waits that were there before: they have
 * looked at one that was noted now, whose limit passed. The gate in `stream` is shut. */
static void let_timers_look(void) {
  cudalink_exporter source;
  cudalink_importer witness;
  cudalink_host_stream *third;
  cudalink_frame frame;
  assert_ok(cudalink_host_stream_create(&third));
  test_open(&source, .name = "witness", .hold_limit = FOREVER);
  test_join(&witness, .name = "witness", .gpu_wait = 1, .gpu_wait_limit = SHORT);
  test_send(source);
  test_pass(witness);
  test_send_bytes(source, BYTES, CUDALINK_STREAM_HANDLE(stream));
  assert_ok(cudalink_importer_acquire(witness, CUDALINK_STREAM_HANDLE(third), FOREVER, &frame));
  assert_ok(cudalink_host_stream_synchronize(third));
  assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
  assert_ok(cudalink_importer_close(witness));
  assert_ok(cudalink_exporter_close(source));
  cudalink_host_stream_destroy(third);
}
static void assert_still_pending(const cudalink_frame *frame) {
  test_settle();
  let_timers_look();
  assert_int_equal(flags_of(frame), CUDALINK_FRAME_PENDING);
}

/* The stream still waits, and it sees the whole frame. */
static void finish_pending(const struct reader *reader) {
  assert_int_equal(atomic_load(&reader->result), 0);
  test_gate_open(&gate);
  assert_ok(cudalink_host_stream_synchronize(other));
  assert_ok(cudalink_host_stream_synchronize(stream));
  assert_int_equal(atomic_load(&reader->result), 1);
}

static void destroy_streams(void) {
  cudalink_host_stream_destroy(stream);
  cudalink_host_stream_destroy(other);
}

/* Segments of channels that this process maps: none once everything is cleared. */
static unsigned count_mapped(void) { return test_count_mappings("memfd:cudalink"); }
static void nothing_is_left(void) { UNTIL((test_settle(), count_mapped() == 0)); }

static void close_of_the_producer_leaves_stream_waits(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_frame frame, more;
  struct reader reader;
  begin();
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = FOREVER);
  warm_up();
  take_pending(&slot, &frame, &reader);
  assert_ok(cudalink_exporter_close(exporter));
  assert_status(CUDALINK_ERROR_ENDED,
                cudalink_importer_acquire(importer, COMPLETE, FOREVER, &more));
  assert_still_pending(&frame);
  finish_pending(&reader);
  assert_int_equal(flags_of(&frame), 0);
  assert_int_equal(test_got(importer).lost, 0);
  test_release(&frame);
  assert_ok(cudalink_importer_close(importer));
  nothing_is_left();
  destroy_streams();
}

/* Closes the consumer's end while its stream waits: the frame is held, given back by the stream, or
 * given back at once, so that only the wait itself is left. */
enum pending_end { HELD, RELEASED_BY_STREAM, RELEASED_AT_ONCE };
static void close_of_the_consumer_leaves_stream_waits(void **state) {
  (void)state;
  for (enum pending_end how = HELD; how <= RELEASED_AT_ONCE; how++) {
    cudalink_slot slot;
    cudalink_frame frame, kept;
    struct reader reader;
    begin();
    test_open(&exporter, .hold_limit = FOREVER);
    test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = FOREVER);
    warm_up();
    publish_painted_by_stream(&slot);
    assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frame));
    kept = frame;
    reader = (struct reader){&kept, 0};
    if (how != RELEASED_AT_ONCE) assert_ok(cudalink_host_stream_push(other, read_frame, &reader));
    if (how == RELEASED_BY_STREAM)
      assert_ok(cudalink_frame_release(&frame, CUDALINK_STREAM_HANDLE(other)));
    if (how == RELEASED_AT_ONCE) test_release(&frame);
    unsigned mapped = count_mapped();
    assert_ok(cudalink_importer_close(importer));
    UNTIL(test_sent(exporter).consumers == 0); /* it has said BYE */
    test_settle();
    assert_int_equal(count_mapped(), mapped); /* what the wait needs */
    if (how == HELD) assert_still_pending(&frame);
    assert_int_equal(atomic_load(&reader.result), 0);
    test_gate_open(&gate);
    assert_ok(cudalink_host_stream_synchronize(other));
    assert_ok(cudalink_host_stream_synchronize(stream));
    assert_int_equal(atomic_load(&reader.result), how != RELEASED_AT_ONCE);
    if (how == HELD) test_release(&frame);
    UNTIL((test_settle(), count_mapped() < mapped)); /* without any other news */
    assert_ok(cudalink_exporter_close(exporter));
    nothing_is_left();
    destroy_streams();
  }
}

/* Both ends are closed, in both orders, before the pixels are there. */
static void close_of_both_ends_leaves_stream_waits(void **state) {
  (void)state;
  for (int producer_first = 0; producer_first < 2; producer_first++) {
    cudalink_slot slot;
    cudalink_frame frame;
    struct reader reader;
    begin();
    test_open(&exporter, .hold_limit = FOREVER);
    test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = FOREVER);
    warm_up();
    take_pending(&slot, &frame, &reader);
    if (producer_first) assert_ok(cudalink_exporter_close(exporter));
    assert_ok(cudalink_importer_close(importer));
    if (!producer_first) assert_ok(cudalink_exporter_close(exporter));
    assert_still_pending(&frame);
    finish_pending(&reader);
    test_release(&frame);
    nothing_is_left();
    destroy_streams();
  }
}

/* The limit still ends a wait whose ends are closed, also of a frame that was given back. */
static void the_limit_outlives_close(void **state) {
  (void)state;
  for (int how = 0; how < 4; how++) {
    bool held = how % 2, producer_closes = how / 2;
    cudalink_slot slot;
    cudalink_frame frame;
    begin();
    test_open(&exporter, .hold_limit = FOREVER);
    test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = SHORT);
    warm_up();
    publish_painted_by_stream(&slot);
    assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frame));
    if (!held) test_release(&frame);
    if (producer_closes) assert_ok(cudalink_exporter_close(exporter));
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_host_stream_synchronize(other)); /* the gate is shut */
    if (held) assert_int_equal(flags_of(&frame), CUDALINK_FRAME_LOST);
    if (held) assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
    test_gate_open(&gate);
    assert_ok(cudalink_host_stream_synchronize(stream));
    if (!producer_closes) assert_ok(cudalink_exporter_close(exporter));
    nothing_is_left();
    destroy_streams();
  }
}

/* wait_next: the frame is not even published when an end is closed. */
static void close_while_the_next_frame_is_awaited(void **state) {
  (void)state;
  for (int producer_closes = 0; producer_closes < 2; producer_closes++) {
    cudalink_slot slot;
    cudalink_frame frame;
    struct reader reader = {&frame, 0};
    begin();
    test_open(&exporter, .hold_limit = FOREVER);
    test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = FOREVER);
    warm_up();
    assert_ok(
        cudalink_importer_wait_next(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frame));
    if (producer_closes) { /* it will never be published, and the consumer is told so */
      assert_ok(cudalink_exporter_close(exporter));
      assert_ok(cudalink_host_stream_synchronize(other));
      assert_status(CUDALINK_ERROR_SKIPPED, cudalink_frame_release(&frame, COMPLETE));
      assert_int_equal(test_got(importer).lost, 0);
      assert_ok(cudalink_importer_close(importer));
    } else {
      assert_ok(cudalink_host_stream_push(other, read_frame, &reader));
      assert_ok(cudalink_importer_close(importer));
      publish_painted_by_stream(&slot);
      assert_int_equal(slot.sequence, frame.sequence);
      assert_still_pending(&frame);
      finish_pending(&reader);
      test_release(&frame);
      assert_ok(cudalink_exporter_close(exporter));
    }
    nothing_is_left();
    destroy_streams();
  }
}

/* Frames of a producer that has gone which never became complete are not handed out. */
static void an_unfinished_frame_of_the_past_is_not_drained(void **state) {
  (void)state;
  cudalink_frame frame;
  begin();
  test_open(&exporter, .slots = 5);
  test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER);
  warm_up();
  uint64_t whole = test_send(exporter);
  test_gate_push(&gate, stream);
  send_on(stream);
  assert_ok(cudalink_exporter_close(exporter));
  assert_int_equal(test_pass(importer), whole);
  assert_status(CUDALINK_ERROR_ENDED,
                cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_int_equal(test_got(importer).missed, 1);
  test_gate_open(&gate);
  assert_ok(cudalink_host_stream_synchronize(stream));
  assert_ok(cudalink_importer_close(importer));
  cudalink_host_stream_destroy(stream);
  cudalink_host_stream_destroy(other);
}

static void send_copies_on_the_stream(void **state) {
  (void)state;
  static unsigned char data[BYTES];
  cudalink_description description = test_bytes(BYTES);
  cudalink_frame frame;
  begin_warm();
  test_gate_push(&gate, stream);
  memset(data, 0, sizeof data);
  assert_ok(cudalink_exporter_send(exporter, &description, data, NULL,
                                   CUDALINK_STREAM_HANDLE(stream), 0));
  test_paint(data, BYTES, 2); /* before the stream has come so far: this is what is sent */
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  test_gate_open(&gate);
  assert_int_equal(test_pass(importer), 2);
  assert_int_equal(test_sent(exporter).copies, 1);
  end();
}

/* Streams that are wrong are refused and change nothing. */
static void wrong_streams_are_refused(void **state) {
  (void)state;
  static unsigned char data[BYTES];
  cudalink_description description = test_bytes(BYTES);
  cudalink_stream none = {0, 0, 0};
  const cudalink_stream wrong[] = {none,
                                   CUDALINK_STREAM_LEGACY,
                                   CUDALINK_STREAM_PER_THREAD,
                                   CUDALINK_STREAM_HANDLE(data),
                                   CUDALINK_STREAM_EVENT(data),
                                   {77, 0, 0}};
  cudalink_slot slot;
  cudalink_frame frame;
  begin_warm();
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    assert_ok(test_try_begin(exporter, 0, &slot));
    assert_status(CUDALINK_ERROR_STREAM, cudalink_exporter_publish(exporter, &slot, wrong[i]));
    assert_status(CUDALINK_ERROR_STREAM, cudalink_exporter_abandon(exporter, &slot, wrong[i]));
    test_paint(slot.data, BYTES, slot.sequence);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE)); /* still begun */
    assert_status(CUDALINK_ERROR_STREAM, cudalink_importer_acquire(importer, wrong[i], 0, &frame));
    frame = test_take(importer);
    assert_int_equal(frame.sequence, slot.sequence);
    assert_status(CUDALINK_ERROR_STREAM, cudalink_frame_release(&frame, wrong[i]));
    assert_int_not_equal(frame.lease, 0);
    assert_painted(&frame, frame.sequence);
    test_release(&frame);
    assert_status(CUDALINK_ERROR_STREAM,
                  cudalink_exporter_send(exporter, &description, data, NULL, wrong[i], 0));
    assert_ok(test_try_begin(exporter, 0, &slot)); /* nothing is begun */
    assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  }
  /* One that has ended is as unknown as any. */
  cudalink_host_stream *gone;
  assert_ok(cudalink_host_stream_create(&gone));
  cudalink_host_stream_destroy(gone);
  assert_ok(test_try_begin(exporter, 0, &slot));
  assert_status(CUDALINK_ERROR_STREAM,
                cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_HANDLE(gone)));
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  end();
}

/* Streams on both ends, everything in order of streams only, many rounds: no byte is ever wrong. */
static void both_ends_on_streams(void **state) {
  (void)state;
  enum { ROUNDS = 2000, DEPTH = 4 };
  static cudalink_slot slots[ROUNDS];
  static cudalink_frame frames[ROUNDS];
  static struct reader readers[ROUNDS];
  begin();
  test_open(&exporter, .slots = 6, .hold_limit = FOREVER);
  test_join(&importer, .gpu_wait = 1, .policy = CUDALINK_POLICY_EVERY, .hold = DEPTH);
  for (int i = 0; i < ROUNDS; i++) {
    assert_ok(test_try_begin(exporter, FOREVER, &slots[i]));
    assert_ok(cudalink_host_stream_push(stream, paint_slot, &slots[i]));
    assert_ok(cudalink_exporter_publish(exporter, &slots[i], CUDALINK_STREAM_HANDLE(stream)));
    assert_ok(
        cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frames[i]));
    assert_int_equal(frames[i].sequence, slots[i].sequence);
    readers[i].frame = &frames[i];
    atomic_store(&readers[i].result, 0);
    assert_ok(cudalink_host_stream_push(other, read_frame, &readers[i]));
    assert_ok(cudalink_frame_release(&frames[i], CUDALINK_STREAM_HANDLE(other)));
  }
  assert_ok(cudalink_host_stream_synchronize(other));
  for (int i = 0; i < ROUNDS; i++)
    assert_int_equal(atomic_load(&readers[i].result), 1);
  assert_int_equal(test_got(importer).received, ROUNDS);
  end();
}

static const struct CMUnitTest tests[] = {
    test_case(a_frame_is_not_there_before_its_stream),
    test_case(every_policy_offers_an_unfinished_frame_again),
    test_case(ready_only_takes_the_newest_finished),
    test_case(ready_only_wakes_without_a_bell),
    test_case(an_unfinished_slot_is_not_lent),
    test_case(an_abandoned_slot_waits_for_its_stream),
    test_case(a_release_waits_for_its_stream),
    test_case(a_begin_sees_a_release_by_a_stream),
    test_case(a_stream_waits_for_the_pixels),
    test_case(a_stream_never_waits_for_ever),
    test_case(close_of_the_producer_leaves_stream_waits),
    test_case(close_of_the_consumer_leaves_stream_waits),
    test_case(close_of_both_ends_leaves_stream_waits),
    test_case(the_limit_outlives_close),
    test_case(close_while_the_next_frame_is_awaited),
    test_case(an_unfinished_frame_of_the_past_is_not_drained),
    test_case(send_copies_on_the_stream),
    test_case(wrong_streams_are_refused),
    test_case(both_ends_on_streams),
};
test_main(tests)
