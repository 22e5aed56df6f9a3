/* SPDX-License-Identifier: MIT
 *
 * resize NAME: a producer that changes the size and the format of its pictures while consumers are
 * connected. Whatever fits into the slots goes on at once; a larger picture moves the channel to larger
 * memory, and frames that are still held in the old one stay whole. `consumer` shows the changes.
 */
#include <cudalink/cudalink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_PER_SIZE 20

static const struct {
  cudalink_format format;
  uint32_t width, height;
} pictures[] = {{CUDALINK_FORMAT_RGBA8, 640, 480},
                {CUDALINK_FORMAT_RGBA8, 320, 240},
                {CUDALINK_FORMAT_RGBA8, 1920, 1080},
                {CUDALINK_FORMAT_NV12, 1920, 1080},
                {CUDALINK_FORMAT_RGBA16F, 2560, 1440}};
#define PICTURES (sizeof pictures / sizeof pictures[0])

static int failed(const char *what) {
  fprintf(stderr, "resize: %s: %s\n", what, cudalink_last_error());
  return EXIT_FAILURE;
}

static void print_memory(cudalink_exporter exporter, const cudalink_description *description) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  if (cudalink_exporter_get_statistics(exporter, &statistics) < 0) return;
  printf("%s %ux%u: memory number %d, %d KiB\n", cudalink_format_name(description->picture.format),
         description->picture.width, description->picture.height, (int)statistics.generations,
         (int)(statistics.memory_bytes / 1024));
}

static int send_some(cudalink_exporter exporter, const cudalink_description *description) {
  for (int number = 1; number <= FRAMES_PER_SIZE; number++) {
    cudalink_slot slot;
    int status = cudalink_exporter_begin(exporter, description, CUDALINK_FOREVER, &slot);
    if (status < 0) return status;
    uint64_t bytes;
    cudalink_description_bytes(description, &bytes);
    memset(slot.data, number, bytes);
    status = cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE);
    if (status < 0) return status;
  }
  return CUDALINK_OK;
}

int main(int argc, char **argv) {
  cudalink_description description = {0};
  cudalink_describe_picture(&description, pictures[0].format, pictures[0].width, pictures[0].height,
                            0);
  cudalink_exporter exporter;
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = argc > 1 ? argv[1] : "picture",
                                 .description = &description, .plane_count = 2, /* NV12 has two */
                                 .kind = CUDALINK_KIND_HOST}; /* the CPU writes into slots */
  if (cudalink_exporter_open(&exporter, &spec) < 0) return failed("open");
  cudalink_exporter_wait_consumers(exporter, 1, CUDALINK_FOREVER);

  for (size_t i = 0; i < PICTURES; i++) {
    memset(&description, 0, sizeof description);
    if (cudalink_describe_picture(&description, pictures[i].format, pictures[i].width,
                                  pictures[i].height, 0) < 0)
      return failed("describe");
    if (send_some(exporter, &description) < 0) return failed("send");
    print_memory(exporter, &description);
  }
  cudalink_exporter_wait_taken(exporter, INT64_C(10000000000));
  return cudalink_exporter_close(exporter) < 0 ? failed("close") : EXIT_SUCCESS;
}
