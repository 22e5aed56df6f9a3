/* SPDX-License-Identifier: MIT
 *
 * A consumer that waits for a frame which does not come costs nothing: for ten seconds no thread of
 * its process runs.
 */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

#define LIMIT 5000000000 /* ns until the consumer must be asleep */

/* Times that the threads of a process gave up their processors, willingly or not. */
static uint64_t count_switches(int32_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *tasks = opendir(path);
  if (!tasks) return 0;
  uint64_t switches = 0;
  for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
    char file_name[352], line[128];
    snprintf(file_name, sizeof file_name, "%s/%s/status", path, task->d_name);
    FILE *file = task->d_name[0] == '.' ? NULL : fopen(file_name, "re");
    if (!file) continue;
    while (fgets(line, sizeof line, file)) {
      const char *value = strstr(line, "voluntary_ctxt_switches:");
      if (value) switches += strtoull(strchr(value, ':') + 1, NULL, 10);
    }
    fclose(file);
  }
  closedir(tasks);
  return switches;
}

static int consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  if (bench_import(scene, 0, &importer)) return BENCH_FAILED;
  cudalink_importer_statistics before = {.size = sizeof before}, after = {.size = sizeof after};
  cudalink_frame frame;
  cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LIMIT, &frame);
  cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  cudalink_importer_get_statistics(importer, &before);
  atomic_store(&scene->seats[seat].taken, 1);
  /* The second frame comes after the silence, and ends it: one wake. */
  int status = cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE,
                                         4 * (int64_t)scene->parameter, &frame);
  if (status < 0) return bench_fail_library(scene, "acquire");
  cudalink_importer_get_statistics(importer, &after);
  atomic_store(&scene->answer, after.wakes - before.wakes);
  atomic_store(&scene->seats[seat].taken, 2);
  return BENCH_OK;
}

struct silence {
  uint64_t wakes, switches;
};

static int silence(struct bench_scene *scene, struct silence *silence) {
  cudalink_exporter exporter;
  cudalink_description description;
  if (bench_export(scene, 65536, 4, &exporter, &description)) return BENCH_FAILED;
  if (cudalink_exporter_wait_consumers(exporter, 1, 20000000000) < 0)
    return bench_fail_library(scene, "wait for the consumer");
  if (bench_publish(scene, exporter, &description)) return BENCH_FAILED;
  int32_t pid = scene->seats[0].pid;
  if (!bench_wait_for(scene, &scene->seats[0].taken, 1)) return BENCH_FAILED;
  if (!bench_wait_asleep(pid)) return bench_fail(scene, "the consumer does not sleep");
  uint64_t before = count_switches(pid);
  struct timespec pause = {.tv_sec = (time_t)(scene->parameter / 1000000000)};
  nanosleep(&pause, NULL); /* what is measured is the silence */
  silence->switches = count_switches(pid) - before;
  if (bench_publish(scene, exporter, &description)) return BENCH_FAILED;
  if (!bench_wait_for(scene, &scene->seats[0].taken, 2)) return BENCH_FAILED;
  uint64_t wakes = atomic_load(&scene->answer);
  silence->wakes = wakes ? wakes - 1 : 0;
  return BENCH_OK;
}

static int play_wakes(struct bench_scene *scene) {
  struct silence found = {0};
  if (silence(scene, &found)) return BENCH_FAILED;
  bench_value(scene, (double)found.wakes);
  return BENCH_OK;
}

static int play_switches(struct bench_scene *scene) {
  struct silence found = {0};
  if (silence(scene, &found)) return BENCH_FAILED;
  bench_value(scene, (double)found.switches);
  return BENCH_OK;
}

int bench_blocked_wakes(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_wakes, consumer, 1);
}

int bench_blocked_switches(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_switches, consumer, 1);
}
