/* SPDX-License-Identifier: MIT
 *
 * Slots that are kept mapped: one record per block, with a count of its holders. There are few, and
 * nobody looks at them while frames flow, so it is a list behind one mutex.
 *
 * Order of locks: an exporter's, then this one. Nothing is called with this one held.
 */
#include "link/keep.h"

#include <stdlib.h>

#include "cudalink/hold.h"
#include "link/exporter.h"
#include "link/reaper.h"

struct cudalink_slot_hold {
  struct cudalink_slot_hold *next;
  uint32_t holders;
  bool ending;    /* `end` is queued */
  void *address;  /* the block's */
  void *metadata; /* GPU kinds: the segment with user data; else NULL */
  struct gpu_device *device;
  /* Taken over from the reaper. */
  struct gpu_block block;
  struct os_segment segment;
  bool closes_device;
};

static struct {
  pthread_mutex_t mutex;
  struct cudalink_slot_hold *first;
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- the reaper's questions ----------------------------------------------------------------------- */

bool keep_block(struct gpu_block *block) {
  bool found = false;
  pthread_mutex_lock(&kept.mutex);
  for (cudalink_slot_hold *hold = kept.first; hold && !found; hold = hold->next) {
    found = hold->address == block->address && hold->device == block->device;
    if (found) hold->block = *block;
  }
  pthread_mutex_unlock(&kept.mutex);
  return found;
}

bool keep_segment(struct os_segment *segment) {
  bool found = false;
  pthread_mutex_lock(&kept.mutex);
  for (cudalink_slot_hold *hold = kept.first; hold && !found; hold = hold->next) {
    found = hold->metadata == segment->address;
    if (found) hold->segment = *segment;
  }
  pthread_mutex_unlock(&kept.mutex);
  return found;
}

/* Under the mutex. Whose record it is does not matter: the last one of the device closes it. */
static bool leave_device(struct gpu_device *device) {
  for (cudalink_slot_hold *hold = kept.first; hold; hold = hold->next) {
    if (hold->device != device) continue;
    hold->closes_device = true;
    return true;
  }
  return false;
}

bool keep_device(struct gpu_device *device) {
  pthread_mutex_lock(&kept.mutex);
  bool found = leave_device(device);
  pthread_mutex_unlock(&kept.mutex);
  return found;
}

/* ---- holds ------------------------------------------------------------------------------------------ */

static cudalink_slot_hold *make(const struct link_generation *generation) {
  cudalink_slot_hold *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->address = generation->block.address;
  made->metadata = generation->metadata.address;
  made->device = generation->block.device;
  made->block.shared.handle = made->segment.handle = OS_NO_HANDLE;
  made->next = kept.first;
  kept.first = made;
  return made;
}

static cudalink_slot_hold *take(const struct link_generation *generation) {
  pthread_mutex_lock(&kept.mutex);
  cudalink_slot_hold *hold = kept.first;
  while (hold &&
         (hold->address != generation->block.address || hold->device != generation->block.device))
    hold = hold->next;
  if (!hold) hold = make(generation);
  if (hold) hold->holders++;
  pthread_mutex_unlock(&kept.mutex);
  return hold;
}

int cudalink_slot_hold_take(cudalink_slot_hold **hold, cudalink_exporter handle,
                            const cudalink_slot *slot) {
  static const char call[] = "cudalink_slot_hold_take";
  struct link_exporter *exporter = NULL;
  if (!hold) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: a NULL was given", call);
  int status = link_lock_begun(handle, slot, call, &exporter);
  if (status < 0) return status;
  if (exporter->only)
    status = error_set(CUDALINK_ERROR_UNSUPPORTED,
                       "channel '%s': %s: memory of the old wire alone can't be kept",
                       exporter->name, call);
  else if (!(*hold = take(exporter->begun_generation)))
    status = error_set(CUDALINK_ERROR_NO_MEMORY, "channel '%s': %s: no memory for a hold",
                       exporter->name, call);
  link_object_unlock(exporter);
  return status;
}

cudalink_slot_hold *cudalink_slot_hold_retain(cudalink_slot_hold *hold) {
  if (!hold) return hold;
  pthread_mutex_lock(&kept.mutex);
  hold->holders++;
  pthread_mutex_unlock(&kept.mutex);
  return hold;
}

/* Under the mutex. */
static void unlink_hold(const cudalink_slot_hold *hold) {
  cudalink_slot_hold **link = &kept.first;
  while (*link != hold)
    link = &(*link)->next;
  *link = hold->next;
}

/* On the reaper, which asks its questions between two such calls: a device that it was to close before
 * this block was destroyed has found the record. */
static void end(void *argument) {
  cudalink_slot_hold *hold = argument;
  pthread_mutex_lock(&kept.mutex);
  hold->ending = false;
  bool last = hold->holders == 0; /* else somebody took it again meanwhile */
  if (last) unlink_hold(hold);
  bool closes = last && hold->closes_device && !leave_device(hold->device);
  pthread_mutex_unlock(&kept.mutex);
  if (!last) return;
  if (hold->block.address) hold->device->operations->block_destroy(&hold->block);
  if (hold->segment.address) os_segment_destroy(&hold->segment);
  if (closes) gpu_device_close(hold->device);
  free(hold);
}

void cudalink_slot_hold_drop(void *pointer) {
  cudalink_slot_hold *hold = pointer;
  if (!hold || os_forked()) return; /* a forked child's copy is dead */
  pthread_mutex_lock(&kept.mutex);
  bool ends = --hold->holders == 0 && !hold->ending;
  if (ends) hold->ending = true;
  pthread_mutex_unlock(&kept.mutex);
  if (ends) reaper_call(end, hold);
}
