/* SPDX-License-Identifier: MIT
 *
 * When the frames of a recording are due. Only differences are looked at: no test waits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "replay_clock.h"

#include "cudalink/base.h"

#define MS UINT64_C(1000000)

/* The first frame is out. Returns when. */
static uint64_t begin(struct replay_clock *clock, uint64_t timestamp) {
  assert_int_equal(replay_clock_due(clock, timestamp), 0);
  replay_clock_sent(clock, 0);
  return clock->start;
}

static void frames_are_as_far_apart_as_they_were(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {1, 1}};
  uint64_t start = begin(&clock, 7000 * MS);
  assert_int_equal(replay_clock_due(&clock, 7016 * MS) - start, 16 * MS);
  assert_int_equal(replay_clock_due(&clock, 7033 * MS + 1) - start, 33 * MS + 1);
  assert_int_equal(replay_clock_due(&clock, 90000000 * MS) - start, 89993000 * MS);
}

static void speed_scales(void **state) {
  (void)state;
  struct replay_clock fast = {.speed = {2, 1}}, slow = {.speed = {1001, 3003}};
  uint64_t start = begin(&fast, 1);
  assert_int_equal(replay_clock_due(&fast, 1 + 10 * MS) - start, 5 * MS);
  start = begin(&slow, 1);
  assert_int_equal(replay_clock_due(&slow, 1 + 10 * MS) - start, 30 * MS);
}

/* The sum of rounded steps would drift; a year of it is still exact. */
static void nothing_adds_up(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {3, 1}};
  uint64_t start = begin(&clock, 0);
  for (uint64_t i = 1; i < 10000; i++)
    assert_int_equal(replay_clock_due(&clock, i * 10) - start, i * 10 / 3);
  uint64_t year = UINT64_C(31536000) * 1000 * MS;
  assert_int_equal(replay_clock_due(&clock, year) - start, year / 3);
}

static void zero_is_as_fast_as_possible(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {0, 1}};
  assert_int_equal(replay_clock_due(&clock, 5), 0);
  assert_int_equal(replay_clock_due(&clock, 500 * MS), 0);
  replay_clock_round(&clock);
  assert_int_equal(replay_clock_due(&clock, 5), 0);
}

static void times_never_go_back(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {1, 1}};
  uint64_t start = begin(&clock, 100 * MS);
  assert_int_equal(replay_clock_due(&clock, 110 * MS) - start, 10 * MS);
  assert_int_equal(replay_clock_due(&clock, 50 * MS) - start, 10 * MS);
  assert_int_equal(replay_clock_due(&clock, 112 * MS) - start, 12 * MS);
}

static void the_next_round_is_one_interval_later(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {1, 1}};
  uint64_t start = begin(&clock, 100 * MS);
  replay_clock_due(&clock, 110 * MS);
  replay_clock_due(&clock, 130 * MS);
  replay_clock_round(&clock);
  assert_int_equal(replay_clock_due(&clock, 100 * MS) - start, 50 * MS);
  assert_int_equal(replay_clock_due(&clock, 110 * MS) - start, 60 * MS);
}

/* Memory is touched for the first time, a consumer may be slow: it comes at once, and is on time. */
static void the_first_frame_is_never_late(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {1, 1}};
  assert_int_equal(replay_clock_due(&clock, 1000 * MS), 0);
  uint64_t before = cudalink_now();
  replay_clock_sent(&clock, 0);
  assert_int_equal(clock.late_most, 0);
  assert_true(replay_clock_due(&clock, 1010 * MS) >= before + 10 * MS);
}

/* A little late: the next frame comes when it should. Very late: everything moves. */
static void lateness(void **state) {
  (void)state;
  struct replay_clock clock = {.speed = {1, 1}};
  uint64_t start = begin(&clock, 1000 * MS), now = cudalink_now();
  replay_clock_sent(&clock, now + 1000 * MS); /* early: impossible, and no lateness */
  assert_int_equal(clock.late_most, 0);
  replay_clock_sent(&clock, now - 200 * MS);
  assert_true(clock.late_most >= 200 * MS);
  assert_true(replay_clock_due(&clock, 1010 * MS) - start >= 210 * MS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frames_are_as_far_apart_as_they_were),
      cmocka_unit_test(speed_scales),
      cmocka_unit_test(nothing_adds_up),
      cmocka_unit_test(zero_is_as_fast_as_possible),
      cmocka_unit_test(times_never_go_back),
      cmocka_unit_test(the_next_round_is_one_interval_later),
      cmocka_unit_test(the_first_frame_is_never_late),
      cmocka_unit_test(lateness),
  };
  return cmocka_run_group_tests_name("replay_clock", tests, NULL, NULL);
}
