/* SPDX-License-Identifier: MIT
 *
 * Memory of slots that somebody still looks at (cudalink_slot_hold). The reaper asks before it unmaps:
 * what is kept is taken over, and comes back to the reaper with its last hold.
 */
#ifndef CUDALINK_SRC_LINK_KEEP_H
#define CUDALINK_SRC_LINK_KEEP_H

#include "gpu/gpu.h"

/* True: kept, and taken over. */
bool keep_block(struct gpu_block *block);
bool keep_segment(struct os_segment *segment);
/* True: memory of this device is kept; it will be closed behind that. */
bool keep_device(struct gpu_device *device);

#endif
