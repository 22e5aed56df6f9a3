/* SPDX-License-Identifier: MIT
 *
 * `cudalink gc`: removes what dead producers left behind.
 */
#include "command.h"
#include "json.h"
#include "options.h"
#include "report.h"
#include "text.h"

#include "cudalink/channels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char notes[] =
    "What a living producer owns is never touched. The next producer of a name removes its\n"
    "leftovers by itself, so this is for order only.\n"
    "\n"
    "JSON keys: dry_run; removed, a count; leftovers, a list: name directory reason.\n"
    "\n"
    "examples:\n"
    "  cudalink gc --dry-run\n"
    "  cudalink gc";

struct leftover {
  char name[CUDALINK_NAME_MAX + 1];
  char directory[256];
  int has_socket;
};

struct leftovers {
  struct leftover *list;
  size_t count;
  int has_failed;
};

static void add(void *context, const char *directory, const char *name, int has_socket) {
  struct leftovers *leftovers = context;
  struct leftover *grown =
      realloc(leftovers->list, (leftovers->count + 1) * sizeof *leftovers->list);
  if (!grown) {
    leftovers->has_failed = 1;
    return;
  }
  leftovers->list = grown;
  struct leftover *leftover = &grown[leftovers->count++];
  snprintf(leftover->name, sizeof leftover->name, "%s", name);
  snprintf(leftover->directory, sizeof leftover->directory, "%s", directory);
  leftover->has_socket = has_socket;
}

static int find_all(struct leftovers *leftovers) {
  int result = cudalink_channels_leftovers(NULL, add, leftovers);
  if (result) return report_library(result);
  return leftovers->has_failed ? report(EXIT_CODE_SYSTEM, "no memory to list what is left over")
                               : EXIT_CODE_OK;
}

static int has(const struct leftovers *leftovers, const struct leftover *wanted) {
  for (size_t i = 0; i < leftovers->count; i++)
    if (strcmp(leftovers->list[i].name, wanted->name) == 0 &&
        strcmp(leftovers->list[i].directory, wanted->directory) == 0)
      return 1;
  return 0;
}

/* Removes, and keeps in `leftovers` what has gone. */
static int clean(struct leftovers *leftovers) {
  struct leftovers after = {0};
  size_t kept = 0;
  int result = cudalink_channels_clean(NULL, NULL);
  if (result) return report_library(result);
  int code = find_all(&after);
  for (size_t i = 0; i < leftovers->count; i++)
    if (!has(&after, &leftovers->list[i])) leftovers->list[kept++] = leftovers->list[i];
  leftovers->count = kept;
  free(after.list);
  return code;
}

static const char *reason_of(const struct leftover *leftover) {
  return leftover->has_socket ? "its producer has died, nobody listens at its socket"
                              : "its producer has died and left a lock file, but no socket";
}

static void print_json(const struct leftovers *leftovers, int is_dry_run) {
  struct json json;
  json_start(&json, stdout);
  json_flag(&json, "dry_run", is_dry_run);
  json_number(&json, "removed", is_dry_run ? 0 : leftovers->count);
  json_open_list(&json, "leftovers");
  for (size_t i = 0; i < leftovers->count; i++) {
    json_open_object(&json, NULL);
    json_text(&json, "name", leftovers->list[i].name);
    json_text(&json, "directory", leftovers->list[i].directory);
    json_text(&json, "reason", reason_of(&leftovers->list[i]));
    json_close_object(&json);
  }
  json_close_list(&json);
  json_end(&json);
}

static void print(const struct leftovers *leftovers, int is_dry_run) {
  char name[TEXT_ESCAPED_SIZE(CUDALINK_NAME_MAX)];
  for (size_t i = 0; i < leftovers->count; i++)
    printf("%s %s, in %s: %s\n", is_dry_run ? "would remove" : "removed",
           text_escape(name, sizeof name, leftovers->list[i].name), leftovers->list[i].directory,
           reason_of(&leftovers->list[i]));
  if (!leftovers->count) printf("nothing to remove\n");
}

static int run(int is_json, int is_dry_run) {
  struct leftovers leftovers = {0};
  int code = find_all(&leftovers);
  if (!code && !is_dry_run) code = clean(&leftovers);
  if (!code && is_json) print_json(&leftovers, is_dry_run);
  if (!code && !is_json) print(&leftovers, is_dry_run);
  free(leftovers.list);
  return code;
}

int command_gc(int argc, char **argv) {
  int is_json = 0, is_dry_run = 0;
  const struct option_row rows[] = {
      {"dry-run", OPTION_FLAG, &is_dry_run,
       .help = "say what would be removed, and why; remove nothing"},
      {"json", OPTION_FLAG, &is_json, .help = "print one JSON object"},
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "gc",
      .arguments = "",
      .summary = "Removes the sockets and lock files that dead producers left behind.",
      .rows = rows,
      .notes = notes};
  int code = options_parse(&page, argc, argv, NULL);
  return code == OPTIONS_GO ? run(is_json, is_dry_run) : code;
}
