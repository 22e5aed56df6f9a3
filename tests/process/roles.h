/* SPDX-License-Identifier: MIT
 *
 * The helpers `producer` and `consumer`, which do what they are told, and what they are made of.
 *
 * producer, options: name=a bytes=65536 slots= max_slots= hold_ms= salt=(pid) begin_ms=10000. Says
 * "open" or "error NAME: SENTENCE" first. Lines, and what it says then:
 *   publish N      "published LAST"; or "error NAME: SENTENCE"
 *   run [MS]       publishes until the next line, every MS milliseconds or as fast as it can; with
 *                  `stop` says "stopped LAST DROPPED"
 *   begin          writes half a frame: "begun"
 *   size BYTES     of the frames from now on: "size BYTES"
 *   consumers N    waits for N consumers: "consumers N"
 *   statistics     "published=3 dropped=0 evicted=0 deaths=0 generations=1 consumers=1 slots=4 ..."
 *   close          "closed"
 *
 * consumer, options: name=a policy=latest|ready|order|every|shared group= hold= once= open_ms=0
 * gpu_wait=. Says "open" or "error ..." first. It checks each byte of every frame, that sequences
 * ascend, that frames missed are counted, and that a new session begins with a notice.
 *   take N         "took FIRST LAST MISSED SESSION"
 *   acquire MS     "frame SEQUENCE SESSION" or "error NAME: SENTENCE"
 *   hold           keeps the next frame: "holds SEQUENCE"
 *   check          looks at all frames that are kept: "whole COUNT"
 *   release        gives them back: "released COUNT"
 *   run            takes frames until the next line; with `stop` says
 *                  "stopped RECEIVED MISSED LOST ENDED EVICTED SESSION LAST"
 *   until SESSION  takes frames until one of that session: "frame SEQUENCE SESSION"
 *   statistics     "received=.. missed=.. sessions=.. held=.. connection=.. wakes=.. evictions=.."
 *   close          "closed"
 * Both end when their channel ends.
 */
#ifndef CUDALINK_TESTS_PROCESS_ROLES_H
#define CUDALINK_TESTS_PROCESS_ROLES_H

#include "harness.h"
#include "pattern.h"

/* ---- in a test: started, and "open" ---------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) struct process *start_producer(const char *format, ...);
__attribute__((format(printf, 1, 2))) struct process *start_consumer(const char *format, ...);
/* Until the consumer is connected to a producer. */
void wait_joined(struct process *consumer);
/* One number of a helper's statistics. */
int64_t statistic(struct process *process, const char *key);
/* It answers `expected` to that line. */
#define ASK(process, line, expected)                                                               \
  do {                                                                                             \
    process_tell((process), "%s", (line));                                                         \
    process_expect((process), (expected));                                                         \
  } while (0)

/* What the helpers do, for helpers that change something about themselves before. */
void act_as_producer(void);
void act_as_consumer(void);

/* ---- producing ------------------------------------------------------------------------------- */

/* A frame of one plane of bytes. The salt travels as the frame's pts. */
void describe_bytes(cudalink_description *description, uint64_t bytes, uint64_t salt);
int open_producer(cudalink_exporter *exporter, const char *name, uint64_t bytes);
/* Begin, fill, publish. Returns the status of what failed. */
int publish_frame(cudalink_exporter exporter, uint64_t bytes, uint64_t salt, int64_t timeout,
                  uint64_t *sequence);

/* ---- consuming ------------------------------------------------------------------------------- */

struct consumer {
  cudalink_importer importer;
  cudalink_policy policy;
  cudalink_frame frame; /* the newest one */
  uint64_t salt, last, received, missed, lost, ended, evicted;
  uint64_t notices; /* LOST and ENDED since the last frame */
  uint32_t session;
};

cudalink_policy policy_from_name(const char *name);
/* Acquire; the frame is checked as described above. LOST, ENDED, EVICTED are counted. */
int consumer_acquire(struct consumer *consumer, int64_t timeout);
/* The same, released again. */
int consumer_take(struct consumer *consumer, int64_t timeout);
/* Fails when a byte is not its own. */
void check_frame(const cudalink_frame *frame);
void say_error(int status);

#endif
