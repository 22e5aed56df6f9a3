/* SPDX-License-Identifier: MIT
 *
 * Frames that are published where they lie, in a block of a pool, as their exporter sees them.
 *
 * Such a frame is a slot like any other: st, leases, ready. Only its pixels are elsewhere, which the
 * slot's header says. It ends when its slot is owned for another frame: what was marked and scanned for
 * the slot's own bytes is marked and scanned for these. Then their owner is told.
 * Model: tests/model/pool.pml.
 */
#ifndef CUDALINK_SRC_LINK_SHARE_H
#define CUDALINK_SRC_LINK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define LINK_MAX_POOL_BLOCKS 64 /* that one channel's consumers are told of at a time */

struct link_exporter;
struct link_generation;
struct link_member;
struct pool_block;

/* Where one frame lies, and who is to be told of its end. */
struct link_share {
  struct link_share *next;
  struct pool_block *block; /* with a use */
  uint64_t offset;
  void *owner;
  void (*drop)(void *owner);
};

/* A block that consumers are told of. */
struct link_known {
  struct pool_block *block; /* with a use; NULL = none */
  uint64_t told;            /* bit m: member m was */
  uint32_t frames;          /* that lie in it and have not ended */
  bool leaving;             /* to be told that it is gone */
};

/* Under the mutex. INVALID_ARGUMENT: the block is on another GPU than the channel. */
int link_share_check(const struct link_exporter *exporter, const struct pool_block *block);
/* Under the mutex. Why frames can't be published where they lie now; NULL: they can. */
const char *link_share_refused(const struct link_exporter *exporter);
/* With the mutex, which it lets go of where somebody does not know its block: told of before a frame is there, it
 * can be mapped whatever becomes of this process. Before admit. */
void link_share_prepare(struct link_exporter *exporter, const struct link_share *share);
/* Makes sure that consumers are told of its block. False: no more are told of. */
bool link_share_admit(struct link_exporter *exporter, const struct link_share *share);
/* The begun frame lies there. Behind admit. */
void link_share_begin(struct link_exporter *exporter, struct link_generation *generation,
                      uint32_t slot, struct link_share *share);
/* Nobody reads it any more. Its owner is told by whoever comes out of the mutex, */
void link_share_end(struct link_exporter *exporter, struct link_share *share);
void link_share_leave_slot(struct link_exporter *exporter, struct link_generation *generation,
                           uint32_t slot);
/* as here, on a thread of the program; unlocks the exporter; */
void link_share_unlock(struct link_exporter *exporter);
/* or by the reaper. */
void link_share_hand_over(struct link_exporter *exporter);
/* Is a frame of that generation, which takes no new leases, held where it lies? */
bool link_share_held(const struct link_exporter *exporter,
                     const struct link_generation *generation);
/* A member's place is free again. */
void link_share_forget(struct link_exporter *exporter, uint32_t member);
/* Service thread: tells members of blocks that came and went. */
void link_share_tell(struct link_exporter *exporter);
/* Of an exporter that has ended. */
void link_share_close(struct link_exporter *exporter);

/* No lock. Its owner has freed the block: consumers are to unmap it. */
void link_share_freed(const struct pool_block *block);

#endif
