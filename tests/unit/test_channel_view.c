/* SPDX-License-Identifier: MIT
 *
 * Channels as rows of a table: what a consumer wrote about itself may be anything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "channel_view.h"

static char *rows_of(uint64_t latency, uint64_t measured) {
  cudalink_channel_info channel = {.name = "view", .consumer_count = 1, .slots = 4};
  struct table table = {.columns = channel_view_columns};
  char *text = NULL;
  size_t size;
  channel.consumers[0] = (cudalink_consumer_info){
      .program = "peer", .received = 8, .latency = latency, .measured = measured};
  channel_view_rows(&table, &channel, 0, NULL, 1);
  FILE *stream = open_memstream(&text, &size);
  assert_non_null(stream);
  table_print(&table, 0, stream);
  fclose(stream);
  table_free(&table);
  return text;
}

static void a_latency_is_shown(void **state) {
  (void)state;
  char *text = rows_of(30000000000, 2);
  assert_non_null(strstr(text, "LATENCY"));
  assert_non_null(strstr(text, "15.0 s"));
  free(text);
}

static void a_latency_that_is_none_is_left_out(void **state) {
  (void)state;
  char *text = rows_of(UINT64_MAX, 1), *none = rows_of(0, 0);
  assert_null(strstr(text, "LATENCY")); /* a column that is empty goes */
  assert_string_equal(text, none);
  free(text);
  free(none);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_latency_is_shown),
      cmocka_unit_test(a_latency_that_is_none_is_left_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
