/* SPDX-License-Identifier: MIT
 *
 * Sleeping and waking between threads and processes, deadlines, and knowing a forked child.
 */
#include "os/os.h"
#include "os_process.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

static void deadlines_saturate(void **state) {
  (void)state;
  uint64_t before = os_now();
  assert_true(os_deadline(CUDALINK_FOREVER) == OS_FOREVER);
  assert_true(os_deadline(CUDALINK_FOREVER - 1) >= before);
  assert_true(os_deadline(0) >= before && os_deadline(0) <= os_now());
  assert_true(os_deadline(-5) <= os_now());
  assert_true(os_deadline(1000) >= before + 1000);
  assert_true(cudalink_now() >= before);
}

static void a_changed_word_is_not_slept_on(void **state) {
  (void)state;
  _Atomic uint32_t word = 1;
  assert_false(os_sleep_on(&word, 0, OS_FOREVER, false));
  assert_false(os_sleep_on(&word, 0, OS_FOREVER, true));
  assert_int_equal(os_wake(&word, 1, false), 0);
}

static void a_deadline_ends_a_sleep(void **state) {
  (void)state;
  _Atomic uint32_t word = 0;
  uint64_t deadline = os_deadline(2000000);
  while (!os_sleep_on(&word, 0, deadline, false))
    continue;
  assert_true(os_now() >= deadline);
  assert_true(os_sleep_on(&word, 0, 0, false)); /* long passed */
}

static void *sleeper(void *argument) {
  _Atomic uint32_t *word = argument;
  while (atomic_load(word) == 0)
    os_sleep_on(word, 0, OS_FOREVER, false);
  return NULL;
}

static void threads_are_woken_and_counted(void **state) {
  (void)state;
  static _Atomic uint32_t word;
  pthread_t threads[4];
  int woken = 0;
  for (int i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, sleeper, (void *)&word);
  while (woken < 8)
    woken += os_wake(&word, 1, false); /* the word is 0: they sleep again */
  atomic_store(&word, 1);
  os_wake(&word, 4, false);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
}

/* The word lies in a segment that the other process can only read. */
static void processes_wake_a_read_only_mapping(void **state) {
  (void)state;
  struct os_segment segment;
  int status;
  assert_int_equal(os_segment_create(&segment, "test", 4096), 0);
  assert_int_equal(os_segment_seal_writers(&segment), 0);
  _Atomic uint32_t *word = segment.address;
  pid_t child = fork();
  if (child == 0) {
    struct os_segment reader;
    if (os_segment_map(&reader, segment.handle, 4096, false, true) != 0) _exit(1);
    munmap(segment.address, 4096);
    const _Atomic uint32_t *bell = reader.address;
    while (atomic_load(bell) == 0)
      os_sleep_on(bell, 0, OS_FOREVER, true);
    _exit(0);
  }
  while (os_wake(word, 1, true) == 0)
    sched_yield(); /* until it was seen asleep */
  atomic_store(word, 1);
  os_wake(word, 1, true);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  os_segment_destroy(&segment);
}

static void a_forked_child_knows_it(void **state) {
  (void)state;
  int status;
  assert_false(os_forked());
  assert_int_equal(os_fork_guard_set(), 0);
  assert_int_equal(os_fork_guard_set(), 0);
  assert_false(os_forked());
  pid_t child = fork();
  if (child == 0) {
    bool known = os_forked() && os_fork_guard_set() == CUDALINK_ERROR_FORKED;
    pid_t grandchild = fork();
    if (grandchild == 0) _exit(os_forked() ? 0 : 1);
    waitpid(grandchild, &status, 0);
    _exit(known && status == 0 ? 0 : 1);
  }
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  assert_false(os_forked());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(deadlines_saturate),
      cmocka_unit_test(a_changed_word_is_not_slept_on),
      cmocka_unit_test(a_deadline_ends_a_sleep),
      cmocka_unit_test(threads_are_woken_and_counted),
      cmocka_unit_test(processes_wake_a_read_only_mapping),
      cmocka_unit_test(a_forked_child_knows_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
