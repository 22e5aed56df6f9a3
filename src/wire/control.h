/* SPDX-License-Identifier: MIT
 *
 * The control block: what a producer tells everybody, in one segment that only it can write.
 *
 * Readers must not believe it: indices are masked, lengths clamped, after one load. Geometry is not
 * here; it travels in messages (message.h). All words are little-endian; a machine that is not is
 * refused at compile time.
 */
#ifndef CUDALINK_SRC_WIRE_CONTROL_H
#define CUDALINK_SRC_WIRE_CONTROL_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian"
#endif

#define WIRE_CONTROL_MAGIC UINT64_C(0x314b4c4144554321) /* "!CUDALK1" as bytes */
#define WIRE_VERSION 1u
#define WIRE_MAX_SLOTS 64u
#define WIRE_MAX_CONSUMERS 64u
#define WIRE_INDEX_SIZE 64u

typedef _Atomic uint64_t wire_word;
typedef _Atomic uint32_t wire_half;

struct wire_line64 { /* one word with a cache line of its own */
  _Alignas(64) wire_word word;
};

struct wire_control {
  /* Set before the first message names this segment, then constant. */
  uint64_t magic;
  uint32_t version;
  uint32_t bytes; /* sizeof(struct wire_control) */
  uint64_t features;
  uint64_t reserved0[5];

  /* Producer writes, all read. Partner of each: docs/protocol.md. */
  _Alignas(64) wire_word head; /* seq << 6 | slot; 0 = none */
  wire_word gen;               /* current generation, 24 bits, from 1 */
  wire_word next;              /* announced: seq << 6 | slot; 0 = nothing */
  _Alignas(64) wire_half bell; /* counts changes that a consumer may wait for */
  wire_half reserved1;
  _Alignas(64) wire_half waiting; /* bits WIRE_WAITING_*: tell the producer of releases */
  wire_half reserved2;

  struct wire_line64 st[WIRE_MAX_SLOTS];    /* seq of the frame in the slot; 0 = the producer's */
  struct wire_line64 ready[WIRE_MAX_SLOTS]; /* seq up to which the producer's GPU (CPU) is done */
  _Alignas(64) wire_word index[WIRE_INDEX_SIZE]; /* [seq % 64] = seq << 7 | void << 6 | slot */
};

#define WIRE_WAITING_SLOT 1u  /* the producer sleeps until a slot is free */
#define WIRE_WAITING_OFFER 2u /* frames of shared groups wait for a free member */

_Static_assert(offsetof(struct wire_control, head) == 64, "layout");
_Static_assert(offsetof(struct wire_control, gen) == 72, "layout");
_Static_assert(offsetof(struct wire_control, next) == 80, "layout");
_Static_assert(offsetof(struct wire_control, bell) == 128, "layout");
_Static_assert(offsetof(struct wire_control, waiting) == 192, "layout");
_Static_assert(offsetof(struct wire_control, st) == 256, "layout");
_Static_assert(offsetof(struct wire_control, ready) == 256 + 4096, "layout");
_Static_assert(offsetof(struct wire_control, index) == 256 + 8192, "layout");
_Static_assert(sizeof(struct wire_control) == 256 + 8192 + 512, "layout");

/* head, next: a frame in a slot. */
static inline uint64_t wire_frame_word(uint64_t sequence, uint32_t slot) {
  return sequence << 6 | (slot & 63u);
}
static inline uint64_t wire_frame_sequence(uint64_t word) { return word >> 6; }
static inline uint32_t wire_frame_slot(uint64_t word) { return (uint32_t)(word & 63u); }

static inline uint64_t wire_index_word(uint64_t sequence, int is_void, uint32_t slot) {
  return sequence << 7 | (uint64_t)(is_void ? 64u : 0u) | (slot & 63u);
}
static inline uint64_t wire_index_sequence(uint64_t word) { return word >> 7; }
static inline int wire_index_void(uint64_t word) { return (word & 64u) != 0; }
static inline uint32_t wire_index_slot(uint64_t word) { return (uint32_t)(word & 63u); }

#endif
