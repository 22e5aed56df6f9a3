/* SPDX-License-Identifier: MIT
 *
 * Beginnings: a channel from open to its first frame, and a consumer that comes later.
 */
#include <stdatomic.h>

#include "bench.h"

#define FRAME_BYTES 65536
#define LONG 20000000000 /* ns: a time-out that never passes */

static int take_one(struct bench_scene *scene, cudalink_importer importer, uint64_t *when) {
  cudalink_frame frame;
  if (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LONG, &frame) < 0)
    return bench_fail_library(scene, "acquire");
  *when = bench_ticks();
  if (cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE) < 0)
    return bench_fail_library(scene, "release");
  return BENCH_OK;
}

/* A producer opens while a consumer waits for it: open -> the consumer has the first frame. */
static int first_consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = scene->name,
                                 .directory = scene->options->directory, .device = -1};
  if (cudalink_importer_open(&importer, &spec) < 0) return bench_fail_library(scene, "attach");
  for (uint32_t i = 0; i < scene->rounds; i++) {
    uint64_t when;
    atomic_store(&scene->ready, i + 1);
    if (take_one(scene, importer, &when)) return BENCH_FAILED;
    atomic_store(&scene->stamp, when);
    atomic_store(&scene->seats[seat].taken, i + 1);
    cudalink_frame frame; /* until it has been told that the channel ended */
    while (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LONG, &frame) >= 0)
      cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  }
  return BENCH_OK;
}

static int first_producer(struct bench_scene *scene) {
  for (uint32_t i = 0; i < scene->rounds; i++) {
    cudalink_exporter exporter;
    cudalink_description description;
    while (atomic_load(&scene->ready) != i + 1 && !bench_stopped(scene))
      continue;
    if (!bench_wait_asleep(scene->seats[0].pid)) return bench_fail(scene, "nobody waits");
    uint64_t start = bench_ticks();
    if (bench_export(scene, FRAME_BYTES, 4, &exporter, &description)) return BENCH_FAILED;
    if (bench_publish(scene, exporter, &description)) return BENCH_FAILED;
    if (!bench_wait_for(scene, &scene->seats[0].taken, i + 1)) return BENCH_FAILED;
    bench_value(scene, bench_nanoseconds(atomic_load(&scene->stamp) - start) / 1e6);
    cudalink_exporter_close(exporter);
  }
  return BENCH_OK;
}

int bench_open_first(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, first_producer, first_consumer, 1);
}

/* A consumer opens while a producer is there with a frame: open -> it has the frame. */
static int attach_consumer(struct bench_scene *scene, uint32_t seat) {
  (void)seat;
  while (!atomic_load(&scene->ready) && !bench_stopped(scene))
    bench_futex_wait(&scene->ready, 0);
  for (uint32_t i = 0; i < scene->rounds && !bench_stopped(scene); i++) {
    uint64_t start = bench_ticks(), when = 0;
    cudalink_importer importer;
    if (bench_import(scene, 0, &importer)) return BENCH_FAILED;
    if (take_one(scene, importer, &when)) return BENCH_FAILED;
    if (i > 0) bench_value(scene, bench_nanoseconds(when - start) / 1e6); /* 0: starts threads */
    cudalink_importer_close(importer);
  }
  atomic_store(&scene->stop, 1);
  bench_futex_wake(&scene->stop, 1);
  return BENCH_OK;
}

static int attach_producer(struct bench_scene *scene) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (bench_export(scene, FRAME_BYTES, 4, &exporter, &description)) return BENCH_FAILED;
  if (bench_publish(scene, exporter, &description)) return BENCH_FAILED;
  atomic_store(&scene->ready, 1);
  bench_futex_wake(&scene->ready, 1);
  while (!bench_stopped(scene))
    bench_futex_wait(&scene->stop, 0);
  return BENCH_OK;
}

int bench_attach(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, attach_producer, attach_consumer, 1);
}
