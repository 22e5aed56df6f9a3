/* SPDX-License-Identifier: MIT
 *
 * An importer on the old wire: one session of a producer's segment, its slots, and the frames of it
 * that the program holds. A session that is over lives on for as long as frames of it are held.
 *
 *   reader.c  finding a segment, following it, taking frames
 *   frame.c   frames that are held: given back, proven, read out
 *
 * The importer's mutex guards everything here.
 */
#ifndef CUDALINK_SRC_LINK_CIPD_READER_H
#define CUDALINK_SRC_LINK_CIPD_READER_H

#include "link/acquire.h"
#include "link/cipd/ring.h"

enum link_reader_hold { LINK_READER_FREE = 0, LINK_READER_HELD, LINK_READER_RELEASING };

struct link_reader_entry {
  enum link_reader_hold hold;
  uint32_t serial;
  uint32_t index;          /* of the frame in its session */
  bool overwritten;        /* counted as that */
  struct gpu_event passed; /* releasing: the stream's work is done; made at the first use */
};

struct link_reader {
  struct link_object object;
  _Atomic(struct link_importer *) importer;
  struct os_named named; /* mapped read-only */
  struct wire_cipd_session session;
  struct link_ring *ring;
  cudalink_description description;
  uint64_t base;       /* what is added to an index, so that no sequence is repeated */
  uint32_t number;     /* producers that the importer was connected to, with this one */
  uint32_t generation; /* sessions, with this one */
  uint32_t last;       /* index taken last, 0 = none */
  uint64_t looked_at;  /* when the name was looked for last */
  uint64_t idle_since; /* last frame, or the beginning */
  bool over, finishing;
  bool settling;        /* a thread waits for the pixels of a frame */
  uint32_t held, calls; /* frames; calls that use the ring without the mutex */
  struct link_reader_entry entries[CUDALINK_MAX_HOLD];
};

extern struct link_table link_readers;

/* A reader's lease has this bit set, an attachment's never: entries are few. */
#define LINK_READER_LEASE UINT64_C(0x80000000)

/* reader.c */
/* One look: takes the next frame. 1 = there is none, or this importer does not read the old wire. */
int link_reader_round(struct acquire *acquire);
/* Attaches when there is something to attach to: then importer->reader is set. < 0: tell it. */
int link_reader_try(struct link_importer *importer);
/* When a call that waits should look again; OS_FOREVER: the old wire is none of its business. */
uint64_t link_reader_look_at(const struct link_importer *importer);
void link_reader_sleep(struct acquire *acquire, uint32_t seen);
bool link_reader_full(const struct link_importer *importer); /* as many are held as may be */
bool link_reader_there(struct link_importer *importer);      /* for arm */
void link_reader_leave(struct link_importer *importer);
/* Service thread: from now on names that appear are noticed, because this importer may read one; or not any
 * more. A second time does nothing. */
void link_reader_watch(struct link_importer *importer);
void link_reader_unwatch(struct link_importer *importer);
void link_reader_armed(
    struct service_work *work); /* service thread: looks until something is there */

/* frame.c */
void link_reader_settle(struct link_reader *reader); /* clears one that is over and not used */
/* Notices releases that have landed, and proves their frames. */
void link_reader_collect(struct link_reader *reader);
/* What release.c does for frames of our own wire; each starts by finding the lease. */
int link_reader_release(cudalink_frame *frame, const char *call, const cudalink_stream *streams,
                        uint32_t count);
bool link_reader_try_release(cudalink_frame *frame);
int link_reader_check(const cudalink_frame *frame, const char *call, cudalink_stream stream);
int link_reader_wait(const cudalink_frame *frame, const char *call, cudalink_stream stream);
int link_reader_flags(const cudalink_frame *frame, uint32_t *flags);
int link_reader_to_host(const cudalink_frame *frame, void *out, uint64_t size);
uint64_t link_reader_lease(const struct link_reader *reader, uint32_t entry);

#endif
