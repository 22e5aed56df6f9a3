/* SPDX-License-Identifier: MIT
 *
 * `cudalink info`: everything about one channel.
 */
#include "channel_view.h"
#include "command.h"
#include "missing.h"
#include "options.h"
#include "report.h"
#include "terminal.h"
#include "text.h"

#include <stdarg.h>

#include <inttypes.h>

static const char notes[] = "JSON keys: " CHANNEL_VIEW_KEYS "\n"
                            "\n"
                            "examples:\n"
                            "  cudalink info cam\n"
                            "  cudalink info cam --json | jq .consumers";

static void print_line(const char *title, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void print_line(const char *title, const char *format, ...) {
  char text[512], escaped[TEXT_ESCAPED_SIZE(sizeof text)];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  printf("%-11s%s\n", title, text_escape(escaped, sizeof escaped, text));
}

static void print_frames(const cudalink_channel_info *channel, uint64_t now) {
  char age[TEXT_DURATION_SIZE], picture[CHANNEL_VIEW_PICTURE_SIZE];
  double seconds = now > channel->opened ? (double)(now - channel->opened) / 1e9 : 0;
  if (!channel->newest_timestamp) {
    print_line("frames", "none yet");
    return;
  }
  print_line("frames", "%" PRIu64 " published, %.1f per second since the open, %" PRIu64 " dropped",
             channel->published, seconds > 0 ? (double)channel->published / seconds : 0,
             channel->dropped);
  print_line("newest", "%s, %s ago", channel_view_picture(picture, channel),
             text_duration(age, channel_view_age(channel, now)));
}

static void count_cells(struct table *table, const cudalink_consumer_info *consumer) {
  if (consumer->received == CUDALINK_NOT_TOLD) return;
  table_cell(table, 7, "%" PRIu64, consumer->received);
  table_cell(table, 8, "%" PRIu64, consumer->missed);
  channel_view_latency_cells(table, 9, channel_view_latency(consumer, NULL));
}

static void print_consumers(const cudalink_channel_info *channel) {
  static const struct table_column columns[] = {{"CONSUMER", 0, 0},
                                                {"PID", 5, 1},
                                                {"POLICY", 1, 0},
                                                {"HELD", 2, 1},
                                                {"FOR", 3, 1},
                                                {"BEHIND", 4, 1},
                                                {"USER", 9, 1},
                                                {"FRAMES", 6, 1},
                                                {"MISSED", 7, 1},
                                                {"LATENCY", 8, 1},
                                                {"LATENCY", 10, TABLE_LONGER},
                                                {NULL, 0, 0}};
  struct table table = {.columns = columns};
  char policy[CHANNEL_VIEW_POLICY_SIZE], duration[TEXT_DURATION_SIZE];
  for (uint32_t i = 0; i < channel->consumer_count; i++) {
    const cudalink_consumer_info *consumer = &channel->consumers[i];
    table_begin_row(&table, LIVE_PLAIN);
    table_cell(&table, 0, "%s", consumer->program);
    if (consumer->pid) table_cell(&table, 1, "%d", consumer->pid);
    table_cell(&table, 2, "%s%s", channel_view_policy(policy, consumer),
               consumer->isolated ? " isolated" : "");
    table_cell(&table, 3, "%u/%u", consumer->held, consumer->hold);
    if (consumer->held) table_cell(&table, 4, "%s", text_duration(duration, consumer->held_for));
    if (consumer->policy == CUDALINK_POLICY_EVERY)
      table_cell(&table, 5, "%" PRIu64, channel_view_behind(channel, consumer));
    table_cell(&table, 6, "%u", consumer->uid);
    count_cells(&table, consumer);
  }
  printf("\n");
  table_print(&table, terminal_width(1), stdout);
  table_free(&table);
}

static void print(const cudalink_channel_info *channel, uint64_t now) {
  char open_for[TEXT_DURATION_SIZE];
  text_duration(open_for, now > channel->opened ? now - channel->opened : 0);
  print_line("channel", "%s", channel->name);
  print_line("producer", "%s, pid %d, user %u, open for %s", channel->program, channel->pid,
             channel->uid, open_for);
  print_frames(channel, now);
  print_line("memory", "%u slot%s of %" PRIu64 " byte%s on %s, generation %" PRIu64, channel->slots,
             text_s(channel->slots), channel->slot_bytes, text_s(channel->slot_bytes),
             cudalink_kind_name((cudalink_kind)channel->kind), channel->generation);
  if (*channel->device) print_line("device", "%s, %s", channel->device, channel->device_name);
  print_line("path", "%s: %s", channel->path, channel->reason);
  print_line("folder", "%s", channel->directory);
  print_line("consumers", "%u", channel->consumer_count);
  if (channel->consumer_count) print_consumers(channel);
}

static int run(const char *name, int is_json) {
  static cudalink_channel_info channel;
  int result = cudalink_channel_get(NULL, name, CHANNEL_VIEW_PATIENCE, &channel);
  if (result) return missing_report(name, result);
  uint64_t now = cudalink_now();
  if (is_json) {
    struct json json;
    json_start(&json, stdout);
    channel_view_json(&json, &channel, now, NULL);
    json_end(&json);
  } else {
    print(&channel, now);
  }
  return EXIT_CODE_OK;
}

int command_info(int argc, char **argv) {
  int is_json = 0;
  const char *name;
  const struct option_row rows[] = {
      {"json", OPTION_FLAG, &is_json, .help = "print one JSON object"}, OPTION_ROWS_END};
  const struct option_page page = {
      .command = "info",
      .arguments = "NAME",
      .summary = "Says everything about the channel NAME: its producer, memory and consumers.",
      .rows = rows,
      .notes = notes,
      .least_arguments = 1,
      .most_arguments = 1};
  int code = options_parse(&page, argc, argv, &name);
  return code == OPTIONS_GO ? run(name, is_json) : code;
}
