/* SPDX-License-Identifier: MIT
 *
 * Reading the environment. No state: objects read when they are opened, and keep what they read.
 */
#include "base/environment.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const struct environment_variable environment_variables[ENVIRONMENT_COUNT] = {
#define VARIABLE(name, type, standard, largest, text)                                              \
  {"CUDALINK_" #name, ENVIRONMENT_##type, standard, largest, text},
    ENVIRONMENT_VARIABLES(VARIABLE)
#undef VARIABLE
};

const char *const *environment_words(enum environment_type type) {
  static const char *const priorities[] = {"normal", "low", "high", NULL};
  static const char *const backends[] = {"auto", "python", "native", NULL};
  return type == ENVIRONMENT_PRIORITY ? priorities : type == ENVIRONMENT_BACKEND ? backends : NULL;
}

/* Strict: only "1" is on. Anything but "0" and "1" is off as well, but hardly meant. */
static bool parse_flag(const char *text, uint64_t *value) {
  *value = strcmp(text, "1") == 0;
  return *value || strcmp(text, "0") == 0;
}

static bool parse_number(const char *text, uint64_t *value) {
  uint64_t number = 0;
  for (; *text >= '0' && *text <= '9'; text++)
    if (__builtin_mul_overflow(number, 10u, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
      return false;
  *value = number;
  return *text == '\0';
}

static bool parse_word(const char *text, const char *const *words, uint64_t *value) {
  for (uint64_t i = 0; words[i]; i++)
    if (strcmp(text, words[i]) == 0) return *value = i, true;
  return false;
}

static bool parse(const struct environment_variable *variable, const char *text, uint64_t *value) {
  switch (variable->type) {
  case ENVIRONMENT_FLAG: return parse_flag(text, value);
  case ENVIRONMENT_NUMBER: return parse_number(text, value) && *value <= variable->largest;
  case ENVIRONMENT_PRIORITY:
  case ENVIRONMENT_BACKEND: return parse_word(text, environment_words(variable->type), value);
  case ENVIRONMENT_TEXT: break;
  }
  return false;
}

struct environment_value environment_read(enum environment_name name) {
  const struct environment_variable *variable = &environment_variables[name];
  struct environment_value result = {.value = variable->standard};
  const char *text = secure_getenv(variable->name);
  if (!text || !*text) return result;
  uint64_t value = variable->standard;
  if (parse(variable, text, &value)) return (struct environment_value){true, value};
  if (variable->type == ENVIRONMENT_FLAG) {
    log_write(CUDALINK_LOG_WARNING, "%s is '%.80s', which means off: only 1 means on",
              variable->name, text);
    return (struct environment_value){true, false};
  }
  log_write(CUDALINK_LOG_WARNING, "%s is '%.80s', which is not understood: taken as not set",
            variable->name, text);
  return result;
}

bool environment_is_on(enum environment_name name) { return environment_read(name).value != 0; }
