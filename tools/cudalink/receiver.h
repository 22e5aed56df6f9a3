/* SPDX-License-Identifier: MIT
 *
 * The consumer's end as `recv` and `record` use it: frames come from a channel until there is a
 * reason to end, and go into a function. Failures are reported here; functions return an exit code.
 */
#ifndef CUDALINK_RECEIVER_H
#define CUDALINK_RECEIVER_H

#include "cudalink/cudalink.h"
#include "json.h"
#include "live.h"
#include "options.h"
#include "tally.h"

struct receiver_options {
  const char *channel;
  int policy;
  const char *group;
  uint64_t hold;
  int isolated;
  uint64_t count;  /* 0 = no end */
  int64_t seconds; /* 0 = no end */
  int64_t timeout; /* 0 = wait for ever */
  int once;
  int kind;
  uint64_t device;
};

/* The rows of most of these, for a table of a command's. */
#define RECEIVER_ROWS(options)                                                                     \
  {"count",     OPTION_NUMBER, &(options)->count, .value = "N", .help = "end after N frames",      \
   .minimum = 1},                                                                                  \
      {"seconds", OPTION_SECONDS, &(options)->seconds, .value = "S",                               \
       .help = "end after S seconds"},                                                             \
      {"timeout", OPTION_SECONDS, &(options)->timeout, .value = "S",                               \
       .help = "fail when no frame comes for S seconds (default: wait)"},                          \
      {"once", OPTION_FLAG, &(options)->once,                                                      \
       .help = "end with the first producer; else go on with the next"},                           \
      {"kind", OPTION_CHOICE, &(options)->kind, .choices = option_kinds,                           \
       .help = "accept this memory only (default auto: any)"},                                     \
  {                                                                                                \
    "device", OPTION_DEVICE, &(options)->device,                                                   \
        .value = "N", .help = "GPU, by number or UUID (default: the producer's)"                   \
  }

struct receiver_result {
  struct tally tally;
  cudalink_description description; /* of the newest frame */
  cudalink_importer_statistics statistics;
  double span;         /* s, from the first frame to the last: what rates are of */
  double seconds;      /* of the whole run */
  double wait_seconds; /* of them, until the first frame came */
};

struct receiver {
  struct receiver_options options;
  /* Gets each frame, and whether it has pixels. Returns an exit code. */
  int (*use)(void *context, const cudalink_frame *frame, int has_pixels);
  void (*show)(void *context); /* may show a live line */
  void *context;
  _Atomic int is_over; /* ended as it should; `use`, or a thread of its own, may say so too */
  struct receiver_result result;
  cudalink_importer importer;
  cudalink_frame held[CUDALINK_MAX_HOLD]; /* the last frames, a ring */
  uint64_t first_time;                    /* of the first frame, 0 = none yet */
  uint64_t news_time;                     /* of the newest frame, or the start */
  uint64_t end_time;                      /* UINT64_MAX = none */
};

/* Reports a --device that is not there, before files are made. With --kind host no GPU counts. */
int receiver_check(const struct receiver_options *options);

/* Opens the channel, takes frames, closes it. All of `result` is there afterwards, also after a
 * failure, but `statistics` only when `*is_open` is 1: the channel could be opened. */
int receiver_run(struct receiver *receiver, int *is_open);

/* The members of a command's JSON that say what the channel was like. */
void receiver_put_channel(struct json *json, const struct receiver_result *result);

/* "1.5 s", or "61.5 s (60.0 s until the first)", where the wait explains the rate. */
#define RECEIVER_TIME_SIZE 64
const char *receiver_time(char to[RECEIVER_TIME_SIZE], const struct receiver_result *result);

#endif
