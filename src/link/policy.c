/* SPDX-License-Identifier: MIT
 *
 * Which frame comes next, by policy. Everything read here comes from the producer and may be
 * anything: slots are masked, sequences only compared. What is chosen is leased and checked again.
 * Models: tests/model/lossless.pml, group.pml.
 */
#include "link/importer.h"

#define FETCH_BYTES 448 /* of a frame's description: the header and one plane */

static uint64_t load(const wire_word *word) {
  /* acquire: pairs with the producer's release stores in show() (publish.c). */
  return atomic_load_explicit(word, memory_order_acquire);
}

static bool look_up(const struct wire_control *control, uint64_t sequence, uint64_t *index) {
  *index = load(&control->index[sequence % WIRE_INDEX_SIZE]);
  return wire_index_sequence(*index) == sequence;
}

/* Frames between these two, void numbers not counted. */
static uint64_t count_between(const struct link_attachment *attachment, uint64_t last,
                              uint64_t sequence) {
  if (sequence <= last + 1) return 0;
  uint64_t missed = sequence - last - 1, index;
  for (uint64_t s = last + 1; s < sequence && sequence - s < WIRE_INDEX_SIZE; s++)
    if (look_up(attachment->control, s, &index) && wire_index_void(index)) missed--;
  return missed;
}

/* Frames between the last one got and this one. */
static uint64_t count_missed(const struct link_attachment *attachment, uint64_t sequence) {
  return attachment->last ? count_between(attachment, attachment->last, sequence) : 0;
}

static bool choose_latest(struct link_attachment *attachment, struct link_pick *pick) {
  uint64_t head = load(&attachment->control->head);
  pick->sequence = wire_frame_sequence(head);
  pick->slot = wire_frame_slot(head);
  if (!head || pick->sequence <= attachment->last) return false;
  pick->missed = count_missed(attachment, pick->sequence);
  return true;
}

static uint64_t oldest_indexed(uint64_t newest) {
  return newest > WIRE_INDEX_SIZE ? newest - WIRE_INDEX_SIZE + 1 : 1;
}

static bool is_there(const struct link_attachment *attachment, uint64_t sequence,
                     struct link_pick *pick) {
  uint64_t index;
  if (!look_up(attachment->control, sequence, &index) || wire_index_void(index)) return false;
  uint32_t slot = wire_index_slot(index);
  if (load(&attachment->control->st[slot].word) != sequence) return false;
  pick->sequence = sequence;
  pick->slot = slot;
  return true;
}

static bool choose_ready_only(struct link_attachment *attachment, struct link_pick *pick) {
  uint64_t newest = wire_frame_sequence(load(&attachment->control->head));
  uint64_t oldest = oldest_indexed(newest);
  if (oldest <= attachment->last) oldest = attachment->last + 1;
  for (uint64_t s = newest; s >= oldest; s--) {
    if (!is_there(attachment, s, pick) || !link_is_ready(attachment, pick->slot, s)) continue;
    pick->missed = count_missed(attachment, s);
    return true;
  }
  return false;
}

/* The first one: the newest that was there already, or the first that was published since we joined. */
static bool choose_in_order(struct link_attachment *attachment, struct link_pick *pick) {
  uint64_t newest = wire_frame_sequence(load(&attachment->control->head));
  uint64_t last = attachment->last, first = attachment->first;
  if (!last && (!first || newest <= first)) return choose_latest(attachment, pick);
  if (!last) last = first - 1;
  uint64_t sequence = last + 1;
  if (sequence < oldest_indexed(newest)) sequence = oldest_indexed(newest);
  for (; sequence <= newest; sequence++) {
    if (!is_there(attachment, sequence, pick)) continue;
    pick->missed = count_between(attachment, last, sequence);
    return true;
  }
  return false;
}

static void store_cursor(struct link_attachment *attachment, uint64_t cursor) {
  attachment->cursor = cursor;
  /* seq_cst, then a look at waiting: a producer may wait for this place. It is stored after the lease
   * was confirmed, so who sees the cursor sees the lease. */
  atomic_store(&attachment->mailbox->cursor, cursor);
  link_tell_producer(attachment);
}

static bool choose_every(struct link_attachment *attachment, struct link_pick *pick) {
  /* seq_cst: pairs with the producer's store when it takes the place away. */
  uint64_t joined = atomic_load(&attachment->mailbox->joined), index;
  if (!joined) return false;
  uint64_t next = attachment->cursor  ? attachment->cursor
                  : attachment->first ? attachment->first
                                      : joined;
  pick->missed = joined > next ? joined - next : 0;
  if (joined > next) next = joined;
  uint64_t skipped = next;
  while (look_up(attachment->control, skipped, &index) && wire_index_void(index))
    skipped++;
  if (skipped != next && !pick->missed) store_cursor(attachment, skipped);
  if (skipped > wire_frame_sequence(load(&attachment->control->head))) return false;
  return is_there(attachment, skipped, pick);
}

static bool choose_shared(struct link_attachment *attachment, struct link_pick *pick) {
  uint64_t offer = load(&attachment->mailbox->offer);
  if (!offer || wire_offer_number(offer) == attachment->taken) return false;
  pick->offer = offer;
  pick->generation = wire_offer_generation(offer);
  pick->slot = wire_offer_slot(offer);
  return true;
}

static bool choose(struct link_attachment *attachment, cudalink_policy policy,
                   struct link_pick *pick) {
  switch (policy) {
  case CUDALINK_POLICY_LATEST: return choose_latest(attachment, pick);
  case CUDALINK_POLICY_READY_ONLY: return choose_ready_only(attachment, pick);
  case CUDALINK_POLICY_IN_ORDER: return choose_in_order(attachment, pick);
  case CUDALINK_POLICY_EVERY: return choose_every(attachment, pick);
  case CUDALINK_POLICY_SHARED: return choose_shared(attachment, pick);
  }
  return false;
}

void link_fetch_ahead(const struct link_attachment *attachment, const char *metadata,
                      uint32_t slot) {
  const struct wire_control *control = attachment->control;
  __builtin_prefetch(attachment->mailbox->want, 1);
  __builtin_prefetch(&control->st[slot & 63u]);
  __builtin_prefetch(&control->ready[slot & 63u]);
  for (uint32_t line = 0; line < FETCH_BYTES; line += 64)
    __builtin_prefetch(metadata + line);
}

bool link_choose(struct link_attachment *attachment, cudalink_policy policy, bool isolated,
                 struct link_pick *pick) {
  *pick = (struct link_pick){0};
  /* gen before head: a head that is newer than gen is caught by the check behind want. */
  pick->generation = load(&attachment->control->gen) & WIRE_GENERATION_MASK;
  if (!choose(attachment, policy, pick)) return false;
  /* Frames from before its block was there were never copied for an isolated consumer. */
  if (isolated && !pick->offer) {
    uint64_t joined = load(&attachment->mailbox->joined);
    if (!joined || pick->sequence < joined) return false;
  }
  const struct link_mapping *mapping = link_mapping_find(attachment, pick->generation);
  pick->unmapped = !mapping;
  if (!mapping) return false;
  link_fetch_ahead(attachment, link_mapping_metadata(mapping, pick->slot), pick->slot);
  return true;
}

void link_confirm(struct link_attachment *attachment, cudalink_policy policy,
                  const struct link_pick *pick) {
  if (pick->sequence > attachment->last) attachment->last = pick->sequence;
  if (policy == CUDALINK_POLICY_EVERY) store_cursor(attachment, pick->sequence + 1);
  if (policy != CUDALINK_POLICY_SHARED) return;
  attachment->taken = wire_offer_number(pick->offer);
  /* seq_cst, then a look at waiting: pairs with the producer's read of taken, before that of want. */
  atomic_store(&attachment->mailbox->taken, attachment->taken);
  link_tell_producer(attachment);
}

uint64_t link_left_behind(const struct link_attachment *attachment, cudalink_policy policy) {
  if (policy == CUDALINK_POLICY_SHARED) return 0; /* others of the group may have got them */
  uint64_t last = attachment->last, first = attachment->first;
  if (!first) first = load(&attachment->mailbox->joined); /* isolated: known late */
  if (!last && !first) return 0;
  uint64_t newest = wire_frame_sequence(load(&attachment->control->head));
  return count_between(attachment, last ? last : first - 1, newest + 1);
}

bool link_must_look(const struct link_attachment *attachment, cudalink_policy policy) {
  if (policy != CUDALINK_POLICY_READY_ONLY) return false;
  return wire_frame_sequence(load(&attachment->control->head)) > attachment->last;
}
