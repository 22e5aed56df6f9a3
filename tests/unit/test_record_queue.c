/* SPDX-License-Identifier: MIT
 *
 * Frames on their way into a file: what a recorder does with them, and in which order. Reading a slot out
 * is ours here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host_frame.h"
#include "record_queue.h"

#define FRAME_BYTES 200000u /* more than a pipe holds */

static int copy_result;
static _Atomic int copies;

int host_frame_copy(const cudalink_frame *frame, void *to, uint64_t bytes) {
  memcpy(to, frame->data, bytes);
  copies++;
  return copy_result;
}

struct scene {
  struct record_queue queue;
  _Atomic int is_over;
  int pipe[2];
  char path[64];
  uint8_t pixels[FRAME_BYTES];
};

static void open_scene(struct scene *scene) {
  memset(scene, 0, sizeof *scene);
  copies = 0;
  copy_result = CUDALINK_OK;
  assert_int_equal(pipe2(scene->pipe, O_CLOEXEC), 0);
  snprintf(scene->path, sizeof scene->path, "/proc/self/fd/%d", scene->pipe[1]);
  assert_int_equal(record_queue_open(&scene->queue, scene->path, "x", &scene->is_over), 0);
  close(scene->pipe[1]);
}

/* All bytes of the frame are its number. */
static void read_frame(struct scene *scene, uint64_t sequence) {
  int64_t shape = FRAME_BYTES;
  cudalink_frame frame = {.sequence = sequence, .kind = CUDALINK_KIND_HOST, .data = scene->pixels};
  cudalink_describe_tensor(&frame.description, "", CUDALINK_UINT8, 1, &shape);
  memset(scene->pixels, (int)sequence, FRAME_BYTES);
  assert_int_equal(record_queue_read(&scene->queue, &frame, 1), 0);
}

static void take(struct scene *scene, void *to, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t count = read(scene->pipe[0], (uint8_t *)to + done, size - done);
    assert_true(count > 0);
    done += (size_t)count;
  }
}

static struct media_recording_frame take_frame(struct scene *scene) {
  static uint8_t data[FRAME_BYTES];
  struct media_recording_frame head;
  struct media_recording_plane plane;
  take(scene, &head, sizeof head);
  take(scene, &plane, sizeof plane);
  take(scene, data, sizeof data);
  for (size_t i = 0; i < sizeof data; i++)
    if (data[i] != (uint8_t)head.sequence) fail_msg("byte %zu is of another frame", i);
  return head;
}

static void *close_queue(void *scene) {
  record_queue_close(&((struct scene *)scene)->queue);
  return NULL;
}

static void *put(void *scene) {
  record_queue_put(&((struct scene *)scene)->queue);
  return NULL;
}

/* With all that may wait queued, and nobody who reads, one more is read out at once. */
static void reads_out_before_it_waits(void **state) {
  (void)state;
  static struct scene scene;
  struct media_recording_head head;
  pthread_t thread;
  open_scene(&scene);
  for (uint64_t i = 1; i <= RECORD_QUEUE_FRAMES; i++) {
    read_frame(&scene, i);
    record_queue_put(&scene.queue);
  }
  read_frame(&scene, RECORD_QUEUE_FRAMES + 1);
  assert_int_equal(copies, RECORD_QUEUE_FRAMES + 1);
  memset(scene.pixels, 0xff, FRAME_BYTES); /* the slot is the producer's again */
  assert_int_equal(pthread_create(&thread, NULL, put, &scene), 0);
  take(&scene, &head, sizeof head);
  for (uint64_t i = 1; i <= RECORD_QUEUE_FRAMES + 1; i++)
    assert_int_equal(take_frame(&scene).sequence, i);
  pthread_join(thread, NULL);
  assert_int_equal(record_queue_close(&scene.queue), 0);
  assert_int_equal(scene.queue.frames, RECORD_QUEUE_FRAMES + 1);
  assert_int_equal(scene.queue.discarded, 0);
  close(scene.pipe[0]);
}

/* It is in no file, and the next frame says that it is missed. */
static void overwritten_is_missed(void **state) {
  (void)state;
  static struct scene scene;
  struct media_recording_head head;
  pthread_t thread;
  open_scene(&scene);
  copy_result = CUDALINK_ERROR_OVERWRITTEN;
  read_frame(&scene, 1);
  record_queue_put(&scene.queue);
  copy_result = CUDALINK_OK;
  read_frame(&scene, 2);
  record_queue_put(&scene.queue);
  assert_int_equal(pthread_create(&thread, NULL, close_queue, &scene), 0);
  take(&scene, &head, sizeof head);
  struct media_recording_frame frame = take_frame(&scene);
  assert_int_equal(frame.sequence, 2);
  assert_int_equal(frame.missed, 1);
  pthread_join(thread, NULL);
  assert_int_equal(scene.queue.frames, 1);
  assert_int_equal(scene.queue.overwritten, 1);
  close(scene.pipe[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_out_before_it_waits),
      cmocka_unit_test(overwritten_is_missed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
