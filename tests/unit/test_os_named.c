/* SPDX-License-Identifier: MIT
 *
 * Memory with a name: made exclusively, owned by a lock, opened only where it is this user's memory.
 */
#include "os/os.h"
#include "os_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char name[64];

static int fresh_name(void **state) {
  static int count;
  (void)state;
  snprintf(name, sizeof name, "/cudalink_test_named_%d_%d", getpid(), count++);
  return 0;
}

static int drop_name(void **state) {
  (void)state;
  shm_unlink(name);
  return 0;
}

static void made_once_and_exactly(void **state) {
  (void)state;
  struct os_named made, again;
  struct stat status;
  assert_false(os_named_exists(name));
  assert_int_equal(os_named_create(&made, name, 433), CUDALINK_OK);
  assert_int_equal(fstat(made.segment.handle, &status), 0);
  assert_int_equal(status.st_size, 433);
  assert_int_equal(status.st_mode & 0777, 0600);
  assert_true(status.st_blocks > 0);
  for (int i = 0; i < 433; i++)
    assert_int_equal(((const uint8_t *)made.segment.address)[i], 0);
  assert_int_equal(os_named_create(&again, name, 433), CUDALINK_ERROR_NAME_IN_USE);
  assert_int_equal(again.segment.handle, OS_NO_HANDLE);
  assert_true(os_named_exists(name));
  assert_true(os_named_is_current(&made, name));
  os_named_unlink(&made, name);
  assert_false(os_named_exists(name));
  assert_false(os_named_is_current(&made, name));
  os_segment_destroy(&made.segment);
}

static void opened_as_it_is(void **state) {
  (void)state;
  struct os_named made, opened;
  assert_int_equal(os_named_open(&opened, name, false), CUDALINK_ERROR_NOT_FOUND);
  assert_int_equal(os_named_create(&made, name, 433), CUDALINK_OK);
  memcpy(made.segment.address, "hello", 5);
  assert_int_equal(os_named_open(&opened, name, true), CUDALINK_OK);
  assert_int_equal(opened.segment.bytes, 433);
  assert_memory_equal(opened.segment.address, "hello", 5);
  memcpy(opened.segment.address, "olleh", 5);
  assert_memory_equal(made.segment.address, "olleh", 5);
  os_segment_destroy(&opened.segment);
  assert_int_equal(ftruncate(made.segment.handle, 0), 0);
  assert_int_equal(os_named_open(&opened, name, false), CUDALINK_ERROR_BUSY);
  os_segment_destroy(&made.segment);
}

/* A successor's segment is not removed with ours. */
static void unlinks_its_own_only(void **state) {
  (void)state;
  struct os_named first, second;
  assert_int_equal(os_named_create(&first, name, 100), CUDALINK_OK);
  shm_unlink(name);
  assert_int_equal(os_named_create(&second, name, 100), CUDALINK_OK);
  assert_false(os_named_is_current(&first, name));
  os_named_unlink(&first, name);
  assert_true(os_named_exists(name));
  os_segment_destroy(&first.segment);
  os_segment_destroy(&second.segment);
}

/* The lock lives as long as the mapping, but not in a forked child; it conflicts within one process,
 * too. */
static void owned_by_a_lock(void **state) {
  (void)state;
  struct os_named made, opened;
  assert_int_equal(os_named_create(&made, name, 100), CUDALINK_OK);
  assert_int_equal(os_named_lock(&made, name), CUDALINK_OK);
  assert_int_equal(os_named_open(&opened, name, true), CUDALINK_OK);
  assert_int_equal(os_named_lock(&opened, name), CUDALINK_ERROR_NAME_IN_USE);
  os_handle_close(&made.segment.handle);
  assert_int_equal(os_named_lock(&opened, name), CUDALINK_ERROR_NAME_IN_USE);
  int end[2];
  assert_int_equal(pipe(end), 0);
  pid_t child = fork();
  if (child == 0) _exit(read(end[0], end, 1) != 1); /* lives on */
  os_segment_destroy(&made.segment);
  assert_int_equal(os_named_lock(&opened, name), CUDALINK_OK);
  int status = 1;
  assert_int_equal(write(end[1], "x", 1), 1);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(end[0]);
  close(end[1]);
  os_segment_destroy(&opened.segment);
}

static void refuses_what_is_no_memory(void **state) {
  (void)state;
  char path[128];
  struct os_named opened;
  snprintf(path, sizeof path, "/dev/shm%s", name);
  assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not wait for a writer */
  assert_int_equal(os_named_open(&opened, name, false), CUDALINK_ERROR_REFUSED);
  assert_int_equal(opened.segment.handle, OS_NO_HANDLE);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink("/etc/hostname", path), 0);
  assert_int_equal(os_named_open(&opened, name, false), CUDALINK_ERROR_REFUSED);
  assert_int_equal(unlink(path), 0);
}

static void another_users_is_refused(void **state) {
  (void)state;
  if (geteuid() != 0) return; /* only root can make one */
  struct os_named made, opened;
  assert_int_equal(os_named_create(&made, name, 100), CUDALINK_OK);
  assert_int_equal(fchown(made.segment.handle, 12345, (gid_t)-1), 0);
  assert_int_equal(os_named_open(&opened, name, false), CUDALINK_ERROR_REFUSED);
  assert_non_null(strstr(cudalink_last_error(), "12345"));
  os_segment_destroy(&made.segment);
}

static void names_that_appear_are_told(void **state) {
  (void)state;
  struct pollfd watch = {.events = POLLIN};
  struct os_named made;
  assert_int_equal(os_named_watch(&watch.fd), CUDALINK_OK);
  assert_int_equal(os_named_create(&made, name, 100), CUDALINK_OK);
  assert_int_equal(poll(&watch, 1, 10000), 1);
  os_watch_drain(watch.fd);
  os_named_unlink(&made, name);
  os_segment_destroy(&made.segment);
  os_named_unwatch(watch.fd);
  assert_int_equal(os_named_create(&made, name, 100), CUDALINK_OK);
  assert_int_equal(poll(&watch, 1, 0), 0);
  os_named_unlink(&made, name);
  os_segment_destroy(&made.segment);
  assert_true(os_named_rewatch(watch.fd));
  assert_int_equal(os_named_create(&made, name, 100), CUDALINK_OK);
  assert_int_equal(poll(&watch, 1, 10000), 1);
  os_segment_destroy(&made.segment);
  os_handle_close(&watch.fd);
}

int main(void) {
#define NAMED(test) cmocka_unit_test_setup_teardown(test, fresh_name, drop_name)
  const struct CMUnitTest tests[] = {
      NAMED(made_once_and_exactly),      NAMED(opened_as_it_is),
      NAMED(unlinks_its_own_only),       NAMED(owned_by_a_lock),
      NAMED(refuses_what_is_no_memory),  NAMED(another_users_is_refused),
      NAMED(names_that_appear_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
