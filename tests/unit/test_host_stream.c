/* SPDX-License-Identifier: MIT
 *
 * cudalink_host_stream and the host's gpu_operations: work in order, writes and waits, handles that are
 * looked up and never followed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "gpu/gpu.h"

#define UNTIL(condition)                                                                           \
  do {                                                                                             \
    while (!(condition))                                                                           \
      sched_yield();                                                                               \
  } while (0)

static struct gpu_device *device;
static cudalink_host_stream *stream, *other;

static int setup(void **state) {
  (void)state;
  return gpu_host_open(&device) || cudalink_host_stream_create(&stream) ||
         cudalink_host_stream_create(&other);
}
static int teardown(void **state) {
  (void)state;
  cudalink_host_stream_destroy(stream);
  cudalink_host_stream_destroy(other);
  gpu_device_close(device);
  return 0;
}

static struct {
  int order[1000];
  int count;
} done;
static void note(void *context) { done.order[done.count++] = (int)(intptr_t)context; }

static _Atomic int gate_is_open;
static void gate(void *context) {
  (void)context;
  UNTIL(atomic_load(&gate_is_open));
}
static void shut(cudalink_host_stream *of) {
  atomic_store(&gate_is_open, 0);
  assert_int_equal(cudalink_host_stream_push(of, gate, NULL), CUDALINK_OK);
}
static void open_gate(void) { atomic_store(&gate_is_open, 1); }
static void finish(cudalink_host_stream *of) {
  assert_int_equal(cudalink_host_stream_synchronize(of), CUDALINK_OK);
}

static void work_runs_in_order(void **state) {
  (void)state;
  done.count = 0;
  for (intptr_t i = 0; i < 1000; i++)
    assert_int_equal(cudalink_host_stream_push(stream, note, (void *)i), CUDALINK_OK);
  finish(stream);
  assert_int_equal(done.count, 1000);
  for (int i = 0; i < 1000; i++)
    assert_int_equal(done.order[i], i);
  finish(stream); /* nothing to wait for */
}

static void destroy_finishes_the_queue(void **state) {
  (void)state;
  cudalink_host_stream *short_lived;
  assert_int_equal(cudalink_host_stream_create(&short_lived), CUDALINK_OK);
  done.count = 0;
  shut(short_lived);
  for (intptr_t i = 0; i < 100; i++)
    cudalink_host_stream_push(short_lived, note, (void *)i);
  assert_int_equal(done.count, 0);
  open_gate();
  cudalink_host_stream_destroy(short_lived);
  assert_int_equal(done.count, 100);
  cudalink_host_stream_destroy(short_lived); /* unknown by now: nothing happens */
  cudalink_host_stream_destroy(NULL);
  assert_int_equal(cudalink_host_stream_push(short_lived, note, NULL), CUDALINK_ERROR_STREAM);
  assert_int_equal(cudalink_host_stream_synchronize(short_lived), CUDALINK_ERROR_STREAM);
}

static void writes_come_behind_the_work(void **state) {
  (void)state;
  wire_word words[3] = {0, 0, 0};
  struct gpu_write writes[3] = {{&words[0], 5}, {&words[1], 6}, {&words[2], 7}};
  shut(stream);
  assert_int_equal(
      device->operations->stream_write(device, CUDALINK_STREAM_HANDLE(stream), writes, 3),
      CUDALINK_OK);
  for (int i = 0; i < 3; i++)
    assert_int_equal(atomic_load(&words[i]), 0);
  open_gate();
  finish(stream);
  for (uint64_t i = 0; i < 3; i++)
    assert_int_equal(atomic_load(&words[i]), 5 + i);
  words[0] = 0;
  assert_int_equal(device->operations->stream_write(device, CUDALINK_STREAM_COMPLETE, writes, 1),
                   CUDALINK_OK);
  assert_int_equal(atomic_load(&words[0]), 5); /* at once */
}

static void a_wait_compares_cyclically(void **state) {
  (void)state;
  static const struct {
    uint64_t before, enough, wanted;
  } cases[] = {
      {4, 5, 5}, {4, 6, 5}, {0, 1, 1}, {UINT64_MAX - 1, 3, UINT64_MAX}, {UINT64_MAX, 0, 0}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    wire_word word = cases[c].before;
    done.count = 0;
    assert_true(device->operations->waits_landed(device));
    assert_int_equal(device->operations->stream_wait(device, CUDALINK_STREAM_HANDLE(stream), &word,
                                                     cases[c].wanted),
                     CUDALINK_OK);
    assert_int_equal(cudalink_host_stream_push(stream, note, NULL), CUDALINK_OK);
    assert_false(device->operations->waits_landed(device));
    assert_int_equal(done.count, 0);
    atomic_store(&word, cases[c].enough);
    finish(stream);
    assert_int_equal(done.count, 1);
    assert_true(device->operations->waits_landed(device));
  }
}

/* Two streams and a word between them: one waits for what the other writes, a thousand times. */
static void streams_wait_for_each_other(void **state) {
  (void)state;
  wire_word ping = 0, pong = 0;
  for (uint64_t i = 1; i <= 200; i++) {
    struct gpu_write write_ping = {&ping, i}, write_pong = {&pong, i};
    device->operations->stream_wait(device, CUDALINK_STREAM_HANDLE(other), &ping, i);
    device->operations->stream_write(device, CUDALINK_STREAM_HANDLE(other), &write_pong, 1);
    device->operations->stream_write(device, CUDALINK_STREAM_HANDLE(stream), &write_ping, 1);
    device->operations->stream_wait(device, CUDALINK_STREAM_HANDLE(stream), &pong, i);
  }
  finish(stream);
  finish(other);
  assert_int_equal(atomic_load(&pong), 200);
  assert_true(device->operations->waits_landed(device));
}

static void copies_run_in_order(void **state) {
  (void)state;
  static unsigned char source[1000], target[1000], expected[1000];
  memset(source, 1, sizeof source);
  memset(target, 0, sizeof target);
  shut(stream);
  assert_int_equal(device->operations->stream_copy(device, CUDALINK_STREAM_HANDLE(stream), target,
                                                   source, sizeof source),
                   CUDALINK_OK);
  assert_int_equal(target[0], 0);
  memset(source, 2, sizeof source);
  memset(expected, 2, sizeof expected);
  open_gate();
  finish(stream);
  assert_memory_equal(target, expected, sizeof target);
  assert_int_equal(
      device->operations->stream_copy(device, CUDALINK_STREAM_COMPLETE, source, target, 0),
      CUDALINK_OK);
}

static void handles_are_looked_up(void **state) {
  (void)state;
  wire_word word = 0;
  struct gpu_write write = {&word, 1};
  const cudalink_stream wrong[] = {CUDALINK_STREAM_HANDLE(1),
                                   CUDALINK_STREAM_HANDLE(&word),
                                   CUDALINK_STREAM_HANDLE(UINTPTR_MAX),
                                   CUDALINK_STREAM_LEGACY,
                                   CUDALINK_STREAM_PER_THREAD,
                                   {0, 0, 0},
                                   {99, 0, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    assert_int_equal(device->operations->stream_check(device, wrong[i]), CUDALINK_ERROR_STREAM);
    if (wrong[i].kind != CUDALINK_STREAM_KIND_HANDLE) continue;
    assert_int_equal(device->operations->stream_write(device, wrong[i], &write, 1),
                     CUDALINK_ERROR_STREAM);
    assert_int_equal(device->operations->stream_wait(device, wrong[i], &word, 1),
                     CUDALINK_ERROR_STREAM);
    assert_int_equal(device->operations->stream_copy(device, wrong[i], &write, &write, 1),
                     CUDALINK_ERROR_STREAM);
  }
  assert_int_equal(atomic_load(&word), 0);
  assert_true(device->operations->waits_landed(device));
  assert_int_equal(device->operations->stream_check(device, CUDALINK_STREAM_HANDLE(stream)),
                   CUDALINK_OK);
  assert_int_equal(device->operations->stream_check(device, CUDALINK_STREAM_COMPLETE), CUDALINK_OK);
  assert_int_equal(cudalink_host_stream_create(NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(cudalink_host_stream_push(stream, NULL, NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
}

/* Many streams come and go while others look them up. */
static void *come_and_go(void *context) {
  (void)context;
  for (int i = 0; i < 200; i++) {
    cudalink_host_stream *mine;
    wire_word word = 0;
    struct gpu_write write = {&word, 1};
    if (cudalink_host_stream_create(&mine)) return (void *)1;
    if (device->operations->stream_write(device, CUDALINK_STREAM_HANDLE(mine), &write, 1))
      return (void *)1;
    cudalink_host_stream_destroy(mine);
    if (atomic_load(&word) != 1) return (void *)1;
  }
  return NULL;
}
static void many_streams(void **state) {
  (void)state;
  pthread_t threads[4];
  for (int t = 0; t < 4; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, come_and_go, NULL), 0);
  for (int t = 0; t < 4; t++) {
    void *wrong;
    pthread_join(threads[t], &wrong);
    assert_null(wrong);
  }
}

#define in_place(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {
      in_place(work_runs_in_order),          in_place(destroy_finishes_the_queue),
      in_place(writes_come_behind_the_work), in_place(a_wait_compares_cyclically),
      in_place(streams_wait_for_each_other), in_place(copies_run_in_order),
      in_place(handles_are_looked_up),       in_place(many_streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
