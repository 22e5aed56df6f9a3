/* SPDX-License-Identifier: MIT
 *
 * producer NAME [FRAMES [CONSUMERS]]: publishes pictures that the CPU made, 60 per second, until Ctrl-C
 * or until so many FRAMES. With CONSUMERS it waits for so many of them first.
 *
 * The pictures may end up in GPU memory: send copies them to wherever frames of this channel live.
 */
#include <cudalink/cudalink.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WIDTH 640
#define HEIGHT 480
#define BYTES (WIDTH * HEIGHT * 4)
#define SECOND 1000000000

static volatile sig_atomic_t stopped;

static void stop(int number) {
  (void)number;
  stopped = 1;
}

static int failed(const char *what) {
  fprintf(stderr, "producer: %s: %s\n", what, cudalink_last_error());
  return EXIT_FAILURE;
}

static void print_path(cudalink_exporter exporter) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  cudalink_exporter_get_statistics(exporter, &statistics);
  printf("path: %s (%s)\n", statistics.path, statistics.reason);
  fflush(stdout);
}

static void wait_for_next(struct timespec *next) {
  next->tv_nsec += SECOND / 60;
  next->tv_sec += next->tv_nsec / SECOND;
  next->tv_nsec %= SECOND;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "picture";
  long frames = argc > 2 ? atol(argv[2]) : 0;
  uint32_t consumers = argc > 3 ? (uint32_t)atol(argv[3]) : 0;
  signal(SIGINT, stop);
  signal(SIGTERM, stop);

  /* What a frame looks like: rows without gaps (alignment 1), as they lie in `pixels`. */
  cudalink_description picture = {0};
  cudalink_describe_picture(&picture, CUDALINK_FORMAT_RGBA8, WIDTH, HEIGHT, 1);
  cudalink_exporter exporter;
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = name, .description = &picture};
  if (cudalink_exporter_open(&exporter, &spec) < 0) return failed("open");
  print_path(exporter);
  while (!stopped && cudalink_exporter_wait_consumers(exporter, consumers, SECOND / 10) ==
                         CUDALINK_ERROR_TIMEOUT)
    continue;

  static unsigned char pixels[BYTES];
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  int status = CUDALINK_OK;
  long number = 0;
  while (!stopped && (!frames || number < frames)) {
    memset(pixels, (int)(number % 256), sizeof pixels);
    /* COMPLETE: the copy is done when send returns, so `pixels` may change again. */
    status = cudalink_exporter_send(exporter, &picture, pixels, NULL, CUDALINK_STREAM_COMPLETE,
                                    SECOND / 10);
    if (status == CUDALINK_ERROR_BUSY) continue; /* somebody wants every frame and is behind */
    if (status < 0) break;
    number++;
    wait_for_next(&next);
  }
  if (status < 0 && status != CUDALINK_ERROR_BUSY) return failed("send");
  /* Whoever wants every frame gets the last ones. */
  cudalink_exporter_wait_taken(exporter, INT64_C(10) * SECOND);
  cudalink_exporter_close(exporter);
  printf("%ld frames\n", number);
  return EXIT_SUCCESS;
}
