/* SPDX-License-Identifier: MIT
 *
 * Where channels live: which folder is used, which is refused, what is listed, and being told of
 * changes.
 */
#include "os/os.h"
#include "os_process.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>

static char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];

static const char *inside(const char *name) {
  static char path[4][OS_PATH_SIZE];
  static int next;
  next = (next + 1) % 4;
  snprintf(path[next], OS_PATH_SIZE, "%s/%s", test_folder, name);
  return path[next];
}

/* A clean environment, whose folders of last resort lie in the test's own. */
static int set_up(void **state) {
  if (test_folder_make(state) != 0) return -1;
  unsetenv("CUDALINK_RUNTIME_DIR");
  setenv("XDG_RUNTIME_DIR", inside("xdg"), 1);
  setenv("TMPDIR", inside("tmp"), 1);
  return 0;
}

static void assert_mode(const char *path, mode_t mode) {
  struct stat status;
  assert_int_equal(lstat(path, &status), 0);
  assert_int_equal(status.st_mode & 07777, mode);
}

static void the_first_usable_folder_is_made(void **state) {
  (void)state;
  char path[OS_PATH_SIZE], own[32];
  snprintf(own, sizeof own, "tmp/cudalink-%u", geteuid());
  mkdir(inside("tmp"), 0777);
  assert_int_equal(os_directory_own(NULL, path), 0); /* no xdg folder yet */
  if (strncmp(path, "/run/user/", 10) != 0) {
    assert_string_equal(path, inside(own));
    assert_mode(path, 0700);
  }
  mkdir(inside("xdg"), 0700);
  assert_int_equal(os_directory_own(NULL, path), 0);
  assert_string_equal(path, inside("xdg/cudalink"));
  assert_mode(path, 0700);
  assert_int_equal(os_directory_own("", path), 0); /* "" is not said */
  assert_string_equal(path, inside("xdg/cudalink"));
  chmod(inside("xdg/cudalink"), 0777); /* others may write: the next one */
  assert_int_equal(os_directory_own(NULL, path), 0);
  assert_string_not_equal(path, inside("xdg/cudalink"));
}

static void a_named_folder_is_that_one_or_an_error(void **state) {
  (void)state;
  char path[OS_PATH_SIZE];
  mkdir(inside("xdg"), 0700);
  setenv("CUDALINK_RUNTIME_DIR", inside("named//"), 1);
  assert_int_equal(os_directory_own(NULL, path), 0);
  assert_string_equal(path, inside("named"));
  assert_mode(path, 0700);
  assert_int_equal(os_directory_own(inside("option"), path), 0); /* comes first */
  assert_string_equal(path, inside("option"));
  chmod(inside("named"), 0770);
  assert_int_equal(os_directory_own(NULL, path), CUDALINK_ERROR_REFUSED);
  assert_string_equal(path, "");
  assert_non_null(strstr(cudalink_last_error(), inside("named")));
  assert_non_null(strstr(cudalink_last_error(), "mode 0770"));
  setenv("CUDALINK_RUNTIME_DIR", inside("missing/deep"), 1); /* no mkdir -p */
  assert_int_equal(os_directory_own(NULL, path), CUDALINK_ERROR_REFUSED);
  setenv("CUDALINK_RUNTIME_DIR", "relative", 1);
  assert_int_equal(os_directory_own(NULL, path), CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void what_is_no_real_folder_is_refused(void **state) {
  (void)state;
  char path[OS_PATH_SIZE];
  mkdir(inside("real"), 0700);
  assert_int_equal(symlink(inside("real"), inside("link")), 0);
  assert_int_equal(os_directory_own(inside("link"), path), CUDALINK_ERROR_REFUSED);
  assert_non_null(strstr(cudalink_last_error(), "a symbolic link"));
  assert_int_equal(os_directory_own(inside("link/"), path), CUDALINK_ERROR_REFUSED);
  close(open(inside("file"), O_CREAT | O_CLOEXEC, 0600));
  assert_int_equal(os_directory_own(inside("file"), path), CUDALINK_ERROR_REFUSED);
  char longest[OS_PATH_SIZE + 1];
  memset(longest, '/', 1), memset(longest + 1, 'x', OS_PATH_SIZE - 1), longest[OS_PATH_SIZE] = 0;
  assert_int_equal(os_directory_own(longest, path), CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void another_users_folder_is_refused(void **state) {
  (void)state;
  if (geteuid() != 0) {
    print_message("skip: needs root\n");
    skip();
  }
  char path[OS_PATH_SIZE];
  mkdir(inside("theirs"), 0700);
  assert_int_equal(chown(inside("theirs"), 12345, 12345), 0);
  assert_int_equal(os_directory_own(inside("theirs"), path), CUDALINK_ERROR_REFUSED);
  assert_non_null(strstr(cudalink_last_error(), "owner 12345, mode 0700"));
  /* XDG_RUNTIME_DIR kept by sudo: nothing of ours may appear in it. */
  setenv("XDG_RUNTIME_DIR", inside("theirs"), 1);
  mkdir(inside("tmp"), 0777);
  assert_int_equal(os_directory_own(NULL, path), 0);
  assert_string_not_equal(path, inside("theirs/cudalink"));
  assert_int_equal(access(inside("theirs/cudalink"), F_OK), -1);
  assert_int_equal(os_directory_all(inside("theirs"), paths), 2); /* but looked at when named */
}

static void all_folders_come_in_order_and_once(void **state) {
  (void)state;
  char system[64];
  snprintf(system, sizeof system, "/run/user/%u/cudalink", geteuid());
  int others = access(system, F_OK) == 0; /* of the machine that runs this */
  assert_int_equal(os_directory_all(NULL, paths), others);
  int candidates = os_directory_candidates(inside("one"), paths);
  assert_int_equal(candidates, 4);
  assert_string_equal(paths[0], inside("one"));
  assert_string_equal(paths[1], inside("xdg/cudalink"));
  mkdir(inside("one"), 0700), mkdir(inside("xdg"), 0700), mkdir(inside("xdg/cudalink"), 0700);
  setenv("CUDALINK_RUNTIME_DIR", inside("one"), 1);
  assert_int_equal(os_directory_all(inside("one"), paths), 2 + others);
  assert_string_equal(paths[0], inside("one"));
  assert_string_equal(paths[1], inside("xdg/cudalink"));
}

struct found {
  int count;
  char files[4][OS_FILE_SIZE];
};

static bool remember(void *context, const char *file) {
  struct found *found = context;
  strcpy(found->files[found->count++], file);
  return found->count < 2;
}

static void channels_are_listed(void **state) {
  (void)state;
  struct found found = {0};
  struct os_claim claims[3];
  assert_int_equal(os_directory_list(inside("none"), remember, &found), CUDALINK_ERROR_NOT_FOUND);
  close(open(inside("file.sock"), O_CREAT | O_CLOEXEC, 0600)); /* not a socket */
  assert_int_equal(os_claim_take(&claims[0], test_folder, "one", NULL), 0);
  assert_int_equal(os_directory_list(test_folder, remember, &found), 0);
  assert_int_equal(found.count, 1);
  assert_string_equal(found.files[0], "one");
  assert_int_equal(os_claim_take(&claims[1], test_folder, "two", NULL), 0);
  assert_int_equal(os_claim_take(&claims[2], test_folder, "three", NULL), 0);
  found.count = 0;
  assert_int_equal(os_directory_list(test_folder, remember, &found), 0);
  assert_int_equal(found.count, 2); /* stopped when told so */
  for (int i = 0; i < 3; i++)
    os_claim_drop(&claims[i]);
}

/* ---- watching -------------------------------------------------------------------------------- */
static bool changed(os_handle watch) {
  struct pollfd state = {.fd = watch, .events = POLLIN};
  bool readable = poll(&state, 1, 0) == 1;
  os_watch_drain(watch);
  return readable;
}

static os_handle watch_folders(const char *first, const char *second) {
  os_handle watch;
  snprintf(paths[0], OS_PATH_SIZE, "%s", first);
  snprintf(paths[1], OS_PATH_SIZE, "%s", second);
  assert_int_equal(os_watch_open((const char(*)[OS_PATH_SIZE])paths, 2, &watch), 0);
  assert_false(changed(watch));
  return watch;
}

static void a_channel_that_comes_or_goes_is_seen(void **state) {
  (void)state;
  struct os_claim claim;
  mkdir(inside("a"), 0700), mkdir(inside("b"), 0700);
  os_handle watch = watch_folders(inside("a"), inside("b"));
  for (int i = 0; i < 2; i++) {
    assert_int_equal(os_claim_take(&claim, paths[i], "name", NULL), 0);
    assert_true(changed(watch));
    os_claim_drop(&claim);
    assert_true(changed(watch));
    assert_false(changed(watch));
  }
  assert_int_equal(rmdir(paths[0]), 0);
  assert_true(changed(watch));
  os_handle_close(&watch);
}

static void a_folder_that_is_made_is_seen(void **state) {
  (void)state;
  mkdir(inside("a"), 0700);
  os_handle watch = watch_folders(inside("a"), inside("x/y/z"));
  mkdir(inside("x"), 0700);
  assert_true(changed(watch));
  os_handle_close(&watch);
  watch = watch_folders(inside("a"), inside("x/y/z"));
  mkdir(inside("other"), 0700);
  assert_false(changed(watch)); /* the nearest folder is watched now */
  mkdir(inside("x/y"), 0700);
  assert_true(changed(watch));
  os_handle_close(&watch);
  /* One folder for two reasons: as itself, and for what is missing in it. */
  watch = watch_folders(inside("x/y"), inside("x/y/z"));
  struct os_claim claim;
  assert_int_equal(os_claim_take(&claim, inside("x/y"), "name", NULL), 0);
  changed(watch);
  os_claim_drop(&claim);
  assert_true(changed(watch));
  os_handle_close(&watch);
}

static bool relevant(os_handle watch) {
  return os_watch_relevant(watch, (const char(*)[OS_PATH_SIZE])paths, 2);
}

static void touch(const char *path) { close(open(path, O_CREAT | O_CLOEXEC, 0600)); }

static void what_others_do_in_a_busy_folder_does_not_matter(void **state) {
  (void)state;
  mkdir(inside("busy"), 0700), mkdir(inside("a"), 0700);
  os_handle watch = watch_folders(inside("a"), inside("busy/x/y"));
  assert_false(relevant(watch)); /* nothing happened */
  for (int i = 0; i < 2; i++) {  /* whatever it is called, if it is not the awaited one */
    touch(inside("busy/file")), touch(inside("busy/name.sock")), touch(inside("a/x"));
    mkdir(inside("busy/y"), 0700), mkdir(inside("busy/xx"), 0700);
    struct pollfd readable = {.fd = watch, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 0), 1);
    assert_false(relevant(watch));
    assert_false(changed(watch)); /* drained */
    remove(inside("busy/file")), remove(inside("busy/name.sock")), remove(inside("a/x"));
    rmdir(inside("busy/y")), rmdir(inside("busy/xx"));
    assert_false(relevant(watch));
  }
  touch(inside("busy/file"));
  mkdir(inside("busy/x"), 0700); /* the one that matters among others */
  touch(inside("busy/other"));
  assert_true(relevant(watch));
  assert_false(changed(watch));
  mkdir(inside("new"), 0700), rename(inside("new"), inside("busy/x/y"));
  assert_true(relevant(watch)); /* the same watch: it has come nearer */
  touch(inside("busy/x/y/file"));
  assert_false(relevant(watch));
  touch(inside("busy/x/y/name.sock"));
  assert_true(relevant(watch));
  os_handle_close(&watch);
}

static void a_channel_matters(void **state) {
  (void)state;
  struct os_claim claim;
  mkdir(inside("a"), 0700);
  os_handle watch = watch_folders(inside("a"), inside("a/b")); /* for two reasons */
  assert_int_equal(os_claim_take(&claim, paths[0], "name", NULL), 0);
  assert_true(relevant(watch));
  os_claim_drop(&claim);
  assert_true(relevant(watch));
  assert_false(relevant(watch));
  for (int i = 0; i < 300; i++) { /* more than one read takes */
    char name[32];
    snprintf(name, sizeof name, "a/a-rather-long-name-%d", i);
    touch(inside(name));
  }
  assert_false(relevant(watch));
  mkdir(inside("a/b"), 0700);
  assert_true(relevant(watch));
  assert_int_equal(rmdir(inside("a/b")), 0);
  os_watch_drain(watch);
  assert_int_equal(rename(inside("a"), inside("moved")), 0); /* what it watches is elsewhere */
  assert_true(relevant(watch));
  os_handle_close(&watch);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, test_folder_remove)

int main(void) {
  const struct CMUnitTest tests[] = {
      EACH(the_first_usable_folder_is_made),
      EACH(a_named_folder_is_that_one_or_an_error),
      EACH(what_is_no_real_folder_is_refused),
      EACH(another_users_folder_is_refused),
      EACH(all_folders_come_in_order_and_once),
      EACH(channels_are_listed),
      EACH(a_channel_that_comes_or_goes_is_seen),
      EACH(a_folder_that_is_made_is_seen),
      EACH(a_channel_matters),
      EACH(what_others_do_in_a_busy_folder_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
