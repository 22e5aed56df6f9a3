/* SPDX-License-Identifier: MIT
 *
 * The old wire: the control segment of cuda-link's Python package and TouchDesigner parts ("v0.5.0",
 * magic CIPD). Pure functions on a block of bytes; opening segments and handles is done elsewhere.
 *
 * Old producers can't know their readers: they rotate over their slots and overwrite whatever is
 * there. So a reader proves a frame after it was used (wire_cipd_intact). The layout is packed, which
 * leaves most fields unaligned; every byte of it is listed in docs/protocol.md.
 *
 * A block is 4-byte aligned (mappings are). Other processes map it writable, so nothing that was read
 * once is read again in the hope that it is still the same.
 */
#ifndef CUDALINK_SRC_WIRE_CIPD_H
#define CUDALINK_SRC_WIRE_CIPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cudalink/frame.h"

#define WIRE_CIPD_MAGIC 0x43495044u        /* "CIPD" when written as a number */
#define WIRE_CIPD_MAGIC_BEFORE 0x43495043u /* "CIPC", packages before 1.0.0: another layout */
#define WIRE_CIPD_HANDLE_SIZE 64u
#define WIRE_CIPD_MAX_SLOTS 64u                         /* read */
#define WIRE_CIPD_MAX_OWN_SLOTS 10u                     /* written: what every old reader accepts */
#define WIRE_CIPD_NAME_MAX 240u                         /* bytes of a segment's name */
#define WIRE_CIPD_SENDER_NAME "cudalink_ipc_TD>>Python" /* default of the TouchDesigner sender */
#define WIRE_CIPD_RECEIVER_NAME "cudalink_ipc_Python>>TD" /* and of its receiver */

/* Where the fields are. The first four do not depend on the number of slots. */
#define WIRE_CIPD_MAGIC_AT 0u
#define WIRE_CIPD_VERSION_AT 4u
#define WIRE_CIPD_SLOTS_AT 12u
#define WIRE_CIPD_INDEX_AT 16u
#define WIRE_CIPD_HANDLES_AT 20u
struct wire_cipd_layout {
  uint32_t slots;
  uint32_t shutdown; /* offsets */
  uint32_t width, height, channels, kind, bits, flags, data_size;
  uint32_t timestamp;
  uint32_t bytes; /* of the block: 128 * slots + 49 */
};
static inline uint32_t wire_cipd_memory_at(uint32_t slot) {
  return WIRE_CIPD_HANDLES_AT + slot * 2 * WIRE_CIPD_HANDLE_SIZE;
}
static inline uint32_t wire_cipd_event_at(uint32_t slot) {
  return wire_cipd_memory_at(slot) + WIRE_CIPD_HANDLE_SIZE;
}

/* For 1 to 64 slots, else INVALID_ARGUMENT. */
int wire_cipd_layout_make(struct wire_cipd_layout *layout, uint32_t slots);

enum wire_cipd_flag { /* other bits mean nothing and are ignored */
                      WIRE_CIPD_BFLOAT16 = 1,
                      WIRE_CIPD_MONO_ALPHA = 2, /* 2 channels: mono and alpha */
                      WIRE_CIPD_BGRA = 4        /* 4 channels of uint8: B, G, R, A */
};

/* What every frame of a session looks like: rows of width * channels elements, no gaps. */
struct wire_cipd_format {
  uint32_t width, height;
  uint32_t channels;    /* 1 to 4 */
  uint32_t data_size;   /* bytes of a frame */
  cudalink_dtype dtype; /* one of seven; its wire triple is made from it */
  bool mono_alpha, bgra;
};

/* Fills in data_size. INVALID_ARGUMENT: a side of 0, channels, a type or a flag that the old wire has
 * no word for. TOO_LARGE: 4 GiB or more. */
int wire_cipd_format_make(struct wire_cipd_format *format, uint32_t width, uint32_t height,
                          uint32_t channels, cudalink_dtype dtype, bool mono_alpha, bool bgra);

struct wire_cipd_handles {
  uint8_t memory[WIRE_CIPD_HANDLE_SIZE];
  uint8_t event[WIRE_CIPD_HANDLE_SIZE]; /* all zero = this slot has no event */
};

/* One life of a ring: from one version to the next. */
struct wire_cipd_session {
  uint64_t version; /* never 0 */
  uint32_t index;   /* reader: frames published when it was read, at least 1 */
  struct wire_cipd_layout layout;
  struct wire_cipd_format format;
  struct wire_cipd_handles handles[WIRE_CIPD_MAX_SLOTS];
};

/* ---- writing ---- */

/* Begins a session. Readers of an earlier one in this block see "no frame" from the first store on
 * and the new version with the last one, never a mixture. `session` has a layout of 1 to 10 slots, a
 * format, handles, and a version that this block did not have before. The number of slots stays what
 * it was in this block: the layout follows from it, and old readers look at it once. */
void wire_cipd_begin_session(void *block, const struct wire_cipd_session *session);

/* The slot of the frame with this index. Indices start at 1 with each session; after UINT32_MAX a
 * new session has to begin, because 0 means "none yet" and the rotation would jump. */
static inline uint32_t wire_cipd_slot(uint32_t index, uint32_t slots) {
  return (index - 1) % slots;
}

/* Publishes frame `index`; its copy was queued and its event recorded before. Timestamp: seconds. */
void wire_cipd_publish(void *block, const struct wire_cipd_layout *layout, uint32_t index,
                       double timestamp);

/* Ends: readers see SHUTDOWN. The handles are wiped by a second call, after the doorbell. */
void wire_cipd_shut_down(void *block, const struct wire_cipd_layout *layout);
void wire_cipd_wipe_handles(void *block, const struct wire_cipd_layout *layout);

/* Ends what a producer that is gone has left in a mapping of `mapped` bytes, so that its readers look
 * for a new segment. Gives its version, or 0 when there is none. */
uint64_t wire_cipd_end(void *block, uint64_t mapped);

/* A number that changes with each frame and each session; 0 when there is none, or it was shut down. */
uint64_t wire_cipd_pulse(const void *block, uint64_t mapped);

/* ---- reading ---- */

/* Copies and checks a session out of a mapping of `mapped` bytes (at least the block; Windows maps
 * whole pages). BUSY: nothing published yet, no format yet, or the producer is at work on it: try again. ENDED:
 * shutdown is set, the segment is stale. VERSION: written by a package before 1.0.0. PROTOCOL, with
 * the field and its values: everything else. */
int wire_cipd_read_session(struct wire_cipd_session *session, const void *block, uint64_t mapped);

struct wire_cipd_frame {
  uint32_t index;
  uint32_t slot;
  uint32_t missed;  /* frames between `last` and this one; 0 if there was no last one */
  double timestamp; /* seconds. There is one for the whole ring: it may be a later frame's */
};

enum wire_cipd_state {
  WIRE_CIPD_NO_FRAME,
  WIRE_CIPD_NEW_FRAME,
  WIRE_CIPD_SHUTDOWN,
  WIRE_CIPD_VERSION_CHANGED /* or the counter went back: read the session again */
};

/* Looks for a frame after `last` (0 = none yet). Takes nothing: the caller moves `last` on once it
 * has the frame, so that a wait that ran out of time loses none. */
enum wire_cipd_state wire_cipd_poll(const void *block, const struct wire_cipd_session *session,
                                    uint32_t last, struct wire_cipd_frame *frame);

/* After the last read of frame `index` has ended (on a GPU: after the CPU saw it end): was the slot
 * left alone until now? False = it may have been overwritten meanwhile.
 *
 * Frame i + N goes to the slot of frame i, and its copy starts after the counter became i + N - 1. So
 * a frame is proven while counter - i <= N - 2. With one slot no frame can be proven. */
bool wire_cipd_intact(const void *block, const struct wire_cipd_session *session, uint32_t index);

/* Seconds of the old wire as ns, 0 when the number can't be a time. */
uint64_t wire_cipd_nanoseconds(double seconds);

/* ---- names ---- */

/* "/NAME" for shm_open (the file is /dev/shm/NAME), and the Windows event that announces frames.
 * INVALID_ARGUMENT: empty, too long, or with a slash. `out` has WIRE_CIPD_PATH_SIZE bytes. */
#define WIRE_CIPD_PATH_SIZE 272u
int wire_cipd_segment_name(char *out, const char *name);
int wire_cipd_doorbell_name(char *out, const char *name);

#endif
