/* SPDX-License-Identifier: MIT
 *
 * Channels as rows of a table: what a consumer wrote about itself may be anything.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "channel_view.h"

#include "cudalink/format.h"

static cudalink_channel_info channel;

/* A consumer with so many latencies in each of these two buckets. */
static cudalink_consumer_info *consumer_with(uint32_t first, uint64_t first_count, uint32_t second,
                                             uint64_t second_count) {
  channel = (cudalink_channel_info){.name = "view", .consumer_count = 1, .slots = 4};
  channel.consumers[0] = (cudalink_consumer_info){
      .program = "peer", .received = 8, .latency = 8, .measured = first_count + second_count};
  channel.consumers[0].latencies[first] += first_count;
  channel.consumers[0].latencies[second] += second_count;
  return channel.consumers;
}

static char *printed(const struct table_column *columns, uint64_t now, int with_consumers,
                     size_t width) {
  struct table table = {.columns = columns};
  char *text = NULL;
  size_t size;
  channel_view_rows(&table, &channel, now, NULL, with_consumers);
  FILE *stream = open_memstream(&text, &size);
  assert_non_null(stream);
  table_print(&table, width, stream);
  fclose(stream);
  table_free(&table);
  return text;
}

static char *rows(size_t width) { return printed(channel_view_columns, 0, 1, width); }

static void assert_row(size_t width, const char *wanted, int is_there) {
  char *text = rows(width);
  if ((strstr(text, wanted) != NULL) != is_there) fail_msg("%s\nin\n%s", wanted, text);
  free(text);
}

/* Both where there is room, in a narrow window the first; which is one column, also by its title. */
static void latencies_are_shown(void **state) {
  (void)state;
  consumer_with(13, 99, 17, 1); /* from 8192 and from 16384 ns on */
  assert_row(0, " 9/10 µs ", 1);
  assert_row(0, "LATENCY", 1);
  assert_row(0, "LATENCY  LATENCY", 0);
  assert_row(59, "9/10", 0);
  assert_row(59, " 9 µs", 1);
  assert_row(59, "LATENCY", 1);
  assert_row(20, "LATENCY", 0);
  consumer_with(13, 90, 57, 10); /* 16.8 ms */
  assert_row(0, " 9 µs/20 ms ", 1);
  consumer_with(95, 7, 95, 0);
  assert_row(0, " 12.8/12.8 s ", 1); /* more is not known of the last bucket */
}

static void latencies_that_are_none_are_left_out(void **state) {
  (void)state;
  consumer_with(0, 0, 0, 0);
  assert_row(0, "LATENCY", 0);
  memset(consumer_with(13, 5, 13, 0)->latencies, 0xff, sizeof channel.consumers[0].latencies);
  assert_row(0, "LATENCY", 0); /* a consumer of an older library */
}

/* A consumer's pid is at the end of the first column, which is cut last. */
static void the_pid_of_a_consumer_stays(void **state) {
  (void)state;
  consumer_with(0, 0, 0, 0);
  snprintf(channel.name, sizeof channel.name, "a long name of a camera in the hall");
  snprintf(channel.consumers[0].program, sizeof channel.consumers[0].program, "python3.11");
  channel.consumers[0].pid = 1234567;
  channel.consumers[0].hold = 1;
  for (size_t width = 20; width <= 120; width++)
    assert_row(width, "└ python3.11 1234567", 1);
  assert_row(60, "HELD", 1);
  assert_row(60, "POLICY", 0);
  assert_row(60, "a long name of a c", 1);
}

static void assert_near(double value, double wanted) {
  if (!(fabs(value - wanted) <= wanted / 1000)) fail_msg("%g, not %g", value, wanted);
}

/* Of those since the look before, spread evenly over their buckets. */
static void percentiles(void **state) {
  (void)state;
  struct channel_view_latency latency = channel_view_latency(consumer_with(1, 2, 5, 2), NULL);
  assert_near(latency.mean, 2);
  assert_near(latency.p50, 1280); /* two of four: the end of the first bucket, 1024 to 1280 */
  assert_near(latency.p99, 2048 + 512 * 0.98);
  cudalink_consumer_info before = *consumer_with(1, 2, 5, 2);
  latency = channel_view_latency(consumer_with(1, 2, 5, 4), &before);
  assert_near(latency.p50, 2048 + 256);
  latency = channel_view_latency(&before, &before);
  assert_true(isnan(latency.mean) && isnan(latency.p50) && isnan(latency.p99));
  latency = channel_view_latency(consumer_with(1, 1, 5, 0), &before); /* fewer than before */
  assert_true(isnan(latency.mean) && isnan(latency.p50) && isnan(latency.p99));
  consumer_with(94, UINT64_MAX / 2, 95, UINT64_MAX / 2); /* whatever it likes to write */
  latency = channel_view_latency(channel.consumers, NULL);
  assert_true(latency.p50 > 1e10 && latency.p99 < 1e11);
}

/* Of a channel both are those of one consumer. */
static void the_slowest_consumer(void **state) {
  (void)state;
  consumer_with(1, 9, 50, 1);
  channel.consumer_count = 3;
  channel.consumers[1].latencies[9] = 9;
  memset(channel.consumers[2].latencies, 0xff, sizeof channel.consumers[2].latencies);
  struct channel_view_latency worst = channel_view_worst_latency(&channel, NULL);
  assert_true(worst.p50 < 1280 && worst.p99 > (double)cudalink_latency_bucket_start(50));
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

static char *list_row(size_t width) {
  return printed(channel_view_list_columns, 4000000000, 0, width);
}

/* What says how frames travel is there in a window of 80 columns; why so is said by info. */
static void a_list_says_how_frames_travel(void **state) {
  (void)state;
  channel = (cudalink_channel_info){.name = "camera-1",
                                    .program = "producer",
                                    .pid = 4711,
                                    .opened = 1,
                                    .published = 1234,
                                    .newest_timestamp = 3988000000,
                                    .slots = 4,
                                    .kind = CUDALINK_KIND_VMM,
                                    .format = CUDALINK_FORMAT_RGBA8,
                                    .width = 1280,
                                    .height = 720,
                                    .path = "gpu vmm descriptor",
                                    .reason = "a reason",
                                    .device = "GPU-8932f937-d72b-4106-c12f-bcc9faed9624"};
  char *text = list_row(80);
  assert_non_null(strstr(text, "\ncamera-1  live   vmm   "));
  assert_non_null(strstr(text, "  1280x720 RGBA8  GPU-8932f937  shared by descriptor"));
  free(text);
  text = list_row(0);
  assert_null(strstr(text, "reason"));
  assert_non_null(strstr(text, "  shared by descriptor  producer 4711 "));
  free(text);
  strcpy(channel.path, "something new");
  text = list_row(0);
  assert_non_null(strstr(text, "  something new  "));
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(latencies_are_shown),
      cmocka_unit_test(latencies_that_are_none_are_left_out),
      cmocka_unit_test(the_pid_of_a_consumer_stays),
      cmocka_unit_test(percentiles),
      cmocka_unit_test(the_slowest_consumer),
      cmocka_unit_test(a_list_says_how_frames_travel),
      cmocka_unit_test(a_device_is_shown_in_short),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
