/* SPDX-License-Identifier: MIT
 *
 * Prints the table of docs/environment.md from src/base/environment.h. scripts/page-table writes it
 * into the page, and with --check compares.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/environment.h"

static void print_values(const struct environment_variable *variable) {
  const char *const *words = environment_words(variable->type);
  if (variable->type == ENVIRONMENT_FLAG)
    printf("1 = on");
  else if (variable->type == ENVIRONMENT_NUMBER)
    printf("a number");
  else if (variable->type == ENVIRONMENT_TEXT)
    printf("a text");
  for (int i = 0; words && words[i]; i++)
    printf("%s%s", i ? ", " : "", words[i]);
}

static void print_default(const struct environment_variable *variable) {
  const char *const *words = environment_words(variable->type);
  if (words)
    printf("%s", words[variable->standard]);
  else if (variable->type == ENVIRONMENT_TEXT)
    printf("none");
  else
    printf("%" PRIu64, variable->standard);
}

int main(void) {
  puts("| variable | values | default | what it does |");
  puts("| --- | --- | --- | --- |");
  for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
    const struct environment_variable *variable = &environment_variables[i];
    printf("| `%s` | ", variable->name);
    print_values(variable);
    printf(" | ");
    print_default(variable);
    printf(" | %s |\n", variable->text);
  }
  return 0;
}
