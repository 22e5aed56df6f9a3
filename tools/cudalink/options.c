/* SPDX-License-Identifier: MIT
 *
 * Command lines: getopt_long with a table of ours.
 */
#include "options.h"
#include "nearest.h"
#include "option_value.h"
#include "report.h"

#include "media/pattern.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define MOST_ROWS 40
#define HELP (MOST_ROWS + 1)
#define COLUMN 28

const char *const option_kinds[] = {"auto", "host", "vmm", "ipc", NULL};
const char *const option_policies[] = {"latest", "ready", "order", "every", "shared", NULL};
const char *const option_patterns[] = {
#define PATTERN_NAME(upper, lower) lower,
    PATTERNS(PATTERN_NAME)
#undef PATTERN_NAME
        NULL};

static void print_row(const char *name, const struct option_row *row) {
  char left[128];
  int length = snprintf(left, sizeof left, "  --%s", name);
  if (row && row->type == OPTION_CHOICE)
    for (int i = 0; row->choices[i]; i++)
      length += snprintf(left + length, sizeof left - (size_t)length, "%c%s", i ? '|' : ' ',
                         row->choices[i]);
  else if (row && row->value)
    length += snprintf(left + length, sizeof left - (size_t)length, " %s", row->value);
  const char *help = row ? row->help : "this text";
  if (length >= COLUMN)
    printf("%s\n%*s%s\n", left, COLUMN, "", help);
  else
    printf("%-*s%s\n", COLUMN, left, help);
}

static int print_help(const struct option_page *page) {
  printf("usage: cudalink %s%s%s [options]\n\n%s\n\noptions:\n", page->command,
         *page->arguments ? " " : "", page->arguments, page->summary);
  for (const struct option_row *row = page->rows; row->name; row++)
    print_row(row->name, row);
  print_row("help", NULL);
  if (page->notes) printf("\n%s\n", page->notes);
  return EXIT_CODE_OK;
}

/* No such option; but a channel may be called like that. */
static int fail_no_option(const struct option_page *page, const char *option) {
  if (strstr(page->arguments, "NAME"))
    return report(EXIT_CODE_USAGE,
                  "%s has no option %s; see cudalink %s --help (a NAME like that goes behind --: "
                  "cudalink %s -- %s)",
                  page->command, option, page->command, page->command, option);
  return report(EXIT_CODE_USAGE, "%s has no option %s; see cudalink %s --help", page->command,
                option, page->command);
}

static int fail_letter(const struct option_page *page, int letter) {
  char option[] = {'-', (char)letter, '\0'};
  return fail_no_option(page, option);
}

static int fail_unknown(const struct option_page *page, const char *text) {
  char option[64];
  while (*text == '-')
    text++;
  snprintf(option, sizeof option, "--%.*s", (int)strcspn(text, "="), text);
  struct nearest nearest = nearest_to(option + 2);
  for (const struct option_row *row = page->rows; row->name; row++)
    nearest_offer(&nearest, row->name);
  if (nearest.best)
    return report(EXIT_CODE_USAGE, "%s has no option %s; did you mean --%s?", page->command, option,
                  nearest.best);
  return fail_no_option(page, option);
}

/* What getopt_long answers '?' for: an unknown name, the beginning of several, or a value where
 * none belongs. */
static int fail_refused(const struct option_page *page, const char *text) {
  const char *word = text + strspn(text, "-");
  size_t length = strcspn(word, "=");
  for (const struct option_row *row = page->rows; row->name; row++)
    if (word[length] == '=' && strlen(row->name) == length && !strncmp(row->name, word, length))
      return report(EXIT_CODE_USAGE, "%s: --%s takes no value", page->command, row->name);
  return fail_unknown(page, text);
}

static int fill_table(const struct option_page *page, struct option *table) {
  int count = 0;
  for (const struct option_row *row = page->rows; row->name && count < MOST_ROWS; row++, count++)
    table[count] =
        (struct option){.name = row->name,
                        .has_arg = row->type == OPTION_FLAG ? no_argument : required_argument,
                        .val = count + 1};
  table[count] = (struct option){.name = "help", .val = HELP};
  table[count + 1] = (struct option){0};
  return count;
}

static int parse_row(const struct option_page *page, const struct option_row *row) {
  char reason[256];
  if (option_value_parse(row, optarg, reason, sizeof reason)) return OPTIONS_GO;
  return report(EXIT_CODE_USAGE, "%s: --%s %.60s: %s", page->command, row->name, optarg, reason);
}

static int take_arguments(const struct option_page *page, int argc, char **argv,
                          const char **arguments) {
  int count = argc - optind;
  if (count < page->least_arguments)
    return report(EXIT_CODE_USAGE, "%s needs %s; see cudalink %s --help", page->command,
                  page->arguments, page->command);
  if (count > page->most_arguments)
    return report(EXIT_CODE_USAGE, "%s: what is \"%.60s\"? It takes %s; see cudalink %s --help",
                  page->command, argv[optind + page->most_arguments],
                  *page->arguments ? page->arguments : "options only", page->command);
  for (int i = 0; i < count; i++)
    arguments[i] = argv[optind + i];
  return OPTIONS_GO;
}

int options_parse(const struct option_page *page, int argc, char **argv, const char **arguments) {
  struct option table[MOST_ROWS + 2];
  int result = OPTIONS_GO;
  if (argc > 1 && strcmp(argv[1], OPTIONS_COMPLETE) == 0)
    return options_complete(page, argc - 2, argv + 2);
  fill_table(page, table);
  opterr = 0;
  optind = 0; /* 0 makes getopt start anew, whatever was parsed before */
  while (result == OPTIONS_GO) {
    int found = getopt_long(argc, argv, ":h", table, NULL);
    if (found == -1) return take_arguments(page, argc, argv, arguments);
    if (found == 'h' || found == HELP) return print_help(page);
    if (found == ':')
      return report(EXIT_CODE_USAGE, "%s: %s needs a value; see cudalink %s --help", page->command,
                    argv[optind - 1], page->command);
    if (found == '?') {
      /* A short option; long ones leave 0 or their `val`. */
      return optopt > HELP ? fail_letter(page, optopt) : fail_refused(page, argv[optind - 1]);
    }
    result = parse_row(page, &page->rows[found - 1]);
  }
  return result;
}
