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
#define RECORD_QUEUE_PLACES (RECORD_QUEUE_FRAMES + 1) /* one is read out while all others wait */

struct record_place {
  cudalink_frame frame;   /* its user data are here, too */
  void *data;             /* its slot, where the CPU can read it */
  uint64_t data_bytes;    /* that there is room for */
  cudalink_array *pinned; /* holds `data`; NULL: it was malloc that made it */
  void *user;
  uint64_t bytes; /* of this frame */
  uint64_t time;  /* when it was read out */
  int is_busy;
};

struct record_queue {
  struct media_recorder recorder;
  _Atomic int *is_over; /* set to 1 when nothing more can be written */
  pthread_t thread;
  pthread_mutex_t mutex; /* guards what follows, and which places are busy */
  pthread_cond_t changed;
  struct record_place places[RECORD_QUEUE_PLACES];
  struct record_place *order[RECORD_QUEUE_FRAMES]; /* frame n is at n % RECORD_QUEUE_FRAMES */
  uint64_t put, written;                           /* frames */
  uint64_t frames, bytes;                          /* in the file */
  uint64_t waiting_bytes;                          /* of the frames that are not written yet */
  uint64_t write_time;                             /* ns */
  uint64_t first_time, last_time;                  /* of the frames in the file */
  uint64_t discarded;                              /* read out, but never written whole */
  int is_ending;
  int has_failed;
  struct media_error error; /* why */
  /* Of the thread that reads, alone: */
  struct record_place *next; /* read out, to be queued; NULL: none */
  uint64_t overwritten;      /* frames that were when they were read out: missed, too */
  uint64_t gap;              /* what is missed since `next` was */
};

/* `queue` is all zeros. Signals are for the new thread from then on, because it is what may be in a
 * long write: a pipe's ends at the first one, a file's goes on. Failures are reported; returns
 * an exit code. */
int record_queue_open(struct record_queue *queue, const char *path, const char *channel,
                      _Atomic int *is_over);

/* Makes room for a first frame of `bytes` in memory that this GPU copies to fastest; its context, too,
 * is there then. Without one it does nothing. */
void record_queue_prepare(struct record_queue *queue, int32_t device, uint64_t bytes);

/* Reads a frame out, waits for nothing: who waits with a frame in hand makes its producer wait, and is
 * evicted for it. Behind it the frame should be released. An exit code. A frame of the old wire that its
 * producer may have written into meanwhile counts as missed. */
int record_queue_read(struct record_queue *queue, const cudalink_frame *frame, int has_pixels);

/* Queues what was read; waits for room. Once a write has failed it is discarded. */
void record_queue_put(struct record_queue *queue);

/* What the file has so far. */
void record_queue_look(struct record_queue *queue, uint64_t *frames, uint64_t *bytes);

/* Writes what is queued, and closes the file. Behind a failed write, and in a pipe behind a signal, what
 * is queued is discarded, and counted. 0, or a cudalink_error with `queue->error`. */
int record_queue_close(struct record_queue *queue);

#endif
