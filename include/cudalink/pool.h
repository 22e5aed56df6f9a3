/* SPDX-License-Identifier: MIT
 *
 * cudalink/pool.h - memory that a channel can publish where it lies.
 *
 * A slot is memory of the channel's, and send copies into it. A pool turns that round: blocks of GPU
 * memory of any size, which the program fills as it likes (its tensors lie in them), and frames that are
 * published where they are, with no copy. The two functions that make and free blocks are those that
 * torch's CUDAPluggableAllocator asks for (docs/torch.md); C programs call them as they would cuMemAlloc.
 *
 * A frame of a pool promises less than one in a slot: the library can't keep its owner from writing to
 * it. It is flagged CUDALINK_FRAME_SHARED, and is whole as long as the producer writes to it no more
 * until `drop` is called. Consumers map the whole block, read-only: what else is in it they can read.
 */
#ifndef CUDALINK_POOL_H
#define CUDALINK_POOL_H

#include "cudalink/exporter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a block of at least `bytes` bytes on the GPU of that ordinal, as this process counts (not
 * CUDALINK_DEVICE), of kind vmm. `stream` is not looked at. The address can be given to every CUDA call.
 * Blocks for the driver's calls, and the first time for finding out about the GPU. Any thread. Errors:
 * NULL, and cudalink_last_error says why: NO_SPACE, UNSUPPORTED, GPU, INVALID_ARGUMENT, FORKED. */
CUDALINK_API void *cudalink_pool_alloc(size_t bytes, int device, void *stream);

/* Frees a block. Blocks until what is queued on `stream` (a CUstream; NULL = the legacy default stream) is
 * done; work of other streams that uses the block must be done before, as for cuMemUnmap. The memory goes
 * once no frame that lies in it is held any more (there is none if every `drop` was waited for) and
 * consumers have unmapped it, which they are told to. `bytes` and `device` are not looked at. NULL is
 * allowed; an address that is no block's is ignored. Any thread; never fails. */
CUDALINK_API void cudalink_pool_free(void *block, size_t bytes, int device, void *stream);

/* Sends a frame without a copy if `data` lies in a block of a pool, and with one if not, or if the channel
 * can't carry it. As cudalink_exporter_send otherwise.
 *
 * *shared = 1: published where it lies; its pixels are complete once the work queued on `stream` so far is
 * done. The memory must not be written to, or freed, until drop(owner) is called, once: when the slot that
 * the frame took is needed for another one, and so behind the last consumer's last release, by a begin or send
 * that is about to return; for memory from before a growth, and after close, when the last consumer has let
 * go, on a thread of the library's. `drop` may make CUDA calls, block, and call the library; but where
 * it is called by a begin, the frame is begun already, and another one can't be. So a channel keeps as many frames
 * as it has slots, and for a while those of an older generation: who fills a fixed set of buffers
 * needs max_slots + 1 of them, and opens with slots = max_slots.
 *
 * *shared = 0: it was copied as by cudalink_exporter_send, `owner` is still the caller's, and drop is not
 * called. It is so when `data` lies in no block; and, counted as share_copies with a share_reason in
 * cudalink_exporter_statistics, when the channel is not of kind vmm, while an isolated
 * consumer or one of a library without pools is connected, when a consumer waits for this very frame in its
 * slot (cudalink_importer_wait_next), and when frames lie in 64 blocks already, or a
 * stopped consumer has not been told yet that others of these have gone. The old wire beside the
 * channel gets a copy out of the block.
 *
 * The frame takes a slot for its lease words as every frame does; the slot need not be large enough, so
 * a channel that only shares may be opened with slot_bytes = 1. Errors: as cudalink_exporter_send; INVALID_ARGUMENT
 * also for a block of another GPU. `owner` is then the caller's, unless *shared = 1: published, but export_sync
 * failed. */
CUDALINK_API int cudalink_exporter_send_shared(cudalink_exporter exporter,
                                               const cudalink_description *description,
                                               const void *data, const void *user,
                                               cudalink_stream stream, int64_t timeout, void *owner,
                                               void (*drop)(void *owner), int *shared);

#ifdef __cplusplus
}
#endif
#endif
