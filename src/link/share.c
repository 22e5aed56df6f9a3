/* SPDX-License-Identifier: MIT
 *
 * What an exporter knows of pool blocks: which of them its consumers were told of, and which frames lie in
 * them. See share.h.
 */
#include "link/share.h"

#include <stdlib.h>
#include <string.h>

#include "link/exporter.h"
#include "link/pool.h"
#include "link/reaper.h"

/* ---- may it? --------------------------------------------------------------------------------------- */

static bool is_of_gpu(const struct link_exporter *exporter, const struct pool_block *block) {
  return !memcmp(exporter->device->uuid, block->block.device->uuid, sizeof exporter->device->uuid);
}

/* A copy between them would be a copy from memory that this GPU has no access to. */
int link_share_check(const struct link_exporter *exporter, const struct pool_block *block) {
  if (exporter->device->kind == CUDALINK_KIND_HOST || is_of_gpu(exporter, block))
    return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "channel '%s': what is sent lies in a pool of GPU %d, but the frames are on GPU "
                   "%d; copy it there first",
                   exporter->name, block->block.device->ordinal, exporter->device->ordinal);
}

const char *link_share_refused(const struct link_exporter *exporter) {
  if (exporter->only) return "the channel has the old wire alone";
  if (exporter->device->kind != CUDALINK_KIND_VMM) return "the channel is not of kind vmm";
  if (exporter->isolated_mask) return "an isolated consumer is connected";
  if (exporter->poolless_mask) return "a consumer is connected whose library knows no pools";
  return NULL;
}

/* ---- known blocks ------------------------------------------------------------------------------------ */

static struct link_known *find(struct link_exporter *exporter, const struct pool_block *block) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_BLOCKS; i++)
    if (exporter->pools[i].block == block) return &exporter->pools[i];
  return NULL;
}

/* Room for others, once consumers were told. */
static void let_idle_go(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_BLOCKS; i++)
    exporter->pools[i].leaving |= exporter->pools[i].block && !exporter->pools[i].frames;
  service_post(&exporter->tell_work);
}

static bool must_hear(const struct link_exporter *exporter, const struct link_known *known,
                      uint32_t m) {
  const struct link_member *member = &exporter->members[m];
  return member->maps_pools && member->state == LINK_MEMBER_JOINED && !(known->told >> m & 1);
}

static bool everybody_knows(const struct link_exporter *exporter, const struct link_known *known) {
  LINK_EACH_MEMBER(exporter, m)
    if (must_hear(exporter, known, m)) return false;
  return true;
}

/* Who can't be told now, because its queue is full, is tried again by a timer. */
static bool anybody_can_hear(const struct link_exporter *exporter, const struct link_known *known) {
  LINK_EACH_MEMBER(exporter, m)
    if (must_hear(exporter, known, m) && !exporter->members[m].untold) return true;
  return false;
}

static struct link_known *admit(struct link_exporter *exporter, const struct link_share *share) {
  struct link_known *known = find(exporter, share->block);
  if (!known && (known = find(exporter, NULL))) {
    pool_use(share->block);
    *known = (struct link_known){.block = share->block};
  }
  if (!known) {
    let_idle_go(exporter);
    return NULL;
  }
  known->leaving = false;
  return known;
}

void link_share_prepare(struct link_exporter *exporter, const struct link_share *share) {
  const struct link_known *known = admit(exporter, share);
  if (known && anybody_can_hear(exporter, known)) link_tell_now(exporter);
}

bool link_share_admit(struct link_exporter *exporter, const struct link_share *share) {
  const struct link_known *known = admit(exporter, share);
  if (known && !everybody_knows(exporter, known)) service_post(&exporter->tell_work);
  return known != NULL;
}

void link_share_forget(struct link_exporter *exporter, uint32_t member) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_BLOCKS; i++)
    exporter->pools[i].told &= ~(UINT64_C(1) << member);
}

static bool holds(struct link_exporter *exporter, const struct pool_block *block) {
  struct link_known *known = find(exporter, block);
  if (known && !known->frames) known->leaving = true;
  return known != NULL;
}

void link_share_freed(const struct pool_block *block) {
  for (uint32_t i = 0;; i++) {
    struct link_exporter *exporter = link_table_at(&link_exporters, i);
    if (!exporter) return;
    pthread_mutex_lock(&exporter->object.mutex);
    if (atomic_load(&exporter->object.id) && !exporter->closing && holds(exporter, block))
      service_post(&exporter->tell_work);
    pthread_mutex_unlock(&exporter->object.mutex);
  }
}

/* ---- frames ------------------------------------------------------------------------------------------ */

void link_share_begin(struct link_exporter *exporter, struct link_generation *generation,
                      uint32_t slot, struct link_share *share) {
  generation->shared[slot] = share;
  generation->shared_slots |= UINT64_C(1) << slot;
  find(exporter, share->block)->frames++;
  exporter->shares++;
}

/* Runs code of the program's: with no lock held, and not on the service thread. */
static void tell_owner(void *argument) {
  struct link_share *share = argument;
  if (share->drop) share->drop(share->owner);
  pool_leave(share->block);
  free(share);
}

void link_share_end(struct link_exporter *exporter, struct link_share *share) {
  struct link_known *known = find(exporter, share->block);
  exporter->shares--;
  if (!--known->frames && atomic_load(&share->block->freed) && !exporter->closing) {
    known->leaving = true;
    service_post(&exporter->tell_work);
  }
  share->next = exporter->ended;
  exporter->ended = share;
}

void link_share_leave_slot(struct link_exporter *exporter, struct link_generation *generation,
                           uint32_t slot) {
  generation->shared_slots &= ~(UINT64_C(1) << slot);
  link_share_end(exporter, generation->shared[slot]);
}

static struct link_share *take_ended(struct link_exporter *exporter) {
  struct link_share *ended = exporter->ended;
  exporter->ended = NULL;
  return ended;
}

void link_share_unlock(struct link_exporter *exporter) {
  struct link_share *share = take_ended(exporter);
  link_object_unlock(exporter);
  while (share) {
    struct link_share *next = share->next;
    tell_owner(share);
    share = next;
  }
}

void link_share_hand_over(struct link_exporter *exporter) {
  struct link_share *share = take_ended(exporter);
  while (share) {
    struct link_share *next = share->next;
    reaper_call(tell_owner, share);
    share = next;
  }
}

bool link_share_held(const struct link_exporter *exporter,
                     const struct link_generation *generation) {
  for (uint64_t left = generation->shared_slots; left; left &= left - 1)
    if (link_slot_wanted(exporter, generation, (uint32_t)__builtin_ctzll(left))) return true;
  return false;
}

/* ---- telling ------------------------------------------------------------------------------------------ */

static bool tell(struct link_connection *connection, const struct pool_block *block) {
  struct wire_pool_block message = {.number = block->number, .bytes = block->block.bytes};
  memcpy(message.device_uuid, block->block.device->uuid, sizeof message.device_uuid);
  return link_send(connection, &message, WIRE_POOL_BLOCK, sizeof message, &block->inside, 1);
}

static bool tell_gone(struct link_connection *connection, const struct pool_block *block) {
  struct wire_pool_block_gone message = {.number = block->number};
  return link_send(connection, &message, WIRE_POOL_BLOCK_GONE, sizeof message, NULL, 0);
}

/* False: later. Its messages stay in order, so nothing is tried behind one that did not fit. */
static bool tell_member(struct link_exporter *exporter, uint32_t m, struct link_known *known) {
  struct link_member *member = &exporter->members[m];
  bool knows = known->told >> m & 1;
  if (!member->connection || !member->maps_pools || knows != known->leaving) return true;
  if (!knows && member->state != LINK_MEMBER_JOINED) return true;
  bool sent = !member->untold && (knows ? tell_gone(member->connection, known->block)
                                        : tell(member->connection, known->block));
  if (sent)
    known->told ^= UINT64_C(1) << m;
  else
    member->untold = exporter->untold = true;
  return sent;
}

static bool tell_members(struct link_exporter *exporter, struct link_known *known) {
  bool all = true;
  LINK_EACH_MEMBER(exporter, m)
    all &= tell_member(exporter, m, known);
  return all;
}

void link_share_tell(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_BLOCKS; i++) {
    struct link_known *known = &exporter->pools[i];
    if (!known->block) continue;
    if (!tell_members(exporter, known) || !known->leaving) continue;
    pool_leave(known->block);
    *known = (struct link_known){0};
  }
}

void link_share_close(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_BLOCKS; i++) {
    if (exporter->pools[i].block) pool_leave(exporter->pools[i].block);
    exporter->pools[i] = (struct link_known){0};
  }
}
