/* SPDX-License-Identifier: MIT
 *
 * `cudalink list`: the channels that there are.
 */
#include "channel_filter.h"
#include "channel_view.h"
#include "command.h"
#include "options.h"
#include "report.h"
#include "terminal.h"

static const char notes[] =
    "State: live; dead, when nobody is behind the name any more (cudalink gc removes it);\n"
    "refused, when the producer is another user's; silent, when it does not answer, for\n"
    "instance because it is stopped; version, when it speaks another one.\n"
    "\n"
    "With --json one object per line and channel, with the keys " CHANNEL_VIEW_KEYS "\n"
    "\n"
    "examples:\n"
    "  cudalink list\n"
    "  cudalink list --kind vmm\n"
    "  cudalink list --device GPU-8932f937\n"
    "  cudalink list --json | jq -r .name";

static void print_json(const cudalink_channel_info *channel, uint64_t now) {
  struct json json;
  json_start(&json, stdout);
  channel_view_json(&json, channel, now, NULL);
  json_end(&json);
}

static void print_table(const cudalink_channel_info *channels, size_t count, uint64_t now) {
  struct table table = {.columns = channel_view_list_columns};
  for (size_t i = 0; i < count; i++)
    channel_view_rows(&table, &channels[i], now, NULL, 0);
  table_print(&table, terminal_width(1), stdout);
  table_free(&table);
}

int command_list(int argc, char **argv) {
  int is_json = 0;
  struct channel_filter filter = {0};
  const struct option_row rows[] = {
      CHANNEL_FILTER_ROWS(&filter),
      {"json", OPTION_FLAG, &is_json, .help = "print a JSON object per channel"},
      OPTION_ROWS_END};
  const struct option_page page = {.command = "list",
                                   .arguments = "",
                                   .summary = "Lists the channels of this user, live or dead.",
                                   .rows = rows,
                                   .notes = notes};
  int code = options_parse(&page, argc, argv, NULL);
  if (code != OPTIONS_GO) return code;
  code = channel_filter_resolve(&filter);
  if (code != EXIT_CODE_OK) return code;
  cudalink_channel_info *channels;
  size_t count;
  int result = cudalink_channels_list(NULL, CHANNEL_VIEW_PATIENCE, &channels, &count);
  if (result) return report_library(result);
  char wanted[CHANNEL_FILTER_TEXT_SIZE];
  uint64_t now = cudalink_now();
  size_t found = count;
  count = channel_filter_apply(&filter, channels, count);
  for (size_t i = 0; is_json && i < count; i++)
    print_json(&channels[i], now);
  if (!is_json && count) print_table(channels, count, now);
  if (!is_json && !found) printf("no channels; cudalink send NAME makes one\n");
  if (!is_json && found && !count)
    printf("no channels%s among the %zu that there are\n", channel_filter_text(wanted, &filter),
           found);
  cudalink_channels_free(channels);
  return EXIT_CODE_OK;
}
