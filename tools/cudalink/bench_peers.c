/* SPDX-License-Identifier: MIT
 *
 * Whole pictures, 1920x1080 RGBA8, from a buffer of the producer to a consumer that can read all of
 * it: by the library, and by what people use instead, as they would write it.
 *
 * Latency is measured one picture at a time, the rate with pictures as fast as they go. Nobody looks
 * at the pixels behind the hand-over.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"

#define PICTURE_BYTES ((size_t)1920 * 1080 * 4)
#define WARM_UP 5
#define LONG 20000000000 /* ns: a time-out that never passes */

static unsigned char *picture_make(struct bench_scene *scene) {
  unsigned char *picture = malloc(PICTURE_BYTES);
  if (!picture)
    bench_fail(scene, "no memory for a picture");
  else
    memset(picture, 17, PICTURE_BYTES);
  return picture;
}

/* ---- one copy, nothing else: the floor ------------------------------------------------------- */

static void time_copies(struct bench_scene *scene, const unsigned char *source,
                        unsigned char *target) {
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t start = bench_ticks();
    memcpy(target, source, PICTURE_BYTES);
    __asm__ volatile("" : : "r"(target) : "memory");
    if (i >= WARM_UP) bench_value(scene, bench_nanoseconds(bench_ticks() - start) / 1e3);
  }
}

static int play_memcpy(struct bench_scene *scene) {
  unsigned char *source = picture_make(scene), *target = picture_make(scene);
  bool made = source && target;
  if (made) time_copies(scene, source, target);
  free(source);
  free(target);
  return made ? BENCH_OK : BENCH_FAILED;
}

int bench_memcpy(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_memcpy, NULL, 0);
}

/* ---- one at a time, and as fast as they go ---------------------------------------------------- */

/* How a kind of transport sends one picture; `context` is its own. */
typedef int (*send_picture)(struct bench_scene *scene, void *context, const unsigned char *picture);

static int send_one_by_one(struct bench_scene *scene, send_picture send, void *context,
                           const unsigned char *picture) {
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t start = bench_ticks();
    if (send(scene, context, picture)) return BENCH_FAILED;
    if (!bench_wait_for(scene, &scene->answer, i + 1)) return BENCH_FAILED;
    if (i >= WARM_UP)
      bench_value(scene, bench_nanoseconds(atomic_load(&scene->stamp) - start) / 1e3);
  }
  return BENCH_OK;
}

/* The rate as the consumer gets them: nothing that was lost counts. */
static int send_flowing(struct bench_scene *scene, send_picture send, void *context,
                        const unsigned char *picture) {
  uint64_t start = 0;
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    if (i == WARM_UP) start = bench_ticks();
    if (send(scene, context, picture)) return BENCH_FAILED;
  }
  if (!bench_wait_for(scene, &scene->answer, scene->rounds + WARM_UP)) return BENCH_FAILED;
  double seconds = bench_nanoseconds(atomic_load(&scene->stamp) - start) / 1e9;
  bench_value(scene, scene->rounds / seconds);
  return BENCH_OK;
}

typedef int (*send_flow)(struct bench_scene *scene, send_picture send, void *context,
                         const unsigned char *picture);

static int send_pictures(struct bench_scene *scene, send_flow flow, send_picture send,
                         void *context) {
  unsigned char *picture = picture_make(scene);
  if (!picture) return BENCH_FAILED;
  bench_pin_producer();
  int status = flow(scene, send, context, picture);
  free(picture);
  return status;
}

static void got(struct bench_scene *scene, uint64_t count) {
  atomic_store_explicit(&scene->stamp, bench_ticks(), memory_order_relaxed);
  atomic_store(&scene->answer, count);
}

/* ---- the library ------------------------------------------------------------------------------- */

struct library {
  cudalink_exporter exporter;
  cudalink_description description;
};

static int library_send(struct bench_scene *scene, void *context, const unsigned char *picture) {
  struct library *library = context;
  int status = cudalink_exporter_send(library->exporter, &library->description, picture, NULL,
                                      CUDALINK_STREAM_COMPLETE, LONG);
  return status < 0 ? bench_fail_library(scene, "send") : BENCH_OK;
}

static int library_open(struct bench_scene *scene, struct library *library) {
  library->description = (cudalink_description){0};
  cudalink_describe_picture(&library->description, CUDALINK_FORMAT_RGBA8, 1920, 1080, 1);
  cudalink_exporter_spec spec = {
      CUDALINK_EXPORTER_DEFAULTS,           .name = scene->name,
      .description = &library->description, .kind = scene->options->kind,
      .device = scene->options->device,     .directory = scene->options->directory};
  if (cudalink_exporter_open(&library->exporter, &spec) < 0)
    return bench_fail_library(scene, "open");
  if (cudalink_exporter_wait_consumers(library->exporter, 1, LONG) < 0)
    return bench_fail_library(scene, "wait for the consumer");
  return BENCH_OK;
}

static int library_consumer(struct bench_scene *scene, uint32_t seat) {
  cudalink_importer importer;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS,
                                 .name = scene->name,
                                 .directory = scene->options->directory,
                                 .device = -1,
                                 .policy = CUDALINK_POLICY_EVERY,
                                 .open_timeout = LONG};
  if (cudalink_importer_open(&importer, &spec) < 0) return bench_fail_library(scene, "attach");
  bench_pin_consumer(seat);
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    cudalink_frame frame;
    if (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LONG, &frame) < 0)
      return bench_fail_library(scene, "acquire");
    got(scene, i + 1);
    cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  }
  return BENCH_OK;
}

static int library_latency(struct bench_scene *scene) {
  struct library library;
  if (library_open(scene, &library)) return BENCH_FAILED;
  return send_pictures(scene, send_one_by_one, library_send, &library);
}
static int library_rate(struct bench_scene *scene) {
  struct library library;
  if (library_open(scene, &library)) return BENCH_FAILED;
  return send_pictures(scene, send_flowing, library_send, &library);
}
int bench_picture_latency(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, library_latency, library_consumer, 1);
}
int bench_picture_rate(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, library_rate, library_consumer, 1);
}

/* ---- a socket, a pipe --------------------------------------------------------------------------- */

static int pair[2]; /* read end, write end; made before the children */

static int write_all(struct bench_scene *scene, void *context, const unsigned char *picture) {
  (void)context;
  for (size_t done = 0; done < PICTURE_BYTES;) {
    ssize_t count = write(pair[1], picture + done, PICTURE_BYTES - done);
    if (count <= 0) return bench_fail(scene, "the picture could not be written");
    done += (size_t)count;
  }
  return BENCH_OK;
}

static int read_pictures(struct bench_scene *scene, unsigned char *picture) {
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    for (size_t done = 0; done < PICTURE_BYTES;) {
      ssize_t count = read(pair[0], picture + done, PICTURE_BYTES - done);
      if (count <= 0) return bench_fail(scene, "the picture could not be read");
      done += (size_t)count;
    }
    got(scene, i + 1);
  }
  return BENCH_OK;
}

static int read_all(struct bench_scene *scene, uint32_t seat) {
  unsigned char *picture = picture_make(scene);
  if (!picture) return BENCH_FAILED;
  bench_pin_consumer(seat);
  close(pair[1]);
  int status = read_pictures(scene, picture);
  free(picture);
  return status;
}

static int write_latency(struct bench_scene *scene) {
  return send_pictures(scene, send_one_by_one, write_all, NULL);
}
static int write_rate(struct bench_scene *scene) {
  return send_pictures(scene, send_flowing, write_all, NULL);
}

static int play_pair(struct bench_case *test, struct bench_samples *samples, int made,
                     bench_producer producer) {
  if (made != 0) {
    snprintf(test->text, sizeof test->text, "no socket or pipe could be made");
    return BENCH_FAILED;
  }
  int status = bench_play(test, samples, producer, read_all, 1);
  close(pair[0]);
  close(pair[1]);
  return status;
}

int bench_socket_latency(struct bench_case *test, struct bench_samples *samples) {
  return play_pair(test, samples, socketpair(AF_UNIX, SOCK_STREAM, 0, pair), write_latency);
}
int bench_socket_rate(struct bench_case *test, struct bench_samples *samples) {
  return play_pair(test, samples, socketpair(AF_UNIX, SOCK_STREAM, 0, pair), write_rate);
}
int bench_pipe_latency(struct bench_case *test, struct bench_samples *samples) {
  return play_pair(test, samples, pipe(pair), write_latency);
}
int bench_pipe_rate(struct bench_case *test, struct bench_samples *samples) {
  return play_pair(test, samples, pipe(pair), write_rate);
}
