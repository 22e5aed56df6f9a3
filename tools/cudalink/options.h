/* SPDX-License-Identifier: MIT
 *
 * Command lines: one table per command says what options there are; parsing, --help and the
 * sentences for wrong values all come from it.
 */
#ifndef CUDALINK_OPTIONS_H
#define CUDALINK_OPTIONS_H

#include <stdint.h>

enum option_type {
  OPTION_FLAG,    /* int, set to 1 */
  OPTION_TEXT,    /* const char * */
  OPTION_NUMBER,  /* uint64_t, minimum to maximum */
  OPTION_DEVICE,  /* uint64_t, the number of a GPU, OPTION_NO_DEVICE until one is named; of a UUID,
                     CUDA is shown that one only */
  OPTION_GPU,     /* const char *, a number or the beginning of a UUID; CUDA is left alone */
  OPTION_SECONDS, /* int64_t, ns; "2" or "0.5" */
  OPTION_SIZE,    /* struct option_size, "1280x720" */
  OPTION_RATE,    /* struct option_rate, "30", "29.97", "30000/1001" */
  OPTION_SPEED,   /* the same, a factor */
  OPTION_CHOICE,  /* int, the place in `choices` */
  OPTION_FORMAT   /* uint32_t, a cudalink_format */
};

struct option_size {
  uint32_t width;
  uint32_t height;
};

struct option_rate {
  uint32_t numerator; /* 0 with a denominator: as fast as possible */
  uint32_t denominator;
};

struct option_row {
  const char *name;
  enum option_type type;
  void *target;      /* holds the default, gets the value */
  const char *value; /* what --help calls it: "N"; NULL for flags and choices */
  const char *help;
  const char *const *choices; /* ends with NULL */
  uint64_t minimum;           /* for NUMBER */
  uint64_t maximum;           /* 0 = any */
};

#define OPTION_ROWS_END                                                                            \
  { .name = NULL }

struct option_page {
  const char *command;   /* "send" */
  const char *arguments; /* "NAME [FILE]", "" for none */
  const char *summary;   /* what the command does, whole sentences */
  const struct option_row *rows;
  const char *notes; /* printed behind the options: examples; may be NULL */
  int least_arguments;
  int most_arguments;
};

#define OPTIONS_GO (-1)

/* Fills in the targets of the rows, and `arguments` (most_arguments pointers, the missing ones left
 * alone). OPTIONS_GO, or the exit code: --help was printed, or the error was. */
int options_parse(const struct option_page *page, int argc, char **argv, const char **arguments);

/* Prints what could stand in the place of the last of `words`, which follow the command; a line each.
 * options_parse calls it when the first argument is OPTIONS_COMPLETE. */
#define OPTIONS_COMPLETE "--complete-words"
int options_complete(const struct option_page *page, int count, char **words);

#define OPTION_NO_DEVICE UINT64_MAX

/* For `device` of the library's specs: 0 = none was named. */
int32_t option_device(uint64_t device);

/* What stood behind OPTION_DEVICE when it was a UUID, or its beginning; NULL: it was not. */
const char *option_device_uuid(void);

/* The choices of --kind in the order of cudalink_kind, of --policy in that of cudalink_policy. */
extern const char *const option_kinds[];
extern const char *const option_policies[];
extern const char *const option_patterns[];

#endif
