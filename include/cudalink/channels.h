/* SPDX-License-Identifier: MIT
 *
 * cudalink/channels.h - which channels there are, who is on them, what they hold.
 *
 * Looking at a channel does not take part in it: no slot, no mailbox, no place among the 64
 * consumers. The producer's service thread answers.
 */
#ifndef CUDALINK_CHANNELS_H
#define CUDALINK_CHANNELS_H

#include "cudalink/importer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDALINK_MAX_CONSUMERS 64
#define CUDALINK_PROGRAM_SIZE 32
#define CUDALINK_DEVICE_TEXT_SIZE 48
#define CUDALINK_DEVICE_NAME_SIZE 96
/* In place of a count: that consumer's library does not count, or the producer's does not tell. */
#define CUDALINK_NOT_TOLD UINT64_MAX

/* Latencies are counted by how long they were, four buckets per doubling: bucket 0 below 1024 ns, the last one
 * everything from 12.9 s on. */
#define CUDALINK_LATENCY_BUCKETS 96
/* The least latency, in ns, that this bucket counts; it ends where the next one begins. `bucket` is less than
 * CUDALINK_LATENCY_BUCKETS. */
static inline uint64_t cudalink_latency_bucket_start(uint32_t bucket) {
  return bucket ? (uint64_t)(4u + (bucket - 1u) % 4u) << (8u + (bucket - 1u) / 4u) : 0u;
}

/* One consumer of a channel, as its producer sees it. */
typedef struct cudalink_consumer_info {
  int32_t pid; /* in the producer's pid namespace; 0 = in another one */
  uint32_t uid;
  char program[CUDALINK_PROGRAM_SIZE];
  char group[CUDALINK_GROUP_NAME_SIZE];
  uint32_t policy; /* cudalink_policy */
  uint32_t hold;   /* frames it may hold */
  uint32_t held;   /* frames it holds now */
  uint32_t isolated;
  uint64_t held_for; /* ns since it holds the frame that it has held longest */
  uint64_t position; /* every-frame: the last frame that it has taken */
  /* Since it joined. All four, or none: then each is CUDALINK_NOT_TOLD. */
  uint64_t received; /* frames that it has taken */
  uint64_t missed;   /* frames that it never got, as in cudalink_frame.missed */
  uint64_t latency;  /* ns from publish to acquire, of `measured` frames together */
  uint64_t measured; /* frames: those for which it slept, and one in 16 of the others */
  /* The measured frames by their latency (cudalink_latency_bucket_start); all CUDALINK_NOT_TOLD where nobody
   * tells them. Each is exact, together they may be of a moment later than `measured`. */
  uint64_t latencies[CUDALINK_LATENCY_BUCKETS];
} cudalink_consumer_info;

/* About 60 KB: nothing for a small stack. */
typedef struct cudalink_channel_info {
  char name[CUDALINK_NAME_MAX + 1];
  char directory[256];
  int32_t status; /* CUDALINK_OK, or why nothing more is known: LOST (nobody is behind that name),
                     REFUSED (another user's), VERSION, TIMEOUT; only name and directory are set */
  int32_t pid;    /* of the producer */
  uint32_t uid;
  char program[CUDALINK_PROGRAM_SIZE];
  uint32_t kind; /* cudalink_kind */
  uint32_t slots;
  uint64_t slot_bytes;
  uint64_t generation;
  uint64_t published;
  uint64_t dropped;
  uint64_t newest_timestamp; /* cudalink_now() of the newest frame, 0 = none yet */
  uint64_t opened;           /* cudalink_now() of the open */
  uint32_t format;           /* of the newest frame: cudalink_format, width, height, or 0 */
  uint32_t width;
  uint32_t height;
  uint32_t plane_count;
  char path[32];
  char reason[160];
  /* The GPU on which the frames lie. Zeros and "": memory of the CPU, or a producer whose library does not
   * tell. */
  uint8_t device_uuid[16]; /* as in cudalink_probe_device */
  char
      device[CUDALINK_DEVICE_TEXT_SIZE]; /* the same as NVIDIA writes it: "GPU-8932f937-d72b-..." */
  char device_name[CUDALINK_DEVICE_NAME_SIZE]; /* "NVIDIA H200" */
  uint32_t consumer_count;
  cudalink_consumer_info consumers[CUDALINK_MAX_CONSUMERS];
} cudalink_channel_info;

/* Lists the channels of all the usual folders (or of `directory` only). `*channels` is allocated,
 * freed by cudalink_channels_free. Asks all producers at once and waits at most `timeout` ns for
 * their answers. Errors: NO_MEMORY, SYSTEM. Finding none is CUDALINK_OK with a count of 0. */
CUDALINK_API int cudalink_channels_list(const char *directory, int64_t timeout,
                                        cudalink_channel_info **channels, size_t *count);
/* Frees what cudalink_channels_list allocated; NULL is allowed. */
CUDALINK_API void cudalink_channels_free(cudalink_channel_info *channels);

/* Looks at the one channel of that name. Errors: NOT_FOUND, INVALID_ARGUMENT, TIMEOUT. */
CUDALINK_API int cudalink_channel_get(const char *directory, const char *name, int64_t timeout,
                                      cudalink_channel_info *channel);

/* Removes what dead producers left behind (sockets and lock files that nobody owns). Never touches a
 * living one's. `*removed` (may be NULL) counts names. */
CUDALINK_API int cudalink_channels_clean(const char *directory, size_t *removed);

/* Calls back for each name that cudalink_channels_clean would remove now, and removes nothing. `name` is
 * the channel's, or what its files are called where the channel's is too long for that. `has_socket` 0:
 * there is a lock file only, because its producer died before it had a socket. Whether a name has an
 * owner may change as soon as it was looked at. Errors: INVALID_ARGUMENT. */
typedef void (*cudalink_leftover_callback)(void *context, const char *directory, const char *name,
                                           int has_socket);
CUDALINK_API int cudalink_channels_leftovers(const char *directory,
                                             cudalink_leftover_callback callback, void *context);

/* Calls back whenever a channel appears or disappears, until cudalink_watch_close. Runs a thread of
 * its own (the documented watch thread, one per watch), which is the thread that calls back; first
 * it reports the channels that exist. The callback may call cudalink, but not close its own watch. */
typedef enum cudalink_channel_event {
  CUDALINK_CHANNEL_APPEARED = 1,
  CUDALINK_CHANNEL_DISAPPEARED = 2
} cudalink_channel_event;
typedef void (*cudalink_watch_callback)(void *context, cudalink_channel_event event,
                                        const char *name);
typedef struct cudalink_watch cudalink_watch;
CUDALINK_API int cudalink_watch_open(cudalink_watch **watch, const char *directory,
                                     cudalink_watch_callback callback, void *context);
/* Ends a watch; when it returns, its callback is not running and is not called any more. */
CUDALINK_API void cudalink_watch_close(cudalink_watch *watch);

#ifdef __cplusplus
}
#endif
#endif
