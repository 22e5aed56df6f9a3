/* SPDX-License-Identifier: MIT
 *
 * cudalink/hold.h - a frame that several holders share.
 *
 * A cudalink_frame has one holder, who releases it. Where tensors of several libraries look at one
 * frame, nobody knows which of them is the last. A hold counts them: each has one reference, and the
 * frame goes back to its producer when the last one is given back.
 *
 * The last reference may be given back anywhere: on any thread, inside a CUDA host function, after the
 * importer was closed, after the producer died, while the process exits. cudalink_hold_drop makes no
 * CUDA call and waits for nothing that a CUDA call could hold up; where the release has to go behind
 * streams, the library's reaper thread queues it.
 *
 * What "behind" means: the hold remembers each stream that was made to wait for the frame's pixels
 * (cudalink_hold_wait) or was named as a user of them (cudalink_hold_use). A dropped frame is free once
 * everything that was queued on these streams up to the drop is done. So
 *
 *  - work on a stream that the hold was not told of is not waited for: name it, or end the work first;
 *  - a stream that the hold was told of must exist until the frame is given back;
 *  - the per-thread default stream can't be named from another thread; the legacy default stream,
 *    which comes after it, stands for it.
 *
 * After fork() a hold is dead in the child: drop does nothing, the rest answers FORKED.
 */
#ifndef CUDALINK_HOLD_H
#define CUDALINK_HOLD_H

#include "cudalink/exporter.h"
#include "cudalink/frame.h"
#include "cudalink/importer.h"
#include "cudalink/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudalink_hold cudalink_hold;

/* Streams that one hold can remember. */
#define CUDALINK_HOLD_STREAMS 8

/* Turns a held frame into a hold with one reference, the caller's. The lease moves: frame->lease
 * becomes 0, everything else in *frame stays readable as long as the hold lives. Never blocks. Errors:
 * INVALID_ARGUMENT (not held), NO_MEMORY; the frame is then still the caller's. */
CUDALINK_API int cudalink_hold_take(cudalink_hold **hold, cudalink_frame *frame);

/* The frame, as acquired. It may be asked (cudalink_frame_flags, cudalink_frame_wait) and read out, not
 * released. Valid while the caller has a reference. */
CUDALINK_API const cudalink_frame *cudalink_hold_frame(const cudalink_hold *hold);

/* One reference more; returns `hold`. Whoever calls has one. Any thread, no lock. */
CUDALINK_API cudalink_hold *cudalink_hold_retain(cudalink_hold *hold);

/* Gives one reference back. NULL is allowed. Never blocks and never fails: see above. Its signature is
 * that of the `drop` functions of cudalink/dlpack.h. */
CUDALINK_API void cudalink_hold_drop(void *hold);

/* Makes `stream` wait for the frame's pixels, and for what cudalink_hold_written named, without the CPU
 * waiting, and remembers it as a user of them. COMPLETE: the call itself waits. Errors: those of
 * cudalink_frame_wait; BUSY when CUDALINK_HOLD_STREAMS others are remembered already. */
CUDALINK_API int cudalink_hold_wait(cudalink_hold *hold, cudalink_stream stream);

/* Only remembers the stream: the frame's pixels are used there, in an order that the caller has seen
 * to. An event is remembered too, and must exist as long. COMPLETE remembers nothing; it is a cheap way to
 * ask whether the hold is dead. Errors: STREAM, BUSY, FORKED. */
CUDALINK_API int cudalink_hold_use(cudalink_hold *hold, cudalink_stream stream);

/* Says that work queued on `stream` so far writes to the frame. Later waits of this hold
 * (cudalink_hold_wait) come behind that stream, and so does the release, unless it says COMPLETE. What does
 * not ask the hold does not wait: before cudalink_frame_to_host say cudalink_hold_wait(hold, COMPLETE).
 * Consumers in other processes who hold the same frame are not ordered. COMPLETE: the writes are done;
 * nothing is remembered. Errors: as cudalink_hold_use; INVALID_ARGUMENT (mapped read-only), STREAM (an
 * event). */
CUDALINK_API int cudalink_hold_written(cudalink_hold *hold, cudalink_stream stream);

/* Gives one reference back and says after what. If it was the last one, the frame is released exactly
 * so (COMPLETE = nothing uses it any more; a stream or event = once it has come so far, and those that
 * wrote) and the other remembered streams do not count. If it was not the last one, the stream is remembered. Errors as
 * cudalink_frame_release; on STREAM, CAPTURING and BUSY the reference is still the caller's. */
CUDALINK_API int cudalink_hold_release(cudalink_hold *hold, cudalink_stream stream);

/* cudalink_frame_to_host_begin for the only reference, which is given back behind the copy; finish is the
 * same. Errors: as there, and BUSY when there are other references, or a stream was named; the reference is
 * then still the caller's. */
CUDALINK_API int cudalink_hold_to_host_begin(cudalink_hold *hold, void *out, uint64_t size,
                                             cudalink_host_copy *copy);

/* ---- slots ------------------------------------------------------------------------------------ */

/* Memory of a slot, kept where it is. An exporter unmaps its memory when it moves to a larger block and
 * when it is closed; a garbage-collected language can't be sure that nobody looks at a slot then. */
typedef struct cudalink_slot_hold cudalink_slot_hold;

/* Keeps the memory of a begun slot, its user data included, mapped until the hold is dropped, whatever
 * becomes of the frame and of the exporter. It says nothing about whose the memory is: behind publish
 * and abandon the slot is the consumers' and the next frame's, and what is written there is garbage to
 * them, but never a fault. close ends the channel as ever. Errors: INVALID_ARGUMENT (not begun),
 * CLOSED, NO_MEMORY, UNSUPPORTED (an exporter on the old wire alone). */
CUDALINK_API int cudalink_slot_hold_take(cudalink_slot_hold **hold, cudalink_exporter exporter,
                                         const cudalink_slot *slot);

/* One holder more; returns `hold`. */
CUDALINK_API cudalink_slot_hold *cudalink_slot_hold_retain(cudalink_slot_hold *hold);

/* One holder less. NULL is allowed. Any thread, makes no CUDA call; its signature is that of the `drop`
 * functions of cudalink/dlpack.h. */
CUDALINK_API void cudalink_slot_hold_drop(void *hold);

#ifdef __cplusplus
}
#endif
#endif
