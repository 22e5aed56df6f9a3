/* SPDX-License-Identifier: MIT
 *
 * The hand-over itself, with nobody asleep: publish, acquire, release; and the same with bare words,
 * which is the least that it could cost.
 */
#include <stdatomic.h>

#include "bench.h"

#define WARM_UP 200
#define FRAME_BYTES 65536
#define BETWEEN 1000     /* ns from an answer to the next frame, so that the consumer looks again */
#define SPIN 10000000    /* ns: longer than a round */
#define LONG 20000000000 /* ns: a time-out that never passes */

static void pause_for(uint64_t nanoseconds) {
  uint64_t start = bench_ticks();
  while (bench_nanoseconds(bench_ticks() - start) < (double)nanoseconds)
    continue;
}

/* ---- publish -> a spinning consumer holds the frame ------------------------------------------ */

/* Waits until the consumer has answered `round`. If that counts, the time since `start` is a value. */
static int wait_answer(struct bench_scene *scene, uint64_t start, uint32_t round, bool counts) {
  if (!bench_wait_for(scene, &scene->answer, round)) return BENCH_FAILED;
  uint64_t had = atomic_load_explicit(&scene->stamp, memory_order_relaxed);
  if (counts) bench_value(scene, bench_nanoseconds(had - start));
  return BENCH_OK;
}

int bench_hand_over(struct bench_scene *scene, cudalink_exporter exporter,
                    const cudalink_slot *slot, uint32_t round, bool counts) {
  uint64_t start = bench_ticks();
  if (cudalink_exporter_publish(exporter, slot, CUDALINK_STREAM_COMPLETE) < 0)
    return bench_fail_library(scene, "publish");
  return wait_answer(scene, start, round, counts);
}

int bench_take_over(struct bench_scene *scene, cudalink_importer importer, uint32_t rounds) {
  for (uint32_t i = 0; i < rounds; i++) {
    cudalink_frame frame;
    if (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LONG, &frame) < 0)
      return bench_fail_library(scene, "acquire");
    uint64_t now = bench_ticks();
    if (cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE) < 0)
      return bench_fail_library(scene, "release");
    atomic_store_explicit(&scene->stamp, now, memory_order_relaxed);
    atomic_store(&scene->answer, i + 1);
  }
  return BENCH_OK;
}

static int handover_consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  if (bench_import(scene, SPIN, &importer)) return BENCH_FAILED;
  bench_pin_consumer(seat);
  atomic_store(&scene->ready, 1);
  return bench_take_over(scene, importer, scene->rounds + WARM_UP);
}

static int handover_producer(struct bench_scene *scene) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (bench_export(scene, FRAME_BYTES, 4, &exporter, &description)) return BENCH_FAILED;
  if (cudalink_exporter_wait_consumers(exporter, 1, 20000000000) < 0)
    return bench_fail_library(scene, "wait for the consumer");
  bench_pin_producer();
  while (!atomic_load(&scene->ready) && !bench_stopped(scene))
    continue;
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    cudalink_slot slot;
    if (cudalink_exporter_begin(exporter, &description, LONG, &slot) < 0)
      return bench_fail_library(scene, "begin");
    pause_for(BETWEEN);
    if (bench_hand_over(scene, exporter, &slot, i + 1, i >= WARM_UP)) return BENCH_FAILED;
  }
  return BENCH_OK;
}

int bench_handover(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, handover_producer, handover_consumer, 1);
}

/* ---- the same with one word ------------------------------------------------------------------ */

static int word_consumer(struct bench_scene *scene, uint32_t seat) {
  bench_pin_consumer(seat);
  for (uint64_t seen = 0; seen < scene->rounds + WARM_UP;) {
    uint64_t word = atomic_load_explicit(&scene->word, memory_order_acquire);
    if (word == seen) continue;
    seen = word;
    uint64_t now = bench_ticks();
    atomic_store_explicit(&scene->stamp, now, memory_order_relaxed);
    atomic_store(&scene->answer, seen);
  }
  return BENCH_OK;
}

static int word_producer(struct bench_scene *scene) {
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    pause_for(BETWEEN);
    uint64_t start = bench_ticks();
    atomic_store_explicit(&scene->word, i + 1, memory_order_release);
    if (wait_answer(scene, start, i + 1, i >= WARM_UP)) return BENCH_FAILED;
  }
  return BENCH_OK;
}

int bench_word(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, word_producer, word_consumer, 1);
}

/* ---- single calls, both ends in one process, everything warm --------------------------------- */

/* What one round of calls took, in ticks. */
struct calls {
  uint64_t begin, publish, take; /* take: acquire and release */
};

static int round_of_calls(struct bench_scene *scene, cudalink_exporter exporter,
                          cudalink_importer importer, const cudalink_description *description,
                          struct calls *calls) {
  cudalink_slot slot;
  cudalink_frame frame;
  uint64_t start = bench_ticks();
  int begun = cudalink_exporter_begin(exporter, description, LONG, &slot);
  uint64_t before_publish = bench_ticks();
  if (begun < 0) return bench_fail_library(scene, "begin");
  if (cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE) < 0)
    return bench_fail_library(scene, "publish");
  uint64_t after_publish = bench_ticks();
  int acquired = cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LONG, &frame);
  int released = acquired < 0 ? 0 : cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  uint64_t end = bench_ticks();
  if (acquired < 0) return bench_fail_library(scene, "acquire");
  if (released < 0) return bench_fail_library(scene, "release");
  *calls =
      (struct calls){before_publish - start, after_publish - before_publish, end - after_publish};
  return BENCH_OK;
}

static double call_time(uint64_t ticks) { return bench_nanoseconds(ticks) - bench_clock_cost(); }

static int play_calls(struct bench_scene *scene, uint64_t bytes,
                      double (*pick)(const struct calls *calls)) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  if (bench_export(scene, bytes, 4, &exporter, &description)) return BENCH_FAILED;
  if (bench_import(scene, 0, &importer)) return BENCH_FAILED;
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    struct calls calls;
    if (round_of_calls(scene, exporter, importer, &description, &calls)) return BENCH_FAILED;
    if (i >= WARM_UP) bench_value(scene, pick(&calls));
  }
  return BENCH_OK;
}

static double pick_take(const struct calls *calls) { return call_time(calls->take); }
static double pick_begin(const struct calls *calls) { return call_time(calls->begin); }
static double pick_publish(const struct calls *calls) { return call_time(calls->publish); }
static double pick_all(const struct calls *calls) {
  return call_time(calls->begin) + call_time(calls->publish) + call_time(calls->take);
}

static int play_acquire(struct bench_scene *scene) {
  return play_calls(scene, FRAME_BYTES, pick_take);
}
static int play_begin(struct bench_scene *scene) {
  return play_calls(scene, FRAME_BYTES, pick_begin);
}
static int play_publish(struct bench_scene *scene) {
  return play_calls(scene, FRAME_BYTES, pick_publish);
}
static int play_cycle(struct bench_scene *scene) {
  return play_calls(scene, (uint64_t)scene->parameter, pick_all);
}

int bench_acquire(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_acquire, NULL, 0);
}
int bench_begin(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_begin, NULL, 0);
}
int bench_publish_call(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_publish, NULL, 0);
}
int bench_cycle(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_cycle, NULL, 0);
}

/* ---- the words of a lease and of a publish, nothing else -------------------------------------- */

/* They take less than a step of some clocks (10 ns where the time stamp counter goes on at 100 MHz), so
 * many of them are timed as one. */
#define AT_ONCE 100

static double word_time(uint64_t ticks) { return call_time(ticks) / AT_ONCE; }

static int play_lease_words(struct bench_scene *scene) {
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t start = bench_ticks();
    for (uint32_t n = 0; n < AT_ONCE; n++) {
      atomic_store(&scene->word, i + 1); /* want */
      (void)atomic_load(&scene->answer); /* st */
      atomic_store(&scene->word, 0);     /* release */
    }
    uint64_t end = bench_ticks();
    if (i >= WARM_UP) bench_value(scene, word_time(end - start));
  }
  return BENCH_OK;
}

static int play_publish_words(struct bench_scene *scene) {
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t start = bench_ticks();
    for (uint32_t n = 0; n < AT_ONCE; n++) {
      atomic_store_explicit(&scene->answer, i, memory_order_release); /* index, st */
      atomic_store(&scene->word, i + 1);                              /* head */
      atomic_fetch_add(&scene->bell, 1);
    }
    uint64_t end = bench_ticks();
    if (i >= WARM_UP) bench_value(scene, word_time(end - start));
  }
  return BENCH_OK;
}

int bench_lease_words(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_lease_words, NULL, 0);
}
int bench_publish_words(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_publish_words, NULL, 0);
}
