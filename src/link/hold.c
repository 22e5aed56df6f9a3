/* SPDX-License-Identifier: MIT
 *
 * Holds: a frame with a count of holders, and the streams on which they use it.
 *
 * The last holder may give up anywhere, also inside a CUDA host function, where a CUDA call would be an
 * error and waiting for a mutex that another thread keeps during one could be for ever. So a drop that
 * has to queue something on streams, or finds the importer's mutex taken, leaves that to the reaper.
 */
#include "cudalink/hold.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/streams.h"
#include "link/importer.h"
#include "link/reaper.h"

#define CAPTURE_STEP 1000000 /* ns between two tries while a stream captures a graph */

struct cudalink_hold {
  _Atomic uint32_t references;
  pthread_mutex_t mutex; /* guards what follows, until the last reference is gone */
  struct gpu_streams used;
  struct gpu_streams written; /* those among them that wrote: readers come behind them */
  cudalink_frame frame; /* of its planes those that are there; whole all the same, to be copied */
};

/* The one that was discarded last is used again: malloc takes longer for so many bytes. */
static _Atomic(cudalink_hold *) spare;

static int is_null(const char *call) {
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: a NULL was given", call);
}

int cudalink_hold_take(cudalink_hold **hold, cudalink_frame *frame) {
  static const char call[] = "cudalink_hold_take";
  uint32_t flags;
  if (!hold || !frame) return is_null(call);
  int status = cudalink_frame_flags(frame, &flags); /* is it held? */
  if (status < 0) return status;
  /* acquire: pairs with the release in discard; what was done with it then is over. */
  cudalink_hold *made = atomic_exchange_explicit(&spare, NULL, memory_order_acquire);
  if (!made) made = malloc(sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "%s: no memory for a hold", call);
  atomic_init(&made->references, 1);
  pthread_mutex_init(&made->mutex, NULL);
  made->used.count = made->written.count = 0;
  memcpy(&made->frame, frame,
         offsetof(cudalink_frame, description.planes) +
             frame->description.plane_count * sizeof frame->description.planes[0]);
  frame->lease = 0;
  *hold = made;
  return CUDALINK_OK;
}

const cudalink_frame *cudalink_hold_frame(const cudalink_hold *hold) { return &hold->frame; }

cudalink_hold *cudalink_hold_retain(cudalink_hold *hold) {
  /* relaxed: the caller has a reference already, and passes the new one on by means of its own. */
  if (hold) atomic_fetch_add_explicit(&hold->references, 1, memory_order_relaxed);
  return hold;
}

static void discard(cudalink_hold *hold) {
  pthread_mutex_destroy(&hold->mutex);
  /* acq_rel: release for who takes it, acquire for the one that is freed here. */
  free(atomic_exchange_explicit(&spare, hold, memory_order_acq_rel));
}

/* On the reaper: may wait, may call CUDA. */
static void release_by_reaper(void *argument) {
  cudalink_hold *hold = argument;
  int status =
      link_frame_release(&hold->frame, "cudalink_hold_drop", hold->used.streams, hold->used.count);
  if (status == CUDALINK_ERROR_CAPTURING) {
    _Atomic uint32_t nobody = 0;
    os_sleep_on(&nobody, 0, os_deadline(CAPTURE_STEP), false);
    reaper_call(release_by_reaper, hold); /* behind what others want of the reaper */
    return;
  }
  if (hold->frame.lease)
    log_write(CUDALINK_LOG_WARNING,
              "frame %llu stays held, because its release could not be queued behind the streams "
              "that use it (was one of them destroyed before the frame was given back?): %s",
              (unsigned long long)hold->frame.sequence, cudalink_last_error());
  discard(hold);
}

static void release_last(cudalink_hold *hold) {
  if (os_forked() || (!hold->used.count && link_frame_try_release(&hold->frame)))
    discard(hold);
  else
    reaper_call(release_by_reaper, hold);
}

void cudalink_hold_drop(void *pointer) {
  cudalink_hold *hold = pointer;
  /* acq_rel: what each holder did with the frame comes before its decrement (release), and whoever
   * makes the last one (acquire) releases the frame behind all of it. */
  if (hold && atomic_fetch_sub_explicit(&hold->references, 1, memory_order_acq_rel) == 1)
    release_last(hold);
}

/* ---- streams ---------------------------------------------------------------------------------- */

/* `stream`, or the caller, waits for what others wrote. Streams only: what is queued on them later is waited
 * for, too. */
static int wait_for_writes(const cudalink_hold *hold, const struct gpu_streams *written,
                           cudalink_stream stream) {
  struct link_readable readable;
  if (!written->count) return CUDALINK_OK;
  int status = link_frame_readable(&hold->frame, "cudalink_hold_wait", false, &readable);
  if (status < 0) return status;
  const struct gpu_operations *operations = readable.device->operations;
  status = operations->stream_check(readable.device, stream);
  cudalink_stream named = gpu_streams_name(stream); /* two threads' own streams have one name */
  for (uint32_t i = 0; i < written->count && status == CUDALINK_OK; i++) {
    cudalink_stream earlier = written->streams[i];
    if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE)
      status = operations->stream_finish(readable.device, earlier);
    else if (!gpu_stream_is(earlier, named) || stream.kind == CUDALINK_STREAM_KIND_PER_THREAD)
      status = operations->stream_after(readable.device, stream, earlier);
  }
  return status;
}

static int prepare_read(const cudalink_hold *hold, cudalink_stream stream) {
  int status = cudalink_frame_wait(&hold->frame, stream);
  return status < 0 ? status : wait_for_writes(hold, &hold->written, stream);
}

static int prepare_use(const cudalink_hold *hold, cudalink_stream stream) {
  return link_frame_check(&hold->frame, stream);
}

/* Runs `prepare` with the stream and remembers it when that went well. */
static int remember(cudalink_hold *hold, cudalink_stream stream,
                    int (*prepare)(const cudalink_hold *hold, cudalink_stream stream),
                    bool writes) {
  pthread_mutex_lock(&hold->mutex);
  int status = gpu_streams_check(&hold->used, stream);
  if (status == CUDALINK_OK) status = prepare(hold, stream);
  if (status == CUDALINK_OK) gpu_streams_add(&hold->used, stream);
  if (status == CUDALINK_OK && writes) gpu_streams_add(&hold->written, stream);
  pthread_mutex_unlock(&hold->mutex);
  return status;
}

static struct gpu_streams written_of(cudalink_hold *hold) {
  pthread_mutex_lock(&hold->mutex);
  struct gpu_streams written = hold->written;
  pthread_mutex_unlock(&hold->mutex);
  return written;
}

/* Without the mutex: other threads have streams to name meanwhile. */
static int wait_by_cpu(cudalink_hold *hold) {
  int status = cudalink_frame_wait(&hold->frame, CUDALINK_STREAM_COMPLETE);
  if (status < 0) return status;
  struct gpu_streams written = written_of(hold);
  return wait_for_writes(hold, &written, CUDALINK_STREAM_COMPLETE);
}

int cudalink_hold_wait(cudalink_hold *hold, cudalink_stream stream) {
  if (!hold) return is_null("cudalink_hold_wait");
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return wait_by_cpu(hold);
  return remember(hold, stream, prepare_read, false);
}

int cudalink_hold_use(cudalink_hold *hold, cudalink_stream stream) {
  if (!hold) return is_null("cudalink_hold_use");
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return service_check_fork();
  return remember(hold, stream, prepare_use, false);
}

int cudalink_hold_written(cudalink_hold *hold, cudalink_stream stream) {
  static const char call[] = "cudalink_hold_written";
  if (!hold) return is_null(call);
  if (!hold->frame.writable)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "%s: frame %llu is mapped read-only, so nothing has written to it; write to a "
                     "copy of it, or open the importer with `writable` on a GPU",
                     call, (unsigned long long)hold->frame.sequence);
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT)
    return error_set(CUDALINK_ERROR_STREAM, "%s: name the stream that wrote, not an event", call);
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return service_check_fork();
  return remember(hold, stream, prepare_use, true);
}

/* The last reference, given back behind this stream and those that wrote. */
static int release_behind(cudalink_hold *hold, const char *call, cudalink_stream stream) {
  struct gpu_streams behind = {.count = 0};
  if (stream.kind != CUDALINK_STREAM_KIND_COMPLETE) behind = hold->written;
  if (!behind.count) return link_frame_release(&hold->frame, call, &stream, 1);
  int status = gpu_streams_check(&behind, stream);
  if (status < 0) return status;
  gpu_streams_add(&behind, stream);
  return link_frame_release(&hold->frame, call, behind.streams, behind.count);
}

int cudalink_hold_release(cudalink_hold *hold, cudalink_stream stream) {
  static const char call[] = "cudalink_hold_release";
  if (!hold) return is_null(call);
  /* acquire: pairs with the other holders' decrements. Nobody else can make a reference of none. */
  if (atomic_load_explicit(&hold->references, memory_order_acquire) != 1) {
    int status = cudalink_hold_use(hold, stream);
    if (status == CUDALINK_OK || status == CUDALINK_ERROR_FORKED) cudalink_hold_drop(hold);
    return status;
  }
  int status = release_behind(hold, call, stream);
  if (!hold->frame.lease || status == CUDALINK_ERROR_FORKED) discard(hold);
  return status;
}

/* Nobody else can name a stream meanwhile: that takes a reference. */
int cudalink_hold_to_host_begin(cudalink_hold *hold, void *out, uint64_t size,
                                cudalink_host_copy *copy) {
  static const char call[] = "cudalink_hold_to_host_begin";
  if (!hold || !copy) return is_null(call);
  *copy = (cudalink_host_copy){0};
  /* acquire: pairs with the other holders' decrements. */
  if (atomic_load_explicit(&hold->references, memory_order_acquire) != 1 || hold->used.count)
    return error_set(CUDALINK_ERROR_BUSY,
                     "%s: frame %llu has other users, which a release behind the copy would not "
                     "wait for; use cudalink_frame_to_host",
                     call, (unsigned long long)hold->frame.sequence);
  int status = cudalink_frame_to_host_begin(&hold->frame, out, size, copy);
  if (status == CUDALINK_OK) discard(hold);
  return status;
}
