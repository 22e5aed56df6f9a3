/* SPDX-License-Identifier: MIT
 *
 * What members are told: generations that they do not have yet, and the bell where they sleep or poll.
 * On the service thread, which is also the one to look whether doomed memory is free.
 */
#include <limits.h>
#include <string.h>

#include "link/exporter.h"

#define DOOM_LOOK 10000000 /* ns */

static void doom_fire(struct service_timer *timer);

/* Legacy handles that it may have open must not be forgotten: it is told of more when it has closed some. */
static bool note_open(struct link_member *member, uint64_t generation) {
  bool legacy = member->exporter->device->kind == CUDALINK_KIND_IPC;
  uint32_t place = LINK_MEMBER_GENERATIONS, oldest = 0;
  for (uint32_t i = 0; i < LINK_MEMBER_GENERATIONS; i++) {
    if (member->open_generations[i] == generation) return false;
    if (!member->open_generations[i])
      place = i;
    else if (member->open_generations[i] < member->open_generations[oldest])
      oldest = i;
  }
  if (legacy && place == LINK_MEMBER_GENERATIONS) return false;
  member->open_generations[place < LINK_MEMBER_GENERATIONS ? place : oldest] = generation;
  return true;
}

static void note_untold(struct link_member *member, uint64_t generation) {
  for (uint32_t i = 0; i < LINK_MEMBER_GENERATIONS; i++)
    if (member->open_generations[i] == generation) member->open_generations[i] = 0;
  member->untold = member->exporter->untold = true;
}

static void tell(struct link_exporter *exporter, struct link_member *member,
                 const struct link_generation *generation) {
  bool isolated = member->wants_isolated;
  const struct link_isolated *own = member->isolated.generation == generation->number
                                        ? &member->isolated
                                        : &member->isolated_next;
  if (isolated && own->generation != generation->number) return;
  if (!note_open(member, generation->number)) return;
  struct wire_generation message = {.generation = generation->number,
                                    .kind = exporter->device->kind,
                                    .writable =
                                        isolated ? member->isolated_writable
                                                 : exporter->device->kind != CUDALINK_KIND_HOST &&
                                                       !exporter->refuse_writers,
                                    .device_ordinal = (uint32_t)exporter->device->ordinal};
  wire_geometry_to_message(&generation->geometry, &message);
  memcpy(message.device_uuid, exporter->device->uuid, sizeof message.device_uuid);
  const struct gpu_shared *shared = isolated ? &own->block.shared : &generation->block.shared;
  memcpy(message.ipc_handle, shared->ipc, sizeof message.ipc_handle);
  os_handle inside = isolated ? own->inside : generation->inside, handles[2];
  int count = 0;
  if (inside != OS_NO_HANDLE) handles[count++] = inside;
  if (generation->inside_metadata != OS_NO_HANDLE) handles[count++] = generation->inside_metadata;
  if (!link_send(member->connection, &message, WIRE_GENERATION, sizeof message, handles, count))
    note_untold(member, generation->number);
}

static void tell_closed(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < exporter->connection_limit; i++)
    if (exporter->connections[i].state == LINK_CONNECTION_MEMBER)
      link_tell_closed(&exporter->connections[i]);
}

void link_tell_locked(struct link_exporter *exporter) {
  LINK_EACH_OF(exporter->present_mask, m)
    exporter->members[m].untold = false;
  exporter->untold = false;
  link_share_tell(exporter);
  LINK_EACH_MEMBER(exporter, m) {
    struct link_member *member = &exporter->members[m];
    if (member->state != LINK_MEMBER_JOINED || !member->connection) continue;
    if (exporter->current) tell(exporter, member, exporter->current);
    if (exporter->begun_generation) tell(exporter, member, exporter->begun_generation);
    if (member->offer_open) tell(exporter, member, member->offered.generation);
  }
  if (exporter->stopped) tell_closed(exporter);
  if (exporter->untold) service_timer_set(&exporter->doom_timer, doom_fire, os_deadline(DOOM_LOOK));
}

void link_tell_generations(struct link_exporter *exporter) {
  pthread_mutex_lock(&exporter->object.mutex);
  link_tell_locked(exporter);
  pthread_mutex_unlock(&exporter->object.mutex);
}

static int tell_inside(void *argument) {
  link_tell_generations(argument);
  return CUDALINK_OK;
}

void link_tell_now(struct link_exporter *exporter) {
  pthread_mutex_unlock(&exporter->object.mutex);
  service_call(tell_inside, exporter);
  pthread_mutex_lock(&exporter->object.mutex);
}

/* Under the mutex. */
static void look_at_doomed(struct link_exporter *exporter) {
  link_doom_collect(exporter);
  /* A close that waits for nothing but others has set no time. */
  if (exporter->close_timer.due == OS_FOREVER) link_close_look(exporter);
  if (exporter->doomed) service_timer_set(&exporter->doom_timer, doom_fire, os_deadline(DOOM_LOOK));
}

static void doom_fire(struct service_timer *timer) {
  struct link_exporter *exporter =
      (struct link_exporter *)(void *)((char *)timer - offsetof(struct link_exporter, doom_timer));
  pthread_mutex_lock(&exporter->object.mutex);
  if (exporter->untold) link_tell_locked(exporter);
  look_at_doomed(exporter);
  pthread_mutex_unlock(&exporter->object.mutex);
}

void link_tell_run(struct service_work *work) {
  struct link_exporter *exporter =
      (struct link_exporter *)(void *)((char *)work - offsetof(struct link_exporter, tell_work));
  if (!exporter->control) return; /* closed meanwhile */
  link_tell_generations(exporter);
  link_welcome_queued(exporter);
  pthread_mutex_lock(&exporter->object.mutex);
  look_at_doomed(exporter);
  pthread_mutex_unlock(&exporter->object.mutex);
}

void link_wake_run(struct service_work *work) {
  struct link_exporter *exporter =
      (struct link_exporter *)(void *)((char *)work - offsetof(struct link_exporter, wake_work));
  if (!exporter->control) return;
  os_wake(&exporter->control->bell, INT_MAX, true);
  pthread_mutex_lock(&exporter->object.mutex);
  LINK_EACH_OF(exporter->present_mask, m) { /* also who was evicted, and is to hear of it */
    struct link_member *member = &exporter->members[m];
    if (!member->connection) continue;
    uint32_t armed = atomic_load(&member->mailbox->armed);
    if (!armed || armed == member->rung) continue;
    member->rung = armed;
    link_send_plain(member->connection, WIRE_BELL, armed);
  }
  pthread_mutex_unlock(&exporter->object.mutex);
}
