/* SPDX-License-Identifier: MIT
 *
 * The outlet of an exporter: its frames on the old wire, in a segment and slots of their own. Written,
 * never read back: nothing that an old peer does to the segment changes what the exporter does.
 *
 * Called by whoever has begun or publishes the frame, without the exporter's mutex: `begun` keeps
 * others out.
 */
#ifndef CUDALINK_SRC_LINK_CIPD_OUTLET_H
#define CUDALINK_SRC_LINK_CIPD_OUTLET_H

#include "cudalink/exporter.h"
#include "link/cipd/barrier.h"
#include "link/cipd/format.h"
#include "link/cipd/ring.h"

struct link_outlet {
  char name[WIRE_CIPD_PATH_SIZE];
  struct os_named named;
  struct link_ring_device *device;
  struct link_ring *ring; /* NULL before the first session */
  struct wire_cipd_session session;
  struct link_cipd_rows rows;
  uint64_t frame_bytes;
  uint32_t index; /* of the frame published last in this session */
  bool obeys;     /* the activation barrier */
  bool lends;     /* its slots are rendered into: frames must have no gaps */
  struct link_barrier barrier;
  uint64_t look_at; /* when the segment and the barrier are looked for again */
  uint64_t look;    /* exporter->look that `session` and `rows` were made of */
  int status;       /* of that look: CUDALINK_OK, or why its frames are passed over */
  bool copied;      /* the begun frame is in its slot */
  uint64_t published, skipped, held_back, stale;
  char reason[160]; /* why the last frame was passed over */
};

/* Takes the name, without a session: readers wait on. NAME_IN_USE, REFUSED (a foreign segment), UNSUPPORTED
 * (no GPU), INVALID_ARGUMENT, GPU, NO_SPACE. */
int link_outlet_open(struct link_outlet **opened, const cudalink_exporter_spec *spec,
                     int32_t device);
/* Begins the session of the usual frames (NULL: with the first one). From here on readers are told of an
 * end, so nothing that can fail comes behind it. */
int link_outlet_start(struct link_outlet *outlet, const cudalink_description *description);
void link_outlet_close(struct link_outlet *outlet);

/* Slots for frames like this one; a new session when they look different, or when the segment has
 * vanished. `look` names the description. May allocate. */
int link_outlet_prepare(struct link_outlet *outlet, const cudalink_description *description,
                        uint64_t look);
/* Queues the copy of a frame that was prepared for. A frame that can't be copied is passed over. The
 * stream COMPLETE becomes one of the outlet's own, so that nothing blocks. */
void link_outlet_copy(struct link_outlet *outlet, const void *slot, cudalink_stream *stream);
void link_outlet_skip(struct link_outlet *outlet, const char *reason); /* passes it over */
void link_outlet_show(struct link_outlet *outlet, uint64_t now);       /* the one that was copied */

/* Is a TouchDesigner sender starting up, so that the next frame is not given? Counted. */
bool link_outlet_held_back(struct link_outlet *outlet);
/* Without a copy: the slot that comes next. BUSY: its own work of a round ago has not landed. */
int link_outlet_lend(struct link_outlet *outlet, void **slot);
void *link_outlet_lent(const struct link_outlet *outlet);    /* between lend and show */
uint32_t link_outlet_slot(const struct link_outlet *outlet); /* the one that comes next */
int link_outlet_record(struct link_outlet *outlet, cudalink_stream stream);

/* What statistics say of it. Under the exporter's mutex. */
void link_outlet_account(const struct link_outlet *outlet,
                         cudalink_exporter_statistics *statistics);

#endif
