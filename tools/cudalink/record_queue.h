/* SPDX-License-Identifier: MIT
 *
 * The way of frames from a channel into a file: a thread writes them, so that the next one is read out
 * meanwhile, and a hiccup of the disk fills memory instead of costing frames.
 */
#ifndef CUDALINK_RECORD_QUEUE_H
#define CUDALINK_RECORD_QUEUE_H

#include "cudalink/cudalink.h"
#include "media/recording.h"

#include <pthread.h>

#define RECORD_QUEUE_FRAMES 16

struct record_place {
  cudalink_frame frame;   /* its user data are here, too */
  void *data;             /* its slot, where the CPU can read it */
  uint64_t data_bytes;    /* that there is room for */
  cudalink_array *pinned; /* holds `data`; NULL: it was malloc that made it */
  void *user;
  uint64_t bytes; /* of this frame */
  int is_busy;
};

struct record_queue {
  struct media_recorder recorder;
  _Atomic int *is_over; /* set to 1 when nothing more can be written */
  pthread_t thread;
  pthread_mutex_t mutex; /* guards what follows, and which places are busy */
  pthread_cond_t changed;
  struct record_place places[RECORD_QUEUE_FRAMES];
  struct record_place *order[RECORD_QUEUE_FRAMES]; /* frame n is at n % RECORD_QUEUE_FRAMES */
  uint64_t put, written;                           /* frames */
  uint64_t frames, bytes;                          /* in the file */
  uint64_t waiting_bytes;                          /* of the frames that are not written yet */
  uint64_t write_time;                             /* ns */
  int is_ending;
  int has_failed;
  struct media_error error; /* why */
};

/* `queue` is all zeros. Signals are for the new thread from then on, because it is what may be in a
 * long write. Failures are reported; returns an exit code. */
int record_queue_open(struct record_queue *queue, const char *path, const char *channel,
                      _Atomic int *is_over);

/* Makes room for a first frame of `bytes` in memory that this GPU copies to fastest; its context, too,
 * is there then. Without one it does nothing. */
void record_queue_prepare(struct record_queue *queue, int32_t device, uint64_t bytes);

/* Reads a frame out and queues it; waits for room. An exit code; behind a failed write, 0. */
int record_queue_put(struct record_queue *queue, const cudalink_frame *frame, int has_pixels);

/* What the file has so far. */
void record_queue_look(struct record_queue *queue, uint64_t *frames, uint64_t *bytes);

/* Writes what is queued, and closes the file. 0, or a cudalink_error with `queue->error`. */
int record_queue_close(struct record_queue *queue);

#endif
