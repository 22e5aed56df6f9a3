/* SPDX-License-Identifier: MIT
 *
 * A lease on a frame that is not there any more is refused, however late its consumer comes: what
 * the consumer looked at before it stored want is looked at again behind it. Inside one process the
 * consumer can be stopped between the two.
 */
#include "link_test.h"

#include "link/exporter.h"
#include "link/importer.h"

static cudalink_exporter exporter;
static cudalink_importer importer;

static struct link_attachment *lock_attachment(void) {
  struct link_importer *record = link_table_lock(&link_importers, importer.id);
  return record->attachment;
}
static void unlock_attachment(struct link_attachment *attachment) {
  link_object_unlock(atomic_load(&attachment->importer));
}

/* What a consumer of this policy would take now. */
static struct link_pick choose(cudalink_policy policy) {
  struct link_pick pick;
  struct link_attachment *attachment = lock_attachment();
  assert_true(link_choose(attachment, policy, false, &pick));
  unlock_attachment(attachment);
  return pick;
}

static void expect_lease(const struct link_pick *pick, bool given) {
  struct link_attachment *attachment = lock_attachment();
  int32_t entry = link_entry_free(attachment);
  assert_true(entry >= 0);
  bool taken = link_lease_take(attachment, (uint32_t)entry, pick);
  assert_int_equal(taken, given);
  if (taken) link_lease_undo(attachment, (uint32_t)entry);
  for (uint32_t e = 0; e < attachment->entry_count; e++) /* nothing stays wanted */
    assert_int_equal(atomic_load(&attachment->mailbox->want[e]), 0);
  unlock_attachment(attachment);
}

static void start(cudalink_policy policy, const char *group) {
  test_open(&exporter, .slots = 3, .max_slots = 3);
  test_join(&importer, .policy = policy, .group = group);
  test_send(exporter);
  test_pass(importer); /* now its memory is mapped */
}
static void end(void) {
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static void a_slot_that_is_used_again(void **state) {
  (void)state;
  start(CUDALINK_POLICY_LATEST, NULL);
  test_send(exporter);
  struct link_pick pick = choose(CUDALINK_POLICY_LATEST);
  expect_lease(&pick, true);
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  expect_lease(&pick, false);
  end();
}

/* The slot is the producer's, which writes to it. */
static void a_slot_that_is_being_written(void **state) {
  (void)state;
  cudalink_slot slot;
  start(CUDALINK_POLICY_LATEST, NULL);
  test_send(exporter);
  struct link_pick pick = choose(CUDALINK_POLICY_LATEST);
  do {
    if (test_send(exporter) > 100) fail();
    assert_ok(test_try_begin(exporter, FOREVER, &slot));
    if (slot.index != pick.slot) assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  } while (slot.index != pick.slot);
  expect_lease(&pick, false);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  end();
}

static void memory_that_was_replaced(void **state) {
  (void)state;
  start(CUDALINK_POLICY_LATEST, NULL);
  test_send(exporter);
  struct link_pick pick = choose(CUDALINK_POLICY_LATEST);
  test_send_bytes(exporter, 100 * BYTES, COMPLETE);
  expect_lease(&pick, false);
  end();
}

static void an_offer_that_was_taken_back(void **state) {
  (void)state;
  start(CUDALINK_POLICY_SHARED, "group");
  test_send(exporter);
  struct link_pick pick = choose(CUDALINK_POLICY_SHARED);
  expect_lease(&pick, true);
  pick.offer += UINT64_C(1) << 31; /* another number */
  expect_lease(&pick, false);
  assert_int_equal(test_pass(importer), 2);
  end();
}

static void what_was_announced_and_is_over(void **state) {
  (void)state;
  cudalink_host_stream *stream;
  assert_ok(cudalink_host_stream_create(&stream));
  test_open(&exporter, .slots = 4, .max_slots = 4);
  test_join(&importer, .gpu_wait = 1, .hold = 2);
  for (int i = 0; i < 3; i++) {
    test_send(exporter);
    test_pass(importer);
  }
  struct link_attachment *attachment = lock_attachment();
  uint64_t next = atomic_load(&attachment->control->next);
  struct link_pick pick = {.sequence = wire_frame_sequence(next),
                           .slot = wire_frame_slot(next),
                           .generation = atomic_load(&attachment->control->gen),
                           .announced = next};
  unlock_attachment(attachment);
  assert_int_not_equal(next, 0);
  expect_lease(&pick, true);
  test_send(exporter);
  expect_lease(&pick, false);
  end();
  cudalink_host_stream_destroy(stream);
}

/* Evicted: its leases no longer count. */
static void a_consumer_that_was_evicted(void **state) {
  (void)state;
  start(CUDALINK_POLICY_LATEST, NULL);
  test_send(exporter);
  struct link_pick pick = choose(CUDALINK_POLICY_LATEST);
  struct link_attachment *attachment = lock_attachment();
  atomic_store(&attachment->mailbox->verdict, WIRE_VERDICT_EVICTED);
  unlock_attachment(attachment);
  expect_lease(&pick, false);
  end();
}

/* A release that a stream still has to make keeps its entry; when all are kept, there is no more. */
static void a_release_that_has_not_landed(void **state) {
  (void)state;
  struct test_gate gate = {0};
  cudalink_host_stream *stream;
  cudalink_frame frame;
  assert_ok(cudalink_host_stream_create(&stream));
  test_open(&exporter, .slots = 6);
  test_join(&importer);
  test_gate_push(&gate, stream);
  for (int i = 0; i < 2; i++) { /* hold + 1 entries */
    test_send(exporter);
    frame = test_take(importer);
    assert_ok(cudalink_frame_release(&frame, CUDALINK_STREAM_HANDLE(stream)));
  }
  test_send(exporter);
  assert_true(test_try(importer, &frame) < 0);
  test_gate_open(&gate);
  assert_ok(cudalink_host_stream_synchronize(stream));
  test_pass(importer);
  end();
  cudalink_host_stream_destroy(stream);
}

/* The bell: who sleeps on it takes what was published meanwhile. */
static void *take_one(void *context) {
  *(uint64_t *)context = test_pass(importer);
  return NULL;
}
static void a_sleeper_is_woken(void **state) {
  (void)state;
  pthread_t thread;
  uint64_t taken = 0;
  start(CUDALINK_POLICY_LATEST, NULL);
  assert_int_equal(pthread_create(&thread, NULL, take_one, &taken), 0);
  UNTIL(test_got(importer).waits > 0);
  struct link_attachment *attachment = lock_attachment();
  const struct wire_mailbox *mailbox = attachment->mailbox;
  unlock_attachment(attachment);
  UNTIL(atomic_load(&mailbox->asleep));
  uint64_t sent = test_send(exporter);
  pthread_join(thread, NULL);
  assert_int_equal(taken, sent);
  end();
}

/* And who is about to sleep does not: the bell is another one behind each publish. */
static void the_bell_changes(void **state) {
  (void)state;
  start(CUDALINK_POLICY_LATEST, NULL);
  struct link_attachment *attachment = lock_attachment();
  const struct wire_control *control = attachment->control;
  unlock_attachment(attachment);
  for (int i = 0; i < 10; i++) {
    uint32_t before = atomic_load(&control->bell);
    test_send(exporter);
    assert_int_not_equal(atomic_load(&control->bell), before);
    test_pass(importer);
  }
  end();
}

static void *begin_forever(void *slot) {
  return (void *)(intptr_t)test_try_begin(exporter, FOREVER, slot);
}

/* A lease that is refused was wanted for a moment. A producer that found the slot wanted just then, and no other
 * one, waits: it is told, as of a release. */
static void a_refused_lease_is_told(void **state) {
  (void)state;
  cudalink_importer second;
  cudalink_slot slot;
  pthread_t thread;
  void *status;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer);
  test_join(&second, .name = "channel");
  test_send(exporter);
  cudalink_frame first = test_take(importer);
  struct link_pick late = {.sequence = 1000, .generation = first.generation, .slot = first.slot};
  test_send(exporter);
  cudalink_frame other = test_take(second);
  test_send(exporter); /* the newest: no slot is left */
  assert_int_equal(pthread_create(&thread, NULL, begin_forever, &slot), 0);
  UNTIL(test_sent(exporter).waits == 1);
  struct link_exporter *record = link_table_lock(&link_exporters, exporter.id);
  link_object_unlock(record);
  uint32_t before = atomic_load(&record->changed);
  struct link_attachment *attachment = lock_attachment();
  assert_false(link_lease_take(attachment, 1, &late));
  unlock_attachment(attachment);
  UNTIL(atomic_load(&record->changed) != before);
  test_release(&first);
  pthread_join(thread, &status);
  assert_ok((int)(intptr_t)status);
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  test_release(&other);
  assert_ok(cudalink_importer_close(second));
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(a_slot_that_is_used_again),
    test_case(a_slot_that_is_being_written),
    test_case(memory_that_was_replaced),
    test_case(an_offer_that_was_taken_back),
    test_case(what_was_announced_and_is_over),
    test_case(a_consumer_that_was_evicted),
    test_case(a_release_that_has_not_landed),
    test_case(a_sleeper_is_woken),
    test_case(the_bell_changes),
    test_case(a_refused_lease_is_told),
};
test_main(tests)
