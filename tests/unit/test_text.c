/* SPDX-License-Identifier: MIT
 *
 * Text on its way to a person: escapes, widths, durations; and tables made of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "histogram.h"
#include "table.h"
#include "text.h"

static void assert_escaped(const char *text, const char *wanted) {
  char escaped[256];
  assert_string_equal(text_escape(escaped, sizeof escaped, text), wanted);
}

static void what_steers_a_terminal_is_escaped(void **state) {
  (void)state;
  assert_escaped("plain > \"text\"\\ ümläut 日本 \U0001f600",
                 "plain > \"text\"\\ ümläut 日本 \U0001f600");
  assert_escaped("\x1b[2J\n\r\t\x7f", "\\x1b[2J\\x0a\\x0d\\x09\\x7f");
  assert_escaped("\xc2\x9b"
                 "31m",
                 "\\u009b31m"); /* CSI in one character */
  assert_escaped("\u202e\u200b\ufeff", "\\u202e\\u200b\\ufeff");
}

static void what_is_no_utf8_is_escaped(void **state) {
  (void)state;
  assert_escaped("\xff\xfe", "\\xff\\xfe");
  assert_escaped("a\xc3", "a\\xc3");                 /* cut off */
  assert_escaped("\xc0\xaf", "\\xc0\\xaf");          /* too long a form */
  assert_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
  assert_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
  assert_escaped("\xe6\x97", "\\xe6\\x97");
}

static void escapes_are_never_cut_in_two(void **state) {
  (void)state;
  char escaped[8];
  assert_string_equal(text_escape(escaped, sizeof escaped, "ab\x1b\x1b"), "ab\\x1b");
  assert_string_equal(text_escape(escaped, sizeof escaped, "abcdef日"), "abcdef");
}

static void widths_are_those_of_a_terminal(void **state) {
  (void)state;
  assert_int_equal(text_columns("ümläut"), 6);
  assert_int_equal(text_columns("日本"), 4);
  assert_int_equal(text_columns("e\u0301"), 1);
  assert_int_equal(text_fit("日本", 3), 3); /* bytes: one letter of two columns */
  assert_int_equal(text_fit("ab", 5), 2);
  assert_int_equal(text_fit("ümläut", 2), 3);
  assert_int_equal(text_fit("e\u0301x", 1), 3); /* the mark stays with its letter */
}

static void durations_are_short(void **state) {
  (void)state;
  static const struct {
    uint64_t nanoseconds;
    const char *text;
  } cases[] = {{0, "0 µs"},
               {999999, "999 µs"},
               {1000000, "1 ms"},
               {999999999, "999 ms"},
               {1000000000, "1.0 s"},
               {59999999999, "59.9 s"},
               {60000000000, "1 min"},
               {3600000000000, "1 h"},
               {86400000000000, "1 d"},
               {UINT64_MAX, "213503 d"}};
  char text[TEXT_DURATION_SIZE];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_string_equal(text_duration(text, cases[i].nanoseconds), cases[i].text);
}

/* ---- tables --------------------------------------------------------------------------------- */

static const struct table_column columns[] = {{"NAME", 0, 0},
                                              {"FPS", 1, 1},
                                              {"EMPTY", 2, 0},
                                              {"STATE", 3, 0},
                                              {NULL, 0, 0}};

static void assert_table(size_t width, const char *wanted) {
  struct table table = {.columns = columns};
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  table_begin_row(&table, LIVE_PLAIN);
  table_cell(&table, 0, "%s", "a long name");
  table_cell(&table, 1, "%d", 5);
  table_cell(&table, 3, "%s", "live");
  table_begin_row(&table, LIVE_PLAIN);
  table_cell(&table, 0, "%s", "日本\n");
  table_cell(&table, 1, "%d", 1000);
  table_print(&table, width, stream);
  fclose(stream);
  assert_string_equal(text, wanted);
  table_free(&table);
  free(text);
}

static void tables_fit_their_window(void **state) {
  (void)state;
  assert_table(0, "NAME          FPS  STATE\n"
                  "a long name     5  live\n"
                  "日本\\x0a     1000\n");
  assert_table(24, "NAME          FPS  STATE\n"
                   "a long name     5  live\n"
                   "日本\\x0a     1000\n");
  assert_table(23, "NAME         FPS  STATE\n"
                   "a long na…     5  live\n"
                   "日本\\x0a    1000\n");
  assert_table(16, "NAME         FPS\n"
                   "a long na…     5\n"
                   "日本\\x0a    1000\n");
  assert_table(11, "NAME\na long name\n日本\\x0a\n");
  assert_table(5, "NAME\na lo…\n日本…\n");
  assert_table(1, "…\n…\n…\n");
}

/* One of the two, with the longer one as long as there is room for it. */
static void the_longer_of_two_columns(void **state) {
  (void)state;
  static const struct table_column pair[] = {
      {"N", 0, 0}, {"TIME", 1, 1}, {"TIME", 3, TABLE_LONGER}, {"MORE", 2, 0}, {NULL, 0, 0}};
  static const struct {
    size_t width;
    const char *text;
  } cases[] = {{0, "N     TIME  MORE\nn  1/20 ms  x\n"},
               {16, "N     TIME  MORE\nn  1/20 ms  x\n"},
               {15, "N  TIME  MORE\nn  1 ms  x\n"},
               {13, "N  TIME  MORE\nn  1 ms  x\n"},
               {12, "N  TIME\nn  1 ms\n"},
               {6, "N\nn\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct table table = {.columns = pair};
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    table_begin_row(&table, LIVE_PLAIN);
    table_cell(&table, 0, "n");
    table_cell(&table, 1, "1 ms");
    table_cell(&table, 2, "1/20 ms");
    table_cell(&table, 3, "x");
    table_print(&table, cases[i].width, stream);
    fclose(stream);
    assert_string_equal(text, cases[i].text);
    table_free(&table);
    free(text);
  }
}

static void assert_latency(uint64_t time, const char *half) {
  static struct histogram histogram;
  char text[TEXT_DURATION_SIZE];
  histogram = (struct histogram){.count = 0};
  if (time) histogram_add(&histogram, time);
  assert_string_equal(histogram_text(text, &histogram, 0.5), half);
  assert_string_equal(histogram_text(text, &histogram, 0.99), half);
}

static void latencies_have_few_digits(void **state) {
  (void)state;
  assert_latency(0, "-"); /* there is none yet */
  assert_latency(30, "0 µs");
  assert_latency(14000, "14 µs");
  assert_latency(9900000, "9961 µs");
  assert_latency(12000000, "12 ms");
  assert_latency(1040187000, "1.0 s");
}

static void assert_wrapped(const char *text, size_t width, const char *wanted) {
  char *got = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&got, &size);
  text_print_wrapped(text, width, 2, stream);
  fclose(stream);
  assert_string_equal(got, wanted);
  free(got);
}

static void long_lines_are_wrapped_at_words(void **state) {
  (void)state;
  assert_wrapped("one two three", 0, "one two three"); /* no limit */
  assert_wrapped("one two three", 13, "one two three");
  assert_wrapped("one two three", 12, "one two\n  three");
  assert_wrapped("one two three", 7, "one two\n  three");
  assert_wrapped("one two three", 6, "one\n  two\n  three");
  assert_wrapped("日本日本 ümläut", 8, "日本日本\n  ümläut");
  assert_wrapped("/a/word/without-end and", 5, "/a/word/without-end\n  and");
  assert_wrapped("", 5, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_steers_a_terminal_is_escaped),
      cmocka_unit_test(what_is_no_utf8_is_escaped),
      cmocka_unit_test(escapes_are_never_cut_in_two),
      cmocka_unit_test(widths_are_those_of_a_terminal),
      cmocka_unit_test(durations_are_short),
      cmocka_unit_test(latencies_have_few_digits),
      cmocka_unit_test(long_lines_are_wrapped_at_words),
      cmocka_unit_test(tables_fit_their_window),
      cmocka_unit_test(the_longer_of_two_columns),
  };
  return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
