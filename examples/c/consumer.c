/* SPDX-License-Identifier: MIT
 *
 * consumer NAME: takes every frame of a channel and prints a line for each, until the producer closes
 * the channel. It may be started before the producer, and goes on with the next one when a producer
 * died.
 */
#include <cudalink/cudalink.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what) {
  fprintf(stderr, "consumer: %s: %s\n", what, cudalink_last_error());
  return EXIT_FAILURE;
}

/* The frame's bytes where the CPU can read them. Frames in shared memory are read in place, frames
 * in GPU memory are copied into `*buffer`, which grows as needed. */
static const unsigned char *bytes_of(const cudalink_frame *frame, unsigned char **buffer) {
  if (frame->kind == CUDALINK_KIND_HOST) return frame->data;
  uint64_t size;
  if (cudalink_packed_bytes(&frame->description, &size) < 0) return NULL;
  unsigned char *larger = realloc(*buffer, size);
  if (!larger) return NULL;
  *buffer = larger;
  return cudalink_frame_to_host(frame, *buffer, size) < 0 ? NULL : *buffer;
}

static void print_frame(const cudalink_frame *frame, unsigned char **buffer) {
  if (frame->flags & CUDALINK_FRAME_INVALID) {
    printf("frame %" PRIu64 ": invalid, %s\n", frame->sequence, frame->text);
    return;
  }
  const unsigned char *bytes = bytes_of(frame, buffer);
  if (!bytes) {
    failed("read");
    return;
  }
  const cudalink_picture *picture = &frame->description.picture;
  printf("frame %" PRIu64 ": %ux%u, first byte %d, missed %" PRIu64 "\n", frame->sequence,
         picture->width, picture->height, bytes[0], frame->missed);
}

int main(int argc, char **argv) {
  cudalink_importer importer;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = argc > 1 ? argv[1] : "picture",
                                 .policy = CUDALINK_POLICY_EVERY};
  if (cudalink_importer_open(&importer, &spec) < 0) return failed("open");

  unsigned char *buffer = NULL;
  for (;;) {
    cudalink_frame frame;
    int status =
        cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER, &frame);
    if (status == CUDALINK_ERROR_ENDED) break;
    if (status == CUDALINK_ERROR_LOST || status == CUDALINK_ERROR_EVICTED) {
      printf("%s\n", cudalink_last_error()); /* told once; the next acquire joins again */
      continue;
    }
    if (status < 0) return failed("acquire");
    print_frame(&frame, &buffer);
    fflush(stdout);
    cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  }
  free(buffer);
  printf("ended\n");
  return cudalink_importer_close(importer) < 0;
}
