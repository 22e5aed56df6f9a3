/* SPDX-License-Identifier: MIT
 *
 * What the parts of `cudalink demo` share: the consumers as the producer sees them, and the result.
 */
#ifndef CUDALINK_DEMO_H
#define CUDALINK_DEMO_H

#include <sys/types.h>

#include "options.h"
#include "tally.h"

#define DEMO_MOST_CONSUMERS CUDALINK_MAX_CONSUMERS
#define DEMO_SCORES 3 /* the descriptor of the score board in a consumer process */
#define DEMO_ALIVE 4  /* and of the pipe that says it is alive */

/* What one consumer process writes down for the producer. */
struct demo_score {
  struct tally tally; /* of the frames that count */
  int has_joined;
  int has_frame; /* it has taken its first one, which takes a context and memory of its own */
  int exit_code;
};

/* The score board is a file: the number of the first frame that counts (0 = none does yet), then one
 * score per consumer. */
static inline off_t demo_score_place(uint64_t index) {
  return (off_t)(sizeof(uint64_t) + index * sizeof(struct demo_score));
}

struct demo_consumer {
  pid_t pid; /* 0 = has ended */
  cudalink_policy policy;
  struct demo_score score;
};

struct demo_crew {
  uint64_t count;
  int scores; /* the score board, a memory file */
  int alive;  /* readable, with the end of the stream, once all consumers have ended */
  struct demo_consumer consumers[DEMO_MOST_CONSUMERS];
};

/* Starts `count` consumers of the channel as processes of their own. They end with the channel, and
 * at the latest with this process. Failures are reported; returns an exit code. */
int demo_crew_start(struct demo_crew *crew, uint64_t count, const char *channel,
                    enum pattern pattern, int device);

/* Reads what all have written down so far. */
void demo_crew_read(struct demo_crew *crew);

/* All of it. */
int demo_crew_has_joined(struct demo_crew *crew);
int demo_crew_has_frames(struct demo_crew *crew);

/* From the frame of that number on the consumers count; call it before that one is sent. */
void demo_crew_count_from(struct demo_crew *crew, uint64_t sequence);

/* 1 when one of them has ended. */
int demo_crew_has_ended_one(struct demo_crew *crew);

/* Waits until all have ended, for `limit` ns at most; then ends those that are left. */
void demo_crew_finish(struct demo_crew *crew, int64_t limit);

struct demo_result {
  cudalink_exporter_statistics statistics;
  const cudalink_description *description;
  const char *channel;
  enum pattern pattern;
  uint64_t frames_sent;     /* since every consumer has had its first one */
  uint64_t frames_received; /* of those, by all consumers together */
  uint64_t torn;
  uint64_t lost;    /* that nobody can say of where they are, or that one which wants all missed */
  uint64_t skipped; /* by the others, as their policies say */
  uint64_t checked;
  uint64_t failed;      /* consumers that ended with an error, or got nothing */
  double ready_seconds; /* from the start of the consumers until each has its first frame */
  double seconds;
  struct histogram latency;
};

/* Adds up what the consumers have. */
void demo_result_add(struct demo_result *result, const struct demo_crew *crew);
int demo_result_is_good(const struct demo_result *result);
void demo_result_print(const struct demo_result *result, const struct demo_crew *crew);
void demo_result_print_json(const struct demo_result *result, const struct demo_crew *crew);

#endif
