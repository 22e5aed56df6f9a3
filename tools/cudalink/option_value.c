/* SPDX-License-Identifier: MIT
 *
 * Values of options. The whole text must be a value; nothing is cut off or rounded in silence.
 */
#include "option_value.h"
#include "nearest.h"

#include "cudalink/format.h"
#include "cudalink/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND INT64_C(1000000000)

static const char *device_uuid;

/* Digits up to the first other character. 0: there are none, or the number is too large. */
static int parse_digits(const char **text, uint64_t maximum, uint64_t *number) {
  const char *start = *text;
  *number = 0;
  for (; **text >= '0' && **text <= '9'; (*text)++) {
    uint64_t digit = (uint64_t)(**text - '0');
    if (*number > (maximum - digit) / 10) return 0;
    *number = *number * 10 + digit;
  }
  return *text != start;
}

/* "12.5" = 125 / 10. At most nine digits behind the point. */
static int parse_decimal(const char *text, uint64_t *number, uint64_t *scale) {
  uint64_t whole;
  *scale = 1;
  if (!parse_digits(&text, 1000000000, &whole)) return 0;
  *number = whole;
  if (*text == '.' && text[1])
    for (text++; *text >= '0' && *text <= '9' && *scale < (uint64_t)SECOND; text++, *scale *= 10)
      *number = *number * 10 + (uint64_t)(*text - '0');
  return *text == 0;
}

static int parse_number(const struct option_row *row, const char *text, char *reason, size_t size) {
  uint64_t maximum = row->maximum ? row->maximum : INT64_MAX, number;
  if (parse_digits(&text, maximum, &number) && *text == 0 && number >= row->minimum) {
    *(uint64_t *)row->target = number;
    return 1;
  }
  if (row->maximum)
    snprintf(reason, size, "must be a whole number from %llu to %llu",
             (unsigned long long)row->minimum, (unsigned long long)row->maximum);
  else
    snprintf(reason, size, "must be a whole number, %llu or more",
             (unsigned long long)row->minimum);
  return 0;
}

static int parse_gpu_number(const char *text, uint64_t *number) {
  return parse_digits(&text, INT32_MAX - 1, number) && *text == 0;
}

static int is_uuid(const char *text) {
  size_t length = strlen(text);
  return (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0) && length > 4 &&
         strspn(text + 4, "0123456789abcdef-") == length - 4;
}

static int fail_gpu(char *reason, size_t size) {
  snprintf(reason, size,
           "must be the number of a GPU, or the beginning of its UUID, like "
           "GPU-8932f937");
  return 0;
}

/* The beginning of a UUID: the driver finds the GPU, which is then number 0. CUDA is not loaded yet. */
static int parse_device(const struct option_row *row, const char *text, char *reason, size_t size) {
  uint64_t number = 0;
  if (parse_gpu_number(text, &number)) {
    *(uint64_t *)row->target = number;
    return 1;
  }
  if (!is_uuid(text)) return fail_gpu(reason, size);
  *(uint64_t *)row->target = 0;
  device_uuid = text;
  return setenv("CUDA_VISIBLE_DEVICES", text, 1) == 0;
}

int32_t option_device(uint64_t device) {
  return device == OPTION_NO_DEVICE ? 0 : CUDALINK_DEVICE((int32_t)device);
}

const char *option_device_uuid(void) { return device_uuid; }

static int parse_gpu(const struct option_row *row, const char *text, char *reason, size_t size) {
  uint64_t number;
  if (!parse_gpu_number(text, &number) && !is_uuid(text)) return fail_gpu(reason, size);
  *(const char **)row->target = text;
  return 1;
}

static int parse_seconds(int64_t *target, const char *text, char *reason, size_t size) {
  uint64_t number, scale;
  snprintf(reason, size, "must be seconds, like 10 or 0.5");
  if (!parse_decimal(text, &number, &scale)) return 0;
  *target = (int64_t)(number * ((uint64_t)SECOND / scale));
  return 1;
}

static int parse_size(struct option_size *target, const char *text, char *reason, size_t size) {
  uint64_t width, height;
  snprintf(reason, size, "must be WIDTHxHEIGHT, like 1280x720, each from 1 to 65535");
  if (!parse_digits(&text, 65535, &width) || (*text != 'x' && *text != 'X')) return 0;
  text++;
  if (!parse_digits(&text, 65535, &height) || *text || !width || !height) return 0;
  *target = (struct option_size){(uint32_t)width, (uint32_t)height};
  return 1;
}

static int parse_fraction(const char *text, uint64_t *numerator, uint64_t *denominator) {
  if (!parse_digits(&text, UINT32_MAX, numerator) || *text != '/') return 0;
  text++;
  return parse_digits(&text, UINT32_MAX, denominator) && *text == 0 && *denominator > 0;
}

static void shorten(uint64_t *numerator, uint64_t *denominator) {
  uint64_t a = *numerator, b = *denominator;
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  *numerator /= a;
  *denominator /= a;
}

static int parse_rate(const struct option_row *row, const char *text, char *reason, size_t size) {
  uint64_t numerator, denominator;
  snprintf(reason, size, "must be %s; 0 = as fast as possible",
           row->type == OPTION_SPEED ? "a factor, like 1, 0.5 or 3/2"
                                     : "frames per second, like 60, 29.97 or 30000/1001");
  if (!parse_fraction(text, &numerator, &denominator) &&
      !parse_decimal(text, &numerator, &denominator))
    return 0;
  shorten(&numerator, &denominator);
  if (numerator > UINT32_MAX) return 0;
  *(struct option_rate *)row->target =
      (struct option_rate){(uint32_t)numerator, (uint32_t)denominator};
  return 1;
}

/* Second names of choices, which are taken but not offered: policies as C and Python call them. */
static const struct {
  const char *choice;
  const char *other;
} synonyms[] = {{"ready", "ready_only"}, {"order", "in_order"}};

static const char *other_name(const char *choice) {
  for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
    if (strcmp(choice, synonyms[i].choice) == 0) return synonyms[i].other;
  return choice;
}

static int is_choice(const char *text, const char *choice) {
  return strcasecmp(text, choice) == 0 || strcasecmp(text, other_name(choice)) == 0;
}

static int parse_choice(const struct option_row *row, const char *text, char *reason, size_t size) {
  struct nearest nearest = nearest_to(text);
  int length = snprintf(reason, size, "must be one of");
  for (int i = 0; row->choices[i]; i++) {
    if (is_choice(text, row->choices[i])) {
      *(int *)row->target = i;
      return 1;
    }
    nearest_offer(&nearest, row->choices[i]);
    nearest_offer(&nearest, other_name(row->choices[i]));
    if ((size_t)length < size)
      length += snprintf(reason + length, size - (size_t)length, " %s", row->choices[i]);
  }
  if (nearest.best && (size_t)length < size)
    snprintf(reason + length, size - (size_t)length, "; did you mean %s?", nearest.best);
  return 0;
}

static int parse_format(uint32_t *target, const char *text, char *reason, size_t size) {
  struct nearest nearest = nearest_to(text);
  *target = (uint32_t)cudalink_format_from_name(text);
  if (*target) return 1;
  cudalink_format format = CUDALINK_FORMAT_NONE;
  while ((format = cudalink_format_next(format)) != CUDALINK_FORMAT_NONE)
    nearest_offer(&nearest, cudalink_format_name((uint32_t)format));
  snprintf(reason, size,
           "is no format%s%s%s; some are RGBA8 BGRA8 I420 NV12 GRAY8, all are listed "
           "by cudalink help formats",
           nearest.best ? "; did you mean " : "", nearest.best ? nearest.best : "",
           nearest.best ? "?" : "");
  return 0;
}

int option_value_parse(const struct option_row *row, const char *text, char *reason, size_t size) {
  switch (row->type) {
  case OPTION_FLAG: *(int *)row->target = 1; return 1;
  case OPTION_TEXT: *(const char **)row->target = text; return 1;
  case OPTION_NUMBER: return parse_number(row, text, reason, size);
  case OPTION_DEVICE: return parse_device(row, text, reason, size);
  case OPTION_GPU: return parse_gpu(row, text, reason, size);
  case OPTION_SECONDS: return parse_seconds(row->target, text, reason, size);
  case OPTION_SIZE: return parse_size(row->target, text, reason, size);
  case OPTION_RATE:
  case OPTION_SPEED: return parse_rate(row, text, reason, size);
  case OPTION_CHOICE: return parse_choice(row, text, reason, size);
  case OPTION_FORMAT: return parse_format(row->target, text, reason, size);
  }
  return 0;
}
