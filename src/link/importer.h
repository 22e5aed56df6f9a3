/* SPDX-License-Identifier: MIT
 *
 * The consumer's end inside: what an importer is made of, and which file does what to it.
 *
 *   importer.c    open, close, statistics
 *   search.c      finding a producer and joining it; on the service thread
 *   attend.c      the producer's messages and its end; on the service thread
 *   attachment.c  one connection: its end, and what outlives it
 *   mapping.c     generations: told of, mapped, unmapped
 *   pool_mapping.c  the same for blocks of pools
 *   policy.c      which frame is next
 *   lease.c       taking and giving back a lease
 *   acquire.c     acquire, and how it sleeps; next.c: wait_next; release.c: frames that are held;
 *                 to_host.c: reading them out
 *   hold.c        frames with several holders
 *   descriptor.c  the pollable descriptor
 *   cipd/         the old wire: reader, frame
 *   completion.c  waits that were left to a stream, and their end when the producer is gone
 *
 * An importer has one attachment at a time (its connection to one producer). Older ones live on for
 * as long as frames of theirs are held. One mutex (importer->object.mutex) guards the importer and
 * all its attachments; it is held for microseconds, never while mapping, copying or sleeping.
 */
#ifndef CUDALINK_SRC_LINK_IMPORTER_H
#define CUDALINK_SRC_LINK_IMPORTER_H

#include "cudalink/importer.h"
#include "gpu/gpu.h"
#include "link/folders.h"
#include "link/object.h"
#include "link/service.h"
#include "wire/cipd.h"
#include "wire/control.h"
#include "wire/geometry.h"
#include "wire/mailbox.h"
#include "wire/message.h"

#define LINK_MAX_MAPPINGS                                                                          \
  20 /* 17 held leases in as many generations, and what is current or next */

/* What a producer tells of at most, and one that is being mapped while it goes. */
#define LINK_MAX_POOL_MAPPINGS 65

struct link_importer;

/* A generation that this process has mapped, or has been told of. */
struct link_mapping {
  uint64_t number; /* 0 = unused */
  bool mapped;
  bool busy;                         /* an acquire is mapping it, without the mutex */
  os_handle inside, inside_metadata; /* until it is mapped; of the service thread's table */
  struct wire_generation message;
  struct wire_geometry geometry;
  struct gpu_block block;
  struct os_segment metadata;
  uint32_t leases;
  uint32_t failures; /* kind ipc: so often it could not be mapped */
  uint64_t try_at;   /* and is to be tried again then; 0 = now */
};

/* A block of a pool that this process has mapped, or has been told of. */
struct link_pool_mapping {
  uint64_t number; /* 0 = unused */
  uint64_t bytes;
  uint8_t device_uuid[16];
  bool mapped;
  bool busy;        /* an acquire is mapping it, without the mutex */
  bool gone;        /* the producer says so */
  os_handle inside; /* until it is mapped; of the service thread's table */
  struct gpu_block block;
};

struct link_entry {
  uint64_t word; /* the lease word; 0 = not held by the program */
  uint32_t serial;
  uint32_t flags; /* cudalink_frame_flag */
  uint32_t mapping;
  uint32_t slot;
  uint64_t sequence;
  uint64_t pool_block; /* that the frame lies in; 0 = in its slot */
  bool next;           /* taken by wait_next: may turn out void */
};

/* A wait that was left to a stream: of the slot's mirror, until the sequence. */
struct link_wait {
  uint64_t sequence; /* 0 = none */
  uint64_t deadline;
};

struct link_attachment {
  struct link_object object;
  _Atomic(struct link_importer *) importer;
  uint32_t session;

  /* From WELCOME. */
  struct os_segment control_segment, mailbox_segment;
  const struct wire_control *control;
  struct wire_mailbox *mailbox;
  uint32_t entry_count, hold;
  uint32_t kind;     /* cudalink_kind */
  bool shared_table; /* the producer's sockets are in its program's table */

  /* Under the importer's mutex. */
  bool joined;
  int over;                 /* 0, or why this connection is over: LOST, ENDED, EVICTED, CLOSED */
  char gave_up[200];        /* LOST, because of this process: its producer lives; "" = not so */
  bool orphaned;            /* the producer completes nothing any more: LOST, EVICTED */
  bool finishing;           /* being taken apart */
  bool unmapping, unmapped; /* kind ipc: the reaper closes the handles first */
  uint64_t ticket;
  struct link_entry entries[WIRE_MAX_ENTRIES];
  uint32_t held; /* entries with a word */
  struct link_mapping mappings[LINK_MAX_MAPPINGS];
  bool told; /* some of them may be pending */
  uint32_t pool_count;
  uint64_t last;   /* sequence got last, 0 = none */
  uint64_t first;  /* every frame: the first one that is kept for us; 0 = not known */
  uint64_t cursor; /* every frame: the next one; 0 = not begun */
  uint64_t taken;  /* shared: last offer confirmed */
  uint64_t received, missed, latency, measured; /* as in the mailbox */
  uint32_t sleepers, spinners;
  uint32_t mapped;   /* counts how often something was mapped, or was not, after a try */
  uint32_t outdated; /* sleepers that have not looked since */
  bool settling;     /* a thread waits for the pixels of a frame that it has leased */
  bool said_bye;
  bool awaited; /* armed, and a frame may be there, or is, whose pixels are not complete */
  struct link_wait waits[WIRE_MAX_SLOTS];
  bool waited;                      /* the timer of waits runs, or was asked for */
  uint32_t idle_looks;              /* of it, since a wait was noted */
  bool streams;                     /* a release was left to a stream */
  struct gpu_device *device;        /* of this producer's kind; NULL until something is mapped */
  bool registered;                  /* the mailbox was made reachable for this device's streams */
  cudalink_description description; /* of the frame got last, for wait_next */
  uint64_t closed_generations[LINK_MAX_MAPPINGS]; /* to tell the producer; 0 = free */
  bool tell_released;

  /* Service thread only. */
  struct service_source source;
  struct service_timer timer;      /* handshake, then the producer's exit */
  struct service_timer wake_timer; /* repeated wakes, and looks at what is left */
  struct service_timer wait_timer; /* completion.c */
  struct service_work work;        /* messages to send, remains to clear */
  os_handle peer;
  struct service_source word; /* signalled when the producer's process ends */
  uint64_t death;             /* our own end is told by */

  /* Under the mutex; there are pool_count. */
  struct link_pool_mapping pools[LINK_MAX_POOL_MAPPINGS];
};

enum link_search { LINK_SEARCH_OFF = 0, LINK_SEARCH_ON, LINK_SEARCH_JOINING };

#define LINK_HOST_COPIES 2

/* A copy to host memory that is under way. */
struct link_host_copy {
  uint32_t number; /* 0 = none */
  struct gpu_device *device;
};

struct link_importer {
  struct link_object object;

  /* Constant after open. */
  char name[CUDALINK_NAME_MAX + 1];
  char file[OS_FILE_SIZE];
  char group[CUDALINK_GROUP_NAME_SIZE];
  char directory[OS_PATH_SIZE]; /* "" = the usual ones */
  cudalink_importer_spec spec;
  char segment[WIRE_CIPD_PATH_SIZE]; /* of the old wire; "" = it is not looked for */

  /* Under the mutex. */
  bool closing;
  struct link_attachment *attachment; /* joined, not over; else NULL */
  struct link_attachment *draining;   /* its producer is gone, frames of it may still be unread */
  struct gpu_device *device; /* opened at the first mapping; behind it those of earlier producers,
                                whose frames may still be held */
  struct link_host_copy host_copies[LINK_HOST_COPIES];
  uint32_t host_copy_number; /* given out last */
  bool mapping;              /* a thread maps a generation right now */
  int notice;                /* told once by the next acquire: LOST, ENDED, EVICTED; 0 = none */
  int earlier_notice;        /* of the producer before, when it was not told in time */
  char notice_text[200];     /* why LOST, when it is not the producer's death; "" = it is */
  char earlier_text[200];    /* the same of the earlier one */
  bool drains_earlier;       /* the last end is not that of `draining` */
  int refusal;               /* the producer's answer to the last try; 0 = none */
  char refusal_text[200];
  uint32_t sessions;
  uint32_t attachments; /* records that point here */
  uint32_t inside;      /* calls that are under way */
  uint32_t held;        /* frames, of all attachments */
  cudalink_importer_statistics statistics;
  bool nobody;                            /* the last look found no producer on our wire */
  struct link_reader *reader;             /* a session of an old producer; NULL = none */
  struct link_ring_device *reader_device; /* opened at the first one */
  bool attaching;                         /* a thread opens a session right now */
  bool absent; /* there was no segment at the last look; the service thread tells when there is */
  uint64_t reader_try;       /* when to look for one again */
  uint64_t reader_sequence;  /* given out last by the session before */
  uint64_t reader_inode;     /* of its segment; 0 = its producer has gone */
  uint32_t reader_index;     /* taken last from it, and its first handle: for a look at */
  uint8_t reader_handle[64]; /* a new session that is not begun yet */
  char reader_text[200];     /* why there is none, to go on in a sentence */
  uint32_t arming;           /* number; 0 = the descriptor was never armed */
  bool armed;
  os_handle descriptor;        /* the program's end */
  os_handle inside_descriptor; /* the service thread's end */

  _Atomic uint32_t changed; /* bumped when a call that waits without a connection should look */

  /* Service thread only. */
  enum link_search search;
  struct link_attachment *joining;
  struct link_lookout lookout;
  bool watches_names;              /* of the old wire (cipd/reader.h); service thread */
  _Atomic bool unanswered;         /* there is a producer, its answer has not come */
  struct service_timer timer;      /* next try */
  struct service_work work;        /* start searching again, finish closing */
  struct service_work reader_work; /* armed on the old wire */
  struct service_timer reader_timer;
};

extern struct link_table link_importers;
extern struct link_table link_attachments;

/* importer.c */
struct link_importer *link_importer_lock(cudalink_importer handle, const char *call, int *status);
void link_importer_changed(struct link_importer *importer); /* wakes calls without a connection */
void link_importer_notify(
    struct link_importer *importer); /* and the armed descriptor; service thread */
void link_importer_clear(struct link_importer *importer); /* last step of close; service thread */

/* search.c: service thread */
void link_join_refused(struct link_attachment *attachment, int error, const char *text);
void link_join_lost(struct link_attachment *attachment, int reason);
void link_joined(struct link_attachment *attachment);
void link_search_start(struct link_importer *importer);
/* Before an end that the next connection would come to as well: not at once again. */
void link_search_later(struct link_importer *importer);
void link_search_stop(struct link_importer *importer);
void link_search_run(struct service_work *work);

/* attend.c: service thread */
void link_attachment_ready(struct service_source *source, const struct os_event *event);
void link_words_drop(struct link_attachment *attachment);

/* attachment.c */
struct link_attachment *link_attachment_make(struct link_importer *importer, os_handle handle);
/* Under the mutex: this connection is over, for that reason. The importer looks for the next one. Once
 * more with LOST: the producer died behind an end that was closed in order. */
void link_attachment_over(struct link_attachment *attachment, int reason);
/* Under the mutex: no more is read of the producer that has gone; what is left of it was missed. */
void link_attachment_drained(struct link_importer *importer);
/* Under the mutex: clears an attachment that is over and has no frames out; else does nothing. */
void link_attachment_settle(struct link_attachment *attachment);
void link_attachment_run(struct service_work *work);
void link_attachment_tell(struct link_attachment *attachment); /* the producer; service thread */
/* Wakes sleepers of the bell until there are none; service thread. */
void link_attachment_wake(struct link_attachment *attachment);
/* Under the mutex: a try to map is over, and other threads are to look again. Nothing rings for them: what
 * they look for was published before. */
void link_attachment_mapped(struct link_attachment *attachment);

/* mapping.c: under the mutex */
/* Keeps a generation that the producer told of, until it is mapped. Takes the handles that it keeps. */
void link_mapping_add(struct link_attachment *attachment, const struct wire_generation *message,
                      os_handle handles[2]);
/* The one of that generation (masked), mapped; NULL. */
static inline struct link_mapping *link_mapping_find(struct link_attachment *attachment,
                                                     uint64_t generation) {
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    struct link_mapping *mapping = &attachment->mappings[i];
    if (mapping->mapped && (mapping->number & WIRE_GENERATION_MASK) == generation) return mapping;
  }
  return NULL;
}
/* The description of the frame in that slot. */
static inline const char *link_mapping_metadata(const struct link_mapping *mapping, uint32_t slot) {
  const char *base = mapping->metadata.address ? mapping->metadata.address : mapping->block.address;
  return base + mapping->geometry.metadata_offset +
         (uint64_t)slot * mapping->geometry.metadata_stride;
}
bool link_mapping_pending(struct link_attachment *attachment); /* and nobody maps it yet */
/* When one that could not be mapped is to be tried again; OS_FOREVER: none. */
uint64_t link_mapping_try_at(const struct link_attachment *attachment);
bool link_mapping_any(const struct link_attachment *attachment); /* told of any */
/* Maps what is pending. Drops the mutex meanwhile. */
int link_mapping_map(struct link_attachment *attachment);
/* Unmaps generations that are over and have no frames out. */
void link_mapping_collect(struct link_attachment *attachment);
void link_mapping_drop_all(struct link_attachment *attachment); /* service thread */

/* Without the mutex: opens the device of that kind, which becomes importer->device. */
int link_mapping_device(struct link_importer *importer, cudalink_kind kind, const uint8_t *uuid);

/* pool_mapping.c: under the mutex */
/* Keeps a block that the producer told of, until it is mapped. Takes the handle that it keeps. */
void link_pool_add(struct link_attachment *attachment, const struct wire_pool_block *message,
                   os_handle *handle);
/* The producer says that no frame lies there any more. */
void link_pool_gone(struct link_attachment *attachment, uint64_t number);
/* A leased frame whose planes lie there. 1: this process has not mapped that block (yet). */
int link_pool_fill(struct link_attachment *attachment, struct link_entry *entry,
                   const struct wire_place *place, cudalink_frame *frame);
/* One that is to be mapped. */
struct link_pool_mapping *link_pool_pending(struct link_attachment *attachment);
/* Maps it. Drops the mutex meanwhile. */
int link_pool_map(struct link_attachment *attachment, struct link_pool_mapping *pool);
/* Unmaps what is gone and not in use. */
void link_pool_collect(struct link_attachment *attachment);
void link_pool_drop_all(struct link_attachment *attachment); /* service thread */

/* Before a stream first uses a word of the mailbox. */
int link_attachment_register(struct link_attachment *attachment, struct gpu_device *device);

/* lease.c: under the mutex */
struct link_pick {
  uint64_t sequence;
  uint64_t generation; /* masked, as in lease words */
  uint32_t slot;
  uint64_t offer;     /* shared: the offer word */
  uint64_t announced; /* wait_next: the word of next */
  uint64_t missed;
  bool unmapped; /* it is there, but in memory that is not mapped here yet */
};
/* One for a new lease; -1 when as many frames are held as hold allows, or their releases have not landed. */
int32_t link_entry_free(const struct link_attachment *attachment);
/* Takes a lease with that entry. False when the frame is not there any more. */
bool link_lease_take(struct link_attachment *attachment, uint32_t entry,
                     const struct link_pick *pick);
void link_lease_undo(struct link_attachment *attachment, uint32_t entry);
/* After a release, or a confirmed place: tells the producer if it waits for that. */
void link_tell_producer(struct link_attachment *attachment);
/* Now, or after what is queued on all of these streams. */
int link_lease_release(struct link_attachment *attachment, uint32_t entry,
                       const cudalink_stream *streams, uint32_t count);

/* policy.c: under the mutex */
/* Which frame comes next? False: none now. */
bool link_choose(struct link_attachment *attachment, cudalink_policy policy, bool isolated,
                 struct link_pick *pick);
/* Everything that taking the frame in that slot reads lies in the producer's cache: fetched all at once,
 * it costs one way and not five. Without the mutex, too: to fetch from where nothing is does no harm. */
void link_fetch_ahead(const struct link_attachment *attachment, const char *metadata,
                      uint32_t slot);
/* After the lease: says so to the producer, counts. */
void link_confirm(struct link_attachment *attachment, cudalink_policy policy,
                  const struct link_pick *pick);
/* Of a producer that has gone: frames that were published for this importer, and that it has not got. */
uint64_t link_left_behind(const struct link_attachment *attachment, cudalink_policy policy);
/* May a frame come without the bell being rung? (ready_only: a GPU rings nothing) */
bool link_must_look(const struct link_attachment *attachment, cudalink_policy policy);

/* completion.c */
static inline bool link_is_ready(const struct link_attachment *attachment, uint32_t slot,
                                 uint64_t sequence) {
  /* acquire: pairs with the producer's stream, which writes ready behind the pixels. */
  uint64_t ready =
      atomic_load_explicit(&attachment->control->ready[slot].word, memory_order_acquire);
  /* Not ==: another generation may have published in a slot of the same number meanwhile. */
  return (int64_t)(ready - sequence) >= 0;
}
/* Under the mutex: queues a wait for the frame's mirror on the stream. */
int link_wait_queue(struct link_attachment *attachment, cudalink_stream stream, uint32_t slot,
                    uint64_t sequence);
bool link_can_wait(const struct link_attachment *attachment, uint64_t sequence);
/* Under the mutex: the producer completes nothing any more; ends all waits. */
void link_wait_complete(struct link_attachment *attachment);
/* Under the mutex: does a stream wait for words that the producer is still to write? */
bool link_wait_left(const struct link_attachment *attachment);
void link_wait_start(struct link_attachment *attachment); /* service thread */

/* descriptor.c: under the mutex */
bool link_something_there(struct link_importer *importer);

/* acquire.c */
bool link_is_evicted(const struct link_attachment *attachment);

/* release.c */
bool link_frame_is_old(const cudalink_frame *frame); /* it came by the old wire: see cipd/frame.c */
/* Finds a held frame whose pixels may be read, its importer locked. With `wait` a PENDING one is waited
 * for, without the mutex; else it is left to the stream that waits. UNSUPPORTED: it was published as
 * invalid. LOST, SKIPPED. */
int link_held_readable(const cudalink_frame *frame, const char *call, bool wait,
                       struct link_attachment **attachment, uint32_t *entry);
/* Now (count 0), or behind streams that were checked. frame->lease is 0 if that went well. */
int link_held_release(struct link_attachment *attachment, uint32_t entry, cudalink_frame *frame,
                      const cudalink_stream *streams, uint32_t count);
/* A held frame whose pixels may be read. It stays so: the lease keeps the memory, and the caller does
 * not release it during the call. */
struct link_readable {
  struct gpu_device *device;
  bool converts; /* its importer was opened for that */
};
/* As link_held_readable, not locked. UNSUPPORTED also for a frame of the old wire. */
int link_frame_readable(const cudalink_frame *frame, const char *call, bool wait,
                        struct link_readable *readable);
/* Under the mutex: attachment's number, entry, serial. */
#define LINK_SERIAL_MASK 0xffffffu
static inline uint64_t link_lease_handle(const struct link_attachment *attachment, uint32_t entry) {
  uint64_t id = atomic_load_explicit(&attachment->object.id, memory_order_relaxed);
  return id << 32 | (uint64_t)entry << 24 | (attachment->entries[entry].serial & LINK_SERIAL_MASK);
}

/* release.c, for hold.c: without the mutex */
/* As cudalink_frame_release, after several streams; no stream, or COMPLETE alone: now. */
int link_frame_release(cudalink_frame *frame, const char *call, const cudalink_stream *streams,
                       uint32_t count);
/* Releases it now if that needs no waiting: false when the importer's mutex is taken. */
bool link_frame_try_release(cudalink_frame *frame);
/* Can this stream be ordered with the frame? */
int link_frame_check(const cudalink_frame *frame, cudalink_stream stream);

#endif
