/* SPDX-License-Identifier: MIT
 *
 * Reading held frames out: at once, or in the background behind which the frame is given back.
 *
 * A copy under way is a record of the importer; its handle is the importer's id and the record's
 * number. The lease keeps the memory while the copy is queued, the word that is queued behind the copy
 * from then on.
 */
#include <string.h>

#include "base/nvtx.h"
#include "link/cipd/reader.h"

int cudalink_frame_to_host(const cudalink_frame *frame, void *out, uint64_t size) {
  NVTX_RANGE("cudalink.importer.to_host", frame ? frame->slot : NVTX_NO_SLOT);
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  static const char call[] = "cudalink_frame_to_host";
  if (!out) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: out is NULL", call);
  if (link_frame_is_old(frame)) return link_reader_to_host(frame, out, size);
  int status = link_held_readable(frame, call, true, &attachment, &e);
  if (status < 0) return status;
  struct link_importer *importer = attachment->importer;
  struct gpu_device *device = attachment->mappings[attachment->entries[e].mapping].block.device;
  importer->inside++; /* keeps the record */
  link_object_unlock(importer);
  /* The lease keeps the memory; the caller does not release it during this call. */
  NVTX_INNER_RANGE("cudalink.importer.d2h_copy");
  status = device->operations->pack_to_host(device, &frame->description, frame->data, out, size);
  pthread_mutex_lock(&importer->object.mutex);
  importer->inside--;
  if (status == CUDALINK_OK) importer->statistics.copies++;
  if (importer->closing) service_post(&importer->work);
  link_object_unlock(importer);
  return status;
}

/* ---- in the background ---------------------------------------------------------------------------- */

static struct link_host_copy *find_idle(struct link_importer *importer) {
  uint32_t most = importer->spec.host_pipelined ? LINK_HOST_COPIES : 1;
  /* They take turns, so that what the one before read stays as it is for one copy longer. */
  struct link_host_copy *next = &importer->host_copies[importer->host_copy_number % most];
  return next->number ? NULL : next;
}

/* Queues the copy without the mutex; the caller does not release the frame during this call. */
static int queue(struct link_importer *importer, struct link_host_copy *record,
                 const cudalink_frame *frame, cudalink_host_copy *copy, cudalink_stream *behind) {
  struct gpu_device *device = record->device;
  uint32_t which = (uint32_t)(record - importer->host_copies);
  importer->inside++; /* keeps the importer's record */
  pthread_mutex_unlock(&importer->object.mutex);
  int status = device->operations->host_begin(device, which, &frame->description, frame->data,
                                              &copy->data, &copy->bytes, behind);
  pthread_mutex_lock(&importer->object.mutex);
  importer->inside--;
  if (importer->closing) service_post(&importer->work);
  return status;
}

/* The frame is still held then. */
static int begin_failed(struct link_importer *importer, struct link_host_copy *record, int status) {
  record->number = 0;
  link_object_unlock(importer);
  return status;
}

int cudalink_frame_to_host_begin(cudalink_frame *frame, void *out, uint64_t size,
                                 cudalink_host_copy *copy) {
  struct link_attachment *attachment = NULL;
  uint32_t e = 0;
  static const char call[] = "cudalink_frame_to_host_begin";
  if (!copy) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: copy is NULL", call);
  *copy = (cudalink_host_copy){.data = out, .bytes = size};
  if (link_frame_is_old(frame))
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "%s: a frame of the old wire can't be proven in the background; use "
                     "cudalink_frame_to_host",
                     call);
  int status = link_held_readable(frame, call, true, &attachment, &e);
  if (status < 0) return status;
  struct link_importer *importer = attachment->importer;
  struct link_host_copy *record = find_idle(importer);
  cudalink_stream behind;
  if (!record) {
    status = error_set(CUDALINK_ERROR_BUSY,
                       "channel '%s': %s: as many copies as may be are under way; finish the "
                       "oldest, or open with host_pipelined",
                       importer->name, call);
    link_object_unlock(importer);
    return status;
  }
  if (!++importer->host_copy_number) importer->host_copy_number = LINK_HOST_COPIES; /* never 0 */
  uint32_t number = record->number = importer->host_copy_number;
  record->device = attachment->mappings[attachment->entries[e].mapping].block.device;
  copy->sequence = attachment->entries[e].sequence;
  uint64_t word = attachment->entries[e].word;
  status = queue(importer, record, frame, copy, &behind);
  if (status < 0) return begin_failed(importer, record, status);
  uint32_t count = behind.kind == CUDALINK_STREAM_KIND_COMPLETE ? 0 : 1;
  if (attachment->entries[e].word == word)
    status = link_held_release(attachment, e, frame, &behind, count);
  else
    status =
        error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                  "channel '%s': %s: the frame was released during the call", importer->name, call);
  if (status < 0) {
    record->device->operations->host_finish(record->device,
                                            (uint32_t)(record - importer->host_copies));
    return begin_failed(importer, record, status);
  }
  importer->statistics.copies++;
  copy->id = atomic_load_explicit(&importer->object.id, memory_order_relaxed);
  copy->id = copy->id << 32 | number;
  link_object_unlock(importer);
  return CUDALINK_OK;
}

int cudalink_frame_to_host_finish(cudalink_host_copy *copy) {
  static const char call[] = "cudalink_frame_to_host_finish";
  int status;
  if (!copy || !copy->id)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: no copy is under way", call);
  struct link_importer *importer =
      link_importer_lock((cudalink_importer){(uint32_t)(copy->id >> 32)}, call, &status);
  if (!importer) return status;
  struct link_host_copy *record = NULL;
  for (uint32_t i = 0; i < LINK_HOST_COPIES; i++)
    if (importer->host_copies[i].number == (uint32_t)copy->id) record = &importer->host_copies[i];
  if (!record || !(uint32_t)copy->id) {
    link_object_unlock(importer);
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "%s: the copy of frame %llu was finished "
                     "before",
                     call, (unsigned long long)copy->sequence);
  }
  struct gpu_device *device = record->device;
  importer->inside++; /* keeps record and device */
  link_object_unlock(importer);
  status = device->operations->host_finish(device, (uint32_t)(record - importer->host_copies));
  pthread_mutex_lock(&importer->object.mutex);
  importer->inside--;
  if (record->number == (uint32_t)copy->id) record->number = 0;
  if (importer->closing) service_post(&importer->work);
  link_object_unlock(importer);
  copy->id = 0;
  return status;
}
