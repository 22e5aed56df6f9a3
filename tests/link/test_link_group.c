/* SPDX-License-Identifier: MIT
 *
 * Shared groups: every frame goes to exactly one member, also when members leave, are evicted, or
 * come back, and when the producer closes.
 */
#include "link_test.h"

#define MEMBERS 3
#define MOST 512

/* How often each frame was delivered, and how often with the mark. */
struct tally {
  unsigned got[MOST], marked[MOST];
};

static void note(struct tally *tally, const cudalink_frame *frame) {
  assert_painted(frame, frame->sequence);
  assert_true(frame->sequence < MOST);
  tally->got[frame->sequence]++;
  if (frame->flags & CUDALINK_FRAME_REDELIVERED) tally->marked[frame->sequence]++;
}

static void assert_tally(const struct tally *tally, uint64_t first, uint64_t last, unsigned times) {
  for (uint64_t s = first; s <= last; s++) {
    if (tally->got[s] == times) continue;
    print_error("frame %llu was delivered %u times, not %u\n", (unsigned long long)s, tally->got[s],
                times);
    fail();
  }
}

#define join(importer, ...)                                                                        \
  test_join(importer, .policy = CUDALINK_POLICY_SHARED, .group = "workers", ##__VA_ARGS__)

static void open_and_join(cudalink_exporter *exporter, uint32_t slots, cudalink_importer *members,
                          unsigned count) {
  test_open(exporter, .slots = slots);
  for (unsigned m = 0; m < count; m++)
    join(&members[m]);
}

/* Lets members take what they are offered until `count` frames were delivered. */
static void take_all(const cudalink_importer *members, unsigned member_count, unsigned count,
                     struct tally *tally) {
  while (count) {
    cudalink_frame frame;
    for (unsigned m = 0; m < member_count; m++) {
      int status = test_try(members[m], &frame);
      if (status == CUDALINK_ERROR_TIMEOUT) continue;
      assert_ok(status);
      note(tally, &frame);
      test_release(&frame);
      count--;
    }
    sched_yield();
  }
}

/* Waits until one of them gets a frame; says which. */
static unsigned take_one(const cudalink_importer *members, unsigned member_count,
                         cudalink_frame *frame, struct tally *tally) {
  for (unsigned m = 0;; m = (m + 1) % member_count) {
    int status = test_try(members[m], frame);
    if (status == CUDALINK_ERROR_TIMEOUT) continue;
    assert_ok(status);
    note(tally, frame);
    return m;
  }
}

static void publish(cudalink_exporter exporter, const cudalink_slot *slot) {
  test_paint(slot->data, BYTES, slot->sequence);
  assert_ok(cudalink_exporter_publish(exporter, slot, COMPLETE));
}

static void assert_nothing(cudalink_importer member) {
  cudalink_frame frame;
  assert_status(CUDALINK_ERROR_TIMEOUT, test_try(member, &frame));
}

static void each_frame_goes_to_one_member(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer members[MEMBERS];
  struct tally tally = {{0}, {0}};
  open_and_join(&exporter, 0, members, MEMBERS); /* 0: the default */
  for (int i = 0; i < 300; i++) {
    test_send(exporter);
    take_all(members, MEMBERS, 1, &tally);
  }
  assert_tally(&tally, 1, 300, 1);
  uint64_t received = 0;
  for (int m = 0; m < MEMBERS; m++) {
    cudalink_importer_statistics statistics = test_got(members[m]);
    assert_true(statistics.received >= 90); /* in turn */
    assert_int_equal(statistics.redelivered, 0);
    assert_int_equal(statistics.missed, 0);
    received += statistics.received;
    assert_ok(cudalink_importer_close(members[m]));
  }
  assert_int_equal(received, 300);
  assert_int_equal(test_sent(exporter).redelivered, 0);
  assert_int_equal(test_sent(exporter).dropped, 0);
  assert_ok(cudalink_exporter_close(exporter));
}

static void more_frames_than_members_wait_in_order(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer member;
  test_open(&exporter, .slots = 8);
  join(&member);
  for (int i = 0; i < 5; i++)
    test_send(exporter);
  for (uint64_t s = 1; s <= 5; s++)
    assert_int_equal(test_pass(member), s);
  assert_nothing(member);
  assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
  assert_ok(cudalink_importer_close(member));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Frames that nobody has taken hold their slots: the producer waits, and nothing is lost. */
static void nobody_free_means_wait(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer member;
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  join(&member);
  uint64_t sent = 0;
  while (test_try_begin(exporter, 0, &slot) == CUDALINK_OK) {
    publish(exporter, &slot);
    sent++;
  }
  assert_in_range(sent, 2, 3);
  assert_status(CUDALINK_ERROR_TIMEOUT, cudalink_exporter_wait_taken(exporter, 0));
  for (uint64_t s = 1; s <= sent; s++)
    assert_int_equal(test_pass(member), s);
  assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
  test_send(exporter);
  assert_ok(cudalink_importer_close(member));
  assert_ok(cudalink_exporter_close(exporter));
}

static void every_group_gets_every_frame(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer one[2], two[2];
  struct tally first = {{0}, {0}}, second = {{0}, {0}};
  test_open(&exporter, .slots = 8);
  for (int m = 0; m < 2; m++) {
    join(&one[m]);
    test_join(&two[m], .policy = CUDALINK_POLICY_SHARED, .group = "others");
  }
  for (int i = 0; i < 50; i++) {
    test_send(exporter);
    take_all(one, 2, 1, &first);
    take_all(two, 2, 1, &second);
  }
  assert_tally(&first, 1, 50, 1);
  assert_tally(&second, 1, 50, 1);
  for (int m = 0; m < 2; m++) {
    assert_ok(cudalink_importer_close(one[m]));
    assert_ok(cudalink_importer_close(two[m]));
  }
  assert_ok(cudalink_exporter_close(exporter));
}

static void without_members_nothing_is_kept(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer member;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  join(&member);
  test_send(exporter);
  assert_int_equal(test_pass(member), 1);
  assert_ok(cudalink_importer_close(member));
  UNTIL(test_sent(exporter).consumers == 0);
  for (int i = 0; i < 10; i++)
    test_send(exporter);
  join(&member);
  assert_nothing(member); /* what came before it is not its business */
  uint64_t next = test_send(exporter);
  assert_int_equal(test_pass(member), next);
  assert_ok(cudalink_importer_close(member));
  assert_ok(cudalink_exporter_close(exporter));
}

/* The last member leaves with frames undone; whoever comes next gets them, without a new frame. */
static void orphans_go_to_the_next_member(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer member;
  struct tally tally = {{0}, {0}};
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  join(&member);
  uint64_t sent = 0;
  while (test_try_begin(exporter, 0, &slot) == CUDALINK_OK) {
    publish(exporter, &slot);
    sent++;
  }
  assert_ok(cudalink_importer_close(member));
  UNTIL(test_sent(exporter).consumers == 0);
  join(&member);
  take_all(&member, 1, (unsigned)sent, &tally);
  assert_tally(&tally, 1, sent, 1);
  test_send(exporter);
  assert_ok(cudalink_importer_close(member));
  assert_ok(cudalink_exporter_close(exporter));
}

/* A group whose members are all gone must not stop the producer for longer than hold_limit. */
static void orphans_are_dropped_after_hold_limit(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer member;
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT);
  join(&member);
  test_send(exporter);
  test_send(exporter);
  assert_ok(cudalink_importer_close(member));
  UNTIL(test_sent(exporter).consumers == 0);
  for (int i = 0; i < 6; i++) {
    assert_ok(test_try_begin(exporter, FOREVER, &slot));
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  }
  assert_int_equal(test_sent(exporter).evicted, 0);
  assert_ok(cudalink_exporter_close(exporter));
}

/* A member that goes without having taken its offer: the frame goes to another, once, and is not
 * marked, since nobody died with it. */
static void an_offer_of_a_leaver_goes_on(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer members[2];
  struct tally tally = {{0}, {0}};
  open_and_join(&exporter, 6, members, 2);
  for (int i = 0; i < 2; i++)
    test_send(exporter); /* one for each */
  assert_ok(cudalink_importer_close(members[0]));
  take_all(&members[1], 1, 2, &tally);
  assert_tally(&tally, 1, 2, 1);
  assert_int_equal(tally.marked[1] + tally.marked[2], 0);
  assert_nothing(members[1]);
  assert_ok(cudalink_importer_close(members[1]));
  assert_ok(cudalink_exporter_close(exporter));
}

/* A closed importer gets nothing more, also while a frame of it is still held. */
static void a_closed_member_gets_no_offers(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer members[2];
  struct tally tally = {{0}, {0}};
  open_and_join(&exporter, 8, members, 2);
  test_send(exporter);
  cudalink_frame held;
  unsigned holder = take_one(members, 2, &held, &tally);
  assert_ok(cudalink_importer_close(members[holder]));
  UNTIL(test_sent(exporter).consumers == 1); /* it has said good-bye */
  for (int i = 0; i < 5; i++) {
    test_send(exporter);
    take_all(&members[1 - holder], 1, 1, &tally);
  }
  assert_tally(&tally, 1, 6, 1);
  assert_painted(&held, 1);
  test_release(&held);
  assert_nothing(members[1 - holder]); /* it was released, not lost */
  assert_ok(cudalink_importer_close(members[1 - holder]));
  assert_ok(cudalink_exporter_close(exporter));
}

/* The producer closes while one member holds a frame and another has an offer: nobody gets what
 * somebody else has, or takes. */
static void close_delivers_nothing_twice(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer members[MEMBERS];
  struct tally tally = {{0}, {0}};
  open_and_join(&exporter, 8, members, MEMBERS);
  test_send(exporter);
  cudalink_frame held;
  unsigned holder = take_one(members, MEMBERS, &held, &tally);
  test_send(exporter); /* offered to one of the others, or to the holder */
  test_send(exporter);
  assert_ok(cudalink_exporter_close(exporter));
  test_settle();
  for (unsigned m = 0; m < MEMBERS; m++) {
    cudalink_frame frame;
    int status;
    if (m == holder) test_release(&held);
    while ((status = test_try(members[m], &frame)) != CUDALINK_ERROR_ENDED) {
      if (status == CUDALINK_ERROR_TIMEOUT) continue;
      assert_ok(status);
      note(&tally, &frame);
      test_release(&frame);
    }
  }
  assert_tally(&tally, 1, 3, 1);
  for (int m = 0; m < MEMBERS; m++) {
    assert_int_equal(test_got(members[m]).redelivered, 0);
    assert_ok(cudalink_importer_close(members[m]));
  }
}

/* Two sit on frames, one of them a member of the group, and nothing is free: the member is evicted. Its
 * frame is offered to another one, once, marked, and stays whole in the hands of the first.
 * False: this machine was so busy that the other member was evicted too. */
static bool evict_one(int64_t hold_limit) {
  cudalink_exporter exporter;
  cudalink_importer slow, sitter, quick;
  cudalink_slot slot;
  cudalink_frame frame, again = {0};
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = hold_limit,
            .zombie_limit = 1u << 20);
  join(&slow);
  test_send(exporter);
  cudalink_frame first = test_take(slow);
  join(&quick);
  test_join(&sitter);
  test_send(exporter);
  test_pass(quick);
  cudalink_frame second = test_take(sitter);
  test_send(exporter);
  test_pass(quick);
  while (!test_sent(exporter).evicted)
    assert_status(CUDALINK_ERROR_BUSY, test_try_begin(exporter, MILLISECOND, &slot));
  bool in_time = test_sent(exporter).evicted == 1 &&
                 cudalink_importer_acquire(quick, COMPLETE, FOREVER, &again) == CUDALINK_OK;
  if (in_time) {
    assert_int_equal(again.sequence, 1);
    assert_int_equal(again.flags, CUDALINK_FRAME_REDELIVERED);
    assert_painted(&again, 1);
    assert_int_equal(test_got(quick).redelivered, 1);
    assert_int_equal(test_sent(exporter).redelivered, 1);
    assert_status(CUDALINK_ERROR_EVICTED, test_try(slow, &frame));
    assert_int_equal(test_got(slow).evictions, 1);
    assert_painted(&first, 1);
    test_release(&again);
    uint64_t next = test_send(exporter);
    assert_painted(&first, 1);
    (void)next;
  }
  assert_painted(&first, 1);
  assert_painted(&second, 2);
  test_release(&first);
  test_release(&second);
  assert_ok(cudalink_importer_close(slow));
  assert_ok(cudalink_importer_close(quick));
  assert_ok(cudalink_importer_close(sitter));
  assert_ok(cudalink_exporter_close(exporter));
  return in_time;
}

static void an_evicted_members_frame_is_offered_again(void **state) {
  (void)state;
  int64_t hold_limit = SHORT;
  while (!evict_one(hold_limit))
    hold_limit *= 2;
}

/* A frame that kills its worker must not kill them all: it is offered twice at most. Workers sit on
 * it one after the other; whatever else happens, at most two ever see it. */
static void a_frame_is_redelivered_once_at_most(void **state) {
  (void)state;
  enum { WORKERS = 4 };
  cudalink_exporter exporter;
  cudalink_importer workers[WORKERS];
  cudalink_frame held[WORKERS] = {{0}};
  cudalink_slot slot;
  struct tally tally = {{0}, {0}};
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = SHORT, .zombie_limit = 1u << 20);
  for (int w = 0; w < WORKERS; w++)
    join(&workers[w]);
  while (test_sent(exporter).evicted < 8) {
    /* Not while all of them are on their way back: then nothing holds the producer up, and as many frames go
     * to nobody as it has time for. */
    bool any = test_sent(exporter).consumers > 0;
    if (any && test_try_begin(exporter, MILLISECOND, &slot) == CUDALINK_OK)
      publish(exporter, &slot);
    for (int w = 0; w < WORKERS; w++) {
      cudalink_frame frame;
      int status = test_try(workers[w], &frame);
      if (status == CUDALINK_ERROR_EVICTED && held[w].lease) {
        assert_painted(&held[w], held[w].sequence);
        test_release(&held[w]);
      }
      if (status < 0) continue;
      note(&tally, &frame);
      held[w] = frame; /* and sits on it */
    }
  }
  for (uint64_t s = 1; s < MOST; s++) {
    assert_in_range(tally.got[s], 0, 2);
    assert_in_range(tally.marked[s], 0, 1);
    assert_true(tally.got[s] < 2 || tally.marked[s] == 1);
  }
  for (int w = 0; w < WORKERS; w++) {
    if (held[w].lease) test_release(&held[w]);
    assert_ok(cudalink_importer_close(workers[w]));
  }
  assert_ok(cudalink_exporter_close(exporter));
}

/* A worker sits on a frame of old memory, and its group's frames fill the new one. */
static void a_hand_full_of_old_memory_stops_nobody(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer worker;
  test_open(&exporter, .slots = 4, .max_slots = 4, .hold_limit = SHORT, .zombie_limit = 1u << 20);
  join(&worker);
  test_send(exporter);
  cudalink_frame held = test_take(worker);
  for (int i = 0; i < 10; i++)
    test_send_bytes(exporter, 10 * BYTES, COMPLETE);
  assert_painted(&held, 1);
  test_release(&held);
  assert_ok(cudalink_importer_close(worker));
  assert_ok(cudalink_exporter_close(exporter));
}

/* The channel must move, a worker never lets go, and frames wait for it: it is evicted all the same. */
static void a_full_hand_stops_no_move(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer worker;
  test_open(&exporter, .slots = 4, .hold_limit = SHORT, .zombie_limit = 1u << 20);
  join(&worker);
  test_send(exporter);
  cudalink_frame held = test_take(worker);
  test_send(exporter); /* nobody has a hand free for it */
  test_send_bytes(exporter, 10 * BYTES, COMPLETE);
  assert_painted(&held, 1);
  test_release(&held);
  assert_ok(cudalink_importer_close(worker));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Work waits for a member that is free, not for one whose hands are full. */
static void a_busy_member_keeps_no_frame_from_a_free_one(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer members[2];
  struct tally tally = {{0}, {0}};
  open_and_join(&exporter, 12, members, 2);
  test_send(exporter);
  cudalink_frame held;
  unsigned busy = take_one(members, 2, &held, &tally);
  for (int i = 0; i < 6; i++)
    test_send(exporter);
  take_all(&members[1 - busy], 1, 6, &tally);
  assert_tally(&tally, 1, 7, 1);
  test_release(&held);
  assert_ok(cudalink_importer_close(members[0]));
  assert_ok(cudalink_importer_close(members[1]));
  assert_ok(cudalink_exporter_close(exporter));
}

/* An isolated member of a group, or a clear no. */
static void an_isolated_member_works_or_is_refused(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer member;
  test_open(&exporter, .slots = 6, .hold_limit = FOREVER);
  int status = cudalink_importer_open(
      &member, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel",
                                         .policy = CUDALINK_POLICY_SHARED, .group = "workers",
                                         .isolated = 1, .open_timeout = FOREVER});
  if (status == CUDALINK_OK) {
    struct tally tally = {{0}, {0}};
    test_send(exporter); /* its block is made now */
    test_send(exporter);
    take_all(&member, 1, 1, &tally);
    assert_ok(cudalink_importer_close(member));
  } else {
    assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, status);
    assert_said("isolated");
  }
  assert_ok(cudalink_exporter_close(exporter));
}

/* A frame is offered while the memory grows: both generations are delivered once. */
static void a_group_across_generations(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer members[2];
  struct tally tally = {{0}, {0}};
  test_open(&exporter, .slots = 4, .hold_limit = FOREVER);
  join(&members[0]);
  join(&members[1]);
  uint64_t bytes = BYTES;
  for (int i = 0; i < 20; i++) {
    bytes += i % 5 == 4 ? 5000 : 0;
    test_send_bytes(exporter, bytes, COMPLETE);
    take_all(members, 2, 1, &tally);
  }
  assert_tally(&tally, 1, 20, 1);
  assert_true(test_sent(exporter).generations >= 5);
  assert_ok(cudalink_importer_close(members[0]));
  assert_ok(cudalink_importer_close(members[1]));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(each_frame_goes_to_one_member),
    test_case(more_frames_than_members_wait_in_order),
    test_case(nobody_free_means_wait),
    test_case(every_group_gets_every_frame),
    test_case(without_members_nothing_is_kept),
    test_case(orphans_are_dropped_after_hold_limit),
    test_case(an_offer_of_a_leaver_goes_on),
    test_case(close_delivers_nothing_twice),
    test_case(an_evicted_members_frame_is_offered_again),
    test_case(a_frame_is_redelivered_once_at_most),
    test_case(a_hand_full_of_old_memory_stops_nobody),
    test_case(a_full_hand_stops_no_move),
    test_case(a_group_across_generations),
    test_case(a_busy_member_keeps_no_frame_from_a_free_one),
    test_case(an_isolated_member_works_or_is_refused),
    test_case(a_closed_member_gets_no_offers),
    test_case(orphans_go_to_the_next_member),
};
test_main(tests)
