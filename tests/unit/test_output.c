/* SPDX-License-Identifier: MIT
 *
 * What a failed output takes back: of a file that stdout leads to, only what is its own.
 */
#include <fcntl.h>

#include "../media/media_test.h"
#include "media/stream.h"

static struct media_output output;
static int saved; /* the test's own stdout */

/* stdout leads to a file that has a beginning, opened so. */
static void open_stdout(int flags) {
  media_write_file("file", "mine", 4);
  int file = open("file", O_RDWR | flags);
  assert_true(file >= 0);
  if (!(flags & O_APPEND)) assert_int_equal(lseek(file, 4, SEEK_SET), 4);
  fflush(stdout);
  saved = dup(STDOUT_FILENO);
  assert_int_equal(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
  close(file);
  assert_int_equal(media_output_open(&output, "-", NULL, &media_error), CUDALINK_OK);
}

static void write_ours(const char *text) {
  assert_int_equal(media_output_write(&output, text, strlen(text), &media_error), CUDALINK_OK);
}

static void expect_file(const char *text) {
  size_t size;
  dup2(saved, STDOUT_FILENO);
  close(saved);
  uint8_t *bytes = media_read_file("file", &size);
  assert_int_equal(size, strlen(text));
  assert_memory_equal(bytes, text, size);
  free(bytes);
}

static void ours_is_taken_back(int flags) {
  open_stdout(flags);
  write_ours("whole");
  write_ours("half");
  media_output_cut(&output, 5);
  write_ours("!");
  expect_file("minewhole!");
  open_stdout(flags);
  write_ours("whole");
  media_output_discard(&output);
  expect_file("mine");
}

static void what_was_in_front_stays(void **state) {
  (void)state;
  ours_is_taken_back(0);
  ours_is_taken_back(O_APPEND);
}

/* By another program that has the same stdout, as behind `> file 2>&1`, or that appends by itself. */
static void what_others_wrote_stays(int flags, int with_the_same) {
  open_stdout(flags);
  write_ours("ab");
  int other = with_the_same ? dup(STDOUT_FILENO) : open("file", O_WRONLY | O_APPEND);
  assert_int_equal(write(other, "THEIRS", 6), 6);
  write_ours("cd");
  media_output_cut(&output, 2);
  media_output_discard(&output);
  expect_file("mineabTHEIRScd");
  close(other);
}

static void nothing_is_cut_where_others_write(void **state) {
  (void)state;
  what_others_wrote_stays(0, 1);
  what_others_wrote_stays(O_APPEND, 1);
  what_others_wrote_stays(O_APPEND, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_in_front_stays),
      cmocka_unit_test(nothing_is_cut_where_others_write),
  };
  return cmocka_run_group_tests(tests, media_make_folder, media_remove_folder);
}
