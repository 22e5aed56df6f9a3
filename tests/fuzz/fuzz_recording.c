/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: any bytes as a recording. What passes lies inside the file, ends its texts, and names
 * only planes that lie in its pixels.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "media/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frame(const struct media_recording *recording, size_t size) {
  const cudalink_description *description = &recording->description;
  if (recording->frame.data_bytes > size - recording->offset) abort();
  if (description->plane_count > CUDALINK_MAX_PLANES) abort();
  if (strlen(recording->frame.text) >= sizeof recording->frame.text) abort();
  for (uint32_t i = 0; i < description->plane_count; i++) {
    const cudalink_plane *plane = &description->planes[i];
    if (strlen(plane->name) >= sizeof plane->name) abort();
    if (plane->dimensions > CUDALINK_MAX_DIMENSIONS) abort();
    if (plane->offset + plane->bytes > recording->frame.data_bytes) abort();
  }
}

/* Exactly as many bytes as the frame says, so that the address sanitizer sees one more. */
static int read_pixels(struct media_recording *recording, struct media_error *error) {
  void *pixels = malloc(recording->frame.data_bytes);
  int result = media_recording_read(recording, pixels, error);
  free(pixels);
  return result;
}

static void read_all(const char *path, size_t size) {
  static struct media_recording recording;
  struct media_error error;
  if (media_recording_open(&recording, path, NULL, &error)) return;
  while (media_recording_next(&recording, &error) == 1) {
    check_frame(&recording, size);
    if (read_pixels(&recording, &error)) break;
  }
  media_recording_close(&recording);
}

/* Makes every checksum right, so that damage gets past them. */
static void seal(uint8_t *data, size_t size) {
  struct media_recording_head *head = (struct media_recording_head *)data;
  size_t at = sizeof *head, from = offsetof(struct media_recording_head, time);
  if (size < sizeof *head) return;
  head->crc = (uint32_t)crc32_z(0, data + from, sizeof *head - from);
  size_t head_bytes =
      head->version == 1 ? MEDIA_RECORDING_FRAME_BYTES_1 : sizeof(struct media_recording_frame);
  while (size - at >= head_bytes) {
    struct media_recording_frame frame;
    memcpy(&frame, data + at, head_bytes);
    uint64_t length = head_bytes + frame.user_size +
                      (uint64_t)frame.plane_count * sizeof(struct media_recording_plane);
    if (length > size - at || frame.data_bytes > size - at - length) return;
    frame.data_crc = (uint32_t)crc32_z(0, data + at + length, frame.data_bytes);
    memcpy(data + at, &frame, head_bytes);
    from = offsetof(struct media_recording_frame, data_bytes);
    frame.crc = (uint32_t)crc32_z(0, data + at + from, length - from);
    memcpy(data + at, &frame, head_bytes);
    at += length + frame.data_bytes;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  int file = memfd_create("recording", 0);
  uint8_t *copy = malloc(size ? size : 1);
  if (file < 0 || !copy) abort();
  memcpy(copy, data, size);
  if (size && data[size - 1] % 2 == 0) seal(copy, size);
  if (write(file, copy, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  read_all(path, size);
  close(file);
  free(copy);
  return 0;
}
