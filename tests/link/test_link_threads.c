/* SPDX-License-Identifier: MIT
 *
 * Several threads on one handle, and many handles in many threads.
 */
#include "link_test.h"

#include <poll.h>

#include "link/importer.h"

#define THREADS 4
#define FRAMES 2000

static cudalink_exporter exporter;
static cudalink_importer importer;
static _Atomic unsigned got[FRAMES + 1];

static void *take_until_end(void *context) {
  uint64_t before = 0;
  (void)context;
  for (;;) {
    cudalink_frame frame;
    int status = cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame);
    if (status == CUDALINK_ERROR_ENDED || status == CUDALINK_ERROR_CLOSED) break;
    if (status == CUDALINK_ERROR_BUSY) continue;
    assert_ok(status);
    assert_painted(&frame, frame.sequence);
    assert_true(frame.sequence > before);
    before = frame.sequence;
    atomic_fetch_add(&got[frame.sequence], 1);
    test_release(&frame);
  }
  return NULL;
}

static void run_policy(cudalink_policy policy, bool streams) {
  pthread_t threads[THREADS];
  cudalink_host_stream *stream;
  int frames = WITH_THREAD_SANITIZER ? FRAMES / 4 : FRAMES;
  memset(got, 0, sizeof got);
  assert_ok(cudalink_host_stream_create(&stream));
  test_open(&exporter, .slots = 6, .hold_limit = FOREVER);
  test_join(&importer, .policy = policy, .hold = 3, .once = 1,
            .group = policy == CUDALINK_POLICY_SHARED ? "group" : NULL);
  for (int t = 0; t < THREADS; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, take_until_end, NULL), 0);
  for (int i = 0; i < frames; i++)
    test_send_bytes(exporter, BYTES,
                    streams ? CUDALINK_STREAM_HANDLE(stream) : CUDALINK_STREAM_COMPLETE);
  assert_ok(cudalink_host_stream_synchronize(stream));
  assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  for (int t = 0; t < THREADS; t++)
    pthread_join(threads[t], NULL);
  uint64_t total = 0;
  for (int s = 1; s <= frames; s++) {
    unsigned times = atomic_load(&got[s]);
    bool all = policy == CUDALINK_POLICY_EVERY || policy == CUDALINK_POLICY_SHARED;
    if (times > 1 || (all && times != 1)) fail_msg("frame %d was taken %u times", s, times);
    total += times;
  }
  cudalink_importer_statistics statistics = test_got(importer);
  assert_int_equal(statistics.received, total);
  assert_int_equal(statistics.held, 0);
  assert_true(total + statistics.missed <=
              (uint64_t)frames); /* not missed: what was before its first */
  assert_ok(cudalink_importer_close(importer));
  cudalink_host_stream_destroy(stream);
}

/* Threads that share an importer share its frames: each goes to one of them, in rising order. */
static void threads_share_the_frames(void **state) {
  (void)state;
  for (int policy = CUDALINK_POLICY_LATEST; policy <= CUDALINK_POLICY_SHARED; policy++)
    run_policy((cudalink_policy)policy, false);
}
/* Also when frames are complete later than they are published. */
static void threads_share_unfinished_frames(void **state) {
  (void)state;
  for (int policy = CUDALINK_POLICY_LATEST; policy <= CUDALINK_POLICY_SHARED; policy++)
    run_policy((cudalink_policy)policy, true);
}

/* One frame that is not complete, and four threads that wait for it. */
static void *take_one(void *context) {
  cudalink_frame frame;
  (void)context;
  int status = cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame);
  if (status < 0) return NULL;
  uint64_t sequence = frame.sequence;
  test_release(&frame);
  return (void *)(uintptr_t)sequence;
}
static void one_unfinished_frame_for_many(void **state) {
  (void)state;
  static const cudalink_policy policies[] = {CUDALINK_POLICY_LATEST, CUDALINK_POLICY_IN_ORDER,
                                             CUDALINK_POLICY_EVERY, CUDALINK_POLICY_SHARED};
  for (int p = 0; p < 4; p++) {
    pthread_t threads[THREADS];
    cudalink_host_stream *stream;
    struct test_gate gate = {0};
    assert_ok(cudalink_host_stream_create(&stream));
    test_open(&exporter, .slots = 12, .hold_limit = FOREVER);
    test_join(&importer, .policy = policies[p], .hold = 6,
              .group = policies[p] == CUDALINK_POLICY_SHARED ? "group" : NULL);
    test_send(exporter);
    test_pass(importer);
    test_gate_push(&gate, stream);
    test_send_bytes(exporter, BYTES, CUDALINK_STREAM_HANDLE(stream));
    for (int t = 0; t < THREADS; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, take_one, NULL), 0);
    UNTIL(test_got(importer).held >= 1);
    for (int i = 0; i < 100; i++)
      sched_yield(); /* whoever does it wrong gets time to */
    test_gate_open(&gate);
    uint64_t numbers[THREADS];
    unsigned taken = 0;
    for (uint64_t next = 3; taken < THREADS; next++) {
      /* One more frame for each thread that is left. */
      UNTIL(test_got(importer).received == taken + 2);
      taken++;
      if (taken < THREADS) assert_int_equal(test_send(exporter), next);
    }
    for (int t = 0; t < THREADS; t++) {
      void *sequence;
      pthread_join(threads[t], &sequence);
      numbers[t] = (uintptr_t)sequence;
      assert_in_range(numbers[t], 2, THREADS + 1);
      for (int other = 0; other < t; other++)
        assert_int_not_equal(numbers[t], numbers[other]);
    }
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
    cudalink_host_stream_destroy(stream);
  }
}

/* Memory that is not mapped yet: one thread maps it, which takes long enough for the others to go to sleep.
 * Each frame is published by then, and nothing rings for them again. */
static void frames_behind_a_mapping_are_for_all(void **state) {
  (void)state;
  enum { LARGE = 1 << 24, ROUNDS = 3 };
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    test_open(&exporter, .slots = THREADS + 2, .slot_bytes = LARGE);
    test_join(&importer, .policy = CUDALINK_POLICY_EVERY, .hold = THREADS);
    for (int i = 0; i < THREADS; i++)
      test_send(exporter);
    for (int t = 0; t < THREADS; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, take_one, NULL), 0);
    for (int t = 0; t < THREADS; t++) {
      void *sequence;
      pthread_join(threads[t], &sequence);
      sum += (uintptr_t)sequence;
    }
    assert_int_equal(sum, THREADS * (THREADS + 1) / 2);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
    test_settle();
  }
}

/* As above for one that polls: armed while the other one maps, it is told of the frame that is left. */
static void frames_behind_a_mapping_are_for_who_polls(void **state) {
  (void)state;
  enum { LARGE = 1 << 24, ROUNDS = 20 };
  bool armed = false;
  for (int round = 0; round < ROUNDS && !armed; round++) {
    pthread_t thread;
    int descriptor, status;
    test_open(&exporter, .slots = 4, .slot_bytes = LARGE);
    test_join(&importer, .policy = CUDALINK_POLICY_EVERY, .hold = 2);
    test_send(exporter);
    uint64_t left = test_send(exporter);
    assert_ok(cudalink_importer_descriptor(importer, &descriptor));
    assert_int_equal(pthread_create(&thread, NULL, take_one, NULL), 0);
    do /* until it maps, there is something to map; behind that, there is a frame */
      status = cudalink_importer_arm(importer);
    while (status == CUDALINK_ERROR_BUSY && !test_got(importer).generations);
    armed = status == CUDALINK_OK;
    struct pollfd polled = {.fd = descriptor, .events = POLLIN};
    if (armed) assert_int_equal(poll(&polled, 1, -1), 1);
    pthread_join(thread, NULL);
    assert_int_equal(test_pass(importer), left);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
    test_settle();
  }
}

/* One thread maps the memory of frames to come, and lets go of the mutex for that. Meanwhile another one takes a
 * frame that is not complete: it is its own. */
static void a_frame_taken_beside_a_mapping_is_taken_once(void **state) {
  (void)state;
  enum { LARGE = 1 << 25, ROUNDS = 3 };
  cudalink_description large = test_bytes(LARGE);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[2];
    void *sequences[2];
    cudalink_host_stream *stream;
    struct test_gate gate = {0};
    cudalink_slot slot;
    assert_ok(cudalink_host_stream_create(&stream));
    test_open(&exporter, .slots = 4);
    test_join(&importer, .policy = CUDALINK_POLICY_IN_ORDER, .hold = 2);
    test_send(exporter);
    test_pass(importer);
    test_gate_push(&gate, stream);
    test_send_bytes(exporter, BYTES, CUDALINK_STREAM_HANDLE(stream));
    assert_ok(
        cudalink_exporter_begin(exporter, &large, FOREVER, &slot)); /* its memory is told of */
    for (int t = 0; t < 2; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, take_one, NULL), 0);
    UNTIL(test_got(importer).held >= 1 && test_got(importer).generations == 2);
    for (int i = 0; i < 100; i++)
      sched_yield(); /* whoever does it wrong gets time to */
    assert_int_equal(test_got(importer).held, 1);
    test_gate_open(&gate);
    UNTIL(test_got(importer).received == 2);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    for (int t = 0; t < 2; t++)
      pthread_join(threads[t], &sequences[t]);
    assert_int_equal((uintptr_t)sequences[0] + (uintptr_t)sequences[1], 2 + 3);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
    cudalink_host_stream_destroy(stream);
  }
}

static bool is_mapping(void) {
  int status;
  struct link_importer *record = link_importer_lock(importer, "test", &status);
  bool mapping = record->mapping;
  link_object_unlock(record);
  return mapping;
}

/* One thread maps what a producer left behind. Another one that looks meanwhile is not told that there was none. */
static void who_looks_beside_a_mapping_knows_the_producer(void **state) {
  (void)state;
  enum { LARGE = 1 << 25, ROUNDS = 4 };
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t thread;
    cudalink_frame frame;
    int status;
    test_open(&exporter, .slots = 4, .slot_bytes = LARGE);
    test_join(&importer, .once = 1, .hold = 2);
    test_send(exporter);
    assert_ok(cudalink_exporter_close(exporter));
    UNTIL(test_got(importer).connection == CUDALINK_CONNECTION_OVER);
    assert_int_equal(pthread_create(&thread, NULL, take_one, NULL), 0);
    UNTIL(is_mapping() || test_got(importer).received);
    status = test_try(importer, &frame);
    if (status == CUDALINK_OK) test_release(&frame);
    assert_int_not_equal(status, CUDALINK_ERROR_NOT_FOUND);
    pthread_join(thread, NULL);
    assert_ok(cudalink_importer_close(importer));
    test_settle();
  }
}

/* ---- what is posted while a close is under way ------------------------------------------------------- */

static _Atomic bool kept_busy, let_go;
static int keep(void *argument) {
  atomic_store(&kept_busy, true);
  UNTIL(atomic_load(&let_go));
  return test_nothing(argument);
}
static void *keep_service_thread(void *context) {
  service_call(keep, context);
  return NULL;
}
static void *close_importer(void *context) {
  (void)context;
  assert_ok(cudalink_importer_close(importer));
  return NULL;
}

static struct link_importer *record;
static uint32_t record_number;
static void look_at_record(struct service_work *work) {
  (void)work;
  record_number = atomic_load(&record->object.id);
}
static uint32_t calls_inside(void) {
  int status;
  record = link_importer_lock(importer, "test", &status);
  uint32_t inside = record->inside;
  link_object_unlock(record);
  return inside;
}

/* A call that waits ends because of a close, and posts work, which runs before the close's own part on the service
 * thread: that part finds its record all the same, not one that the next open may have taken. */
static void a_close_keeps_its_record(void **state) {
  (void)state;
  static struct service_work work = {.run = look_at_record};
  pthread_t keeper, waiter, closer;
  assert_ok(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"}));
  assert_int_equal(pthread_create(&waiter, NULL, take_one, NULL), 0);
  UNTIL(calls_inside() == 1);
  assert_int_equal(pthread_create(&keeper, NULL, keep_service_thread, NULL), 0);
  UNTIL(atomic_load(&kept_busy));
  service_post(&work); /* what is posted last runs first: so it runs behind the importer's work */
  assert_int_equal(pthread_create(&closer, NULL, close_importer, NULL), 0);
  pthread_join(waiter, NULL);
  atomic_store(&let_go, true);
  pthread_join(keeper, NULL);
  pthread_join(closer, NULL);
  assert_int_equal(record_number, importer.id);
  test_settle();
  assert_int_equal(atomic_load(&record->object.id), 0); /* and it goes then */
}

/* Producers in several threads take turns: one frame is begun at a time. */
static void *produce(void *context) {
  cudalink_description description = test_bytes(BYTES);
  cudalink_slot slot;
  unsigned published = 0;
  (void)context;
  while (published < 300) {
    int status = cudalink_exporter_begin(exporter, &description, FOREVER, &slot);
    if (status == CUDALINK_ERROR_INVALID_ARGUMENT) {
      sched_yield();
      continue; /* another thread's frame is begun */
    }
    assert_ok(status);
    test_paint(slot.data, BYTES, slot.sequence);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
    published++;
  }
  return NULL;
}
static void producers_take_turns(void **state) {
  (void)state;
  pthread_t producers[3], consumer;
  memset(got, 0, sizeof got);
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  assert_int_equal(pthread_create(&consumer, NULL, take_until_end, NULL), 0);
  for (int t = 0; t < 3; t++)
    assert_int_equal(pthread_create(&producers[t], NULL, produce, NULL), 0);
  for (int t = 0; t < 3; t++)
    pthread_join(producers[t], NULL);
  assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
  assert_ok(cudalink_exporter_close(exporter));
  pthread_join(consumer, NULL);
  for (int s = 1; s <= 900; s++)
    assert_int_equal(atomic_load(&got[s]), 1);
  assert_ok(cudalink_importer_close(importer));
}

/* Many channels open, run and close at the same time. */
static void *open_and_close(void *context) {
  char name[32];
  snprintf(name, sizeof name, "channel %d", (int)(intptr_t)context);
  int rounds = WITH_THREAD_SANITIZER ? 10 : 60;
  for (int i = 0; i < rounds; i++) {
    cudalink_exporter producer;
    cudalink_importer consumer;
    test_open(&producer, .name = name);
    test_join(&consumer, .name = name);
    for (int f = 0; f < 3; f++) {
      uint64_t sequence = test_send_bytes(producer, BYTES + (uint64_t)f * 300, COMPLETE);
      assert_int_equal(test_pass(consumer), sequence);
    }
    if (i % 2) assert_ok(cudalink_exporter_close(producer));
    assert_ok(cudalink_importer_close(consumer));
    if (i % 2 == 0) assert_ok(cudalink_exporter_close(producer));
  }
  return NULL;
}
static void many_channels_at_once(void **state) {
  (void)state;
  enum { MANY = 8 };
  pthread_t threads[MANY];
  for (int t = 0; t < MANY; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, open_and_close, (void *)(intptr_t)t), 0);
  for (int t = 0; t < MANY; t++)
    pthread_join(threads[t], NULL);
  test_settle();
  assert_int_equal(test_count_files(), 0);
}

/* Consumers come and go while a producer publishes, moves, and never waits for them. */
static _Atomic bool over;
static void *come_and_go(void *context) {
  int which = (int)(intptr_t)context;
  while (!atomic_load(&over)) {
    cudalink_importer consumer;
    cudalink_frame frame, kept = {0};
    if (cudalink_importer_open(
            &consumer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel",
                                                 .policy = (cudalink_policy)(which % 5),
                                                 .group = which % 5 == 4 ? "group" : NULL,
                                                 .isolated = which == 3, .hold = 2}) < 0)
      continue;
    for (int i = 0; i < 5 && !atomic_load(&over); i++) {
      if (cudalink_importer_acquire(consumer, COMPLETE, MILLISECOND, &frame) < 0) continue;
      assert_painted(&frame, frame.sequence);
      if (i % 2 && !kept.lease)
        kept = frame;
      else
        test_release(&frame);
    }
    assert_ok(cudalink_importer_close(consumer));
    if (kept.lease) {
      assert_painted(&kept, kept.sequence);
      test_release(&kept);
    }
  }
  return NULL;
}
static void members_come_and_go(void **state) {
  (void)state;
  enum { MANY = 10 };
  pthread_t threads[MANY];
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 26);
  atomic_store(&over, false);
  for (int t = 0; t < MANY; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, come_and_go, (void *)(intptr_t)t), 0);
  int frames = WITH_THREAD_SANITIZER ? 500 : 3000;
  for (int i = 0; i < frames; i++) {
    cudalink_description description = test_bytes(BYTES + (uint64_t)(i / 100) * 256);
    if (cudalink_exporter_begin(exporter, &description, MILLISECOND, &slot) < 0) continue;
    test_paint(slot.data, description.planes[0].bytes, slot.sequence);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  }
  atomic_store(&over, true);
  for (int t = 0; t < MANY; t++)
    pthread_join(threads[t], NULL);
  UNTIL((test_try_begin(exporter, MILLISECOND, &slot) < 0 ||
         cudalink_exporter_publish(exporter, &slot, COMPLETE) == CUDALINK_OK) &&
        test_sent(exporter).consumers == 0 && test_sent(exporter).retired_bytes == 0);
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(threads_share_the_frames),
    test_case(threads_share_unfinished_frames),
    test_case(one_unfinished_frame_for_many),
    test_case(frames_behind_a_mapping_are_for_all),
    test_case(frames_behind_a_mapping_are_for_who_polls),
    test_case(a_frame_taken_beside_a_mapping_is_taken_once),
    test_case(who_looks_beside_a_mapping_knows_the_producer),
    test_case(a_close_keeps_its_record),
    test_case(producers_take_turns),
    test_case(many_channels_at_once),
    test_case(members_come_and_go),
};
test_main(tests)
