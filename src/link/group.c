/* SPDX-License-Identifier: MIT
 *
 * Shared groups: each frame goes to exactly one member.
 *
 * A frame is in one of three places: queued (nobody was free), offered to one member, or taken, when
 * the member's own lease holds it. Queued and offered frames hold their slot (group_hold). A member
 * stores its lease before it stores `taken`, and here `taken` is read before the leases: so between
 * the two there is never a moment in which the slot looks free (model: group.pml).
 */
#include <stdlib.h>
#include <string.h>

#include "link/exporter.h"
#include "link/trace.h"

/* Members that leave or die still name their group. */
static bool is_named(const struct link_exporter *exporter, int32_t group) {
  LINK_EACH_OF(exporter->present_mask, m)
    if (exporter->members[m].group == group) return true;
  return false;
}

int32_t link_group_find(struct link_exporter *exporter, const char *name) {
  int32_t unused = -1;
  for (int32_t g = LINK_MAX_GROUPS - 1; g >= 0; g--)
    if (!exporter->groups[g].count && !is_named(exporter, g)) unused = g;
  for (int32_t g = 0; g < LINK_MAX_GROUPS; g++)
    if (!strcmp(exporter->groups[g].name, name)) return g;
  if (unused < 0) return -1;
  exporter->grouped = true;
  struct link_group *group = &exporter->groups[unused];
  struct link_group_frame *queue = group->queue;
  if (!queue) queue = calloc(LINK_GROUP_QUEUE, sizeof *queue);
  if (!queue) return -1;
  memset(group, 0, sizeof *group);
  group->queue = queue;
  strncpy(group->name, name, sizeof group->name - 1);
  return unused;
}

/* A queue of 128 never overflows: each entry holds one of at most 64 slots of the current or of a
 * retired generation; what would not fit is dropped with its hold. */
static void enqueue(struct link_group *group, struct link_group_frame frame, bool front) {
  if (group->count == LINK_GROUP_QUEUE) {
    frame.generation->group_hold[frame.slot]--;
    return;
  }
  if (front) group->first = (group->first + LINK_GROUP_QUEUE - 1) % LINK_GROUP_QUEUE;
  group->queue[front ? group->first : (group->first + group->count) % LINK_GROUP_QUEUE] = frame;
  group->count++;
}

void link_group_queue(struct link_exporter *exporter, struct link_generation *generation,
                      uint32_t slot, uint64_t sequence) {
  if (!exporter->grouped) return;
  generation->redelivered[slot] = 0;
  for (uint32_t g = 0; g < LINK_MAX_GROUPS; g++) {
    struct link_group *group = &exporter->groups[g];
    if (!group->members) continue;
    generation->group_hold[slot]++;
    enqueue(group, (struct link_group_frame){generation, sequence, slot, false}, false);
  }
}

static void settle_member(struct link_member *member) {
  if (!member->offer_open) return;
  /* seq_cst: pairs with the member's store of taken, behind its store of want: from here on its lease is
   * seen. And behind the waiting bit, when there is one: then it looks at that behind its store. */
  uint64_t taken = atomic_load(&member->mailbox->taken);
  if (taken != member->offer_number) return;
  member->offer_open = false;
  member->offered.generation->group_hold[member->offered.slot]--;
}

void link_group_settle(struct link_exporter *exporter) {
  if (!exporter->grouped) return;
  LINK_EACH_MEMBER(exporter, m)
    if (exporter->members[m].group >= 0) settle_member(&exporter->members[m]);
}

static bool is_open(const struct link_member *member, uint64_t generation) {
  for (uint32_t i = 0; i < LINK_MEMBER_GENERATIONS; i++)
    if (member->open_generations[i] == generation) return true;
  return false;
}

/* An isolated member can only read what was copied for it. */
static bool can_read(const struct link_member *member, const struct link_group_frame *frame) {
  if (!member->wants_isolated) return true;
  uint64_t joined = atomic_load_explicit(&member->mailbox->joined, memory_order_relaxed);
  return member->isolated.generation == frame->generation->number && joined &&
         frame->sequence >= joined;
}

/* Its hands are full: the frame waits for whoever is free first. Not where releases are left to
 * streams: nobody tells of those. */
static bool is_busy(const struct link_member *member) {
  uint32_t held = 0;
  for (uint32_t e = 0; e < member->entries; e++)
    held += link_entry_held(member, e) != 0;
  return held >= member->hold &&
         !atomic_load_explicit(&member->mailbox->streams, memory_order_relaxed);
}

static struct link_member *free_member(struct link_exporter *exporter, struct link_group *group,
                                       const struct link_group_frame *frame) {
  for (uint32_t i = 1; i <= LINK_MAX_MEMBERS; i++) {
    uint32_t m = (group->turn + i) % LINK_MAX_MEMBERS;
    if (!(group->members >> m & 1u)) continue;
    struct link_member *member = &exporter->members[m];
    if (member->state != LINK_MEMBER_JOINED || member->offer_open) continue;
    if (!can_read(member, frame) || is_busy(member)) continue;
    group->turn = m;
    return member;
  }
  return NULL;
}

static void offer(struct link_member *member, struct link_group_frame frame) {
  member->offer_number++;
  member->offer_open = true;
  member->offer_at = os_now();
  member->offered = frame;
  TRACE_BEGIN();
  /* seq_cst: pairs with the member's load behind its store of want. */
  atomic_store(&member->mailbox->offer,
               wire_offer_word(member->offer_number, frame.redelivered,
                               frame.generation->number & WIRE_GENERATION_MASK, frame.slot));
  TRACE_END(OFFER, member->offer_number, frame.slot, frame.sequence, frame.redelivered);
}

static bool dispatch(struct link_exporter *exporter, struct link_group *group) {
  bool any = false;
  while (group->count) {
    struct link_group_frame frame = group->queue[group->first];
    struct link_member *member = free_member(exporter, group, &frame);
    if (!member) break;
    if (!is_open(member, frame.generation->number)) service_post(&exporter->tell_work);
    group->first = (group->first + 1) % LINK_GROUP_QUEUE;
    group->count--;
    offer(member, frame);
    any = true;
  }
  return any;
}

static bool any_queued(const struct link_exporter *exporter) {
  for (uint32_t g = 0; g < LINK_MAX_GROUPS; g++)
    if (exporter->groups[g].count) return true;
  return false;
}

static bool dispatch_all(struct link_exporter *exporter) {
  bool any = false;
  link_group_settle(exporter);
  for (uint32_t g = 0; g < LINK_MAX_GROUPS; g++)
    if (exporter->groups[g].count) any |= dispatch(exporter, &exporter->groups[g]);
  return any;
}

bool link_group_dispatch(struct link_exporter *exporter) {
  if (!exporter->grouped) return false;
  wire_half *waiting = &exporter->control->waiting;
  bool any = dispatch_all(exporter);
  if (any_queued(exporter)) {
    /* seq_cst, then look again: pairs with the member's store of taken and its look at waiting. */
    atomic_fetch_or(waiting, WIRE_WAITING_OFFER);
    any |= dispatch_all(exporter);
  }
  if (!any_queued(exporter)) atomic_fetch_and(waiting, ~WIRE_WAITING_OFFER);
  return any;
}

bool link_group_idle(struct link_exporter *exporter) {
  if (!exporter->grouped) return true;
  if (any_queued(exporter)) return false;
  LINK_EACH_MEMBER(exporter, m)
    if (exporter->members[m].offer_open) return false;
  return true;
}

bool link_group_mourns(const struct link_exporter *exporter) {
  LINK_EACH_OF(exporter->present_mask, m) {
    const struct link_member *member = &exporter->members[m];
    if (member->state == LINK_MEMBER_DYING && member->group >= 0) return true;
  }
  return false;
}

/* The frame of a lease that this member still has. */
static bool lease_frame(struct link_exporter *exporter, uint64_t want,
                        struct link_group_frame *frame) {
  uint64_t number = wire_lease_generation(want);
  uint32_t slot = wire_lease_slot(want);
  struct link_generation *generation = exporter->current;
  if (generation && (generation->number & WIRE_GENERATION_MASK) != number)
    for (generation = exporter->older; generation; generation = generation->older)
      if ((generation->number & WIRE_GENERATION_MASK) == number) break;
  if (!generation || slot >= generation->geometry.slots || !generation->frame_in[slot])
    return false;
  *frame = (struct link_group_frame){generation, generation->frame_in[slot], slot, true};
  return true;
}

/* Offers a frame once more, at the head of the queue. One that was offered twice is not offered a
 * third time: a frame that kills its worker must not kill them all. */
static void redeliver(struct link_exporter *exporter, struct link_group *group,
                      struct link_group_frame frame) {
  uint16_t bit = (uint16_t)(1u << (group - exporter->groups));
  uint16_t *twice = &frame.generation->redelivered[frame.slot];
  if (*twice & bit) return;
  *twice = (uint16_t)(*twice | bit);
  frame.redelivered = true;
  frame.generation->group_hold[frame.slot]++;
  exporter->statistics.redelivered++;
  enqueue(group, frame, true);
}

/* Its offer and its leases go back to the group. The offer was withdrawn by the verdict (or the end
 * of the process) before this is called. */
void link_group_member_gone(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  struct link_group *group = &exporter->groups[member->group];
  bool leaving = member->state == LINK_MEMBER_LEAVING;
  if (leaving) atomic_store(&member->mailbox->offer, 0); /* withdrawn before taken is read */
  settle_member(member);
  if (member->offer_open) {
    member->offer_open = false;
    struct link_group_frame frame = member->offered;
    if (leaving) {
      enqueue(group, frame, true); /* it never had it */
    } else if (exporter->closing) {
      frame.generation->group_hold[frame.slot]--; /* it is alive and will read it */
    } else {
      frame.generation->group_hold[frame.slot]--;
      redeliver(exporter, group, frame);
    }
  }
  if (!leaving && !exporter->closing)
    for (uint32_t e = 0; e < member->entries; e++) {
      uint64_t want = link_entry_held(member, e);
      struct link_group_frame frame;
      if (want && lease_frame(exporter, want, &frame)) redeliver(exporter, group, frame);
    }
  group->members &= ~(UINT64_C(1) << m);
  if (!leaving) member->group = -1;
  if (!group->members && group->count) group->orphaned_at = os_now();
  if (link_group_dispatch(exporter)) link_ring(exporter);
}

#define ORPHAN_LIMIT 2000000000 /* ns, where hold_limit is for ever: nobody may ever come */

bool link_group_drop_orphans(struct link_exporter *exporter, uint64_t now, uint64_t *next) {
  bool any = false;
  int64_t limit = exporter->hold_limit == CUDALINK_FOREVER ? ORPHAN_LIMIT : exporter->hold_limit;
  for (uint32_t g = 0; g < LINK_MAX_GROUPS; g++) {
    struct link_group *group = &exporter->groups[g];
    if (group->members || !group->count) continue;
    uint64_t due = group->orphaned_at + (uint64_t)limit;
    if (now < due) {
      if (due < *next) *next = due;
      continue;
    }
    any = true;
    for (; group->count; group->count--) {
      struct link_group_frame *frame = &group->queue[group->first];
      frame->generation->group_hold[frame->slot]--;
      group->first = (group->first + 1) % LINK_GROUP_QUEUE;
    }
  }
  return any;
}
