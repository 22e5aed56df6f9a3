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

/* A column only where some channel lies on a GPU; it is gone before those that say how it goes. */
static void a_device_is_shown_in_short(void **state) {
  (void)state;
  static cudalink_channel_info channels[2] = {{.name = "host", .kind = CUDALINK_KIND_HOST},
                                              {.name = "card", .kind = CUDALINK_KIND_VMM}};
  static const struct {
    const char *device;
    size_t width;
    int is_shown;
  } cases[] = {{"", 0, 0},
               {"GPU-8932f937-d72b-4106-c12f-bcc9faed9624", 0, 1},
               {"GPU-8932f937-d72b-4106-c12f-bcc9faed9624", 200, 1},
               {"GPU-8932f937-d72b-4106-c12f-bcc9faed9624", 40, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct table table = {.columns = channel_view_columns};
    char *text = NULL;
    size_t size;
    snprintf(channels[1].device, sizeof channels[1].device, "%s", cases[i].device);
    for (int k = 0; k < 2; k++)
      channel_view_rows(&table, &channels[k], 0, NULL, 0);
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    table_print(&table, cases[i].width, stream);
    fclose(stream);
    table_free(&table);
    assert_int_equal(strstr(text, "DEVICE") != NULL, cases[i].is_shown);
    assert_int_equal(strstr(text, "GPU-8932f937  ") != NULL, cases[i].is_shown);
    assert_null(strstr(text, "GPU-8932f937-"));
    assert_non_null(strstr(text, "DROPS"));
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_latency_is_shown),
      cmocka_unit_test(a_latency_that_is_none_is_left_out),
      cmocka_unit_test(a_device_is_shown_in_short),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
