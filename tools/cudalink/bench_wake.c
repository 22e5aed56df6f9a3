/* SPDX-License-Identifier: MIT
 *
 * Sleepers: how long one takes to have its frame, and what waking costs the producer; beside a bare
 * futex between two processes.
 */
#include <limits.h>
#include <stdatomic.h>

#include "bench.h"

#define WARM_UP 10
#define FRAME_BYTES 65536
#define FOREVER_TO_HERE 20000000000 /* ns: a time-out that never passes */

/* ---- consumers ------------------------------------------------------------------------------- */

/* Sleeps in acquire, takes the frame, gives it back, and again. */
static int sleep_in_acquire(struct bench_scene *scene, cudalink_importer importer, uint32_t seat) {
  while (!bench_stopped(scene)) {
    cudalink_frame frame;
    int status =
        cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, FOREVER_TO_HERE, &frame);
    uint64_t now = bench_ticks();
    if (status < 0 && bench_stopped(scene)) break;
    if (status < 0) return bench_fail_library(scene, "acquire");
    uint64_t sequence = frame.sequence;
    if (cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE) < 0)
      return bench_fail_library(scene, "release");
    atomic_store_explicit(&scene->stamp, now, memory_order_relaxed);
    atomic_store(&scene->seats[seat].taken, sequence);
  }
  return BENCH_OK;
}

/* Takes each frame when told to, and sleeps elsewhere in between: never asleep in acquire. */
static int take_when_told(struct bench_scene *scene, cudalink_importer importer, uint32_t seat) {
  for (uint32_t told = 0;;) {
    while (atomic_load(&scene->go) == told && !bench_stopped(scene))
      bench_futex_wait(&scene->go, told);
    if (bench_stopped(scene)) return BENCH_OK;
    told = atomic_load(&scene->go);
    cudalink_frame frame;
    if (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, FOREVER_TO_HERE, &frame) < 0)
      return bench_fail_library(scene, "acquire");
    uint64_t sequence = frame.sequence;
    if (cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE) < 0)
      return bench_fail_library(scene, "release");
    atomic_store(&scene->seats[seat].taken, sequence);
  }
}

/* The first `parameter` consumers sleep in acquire, the others only take part. */
static int consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  if (bench_import(scene, 0, &importer)) return BENCH_FAILED;
  bench_pin_consumer(seat);
  atomic_fetch_add(&scene->ready, 1);
  if ((int64_t)seat < scene->parameter) return sleep_in_acquire(scene, importer, seat);
  return take_when_told(scene, importer, seat);
}

/* ---- producers ------------------------------------------------------------------------------- */

static int open_with_consumers(struct bench_scene *scene, cudalink_exporter *exporter,
                               cudalink_description *description) {
  if (bench_export(scene, FRAME_BYTES, 4, exporter, description)) return BENCH_FAILED;
  if (cudalink_exporter_wait_consumers(*exporter, scene->consumers, 60000000000) < 0)
    return bench_fail_library(scene, "wait for consumers");
  while (atomic_load(&scene->ready) < scene->consumers && !bench_stopped(scene))
    continue;
  bench_pin_producer();
  return BENCH_OK;
}

static bool all_asleep(struct bench_scene *scene, uint64_t sequence, uint32_t sleepers) {
  for (uint32_t seat = 0; seat < sleepers; seat++) {
    if (!bench_wait_for(scene, &scene->seats[seat].taken, sequence)) return false;
    if (!bench_wait_asleep(scene->seats[seat].pid)) return false;
  }
  return true;
}

static void stop(struct bench_scene *scene, cudalink_exporter exporter) {
  atomic_store(&scene->stop, 1);
  atomic_fetch_add(&scene->go, 1);
  bench_futex_wake(&scene->go, INT_MAX);
  cudalink_exporter_close(exporter); /* wakes who sleeps in acquire */
}

/* One frame; *start and *end are the ticks around publish. */
static int timed_publish(struct bench_scene *scene, cudalink_exporter exporter,
                         const cudalink_description *description, cudalink_slot *slot,
                         uint64_t *start, uint64_t *end) {
  if (cudalink_exporter_begin(exporter, description, FOREVER_TO_HERE, slot) < 0)
    return bench_fail_library(scene, "begin");
  *start = bench_ticks();
  int status = cudalink_exporter_publish(exporter, slot, CUDALINK_STREAM_COMPLETE);
  *end = bench_ticks();
  return status < 0 ? bench_fail_library(scene, "publish") : BENCH_OK;
}

/* The same when all of `sleepers` have the frame before and sleep. */
static int wake_all(struct bench_scene *scene, uint32_t sleepers, cudalink_exporter exporter,
                    const cudalink_description *description, cudalink_slot *slot, uint64_t *start,
                    uint64_t *end) {
  if (!all_asleep(scene, slot->sequence, sleepers))
    return bench_fail(scene, "the consumers do not sleep");
  return timed_publish(scene, exporter, description, slot, start, end);
}

static double publish_cost(uint64_t start, uint64_t end) {
  return (bench_nanoseconds(end - start) - bench_clock_cost()) / 1e3;
}

/* Frame after frame for `sleepers` who sleep. The value is the cost of the publish call, or, with
 * `latency`, the time until the first of them had the frame. */
static int wake_again(struct bench_scene *scene, uint32_t sleepers, bool latency) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (open_with_consumers(scene, &exporter, &description)) return BENCH_FAILED;
  cudalink_slot slot = {0};
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t start = 0, end = 0;
    if (wake_all(scene, sleepers, exporter, &description, &slot, &start, &end)) return BENCH_FAILED;
    if (latency && !bench_wait_for(scene, &scene->seats[0].taken, slot.sequence))
      return BENCH_FAILED;
    if (i < WARM_UP) continue;
    bench_value(scene, latency ? bench_nanoseconds(atomic_load(&scene->stamp) - start) / 1e3
                               : publish_cost(start, end));
  }
  stop(scene, exporter);
  return BENCH_OK;
}

/* Publish -> the sleeper's acquire returns. */
static int wake_producer(struct bench_scene *scene) { return wake_again(scene, 1, true); }

int bench_wake(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, wake_producer, consumer, 1);
}

/* The publish call itself, with `parameter` of 64 consumers asleep. */
static int sleepers_producer(struct bench_scene *scene) {
  return wake_again(scene, (uint32_t)scene->parameter, false);
}

int bench_publish_sleepers(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, sleepers_producer, consumer, BENCH_MAX_CONSUMERS);
}

/* The same with all of `parameter` consumers taking every frame, none asleep in acquire: their words
 * lie in the caches of other processors. */
static int awake_producer(struct bench_scene *scene) {
  cudalink_exporter exporter;
  cudalink_description description;
  scene->parameter = 0; /* nobody sleeps */
  if (open_with_consumers(scene, &exporter, &description)) return BENCH_FAILED;
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t start = 0, end = 0;
    cudalink_slot slot;
    if (timed_publish(scene, exporter, &description, &slot, &start, &end)) return BENCH_FAILED;
    if (i >= WARM_UP) bench_value(scene, publish_cost(start, end));
    atomic_fetch_add(&scene->go, 1);
    bench_futex_wake(&scene->go, INT_MAX);
    for (uint32_t seat = 0; seat < scene->consumers; seat++) {
      if (!bench_wait_for(scene, &scene->seats[seat].taken, slot.sequence)) return BENCH_FAILED;
      if (!bench_wait_asleep(scene->seats[seat].pid))
        return bench_fail(scene, "the consumers do not sleep");
    }
  }
  stop(scene, exporter);
  return BENCH_OK;
}

static int awake_consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  if (bench_import(scene, 0, &importer)) return BENCH_FAILED;
  bench_pin_consumer(seat);
  atomic_fetch_add(&scene->ready, 1);
  return take_when_told(scene, importer, seat);
}

int bench_publish_awake(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, awake_producer, awake_consumer, (uint32_t)test->parameter);
}

/* ---- a bare futex ------------------------------------------------------------------------------ */

/* As many processes sleep as in the row that this is the floor of: what they leave in the caches while
 * they go to sleep, and looking whether they do, costs the call that follows, too. One is woken. */

static int futex_consumer(struct bench_scene *scene, uint32_t seat) {
  bench_pin_consumer(seat);
  for (uint32_t seen = 0; seen < scene->rounds + WARM_UP;) {
    while (atomic_load(&scene->bell) == seen)
      bench_futex_wait(&scene->bell, seen);
    uint64_t now = bench_ticks();
    seen++;
    atomic_store_explicit(&scene->stamp, now, memory_order_relaxed);
    atomic_store(&scene->seats[seat].taken, seen);
  }
  return BENCH_OK;
}

struct futex_round {
  double latency, call; /* us */
};

static int futex_rounds(struct bench_scene *scene,
                        double (*pick)(const struct futex_round *round)) {
  uint32_t sleepers = scene->consumers;
  bench_pin_producer();
  for (uint32_t seat = 0; seat < sleepers; seat++)
    while (!*(volatile int32_t *)&scene->seats[seat].pid && !bench_stopped(scene))
      continue;
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    if (!all_asleep(scene, i, sleepers))
      return bench_fail(scene, "the futex's sleepers do not sleep");
    uint64_t start = bench_ticks();
    atomic_fetch_add(&scene->bell, 1);
    bench_futex_wake(&scene->bell, 1);
    uint64_t end = bench_ticks();
    if (sleepers > 1) bench_futex_wake(&scene->bell, INT_MAX);
    for (uint32_t seat = 0; seat < sleepers; seat++)
      if (!bench_wait_for(scene, &scene->seats[seat].taken, i + 1)) return BENCH_FAILED;
    struct futex_round round = {bench_nanoseconds(atomic_load(&scene->stamp) - start) / 1e3,
                                (bench_nanoseconds(end - start) - bench_clock_cost()) / 1e3};
    if (i >= WARM_UP) bench_value(scene, pick(&round));
  }
  return BENCH_OK;
}

static double pick_latency(const struct futex_round *round) { return round->latency; }
static double pick_call(const struct futex_round *round) { return round->call; }
static int futex_latency(struct bench_scene *scene) { return futex_rounds(scene, pick_latency); }
static int futex_call(struct bench_scene *scene) { return futex_rounds(scene, pick_call); }

int bench_futex_latency(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, futex_latency, futex_consumer, (uint32_t)test->parameter);
}
int bench_futex_call(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, futex_call, futex_consumer, (uint32_t)test->parameter);
}
