/* SPDX-License-Identifier: MIT
 *
 * What could stand at the end of a command line: candidates for the completion of shells, from the
 * same table that parses it. Printing nothing means: a file name, or anything.
 */
#include "options.h"

#include "cudalink/channels.h"
#include "cudalink/format.h"
#include "exit_code.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE INT64_C(100000000) /* ns: somebody waits in front of a shell */

static const struct option_row *find_row(const struct option_page *page, const char *word) {
  if (strncmp(word, "--", 2) != 0) return NULL;
  for (const struct option_row *row = page->rows; row->name; row++)
    if (strcmp(row->name, word + 2) == 0) return row;
  return NULL;
}

/* The GPUs on which channels lie, each once. */
static void print_devices(void) {
  cudalink_channel_info *channels;
  size_t count;
  if (cudalink_channels_list(NULL, PATIENCE, &channels, &count)) return;
  for (size_t i = 0; i < count; i++) {
    size_t first = 0;
    while (strcmp(channels[first].device, channels[i].device) != 0)
      first++;
    if (first == i && *channels[i].device) printf("%s\n", channels[i].device);
  }
  cudalink_channels_free(channels);
}

static void print_values(const struct option_row *row) {
  cudalink_format format = CUDALINK_FORMAT_NONE;
  if (row->type == OPTION_CHOICE)
    for (int i = 0; row->choices[i]; i++)
      printf("%s\n", row->choices[i]);
  if (row->type == OPTION_GPU) print_devices();
  if (row->type == OPTION_FORMAT)
    while ((format = cudalink_format_next(format)) != CUDALINK_FORMAT_NONE)
      printf("%s\n", cudalink_format_name((uint32_t)format));
}

static void print_options(const struct option_page *page) {
  for (const struct option_row *row = page->rows; row->name; row++)
    printf("--%s\n", row->name);
  printf("--help\n");
}

/* Names with control characters are left to those who can type them. */
static void print_channels(void) {
  char escaped[TEXT_ESCAPED_SIZE(CUDALINK_NAME_MAX)];
  cudalink_channel_info *channels;
  size_t count;
  if (cudalink_channels_list(NULL, PATIENCE, &channels, &count)) return;
  for (size_t i = 0; i < count; i++)
    if (channels[i].status == CUDALINK_OK &&
        strcmp(text_escape(escaped, sizeof escaped, channels[i].name), channels[i].name) == 0)
      printf("%s\n", channels[i].name);
  cudalink_channels_free(channels);
}

/* How many words before the last one are arguments: neither options nor their values. */
static int count_arguments(const struct option_page *page, int count, char **words) {
  int arguments = 0;
  for (int i = 0; i + 1 < count; i++) {
    const struct option_row *row = find_row(page, words[i]);
    if (row && row->type != OPTION_FLAG)
      i++;
    else if (words[i][0] != '-' || !words[i][1])
      arguments++;
  }
  return arguments;
}

/* Argument `number` of "FILE NAME", "NAME [FILE]" or "start|stop": a channel, a file, or a choice. */
static void print_argument(const char *arguments, int number) {
  while (number-- > 0) {
    arguments += strcspn(arguments, " ");
    arguments += strspn(arguments, " ");
  }
  size_t length = strcspn(arguments, " ");
  if (strncmp(arguments, "NAME", 4) == 0) print_channels();
  if (!memchr(arguments, '|', length)) return;
  for (size_t i = 0; i < length; i++)
    putchar(arguments[i] == '|' ? '\n' : arguments[i]);
  putchar('\n');
}

int options_complete(const struct option_page *page, int count, char **words) {
  const struct option_row *row = count > 1 ? find_row(page, words[count - 2]) : NULL;
  if (count < 1) return EXIT_CODE_OK;
  if (row && row->type != OPTION_FLAG)
    print_values(row);
  else if (words[count - 1][0] == '-')
    print_options(page);
  else
    print_argument(page->arguments, count_arguments(page, count, words));
  return EXIT_CODE_OK;
}
