/* SPDX-License-Identifier: MIT
 *
 * Exporters that have nothing but the old wire: its slots are lent in strict rotation. Nobody joins
 * them, so most of an exporter is missing here.
 */
#include <stdio.h>
#include <string.h>

#include "link/exporter.h"

#define LOOK_STEP 100000 /* ns: a GPU wakes nobody */

static int check_spec(const cudalink_exporter_spec *spec) {
  if (!spec->cipd_name)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': cipd_only needs a cipd_name",
                     spec->name);
  if (spec->kind != CUDALINK_KIND_AUTO && spec->kind != CUDALINK_KIND_IPC)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': kind %s, but the old wire shares GPU memory by legacy handle: "
                     "with cipd_only say auto or ipc",
                     spec->name, cudalink_kind_name(spec->kind));
  if (spec->user_size)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': user_size %u, but the old wire carries no user data",
                     spec->name, spec->user_size);
  return CUDALINK_OK;
}

/* Under the mutex, by who has begun: nobody else looks into the outlet. */
static void account(struct link_exporter *exporter) {
  cudalink_exporter_statistics *statistics = &exporter->statistics;
  const struct link_outlet *outlet = exporter->outlet;
  const struct link_ring *ring = outlet->ring;
  link_outlet_account(outlet, statistics);
  statistics->slots = outlet->session.layout.slots;
  statistics->memory_bytes = ring ? ring->slots * ring->slot[0].block.bytes : 0;
  statistics->generations = outlet->session.version;
}

int link_only_open(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  int status = check_spec(spec);
  if (status == CUDALINK_OK) status = link_outlet_open(&exporter->outlet, spec, spec->device);
  if (status == CUDALINK_OK) exporter->device = exporter->outlet->device->gpu;
  return status;
}

int link_only_start(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  int status = link_outlet_start(exporter->outlet, spec->description);
  if (status == CUDALINK_OK) account(exporter);
  return status;
}

static int held_back(const struct link_exporter *exporter) {
  return error_set(
      CUDALINK_ERROR_BUSY,
      "channel '%s': a TouchDesigner sender is starting up; frames are held back until "
      "it has (cipd_ignore_barrier ignores that)",
      exporter->name);
}

static int not_landed(const struct link_exporter *exporter) {
  return error_set(CUDALINK_ERROR_BUSY,
                   "channel '%s': the work on this slot's last frame, %u frame%s ago, is not done; "
                   "give more time, or more cipd_slots",
                   exporter->name, exporter->outlet->ring->slots,
                   error_s(exporter->outlet->ring->slots));
}

/* Waits for the slot's own work: readers are not waited for, nobody knows them. */
static int lend(struct link_exporter *exporter, uint64_t deadline, void **data) {
  for (;;) {
    uint32_t seen = atomic_load(&exporter->changed);
    int status = link_outlet_lend(exporter->outlet, data);
    if (status != CUDALINK_ERROR_BUSY) return status;
    if (exporter->closing)
      return error_set(CUDALINK_ERROR_CLOSED, "the exporter was closed while begin waited");
    uint64_t now = os_now(), until = now + LOOK_STEP;
    if (now >= deadline) return not_landed(exporter);
    pthread_mutex_unlock(&exporter->object.mutex);
    os_sleep_on(&exporter->changed, seen, until < deadline ? until : deadline, false);
    pthread_mutex_lock(&exporter->object.mutex);
  }
}

int link_only_begin(struct link_exporter *exporter, uint64_t deadline, cudalink_slot *slot) {
  struct link_outlet *outlet = exporter->outlet;
  void *data = NULL;
  pthread_mutex_unlock(&exporter->object.mutex);
  int status = link_outlet_prepare(outlet, &exporter->description, exporter->look);
  bool held = status == CUDALINK_OK && link_outlet_held_back(outlet);
  pthread_mutex_lock(&exporter->object.mutex);
  if (held) status = held_back(exporter);
  if (status == CUDALINK_OK) status = lend(exporter, deadline, &data);
  account(exporter);
  if (status == CUDALINK_ERROR_BUSY) exporter->statistics.dropped++;
  if (status < 0) {
    exporter->last_sequence--; /* nobody has seen the number */
    return status;
  }
  *slot = (cudalink_slot){.sequence = exporter->begun_sequence,
                          .bytes = outlet->frame_bytes,
                          .index = link_outlet_slot(outlet),
                          .generation = (uint32_t)outlet->session.version,
                          .data = data};
  return CUDALINK_OK;
}

static void end(struct link_exporter *exporter) {
  account(exporter);
  exporter->begun = LINK_IDLE;
}

int link_only_publish(struct link_exporter *exporter, cudalink_stream stream) {
  struct link_outlet *outlet = exporter->outlet;
  uint64_t now = os_now();
  int status = link_outlet_record(outlet, stream);
  if (status < 0) return status;
  outlet->copied = true; /* it was rendered there */
  link_outlet_show(outlet, now);
  exporter->statistics.published++;
  exporter->statistics.bytes += exporter->description_bytes;
  exporter->newest_timestamp = now;
  end(exporter);
  return CUDALINK_OK;
}

/* The same slot is lent again, once the stream has come so far. */
int link_only_abandon(struct link_exporter *exporter, cudalink_stream stream) {
  int status = exporter->device->operations->stream_check(exporter->device, stream);
  if (status == CUDALINK_OK) status = link_outlet_record(exporter->outlet, stream);
  if (status < 0) return status;
  exporter->statistics.abandoned++;
  exporter->last_sequence--; /* nobody has seen the number */
  end(exporter);
  return CUDALINK_OK;
}

void link_only_count(cudalink_exporter_statistics *statistics) {
  statistics->kind = CUDALINK_KIND_IPC;
  snprintf(statistics->path, sizeof statistics->path, "cipd, gpu ipc handle");
  snprintf(statistics->reason, sizeof statistics->reason, "cipd_only was asked for");
}
