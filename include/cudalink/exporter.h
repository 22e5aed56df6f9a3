/* SPDX-License-Identifier: MIT
 *
 * cudalink/exporter.h - the producer's end of a channel.
 *
 * One program owns a channel's name and publishes frames; up to 64 consumers take them. A frame is
 * begun (a free slot is lent to the caller), filled, and published; or cudalink_exporter_send does
 * the three at once with one copy.
 *
 * ```c fragment
 * cudalink_exporter exporter;
 * cudalink_description description = {0};
 * cudalink_describe_picture(&description, CUDALINK_FORMAT_RGBA8, 640, 480, 0);
 * if (cudalink_exporter_open(&exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
 *                                          .name = "camera", .description = &description}) < 0)
 *   return fprintf(stderr, "%s\n", cudalink_last_error()), 1;
 * cudalink_slot slot;
 * if (cudalink_exporter_begin(exporter, &description, 0, &slot) == CUDALINK_OK) {
 *   memset(slot.data, 255, slot.bytes);
 *   cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE);
 * }
 * cudalink_exporter_close(exporter);
 * ```
 */
#ifndef CUDALINK_EXPORTER_H
#define CUDALINK_EXPORTER_H

#include "cudalink/frame.h"
#include "cudalink/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudalink_exporter {
  uint32_t id; /* 0 = none */
} cudalink_exporter;

/* Who may connect, beside processes of the same user. */
#define CUDALINK_MAX_ALLOWED_USERS 16

/* How urgent the work of a stream of the library's own is to the GPU. */
typedef enum cudalink_priority {
  CUDALINK_PRIORITY_NORMAL = 0,
  CUDALINK_PRIORITY_LOW = 1, /* the least that the GPU knows */
  CUDALINK_PRIORITY_HIGH = 2 /* the greatest */
} cudalink_priority;

/* How to open. Start with CUDALINK_EXPORTER_DEFAULTS, or zero everything and set `size`: zero means
 * the default for every member. */
typedef struct cudalink_exporter_spec {
  size_t size;                             /* sizeof(cudalink_exporter_spec) */
  const char *name;                        /* the channel: 1 to 200 bytes of UTF-8 without NUL */
  const cudalink_description *description; /* what a usual frame looks like; says how large slots
                                              are. A larger frame later gets larger slots */
  uint64_t slot_bytes;                     /* at least so large; either this or description */
  uint32_t plane_count;    /* at most so many planes per frame without new memory; 0 = as in
                              description, or 1 */
  uint32_t user_size;      /* bytes of user data per frame, 0 to 65536 */
  uint32_t slots;          /* to begin with; 0 = 4 */
  uint32_t max_slots;      /* never more, 3 to 64; 0 = 16 */
  cudalink_kind kind;      /* memory */
  int32_t device;          /* GPU kinds: 0 = the first GPU, or CUDALINK_DEVICE(ordinal), which kind
                              AUTO must then have: it does not fall back to host */
  const char *directory;   /* folder of the channel's socket; NULL = the usual one (docs) */
  int64_t hold_limit;      /* ns that a consumer may sit on frames while no slot is free, before
                              they are taken back; 0 = 2 s, CUDALINK_FOREVER = never */
  uint64_t zombie_limit;   /* bytes of taken-back memory that may wait for its holder;
                              0 = as much as one ring */
  uint32_t refuse_writers; /* 1: nobody maps this channel's GPU memory writable */
  uint32_t allowed_user_count;
  uint32_t allowed_users[CUDALINK_MAX_ALLOWED_USERS]; /* uids that may connect too */
  /* GPU kinds, 1: the copy of send runs on a stream of the library's own, after the work queued on
   * the named one, which goes on without it: see cudalink_exporter_wait_sent. */
  uint32_t own_stream;
  cudalink_priority own_stream_priority;
  /* 1: send and publish return when the frame's pixels are complete: they block for the work queued
   * on the named stream. */
  uint32_t export_sync;
  /* GPU kinds, 1: send and publish ask the stream for its state after queuing, without blocking: a
   * driver that collects work (Windows, WDDM) then begins with it. */
  uint32_t flush_probe;
  /* GPU kinds, 1: send refuses what is not memory of the channel's GPU, or managed; else it copies
   * from wherever the driver can. */
  uint32_t strict_device;
  uint32_t convert; /* 1: for cudalink_exporter_convert; open waits for the whole GPU */
  /* The old wire (docs/old-wire.md): frames also go to programs of cuda-link's Python package and of
   * TouchDesigner, by a segment of this name (/dev/shm/NAME; no '/' in it); one copy per frame, on the
   * stream that publish names. Needs a GPU. Frames that the old wire has no word for are passed over
   * and counted. NULL = none. */
  const char *cipd_name;
  uint32_t cipd_slots; /* 1 to 10; 0 = 3 */
  uint32_t cipd_only;  /* 1: nothing but the old wire. begin lends its slots in turn, nothing is
                          copied; kind is AUTO or IPC; a description that the old wire has no word
                          for, or one with gaps, is an error of begin: UNSUPPORTED */
  uint32_t cipd_ignore_barrier; /* 1: frames go to the old wire also while a TouchDesigner sender is
                                   starting up; else they are held back meanwhile */
  int64_t cipd_barrier_limit;   /* for so many ns at most; 0 = 5 s */
} cudalink_exporter_spec;
#define CUDALINK_EXPORTER_DEFAULTS .size = sizeof(cudalink_exporter_spec)

/* A slot lent to the caller between begin and publish (or abandon). */
typedef struct cudalink_slot {
  uint64_t sequence; /* the number that the frame will have */
  uint64_t bytes;    /* capacity of the slot */
  uint32_t index;
  uint32_t generation;
  int32_t device; /* CUDALINK_DEVICE(ordinal); 0 = memory of the CPU */
  void *data; /* plane i goes to (char *)data + description.planes[i].offset; 256-byte aligned */
  void *user; /* description.user_size bytes may be written here; NULL if the channel has none */
} cudalink_slot;

/* Opens the channel and becomes its producer. Blocks for the time it takes to allocate and touch
 * the slots (about 0.3 s per GiB on kind host); on GPU kinds it may wait for what runs on the GPU, as no later
 * call does while frames flow. Errors: NAME_IN_USE (says by which program; the end of one that is being killed is
 * waited for, 5 s at most),
 * INVALID_ARGUMENT, NO_SPACE (what limit, how much was asked), REFUSED (a folder or file that is not
 * ours in the way, named), SYSTEM, FORKED; GPU kinds: UNSUPPORTED, GPU. With cipd_name also
 * NAME_IN_USE (another producer writes that segment) and REFUSED (it is no producer's); what a
 * dead producer left there is replaced. */
CUDALINK_API int cudalink_exporter_open(cudalink_exporter *exporter,
                                        const cudalink_exporter_spec *spec);

/* Begins a frame: finds a slot that nobody holds. Waits at most `timeout` ns for one: while every
 * slot is held, or while a consumer that wants every frame has not taken the oldest. With a stalled
 * consumer in the way, frames are taken back from it after hold_limit. One frame may be begun at a
 * time. A description that needs more room than the slots have moves the channel to larger memory
 * (a new generation), here and now. Errors: BUSY (nothing free in time; counted as dropped),
 * INVALID_ARGUMENT (names the plane and the value), NO_SPACE, CLOSED. */
CUDALINK_API int cudalink_exporter_begin(cudalink_exporter exporter,
                                         const cudalink_description *description, int64_t timeout,
                                         cudalink_slot *slot);

/* Publishes the begun frame: every consumer can take it now; its pixels are complete once the work
 * queued on `stream` so far is done. Never blocks, unless export_sync was asked for: then an error of
 * its wait, as with flush_probe one of its question, comes back although the frame is published. The
 * slot is no longer the caller's. Errors:
 * STREAM (not said, or of another device: names both), CAPTURING, INVALID_ARGUMENT (this slot is not
 * the begun one); then the frame is still begun. */
CUDALINK_API int cudalink_exporter_publish(cudalink_exporter exporter, const cudalink_slot *slot,
                                           cudalink_stream stream);

/* Publishes the begun frame as invalid: consumers get it in its place with the flag
 * CUDALINK_FRAME_INVALID and this text (cut at 95 bytes). Its pixels mean nothing. */
CUDALINK_API int cudalink_exporter_publish_invalid(cudalink_exporter exporter,
                                                   const cudalink_slot *slot, const char *text);

/* Gives the begun slot back without publishing. `stream`: after what the slot is free again. */
CUDALINK_API int cudalink_exporter_abandon(cudalink_exporter exporter, const cudalink_slot *slot,
                                           cudalink_stream stream);

/* begin + one copy of `data` + publish. `data` has the layout of `description` (plane i at
 * data + planes[i].offset), gaps between rows and planes included; `user` may be NULL.
 *
 * `data` may be memory of the channel's GPU (of any allocator), of another one, managed, pinned, or
 * plain host memory; the driver is asked each time which it is (plain host memory: the kernel too, a
 * system call). Memory that was freed, or is too small, is refused.
 *
 * The copy runs on `stream`. With COMPLETE it is done when the call returns. Else `data` must stay as it
 * is until the stream has come so far (cudalink_exporter_keep tells when); later work of the same stream may
 * overwrite it at once. With
 * own_stream the named stream goes on without the copy: see cudalink_exporter_wait_sent.
 *
 * Errors: as begin and publish; INVALID_ARGUMENT also for a source that can't be read or, with
 * strict_device, is not on the channel's GPU (says what it is, with the numbers). Nothing was published
 * then, but for an error that export_sync met while it waited. */
CUDALINK_API int cudalink_exporter_send(cudalink_exporter exporter,
                                        const cudalink_description *description, const void *data,
                                        const void *user, cudalink_stream stream, int64_t timeout);

/* Where one plane of a frame comes from. Zero it, then set `data` or `array`. */
typedef struct cudalink_source {
  const void *data;  /* the plane's first element, in memory as for cudalink_exporter_send */
  const void *array; /* or a CUarray, whose rows become those of the plane; GPU kinds */
  int64_t strides[CUDALINK_MAX_DIMENSIONS]; /* of `data`, bytes, one per dimension of the plane, not
                                               negative; all 0 = as in the description */
} cudalink_source;

/* The same from one place per plane, with strides of their own: a crop, a pitched picture, planes that
 * lie apart. `sources` has description->plane_count entries. The slot is laid out as `description`
 * says; type and shape are the description's too. Rows are copied as rectangles, one copy for up to two
 * dimensions that are not dense; gaps are not read. Errors: as send; UNSUPPORTED when the strides take
 * more than 4096 copies. */
CUDALINK_API int cudalink_exporter_send_planes(cudalink_exporter exporter,
                                               const cudalink_description *description,
                                               const cudalink_source *sources, const void *user,
                                               cudalink_stream stream, int64_t timeout);

/* With own_stream: later work of `stream` waits until the copies of all sends so far are done, and may
 * then overwrite what was sent. COMPLETE: the call itself waits, as long as they take. Without
 * own_stream there is nothing to wait for. Errors: STREAM, CAPTURING, GPU. */
CUDALINK_API int cudalink_exporter_wait_sent(cudalink_exporter exporter, cudalink_stream stream);

/* Keeps `owner`, of what was sent, until all frames that this exporter has published so far are complete,
 * and with them the copies of their sends: then calls drop(owner), once. Later frames may be waited for as
 * well. It costs no call of the driver; call it behind a send, on any thread, in place of an event.
 *
 * `drop` is called by a later publish, send or keep, by this very call, or by close, which are about to
 * return; and behind close on a thread of the library's. It may make CUDA calls, block, and call the
 * library. Copies that a lost GPU will never make keep `owner` until the exporter is closed.
 *
 * Errors: INVALID_ARGUMENT, NO_MEMORY, FORKED, UNSUPPORTED (cipd_only: nothing says there how far a
 * copy is); `owner` is then still the caller's, and must stay until the streams that were named have come so
 * far. CLOSED: it is the caller's, and nothing reads it any more; a close with copies under way is
 * no such error. */
CUDALINK_API int cudalink_exporter_keep(cudalink_exporter exporter, void *owner,
                                        void (*drop)(void *owner));

/* A stream of the library's own on the channel's GPU, which waits for no other (non-blocking): for
 * work that has no stream to name, as the arrays of a framework that shows none. There is one per GPU and
 * process, made by the first call; it stays until the process ends, and the GPU's primary context with it,
 * since a frame that was read on it may be given back at any time. On host memory:
 * CUDALINK_STREAM_COMPLETE. Errors: CLOSED, GPU. */
CUDALINK_API int cudalink_exporter_get_stream(cudalink_exporter exporter, cudalink_stream *stream);

/* Waits until `count` consumers are connected. Errors: TIMEOUT, CLOSED. */
CUDALINK_API int cudalink_exporter_wait_consumers(cudalink_exporter exporter, uint32_t count,
                                                  int64_t timeout);

/* Waits until consumers that want every frame, and shared groups, have taken all that was published:
 * before a close that must lose nothing. Errors: TIMEOUT, CLOSED. */
CUDALINK_API int cudalink_exporter_wait_taken(cudalink_exporter exporter, int64_t timeout);

/* Counters since open. Read at any time; single values are exact, the set is not one instant.
 *
 * Of a channel whose frames flow nothing waits for all that the GPU runs, which would take as long as the
 * longest kernel, with two exceptions. They are on a thread of the library's, and gpu_waits counts each call:
 *  - On GPU kinds the words of consumers that have left are given back when 1024 more have.
 *  - Kind ipc gives memory back that the channel has outgrown: there is no other way to free memory that has
 *    a legacy handle. Open with the slots and the largest frame that will be needed, or use kind vmm.
 *
 * Closing, a new session of an outlet to the old wire, and the end of an array that was pinned
 * (cudalink_array_pinned) wait too; they are not counted. */
typedef struct cudalink_exporter_statistics {
  size_t size;        /* sizeof(cudalink_exporter_statistics), set by the caller */
  uint64_t published; /* frames, invalid ones among them */
  uint64_t dropped;   /* begins that found nothing free */
  uint64_t abandoned;
  uint64_t bytes;          /* of the published frames as they lie in slots: rows are padded */
  uint64_t copies;         /* copies of frames that the library made (send, isolated, ...) */
  uint64_t waits;          /* begins that had to wait */
  uint64_t evicted;        /* consumers whose frames were taken back */
  uint64_t cursors_lost;   /* every-frame consumers that lost their place instead */
  uint64_t redelivered;    /* frames of shared groups offered a second time */
  uint64_t deaths;         /* consumers that died */
  uint64_t wakes;          /* publishes that had to wake a sleeper, or to ring a descriptor */
  uint64_t generations;    /* blocks of memory so far */
  uint64_t retired_bytes;  /* taken-back memory that waits for its holder now */
  uint64_t memory_bytes;   /* slots of the current generation with their metadata */
  uint32_t consumers;      /* connected now */
  uint32_t slots;          /* now */
  uint32_t slots_short;    /* slots that the holds of all consumers would need beyond max_slots */
  uint32_t kind;           /* cudalink_kind in use */
  char path[32];           /* how frames travel: "host memfd", "vmm fd", ... */
  char reason[160];        /* why this and not another */
  uint64_t cipd_published; /* frames on the old wire */
  uint64_t
      cipd_skipped; /* frames that it was not given: cipd_reason says why the last one was not */
  uint64_t cipd_held_back; /* frames held back while a TouchDesigner sender was starting up */
  uint64_t cipd_stale;     /* frames given though somebody says so, but since more than 5 s */
  char cipd_reason[160];
  uint64_t shared;       /* frames published where they lay, in a pool (cudalink/pool.h) */
  uint64_t share_copies; /* frames that lay in a pool and were copied all the same, */
  char share_reason[96]; /* and why the last one was */
  uint64_t gpu_waits;    /* calls, while frames may flow, that waited for the whole GPU: above */
} cudalink_exporter_statistics;
CUDALINK_API int cudalink_exporter_get_statistics(cudalink_exporter exporter,
                                                  cudalink_exporter_statistics *statistics);

/* Where a slot, 0 to statistics.slots - 1, begins in this process, to be shown: what is there is the
 * consumers' (begin lends slots), and it moves with the next generation. Errors: INVALID_ARGUMENT,
 * UNSUPPORTED (cipd_only), CLOSED. */
CUDALINK_API int cudalink_exporter_slot_address(cudalink_exporter exporter, uint32_t slot,
                                                void **address);

/* Ends the channel: consumers are told (ENDED), frames that they hold stay whole until they let go.
 * What was published is completed by the streams that were named, and consumers' streams wait for it: a
 * process that ends before is a dead producer to them. Frames that a consumer has not taken yet are
 * still handed out if they are complete when it asks; else they count as missed. Memory of kind ipc is
 * this process's: it is kept beyond this call until each consumer has closed it or its process has ended,
 * and goes when this process ends; whether a consumer that still holds a frame then can read it is up to
 * the driver. Memory of the other kinds outlives its producer. The name is free at once.
 * A begun frame is abandoned: its slot's memory goes with this call, so no other thread may be
 * filling it then. Calls that are under way end with CLOSED. Never waits for a peer. The handle is
 * dead afterwards; closing twice answers CLOSED. */
CUDALINK_API int cudalink_exporter_close(cudalink_exporter exporter);

#ifdef __cplusplus
}
#endif
#endif
