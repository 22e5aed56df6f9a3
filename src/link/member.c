/* SPDX-License-Identifier: MIT
 *
 * Consumers as the producer sees them: joining, leaving, dying, and being evicted.
 *
 * Dying and evicted differ in one thing: a dead process reads no more, so its leases are simply free;
 * an evicted one may read on, so the memory that it holds is retired, never written again.
 */
#include <string.h>

#include "link/exporter.h"
#include "link/trace.h"

#define DYING_LIMIT 50000000 /* ns: a killed process's GPU was seen to work on for 30 ms */
#define DYING_LOOK 5000000

static struct link_member *free_member(struct link_exporter *exporter) {
  uint64_t unused = ~(exporter->present_mask | exporter->exiting_mask);
  return unused ? &exporter->members[__builtin_ctzll(unused)] : NULL;
}

static uint32_t index_of(const struct link_exporter *exporter, const struct link_member *member) {
  return (uint32_t)(member - exporter->members);
}

static void set_masks(struct link_exporter *exporter, uint32_t m) {
  const struct link_member *member = &exporter->members[m];
  uint64_t bit = UINT64_C(1) << m;
  exporter->present_mask |= bit;
  exporter->member_mask |= bit;
  exporter->hold_sum += member->hold;
  exporter->mailboxes[m] = exporter->members[m].mailbox;
  if (member->policy == CUDALINK_POLICY_EVERY) exporter->every_mask |= bit;
  if (member->policy == CUDALINK_POLICY_READY_ONLY) exporter->ready_only_mask |= bit;
  if (member->gpu_wait) exporter->gpu_wait_mask |= bit;
  if (member->wants_isolated) exporter->isolated_mask |= bit;
  if (!member->maps_pools) exporter->poolless_mask |= bit;
  if (member->entries > 2) exporter->many_mask |= bit;
}

static void clear_masks(struct link_exporter *exporter, uint32_t m) {
  uint64_t others = ~(UINT64_C(1) << m);
  if (exporter->member_mask & ~others) exporter->hold_sum -= exporter->members[m].hold;
  exporter->member_mask &= others;
  exporter->every_mask &= others;
  exporter->ready_only_mask &= others;
  exporter->gpu_wait_mask &= others;
  exporter->isolated_mask &= others;
  exporter->poolless_mask &= others;
  exporter->mirrored_mask &= others;
  exporter->many_mask &= others;
}

struct link_member *link_member_join(struct link_exporter *exporter,
                                     struct link_connection *connection, int *status) {
  struct link_member *member = free_member(exporter);
  if (!member) {
    *status = error_set(CUDALINK_ERROR_BUSY,
                        "channel '%s' has %u consumers already, which is the most; close one first",
                        exporter->name, LINK_MAX_MEMBERS);
    return NULL;
  }
  const struct wire_hello *hello = &connection->hello;
  int32_t group = -1;
  if (hello->policy == CUDALINK_POLICY_SHARED) {
    group = link_group_find(exporter, hello->group);
    if (group < 0) {
      *status = error_set(CUDALINK_ERROR_BUSY,
                          "channel '%s' has %u groups already, which is the most; join one of them",
                          exporter->name, LINK_MAX_GROUPS);
      return NULL;
    }
  }
  memset(member, 0, sizeof *member);
  member->state = LINK_MEMBER_JOINED;
  member->connection = connection;
  member->segment = connection->mailbox;
  member->mailbox = connection->mailbox.address;
  member->entries = connection->entries;
  member->hold = connection->hold;
  member->policy = hello->policy;
  member->wants_isolated = hello->isolated != 0;
  member->isolated_writable = hello->isolated && hello->writable;
  member->gpu_wait = hello->gpu_wait != 0;
  member->maps_pools = (hello->features & WIRE_FEATURE_POOL) && !hello->isolated;
  member->counts = (hello->features & WIRE_FEATURE_COUNTS) != 0;
  member->latencies = (hello->features & WIRE_FEATURE_LATENCIES) != 0;
  member->group = group;
  member->who = connection->who;
  memcpy(member->program, hello->program, sizeof member->program);
  member->peer = connection->peer;
  member->exporter = exporter;
  connection->mailbox = (struct os_segment){.handle = OS_NO_HANDLE};
  connection->peer = OS_NO_HANDLE;
  uint32_t m = index_of(exporter, member);
  set_masks(exporter, m);
  if (group >= 0) exporter->groups[group].members |= UINT64_C(1) << m;
  /* Behind the mask, so that no frame is published in between that would count as its first but was
   * not kept for it. seq_cst: pairs with the consumer's loads. Isolated: set when its block is there. */
  if (!member->wants_isolated) atomic_store(&member->mailbox->joined, exporter->head_sequence + 1);
  TRACE(JOIN, m, member->entries, 0, 0);
  exporter->statistics.consumers++;
  *status = CUDALINK_OK;
  return member;
}

void link_member_leave(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  if (member->state != LINK_MEMBER_JOINED) return;
  member->state = LINK_MEMBER_LEAVING;
  if (member->group >= 0) link_group_member_gone(exporter, m);
  exporter->statistics.consumers--;
}

static void unpin(struct link_exporter *exporter, uint32_t m) {
  for (struct link_generation *g = exporter->older; g; g = g->older)
    g->pinned &= ~(UINT64_C(1) << m);
  if (exporter->current) exporter->current->pinned &= ~(UINT64_C(1) << m);
}

static void remove_member(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  clear_masks(exporter, m);
  if (member->group >= 0) link_group_member_gone(exporter, m);
  TRACE(LEAVE, m, 0, 0, 0);
  unpin(exporter, m);
  link_mailbox_leave(exporter, &member->segment);
  service_timer_stop(&member->timer);
  exporter->present_mask &= ~(UINT64_C(1) << m);
  member->mailbox = NULL;
  if (link_exiting_start(exporter, m))
    link_generation_collect(exporter); /* what it held, but did not have open any more */
  else
    link_member_forget(exporter, m);
  link_changed(exporter);
}

void link_member_forget(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  link_isolated_drop(exporter, member);
  link_share_forget(exporter, m);
  os_handle_close(&member->peer);
  member->state = LINK_MEMBER_NONE;
  link_generation_collect(exporter);
}

static bool holds_anything(const struct link_member *member) {
  for (uint32_t e = 0; e < member->entries; e++)
    if (link_entry_held(member, e)) return true;
  return false;
}

static void dying_fire(struct service_timer *timer) {
  struct link_member *member =
      (struct link_member *)(void *)((char *)timer - offsetof(struct link_member, timer));
  struct link_exporter *exporter = member->exporter;
  pthread_mutex_lock(&exporter->object.mutex);
  uint64_t now = os_now();
  bool over = !holds_anything(member) || os_peer_exited(member->peer) ||
              now >= member->seen_at[0] + DYING_LIMIT;
  if (over)
    remove_member(exporter, index_of(exporter, member));
  else
    service_timer_set(timer, dying_fire, now + DYING_LOOK);
  pthread_mutex_unlock(&exporter->object.mutex);
}

void link_member_ended(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  bool said_bye = member->connection->said_bye;
  member->connection = NULL;
  if (member->state == LINK_MEMBER_JOINED) exporter->statistics.consumers--;
  if (!said_bye) {
    exporter->statistics.deaths++;
    log_write(CUDALINK_LOG_INFO, "channel '%s': consumer %s (pid %d) is gone", exporter->name,
              member->program, member->who.pid);
  }
  /* Its other threads may run for some more instructions: from here on they get no lease. seq_cst:
   * pairs with the load of verdict behind the store of want. */
  if (member->state != LINK_MEMBER_EVICTED && !exporter->closing)
    atomic_store(&member->mailbox->verdict, WIRE_VERDICT_EVICTED);
  bool wait = exporter->device->work_survives && member->state != LINK_MEMBER_EVICTED &&
              holds_anything(member);
  member->state = LINK_MEMBER_DYING;
  if (!wait) {
    remove_member(exporter, m);
    return;
  }
  member->seen_at[0] = os_now();
  service_timer_set(&member->timer, dying_fire, member->seen_at[0] + DYING_LOOK);
}

/* ---- eviction --------------------------------------------------------------------------------- */

static bool would_exceed_limit(const struct link_exporter *exporter) {
  const struct link_generation *current = exporter->current;
  if (!current || current->retired) return false;
  uint64_t bytes = current->geometry.memory_bytes;
  uint64_t limit = exporter->zombie_limit ? exporter->zombie_limit : bytes;
  return exporter->retired_bytes + bytes > limit;
}

/* Takes this consumer's leases away. */
static void evict(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  TRACE_BEGIN();
  /* seq_cst: pairs with the consumer's load of verdict behind its store of want; whoever is not seen
   * by the scan below sees this. */
  atomic_store(&member->mailbox->verdict, WIRE_VERDICT_EVICTED);
  TRACE_END(VERDICT, m, 0, 0, 0);
  for (uint32_t e = 0; e < member->entries; e++) {
    uint64_t want = link_entry_held(member, e);
    TRACE(SCAN, m, e, WIRE_MAX_SLOTS, want);
    if (!want) continue;
    struct link_generation *held = link_generation_find(exporter, wire_lease_generation(want));
    if (!held) continue;
    held->pinned |= UINT64_C(1) << m;
    if (held->retired) continue;
    held->retired = true;
    exporter->retired_bytes += held->geometry.memory_bytes;
    if (held == exporter->current) exporter->must_move = true;
    TRACE(RETIRE, held->number, m, 0, 0);
  }
  link_ring(exporter); /* while it still counts: another thread of it may sleep */
  clear_masks(exporter, m);
  if (member->state == LINK_MEMBER_JOINED) exporter->statistics.consumers--;
  member->state = LINK_MEMBER_EVICTED;
  exporter->statistics.evicted++;
  if (member->group >= 0) link_group_member_gone(exporter, m);
  log_write(CUDALINK_LOG_WARNING,
            "channel '%s': frames were taken back from consumer %s (pid %d), which held them for "
            "longer than hold_limit while no slot was free",
            exporter->name, member->program, member->who.pid);
}

/* Both count: how long it sits, and how long nothing was free. */
static bool due(const struct link_exporter *exporter, uint64_t since, uint64_t now,
                uint64_t *next) {
  if (since < exporter->blocked_since) since = exporter->blocked_since;
  uint64_t at = since + (uint64_t)exporter->hold_limit;
  if (now >= at) return true;
  if (at < *next) *next = at;
  return false;
}

/* Every-frame consumers that do not move lose their place, nothing else. */
static bool take_places(struct link_exporter *exporter, uint64_t now, uint64_t *next) {
  bool any = false;
  LINK_EACH_MEMBER(exporter, m) {
    struct link_member *member = &exporter->members[m];
    if (member->policy != CUDALINK_POLICY_EVERY || member->state != LINK_MEMBER_JOINED) continue;
    if (link_position(member) > exporter->head_sequence) continue;
    /* Nobody waits a second time for one that has not moved since: a stopped consumer would slow
     * down the channel for ever. */
    bool was_waited_for = member->position_at == 0;
    if (!was_waited_for && !due(exporter, member->position_at, now, next)) continue;
    /* seq_cst: pairs with the consumer's load when it finds its next frame gone. */
    atomic_store(&member->mailbox->joined, exporter->last_sequence + 1);
    member->position_seen = exporter->last_sequence + 1; /* being set back is no move of its own */
    member->position_at = 0;
    any = true;
    if (was_waited_for) continue;
    exporter->statistics.cursors_lost++;
    log_write(CUDALINK_LOG_WARNING,
              "channel '%s': consumer %s (pid %d) wants every frame but took none for longer than "
              "hold_limit; it lost its place",
              exporter->name, member->program, member->who.pid);
  }
  return any;
}

static bool sits_on_frames(const struct link_exporter *exporter, const struct link_member *member,
                           enum link_blocked why, uint64_t now, uint64_t *next) {
  uint64_t current = exporter->current->number & WIRE_GENERATION_MASK;
  /* Where frames wait for a member's hands, any lease of a member is in the way; else a frame of older
   * memory is in nobody's way. */
  bool hands = member->group >= 0 &&
               (why == LINK_BLOCKED_OFFER || exporter->groups[member->group].count > 0);
  for (uint32_t e = 0; e < member->entries && (hands || why == LINK_BLOCKED_LEASE); e++)
    if (member->seen_word[e] && (hands || wire_lease_generation(member->seen_word[e]) == current) &&
        due(exporter, member->seen_at[e], now, next))
      return true;
  return member->offer_open && due(exporter, member->offer_at, now, next);
}

/* An evicted consumer that has let go of everything reads no more: it can't confirm a lease. */
void link_unpin_released(struct link_exporter *exporter) {
  bool any = false;
  LINK_EACH_OF(exporter->present_mask, m) {
    const struct link_member *member = &exporter->members[m];
    if (member->state != LINK_MEMBER_EVICTED || holds_anything(member)) continue;
    unpin(exporter, m);
    any = true;
  }
  if (any) link_generation_collect(exporter);
}

bool link_evict_due(struct link_exporter *exporter, uint64_t now, enum link_blocked why,
                    uint64_t *next) {
  *next = OS_FOREVER;
  if (!exporter->blocked_since) exporter->blocked_since = now;
  link_note_holders(exporter, now);
  link_unpin_released(exporter);
  if (link_group_drop_orphans(exporter, now, next)) return true;
  if (exporter->hold_limit == CUDALINK_FOREVER || why == LINK_BLOCKED_QUEUE) return false;
  if (why == LINK_BLOCKED_PLACE) return take_places(exporter, now, next);
  if (would_exceed_limit(exporter)) return false;
  LINK_EACH_MEMBER(exporter, m) {
    if (!sits_on_frames(exporter, &exporter->members[m], why, now, next)) continue;
    evict(exporter, m);
    return true;
  }
  return false;
}
