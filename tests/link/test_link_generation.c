/* SPDX-License-Identifier: MIT
 *
 * Blocks of slot memory: when a frame needs a new one, when not, and what becomes of the old ones.
 */
#include "link_test.h"

#include "link/exporter.h"
#include "link/importer.h"

static cudalink_exporter exporter;
static cudalink_importer importer;

static void end(void) {
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static void larger_frames_move(void **state) {
  (void)state;
  test_open(&exporter);
  test_join(&importer);
  uint64_t bytes = BYTES;
  for (int i = 0; i < 12; i++, bytes *= 3) {
    bytes = bytes > 4000000 ? 4000000 : bytes;
    uint64_t sequence = test_send_bytes(exporter, bytes, COMPLETE);
    cudalink_frame frame = test_take(importer);
    assert_int_equal(frame.sequence, sequence);
    assert_int_equal(frame.description.planes[0].bytes, bytes);
    assert_int_equal(frame.generation, test_sent(exporter).generations);
    test_release(&frame);
  }
  uint64_t generations = test_sent(exporter).generations;
  assert_true(generations > 7);
  for (uint64_t smaller = 4000000; smaller; smaller /= 3) {
    test_send_bytes(exporter, smaller, COMPLETE);
    test_pass(importer);
  }
  assert_int_equal(test_sent(exporter).generations, generations);
  end();
}

/* Another type, more dimensions, fewer planes: all the same to a slot. More planes are not. */
static void what_fits_stays(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .slot_bytes = 1 << 16, .plane_count = 3);
  test_join(&importer);
  for (uint32_t planes = 1; planes <= 5; planes++) {
    cudalink_description description = {0};
    for (uint32_t p = 0; p < planes; p++)
      assert_ok(cudalink_describe_tensor(&description, "plane", CUDALINK_FLOAT32, p,
                                         (int64_t[]){2, 3, 4, 5}));
    assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, &slot));
    memset(slot.data, (int)planes, slot.bytes);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    cudalink_frame frame;
    assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
    test_same(&frame.description, &description);
    test_release(&frame);
    assert_int_equal(test_sent(exporter).generations, planes < 4 ? 1 : planes - 2);
  }
  end();
}

static void frames_held_across_generations_stay_whole(void **state) {
  (void)state;
  enum { HELD = 16 };
  cudalink_frame held[HELD];
  test_open(&exporter, .max_slots = 20, .hold_limit = FOREVER);
  test_join(&importer, .hold = HELD, .policy = CUDALINK_POLICY_IN_ORDER);
  for (uint64_t i = 0; i < HELD; i++) { /* each in a block of its own */
    test_send_bytes(exporter, BYTES + i * 10000, COMPLETE);
    test_send_bytes(exporter, BYTES + i * 10000 + 5000, COMPLETE);
    do {
      held[i] = test_take(importer);
      if (held[i].sequence < 2 * i + 2) test_release(&held[i]);
    } while (held[i].sequence < 2 * i + 2);
    for (uint64_t j = 0; j <= i; j++)
      assert_painted(&held[j], 2 * j + 2);
  }
  assert_true(test_sent(exporter).generations >= HELD);
  /* In any order, and the link goes on. */
  for (int i = 0; i < HELD; i++) {
    int which = (i * 7 + 3) % HELD;
    assert_painted(&held[which], held[which].sequence);
    test_release(&held[which]);
  }
  uint64_t sequence = test_send_bytes(exporter, 10000000, COMPLETE);
  assert_int_equal(test_pass(importer), sequence);
  assert_int_equal(test_sent(exporter).evicted, 0);
  end();
}

/* Memory comes back: of thousands of generations only what is in use is mapped. */
static unsigned count_blocks(void) { return test_count_mappings("cudalink-frames"); }
static unsigned count_descriptors(void) {
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

static void old_generations_go(void **state) {
  (void)state;
  enum { ROUNDS = 300 };
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  unsigned descriptors = 0;
  for (uint64_t i = 1; i <= ROUNDS; i++) {
    uint64_t sequence = test_send_bytes(exporter, BYTES + i * 256, COMPLETE);
    assert_int_equal(test_pass(importer), sequence);
    if (i == 10) descriptors = count_descriptors();
  }
  assert_int_equal(test_sent(exporter).generations, ROUNDS + 1);
  UNTIL((test_settle(), count_blocks() <= 2));
  assert_in_range(count_descriptors(), 1, descriptors + 2);
  end();
  UNTIL((test_settle(), count_blocks() == 0));
}

static struct wire_control *control_of(cudalink_exporter handle) {
  struct link_exporter *inside;
  assert_ok(link_exporter_lock(handle, "test", &inside));
  struct wire_control *control = inside->control;
  link_object_unlock(inside);
  return control;
}

/* The channel moves on before this consumer has mapped what it was told of, again and again: that piles
 * up nothing. The control block says for a while that a later generation is the current one, as it does
 * when its message is still on its way. */
static void a_consumer_that_comes_late_each_time_comes_along(void **state) {
  (void)state;
  enum { ROUNDS = 2 * LINK_MAX_MAPPINGS };
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer);
  for (uint64_t i = 1; i <= ROUNDS; i++) {
    test_send_bytes(exporter, BYTES + i * 5000, COMPLETE);
    test_settle();
    wire_word *current = &control_of(exporter)->gen;
    uint64_t real = atomic_exchange(current, UINT64_C(1) << 20);
    cudalink_frame frame;
    if (cudalink_importer_acquire(importer, COMPLETE, 0, &frame) == CUDALINK_OK)
      test_release(&frame);
    atomic_store(current, real);
  }
  uint64_t sequence = test_send_bytes(exporter, BYTES, COMPLETE);
  assert_int_equal(test_pass(importer), sequence);
  UNTIL((test_settle(), count_blocks() <= 4));
  end();
}

/* A larger frame is begun and abandoned: the channel stays as it was. */
static void an_abandoned_move_changes_nothing(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter);
  test_join(&importer);
  cudalink_description large = test_bytes(100000);
  for (int i = 0; i < 50; i++) {
    uint64_t sequence = test_send(exporter);
    assert_int_equal(test_pass(importer), sequence);
    assert_ok(cudalink_exporter_begin(exporter, &large, 0, &slot));
    assert_true(slot.bytes >= 100000);
    memset(slot.data, 1, slot.bytes);
    assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  }
  uint64_t sequence = test_send(exporter);
  cudalink_frame frame = test_take(importer);
  assert_int_equal(frame.sequence, sequence);
  assert_int_equal(frame.missed, 0);
  test_release(&frame);
  sequence = test_send_bytes(exporter, 100000, COMPLETE);
  assert_int_equal(test_pass(importer), sequence);
  UNTIL((test_settle(), count_blocks() <= 4));
  end();
}

static void a_move_that_fails_changes_nothing(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter);
  test_join(&importer);
  cudalink_description huge = test_bytes(UINT64_C(1) << 50);
  for (int i = 0; i < 3; i++) {
    int status = cudalink_exporter_begin(exporter, &huge, 0, &slot);
    assert_true(status == CUDALINK_ERROR_NO_SPACE || status == CUDALINK_ERROR_NO_MEMORY);
    assert_said("bytes of shared memory are needed");
    uint64_t sequence = test_send(exporter);
    assert_int_equal(test_pass(importer), sequence);
  }
  huge = test_bytes(INT64_MAX);
  assert_status(CUDALINK_ERROR_TOO_LARGE, cudalink_exporter_begin(exporter, &huge, 0, &slot));
  assert_int_equal(test_sent(exporter).generations, 1);
  uint64_t sequence = test_send(exporter);
  assert_int_equal(test_pass(importer), sequence);
  end();
}

/* Every-frame consumers get the rest of the old memory before the channel moves. */
static void a_move_waits_for_every_frame(void **state) {
  (void)state;
  cudalink_slot slot;
  test_open(&exporter, .slots = 6, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  cudalink_description large = test_bytes(100000);
  for (uint64_t i = 1; i <= 3; i++) {
    assert_status(CUDALINK_ERROR_BUSY, cudalink_exporter_begin(exporter, &large, 0, &slot));
    assert_int_equal(test_pass(importer), i);
  }
  uint64_t sequence = test_send_bytes(exporter, 100000, COMPLETE);
  assert_int_equal(test_pass(importer), sequence);
  end();
}

/* One that sleeps in acquire while the channel moves. */
static void *take_all(void *context) {
  uint64_t count = 0;
  cudalink_frame frame;
  while (cudalink_importer_acquire(*(cudalink_importer *)context, COMPLETE, FOREVER, &frame) ==
         CUDALINK_OK) {
    assert_painted(&frame, frame.sequence);
    count++;
    test_release(&frame);
  }
  return (void *)(uintptr_t)count;
}
static void sleepers_follow_a_move(void **state) {
  (void)state;
  enum { CONSUMERS = 3, ROUNDS = 400 };
  cudalink_importer importers[CONSUMERS];
  pthread_t threads[CONSUMERS];
  test_open(&exporter, .hold_limit = FOREVER);
  for (int c = 0; c < CONSUMERS; c++) {
    test_join(&importers[c], .policy = CUDALINK_POLICY_EVERY);
    assert_int_equal(pthread_create(&threads[c], NULL, take_all, &importers[c]), 0);
  }
  for (uint64_t i = 0; i < ROUNDS; i++)
    test_send_bytes(exporter, BYTES + i / 2 * 256, COMPLETE);
  assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  for (int c = 0; c < CONSUMERS; c++) {
    void *count;
    pthread_join(threads[c], &count);
    assert_int_equal((uintptr_t)count, ROUNDS);
    assert_ok(cudalink_importer_close(importers[c]));
  }
}

/* As above: its message is still on its way. */
static void a_frame_in_memory_that_is_not_mapped_yet_is_told(void **state) {
  (void)state;
  cudalink_frame frame;
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  test_pass(importer);
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  assert_said("no new frame");
  uint64_t sequence = test_send(exporter);
  wire_word *current = &control_of(exporter)->gen;
  uint64_t real = atomic_exchange(current, UINT64_C(1) << 20);
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  assert_said("a frame was published, but its memory was not mapped here in time");
  assert_status(CUDALINK_ERROR_TIMEOUT,
                cudalink_importer_acquire(importer, COMPLETE, SHORT, &frame));
  assert_said("was published");
  atomic_store(current, real);
  frame = test_take(importer);
  assert_int_equal(frame.sequence, sequence);
  test_release(&frame);
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(importer, &frame));
  assert_said("no new frame");
  end();
}

static const struct CMUnitTest tests[] = {
    test_case(larger_frames_move),
    test_case(what_fits_stays),
    test_case(frames_held_across_generations_stay_whole),
    test_case(old_generations_go),
    test_case(a_consumer_that_comes_late_each_time_comes_along),
    test_case(an_abandoned_move_changes_nothing),
    test_case(a_move_that_fails_changes_nothing),
    test_case(a_move_waits_for_every_frame),
    test_case(sleepers_follow_a_move),
    test_case(a_frame_in_memory_that_is_not_mapped_yet_is_told),
};
test_main(tests)
