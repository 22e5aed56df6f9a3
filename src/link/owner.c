/* SPDX-License-Identifier: MIT
 *
 * Owners of what was sent, kept until the copies have run: until the ready words of all frames that were
 * there by then have landed. These words are looked at anyway, so nothing is asked of the driver.
 *
 * A slot is owned for a newer frame only once its older work has landed, in whatever generation. So the
 * oldest frame that is in some slot and has not landed is the oldest one under way.
 */
#include <stdlib.h>

#include "link/exporter.h"
#include "link/reaper.h"

#define ASK_STEP 100000000 /* ns between two questions whether the GPU is lost */

#define ROW 8 /* slots; most channels have no more */

static bool any_queued(const uint64_t queued_in[ROW]) {
  uint64_t any = 0;
  for (uint32_t s = 0; s < ROW; s++)
    any |= queued_in[s];
  return any != 0;
}

static uint64_t oldest_under_way(const struct link_exporter *exporter) {
  uint64_t oldest = UINT64_MAX;
  if (exporter->lost) return oldest; /* a dead context runs nothing */
  for (uint32_t row = 0; row < WIRE_MAX_SLOTS; row += ROW) {
    if (!any_queued(&exporter->queued_in[row])) continue;
    for (uint32_t s = row; s < row + ROW; s++) {
      uint64_t queued = exporter->queued_in[s];
      if (queued && queued < oldest && !link_slot_landed(exporter, s)) oldest = queued;
    }
  }
  return oldest;
}

void link_owner_collect(struct link_exporter *exporter) {
  if (!exporter->owners) return;
  uint64_t oldest = oldest_under_way(exporter);
  struct link_owner **end = &exporter->let_go;
  while (*end)
    end = &(*end)->next;
  while (exporter->owners && exporter->owners->sequence < oldest) {
    *end = exporter->owners;
    exporter->owners = (*end)->next;
    end = &(*end)->next;
    *end = NULL;
  }
}

/* Runs code of the program's: with no lock held, and not on the service thread. */
static void tell(void *argument) {
  struct link_owner *record = argument;
  record->drop(record->owner);
  free(record);
}

static struct link_owner *take_let_go(struct link_exporter *exporter) {
  struct link_owner *record = exporter->let_go;
  exporter->let_go = NULL;
  return record;
}

void link_owner_unlock(struct link_exporter *exporter) {
  struct link_owner *record = take_let_go(exporter);
  link_share_unlock(exporter);
  while (record) {
    struct link_owner *next = record->next;
    tell(record);
    record = next;
  }
}

/* ---- after close ------------------------------------------------------------------------------------ */

/* On the reaper, which may call the driver. The record stays while this is under way. */
static void ask(void *argument) {
  struct link_exporter *exporter = argument;
  struct gpu_device *device = exporter->device;
  int status = device->operations->stream_probe(device, exporter->copy_stream);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->asking = false;
  exporter->lost |= status == CUDALINK_ERROR_GPU_LOST;
  pthread_mutex_unlock(&exporter->object.mutex);
}

/* A lost GPU writes no words. */
static void ask_at_times(struct link_exporter *exporter) {
  uint64_t now = os_now();
  if (!exporter->copy_stream.kind || !exporter->device->operations->stream_probe) return;
  if (exporter->asking || now - exporter->asked_at < ASK_STEP) return;
  exporter->asking = true;
  exporter->asked_at = now;
  reaper_call(ask, exporter);
}

void link_owner_close(struct link_exporter *exporter) {
  link_owner_collect(exporter);
  struct link_owner *record = take_let_go(exporter);
  while (record) {
    struct link_owner *next = record->next;
    reaper_call(tell, record);
    record = next;
  }
  if (exporter->owners) ask_at_times(exporter);
}

/* ---- the call ---------------------------------------------------------------------------------------- */

static void append(struct link_exporter *exporter, struct link_owner *record) {
  record->sequence = exporter->last_sequence;
  if (exporter->owners)
    exporter->newest_owner->next = record;
  else
    exporter->owners = record;
  exporter->newest_owner = record;
}

/* Also of a closed exporter, until nothing is under way any more. */
static int lock_until_over(cudalink_exporter handle, const char *call,
                           struct link_exporter **locked) {
  int status = service_check_fork();
  if (status < 0) return status;
  struct link_exporter *exporter = link_table_lock(&link_exporters, handle.id);
  if (exporter && !exporter->over && !exporter->only) {
    *locked = exporter;
    return CUDALINK_OK;
  }
  if (exporter) link_object_unlock(exporter);
  if (exporter && !exporter->over)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "%s: on the old wire alone nothing says how far a copy is; keep what was sent "
                     "until its stream has come so far",
                     call);
  return error_set(CUDALINK_ERROR_CLOSED, "%s: the exporter is closed, and its copies are done",
                   call);
}

int cudalink_exporter_keep(cudalink_exporter handle, void *owner, void (*drop)(void *owner)) {
  static const char call[] = "cudalink_exporter_keep";
  struct link_exporter *exporter = NULL;
  if (!drop) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: drop is NULL", call);
  struct link_owner *record = malloc(sizeof *record);
  if (!record) return error_set(CUDALINK_ERROR_NO_MEMORY, "%s: no memory to remember it", call);
  *record = (struct link_owner){.owner = owner, .drop = drop};
  int status = lock_until_over(handle, call, &exporter);
  if (status < 0) {
    free(record);
    return status;
  }
  append(exporter, record);
  link_owner_collect(exporter);
  /* A close that is under way may have set no time to look. */
  if (exporter->closing && exporter->owners) service_post(&exporter->tell_work);
  link_exporter_unlock(exporter);
  return CUDALINK_OK;
}
