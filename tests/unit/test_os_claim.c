/* SPDX-License-Identifier: MIT
 *
 * Owning a name: one owner at a time between racing processes, nothing left behind, nothing foreign
 * touched, and connections that reach the owner.
 */
#include "os/os.h"
#include "os_process.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>

#include "os/posix/claim.h"

#define RACE_TRIALS 2000

static void take(struct os_claim *claim, const char *file, int expected) {
  assert_int_equal(os_claim_take(claim, test_folder, file, NULL), expected);
}

static bool there(const char *file, const char *suffix) {
  char path[LINE_SIZE];
  snprintf(path, sizeof path, "%s/%s%s", test_folder, file, suffix);
  return access(path, F_OK) == 0;
}

static void a_claim_listens_and_leaves_nothing(void **state) {
  (void)state;
  struct os_claim claim;
  os_handle connection, accepted;
  assert_int_equal(os_connect(test_folder, "a", &connection), CUDALINK_ERROR_NOT_FOUND);
  take(&claim, "a", CUDALINK_OK);
  assert_true(there("a", ".sock") && there("a", ".lock"));
  assert_int_equal(os_accept(claim.listener, &accepted), CUDALINK_ERROR_BUSY);
  assert_int_equal(os_connect(test_folder, "a", &connection), CUDALINK_OK);
  assert_int_equal(os_accept(claim.listener, &accepted), CUDALINK_OK);
  struct os_credentials credentials;
  assert_int_equal(os_peer_credentials(accepted, &credentials), CUDALINK_OK);
  assert_int_equal(credentials.pid, getpid());
  assert_int_equal(credentials.uid, geteuid());
  assert_true(credentials.uid_known);
  os_handle_close(&accepted);
  os_handle_close(&connection);
  os_claim_drop(&claim);
  os_claim_drop(&claim); /* again is fine */
  assert_int_equal(rmdir(test_folder), 0);
  assert_int_equal(mkdir(test_folder, 0700), 0);
}

static void a_full_queue_says_busy(void **state) {
  (void)state;
  struct os_claim claim;
  os_handle waiting[300];
  int count = 0, result = CUDALINK_OK;
  take(&claim, "full", CUDALINK_OK);
  while (count < 300 && (result = os_connect(test_folder, "full", &waiting[count])) == 0)
    count++;
  assert_int_equal(result, CUDALINK_ERROR_BUSY);
  while (count > 0)
    os_handle_close(&waiting[--count]);
  os_claim_drop(&claim);
}

static void one_process_takes_a_name_once(void **state) {
  (void)state;
  struct os_claim claim, second;
  char linked[96];
  take(&claim, "once", CUDALINK_OK);
  take(&second, "once", CUDALINK_ERROR_NAME_IN_USE);
  assert_int_equal(second.lock, OS_NO_HANDLE);
  /* The same folder by another path; the trying must not have dropped the lock either. */
  snprintf(linked, sizeof linked, "%s/../%s", test_folder, strrchr(test_folder, '/') + 1);
  assert_int_equal(os_claim_take(&second, linked, "once", NULL), CUDALINK_ERROR_NAME_IN_USE);
  assert_false(os_claim_clean(test_folder, "once"));
  struct process other = process_start("", "take", test_folder, "once");
  process_expect(&other, "-9");
  process_end(&other, 0);
  os_claim_drop(&claim);
  take(&claim, "once", CUDALINK_OK);
  os_claim_drop(&claim);
}

static void a_refusal_names_the_owner(void **state) {
  (void)state;
  struct os_claim claim;
  char expected[LINE_SIZE];
  struct process other = process_start("", "take", test_folder, "owned");
  process_expect(&other, "0");
  take(&claim, "owned", CUDALINK_ERROR_NAME_IN_USE);
  snprintf(expected, sizeof expected, "process %d (", other.pid);
  assert_non_null(strstr(cudalink_last_error(), expected));
  assert_false(os_claim_clean(test_folder, "owned"));
  process_end(&other, 0);
}

static void a_killed_owner_is_replaced(void **state) {
  (void)state;
  struct os_claim claim;
  bool replaced;
  struct process other = process_start("", "take", test_folder, "killed");
  process_expect(&other, "0");
  process_end(&other, SIGKILL);
  assert_true(there("killed", ".sock"));
  assert_int_equal(os_claim_take(&claim, test_folder, "killed", &replaced), CUDALINK_OK);
  assert_true(replaced);
  os_claim_drop(&claim);
  assert_int_equal(os_claim_take(&claim, test_folder, "killed", &replaced), CUDALINK_OK);
  assert_false(replaced);
  os_claim_drop(&claim);
}

static void what_a_killed_owner_left_is_cleaned(void **state) {
  (void)state;
  struct process other = process_start("", "take", test_folder, "dirty");
  process_expect(&other, "0");
  process_end(&other, SIGKILL);
  assert_true(os_claim_clean(test_folder, "dirty"));
  assert_false(there("dirty", ".sock") || there("dirty", ".lock"));
  assert_false(os_claim_clean(test_folder, "dirty"));
}

static void make_file(const char *name, mode_t mode) {
  char path[LINE_SIZE];
  snprintf(path, sizeof path, "%s/%s", test_folder, name);
  int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, mode);
  assert_true(file >= 0);
  close(file);
}

static void foreign_files_are_left_alone(void **state) {
  (void)state;
  struct os_claim claim;
  char link[LINE_SIZE], target[LINE_SIZE];
  make_file("file.sock", 0640);
  take(&claim, "file", CUDALINK_ERROR_REFUSED);
  assert_non_null(strstr(cudalink_last_error(), "file.sock"));
  assert_non_null(strstr(cudalink_last_error(), "mode 0640, a regular file"));
  assert_true(there("file", ".sock"));
  assert_false(there("file", ".lock")); /* all or nothing */
  assert_false(os_claim_clean(test_folder, "file"));
  /* A symbolic link as lock file must not create or lock its target. */
  snprintf(link, sizeof link, "%s/link.lock", test_folder);
  snprintf(target, sizeof target, "%s/target", test_folder);
  assert_int_equal(symlink(target, link), 0);
  take(&claim, "link", CUDALINK_ERROR_REFUSED);
  assert_non_null(strstr(cudalink_last_error(), "a symbolic link"));
  assert_false(there("target", ""));
  snprintf(link, sizeof link, "%s/fifo.lock", test_folder);
  assert_int_equal(mkfifo(link, 0600), 0);
  take(&claim, "fifo", CUDALINK_ERROR_REFUSED);
}

static void another_users_files_are_refused(void **state) {
  (void)state;
  if (geteuid() != 0) {
    print_message("skip: needs root\n");
    skip();
  }
  char path[LINE_SIZE];
  struct os_claim claim;
  make_file("other.lock", 0600);
  snprintf(path, sizeof path, "%s/other.lock", test_folder);
  assert_int_equal(chown(path, 12345, 12345), 0);
  take(&claim, "other", CUDALINK_ERROR_REFUSED);
  assert_non_null(strstr(cudalink_last_error(), "owner 12345, mode 0600"));
  assert_true(there("other", ".lock"));
}

/* Somebody removed the lock file of a living owner: its drop must not touch the new owner's files. */
static void drop_removes_its_own_only(void **state) {
  (void)state;
  char path[LINE_SIZE];
  struct os_claim claim;
  take(&claim, "lost", CUDALINK_OK);
  snprintf(path, sizeof path, "%s/lost.lock", test_folder);
  assert_int_equal(unlink(path), 0);
  struct process other = process_start("", "take", test_folder, "lost");
  process_expect(&other, "0");
  os_claim_drop(&claim);
  assert_true(there("lost", ".sock") && there("lost", ".lock"));
  os_handle connection;
  assert_int_equal(os_connect(test_folder, "lost", &connection), CUDALINK_OK);
  os_handle_close(&connection);
  process_end(&other, 0);
}

static void long_folders_work(void **state) {
  (void)state;
  char folder[OS_PATH_SIZE], file[OS_FILE_SIZE];
  memset(file, 'f', 60), file[60] = '\0';
  snprintf(folder, sizeof folder, "%s/", test_folder);
  size_t length = strlen(folder);
  memset(folder + length, 'd', 200), folder[length + 200] = '\0';
  assert_int_equal(mkdir(folder, 0700), 0);
  struct os_claim claim;
  os_handle connection, accepted;
  assert_int_equal(os_claim_take(&claim, folder, file, NULL), CUDALINK_OK);
  assert_int_equal(os_connect(folder, file, &connection), CUDALINK_OK);
  assert_int_equal(os_accept(claim.listener, &accepted), CUDALINK_OK);
  os_handle_close(&accepted);
  os_handle_close(&connection);
  os_claim_drop(&claim);
  assert_int_equal(rmdir(folder), 0);
}

/* ---- racing processes ---------------------------------------------------------------------- */
static void exactly_one_of_two_wins(void **state) {
  (void)state;
  struct process racers[2];
  for (int i = 0; i < 2; i++)
    racers[i] = process_start("", "race", test_folder, "race");
  for (int trial = 0; trial < RACE_TRIALS; trial++) {
    int winners = 0;
    for (int i = 0; i < 2; i++)
      line_write(racers[i].channel, "take");
    for (int i = 0; i < 2; i++) {
      char line[LINE_SIZE];
      line_read(racers[i].channel, line);
      assert_true(strcmp(line, "0") == 0 || strcmp(line, "-9") == 0);
      winners += strcmp(line, "0") == 0;
    }
    assert_int_equal(winners, 1);
    /* Half of the time the winner drops, half of the time both start over a dead one's pieces. */
    for (int i = 0; i < 2; i++)
      line_write(racers[i].channel, trial % 2 ? "drop" : "forget");
    for (int i = 0; i < 2; i++)
      process_expect(&racers[i], "done");
  }
  for (int i = 0; i < 2; i++)
    process_end(&racers[i], 0);
}

/* Taking, dropping and cleaning all at once: a word in shared memory says who owns the name. */
static void owners_never_overlap(void **state) {
  (void)state;
  struct process racers[3];
  for (int i = 0; i < 3; i++)
    racers[i] = process_start("", "overlap", test_folder, "overlap");
  struct process cleaner = process_start("", "clean", test_folder, "overlap");
  for (int i = 0; i < 3; i++)
    process_expect(&racers[i], "no violation");
  for (int i = 0; i < 3; i++)
    process_end(&racers[i], 0);
  process_end(&cleaner, SIGKILL);
}

/* A program that tidies up is not an owner: a producer tries again, and says so when it gives up. */
static void a_cleaner_is_not_an_owner(void **state) {
  (void)state;
  int32_t owner;
  os_handle folder, lock;
  assert_int_equal(os_path_open(test_folder, false, &folder), 0);
  assert_int_equal(
      os_name_lock_take(folder, test_folder, "tidied", OS_NAME_LOCK_CLEAN, &lock, &owner), 0);
  struct process producer = process_start("", "take", test_folder, "tidied");
  process_expect(&producer, "-4"); /* BUSY, not NAME_IN_USE */
  process_end(&producer, 0);
  os_name_lock_drop(folder, "tidied", &lock);
  os_handle_close(&folder);
}

/* ---- helpers ------------------------------------------------------------------------------- */
static int helper_take(const char *folder, const char *file) {
  struct os_claim claim;
  char line[LINE_SIZE];
  line_write(0, "%d", os_claim_take(&claim, folder, file, NULL));
  line_read(0, line);
  os_claim_drop(&claim);
  return 0;
}

/* As if the owner had died: the lock and the listener go, the files stay. */
static void forget(struct os_claim *claim, const char *folder) {
  snprintf(claim->directory, sizeof claim->directory, "%s/nowhere", folder);
  os_claim_drop(claim);
}

static int helper_race(const char *folder, const char *file) {
  struct os_claim claim;
  for (;;) {
    char line[LINE_SIZE];
    line_read(0, line);
    if (strcmp(line, "take") == 0) {
      line_write(0, "%d", os_claim_take(&claim, folder, file, NULL));
      continue;
    }
    if (strcmp(line, "drop") == 0)
      os_claim_drop(&claim);
    else if (strcmp(line, "forget") == 0)
      forget(&claim, folder);
    else
      return 0;
    line_write(0, "done");
  }
}

static bool reaches_this_process(const char *folder, const char *file) {
  os_handle connection;
  struct os_credentials credentials;
  if (os_connect(folder, file, &connection) != CUDALINK_OK) return false;
  os_peer_credentials(connection, &credentials);
  os_handle_close(&connection);
  return credentials.pid == getpid();
}

/* 500 times owner of the name. The "shared word" is a file that only the owner may create. */
static int helper_overlap(const char *folder, const char *file) {
  char owner[LINE_SIZE];
  snprintf(owner, sizeof owner, "%s/owner", folder);
  for (int owned = 0; owned < 500;) {
    struct os_claim claim;
    int result = os_claim_take(&claim, folder, file, NULL);
    if (result == CUDALINK_ERROR_NAME_IN_USE || result == CUDALINK_ERROR_BUSY) continue;
    int word = open(owner, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (result != CUDALINK_OK || word < 0 || !reaches_this_process(folder, file)) {
      line_write(0, "violation after %d: %d, %d, %s", owned, result, word, cudalink_last_error());
      return 1;
    }
    close(word);
    unlink(owner);
    os_claim_drop(&claim);
    owned++;
  }
  line_write(0, "no violation");
  return 0;
}

static int helper_clean(const char *folder, const char *file) {
  while (getppid() > 1)
    os_claim_clean(folder, file);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[2], "take") == 0) return helper_take(argv[3], argv[4]);
  if (argc == 5 && strcmp(argv[2], "race") == 0) return helper_race(argv[3], argv[4]);
  if (argc == 5 && strcmp(argv[2], "overlap") == 0) return helper_overlap(argv[3], argv[4]);
  if (argc == 5 && strcmp(argv[2], "clean") == 0) return helper_clean(argv[3], argv[4]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_claim_listens_and_leaves_nothing),
      cmocka_unit_test(a_full_queue_says_busy),
      cmocka_unit_test(one_process_takes_a_name_once),
      cmocka_unit_test(a_refusal_names_the_owner),
      cmocka_unit_test(a_killed_owner_is_replaced),
      cmocka_unit_test(what_a_killed_owner_left_is_cleaned),
      cmocka_unit_test(foreign_files_are_left_alone),
      cmocka_unit_test(another_users_files_are_refused),
      cmocka_unit_test(drop_removes_its_own_only),
      cmocka_unit_test(long_folders_work),
      cmocka_unit_test(exactly_one_of_two_wins),
      cmocka_unit_test(owners_never_overlap),
      cmocka_unit_test(a_cleaner_is_not_an_owner),
  };
  return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
