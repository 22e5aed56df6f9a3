/* SPDX-License-Identifier: MIT
 *
 * What `send` and `replay` have in common: options about the channel and the end, and how both say
 * which way frames go.
 */
#ifndef CUDALINK_SENDING_H
#define CUDALINK_SENDING_H

#include "json.h"
#include "options.h"
#include "transmitter.h"

struct sending_options {
  int loop;
  uint64_t count;  /* 0 = no end */
  int64_t seconds; /* 0 = no end */
  uint64_t wait_consumers;
  uint64_t slots;
  int kind;
  uint64_t device;
  int json;
};

/* The rows of these options, for a table of a command's. */
#define SENDING_ROWS(options)                                                                      \
  {"loop", OPTION_FLAG, &(options)->loop, .help = "start the file again at its end"},              \
      {"count",     OPTION_NUMBER, &(options)->count, .value = "N", .help = "end after N frames",  \
       .minimum = 1},                                                                              \
      {"seconds", OPTION_SECONDS, &(options)->seconds, .value = "S",                               \
       .help = "end after S seconds"},                                                             \
      {"wait-consumers",                                                                           \
       OPTION_NUMBER,                                                                              \
       &(options)->wait_consumers,                                                                 \
       .value = "N",                                                                               \
       .help = "start when N consumers are there",                                                 \
       .maximum = CUDALINK_MAX_CONSUMERS},                                                         \
      {"slots",                                                                                    \
       OPTION_NUMBER,                                                                              \
       &(options)->slots,                                                                          \
       .value = "N",                                                                               \
       .help = "frames of memory to begin with (default 4)",                                       \
       .minimum = 3,                                                                               \
       .maximum = 64},                                                                             \
      {"kind", OPTION_CHOICE, &(options)->kind, .choices = option_kinds,                           \
       .help = "memory of the frames (default auto)"},                                             \
      {"device", OPTION_DEVICE, &(options)->device, .value = "N",                                  \
       .help = "GPU, by number or UUID; without it the first, or host memory"},                    \
  {                                                                                                \
    "json", OPTION_FLAG, &(options)->json, .help = "print the summary as one JSON object"          \
  }

/* Opens the channel with what the options say about it; `spec` has the rest. */
int sending_open(const struct sending_options *options, struct transmitter *transmitter,
                 const cudalink_exporter_spec *spec);

/* Waits for the consumers that were asked for. An exit code. */
int sending_wait_consumers(const struct sending_options *options, struct transmitter *transmitter);

/* When --seconds are over; 0 = never. */
uint64_t sending_end(const struct sending_options *options, uint64_t start);
int sending_is_over(const struct sending_options *options, const struct transmitter *transmitter,
                    uint64_t end);

void sending_print_way(const struct transmitter *transmitter, const char *name);
void sending_json_way(struct json *json, const struct transmitter *transmitter);
void sending_json_counts(struct json *json, const struct transmitter *transmitter);

#endif
