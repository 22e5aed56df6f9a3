/* SPDX-License-Identifier: MIT
 *
 * Frames of an old producer that a program holds. Holding keeps the memory mapped, not the pixels: so
 * each frame is proven when its use is over.
 */
#include <string.h>

#include "link/cipd/reader.h"
#include "link/reaper.h"

#define SERIAL_MASK 0xffffffu
#define LANDED_STEP 1000000 /* ns */

/* ---- leases --------------------------------------------------------------------------------------- */

uint64_t link_reader_lease(const struct link_reader *reader, uint32_t entry) {
  uint64_t id = atomic_load_explicit(&reader->object.id, memory_order_relaxed);
  return id << 32 | LINK_READER_LEASE | (uint64_t)entry << 24 |
         (reader->entries[entry].serial & SERIAL_MASK);
}

static struct link_importer *importer_of(uint64_t lease, struct link_reader **reader) {
  uint32_t id = (uint32_t)(lease >> 32);
  *reader = id ? link_table_at(&link_readers, id % LINK_TABLE_SIZE) : NULL;
  if (!*reader) return NULL;
  /* acquire: pairs with join. Records are never freed, so a stale one is only a wrong mutex to hold,
   * which is_held notices. */
  return atomic_load_explicit(&(*reader)->importer, memory_order_acquire);
}

/* With the importer locked. */
static bool is_held(const struct link_reader *reader, const struct link_importer *importer,
                    uint64_t lease, uint32_t *entry) {
  *entry = (uint32_t)(lease >> 24 & 0x7fu);
  if (*entry >= CUDALINK_MAX_HOLD) return false;
  const struct link_reader_entry *found = &reader->entries[*entry];
  return atomic_load(&reader->importer) == importer &&
         atomic_load(&reader->object.id) == (uint32_t)(lease >> 32) &&
         found->hold == LINK_READER_HELD && (found->serial & SERIAL_MASK) == (lease & SERIAL_MASK);
}

/* The entry of a lease that is held, with its importer locked. */
static struct link_reader *lock_lease(uint64_t lease, uint32_t *entry) {
  struct link_reader *reader;
  struct link_importer *importer = importer_of(lease, &reader);
  if (!importer) return NULL;
  pthread_mutex_lock(&importer->object.mutex);
  if (is_held(reader, importer, lease, entry)) return reader;
  pthread_mutex_unlock(&importer->object.mutex);
  return NULL;
}

static int find(const cudalink_frame *frame, const char *call, struct link_reader **reader,
                uint32_t *entry) {
  int status = service_check_fork();
  if (status < 0) return status;
  *reader = lock_lease(frame->lease, entry);
  if (*reader) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "%s: lease 0x%llx is not held; was the frame released already?", call,
                   (unsigned long long)frame->lease);
}

/* ---- the proof ---------------------------------------------------------------------------------------- */

static int prove(struct link_reader *reader, struct link_reader_entry *entry) {
  struct link_importer *importer = reader->importer;
  uint32_t index = entry->index, slots = reader->session.layout.slots;
  if (wire_cipd_intact(reader->named.segment.address, &reader->session, index)) return CUDALINK_OK;
  if (!entry->overwritten) importer->statistics.overwritten++;
  entry->overwritten = true;
  if (slots == 1)
    return error_set(
        CUDALINK_ERROR_OVERWRITTEN,
        "channel '%s': frame %u can't be proven: its producer has one slot, which it may "
        "have been writing into; let it have 3",
        importer->name, index);
  return error_set(
      CUDALINK_ERROR_OVERWRITTEN,
      "channel '%s': frame %u may have been overwritten while it was used: its producer "
      "has gone on by more than %u frame%s, or away; be faster, or let it have more "
      "slots than %u",
      importer->name, index, slots - 2, error_s(slots - 2), slots);
}

void link_reader_collect(struct link_reader *reader) {
  for (uint32_t e = 0; e < CUDALINK_MAX_HOLD; e++) {
    struct link_reader_entry *entry = &reader->entries[e];
    if (entry->hold != LINK_READER_RELEASING) continue;
    const struct gpu_legacy_operations *legacy = entry->passed.device->operations->legacy;
    if (legacy->event_query(&entry->passed) == CUDALINK_ERROR_BUSY) continue;
    if (!entry->overwritten && prove(reader, entry) < 0)
      log_write(CUDALINK_LOG_WARNING, "%s", cudalink_last_error());
    entry->hold = LINK_READER_FREE;
  }
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

static bool releasing(const struct link_reader *reader) {
  for (uint32_t e = 0; e < CUDALINK_MAX_HOLD; e++)
    if (reader->entries[e].hold == LINK_READER_RELEASING) return true;
  return false;
}

/* The reaper: streams may still read the memory, and closing handles blocks. */
static void finish(void *argument) {
  struct link_reader *reader = argument;
  struct link_importer *importer = reader->importer;
  _Atomic uint32_t nobody = 0;
  pthread_mutex_lock(&importer->object.mutex);
  for (link_reader_collect(reader); releasing(reader); link_reader_collect(reader)) {
    pthread_mutex_unlock(&importer->object.mutex);
    os_sleep_on(&nobody, 0, os_deadline(LANDED_STEP), false);
    pthread_mutex_lock(&importer->object.mutex);
  }
  pthread_mutex_unlock(&importer->object.mutex);
  const struct gpu_legacy_operations *legacy = reader->ring->device->gpu->operations->legacy;
  for (uint32_t e = 0; e < CUDALINK_MAX_HOLD; e++)
    if (reader->entries[e].passed.implementation) legacy->event_destroy(&reader->entries[e].passed);
  link_ring_drop(reader->ring);
  os_segment_destroy(&reader->named.segment);
  link_table_give(&link_readers, reader);
  pthread_mutex_lock(&importer->object.mutex);
  importer->attachments--;
  service_post(&importer->work);
  pthread_mutex_unlock(&importer->object.mutex);
}

void link_reader_settle(struct link_reader *reader) {
  if (!reader->over || reader->held || reader->calls || reader->finishing) return;
  reader->finishing = true;
  reaper_call(finish, reader);
}

/* ---- the public calls -------------------------------------------------------------------------------------- */

static int check_streams(struct gpu_device *gpu, const cudalink_stream *streams, uint32_t count) {
  int status = CUDALINK_OK;
  for (uint32_t i = 0; i < count && status == CUDALINK_OK; i++)
    status = gpu->operations->stream_check(gpu, streams[i]);
  return status;
}

/* Behind all of them: a stream of the device's own waits for each. */
static int record(struct gpu_device *gpu, struct gpu_event *event, const cudalink_stream *streams,
                  uint32_t count) {
  const struct gpu_legacy_operations *legacy = gpu->operations->legacy;
  cudalink_stream own = legacy->stream_own(gpu);
  if (count == 1) return legacy->event_record(event, streams[0]);
  int status = CUDALINK_OK;
  for (uint32_t i = 0; i < count && status == CUDALINK_OK; i++) {
    status = legacy->event_record(event, streams[i]);
    if (status == CUDALINK_OK) status = legacy->event_wait(event, own);
  }
  return status == CUDALINK_OK ? legacy->event_record(event, own) : status;
}

/* Until the streams have come so far the entry is not free. */
static int leave_to_streams(struct link_reader *reader, struct link_reader_entry *entry,
                            const cudalink_stream *streams, uint32_t count) {
  struct gpu_device *gpu = reader->ring->device->gpu;
  int status = CUDALINK_OK;
  if (!entry->passed.implementation)
    status = gpu->operations->legacy->event_create(gpu, false, &entry->passed);
  return status == CUDALINK_OK ? record(gpu, &entry->passed, streams, count) : status;
}

/* With the importer locked. No stream: now. */
static int release_locked(struct link_reader *reader, uint32_t e, cudalink_frame *frame,
                          const cudalink_stream *streams, uint32_t count) {
  struct link_importer *importer = reader->importer;
  struct link_reader_entry *entry = &reader->entries[e];
  int status = count ? leave_to_streams(reader, entry, streams, count) : CUDALINK_OK;
  if (status < 0) return status;
  frame->lease = 0;
  status = prove(reader, entry);
  entry->hold = count ? LINK_READER_RELEASING : LINK_READER_FREE;
  reader->held--;
  importer->held--;
  link_importer_changed(importer);
  link_reader_settle(reader);
  return status;
}

int link_reader_release(cudalink_frame *frame, const char *call, const cudalink_stream *streams,
                        uint32_t count) {
  struct link_reader *reader = NULL;
  uint32_t e = 0;
  int status = find(frame, call, &reader, &e);
  if (status < 0) return status;
  struct link_importer *importer = reader->importer;
  status = check_streams(reader->ring->device->gpu, streams, count);
  if (count == 1 && streams[0].kind == CUDALINK_STREAM_KIND_COMPLETE) count = 0;
  if (status == CUDALINK_OK) status = release_locked(reader, e, frame, streams, count);
  link_object_unlock(importer);
  return status;
}

bool link_reader_try_release(cudalink_frame *frame) {
  struct link_reader *reader;
  uint32_t e;
  struct link_importer *importer = importer_of(frame->lease, &reader);
  if (!importer || pthread_mutex_trylock(&importer->object.mutex) != 0) return false;
  if (is_held(reader, importer, frame->lease, &e)) release_locked(reader, e, frame, NULL, 0);
  pthread_mutex_unlock(&importer->object.mutex);
  return true;
}

int link_reader_check(const cudalink_frame *frame, const char *call, cudalink_stream stream) {
  struct link_reader *reader = NULL;
  uint32_t e = 0;
  int status = find(frame, call, &reader, &e);
  if (status < 0) return status;
  status = check_streams(reader->ring->device->gpu, &stream, 1);
  link_object_unlock(reader->importer);
  return status;
}

/* Its pixels are complete since acquire: nothing is queued, so a capture may be under way. */
int link_reader_wait(const cudalink_frame *frame, const char *call, cudalink_stream stream) {
  int status = link_reader_check(frame, call, stream);
  return status == CUDALINK_ERROR_CAPTURING ? CUDALINK_OK : status;
}

int link_reader_flags(const cudalink_frame *frame, uint32_t *flags) {
  struct link_reader *reader = NULL;
  uint32_t e = 0;
  int status = find(frame, "cudalink_frame_flags", &reader, &e);
  if (status < 0) return status;
  *flags = 0; /* complete since acquire */
  link_object_unlock(reader->importer);
  return CUDALINK_OK;
}

int link_reader_to_host(const cudalink_frame *frame, void *out, uint64_t size) {
  struct link_reader *reader = NULL;
  uint32_t e = 0;
  int status = find(frame, "cudalink_frame_to_host", &reader, &e);
  if (status < 0) return status;
  struct link_importer *importer = reader->importer;
  struct gpu_device *gpu = reader->ring->device->gpu;
  struct link_reader_entry *entry = &reader->entries[e];
  const void *data =
      reader->ring->slot[wire_cipd_slot(entry->index, reader->ring->slots)].block.address;
  reader->calls++;
  link_object_unlock(importer);
  status = gpu->operations->pack_to_host(gpu, &reader->description, data, out, size);
  pthread_mutex_lock(&importer->object.mutex);
  reader->calls--;
  if (status == CUDALINK_OK) importer->statistics.copies++;
  if (status == CUDALINK_OK) status = prove(reader, entry);
  link_reader_settle(reader);
  link_object_unlock(importer);
  return status;
}
