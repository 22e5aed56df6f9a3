/* SPDX-License-Identifier: MIT
 *
 * The producer's end as `send` and `demo` use it: frames go from a source into a channel. Failures
 * are reported here; functions return an exit code.
 */
#ifndef CUDALINK_TRANSMITTER_H
#define CUDALINK_TRANSMITTER_H

#include "cudalink/cudalink.h"
#include "source.h"

struct transmitter {
  cudalink_exporter exporter;
  cudalink_kind kind; /* in use */
  uint64_t frames;    /* sent */
  uint64_t bytes;     /* their pixels, packed: what a consumer counts */
  void *staging;      /* GPU kinds: the frame is made here and copied */
  uint64_t staging_bytes;
};

int transmitter_open(struct transmitter *transmitter, const cudalink_exporter_spec *spec);

/* What goes out as one frame. */
struct transmitter_frame {
  const cudalink_description *description;
  /* Makes the pixels at `to`, which has room for them. 0, or the code of `error`. NULL: an invalid
   * frame, which has none. */
  int (*fill)(void *context, void *to, uint64_t number, struct media_error *error);
  void *context;
  const void *user; /* description->user_size bytes; NULL if none */
  const char *text; /* of an invalid frame */
  uint64_t due;     /* cudalink_now() when it is published; 0 = at once */
};

#define TRANSMITTER_NOT_FILLED (-1)

/* Fills, waits until the frame is due, and publishes. Waits for a free slot as long as needed. An
 * exit code, also OK when a signal ended it early; or NOT_FILLED, when `fill` failed: nothing was
 * published, and nothing reported but kept in `error`. */
int transmitter_send_frame(struct transmitter *transmitter, const struct transmitter_frame *frame,
                           struct media_error *error);

/* Sends the source's current frame: made in the slot itself where the CPU can write there. Waits for
 * a free slot as long as needed; ends early, with EXIT_CODE_OK, when a signal comes. */
int transmitter_send(struct transmitter *transmitter, struct source *source,
                     const cudalink_description *description);

/* Waits until `count` consumers are there, or a signal comes. */
int transmitter_wait_consumers(struct transmitter *transmitter, uint64_t count, int64_t limit);

/* Waits until consumers that want every frame have taken all, for `limit` ns at most. A signal ends
 * it early, unless `despite_signals`. */
int transmitter_wait_taken(struct transmitter *transmitter, int64_t limit, int despite_signals);

cudalink_exporter_statistics transmitter_statistics(const struct transmitter *transmitter);
void transmitter_close(struct transmitter *transmitter);

#endif
