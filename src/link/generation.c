/* SPDX-License-Identifier: MIT
 *
 * Generations: one block of slot memory each. A larger frame, more slots for more holders, and
 * memory that an evicted consumer still reads all lead to a new one; the old one stays whole for as
 * long as anyone may read it.
 */
#include <stdlib.h>
#include <string.h>

#include "link/exporter.h"
#include "link/reaper.h"
#include "link/trace.h"

void *link_metadata(const struct link_generation *generation, uint32_t slot) {
  char *base =
      generation->metadata.address ? generation->metadata.address : generation->block.address;
  return base + generation->geometry.metadata_offset +
         (uint64_t)slot * generation->geometry.metadata_stride;
}

void *link_slot_address(const struct link_generation *generation, uint32_t slot) {
  return (char *)generation->block.address + (uint64_t)slot * generation->geometry.slot_stride;
}

struct link_generation *link_generation_find(const struct link_exporter *exporter,
                                             uint64_t number) {
  if (exporter->current && (exporter->current->number & WIRE_GENERATION_MASK) == number)
    return exporter->current;
  for (struct link_generation *g = exporter->older; g; g = g->older)
    if ((g->number & WIRE_GENERATION_MASK) == number) return g;
  return NULL;
}

uint32_t link_wanted_slots(const struct link_exporter *exporter) {
  uint32_t wanted = 2 + exporter->in_flight_seen + exporter->hold_sum;
  return wanted > exporter->least_slots ? wanted : exporter->least_slots;
}

bool link_generation_wanted(const struct link_exporter *exporter,
                            const cudalink_description *description, uint64_t bytes,
                            struct link_want *want, bool *must) {
  uint32_t slots = link_wanted_slots(exporter);
  if (slots > exporter->max_slots) slots = exporter->max_slots;
  *want = (struct link_want){bytes, description->plane_count, slots};
  *must = true;
  const struct link_generation *current = exporter->current;
  if (!current) return true;
  const struct wire_geometry *geometry = &current->geometry;
  bool fits = bytes <= geometry->slot_bytes && description->plane_count <= geometry->plane_count;
  if (want->slot_bytes < geometry->slot_bytes) want->slot_bytes = geometry->slot_bytes;
  if (want->plane_count < geometry->plane_count) want->plane_count = geometry->plane_count;
  if (want->slots < geometry->slots) want->slots = geometry->slots;
  *must = !fits || exporter->must_move;
  return *must || want->slots > geometry->slots;
}

static int share(struct gpu_block *block, os_handle *inside) {
  if (block->shared.handle == OS_NO_HANDLE) return CUDALINK_OK; /* ipc: the message holds it all */
  int status = service_give(block->shared.handle, inside);
  os_handle_close(&block->shared.handle);
  return status;
}

static int seal(struct gpu_block *block) {
  const struct gpu_operations *operations = block->device->operations;
  return operations->block_seal ? operations->block_seal(block) : CUDALINK_OK;
}

/* Descriptions of GPU frames are in a segment of their own, in host memory. */
static int make_metadata(struct link_generation *generation) {
  if (!generation->geometry.metadata_bytes) return CUDALINK_OK;
  generation->geometry.metadata_bytes = os_page_round(generation->geometry.metadata_bytes);
  struct os_segment *segment = &generation->metadata;
  int status = os_segment_create(segment, "cudalink-metadata", generation->geometry.metadata_bytes);
  if (status == CUDALINK_OK) status = os_segment_seal_writers(segment);
  if (status == CUDALINK_OK) status = service_give(segment->handle, &generation->inside_metadata);
  os_handle_close(&segment->handle);
  return status;
}

int link_generation_make(struct link_exporter *exporter, const struct link_want *want,
                         struct link_generation **made) {
  struct link_generation *generation = calloc(1, sizeof *generation);
  if (!generation)
    return error_set(CUDALINK_ERROR_NO_MEMORY, "channel '%s': no memory for a generation",
                     exporter->name);
  generation->inside = generation->inside_metadata = OS_NO_HANDLE;
  generation->block.shared.handle = generation->metadata.handle = OS_NO_HANDLE;
  struct gpu_device *device = exporter->device;
  int status =
      wire_geometry_make(&generation->geometry, want->slot_bytes, want->slots, want->plane_count,
                         exporter->user_size, device->granularity, device->metadata_inside);
  if (status == CUDALINK_OK)
    status = device->operations->block_create(device, generation->geometry.memory_bytes,
                                              &generation->block);
  if (status == CUDALINK_OK) status = seal(&generation->block);
  if (status == CUDALINK_OK) status = share(&generation->block, &generation->inside);
  if (status == CUDALINK_OK) status = make_metadata(generation);
  if (status == CUDALINK_OK) {
    *made = generation;
    return CUDALINK_OK;
  }
  service_close(generation->inside);
  service_close(generation->inside_metadata);
  reaper_block(&generation->block);
  os_segment_destroy(&generation->metadata);
  free(generation);
  return status;
}

/* Was the consumer told of it, and has it not said yet that it closed it? */
static bool is_open(const struct link_member *member, uint64_t generation) {
  for (uint32_t i = 0; i < LINK_MEMBER_GENERATIONS && generation; i++)
    if (member->open_generations[i] == generation) return true;
  return false;
}

static void doom_isolated(struct link_exporter *exporter, struct link_isolated *isolated) {
  if (isolated->generation) link_doom_block(exporter, &isolated->block, isolated->inside);
  *isolated = (struct link_isolated){0};
}

void link_isolated_collect(struct link_exporter *exporter, struct link_member *member) {
  struct link_isolated **link = &member->isolated_older;
  while (*link) {
    struct link_isolated *isolated = *link;
    if (is_open(member, isolated->generation)) {
      link = &isolated->next;
      continue;
    }
    *link = isolated->next;
    doom_isolated(exporter, isolated);
    free(isolated);
  }
}

void link_isolated_drop(struct link_exporter *exporter, struct link_member *member) {
  memset(member->open_generations, 0, sizeof member->open_generations);
  link_isolated_collect(exporter, member);
  doom_isolated(exporter, &member->isolated);
  doom_isolated(exporter, &member->isolated_next);
}

/* Another block takes its place. A consumer's mapping keeps memory that was shared by descriptor; memory
 * behind a legacy handle must stay for as long as the consumer has it open. */
static void replace_isolated(struct link_exporter *exporter, struct link_member *member,
                             struct link_isolated *place, const struct link_isolated *by) {
  if (exporter->device->kind == CUDALINK_KIND_IPC && is_open(member, place->generation)) {
    struct link_isolated *older = malloc(sizeof *older);
    if (older) { /* else: a leak is better than a free under its reader */
      *older = *place;
      older->next = member->isolated_older;
      member->isolated_older = older;
    }
  } else {
    doom_isolated(exporter, place);
  }
  *place = *by;
}

/* The copy that was made for the next generation is the current one now. */
static void switch_isolated(struct link_exporter *exporter, uint32_t m, uint64_t generation) {
  struct link_member *member = &exporter->members[m];
  if (member->isolated_next.generation != generation) return;
  replace_isolated(exporter, member, &member->isolated, &member->isolated_next);
  member->isolated_next = (struct link_isolated){0};
}

void link_generation_switch(struct link_exporter *exporter, struct link_generation *next) {
  struct wire_control *control = exporter->control;
  struct link_generation *old = exporter->current;
  /* This order, all seq_cst: a consumer that read the old gen finds st = 0 or the new gen when it
   * checks after its want (model: generation.pml). */
  TRACE_BEGIN();
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++)
    atomic_store(&control->st[s].word, 0);
  atomic_store(&control->head, 0);
  atomic_store(&control->gen, next->number & WIRE_GENERATION_MASK);
  TRACE_END(GENERATION, next->number, 0, 0, 0);
  exporter->current = next;
  exporter->newest_slot = -1;
  exporter->must_move = false;
  exporter->statistics.generations++;
  LINK_EACH_OF(exporter->isolated_mask, m)
    switch_isolated(exporter, m, next->number);
  if (!old) return;
  old->older = exporter->older;
  exporter->older = old;
}

static bool group_needs(const struct link_generation *generation) {
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++)
    if (generation->group_hold[s]) return true;
  return false;
}

/* A member of a group that holds a frame of it may die, and then the frame is offered again. */
static bool group_member_holds(const struct link_exporter *exporter,
                               const struct link_generation *generation) {
  LINK_EACH_MEMBER(exporter, m) {
    const struct link_member *member = &exporter->members[m];
    if (member->group < 0) continue;
    for (uint32_t e = 0; e < member->entries; e++) {
      uint64_t want = link_entry_held(member, e);
      if (want && wire_lease_generation(want) == (generation->number & WIRE_GENERATION_MASK))
        return true;
    }
  }
  return false;
}

void link_generation_doom(struct link_exporter *exporter, struct link_generation *generation) {
  if (generation->retired) exporter->retired_bytes -= generation->geometry.memory_bytes;
  for (uint64_t left = generation->shared_slots; left; left &= left - 1)
    link_doom_share(exporter, generation->shared[__builtin_ctzll(left)]);
  link_doom_block(exporter, &generation->block, generation->inside);
  link_doom_segment(exporter, &generation->metadata);
  if (generation->inside_metadata != OS_NO_HANDLE) {
    struct gpu_block none = {.shared.handle = OS_NO_HANDLE};
    link_doom_block(exporter, &none, generation->inside_metadata);
  }
  free(generation);
}

/* A legacy handle can't be opened once its memory is freed, and memory must not be freed while it is
 * open: so it waits for everybody who was told of it. */
static bool must_wait_for_closed(const struct link_exporter *exporter,
                                 const struct link_generation *generation) {
  if (exporter->device->kind != CUDALINK_KIND_IPC) return false;
  LINK_EACH_OF(exporter->present_mask | exporter->exiting_mask, m)
    if (is_open(&exporter->members[m], generation->number)) return true;
  return false;
}

void link_generation_collect(struct link_exporter *exporter) {
  struct link_generation **link = &exporter->older;
  while (*link) {
    struct link_generation *generation = *link;
    if (generation->pinned || group_needs(generation) || group_member_holds(exporter, generation) ||
        must_wait_for_closed(exporter, generation) || link_share_held(exporter, generation)) {
      link = &generation->older;
      continue;
    }
    *link = generation->older;
    link_generation_doom(exporter, generation);
  }
}

/* Makes the block of one isolated consumer. Called without the mutex; the member may have gone. */
static int make_isolated(struct link_exporter *exporter, const struct link_generation *generation,
                         bool writable, struct link_isolated *made) {
  struct gpu_device *device = exporter->device;
  *made = (struct link_isolated){.generation = generation->number,
                                 .inside = OS_NO_HANDLE,
                                 .block.shared.handle = OS_NO_HANDLE};
  int status =
      device->operations->block_create(device, generation->geometry.memory_bytes, &made->block);
  if (status == CUDALINK_OK && !writable) status = seal(&made->block);
  if (status == CUDALINK_OK) status = share(&made->block, &made->inside);
  return status;
}

int link_isolated_make(struct link_exporter *exporter, struct link_generation *generation) {
  for (bool any = false;; any = true) {
    struct link_member *member = NULL;
    LINK_EACH_OF(exporter->isolated_mask, m) {
      struct link_member *candidate = &exporter->members[m];
      if (candidate->wants_isolated && candidate->state == LINK_MEMBER_JOINED &&
          candidate->isolated.generation != generation->number &&
          candidate->isolated_next.generation != generation->number)
        member = candidate;
    }
    if (!member) {
      if (any) link_tell_now(exporter);
      return CUDALINK_OK;
    }

    struct wire_mailbox *mailbox = member->mailbox;
    bool writable = member->isolated_writable;
    struct link_isolated made;
    pthread_mutex_unlock(&exporter->object.mutex);
    int status = make_isolated(exporter, generation, writable, &made);
    pthread_mutex_lock(&exporter->object.mutex);
    bool still =
        status == CUDALINK_OK && member->mailbox == mailbox && member->state == LINK_MEMBER_JOINED;
    struct link_isolated *place =
        generation == exporter->current ? &member->isolated : &member->isolated_next;
    bool first = still && !member->isolated.generation && !member->isolated_next.generation;
    if (still) {
      replace_isolated(exporter, member, place, &made);
      service_post(&exporter->tell_work); /* also when another one's fails */
    } else {
      doom_isolated(exporter, &made);
    }
    if (first) {
      /* Frames published so far were not copied for it. release: pairs with the consumer's acquire
       * load of joined. */
      atomic_store_explicit(&mailbox->joined, exporter->head_sequence + 1, memory_order_release);
    }
    if (status < 0) return status;
  }
}
