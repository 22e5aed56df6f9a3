/* SPDX-License-Identifier: MIT
 *
 * Processes that measure together: why one of them fails is told whole.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench.h"

#define WHERE "a place that is long in coming"

static char *page; /* of a word that is not there yet when it is wanted */
static long page_size;

/* For many looks of the process that waits for this one. Nothing depends on how many there are. */
static void bring_the_page(int number) {
  (void)number;
  usleep(100000);
  mprotect(page, (size_t)page_size, PROT_READ);
}

static int producer_that_fails(struct bench_scene *scene) {
  signal(SIGSEGV, bring_the_page);
  return scene->parameter ? bench_leave_out(scene, "the disk of %s is slow", page)
                          : bench_fail(scene, "the disk of %s is slow", page);
}

static int consumer_that_waits(struct bench_scene *scene, uint32_t seat) {
  bench_wait_for(scene, &scene->word, 1 + seat);
  return BENCH_FAILED; /* not the first one that tells */
}

static void play(int64_t parameter, int expected) {
  struct bench_options options = {0};
  struct bench_case test = {.options = &options, .parameter = parameter, .rounds = 1};
  page_size = sysconf(_SC_PAGESIZE);
  page = mmap(NULL, (size_t)page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(page, MAP_FAILED);
  memcpy(page, WHERE, sizeof WHERE);
  assert_int_equal(mprotect(page, (size_t)page_size, PROT_NONE), 0);
  assert_int_equal(bench_play(&test, NULL, producer_that_fails, consumer_that_waits, 2), expected);
  assert_string_equal(test.text, "the disk of " WHERE " is slow");
  munmap(page, (size_t)page_size);
}

static void a_failure_is_told_whole(void **state) {
  (void)state;
  play(0, BENCH_FAILED);
}

static void why_it_is_left_out_is_told_whole(void **state) {
  (void)state;
  play(1, BENCH_LEFT_OUT);
}

static int producer_that_dies(struct bench_scene *scene) {
  signal(SIGSEGV, SIG_DFL);
  return bench_fail(scene, "the disk of %s is slow", page);
}

/* It dies while it tells why: the others are ended all the same. */
static void a_death_in_the_middle_ends_it(void **state) {
  (void)state;
  struct bench_options options = {0};
  struct bench_case test = {.options = &options, .rounds = 1};
  page_size = sysconf(_SC_PAGESIZE);
  page = mmap(NULL, (size_t)page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(page, MAP_FAILED);
  assert_int_equal(bench_play(&test, NULL, producer_that_dies, consumer_that_waits, 2),
                   BENCH_FAILED);
  munmap(page, (size_t)page_size);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_is_told_whole),
      cmocka_unit_test(why_it_is_left_out_is_told_whole),
      cmocka_unit_test(a_death_in_the_middle_ends_it),
  };
  return cmocka_run_group_tests_name("bench_stage", tests, NULL, NULL);
}
