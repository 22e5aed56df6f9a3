/* SPDX-License-Identifier: MIT
 *
 * How long something took this process, not counting the time in which the machine let it wait for
 * a processor: so that a limit holds on a busy machine too.
 */
#ifndef CUDALINK_TESTS_PROCESS_WITNESS_H
#define CUDALINK_TESTS_PROCESS_WITNESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Starts the witness: a thread that sleeps for a millisecond again and again and adds up how much
 * too late it ran. */
void witness_start(void);

/* The sum so far, in nanoseconds: cheap, but blind to threads that are ready and don't run. */
uint64_t witness_late(void);

struct witness_mark {
  uint64_t time, late, delayed;
};
struct witness_mark witness_now(void);
/* Nanoseconds since the mark without the witness's lateness, and without the time for which other
 * threads of this process were ready to run but did not. */
int64_t witness_since(const struct witness_mark *mark);

/* A process that is killed needs a processor to end, which a busy machine lets it wait for. Its time to end
 * is that for which it runs; from its end on witness_since counts. `process` is a pidfd. */
struct witness_end {
  clockid_t clock; /* of its running time */
  uint64_t ran;
  int process;
  pthread_t thread;
  struct witness_mark mark; /* of its end */
  _Atomic bool ended;
};
/* Just before it is killed. */
void witness_end_begins(struct witness_end *end, pid_t pid, int process);
/* Nanoseconds since then. Nobody must have waited for it yet. */
int64_t witness_end_since(const struct witness_end *end);
/* Waits for its end. */
void witness_end_is_over(const struct witness_end *end);

#endif
