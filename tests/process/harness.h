/* SPDX-License-Identifier: MIT
 *
 * Tests with real processes. A test program holds tests and helpers:
 *
 *   HELPER(reader) { ... say("ready"); ... }
 *
 *   TEST(reader_starts, 10) {
 *     struct process *reader = process_start("reader", "name=a frames=%d", 3);
 *     process_expect(reader, "ready");
 *     process_finish(reader);
 *   }
 *
 * Each test runs in a process of its own, in random order, in a new folder that is its
 * CUDALINK_RUNTIME_DIR; a helper is a process of its own as well, started by the test. They talk by
 * lines over a socket, so nothing sleeps in order to be in time. All of them end with their test,
 * whatever happens. What they print is shown when the test fails.
 *
 * After a test its process has the descriptors and memfd mappings that it had before, and its
 * folder is empty once cudalink_channels_clean has run; else it fails. The same holds for a helper
 * that comes to its end, but it need not close what it has opened under `HELPER_LEAKS`.
 *
 *   PROGRAM [--seed N] [--repeat N] [TEST...]    --list
 *
 * HARNESS_VERBOSE=1 shows the output of tests that passed too; HARNESS_LOG=1 adds the library's
 * log.
 */
#ifndef CUDALINK_TESTS_PROCESS_HARNESS_H
#define CUDALINK_TESTS_PROCESS_HARNESS_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "cudalink/cudalink.h"

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define WITH_ADDRESS_SANITIZER 1
#else
#define WITH_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER 1
#else
#define WITH_THREAD_SANITIZER 0
#endif
#define WITH_SANITIZER (WITH_ADDRESS_SANITIZER || WITH_THREAD_SANITIZER)

#define MILLISECOND INT64_C(1000000)
#define SECOND (1000 * MILLISECOND)
#define LINE_SIZE 512

/* ---- tests and helpers ----------------------------------------------------------------------- */

struct harness_case {
  const char *name;
  int seconds; /* a test's time limit; 0 = a helper */
  void (*run)(void);
  struct harness_case *next;
};
void harness_add(struct harness_case *add);

#define HARNESS_CASE(prefix, case_name, limit)                                                     \
  static void prefix##_##case_name(void);                                                          \
  static struct harness_case prefix##_case_##case_name = {#case_name, limit, prefix##_##case_name, \
                                                          NULL};                                   \
  __attribute__((constructor)) static void prefix##_add_##case_name(void) {                        \
    harness_add(&prefix##_case_##case_name);                                                       \
  }                                                                                                \
  static void prefix##_##case_name(void)
#define TEST(name, seconds) HARNESS_CASE(test, name, seconds)
#define HELPER(name) HARNESS_CASE(helper, name, 0)

/* ---- checks: a failing one ends this process with an explanation ----------------------------- */

#define FAIL(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) FAIL("%s", #condition);                                                      \
  } while (0)
#define CHECK_EQUAL(left, right)                                                                   \
  harness_check_equal(__FILE__, __LINE__, #left, (int64_t)(left), #right, (int64_t)(right))
/* The status of a cudalink call; a positive one never passes. */
#define CHECK_STATUS(call, expected)                                                               \
  harness_check_status(__FILE__, __LINE__, #call, (call), (expected))
#define CHECK_OK(call) CHECK_STATUS(call, CUDALINK_OK)
#define CHECK_CONTAINS(text, part) harness_check_contains(__FILE__, __LINE__, (text), (part))
/* Ends the test as skipped; the reason is a line of tests/skip-reasons.txt. */
#define SKIP(reason) harness_skip(reason)
/* Looks again and again until the state is there; the test's time limit ends a vain wait. */
#define WAIT_UNTIL(condition)                                                                      \
  do {                                                                                             \
    harness_waits(__FILE__, __LINE__, #condition);                                                 \
    while (!(condition))                                                                           \
      harness_look_again();                                                                        \
  } while (0)

__attribute__((noreturn, format(printf, 3, 4))) void harness_fail(const char *file, int line,
                                                                  const char *format, ...);
__attribute__((noreturn)) void harness_skip(const char *reason);
void harness_check_equal(const char *file, int line, const char *left_text, int64_t left,
                         const char *right_text, int64_t right);
void harness_check_status(const char *file, int line, const char *call, int status, int expected);
void harness_check_contains(const char *file, int line, const char *text, const char *part);
void harness_waits(const char *file, int line, const char *what); /* shown when the time is up */
void harness_look_again(void);
/* Lets others live for a random time. Never in order to let something come first. */
void harness_pause(uint64_t microseconds);

/* ---- processes ------------------------------------------------------------------------------- */

struct process {
  pid_t pid; /* 0 once it was waited for */
  int channel;
  char helper[16];
  char told[40]; /* the last line, for messages */
  int status;    /* as waitpid gives it */
  struct process *next;
};

/* Starts a helper; `format` makes its options: "name=a frames=3". Call from the main thread. */
__attribute__((format(printf, 2, 3))) struct process *process_start(const char *helper,
                                                                    const char *format, ...);
__attribute__((format(printf, 2, 3))) void process_tell(struct process *process, const char *format,
                                                        ...);
/* Tells it that, and returns what it says. */
__attribute__((format(printf, 2, 3))) const char *process_ask(struct process *process,
                                                              const char *format, ...);
/* The number behind "key=" in a line. */
int64_t line_number(const char *line, const char *key);
/* Its next line; fails when it ends instead. Valid until the next call. */
const char *process_hear(struct process *process);
/* The same, but "" when it has ended. */
const char *process_hear_or_end(struct process *process);
void process_expect(struct process *process, const char *line);
bool process_has_line(struct process *process); /* or has ended */
/* Sends a signal. SIGKILL also waits for its end. */
void process_signal(struct process *process, int number);
void process_signal_only(struct process *process, int number); /* never waits */
void process_kill(struct process *process);
bool process_is_stopped(const struct process *process);
/* Tells it by the end of the channel that nothing more will come, waits, and checks that it ended
 * well. */
void process_finish(struct process *process);
/* Waits for its end and returns its status; for those that are to end in another way. */
int process_wait(struct process *process);

/* ---- inside a helper ------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* The next line; false at the end of the channel: the helper should end. */
bool hear(char line[LINE_SIZE]);
bool hear_within(int milliseconds); /* a line (or the end) is there */
const char *option(const char *key, const char *otherwise);
int64_t option_number(const char *key, int64_t otherwise);
#define HELPER_CHANNEL 3 /* the descriptor of its lines */
/* For the program's other processes, which a helper forks: they end with it. */
void helper_end_with_parent(pid_t parent);
#define HELPER_LEAKS() harness_check_leaks(false)
void harness_check_leaks(bool check);

/* ---- tools ----------------------------------------------------------------------------------- */

extern char test_folder[64];  /* CUDALINK_RUNTIME_DIR of this test */
extern char test_scratch[64]; /* another folder of its own, for anything */
uint64_t random_number(void); /* from the seed */
uint64_t random_below(uint64_t limit);
/* Files of the folder, hidden ones too. */
int folder_count(const char *path);
bool folder_has(const char *name); /* in test_folder */
/* The number behind `key` in a file of /proc; -1: not there. */
int64_t proc_number(const char *path, const char *key);
int64_t available_memory(void); /* bytes: what the machine has, and this process may have */
int count_descriptors(void);
int count_memory_mappings(void); /* memfd mappings of this process */
int for_each_thread(pid_t pid, void (*visit)(void *context, pid_t thread), void *context);

#endif
