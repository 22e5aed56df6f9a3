/* SPDX-License-Identifier: MIT
 *
 * Making, opening and freeing the slots of the old wire.
 */
#include "link/cipd/ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "link/reaper.h"
#include "link/service.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards both lists */
static struct link_ring *own_rings;
static struct link_ring *retired, **last_retired = &retired; /* by `due` */

/* ---- devices ---------------------------------------------------------------------------------- */

int link_ring_device_open(int32_t device, bool imports, struct link_ring_device **opened) {
  static const uint8_t unknown[16]; /* the old wire names no GPU: the first one, without a trial */
  struct link_ring_device *made = calloc(1, sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a device record");
  int status = gpu_device_open(CUDALINK_KIND_IPC, device, imports ? unknown : NULL, &made->gpu);
  if (status < 0) {
    free(made);
    return status;
  }
  made->references = 1;
  *opened = made;
  return CUDALINK_OK;
}

void link_ring_device_drop(struct link_ring_device *device) {
  if (!device || atomic_fetch_sub(&device->references, 1) > 1) return;
  reaper_device(device->gpu);
  free(device);
}

/* ---- making and opening ------------------------------------------------------------------------- */

static struct link_ring *new_ring(struct link_ring_device *device, uint32_t slots) {
  struct link_ring *ring = calloc(1, sizeof *ring + slots * sizeof ring->slot[0]);
  if (!ring) {
    error_record("no memory for a ring of %u slots", slots);
    return NULL;
  }
  ring->device = device;
  ring->slots = slots;
  ring->references = 1;
  atomic_fetch_add(&device->references, 1);
  return ring;
}

static void free_ring(void *argument) {
  struct link_ring *ring = argument;
  for (uint32_t i = 0; i < ring->slots; i++) {
    struct link_ring_slot *slot = &ring->slot[i];
    if (slot->event.implementation)
      ring->device->gpu->operations->legacy->event_destroy(&slot->event);
    if (slot->block.address) ring->device->gpu->operations->block_destroy(&slot->block);
  }
  link_ring_device_drop(ring->device);
  free(ring);
}

static int make_slot(struct gpu_device *gpu, uint64_t bytes, struct link_ring_slot *slot) {
  int status = gpu->operations->block_create(gpu, bytes, &slot->block);
  if (status < 0) return status;
  return gpu->operations->legacy->event_create(gpu, true, &slot->event);
}

int link_ring_make(struct link_ring_device *device, uint32_t slots, uint64_t bytes,
                   struct link_ring **made) {
  uint64_t granularity = device->gpu->granularity; /* a handle exports whole granules */
  struct link_ring *ring = new_ring(device, slots);
  if (!ring) return CUDALINK_ERROR_NO_MEMORY;
  bytes = (bytes + granularity - 1) / granularity * granularity;
  int status = CUDALINK_OK;
  for (uint32_t i = 0; i < slots && status == CUDALINK_OK; i++)
    status = make_slot(device->gpu, bytes, &ring->slot[i]);
  if (status < 0) {
    reaper_call(free_ring, ring);
    return status;
  }
  pthread_mutex_lock(&mutex);
  ring->next = own_rings;
  own_rings = ring;
  pthread_mutex_unlock(&mutex);
  *made = ring;
  return CUDALINK_OK;
}

void link_ring_handles(const struct link_ring *ring, struct wire_cipd_handles *handles) {
  for (uint32_t i = 0; i < ring->slots; i++) {
    memcpy(handles[i].memory, ring->slot[i].block.shared.ipc, sizeof handles[i].memory);
    memcpy(handles[i].event, ring->slot[i].event.ipc, sizeof handles[i].event);
  }
}

static bool has_handles(const struct link_ring *ring, const struct wire_cipd_session *session) {
  struct wire_cipd_handles handles[WIRE_CIPD_MAX_SLOTS];
  if (ring->slots != session->layout.slots) return false;
  link_ring_handles(ring, handles);
  return memcmp(handles, session->handles, ring->slots * sizeof handles[0]) == 0;
}

/* This process's own, with one more reference. */
static struct link_ring *find_own(const struct wire_cipd_session *session) {
  pthread_mutex_lock(&mutex);
  struct link_ring *ring = own_rings;
  while (ring && !has_handles(ring, session))
    ring = ring->next;
  if (ring) atomic_fetch_add(&ring->references, 1);
  pthread_mutex_unlock(&mutex);
  return ring;
}

static int open_slot(struct gpu_device *gpu, const struct wire_cipd_handles *handles,
                     uint64_t bytes, struct link_ring_slot *slot) {
  static const uint8_t none[WIRE_CIPD_HANDLE_SIZE];
  struct gpu_shared shared = {.handle = OS_NO_HANDLE};
  memcpy(shared.ipc, handles->memory, sizeof shared.ipc);
  int status = gpu->operations->block_import(gpu, &shared, bytes, false, &slot->block);
  if (status < 0 || memcmp(handles->event, none, sizeof none) == 0) return status;
  return gpu->operations->legacy->event_import(gpu, handles->event, &slot->event);
}

int link_ring_open(struct link_ring_device *device, const struct wire_cipd_session *session,
                   struct link_ring **opened) {
  *opened = find_own(session);
  if (*opened) return CUDALINK_OK;
  struct link_ring *ring = new_ring(device, session->layout.slots);
  if (!ring) return CUDALINK_ERROR_NO_MEMORY;
  int status = CUDALINK_OK;
  for (uint32_t i = 0; i < ring->slots && status == CUDALINK_OK; i++)
    status =
        open_slot(device->gpu, &session->handles[i], session->format.data_size, &ring->slot[i]);
  if (status < 0) {
    reaper_call(free_ring, ring);
    return status;
  }
  *opened = ring;
  return CUDALINK_OK;
}

/* ---- letting go ------------------------------------------------------------------------------------ */

static void unlist(struct link_ring *ring) {
  struct link_ring **link = &own_rings;
  while (*link && *link != ring)
    link = &(*link)->next;
  if (*link) *link = ring->next;
}

void link_ring_drop(struct link_ring *ring) {
  if (!ring) return;
  pthread_mutex_lock(&mutex); /* find_own must not take up one that goes */
  bool last = atomic_fetch_sub(&ring->references, 1) == 1;
  if (last) unlist(ring);
  pthread_mutex_unlock(&mutex);
  if (last) reaper_call(free_ring, ring);
}

static struct link_ring *next_due(uint64_t now, uint64_t *next) {
  pthread_mutex_lock(&mutex);
  struct link_ring *ring = retired;
  *next = ring ? ring->due : OS_FOREVER;
  if (ring && ring->due <= now) {
    retired = ring->retired_next;
    if (!retired) last_retired = &retired;
  } else {
    ring = NULL;
  }
  pthread_mutex_unlock(&mutex);
  return ring;
}

static void look(struct service_timer *timer) {
  uint64_t next;
  for (struct link_ring *ring; (ring = next_due(os_now(), &next));)
    link_ring_drop(ring);
  if (next != OS_FOREVER) service_timer_set(timer, look, next);
}

static struct service_timer timer;
static void start_looking(struct service_work *work) {
  (void)work;
  look(&timer);
}

void link_ring_retire(struct link_ring *ring) {
  static struct service_work work = {.run = start_looking};
  if (!ring) return;
  ring->due = os_deadline(LINK_RING_GRACE);
  ring->retired_next = NULL;
  pthread_mutex_lock(&mutex);
  *last_retired = ring;
  last_retired = &ring->retired_next;
  pthread_mutex_unlock(&mutex);
  service_post(&work);
}
