/* SPDX-License-Identifier: MIT
 *
 * The slots of the old wire: memory of kind ipc with one interprocess event each, ours or a peer's.
 *
 * A driver refuses to open a handle in the process that made it. So a process's own rings are listed,
 * and its importers get the ring itself: a ring is counted, and goes with its last user.
 */
#ifndef CUDALINK_SRC_LINK_CIPD_RING_H
#define CUDALINK_SRC_LINK_CIPD_RING_H

#include "gpu/gpu.h"
#include "wire/cipd.h"

/* A GPU as the rings on it share it. */
struct link_ring_device {
  struct gpu_device *gpu;
  _Atomic uint32_t references;
};
/* With one reference. `device` as in the public specs. UNSUPPORTED without a GPU. */
int link_ring_device_open(int32_t device, bool imports, struct link_ring_device **opened);
void link_ring_device_drop(struct link_ring_device *device); /* the reaper closes it */

struct link_ring_slot {
  struct gpu_block block;
  struct gpu_event event; /* none: complete when it is published */
};

struct link_ring {
  struct link_ring_device *device;
  _Atomic uint32_t references;
  uint32_t slots;
  struct link_ring *next; /* of the process's own rings */
  struct link_ring *retired_next;
  uint64_t due; /* retired: when it may go */
  struct link_ring_slot slot[];
};

/* Makes slots of at least `bytes` with their events. */
int link_ring_make(struct link_ring_device *device, uint32_t slots, uint64_t bytes,
                   struct link_ring **made);
void link_ring_handles(const struct link_ring *ring, struct wire_cipd_handles *handles);
/* Opens those of a session, and has the driver confirm their sizes. */
int link_ring_open(struct link_ring_device *device, const struct wire_cipd_session *session,
                   struct link_ring **opened);
/* Lets go of it; the reaper frees. */
void link_ring_drop(struct link_ring *ring);
/* The same for a producer's ring that readers may still be using: nobody tells when they have let go,
 * so it stays for LINK_RING_GRACE. */
#define LINK_RING_GRACE 500000000 /* ns; old producers wait 100 ms */
void link_ring_retire(struct link_ring *ring);

#endif
