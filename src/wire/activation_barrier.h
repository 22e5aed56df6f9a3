/* SPDX-License-Identifier: MIT
 *
 * The activation barrier of the old wire: one small segment for the whole machine, in which
 * TouchDesigner senders say that they are starting up. Python producers skip frames meanwhile.
 *
 * Anybody can write it, nobody owns it, and a holder may die. So a count that nobody has touched for
 * 5 s is not obeyed, and neither is one whose time lies ahead.
 */
#ifndef CUDALINK_SRC_WIRE_ACTIVATION_BARRIER_H
#define CUDALINK_SRC_WIRE_ACTIVATION_BARRIER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/control.h"

#define WIRE_BARRIER_NAME "cudalink_activation_barrier"
#define WIRE_BARRIER_MAGIC 0xcda1baaau
#define WIRE_BARRIER_VERSION 1u
#define WIRE_BARRIER_STALE_AFTER UINT64_C(5000000000) /* ns */
#define WIRE_BARRIER_FRAMES 30u                       /* published frames until a holder lets go */

struct wire_barrier {
  wire_half magic;
  wire_half version;
  wire_half active_count; /* senders that are starting up */
  wire_half reserved0;
  wire_word last_change; /* ns of the machine's monotonic clock */
  wire_half skips;       /* frames that were held back; information */
  wire_half last_writer; /* its pid; information */
  uint8_t reserved1[32];
};
_Static_assert(offsetof(struct wire_barrier, active_count) == 8, "layout");
_Static_assert(offsetof(struct wire_barrier, last_change) == 16, "layout");
_Static_assert(offsetof(struct wire_barrier, skips) == 24, "layout");
_Static_assert(offsetof(struct wire_barrier, last_writer) == 28, "layout");
_Static_assert(sizeof(struct wire_barrier) == 64, "layout");

/* Fills in a new segment, or does nothing when it is one already. PROTOCOL: too small, or something
 * else is in it. */
int wire_barrier_open(void *block, uint64_t mapped);

/* A sender begins (+1) or has ended (-1, never below 0) its start. */
void wire_barrier_hold(struct wire_barrier *barrier, uint64_t now, uint32_t pid);
void wire_barrier_release(struct wire_barrier *barrier, uint64_t now, uint32_t pid);

enum wire_barrier_answer {
  WIRE_BARRIER_GO,
  WIRE_BARRIER_SKIP, /* hold this frame back; counted in the segment */
  WIRE_BARRIER_STALE /* somebody holds, but too long ago: go */
};
enum wire_barrier_answer wire_barrier_ask(struct wire_barrier *barrier, uint64_t now,
                                          uint64_t limit);

#endif
