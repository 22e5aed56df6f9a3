/* SPDX-License-Identifier: MIT
 *
 * wait_next: a lease on the frame that the producer works on now. Model: tests/model/next.pml.
 */
#include "link/acquire.h"
#include <string.h>

#include "link/cipd/reader.h"
#include "wire/description.h"

static bool has_one(const struct link_attachment *attachment, uint64_t sequence) {
  for (uint32_t e = 0; e < attachment->entry_count; e++) {
    const struct link_entry *entry = &attachment->entries[e];
    if (entry->word && entry->next && entry->sequence >= sequence) return true;
  }
  return false;
}

static void fill(struct link_attachment *attachment, uint32_t e, cudalink_frame *frame) {
  struct link_entry *entry = &attachment->entries[e];
  const struct link_mapping *mapping = &attachment->mappings[entry->mapping];
  memset(frame, 0, offsetof(cudalink_frame, description));
  frame->lease = link_lease_handle(attachment, e);
  frame->sequence = entry->sequence;
  frame->session = attachment->session;
  frame->generation = (uint32_t)mapping->number;
  frame->slot = entry->slot;
  frame->flags = CUDALINK_FRAME_PENDING;
  frame->kind = mapping->message.kind;
  frame->writable = mapping->block.writable;
  frame->device = gpu_device_number(mapping->block.device);
  frame->data =
      (char *)mapping->block.address + (uint64_t)entry->slot * mapping->geometry.slot_stride;
  wire_description_copy(&frame->description, &attachment->description);
  entry->flags = CUDALINK_FRAME_PENDING;
}

/* The announced frame, leased and waited for by the stream. 1 = there is none. */
static int take_announced(struct acquire *acquire, struct link_attachment *attachment) {
  /* seq_cst: read again behind the store of want (lease.c, still_there). */
  uint64_t next = atomic_load(&attachment->control->next);
  struct link_pick pick = {.sequence = wire_frame_sequence(next),
                           .slot = wire_frame_slot(next),
                           .generation =
                               atomic_load(&attachment->control->gen) & WIRE_GENERATION_MASK,
                           .announced = next};
  if (!attachment->description.plane_count)
    return 1; /* no frame came yet: nothing says what it is */
  if (!next || has_one(attachment, pick.sequence) || !link_can_wait(attachment, pick.sequence))
    return 1;
  int32_t free_one = link_entry_free(attachment);
  acquire->full = free_one < 0;
  if (acquire->full) return 1;
  uint32_t e = (uint32_t)free_one;
  if (!link_lease_take(attachment, e, &pick)) return 1;
  int status = link_wait_queue(attachment, acquire->stream, pick.slot, pick.sequence);
  if (status < 0) {
    link_lease_undo(attachment, e);
    return status;
  }
  fill(attachment, e, acquire->frame);
  if (pick.sequence > attachment->last) attachment->last = pick.sequence;
  acquire->importer->statistics.received++;
  return CUDALINK_OK;
}

static int round_attached(struct acquire *acquire, struct link_attachment *attachment) {
  while (link_mapping_pending(attachment)) {
    int mapped = link_mapping_map(attachment); /* lets go of the mutex */
    if (mapped < 0 || attachment->over) return mapped < 0 ? mapped : 1;
  }
  if (acquire->importer->device && !acquire->importer->device->stream_waits)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "channel '%s': streams can't wait here (%s): use acquire",
                     acquire->importer->name, acquire->importer->device->words);
  uint32_t bell = atomic_load(&attachment->control->bell);
  link_set_asleep(attachment, true);
  int status = take_announced(acquire, attachment);
  if (status > 0) link_acquire_evicted(attachment);
  if (status > 0 && !attachment->over && !acquire->full && !link_acquire_late(acquire)) {
    uint64_t try_at = link_mapping_try_at(attachment);
    link_sleep_attached(acquire, attachment, bell,
                        try_at < acquire->deadline ? try_at : acquire->deadline);
  }
  link_set_asleep(attachment, false);
  return status;
}

static int wait_next_locked(struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  if (acquire->stream.kind == CUDALINK_STREAM_KIND_COMPLETE)
    return error_set(CUDALINK_ERROR_STREAM,
                     "channel '%s': wait_next needs the stream that will use the frame; COMPLETE "
                     "makes no sense for a frame that is not published yet",
                     importer->name);
  if (!importer->spec.gpu_wait)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': wait_next needs an importer that was opened with gpu_wait",
                     importer->name);
  if (importer->reader || importer->spec.wire == CUDALINK_WIRE_CIPD)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "channel '%s': on the old wire no producer announces a frame; use acquire",
                     importer->name);
  for (;;) {
    int left = link_acquire_left(acquire);
    if (left <= 0) return left;
    acquire->full = false;
    int interrupted = link_acquire_interrupted(acquire);
    if (interrupted) return interrupted;
    bool last = link_acquire_last(acquire);
    uint32_t seen = atomic_load(&importer->changed);
    struct link_attachment *attachment = importer->attachment;
    int status = attachment ? round_attached(acquire, attachment) : 1;
    if (status <= 0) return status;
    if (attachment && attachment->over) continue;
    if (last && acquire->full) return link_acquire_timed_out(acquire);
    if (last)
      return error_set(attachment && acquire->timeout <= 0 ? CUDALINK_ERROR_BUSY
                                                           : CUDALINK_ERROR_TIMEOUT,
                       "channel '%s': the producer has announced no frame", importer->name);
    if (link_acquire_late(acquire)) continue;
    if (!attachment)
      link_sleep_detached(acquire, seen, OS_FOREVER);
    else if (acquire->full)
      link_wait_for_hands(acquire, attachment, seen);
  }
}

int cudalink_importer_wait_next(cudalink_importer handle, cudalink_stream stream, int64_t timeout,
                                cudalink_frame *frame) {
  return link_acquire_run(handle, "cudalink_importer_wait_next", stream, timeout, frame,
                          wait_next_locked);
}
