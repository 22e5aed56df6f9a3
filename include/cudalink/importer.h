/* SPDX-License-Identifier: MIT
 *
 * cudalink/importer.h - a consumer's end of a channel.
 *
 * An importer names a channel, finds its producer whenever there is one, and takes frames. Producer
 * and consumer may start in any order; when the producer is replaced, the importer goes on with the
 * new one by itself.
 *
 * ```c fragment
 * cudalink_importer importer;
 * cudalink_importer_open(&importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
 *                                                             .name = "camera"});
 * cudalink_frame frame;
 * int status = cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 1000000, &frame);
 * if (status == CUDALINK_OK) {
 *   printf("frame %llu\n", (unsigned long long)frame.sequence);
 *   cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
 * }
 * cudalink_importer_close(importer);
 * ```
 */
#ifndef CUDALINK_IMPORTER_H
#define CUDALINK_IMPORTER_H

#include "cudalink/frame.h"
#include "cudalink/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudalink_importer {
  uint32_t id; /* 0 = none */
} cudalink_importer;

typedef enum cudalink_policy {
  CUDALINK_POLICY_LATEST = 0,     /* the newest frame; older ones are skipped and counted */
  CUDALINK_POLICY_READY_ONLY = 1, /* the newest frame whose pixels are complete */
  CUDALINK_POLICY_IN_ORDER = 2,   /* the oldest frame still there after the last one taken */
  CUDALINK_POLICY_EVERY = 3,      /* every frame: the producer waits for this consumer */
  CUDALINK_POLICY_SHARED = 4      /* every frame goes to exactly one member of a group */
} cudalink_policy;

/* Which protocol the producer speaks. The old wire is that of cuda-link's Python package and of
 * TouchDesigner (docs/old-wire.md): policy LATEST only, not isolated. Its producers can't know their
 * readers and write on: a frame is proven when it is given back. They ring no bell on Linux either, so
 * there acquire naps while it waits for a frame, 1 ms at most, and looks each 25 ms at a segment that is
 * not ready. */
typedef enum cudalink_wire {
  CUDALINK_WIRE_AUTO = 0, /* our channel of that name, else an old segment of that name */
  CUDALINK_WIRE_OWN = 1,
  CUDALINK_WIRE_CIPD = 2
} cudalink_wire;

#define CUDALINK_GROUP_NAME_SIZE 64 /* with the ending NUL */
#define CUDALINK_MAX_HOLD 16
#define CUDALINK_MAX_HOST_STREAMS 8

typedef struct cudalink_importer_spec {
  size_t size;      /* sizeof(cudalink_importer_spec) */
  const char *name; /* the channel */
  cudalink_policy policy;
  const char *group;     /* for SHARED: the group's name, 1 to 63 bytes */
  uint32_t hold;         /* frames that will be held at the same time, 1 to 16; 0 = 1 */
  uint32_t writable;     /* GPU kinds: map frames writable, where the exporter allows it */
  uint32_t isolated;     /* 1: a block of memory of its own, one copy per frame */
  uint32_t gpu_wait;     /* 1: acquire leaves the wait for pixels to the stream that it names */
  uint32_t once;         /* 1: stay with the first producer; when it is gone, so is this importer */
  int32_t device;        /* GPU to map for: 0 = the producer's, or CUDALINK_DEVICE(ordinal) */
  const char *directory; /* where to look first; NULL = all the usual folders */
  int64_t open_timeout;  /* ns that open waits for a producer; 0 = open returns at once and acquire
                            finds the producer later */
  int64_t
      gpu_wait_limit; /* ns until a wait that was left to a stream is given up as LOST; 0 = 2 s */
  uint64_t spin;      /* ns that acquire looks before it sleeps; 0 = none */
  /* GPU kinds: so many streams share one large copy to host memory, 1 to 8; 0 = 1. */
  uint32_t host_streams;
  /* 1: two copies into host memory of the library's own may be under way at once, else one:
   * cudalink_frame_to_host_begin. */
  uint32_t host_pipelined;
  uint32_t convert; /* 1: for cudalink_frame_convert (cudalink/convert.h) */
  uint32_t wire;    /* cudalink_wire; 0 = finds it out by itself */
} cudalink_importer_spec;
#define CUDALINK_IMPORTER_DEFAULTS .size = sizeof(cudalink_importer_spec)

/* Opens a consumer's end of a channel. With open_timeout 0 it never waits for a producer. Errors: INVALID_ARGUMENT; with an
 * open_timeout also NOT_FOUND (no producer in time: says how to start one, and where it looked), TIMEOUT (there is
 * one, but it does not answer: it is stopped, or very busy), REFUSED, VERSION, PROTOCOL (the producer's answer, with
 * its text). */
CUDALINK_API int cudalink_importer_open(cudalink_importer *importer,
                                        const cudalink_importer_spec *spec);

/* Waits at most `timeout` ns until the importer has joined a producer, as open does with an open_timeout: for who
 * looks at other things meanwhile, a signal say. OK at once when it has joined, also one that has gone since. A refusal
 * stays to be told by acquire. Errors: as open's with an open_timeout; CLOSED (also when another thread closes the
 * importer meanwhile). Any number of threads may wait. */
CUDALINK_API int cudalink_importer_wait_producer(cudalink_importer importer, int64_t timeout);

/* Takes the next frame by the importer's policy, waiting at most `timeout` ns.
 *
 * `stream` says where the pixels will be used: with COMPLETE the call returns when they are
 * complete. With a stream and gpu_wait, the stream waits for them and the call returns at once, the
 * frame flagged PENDING (never on the old wire: a stream that waited for a killed producer's event
 * would wait for ever, so there this call waits). The importer may hold `hold` frames; one more answers BUSY after the
 * time-out.
 *
 * Errors: TIMEOUT (there was none; or its pixels were not complete in time; or it is the first one in new memory,
 * which is mapped a moment later: the sentence says which, and those two are offered again); BUSY; LOST (the
 * producer died, or this process had no descriptor left to go on with it) and ENDED (it closed): each told once
 * (when more than two producers went between two calls, the last two ends; `session` counts them all), then
 * acquire looks for the next producer (never with `once`: then they stay; on the old wire nobody can see a death,
 * which ends in TIMEOUT); EVICTED (the producer took this importer's frames back because they were held too long;
 * told once, it then joins again); NOT_FOUND only from importers with `once` before a producer was found; CLOSED
 * (also when another thread closes the importer during the call); REFUSED, VERSION, PROTOCOL (the producer's
 * answer to joining). */
CUDALINK_API int cudalink_importer_acquire(cudalink_importer importer, cudalink_stream stream,
                                           int64_t timeout, cudalink_frame *frame);

/* Takes a frame that is not published yet: the one the producer works on now. Its address is known,
 * its pixels are complete once `stream`, which waits for it, has come so far; the description is that
 * of the frame before it, so one has to be acquired first, and not a SHARED one, behind which nothing
 * says where the next will be. At most one such frame at a time. Of a producer that has gone the published frames
 * that were not taken come first, complete, as from acquire. Errors: BUSY (with time-out 0: the producer has
 * announced nothing; or as many frames are held as `hold` allows), TIMEOUT, STREAM (COMPLETE makes no sense here),
 * as acquire. */
CUDALINK_API int cudalink_importer_wait_next(cudalink_importer importer, cudalink_stream stream,
                                             int64_t timeout, cudalink_frame *frame);

/* Gives a frame back: COMPLETE = nothing reads it any more; a stream or event = once it has come so
 * far. Sets frame->lease to 0. Works also after the importer was closed or the producer died.
 * Never blocks. Errors: INVALID_ARGUMENT (not held: was it released already?), STREAM, CAPTURING; LOST
 * when the producer died, or gpu_wait_limit passed, before the pixels were complete, and what was read
 * may be half a frame;
 * OVERWRITTEN when the producer is on the old wire and may have written into the frame meanwhile (with a
 * stream or event: until now; what its work finds is counted later). The frame is released all the
 * same. */
CUDALINK_API int cudalink_frame_release(cudalink_frame *frame, cudalink_stream stream);

/* The flags of a held frame now: a PENDING frame turns READY (no flag) or LOST. Never blocks. */
CUDALINK_API int cudalink_frame_flags(const cudalink_frame *frame, uint32_t *flags);

/* Makes a stream wait for a held frame's pixels, whatever stream acquire named; the CPU does not wait,
 * and what is complete is not waited for. COMPLETE: the call blocks until they are complete, at most
 * the importer's gpu_wait_limit. Errors: INVALID_ARGUMENT (not held), STREAM, CAPTURING (the pixels are
 * still pending, and a captured wait would be repeated by each launch), LOST. */
CUDALINK_API int cudalink_frame_wait(const cudalink_frame *frame, cudalink_stream stream);

/* The frame as packed bytes in host memory, whatever kind it is on (cudalink/format.h says what
 * packed means). Blocks for the copy, and before it for the frame's pixels (at most gpu_wait_limit).
 * Pinned memory is written straight by the GPU; plain memory by way of two pinned buffers of the
 * library's, which are made by the first large copy. Calls on one importer take turns. Errors:
 * TOO_LARGE with both numbers, LOST, INVALID_ARGUMENT (`out` is GPU memory), OVERWRITTEN (old wire: the
 * producer may have written into the frame during the copy). */
CUDALINK_API int cudalink_frame_to_host(const cudalink_frame *frame, void *out, uint64_t size);

/* The same in the background, to do other work meanwhile: begin queues the copy and gives the frame
 * back behind it (frame->lease is 0 then, also for the producer once the copy is done); finish blocks
 * until the bytes are there. With two copies under way (host_pipelined), a program that begins one for
 * the new frame and then finishes the one for the frame before runs one frame late and waits for
 * nothing.
 *
 * `out` is pinned memory of `size` bytes that stays as it is until finish, or NULL: memory of the
 * importer's own (pinned on GPU kinds). That holds the frame until as many begins later as copies may be
 * under way (1, or 2 with host_pipelined), and no longer than the importer lives. A larger frame than
 * any before makes new pinned memory; else nothing is allocated. On kind host the copy is done by begin.
 *
 * Begin blocks for the frame's pixels only. Errors of begin (the frame is still held then): BUSY (so
 * many copies are under way: finish one), TOO_LARGE, LOST, INVALID_ARGUMENT (`out` is not pinned), as
 * release. Errors of finish: INVALID_ARGUMENT (finished before), CLOSED (the importer was closed first:
 * what `out` holds is not known), GPU_LOST. */
typedef struct cudalink_host_copy {
  uint64_t id;       /* 0 = none under way */
  uint64_t sequence; /* of the frame */
  uint64_t bytes;
  void *data; /* `out`, or the memory of the importer's own */
} cudalink_host_copy;
CUDALINK_API int cudalink_frame_to_host_begin(cudalink_frame *frame, void *out, uint64_t size,
                                              cudalink_host_copy *copy);
CUDALINK_API int cudalink_frame_to_host_finish(cudalink_host_copy *copy);

/* A descriptor to wait on with poll, epoll, asyncio: becomes readable when a frame may be there or
 * the connection has changed. Owned by the importer; do not read or close it. Call
 * cudalink_importer_arm before each wait. Costs nothing while it is not armed. */
CUDALINK_API int cudalink_importer_descriptor(cudalink_importer importer, int *descriptor);
/* Makes the descriptor tell of the next change. CUDALINK_OK: armed, wait; BUSY: do not wait, there is
 * something to acquire right now. */
CUDALINK_API int cudalink_importer_arm(cudalink_importer importer);

/* How an importer stands with its producer. */
typedef enum cudalink_connection {
  CUDALINK_CONNECTION_SEARCHING = 0, /* no producer yet */
  CUDALINK_CONNECTION_JOINING = 1,
  CUDALINK_CONNECTION_JOINED = 2,
  CUDALINK_CONNECTION_OVER = 3 /* `once`, and the producer is gone */
} cudalink_connection;

#define CUDALINK_HISTOGRAM_BUCKETS 36

/* Counters since open. Read at any time; single values are exact, the set is not one instant. */
typedef struct cudalink_importer_statistics {
  size_t size;          /* sizeof(cudalink_importer_statistics), set by the caller */
  uint64_t received;    /* frames */
  uint64_t missed;      /* frames skipped, or gone before they were taken: also the last ones of a
                           producer that has gone */
  uint64_t bytes;       /* of the received frames' planes as they lie in slots: rows are padded */
  uint64_t copies;      /* copies of frames that the library made (to_host) */
  uint64_t waits;       /* acquires that slept */
  uint64_t wakes;       /* times that a sleeping acquire ran, whatever it found */
  uint64_t sessions;    /* producers so far */
  uint64_t generations; /* blocks of memory mapped so far */
  uint64_t lost;        /* frames whose producer died before they were complete */
  uint64_t evictions;   /* times that the producer took frames back */
  uint64_t redelivered; /* frames got after another member had died */
  uint32_t held;        /* frames held now */
  uint32_t hold;        /* frames that may be held */
  uint32_t connection;  /* cudalink_connection */
  uint32_t kind;        /* cudalink_kind in use */
  uint64_t wake_latency[CUDALINK_HISTOGRAM_BUCKETS]; /* publish -> acquire returns, by a
                            waiting acquire: bucket i counts [2^i, 2^(i+1)) ns */
  char path[32];
  char reason[160];
  uint64_t overwritten; /* old wire: frames that could not be proven after their use */
  uint32_t slots;       /* of the producer, as told last; 0 = there is none */
  uint32_t reserved;
} cudalink_importer_statistics;
CUDALINK_API int cudalink_importer_get_statistics(cudalink_importer importer,
                                                  cudalink_importer_statistics *statistics);

/* Ends this consumer. Frames that are still held stay valid until they are released, and streams that
 * wait for pixels go on waiting, as if it were open. A call that waits in another thread returns CLOSED.
 * Does not block; but on kind ipc, unless frames are held, until legacy handles are closed, 2 s at most:
 * a program may end right behind it. */
CUDALINK_API int cudalink_importer_close(cudalink_importer importer);

#ifdef __cplusplus
}
#endif
#endif
