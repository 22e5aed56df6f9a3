/* SPDX-License-Identifier: MIT
 *
 * What the tests of src/link share: a folder of their own, short ways to open both ends, frames with
 * a pattern in every byte, and waiting for a state.
 *
 * Producers and consumers live in one process: they talk through the same service thread as separate
 * processes do through two, and a test can look at both sides between two steps.
 */
#ifndef CUDALINK_TESTS_LINK_TEST_H
#define CUDALINK_TESTS_LINK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "cudalink/cudalink.h"
#include "link/reaper.h"
#include "link/service.h"

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER 1
#else
#define WITH_THREAD_SANITIZER 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define WITH_ADDRESS_SANITIZER 1
#else
#define WITH_ADDRESS_SANITIZER 0
#endif

#define COMPLETE CUDALINK_STREAM_COMPLETE
#define FOREVER CUDALINK_FOREVER
#define MILLISECOND INT64_C(1000000)
#define SHORT (20 * MILLISECOND) /* long enough to run through the waiting path, and to run out */

/* Waits for a state, not for a time. A test that never gets there is ended by its watchdog. */
#define UNTIL(condition)                                                                           \
  do {                                                                                             \
    while (!(condition))                                                                           \
      sched_yield();                                                                               \
  } while (0)

#define assert_status(expected, call) assert_status_(expected, call, #call, __FILE__, __LINE__)
static inline void assert_status_(int expected, int status, const char *call, const char *file,
                                  int line) {
  if (status == expected) return;
  print_error("%s\n  is %s: %s\n  not %s\n", call, cudalink_error_name(status),
              status < 0 ? cudalink_last_error() : "", cudalink_error_name(expected));
  _fail(file, line);
}
#define assert_ok(call) assert_status(CUDALINK_OK, call)

/* The last error names this. */
#define assert_said(text) assert_said_(text, __FILE__, __LINE__)
static inline void assert_said_(const char *text, const char *file, int line) {
  if (strstr(cudalink_last_error(), text)) return;
  print_error("\"%s\"\n  does not name \"%s\"\n", cudalink_last_error(), text);
  _fail(file, line);
}

/* ---- folder and watchdog ------------------------------------------------------------------------- */

static char test_folder[64];

static inline int test_remove_one(const char *path, const struct stat *status, int kind,
                                  struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

/* How many files are in the folder: after everything is closed, none. */
static inline unsigned test_count_files(void) {
  unsigned count = 0;
  DIR *folder = opendir(test_folder);
  if (!folder) return 0;
  for (struct dirent *entry; (entry = readdir(folder));)
    count += entry->d_name[0] != '.' || (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."));
  closedir(folder);
  return count;
}

static inline int test_begin_test(void **state) {
  (void)state;
  strcpy(test_folder, "/tmp/cudalink-link-XXXXXX");
  if (!mkdtemp(test_folder)) return -1;
  setenv("CUDALINK_RUNTIME_DIR", test_folder, 1);
  setenv("TMPDIR", test_folder, 1); /* lists and consumers look in the usual folders, too */
  unsetenv("XDG_RUNTIME_DIR");
  alarm(WITH_THREAD_SANITIZER || WITH_ADDRESS_SANITIZER ? 600 : 240);
  return 0;
}

static inline int test_end_test(void **state) {
  (void)state;
  alarm(0);
  nftw(test_folder, test_remove_one, 16, FTW_DEPTH | FTW_PHYS);
  return 0;
}
#define test_case(function)                                                                        \
  cmocka_unit_test_setup_teardown(function, test_begin_test, test_end_test)

/* `program PATTERN` runs the tests whose name fits. */
#define test_main(tests)                                                                           \
  int main(int count, char **arguments) {                                                          \
    if (count > 1) cmocka_set_test_filter(arguments[1]);                                           \
    return cmocka_run_group_tests(tests, NULL, NULL);                                              \
  }

/* Everything that the service thread and the reaper were told so far is done. */
static inline int test_nothing(void *argument) {
  (void)argument;
  return CUDALINK_OK;
}
static inline void test_settle(void) {
  assert_ok(service_start());
  for (int i = 0; i < 3; i++)
    service_call(test_nothing, NULL);
  reaper_drain();
}

/* Mappings of this process whose name has that text. */
static inline unsigned test_count_mappings(const char *text) {
  char line[512];
  unsigned count = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps))
    count += strstr(line, text) != NULL;
  fclose(maps);
  return count;
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

#define BYTES 1000u /* of an ordinary test frame; odd to slots and pages */

static inline cudalink_description test_bytes(uint64_t bytes) {
  cudalink_description description = {0};
  assert_int_equal(cudalink_describe_tensor(&description, "bytes", CUDALINK_UINT8, 1,
                                            &(int64_t){(int64_t)bytes}),
                   CUDALINK_OK);
  return description;
}

/* test_open(&exporter, .slots = 3): an exporter "channel", with slots of BYTES unless said otherwise. */
#define test_open(exporter, ...)                                                                   \
  test_open_(exporter, (cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, ##__VA_ARGS__},        \
             __FILE__, __LINE__)
static inline void test_open_(cudalink_exporter *exporter, cudalink_exporter_spec spec,
                              const char *file, int line) {
  if (!spec.name) spec.name = "channel";
  if (!spec.description && !spec.slot_bytes) spec.slot_bytes = BYTES;
  assert_status_(CUDALINK_OK, cudalink_exporter_open(exporter, &spec), "open", file, line);
}
/* test_join(&importer, .policy = ...): an importer of "channel" that is a member already. */
#define test_join(importer, ...)                                                                   \
  test_join_(importer, (cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, ##__VA_ARGS__},        \
             __FILE__, __LINE__)
static inline void test_join_(cudalink_importer *importer, cudalink_importer_spec spec,
                              const char *file, int line) {
  if (!spec.name) spec.name = "channel";
  spec.open_timeout = FOREVER;
  assert_status_(CUDALINK_OK, cudalink_importer_open(importer, &spec), "join", file, line);
}

static inline cudalink_exporter_statistics test_sent(cudalink_exporter exporter) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  assert_ok(cudalink_exporter_get_statistics(exporter, &statistics));
  return statistics;
}
static inline cudalink_importer_statistics test_got(cudalink_importer importer) {
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  assert_ok(cudalink_importer_get_statistics(importer, &statistics));
  return statistics;
}

/* ---- frames ---------------------------------------------------------------------------------------------- */

static inline unsigned char test_byte(uint64_t number, uint64_t i) {
  return (unsigned char)(number * 131 + i * 7 + (i >> 8));
}
static inline void test_paint(void *data, uint64_t bytes, uint64_t number) {
  for (uint64_t i = 0; i < bytes; i++)
    ((unsigned char *)data)[i] = test_byte(number, i);
}
/* The frame shows this number in every byte. */
#define assert_painted(frame, number) assert_painted_(frame, number, __FILE__, __LINE__)
static inline void assert_painted_(const cudalink_frame *frame, uint64_t number, const char *file,
                                   int line) {
  const unsigned char *data = frame->data;
  uint64_t bytes = frame->description.planes[0].bytes;
  for (uint64_t i = 0; i < bytes; i++) {
    if (data[i] == test_byte(number, i)) continue;
    print_error("frame %llu (wanted %llu): byte %llu of %llu is %u, not %u\n",
                (unsigned long long)frame->sequence, (unsigned long long)number,
                (unsigned long long)i, (unsigned long long)bytes, data[i], test_byte(number, i));
    _fail(file, line);
  }
}

/* What arrived is what was sent. */
static inline void test_same(const cudalink_description *got, const cudalink_description *sent) {
  assert_int_equal(got->plane_count, sent->plane_count);
  assert_int_equal(got->user_size, sent->user_size);
  assert_memory_equal(&got->picture, &sent->picture, sizeof sent->picture);
  assert_memory_equal(&got->timing, &sent->timing, sizeof sent->timing);
  assert_memory_equal(got->planes, sent->planes, sent->plane_count * sizeof sent->planes[0]);
}

/* Begins, paints with the sequence number, publishes; returns the number. */
static inline uint64_t test_send_bytes(cudalink_exporter exporter, uint64_t bytes,
                                       cudalink_stream stream) {
  cudalink_description description = test_bytes(bytes);
  cudalink_slot slot;
  assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, &slot));
  test_paint(slot.data, bytes, slot.sequence);
  assert_ok(cudalink_exporter_publish(exporter, &slot, stream));
  return slot.sequence;
}
static inline uint64_t test_send(cudalink_exporter exporter) {
  return test_send_bytes(exporter, BYTES, COMPLETE);
}
static inline int test_try_begin(cudalink_exporter exporter, int64_t timeout, cudalink_slot *slot) {
  cudalink_description description = test_bytes(BYTES);
  return cudalink_exporter_begin(exporter, &description, timeout, slot);
}
static inline uint64_t test_abandon(cudalink_exporter exporter) {
  cudalink_slot slot;
  assert_ok(test_try_begin(exporter, FOREVER, &slot));
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  return slot.sequence;
}

/* Takes the next frame, whatever the time, and checks every byte of it. */
#define test_take(importer) test_take_(importer, __FILE__, __LINE__)
static inline cudalink_frame test_take_(cudalink_importer importer, const char *file, int line) {
  cudalink_frame frame;
  assert_status_(CUDALINK_OK, cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame),
                 "acquire", file, line);
  assert_painted_(&frame, frame.sequence, file, line);
  return frame;
}
static inline int test_try(cudalink_importer importer, cudalink_frame *frame) {
  return cudalink_importer_acquire(importer, COMPLETE, 0, frame);
}
#define test_release(frame) assert_ok(cudalink_frame_release(frame, COMPLETE))
/* Takes one, gives it back, returns its number. */
#define test_pass(importer) test_pass_(importer, __FILE__, __LINE__)
static inline uint64_t test_pass_(cudalink_importer importer, const char *file, int line) {
  cudalink_frame frame = test_take_(importer, file, line);
  uint64_t sequence = frame.sequence;
  assert_status_(CUDALINK_OK, cudalink_frame_release(&frame, COMPLETE), "release", file, line);
  return sequence;
}

/* ---- a gate in a host stream: work behind it does not run before it is opened -------------------------- */

struct test_gate {
  _Atomic bool open, pushed;
};
static inline void test_gate_run(void *context) {
  struct test_gate *gate = context;
  UNTIL(atomic_load(&gate->open));
  atomic_store(&gate->pushed, false);
}
static inline void test_gate_push(struct test_gate *gate, cudalink_host_stream *stream) {
  UNTIL(!atomic_load(&gate->pushed)); /* one use at a time */
  atomic_store(&gate->open, false);
  atomic_store(&gate->pushed, true);
  assert_ok(cudalink_host_stream_push(stream, test_gate_run, gate));
}
static inline void test_gate_open(struct test_gate *gate) { atomic_store(&gate->open, true); }

#endif
