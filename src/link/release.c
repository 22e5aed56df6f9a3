/* SPDX-License-Identifier: MIT
 *
 * Frames that a program holds: giving them back, asking how they are, reading them out.
 *
 * The lease in a cudalink_frame is a number (attachment id, entry, serial), so that releasing twice,
 * or after the importer was closed, is safe.
 */
#include <string.h>

#include "base/nvtx.h"
#include "link/cipd/reader.h"

#define PENDING_STEP 50000 /* ns: a GPU wakes nobody */

static struct link_importer *importer_of(uint64_t lease, struct link_attachment **attachment) {
  uint32_t id = (uint32_t)(lease >> 32);
  *attachment = id ? link_table_at(&link_attachments, id % LINK_TABLE_SIZE) : NULL;
  if (!*attachment) return NULL;
  /* acquire: pairs with link_attachment_make. Records are never freed, so a stale one is only a
   * wrong mutex to hold, which is_held notices. */
  return atomic_load_explicit(&(*attachment)->importer, memory_order_acquire);
}

/* With the importer locked. */
static bool is_held(const struct link_attachment *attachment, const struct link_importer *importer,
                    uint64_t lease, uint32_t *entry) {
  *entry = (uint32_t)(lease >> 24 & 0xffu);
  if (*entry >= WIRE_MAX_ENTRIES) return false;
  const struct link_entry *found = &attachment->entries[*entry];
  return atomic_load(&attachment->importer) == importer &&
         atomic_load(&attachment->object.id) == (uint32_t)(lease >> 32) && found->word &&
         (found->serial & LINK_SERIAL_MASK) == (lease & LINK_SERIAL_MASK);
}

/* The entry of a lease that is held, with its importer locked. */
static struct link_attachment *lock_lease(uint64_t lease, uint32_t *entry) {
  struct link_attachment *attachment;
  struct link_importer *importer = importer_of(lease, &attachment);
  if (!importer) return NULL;
  pthread_mutex_lock(&importer->object.mutex);
  if (is_held(attachment, importer, lease, entry)) return attachment;
  pthread_mutex_unlock(&importer->object.mutex);
  return NULL;
}

static int find(const cudalink_frame *frame, const char *call, struct link_attachment **attachment,
                uint32_t *entry) {
  if (!frame) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: frame is NULL", call);
  int status = service_check_fork();
  if (status < 0) return status;
  *attachment = lock_lease(frame->lease, entry);
  if (*attachment) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "%s: lease 0x%llx is not held; was the frame released already?", call,
                   (unsigned long long)frame->lease);
}

static uint64_t described_sequence(const struct link_attachment *attachment,
                                   const struct link_entry *entry) {
  const struct link_mapping *mapping = &attachment->mappings[entry->mapping];
  const struct wire_header *header = (const void *)link_mapping_metadata(mapping, entry->slot);
  return header->sequence;
}

/* An announced frame that will never come. */
static bool is_void(const struct link_attachment *attachment, const struct link_entry *entry) {
  if (!entry->next) return false;
  /* acquire: pairs with the producer's release store in link_void. */
  uint64_t index = atomic_load_explicit(
      &attachment->control->index[entry->sequence % WIRE_INDEX_SIZE], memory_order_acquire);
  if (wire_index_sequence(index) < entry->sequence) return false;
  if (wire_index_sequence(index) == entry->sequence) return wire_index_void(index);
  return described_sequence(attachment, entry) != entry->sequence; /* 64 frames ago or more */
}

static uint32_t flags_of(struct link_attachment *attachment, struct link_entry *entry) {
  if (!(entry->flags & CUDALINK_FRAME_PENDING)) return entry->flags;
  if (link_is_ready(attachment, entry->slot, entry->sequence) || is_void(attachment, entry) ||
      (entry->flags & CUDALINK_FRAME_LOST))
    entry->flags &= ~(uint32_t)CUDALINK_FRAME_PENDING;
  return entry->flags;
}

/* What the program should know about the frame that it has just given back. */
static int verdict(uint32_t flags, bool skipped, uint64_t sequence) {
  if (flags & CUDALINK_FRAME_LOST)
    return error_set(CUDALINK_ERROR_LOST,
                     "frame %llu: its pixels were not complete when the producer died, or when "
                     "gpu_wait_limit had passed; what was read may be half a frame",
                     (unsigned long long)sequence);
  if (skipped)
    return error_set(CUDALINK_ERROR_SKIPPED, "frame %llu was announced but never published",
                     (unsigned long long)sequence);
  return CUDALINK_OK;
}

/* Was this the last frame that kept an old generation, or a finished connection, mapped? */
static void tidy(struct link_attachment *attachment, const struct link_mapping *mapping) {
  if (attachment->over) {
    link_attachment_settle(attachment);
    return;
  }
  uint64_t current = atomic_load_explicit(&attachment->control->gen, memory_order_relaxed);
  if ((mapping->number & WIRE_GENERATION_MASK) != current) link_mapping_collect(attachment);
}

/* With the importer locked, and the streams checked. */
int link_held_release(struct link_attachment *attachment, uint32_t e, cudalink_frame *frame,
                      const cudalink_stream *streams, uint32_t count) {
  struct link_entry *entry = &attachment->entries[e];
  struct link_mapping *mapping = &attachment->mappings[entry->mapping];
  uint32_t flags = flags_of(attachment, entry);
  bool skipped = is_void(attachment, entry);
  uint64_t sequence = entry->sequence;
  int status = link_lease_release(attachment, e, streams, count);
  if (status < 0) return status;
  frame->lease = 0;
  tidy(attachment, mapping);
  return verdict(flags, skipped, sequence);
}

static int check_streams(struct gpu_device *device, const cudalink_stream *streams,
                         uint32_t count) {
  int status = CUDALINK_OK;
  for (uint32_t i = 0; i < count && status == CUDALINK_OK; i++)
    status = device->operations->stream_check(device, streams[i]);
  return status;
}

static struct gpu_device *device_of(const struct link_attachment *attachment, uint32_t e) {
  return attachment->mappings[attachment->entries[e].mapping].block.device;
}

/* A frame of the old wire? */
bool link_frame_is_old(const cudalink_frame *frame) {
  return frame && (frame->lease & LINK_READER_LEASE);
}

int link_frame_release(cudalink_frame *frame, const char *call, const cudalink_stream *streams,
                       uint32_t count) {
  if (link_frame_is_old(frame)) return link_reader_release(frame, call, streams, count);
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  int status = find(frame, call, &attachment, &e);
  if (status < 0) return status;
  struct link_importer *importer = attachment->importer;
  if (count == 1 && streams[0].kind == CUDALINK_STREAM_KIND_COMPLETE) count = 0;
  if (count) status = check_streams(device_of(attachment, e), streams, count);
  if (status == CUDALINK_OK) status = link_held_release(attachment, e, frame, streams, count);
  link_object_unlock(importer);
  return status;
}

int cudalink_frame_release(cudalink_frame *frame, cudalink_stream stream) {
  NVTX_RANGE("cudalink.importer.release", frame ? frame->slot : NVTX_NO_SLOT);
  return link_frame_release(frame, "cudalink_frame_release", &stream, 1);
}

bool link_frame_try_release(cudalink_frame *frame) {
  if (link_frame_is_old(frame)) return link_reader_try_release(frame);
  struct link_attachment *attachment;
  uint32_t e;
  struct link_importer *importer = importer_of(frame->lease, &attachment);
  if (!importer || pthread_mutex_trylock(&importer->object.mutex) != 0) return false;
  if (is_held(attachment, importer, frame->lease, &e))
    link_held_release(attachment, e, frame, NULL, 0);
  pthread_mutex_unlock(&importer->object.mutex);
  return true;
}

int link_frame_check(const cudalink_frame *frame, cudalink_stream stream) {
  if (link_frame_is_old(frame)) return link_reader_check(frame, "cudalink_hold_use", stream);
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  int status = find(frame, "cudalink_hold_use", &attachment, &e);
  if (status < 0) return status;
  struct link_importer *importer = attachment->importer;
  status = check_streams(device_of(attachment, e), &stream, 1);
  link_object_unlock(importer);
  return status;
}

int cudalink_frame_flags(const cudalink_frame *frame, uint32_t *flags) {
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  if (!flags)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_frame_flags: flags is NULL");
  if (link_frame_is_old(frame)) return link_reader_flags(frame, flags);
  int status = find(frame, "cudalink_frame_flags", &attachment, &e);
  if (status < 0) return status;
  *flags = flags_of(attachment, &attachment->entries[e]);
  link_object_unlock(attachment->importer);
  return CUDALINK_OK;
}

/* Finds the frame, with its pixels complete: waits for them without the mutex. Bounded: the service
 * thread ends what does not come as LOST. */
static int find_complete(const cudalink_frame *frame, const char *call,
                         struct link_attachment **attachment, uint32_t *entry, uint32_t *flags) {
  int status = find(frame, call, attachment, entry);
  while (status == CUDALINK_OK) {
    *flags = flags_of(*attachment, &(*attachment)->entries[*entry]);
    if (!(*flags & CUDALINK_FRAME_PENDING)) break;
    _Atomic uint32_t nobody = 0;
    link_object_unlock((*attachment)->importer);
    os_sleep_on(&nobody, 0, os_deadline(PENDING_STEP), false);
    status = find(frame, call, attachment, entry);
  }
  return status;
}

static int wait_by_cpu(const cudalink_frame *frame, const char *call) {
  struct link_attachment *attachment = NULL;
  uint32_t e = 0, flags = 0;
  int status = find_complete(frame, call, &attachment, &e, &flags);
  if (status < 0) return status;
  status =
      verdict(flags, is_void(attachment, &attachment->entries[e]), attachment->entries[e].sequence);
  link_object_unlock(attachment->importer);
  return status;
}

int cudalink_frame_wait(const cudalink_frame *frame, cudalink_stream stream) {
  static const char call[] = "cudalink_frame_wait";
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  if (link_frame_is_old(frame)) return link_reader_wait(frame, call, stream);
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return wait_by_cpu(frame, call);
  int status = find(frame, call, &attachment, &e);
  if (status < 0) return status;
  struct link_importer *importer = attachment->importer;
  struct link_entry *entry = &attachment->entries[e];
  status = check_streams(device_of(attachment, e), &stream, 1);
  uint32_t flags = flags_of(attachment, entry);
  if (!(flags & CUDALINK_FRAME_PENDING)) {
    if (status == CUDALINK_ERROR_CAPTURING) status = CUDALINK_OK; /* nothing is queued */
    if (status == CUDALINK_OK) status = verdict(flags, is_void(attachment, entry), entry->sequence);
  } else if (status == CUDALINK_OK) {
    /* Not behind the stream that acquire named: it may have been given more work since. */
    status = link_wait_queue(attachment, stream, entry->slot, entry->sequence);
  }
  link_object_unlock(importer);
  return status;
}

int link_held_readable(const cudalink_frame *frame, const char *call, bool wait,
                       struct link_attachment **attachment, uint32_t *e) {
  uint32_t flags = 0;
  int status =
      wait ? find_complete(frame, call, attachment, e, &flags) : find(frame, call, attachment, e);
  if (status < 0) return status;
  struct link_entry *entry = &(*attachment)->entries[*e];
  if (!wait) flags = flags_of(*attachment, entry);
  if (flags & CUDALINK_FRAME_INVALID)
    status = error_set(CUDALINK_ERROR_UNSUPPORTED, "frame %llu was published as invalid: %s",
                       (unsigned long long)entry->sequence, frame->text);
  else
    status = verdict(flags, is_void(*attachment, entry), entry->sequence);
  if (status < 0) link_object_unlock((*attachment)->importer);
  return status;
}

int link_frame_readable(const cudalink_frame *frame, const char *call, bool wait,
                        struct link_readable *readable) {
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  if (link_frame_is_old(frame))
    return error_set(
        CUDALINK_ERROR_UNSUPPORTED,
        "%s: the frame came by the old wire, where its producer writes on: copy it first", call);
  int status = link_held_readable(frame, call, wait, &attachment, &e);
  if (status < 0) return status;
  readable->device = device_of(attachment, e);
  readable->converts = atomic_load(&attachment->importer)->spec.convert != 0;
  link_object_unlock(attachment->importer);
  return CUDALINK_OK;
}
