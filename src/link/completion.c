/* SPDX-License-Identifier: MIT
 *
 * Waits that were left to a stream. A stream waits only on a word that this process can write itself
 * (mirror, in the mailbox), so that no wait is for ever: when the producer can complete nothing any
 * more (it died, or took the frames back), or the limit has passed, the service thread stores exactly
 * the sequence waited for and the frame counts as LOST.
 * Exactly: stream waits compare cyclically, a larger value could let a later wait through.
 * An end that is closed in order is neither: the other one's GPU goes on with what is queued. So the
 * attachment, its timer and its socket stay until the last wait is over, whoever closed
 * (attachment.c, wind_up; the producer's half: exporter.c, close_fire).
 * Model: tests/model/ready.pml.
 */
#include "link/importer.h"

#define LOOK_STEP 10000000 /* ns between two looks at a dead producer's words */
#define IDLE_LOOKS 100     /* so many in vain: the timer stops, and the next wait starts it */

bool link_can_wait(const struct link_attachment *attachment, uint64_t sequence) {
  /* acquire: pairs with the producer's store, made once it has queued the first mirror. */
  uint64_t from = atomic_load_explicit(&attachment->mailbox->mirrored_from, memory_order_acquire);
  return from && from <= sequence;
}

int link_wait_queue(struct link_attachment *attachment, cudalink_stream stream, uint32_t slot,
                    uint64_t sequence) {
  struct link_importer *importer = attachment->importer;
  struct gpu_device *device = importer->device;
  int64_t limit = importer->spec.gpu_wait_limit;
  int status = link_attachment_register(attachment, device);
  if (status < 0) return status;
  struct link_wait before =
      attachment->waits[slot]; /* another stream may wait for this frame too */
  if (before.sequence != sequence)
    attachment->waits[slot] = (struct link_wait){sequence, os_deadline(limit)};
  /* Noted before it is queued, under the mutex under which `over` is set: nobody is forgotten. */
  status =
      device->operations->stream_wait(device, stream, &attachment->mailbox->mirror[slot], sequence);
  if (status < 0) {
    attachment->waits[slot] = before;
    return status;
  }
  if (!attachment->waited) service_post(&attachment->work); /* starts the timer */
  attachment->waited = true;
  attachment->idle_looks = 0;
  return CUDALINK_OK;
}

static bool landed(const struct link_attachment *attachment, uint32_t slot) {
  uint64_t mirror = atomic_load_explicit(&attachment->mailbox->mirror[slot], memory_order_acquire);
  return (int64_t)(mirror - attachment->waits[slot].sequence) >= 0;
}

static void mark_lost(struct link_attachment *attachment, uint32_t slot, uint64_t sequence) {
  for (uint32_t e = 0; e < attachment->entry_count; e++) {
    struct link_entry *entry = &attachment->entries[e];
    if (!entry->word || entry->slot != slot || entry->sequence != sequence) continue;
    if (!(entry->flags & CUDALINK_FRAME_LOST)) attachment->importer->statistics.lost++;
    entry->flags |= CUDALINK_FRAME_LOST;
  }
}

static void complete(struct link_attachment *attachment, uint32_t slot) {
  uint64_t sequence = attachment->waits[slot].sequence;
  wire_word *mirror = &attachment->mailbox->mirror[slot];
  uint64_t older = atomic_load_explicit(mirror, memory_order_relaxed);
  mark_lost(attachment, slot, sequence);
  while ((int64_t)(older - sequence) < 0 &&
         !atomic_compare_exchange_weak(mirror, &older, sequence)) {
  }
}

bool link_wait_left(const struct link_attachment *attachment) {
  if (attachment->orphaned)
    return false; /* all are ended; the timer sees to it that they stay so */
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++)
    if (attachment->waits[s].sequence && !landed(attachment, s)) return true;
  return false;
}

void link_wait_complete(struct link_attachment *attachment) {
  attachment->orphaned = true;
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++)
    if (attachment->waits[s].sequence && !landed(attachment, s)) complete(attachment, s);
}

/* Ends waits whose limit has passed; forgets those that have landed. True: some are left. */
static bool look(struct link_attachment *attachment, uint64_t now) {
  bool left = false;
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++) {
    struct link_wait *wait = &attachment->waits[s];
    if (!wait->sequence) continue;
    if (!landed(attachment, s)) {
      if (attachment->orphaned || now >= wait->deadline) complete(attachment, s);
      left = true;
    } else if (!attachment->orphaned) {
      wait->sequence = 0;
    }
  }
  return left || (attachment->orphaned && attachment->held);
}

static void wait_fire(struct service_timer *timer) {
  struct link_attachment *attachment =
      (struct link_attachment *)(void *)((char *)timer -
                                         offsetof(struct link_attachment, wait_timer));
  struct link_importer *importer = attachment->importer;
  pthread_mutex_lock(&importer->object.mutex);
  bool left = look(attachment, os_now());
  /* Waits mostly come again: to start the timer for each would be a system call per frame. */
  if (!left && (attachment->over || ++attachment->idle_looks >= IDLE_LOOKS))
    attachment->waited = false;
  int64_t limit = importer->spec.gpu_wait_limit;
  uint64_t step =
      attachment->orphaned ? LOOK_STEP : (uint64_t)(limit < 80000000 ? limit / 8 : LOOK_STEP);
  if (attachment->waited)
    service_timer_set(timer, wait_fire, os_now() + (step ? step : 1));
  else
    link_attachment_settle(attachment); /* a closed end may have stayed only for this */
  pthread_mutex_unlock(&importer->object.mutex);
}

void link_wait_start(struct link_attachment *attachment) {
  if (!attachment->wait_timer.linked)
    service_timer_set(&attachment->wait_timer, wait_fire, os_deadline(LOOK_STEP));
}
