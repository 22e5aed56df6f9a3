/* SPDX-License-Identifier: MIT
 *
 * Frames that consumers hold: how many they may, how the ring grows for them, and how they are taken
 * back from one that sits on them.
 */
#include "link_test.h"

static cudalink_exporter exporter;
static cudalink_slot slot;

static bool try_send(int64_t timeout) {
  int status = test_try_begin(exporter, timeout, &slot);
  if (status == CUDALINK_ERROR_BUSY) return false;
  assert_ok(status);
  test_paint(slot.data, BYTES, slot.sequence);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  return true;
}

static void no_more_than_hold(void **state) {
  (void)state;
  cudalink_importer importer;
  cudalink_frame held[CUDALINK_MAX_HOLD], more;
  for (uint32_t hold = 1; hold <= CUDALINK_MAX_HOLD; hold++) {
    test_open(&exporter, .max_slots = 20, .hold_limit = FOREVER);
    test_join(&importer, .hold = hold, .policy = CUDALINK_POLICY_IN_ORDER);
    assert_int_equal(test_got(importer).hold, hold);
    for (uint32_t i = 0; i < hold; i++) {
      uint64_t sequence = test_send(exporter);
      held[i] = test_take(importer);
      assert_int_equal(held[i].sequence, sequence);
      assert_int_equal(test_got(importer).held, i + 1);
    }
    uint64_t next = test_send(exporter);
    assert_status(CUDALINK_ERROR_BUSY, test_try(importer, &more));
    assert_said(hold == 1 ? "1 frame is held, " : "s are held, ");
    assert_status(CUDALINK_ERROR_BUSY,
                  cudalink_importer_acquire(importer, COMPLETE, MILLISECOND, &more));
    assert_int_equal(more.lease, 0);
    for (uint32_t i = 0; i < hold; i++)
      assert_painted(&held[i], held[i].sequence);
    test_release(&held[hold / 2]);
    assert_int_equal(test_pass(importer), next);
    for (uint32_t i = 0; i < hold; i++)
      if (i != hold / 2) test_release(&held[i]);
    assert_int_equal(test_got(importer).held, 0);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
  }
}

/* A waiting acquire goes on as soon as another thread gives a frame back. */
static void *take_next(void *context) {
  static cudalink_frame frame;
  cudalink_importer *importer = context;
  assert_ok(cudalink_importer_acquire(*importer, COMPLETE, FOREVER, &frame));
  return &frame;
}
static void a_release_lets_a_waiting_acquire_go_on(void **state) {
  (void)state;
  cudalink_importer importer;
  pthread_t thread;
  void *result;
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  uint64_t next = test_send(exporter);
  assert_int_equal(pthread_create(&thread, NULL, take_next, &importer), 0);
  sched_yield();
  test_release(&held);
  pthread_join(thread, &result);
  assert_int_equal(((cudalink_frame *)result)->sequence, next);
  test_release((cudalink_frame *)result);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Each release counts once, whatever is passed. */
static void a_lease_is_released_once(void **state) {
  (void)state;
  cudalink_importer importer;
  test_open(&exporter);
  test_join(&importer, .hold = 2, .policy = CUDALINK_POLICY_IN_ORDER);
  test_send(exporter);
  cudalink_frame frame = test_take(importer), copy = frame, none = {0}, wild = frame;
  test_release(&frame);
  assert_int_equal(frame.lease, 0);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_release(&frame, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_release(&copy, COMPLETE));
  assert_said("released already");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_release(&none, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_release(NULL, COMPLETE));
  test_send(exporter);
  frame = test_take(importer); /* the same entry, another lease */
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_release(&copy, COMPLETE));
  for (uint64_t bit = 1; bit; bit <<= 1) {
    wild.lease = frame.lease ^ bit;
    int status = cudalink_frame_release(&wild, COMPLETE);
    assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, status);
  }
  assert_int_equal(test_got(importer).held, 1);
  test_release(&frame);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* The ring grows with the holds, up to max_slots, and says how many are missing beyond. */
static void slots_grow_with_holds(void **state) {
  (void)state;
  cudalink_importer importers[4];
  test_open(&exporter, .slots = 3, .max_slots = 10, .hold_limit = FOREVER);
  assert_int_equal(test_sent(exporter).slots, 3);
  uint32_t wanted = 2;
  for (int i = 0; i < 4; i++) {
    test_join(&importers[i], .hold = 3);
    wanted += 3;
    test_send(exporter);
    uint32_t slots = wanted < 3 ? 3 : wanted < 10 ? wanted : 10;
    assert_int_equal(test_sent(exporter).slots, slots);
    assert_int_equal(test_sent(exporter).slots_short, wanted > 10 ? wanted - 10 : 0);
    assert_int_equal(test_got(importers[i]).hold, 3);
  }
  for (int i = 0; i < 4; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  UNTIL(test_sent(exporter).consumers == 0);
  uint64_t generations = test_sent(exporter).generations;
  for (int i = 0; i < 10; i++)
    test_send(exporter);
  assert_int_equal(test_sent(exporter).generations, generations); /* it never shrinks */
  assert_ok(cudalink_exporter_close(exporter));
}

/* What an importer may hold is cut to what max_slots can ever give. */
static void hold_is_granted_within_max_slots(void **state) {
  (void)state;
  cudalink_importer importer;
  test_open(&exporter, .max_slots = 3);
  test_join(&importer, .hold = 16);
  assert_int_equal(test_got(importer).hold, 1);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
  test_open(&exporter, .max_slots = 12);
  test_join(&importer, .hold = 16);
  assert_int_equal(test_got(importer).hold, 10);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Frames held in the old memory stay whole while and after it grows. */
static void frames_survive_growth(void **state) {
  (void)state;
  cudalink_importer importers[6];
  cudalink_frame held[6];
  test_open(&exporter, .slots = 3, .max_slots = 16, .hold_limit = FOREVER);
  for (int i = 0; i < 6; i++) {
    test_join(&importers[i]);
    test_send(exporter);
    held[i] = test_take(importers[i]);
    for (int j = 0; j <= i; j++)
      assert_painted(&held[j], held[j].sequence);
  }
  for (int i = 0; i < 50; i++)
    test_send(exporter);
  for (int i = 0; i < 6; i++) {
    assert_painted(&held[i], held[i].sequence);
    test_release(&held[i]);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_int_equal(test_sent(exporter).dropped, 0);
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_ok(cudalink_exporter_close(exporter));
}

/* All slots held, nothing may be taken back: begin is BUSY, counted, and nobody loses anything. */
static void with_hold_limit_forever_frames_are_dropped(void **state) {
  (void)state;
  cudalink_importer importers[3];
  cudalink_frame held[3];
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  for (int i = 0; i < 3; i++) {
    test_join(&importers[i]);
    if (!try_send(0)) break;
    held[i] = test_take(importers[i]);
  }
  assert_false(try_send(0));
  assert_said("no slot");
  assert_false(try_send(SHORT));
  assert_int_equal(test_sent(exporter).dropped, 2);
  assert_int_equal(test_sent(exporter).waits, 1);
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_int_equal(test_sent(exporter).slots_short, 2);
  for (int i = 0; i < 3; i++)
    assert_painted(&held[i], held[i].sequence);
  test_release(&held[0]);
  assert_true(try_send(0));
  for (int i = 0; i < 3; i++) {
    if (i) test_release(&held[i]);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_ok(cudalink_exporter_close(exporter));
}

/* ---- eviction -------------------------------------------------------------------------------------------- */

/* Fills three slots with frames that three consumers hold: the next begin has to evict. */
static void hold_all(cudalink_importer importers[3], cudalink_frame held[3]) {
  for (int i = 0; i < 3; i++) {
    test_join(&importers[i]);
    assert_true(try_send(0));
    held[i] = test_take(importers[i]);
  }
}

static void an_evicted_frame_stays_whole(void **state) {
  (void)state;
  cudalink_importer importers[3];
  cudalink_frame held[3], frame;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  hold_all(importers, held);
  uint64_t generations = test_sent(exporter).generations;
  for (int i = 0; i < 20; i++)
    assert_true(try_send(FOREVER));
  cudalink_exporter_statistics sent = test_sent(exporter);
  assert_true(sent.evicted >= 1);
  assert_true(sent.generations > generations);
  assert_true(sent.retired_bytes > 0);
  assert_int_equal(sent.consumers, 3 - sent.evicted);
  unsigned evicted = 0;
  for (int i = 0; i < 3; i++) {
    assert_painted(&held[i], (uint64_t)i + 1);
    int status = test_try(importers[i], &frame);
    evicted += status == CUDALINK_ERROR_EVICTED;
    assert_int_equal(test_got(importers[i]).evictions, status == CUDALINK_ERROR_EVICTED);
    assert_painted(&held[i], (uint64_t)i + 1);
    test_release(&held[i]);
    /* Once told, it joins again by itself and goes on. */
    int again;
    while ((again = test_try(importers[i], &frame)) < 0) {
      assert_int_not_equal(again, CUDALINK_ERROR_EVICTED);
      try_send(0);
    }
    assert_painted(&frame, frame.sequence);
    test_release(&frame);
    assert_int_equal(test_got(importers[i]).sessions, status == CUDALINK_ERROR_EVICTED ? 2 : 1);
  }
  assert_int_equal(evicted, sent.evicted);
  while (test_sent(exporter).retired_bytes)
    try_send(FOREVER); /* let go of: freed */
  for (int i = 0; i < 3; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  assert_ok(cudalink_exporter_close(exporter));
}

/* It lets go but does not come back: the memory is free again all the same. */
static void retired_memory_is_freed_on_release(void **state) {
  (void)state;
  cudalink_importer importers[3];
  cudalink_frame held[3];
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  hold_all(importers, held);
  assert_true(try_send(FOREVER));
  assert_true(test_sent(exporter).retired_bytes > 0);
  for (int i = 0; i < 3; i++)
    test_release(&held[i]);
  while (test_sent(exporter).retired_bytes)
    try_send(FOREVER);
  for (int i = 0; i < 3; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Beyond zombie_limit frames are dropped rather than torn. */
static void zombie_limit_is_respected(void **state) {
  (void)state;
  cudalink_importer importers[6];
  cudalink_frame held[6];
  test_open(&exporter, .slots = 3, .max_slots = 3,
            .hold_limit = SHORT); /* one ring may be retired */
  uint64_t ring = test_sent(exporter).memory_bytes;
  hold_all(importers, held);
  assert_true(try_send(FOREVER));
  uint64_t evicted = test_sent(exporter).evicted;
  assert_true(evicted >= 1);
  assert_true(test_sent(exporter).retired_bytes <= ring);
  /* Others take the new ring's frames and sit on them: there is nothing left to retire. */
  uint64_t numbers[6] = {1, 2, 3};
  for (int i = 3; i < 6; i++) {
    test_join(&importers[i]);
    held[i] = test_take(importers[i]);
    numbers[i] = held[i].sequence;
    if (i < 5 && !try_send(5 * SHORT)) {
      for (int j = i + 1; j < 6; j++)
        importers[j].id = 0;
      break;
    }
  }
  for (int i = 0; i < 4; i++)
    try_send(2 * SHORT);
  assert_true(test_sent(exporter).retired_bytes <= ring);
  assert_true(test_sent(exporter).dropped > 0);
  for (int i = 0; i < 6; i++) {
    if (!importers[i].id) continue;
    assert_painted(&held[i], numbers[i]);
    test_release(&held[i]);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_true(try_send(FOREVER)); /* the zombies are buried: it goes on */
  assert_ok(cudalink_exporter_close(exporter));
}

/* Another thread of the evicted importer that sleeps in acquire is told. */
static void *wait_for_notice(void *context) {
  cudalink_importer *importer = context;
  cudalink_frame frame;
  int status;
  do {
    status = cudalink_importer_acquire(*importer, COMPLETE, FOREVER, &frame);
    if (status == CUDALINK_OK) test_release(&frame);
  } while (status == CUDALINK_OK);
  return (void *)(intptr_t)status;
}
static void a_sleeping_thread_hears_of_the_eviction(void **state) {
  (void)state;
  cudalink_importer importers[3];
  cudalink_frame held[3];
  pthread_t thread;
  void *status;
  test_open(&exporter, .slots = 4, .max_slots = 4, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  for (int i = 0; i < 3; i++)
    test_join(&importers[i], .hold = 2);
  for (int i = 0; i < 3; i++) {
    test_send(exporter);
    held[i] = test_take(importers[i]);
  }
  test_send(exporter);
  /* The first one is evicted first; its other thread takes frame 4 and gives it back, then sleeps. */
  assert_int_equal(pthread_create(&thread, NULL, wait_for_notice, &importers[0]), 0);
  UNTIL(test_got(importers[0]).waits == 1);
  assert_true(try_send(FOREVER));
  assert_true(test_sent(exporter).evicted >= 1);
  pthread_join(thread, &status);
  assert_int_equal((intptr_t)status, CUDALINK_ERROR_EVICTED);
  for (int i = 0; i < 3; i++) {
    assert_painted(&held[i], (uint64_t)i + 1);
    test_release(&held[i]);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_ok(cudalink_exporter_close(exporter));
}

/* Only who is in the way is evicted: not one whose frame lies in memory that is not in use any more. */
static void frames_of_old_memory_are_not_taken_back(void **state) {
  (void)state;
  cudalink_importer archivist, importers[3];
  cudalink_frame old, held[3], frame;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  test_join(&archivist, .policy = CUDALINK_POLICY_LATEST);
  test_send(exporter);
  old = test_take(archivist);
  test_send_bytes(exporter, 5000, COMPLETE); /* a new generation */
  for (int i = 0; i < 3; i++) {
    test_join(&importers[i]);
    if (i) assert_true(try_send(0));
    held[i] = test_take(importers[i]);
  }
  assert_true(try_send(FOREVER));
  assert_true(test_sent(exporter).evicted >= 1);
  int status = test_try(archivist, &frame);
  assert_int_not_equal(status, CUDALINK_ERROR_EVICTED);
  assert_int_equal(test_got(archivist).evictions, 0);
  assert_painted(&old, 1);
  test_release(&old);
  for (int i = 0; i < 3; i++) {
    assert_painted(&held[i], held[i].sequence);
    test_release(&held[i]);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_ok(cudalink_importer_close(archivist));
  assert_ok(cudalink_exporter_close(exporter));
}

/* A consumer that wants every frame loses its place first; its frames only when that did not help. */
static void lossless_loses_its_place_first(void **state) {
  (void)state;
  cudalink_importer importer;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 24);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  for (int i = 0; i < 10; i++)
    assert_true(try_send(FOREVER));
  assert_true(test_sent(exporter).cursors_lost >= 1);
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_painted(&held, 1);
  test_release(&held);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Everybody sits on frames for good, round after round: no frame is ever torn, memory stays bounded. */
static void evictions_without_end(void **state) {
  (void)state;
  enum { CONSUMERS = 4, ROUNDS = 60 };
  cudalink_importer importers[CONSUMERS];
  cudalink_frame held[CONSUMERS];
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = 2 * MILLISECOND);
  uint64_t ring = test_sent(exporter).memory_bytes;
  for (int i = 0; i < CONSUMERS; i++) {
    test_join(&importers[i]);
    held[i].lease = 0;
  }
  for (int round = 0; round < ROUNDS; round++) {
    try_send(5 * MILLISECOND);
    int i = round % CONSUMERS;
    if (held[i].lease) {
      assert_painted(&held[i], held[i].sequence);
      test_release(&held[i]);
    }
    int status = test_try(importers[i], &held[i]);
    if (status == CUDALINK_OK) assert_painted(&held[i], held[i].sequence);
    assert_true(test_sent(exporter).retired_bytes <= ring);
  }
  for (int i = 0; i < CONSUMERS; i++) {
    if (held[i].lease) {
      assert_painted(&held[i], held[i].sequence);
      test_release(&held[i]);
    }
    assert_ok(cudalink_importer_close(importers[i]));
  }
  assert_true(try_send(FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(no_more_than_hold),
    test_case(a_release_lets_a_waiting_acquire_go_on),
    test_case(a_lease_is_released_once),
    test_case(slots_grow_with_holds),
    test_case(hold_is_granted_within_max_slots),
    test_case(frames_survive_growth),
    test_case(with_hold_limit_forever_frames_are_dropped),
    test_case(an_evicted_frame_stays_whole),
    test_case(retired_memory_is_freed_on_release),
    test_case(zombie_limit_is_respected),
    test_case(a_sleeping_thread_hears_of_the_eviction),
    test_case(frames_of_old_memory_are_not_taken_back),
    test_case(lossless_loses_its_place_first),
    test_case(evictions_without_end),
};
test_main(tests)
