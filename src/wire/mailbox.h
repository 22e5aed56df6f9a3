/* SPDX-License-Identifier: MIT
 *
 * The mailbox: one segment per connection, made by the producer, mapped writable by both ends, never
 * handed to a second consumer. One writer per word; the exceptions (void, completion) write by
 * compare-exchange the value that the other writer would.
 */
#ifndef CUDALINK_SRC_WIRE_MAILBOX_H
#define CUDALINK_SRC_WIRE_MAILBOX_H

#include "cudalink/channels.h"
#include "wire/control.h"

#define WIRE_MAX_ENTRIES 17u /* leases: hold (16) + 1 */

struct wire_mailbox {
  uint64_t magic; /* WIRE_MAILBOX_MAGIC, constant */
  /* Consumer's CPU, for people: read when an observer asks, in a line that nobody waits for. */
  wire_word received; /* frames taken */
  wire_word missed;   /* frames that it never got */
  wire_word latency;  /* ns from publish to acquire, of `measured` frames together */
  wire_word measured; /* frames */
  uint64_t reserved0[3];

  /* Consumer's CPU. */
  _Alignas(64) wire_word want[WIRE_MAX_ENTRIES]; /* lease words; 0 = free */
  _Alignas(64) wire_word cursor;                 /* every frame: the next sequence it needs */
  wire_word taken;                               /* shared: last offer number confirmed */
  _Alignas(64) wire_half asleep;                 /* 1 while it sleeps on the bell */
  wire_half armed;                               /* arming number of its descriptor; 0 = off */
  wire_half streams;                             /* 1 after a release by a stream */
  /* Consumer's GPU (or CPU stream). */
  _Alignas(64) wire_word done[WIRE_MAX_ENTRIES]; /* = want[e]: the release has landed */
  /* Producer's GPU (or CPU stream). */
  _Alignas(64) wire_word mirror[WIRE_MAX_SLOTS]; /* as ready, for stream waits of this consumer */
  /* Producer's CPU. */
  _Alignas(64) wire_word verdict; /* WIRE_VERDICT_* */
  wire_word joined;               /* the first sequence that this consumer may need; 0 = not yet
                                     known, blocks all reuse. Only grows: raising it takes a place away */
  wire_word mirrored_from;        /* first sequence whose mirror is written; 0 = none */
  wire_word offer;                /* shared: wire_offer_word */
  uint64_t reserved1[4];

  /* Consumer's CPU, for people, as the first line. Behind what older libraries know of the page. */
  _Alignas(64) wire_word latencies[CUDALINK_LATENCY_BUCKETS]; /* of `measured` frames */
};

#define WIRE_MAILBOX_MAGIC UINT64_C(0x314c49414d4b4c21)
#define WIRE_VERDICT_EVICTED 1u /* the producer no longer respects leases of this mailbox */

_Static_assert(offsetof(struct wire_mailbox, received) == 8, "layout");
_Static_assert(offsetof(struct wire_mailbox, want) == 64, "layout");
_Static_assert(offsetof(struct wire_mailbox, cursor) == 256, "layout");
_Static_assert(offsetof(struct wire_mailbox, taken) == 264, "layout");
_Static_assert(offsetof(struct wire_mailbox, asleep) == 320, "layout");
_Static_assert(offsetof(struct wire_mailbox, armed) == 324, "layout");
_Static_assert(offsetof(struct wire_mailbox, streams) == 328, "layout");
_Static_assert(offsetof(struct wire_mailbox, done) == 384, "layout");
_Static_assert(offsetof(struct wire_mailbox, mirror) == 576, "layout");
_Static_assert(offsetof(struct wire_mailbox, verdict) == 1088, "layout");
_Static_assert(offsetof(struct wire_mailbox, latencies) == 1152, "layout");
_Static_assert(sizeof(struct wire_mailbox) == 1920, "layout");
_Static_assert(sizeof(struct wire_mailbox) <= 4096, "whole in the page that every mailbox has");

/* Where a latency is counted: the last bucket that does not begin behind it. */
static inline uint32_t wire_latency_bucket(uint64_t ns) {
  if (ns < 1024) return 0;
  uint32_t doublings = 63u - (uint32_t)__builtin_clzll(ns); /* 10 or more */
  uint32_t bucket = 1 + (doublings - 10) * 4 + (uint32_t)(ns >> (doublings - 2) & 3u);
  return bucket < CUDALINK_LATENCY_BUCKETS ? bucket : CUDALINK_LATENCY_BUCKETS - 1;
}

/* A lease word is ticket:34 | generation:24 | slot:6, never 0: tickets start at 1. */
#define WIRE_GENERATION_MASK UINT64_C(0xffffff)
#define WIRE_TICKET_MASK UINT64_C(0x3ffffffff)
static inline uint64_t wire_lease_word(uint64_t ticket, uint64_t generation, uint32_t slot) {
  return (ticket & WIRE_TICKET_MASK) << 30 | (generation & WIRE_GENERATION_MASK) << 6 |
         (slot & 63u);
}
static inline uint64_t wire_lease_ticket(uint64_t word) { return word >> 30; }
static inline uint64_t wire_lease_generation(uint64_t word) {
  return word >> 6 & WIRE_GENERATION_MASK;
}
static inline uint32_t wire_lease_slot(uint64_t word) { return (uint32_t)(word & 63u); }

/* An offer word is number:33 | redelivered:1 | generation:24 | slot:6; 0 = nothing offered yet. */
static inline uint64_t wire_offer_word(uint64_t number, int redelivered, uint64_t generation,
                                       uint32_t slot) {
  return number << 31 | (uint64_t)(redelivered ? 1u : 0u) << 30 |
         (generation & WIRE_GENERATION_MASK) << 6 | (slot & 63u);
}
static inline uint64_t wire_offer_number(uint64_t word) { return word >> 31; }
static inline int wire_offer_redelivered(uint64_t word) { return (int)(word >> 30 & 1u); }
static inline uint64_t wire_offer_generation(uint64_t word) {
  return word >> 6 & WIRE_GENERATION_MASK;
}
static inline uint32_t wire_offer_slot(uint64_t word) { return (uint32_t)(word & 63u); }

#endif
