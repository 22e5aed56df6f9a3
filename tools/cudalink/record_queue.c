/* SPDX-License-Identifier: MIT
 *
 * Frames on their way into a file.
 */
#include "record_queue.h"
#include "host_frame.h"
#include "report.h"
#include "stop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (UINT64_C(256) * 1024 * 1024) /* that wait; but two frames always may */

/* ---- the thread that writes ----------------------------------------------------------------- */

static void set_signals(int how) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(how, &signals, NULL);
}

/* With the mutex, which it lets go of meanwhile. */
static void write_next(struct record_queue *queue) {
  struct record_place *place = queue->order[queue->written % RECORD_QUEUE_FRAMES];
  struct media_error error;
  pthread_mutex_unlock(&queue->mutex);
  uint64_t start = cudalink_now();
  int result = media_recorder_write(&queue->recorder, &place->frame, place->data, &error);
  uint64_t end = cudalink_now();
  pthread_mutex_lock(&queue->mutex);
  queue->write_time += end - start;
  queue->frames = queue->recorder.frames;
  queue->bytes = queue->recorder.output.position;
  queue->waiting_bytes -= place->bytes;
  place->is_busy = 0;
  queue->written++;
  if (!result) {
    if (queue->frames == 1) queue->first_time = place->time;
    queue->last_time = place->time;
    return;
  }
  queue->has_failed = 1;
  queue->error = error;
  *queue->is_over = 1;
}

static void *write_all(void *argument) {
  struct record_queue *queue = argument;
  set_signals(SIG_UNBLOCK);
  pthread_mutex_lock(&queue->mutex);
  while (!queue->has_failed && (!queue->is_ending || queue->written < queue->put)) {
    if (queue->written < queue->put)
      write_next(queue);
    else
      pthread_cond_wait(&queue->changed, &queue->mutex);
    pthread_cond_broadcast(&queue->changed);
  }
  pthread_mutex_unlock(&queue->mutex);
  return NULL;
}

/* ---- the thread that reads ------------------------------------------------------------------ */

int record_queue_open(struct record_queue *queue, const char *path, const char *channel,
                      _Atomic int *is_over) {
  queue->is_over = is_over;
  pthread_mutex_init(&queue->mutex, NULL);
  pthread_cond_init(&queue->changed, NULL);
  if (media_recorder_open(&queue->recorder, path, channel, stop_flag(), &queue->error))
    return report_media(&queue->error);
  /* A file takes what is queued, soon, also stdout's; who reads a pipe may never do so. */
  if (queue->recorder.output.is_regular) queue->recorder.output.stop = NULL;
  set_signals(SIG_BLOCK);
  int error = pthread_create(&queue->thread, NULL, write_all, queue);
  if (!error) return EXIT_CODE_OK;
  set_signals(SIG_UNBLOCK);
  media_recorder_close(&queue->recorder, &queue->error);
  return report(EXIT_CODE_SYSTEM,
                "no thread that writes can be started (ulimit -u and pids.max limit them): %s",
                strerror(error));
}

static void free_data(struct record_place *place) {
  if (place->pinned)
    cudalink_array_drop(place->pinned);
  else
    free(place->data);
  place->pinned = NULL;
  place->data = NULL;
  place->data_bytes = 0;
}

/* Pinned where there is a GPU to copy from; where that fails, any memory does. */
static int make_room(struct record_place *place, int32_t device, uint64_t bytes) {
  int64_t shape = (int64_t)bytes;
  if (place->data_bytes >= bytes) return CUDALINK_OK;
  free_data(place);
  if (device && cudalink_array_pinned(&place->pinned, device, CUDALINK_UINT8, 1, &shape) == 0)
    place->data = cudalink_array_view(place->pinned)->data;
  else
    place->data = malloc(bytes);
  if (!place->data) return CUDALINK_ERROR_NO_MEMORY;
  place->data_bytes = bytes;
  return CUDALINK_OK;
}

void record_queue_prepare(struct record_queue *queue, int32_t device, uint64_t bytes) {
  if (device && bytes) make_room(&queue->places[0], device, bytes);
}

/* One that is free, if possible with room already, so that few are ever made. There is one more than
 * frames may be queued. */
static struct record_place *find_place(struct record_queue *queue, uint64_t bytes) {
  struct record_place *found = NULL;
  pthread_mutex_lock(&queue->mutex);
  for (int i = 0; i < RECORD_QUEUE_PLACES; i++) {
    struct record_place *place = &queue->places[i];
    if (place->is_busy) continue;
    if (!found || place->data_bytes > found->data_bytes) found = place;
    if (found->data_bytes >= bytes) break;
  }
  pthread_mutex_unlock(&queue->mutex);
  return found;
}

static int has_room(const struct record_queue *queue, uint64_t bytes) {
  uint64_t waiting = queue->put - queue->written;
  return waiting < 2 ||
         (waiting < RECORD_QUEUE_FRAMES && queue->waiting_bytes + bytes <= MOST_BYTES);
}

static int read_out(struct record_place *place, const cudalink_frame *frame, uint64_t bytes) {
  uint32_t user_size = frame->user ? frame->description.user_size : 0;
  place->frame = *frame;
  place->bytes = bytes;
  place->time = cudalink_now();
  int result = make_room(place, frame->device, bytes);
  if (!result && bytes) result = host_frame_copy(frame, place->data, bytes);
  if (result || !user_size) return result;
  void *user = realloc(place->user, user_size);
  if (!user) return CUDALINK_ERROR_NO_MEMORY;
  place->frame.user = memcpy(user, frame->user, user_size);
  place->user = user;
  return CUDALINK_OK;
}

int record_queue_read(struct record_queue *queue, const cudalink_frame *frame, int has_pixels) {
  uint64_t bytes = 0;
  queue->next = NULL;
  queue->gap += frame->missed;
  int result = has_pixels ? cudalink_description_bytes(&frame->description, &bytes) : CUDALINK_OK;
  if (result) return report_library(result);
  struct record_place *place = find_place(queue, bytes);
  result = read_out(place, frame, bytes);
  if (result == CUDALINK_ERROR_OVERWRITTEN) {
    queue->overwritten++;
    queue->gap++;
    return EXIT_CODE_OK;
  }
  if (result) return report_library(result);
  place->frame.missed = queue->gap;
  queue->gap = 0;
  queue->next = place;
  return EXIT_CODE_OK;
}

void record_queue_put(struct record_queue *queue) {
  struct record_place *place = queue->next;
  if (!place) return;
  pthread_mutex_lock(&queue->mutex);
  while (!queue->has_failed && !has_room(queue, place->bytes))
    pthread_cond_wait(&queue->changed, &queue->mutex);
  if (queue->has_failed) {
    queue->discarded++;
  } else {
    place->is_busy = 1;
    queue->order[queue->put++ % RECORD_QUEUE_FRAMES] = place;
    queue->waiting_bytes += place->bytes;
    pthread_cond_broadcast(&queue->changed);
  }
  pthread_mutex_unlock(&queue->mutex);
}

void record_queue_look(struct record_queue *queue, uint64_t *frames, uint64_t *bytes) {
  pthread_mutex_lock(&queue->mutex);
  *frames = queue->frames;
  *bytes = queue->bytes;
  pthread_mutex_unlock(&queue->mutex);
}

int record_queue_close(struct record_queue *queue) {
  struct media_error error;
  pthread_mutex_lock(&queue->mutex);
  queue->is_ending = 1;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
  pthread_join(queue->thread, NULL);
  set_signals(SIG_UNBLOCK);
  queue->discarded += queue->put - queue->frames;
  int result = media_recorder_close(&queue->recorder, &error);
  if (result && !queue->has_failed) {
    queue->has_failed = 1;
    queue->error = error;
  }
  for (int i = 0; i < RECORD_QUEUE_PLACES; i++) {
    free_data(&queue->places[i]);
    free(queue->places[i].user);
  }
  return queue->has_failed ? queue->error.code : CUDALINK_OK;
}
