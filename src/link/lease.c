/* SPDX-License-Identifier: MIT
 *
 * Leases: the consumer's half of the protocol (the other half: slot.c).
 *
 * An entry is used again only when its last release has landed, and no ticket repeats, so no release
 * can undo or overtake another lease. Model: tests/model/lease.pml.
 */
#include "link/importer.h"
#include "link/trace.h"

void link_tell_producer(struct link_attachment *attachment) {
  /* seq_cst, behind the seq_cst store that the producer may wait for: pairs with its waiting := 1
   * before its last look. */
  if (!atomic_load(&attachment->control->waiting)) return;
  attachment->tell_released = true;
  service_post(&attachment->work);
}

static bool entry_is_free(const struct link_attachment *attachment, uint32_t entry) {
  if (attachment->entries[entry].word) return false;
  uint64_t want = atomic_load_explicit(&attachment->mailbox->want[entry], memory_order_relaxed);
  if (!want) return true;
  /* acquire: pairs with the stream's write of done; its reads are over. */
  return atomic_load_explicit(&attachment->mailbox->done[entry], memory_order_acquire) == want;
}

static int32_t find_free(const struct link_attachment *attachment) {
  for (uint32_t e = 0; e < attachment->entry_count; e++)
    if (entry_is_free(attachment, e)) return (int32_t)e;
  return -1;
}

int32_t link_entry_free(const struct link_attachment *attachment) {
  return attachment->held < attachment->hold ? find_free(attachment) : -1;
}

/* Is the frame still there, now that the producer can see that it is wanted? All seq_cst: each pairs
 * with a seq_cst store of the producer that comes before its scan of want. */
static bool still_there(const struct link_attachment *attachment, const struct link_pick *pick) {
  const struct wire_control *control = attachment->control;
  if (atomic_load(&attachment->mailbox->verdict) & WIRE_VERDICT_EVICTED) return false;
  if (pick->offer) return atomic_load(&attachment->mailbox->offer) == pick->offer;
  if (pick->announced && atomic_load(&control->next) != pick->announced) return false;
  if (!pick->announced && atomic_load(&control->st[pick->slot].word) != pick->sequence)
    return false;
  return atomic_load(&control->gen) == pick->generation;
}

bool link_lease_take(struct link_attachment *attachment, uint32_t e, const struct link_pick *pick) {
  struct link_mapping *mapping = link_mapping_find(attachment, pick->generation);
  if (!mapping || pick->slot >= mapping->geometry.slots) return false;
  wire_word *want = &attachment->mailbox->want[e];
  if ((++attachment->ticket & WIRE_TICKET_MASK) == 0) attachment->ticket++;
  uint64_t word = wire_lease_word(attachment->ticket, pick->generation, pick->slot);
  TRACE_BEGIN();
  /* seq_cst: pairs with the producer's load of want behind its mark of st (slot.c, take). */
  atomic_store(want, word);
  bool there = still_there(attachment, pick);
  if (!there)
    atomic_store(want, 0); /* seq_cst: as in link_lease_release, a producer may have seen it */
  TRACE_END(TAKE, e, word, pick->sequence,
            (there ? 1u : 0u) | (pick->offer ? 2u : 0u) | (pick->announced ? 4u : 0u));
  if (!there) {
    link_tell_producer(attachment);
    return false;
  }
  struct link_entry *entry = &attachment->entries[e];
  *entry = (struct link_entry){.word = word,
                               .serial = entry->serial + 1,
                               .mapping = (uint32_t)(mapping - attachment->mappings),
                               .slot = pick->slot,
                               .sequence = pick->sequence,
                               .next = pick->announced != 0};
  attachment->held++;
  atomic_load(&attachment->importer)->held++;
  mapping->leases++;
  return true;
}

static void forget(struct link_attachment *attachment, uint32_t e) {
  struct link_entry *entry = &attachment->entries[e];
  attachment->mappings[entry->mapping].leases--;
  attachment->held--;
  atomic_load(&attachment->importer)->held--;
  entry->word = 0;
}

void link_lease_undo(struct link_attachment *attachment, uint32_t entry) {
  link_lease_release(attachment, entry, NULL, 0);
}

int link_lease_release(struct link_attachment *attachment, uint32_t e,
                       const cudalink_stream *streams, uint32_t count) {
  struct wire_mailbox *mailbox = attachment->mailbox;
  struct link_entry *entry = &attachment->entries[e];
  if (count == 0) {
    TRACE_BEGIN();
    /* seq_cst, then a look at waiting: pairs with the producer's waiting := 1 before its last look. */
    atomic_store(&mailbox->want[e], 0);
    TRACE_END(RELEASE, e, entry->word, 0, 0);
    forget(attachment, e);
    link_tell_producer(attachment);
    return CUDALINK_OK;
  }
  struct gpu_device *device = attachment->mappings[entry->mapping].block.device;
  int status = link_attachment_register(attachment, device);
  if (status < 0) return status;
  if (!attachment->streams) {
    attachment->streams = true;
    /* Before the first such release, so that a producer that waits knows that it must look. */
    atomic_store(&mailbox->streams, 1);
    link_tell_producer(attachment);
  }
  struct gpu_write write = {&mailbox->done[e], entry->word};
  TRACE_BEGIN();
  status = count == 1 ? device->operations->stream_write(device, streams[0], &write, 1)
                      : device->operations->streams_write(device, streams, count, &write);
  if (status < 0) return status;
  TRACE_END(RELEASE_STREAM, e, entry->word, 0, 0);
  forget(attachment, e);
  return CUDALINK_OK;
}
