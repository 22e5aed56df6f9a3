/* SPDX-License-Identifier: MIT
 *
 * Owning a slot: the producer's half of the lease protocol.
 *
 * Invariant: a slot is written to only while st[slot] = 0 and, after that store, no mailbox was seen
 * to want it. Why no lease slips through: the consumer stores want, then loads st; the producer
 * stores st, then loads want; all four seq_cst, so one of the two sees the other.
 * Models: tests/model/lease.pml, ready.pml, lossless.pml.
 */
#include "link/exporter.h"
#include "link/trace.h"

bool link_slot_landed(const struct link_exporter *exporter, uint32_t slot) {
  /* acquire: pairs with the stream's (or publish's) store of ready, the last of its batch. */
  return atomic_load_explicit(&exporter->control->ready[slot].word, memory_order_acquire) ==
         exporter->queued_in[slot];
}

uint64_t link_position(const struct link_member *member) {
  /* acquire: pairs with the consumer's seq_cst store of cursor, made after its lease was confirmed:
   * who sees the cursor sees the lease. */
  uint64_t cursor = atomic_load_explicit(&member->mailbox->cursor, memory_order_acquire);
  uint64_t joined = atomic_load_explicit(&member->mailbox->joined, memory_order_relaxed);
  return cursor > joined ? cursor : joined;
}

/* The lease in that entry, if it still counts; else 0. */
static inline uint64_t held(const struct wire_mailbox *mailbox, uint32_t entry) {
  uint64_t want = atomic_load(&mailbox->want[entry]); /* seq_cst: see take, and wanted_slots */
  if (!want) return 0;
  /* acquire: pairs with the release (or the stream's write) of done, behind the last read. */
  if (atomic_load_explicit(&mailbox->done[entry], memory_order_acquire) == want) return 0;
  return want;
}

uint64_t link_entry_held(const struct link_member *member, uint32_t entry) {
  return held(member->mailbox, entry);
}

/* Most members hold nothing, and may hold one: both entries at once, and no look at the member's record. A
 * recording has each of its own. */
static inline bool is_idle(const struct link_exporter *exporter, uint32_t m) {
#ifdef CUDALINK_TRACE
  (void)exporter, (void)m;
  return false;
#else
  const struct wire_mailbox *mailbox = exporter->mailboxes[m];
  uint64_t first = atomic_load(&mailbox->want[0]);
  uint64_t second = atomic_load(&mailbox->want[1]);
  return !(first | second) && !(exporter->many_mask >> m & 1);
#endif
}

static inline bool is_in(uint64_t want, const struct link_generation *generation) {
  return want && wire_lease_generation(want) == (generation->number & WIRE_GENERATION_MASK);
}

/* The slots of that generation that somebody wants, as a mask; those found so far, once one of `enough` is
 * among them.
 * seq_cst: pairs with a lease behind the mark, and, where a begin that waits has set its bit before, with a release
 * that is followed by a look at that bit. */
static uint64_t wanted_slots(const struct link_exporter *exporter,
                             const struct link_generation *generation, uint64_t enough) {
  uint64_t wanted = 0;
  LINK_EACH_MEMBER(exporter, m) {
    if (is_idle(exporter, m)) continue;
    const struct link_member *member = &exporter->members[m];
    for (uint32_t e = 0; e < member->entries; e++) {
      uint64_t want = held(member->mailbox, e);
      TRACE(SCAN, m, e, enough ? (uint32_t)__builtin_ctzll(enough) : WIRE_MAX_SLOTS, want);
      if (is_in(want, generation)) wanted |= UINT64_C(1) << wire_lease_slot(want);
      if (wanted & enough) return wanted;
    }
  }
  return wanted;
}

bool link_slot_wanted(const struct link_exporter *exporter,
                      const struct link_generation *generation, uint32_t slot) {
  uint64_t one = UINT64_C(1) << slot;
  return (wanted_slots(exporter, generation, one) & one) != 0;
}

/* The slot of the newest finished frame, which consumers of ready_only may be about to take. */
static int32_t newest_finished(const struct link_exporter *exporter) {
  int32_t slot = -1;
  uint64_t newest = 0;
  for (uint32_t s = 0; s < exporter->current->geometry.slots; s++) {
    uint64_t frame = exporter->current->frame_in[s];
    if (frame <= newest || !link_slot_landed(exporter, s)) continue;
    newest = frame;
    slot = (int32_t)s;
  }
  return slot;
}

static bool any_ready_only(const struct link_exporter *exporter) {
  return exporter->ready_only_mask != 0;
}

/* The first sequence that some every-frame consumer still needs. */
static uint64_t least_position(const struct link_exporter *exporter) {
  uint64_t least = UINT64_MAX;
  LINK_EACH_OF(exporter->every_mask, m) {
    const struct link_member *member = &exporter->members[m];
    if (member->state != LINK_MEMBER_JOINED) continue;
    if (member->wants_isolated && !member->isolated.generation)
      continue; /* nothing is copied yet */
    uint64_t position = link_position(member);
    if (position < least) least = position;
  }
  return least;
}

/* Every-frame consumers that have all frames there are still stand before numbers that became void;
 * when the index forgets these, they must not look for them. */
static void pass_over_voids(struct link_exporter *exporter, uint64_t sequence) {
  LINK_EACH_OF(exporter->every_mask, m) {
    const struct link_member *member = &exporter->members[m];
    if (member->state != LINK_MEMBER_JOINED) continue;
    if (sequence - link_position(member) < WIRE_INDEX_SIZE) continue;
    atomic_store(&member->mailbox->joined, sequence); /* seq_cst: as in link_member_join */
  }
}

/* Mark, scan, and keep it or take the mark back. */
static bool take(struct link_exporter *exporter, uint32_t slot) {
  wire_word *st = &exporter->control->st[slot].word;
  uint64_t old = atomic_load_explicit(st, memory_order_relaxed);
  TRACE_BEGIN();
  /* seq_cst: pairs with the consumer's load of st after its store of want (link_lease_take). */
  atomic_store(st, 0);
  TRACE_END(MARK, slot, old, 0, 0);
  if (!link_slot_wanted(exporter, exporter->current, slot)) return true;
  TRACE_BEGIN();
  /* release: the frame is as whole as it was; whoever sees `old` again sees its pixels. */
  atomic_store_explicit(st, old, memory_order_release);
  TRACE_END(UNMARK, slot, old, 0, 0);
  return false;
}

int32_t link_own_slot(struct link_exporter *exporter, uint64_t sequence, enum link_blocked *why) {
  struct link_generation *current = exporter->current;
  uint64_t needed = least_position(exporter);
  int32_t finished = any_ready_only(exporter) ? newest_finished(exporter) : -1;
  uint32_t start = (uint32_t)(exporter->newest_slot + 1); /* at most `slots` */
  uint32_t slots = current->geometry.slots, in_flight = 0, slot = start < slots ? start : 0;
  uint64_t wanted = 0;
  bool looked = false;
  *why = LINK_BLOCKED_LEASE;
  /* The index remembers 64 numbers: an older frame must not be needed any more. */
  if (needed > exporter->head_sequence) {
    pass_over_voids(exporter, sequence);
  } else if (sequence - needed >= WIRE_INDEX_SIZE) {
    *why = LINK_BLOCKED_PLACE;
    return -1;
  }
  link_group_settle(exporter);
  for (uint32_t i = 0; i < slots; i++, slot = slot + 1 < slots ? slot + 1 : 0) {
    if ((int32_t)slot == exporter->newest_slot || (int32_t)slot == finished) continue;
    if (!link_slot_landed(exporter, slot)) {
      in_flight++;
      *why = LINK_BLOCKED_QUEUE;
      continue;
    }
    if (current->frame_in[slot] && current->frame_in[slot] >= needed) {
      *why = LINK_BLOCKED_PLACE;
      continue;
    }
    if (current->group_hold[slot]) continue;
    if (!looked) wanted = wanted_slots(exporter, current, 0);
    looked = true;
    if (wanted >> slot & 1) continue; /* so marks are rare */
    if (!take(exporter, slot)) continue;
    current->frame_in[slot] = 0;
    if (current->shared_slots >> slot & 1) link_share_leave_slot(exporter, current, slot);
    *why = LINK_FREE;
    return (int32_t)slot;
  }
  if (in_flight > exporter->in_flight_seen) exporter->in_flight_seen = in_flight;
  return -1;
}

bool link_drained(struct link_exporter *exporter) {
  link_group_settle(exporter);
  return link_group_idle(exporter) && least_position(exporter) > exporter->head_sequence;
}

/* A lease that was not there at the last look was taken since then, and not before its frame. */
static uint64_t held_since(const struct link_exporter *exporter, uint64_t want) {
  const struct link_generation *generation =
      link_generation_find(exporter, wire_lease_generation(want));
  if (!generation || wire_lease_slot(want) >= generation->geometry.slots) return exporter->noted_at;
  const struct wire_header *header = link_metadata(generation, wire_lease_slot(want));
  return header->timestamp > exporter->noted_at ? header->timestamp : exporter->noted_at;
}

void link_note_holders(struct link_exporter *exporter, uint64_t now) {
  LINK_EACH_OF(exporter->present_mask, m) {
    struct link_member *member = &exporter->members[m];
    for (uint32_t e = 0; e < member->entries; e++) {
      uint64_t want = link_entry_held(member, e);
      if (want == member->seen_word[e]) continue;
      member->seen_word[e] = want;
      member->seen_at[e] = now;
      member->held_since[e] = held_since(exporter, want);
    }
    if (member->policy != CUDALINK_POLICY_EVERY) continue;
    uint64_t position = link_position(member);
    if (position == member->position_seen) continue;
    member->position_seen = position;
    member->position_at = now;
  }
  exporter->noted_at = now;
}
