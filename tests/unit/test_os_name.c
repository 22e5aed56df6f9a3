/* SPDX-License-Identifier: MIT
 *
 * Channel names as file names: what stays, what is escaped, what is hashed, and that two names never
 * share a file unless it says that it is a hash.
 */
#include "os/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_file(const char *name, const char *expected) {
  char file[OS_FILE_SIZE], back[CUDALINK_NAME_MAX + 1];
  assert_int_equal(os_name_encode(name, file), CUDALINK_OK);
  assert_string_equal(file, expected);
  assert_true(os_name_decode(file, back));
  assert_string_equal(back, name);
}

static void plain_names_stay_as_they_are(void **state) {
  (void)state;
  check_file("camera", "camera");
  check_file("Az09_-.x", "Az09_-.x");
  check_file("cudalink_ipc_TD>>Python", "cudalink_ipc_TD%3E%3EPython");
  check_file("a/b", "a%2Fb");
  check_file("50%", "50%25");
  check_file("a~b", "a%7Eb");
  check_file("\xC3\xA4", "%C3%A4");
}

static void a_name_is_never_hidden_or_a_folder(void **state) {
  (void)state;
  check_file(".", "%2E");
  check_file("..", "%2E.");
  check_file(".hidden", "%2Ehidden");
}

static void long_names_are_cut_and_hashed(void **state) {
  (void)state;
  char name[CUDALINK_NAME_MAX + 2], file[OS_FILE_SIZE], back[CUDALINK_NAME_MAX + 1];
  memset(name, 'a', sizeof name);
  name[60] = '\0';
  check_file(name, name);
  name[60] = 'a', name[61] = '\0';
  assert_int_equal(os_name_encode(name, file), CUDALINK_OK);
  assert_int_equal(strlen(file), 57);
  assert_memory_equal(file, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa~", 41);
  assert_false(os_name_decode(file, back));
  assert_string_equal(back, "");
  name[61] = 'a', name[200] = '\0';
  assert_int_equal(os_name_encode(name, file), CUDALINK_OK);
  name[200] = 'a', name[201] = '\0';
  assert_int_equal(os_name_encode(name, file), CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void what_is_not_a_name_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "",
      "\x80",
      "a\xC3",
      "\xC0\xAF",
      "\xE0\x80\xAF",
      "\xED\xA0\x80",
      "\xF0\x80\x80\x80",
      "\xF4\x90\x80\x80",
      "\xFF",
      "\xF8\x88\x80\x80\x80",
  };
  char file[OS_FILE_SIZE];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(os_name_encode(wrong[i], file), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(os_name_encode("\xFF", file), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(cudalink_last_error(), "(1 byte, the first is 0xff)"));
  assert_int_equal(os_name_encode("a\xFF", file), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(cudalink_last_error(), "(2 bytes, the first is 0x61)"));
  assert_int_equal(os_name_encode(NULL, file), CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void files_that_no_name_has_are_not_decoded(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "",    ".hidden",
      "a b", "%",
      "%4",  "%zz",
      "%3e", "%41",
      "%00", "%FF",
      "a%2", "~",
      "a/b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  };
  char name[CUDALINK_NAME_MAX + 1];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_false(os_name_decode(wrong[i], name));
    assert_string_equal(name, "");
  }
}

static uint32_t random_next(void) {
  static uint32_t state = 2463534242U;
  state ^= state << 13, state ^= state >> 17, state ^= state << 5;
  return state;
}

/* A random code point, short ones more often. */
static size_t random_character(char *text) {
  static const uint32_t limits[] = {0x7F, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  uint32_t point = 1 + random_next() % limits[random_next() % 5];
  if (point >= 0xD800 && point <= 0xDFFF) point = 0x20AC;
  if (point < 0x80) return text[0] = (char)point, 1;
  if (point < 0x800)
    return text[0] = (char)(0xC0 | point >> 6), text[1] = (char)(0x80 | (point & 63)), 2;
  if (point < 0x10000) {
    text[0] = (char)(0xE0 | point >> 12), text[1] = (char)(0x80 | (point >> 6 & 63));
    return text[2] = (char)(0x80 | (point & 63)), 3;
  }
  text[0] = (char)(0xF0 | point >> 18), text[1] = (char)(0x80 | (point >> 12 & 63));
  return text[2] = (char)(0x80 | (point >> 6 & 63)), text[3] = (char)(0x80 | (point & 63)), 4;
}

#define NAMES 20000
struct pair {
  char name[CUDALINK_NAME_MAX + 1];
  char file[OS_FILE_SIZE];
};

static int by_file(const void *left, const void *right) {
  return strcmp(((const struct pair *)left)->file, ((const struct pair *)right)->file);
}

static void random_names_come_back_and_never_collide(void **state) {
  (void)state;
  struct pair *pairs = calloc(NAMES, sizeof *pairs);
  int hashed = 0;
  for (int i = 0; i < NAMES; i++) {
    size_t length = 0, wanted = 1 + random_next() % (random_next() % 4 ? 40 : 196);
    while (length < wanted)
      length += random_character(pairs[i].name + length);
    assert_int_equal(os_name_encode(pairs[i].name, pairs[i].file), CUDALINK_OK);
    assert_in_range(strlen(pairs[i].file), 1, 60);
    assert_true(strspn(pairs[i].file, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789_-.%~") == strlen(pairs[i].file));
    char back[CUDALINK_NAME_MAX + 1];
    if (os_name_decode(pairs[i].file, back))
      assert_string_equal(back, pairs[i].name);
    else
      hashed++, assert_non_null(strchr(pairs[i].file, '~'));
  }
  assert_in_range(hashed, NAMES / 10, NAMES - NAMES / 10); /* both kinds were tried */
  qsort(pairs, NAMES, sizeof *pairs, by_file);
  for (int i = 1; i < NAMES; i++)
    if (strcmp(pairs[i - 1].file, pairs[i].file) == 0)
      assert_string_equal(pairs[i - 1].name, pairs[i].name);
  free(pairs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_names_stay_as_they_are),
      cmocka_unit_test(a_name_is_never_hidden_or_a_folder),
      cmocka_unit_test(long_names_are_cut_and_hashed),
      cmocka_unit_test(what_is_not_a_name_is_refused),
      cmocka_unit_test(files_that_no_name_has_are_not_decoded),
      cmocka_unit_test(random_names_come_back_and_never_collide),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
