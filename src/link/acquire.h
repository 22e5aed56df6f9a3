/* SPDX-License-Identifier: MIT
 *
 * What acquire (acquire.c) and wait_next (next.c) share: one call under way, and how it sleeps.
 */
#ifndef CUDALINK_SRC_LINK_ACQUIRE_H
#define CUDALINK_SRC_LINK_ACQUIRE_H

#include "link/importer.h"

struct acquire {
  struct link_importer *importer;
  cudalink_stream stream;
  int64_t timeout; /* <= 0: never wait */
  uint64_t
      deadline; /* 0 until the first look found nothing: a frame that is there costs no clock */
  uint64_t spin_until; /* look without sleeping until then */
  cudalink_frame *frame;
  struct link_pick pick;
  uint32_t entry;
  bool full; /* a frame is there, but no more may be held */
  uint64_t full_since;
  bool slept;
  uint64_t latency; /* from publish to now; only of a frame for which it slept */
  struct seen {     /* by a spinning acquire, before its last look */
    uint64_t head;
    uint32_t bell, changed;
    const char *metadata; /* of slot 0 of the generation that was current */
    uint64_t stride;
  } seen;
};

/* Runs `run` with the importer locked. */
int link_acquire_run(cudalink_importer handle, const char *call, cudalink_stream stream,
                     int64_t timeout, cudalink_frame *frame, int (*run)(struct acquire *));
/* What producers that have gone left: an end that was not told in time, then frames. 1 = no more of it. */
int link_acquire_left(struct acquire *acquire);
/* The importer was closed, or there is something to tell; 0 = go on. */
int link_acquire_interrupted(struct acquire *acquire);
bool link_acquire_late(struct acquire *acquire);
/* The same before a look, which is the last one then: what came while this thread slept, or did not run, is still
 * found. Costs no clock before the first look. */
static inline bool link_acquire_last(const struct acquire *acquire) {
  return acquire->timeout <= 0 || (acquire->deadline && os_now() >= acquire->deadline);
}
/* Nothing was there: perhaps because the producer took our frames back. Then the connection is over. */
void link_acquire_evicted(struct link_attachment *attachment);
void link_acquire_count(struct acquire *acquire);          /* the frame that was got */
int link_acquire_timed_out(const struct acquire *acquire); /* says why there was none */
/* A frame is there, but no more may be held: another thread, or a stream, gives one back. */
void link_wait_for_hands(struct acquire *acquire, struct link_attachment *attachment,
                         uint32_t seen);
/* Sleeps on importer->changed; `seen` was read before the last look. */
void link_sleep_detached(struct acquire *acquire, uint32_t seen, uint64_t until);
/* Sleeps on the bell; it was read, and asleep set, before the last look. */
void link_set_asleep(struct link_attachment *attachment, bool asleep);
void link_sleep_attached(struct acquire *acquire, struct link_attachment *attachment, uint32_t bell,
                         uint64_t until);

#endif
