/* SPDX-License-Identifier: MIT
 *
 * Memory of a channel beside its frames, and of each consumer: shared pages and the producer's own.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define FRAME_BYTES 65536
#define SLOTS 16
#define BUDGET_PLANE 256 /* bytes of metadata per slot and declared plane that frames may cost */

/* "FROM-TO rwxp ...": the first line of a mapping. */
static bool begins_mapping(const char *line) {
  char *rest;
  strtoul(line, &rest, 16);
  return rest != line && *rest == '-';
}

/* "NAME NUMBER kB" with this name. */
static bool says(const char *line, const char *name, double *kib) {
  size_t length = strlen(name);
  if (strncmp(line, name, length) != 0) return false;
  *kib = (double)strtoul(line + length, NULL, 10);
  return true;
}

/* Bytes of this process's mappings of memfds, in KiB: resident pages, as /proc counts them. */
static double shared_kib(void) {
  FILE *file = fopen("/proc/self/smaps", "re");
  char line[512];
  double kib, total = 0;
  bool counts = false;
  while (file && fgets(line, sizeof line, file)) {
    if (begins_mapping(line))
      counts = strstr(line, "/memfd:") != NULL;
    else if (counts && says(line, "Rss:", &kib))
      total += kib;
  }
  if (file) fclose(file);
  return total;
}

/* Pages of this process that no file, no memfd is behind. */
static double private_kib(void) {
  FILE *file = fopen("/proc/self/smaps_rollup", "re");
  char line[512];
  double kib = 0;
  while (file && fgets(line, sizeof line, file))
    if (says(line, "Anonymous:", &kib)) break;
  if (file) fclose(file);
  return kib;
}

/* By the row's parameter. */
static double wanted(const struct bench_scene *scene, double shared, double own) {
  switch (scene->parameter) {
  case BENCH_MEMORY_SHARED: return shared;
  case BENCH_MEMORY_OWN: return own;
  default: return shared + own;
  }
}

static int open_channel(struct bench_scene *scene, const char *suffix,
                        cudalink_exporter *exporter) {
  cudalink_description description;
  snprintf(scene->name + strlen(scene->name), 8, "%s", suffix);
  return bench_export(scene, FRAME_BYTES, SLOTS, exporter, &description);
}

/* The second channel of the process: threads and tables are there already. */
static int play_channel(struct bench_scene *scene) {
  cudalink_exporter first, second;
  if (open_channel(scene, "a", &first)) return BENCH_FAILED;
  double shared = shared_kib(), own = private_kib();
  if (open_channel(scene, "b", &second)) return BENCH_FAILED;
  bool is_shared = scene->options->kind == CUDALINK_KIND_HOST; /* else the GPU has the frames */
  double frames = SLOTS * ((is_shared ? FRAME_BYTES : 0) + BUDGET_PLANE) / 1024.0;
  shared = shared_kib() - shared - frames;
  own = private_kib() - own;
  bench_value(scene, wanted(scene, shared, own));
  return BENCH_OK;
}

static int attach(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  while (!atomic_load(&scene->ready) && !bench_stopped(scene))
    bench_futex_wait(&scene->ready, 0);
  if (bench_import(scene, 0, &importer)) return BENCH_FAILED;
  atomic_store(&scene->seats[seat].taken, 1);
  while (!bench_stopped(scene))
    bench_futex_wait(&scene->stop, 0);
  return BENCH_OK;
}

static int play_consumer(struct bench_scene *scene) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (bench_export(scene, FRAME_BYTES, SLOTS, &exporter, &description)) return BENCH_FAILED;
  double shared = shared_kib(), own = private_kib();
  atomic_store(&scene->ready, 1);
  bench_futex_wake(&scene->ready, BENCH_MAX_CONSUMERS);
  for (uint32_t seat = 0; seat < scene->consumers; seat++)
    if (!bench_wait_for(scene, &scene->seats[seat].taken, 1)) return BENCH_FAILED;
  shared = (shared_kib() - shared) / scene->consumers;
  own = (private_kib() - own) / scene->consumers;
  bench_value(scene, wanted(scene, shared, own));
  atomic_store(&scene->stop, 1);
  bench_futex_wake(&scene->stop, BENCH_MAX_CONSUMERS);
  return BENCH_OK;
}

int bench_memory_channel(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_channel, NULL, 0);
}

int bench_memory_consumer(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_consumer, attach, 32);
}
