/* SPDX-License-Identifier: MIT
 *
 * One recorded run of the real library: a producer and some consumers, each a process, all choices from a seed.
 * Built with CUDALINK_TRACE and trace.c; `scripts/replay-traces --record` replays what it writes.
 *
 *   record SEED FOLDER        with CUDALINK_TRACE_FILE set; FOLDER is the channel's, empty
 */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudalink/cudalink.h"

#define FRAMES 24
#define MILLISECOND INT64_C(1000000)
#define SECOND (1000 * MILLISECOND)
#define HOLD 2

struct random {
  uint64_t state;
};
static unsigned pick(struct random *random, unsigned below) {
  random->state = random->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (unsigned)(random->state >> 33) % below;
}
static void wobble(struct random *random) {
  for (unsigned i = pick(random, 4); i > 1; i--)
    sched_yield();
}

static int fail(const char *what) {
  fprintf(stderr, "record: %s: %s\n", what, cudalink_last_error());
  return 1;
}

static int describe(cudalink_description *description, int64_t bytes) {
  *description = (cudalink_description){0};
  return cudalink_describe_tensor(description, "bytes", CUDALINK_UINT8, 1, &bytes);
}

static int consume(const char *folder, struct random random) {
  static const cudalink_policy policies[] = {CUDALINK_POLICY_LATEST, CUDALINK_POLICY_LATEST,
                                             CUDALINK_POLICY_IN_ORDER, CUDALINK_POLICY_EVERY};
  cudalink_importer importer;
  cudalink_importer_spec spec = {
      CUDALINK_IMPORTER_DEFAULTS,           .name = "record", .directory = folder,
      .policy = policies[pick(&random, 4)], .hold = HOLD,     .once = 1,
      .open_timeout = 10 * SECOND};
  if (cudalink_importer_open(&importer, &spec) < 0) return fail("importer");
  cudalink_host_stream *stream;
  if (cudalink_host_stream_create(&stream) < 0) return fail("stream");
  cudalink_frame held[HOLD];
  unsigned count = 0;
  for (;;) {
    if (count == HOLD || (count && pick(&random, 2))) {
      bool by_stream = pick(&random, 2);
      if (cudalink_frame_release(&held[--count], by_stream ? CUDALINK_STREAM_HANDLE(stream)
                                                           : CUDALINK_STREAM_COMPLETE) < 0)
        return fail("release");
    }
    wobble(&random);
    int status = cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 20 * MILLISECOND,
                                           &held[count]);
    if (status == CUDALINK_OK)
      count++;
    else if (status != CUDALINK_ERROR_TIMEOUT && status != CUDALINK_ERROR_BUSY)
      break;
  }
  while (count)
    cudalink_frame_release(&held[--count], CUDALINK_STREAM_COMPLETE);
  cudalink_host_stream_destroy(stream);
  cudalink_importer_close(importer);
  return 0;
}

static int produce(const char *folder, unsigned consumers, struct random random) {
  cudalink_exporter exporter;
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = "record", .directory = folder,
                                 .kind = CUDALINK_KIND_HOST, .slots = 4,       .max_slots = 8};
  int64_t bytes = 64;
  cudalink_description description;
  describe(&description, bytes);
  spec.description = &description;
  if (cudalink_exporter_open(&exporter, &spec) < 0) return fail("exporter");
  if (cudalink_exporter_wait_consumers(exporter, consumers, 10 * SECOND) < 0)
    return fail("wait_consumers");
  for (int i = 0; i < FRAMES; i++) {
    if (pick(&random, 10) == 0) bytes *= 4; /* a new generation now and then */
    describe(&description, bytes);
    cudalink_slot slot;
    int status = cudalink_exporter_begin(exporter, &description, 50 * MILLISECOND, &slot);
    if (status == CUDALINK_ERROR_BUSY) continue;
    if (status < 0) return fail("begin");
    wobble(&random);
    if (pick(&random, 10) == 0)
      cudalink_exporter_abandon(exporter, &slot, CUDALINK_STREAM_COMPLETE);
    else if (cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE) < 0)
      return fail("publish");
    wobble(&random);
  }
  cudalink_exporter_close(exporter);
  return 0;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  uint64_t seed = strtoull(arguments[1], NULL, 10);
  struct random random = {seed * 2654435761u + 1};
  unsigned consumers = 1 + pick(&random, 3);
  for (unsigned m = 0; m < consumers; m++)
    if (!fork()) exit(consume(arguments[2], (struct random){seed * 40503u + m + 7}));
  int status = produce(arguments[2], consumers, random), child;
  while (wait(&child) > 0)
    if (child) status = 1;
  return status;
}
