/* SPDX-License-Identifier: MIT
 *
 * send: begin, copies, publish. The copies run on the stream that the caller names, or on the
 * library's own behind it; the words of the publish go where the copies went.
 */
#include <string.h>

#include "base/nvtx.h"
#include "link/send.h"

#define MOST_COPIES 4096 /* of one frame: each is a call of the driver */

/* What is sent: the layout of the description in one piece, or planes from several places. */
struct send {
  cudalink_exporter handle;
  struct link_exporter *exporter; /* once the frame is begun */
  const char *call;
  const cudalink_description *description;
  const void *data;               /* or */
  const cudalink_source *sources; /* one per plane */
  const void *user;
  cudalink_stream stream;
  cudalink_stream on; /* that the copies run on */
  bool checked;       /* the stream was; else its one copy does that */
  bool here;          /* the device's context is current anyway */
  bool queued;        /* something there may write to the slot */
};

void link_copy_user(void *target, const void *user, uint32_t bytes) {
  if (user)
    memcpy(target, user, bytes);
  else
    memset(target, 0, bytes);
}

/* ---- one plane as few copies -------------------------------------------------------------------- */

/* The widest run that is dense on both sides, and how many of one stride each; `outer` dimensions are
 * left of these. */
struct rows {
  uint64_t bytes, count, target_stride, source_stride;
  uint32_t outer;
};

static struct rows find_rows(const cudalink_plane *plane, const int64_t *strides) {
  uint64_t element = (uint64_t)plane->dtype.bits * plane->dtype.lanes; /* bits */
  uint64_t dense = element;
  uint32_t d = plane->dimensions;
  for (; d > 0; d--) {
    bool packed = element < 8 && d == plane->dimensions; /* dense by definition */
    bool follows =
        (uint64_t)plane->strides[d - 1] * 8 == dense && (uint64_t)strides[d - 1] * 8 == dense;
    if (plane->shape[d - 1] != 1 && !packed && !follows) break;
    dense *= (uint64_t)plane->shape[d - 1];
  }
  struct rows rows = {.bytes = (dense + 7) / 8, .count = 1, .outer = d ? d - 1 : 0};
  if (!d) return rows;
  rows.count = (uint64_t)plane->shape[d - 1];
  rows.target_stride = (uint64_t)plane->strides[d - 1];
  rows.source_stride = (uint64_t)strides[d - 1];
  return rows;
}

static int queue_copy(struct send *send, const struct gpu_copy *copy) {
  NVTX_INNER_RANGE("cudalink.exporter.memcpy");
  struct gpu_device *device = send->exporter->device;
  const struct gpu_operations *operations = device->operations;
  int status = send->checked ? operations->stream_send(device, send->on, copy)
                             : operations->stream_check_send(device, send->on, copy, &send->here);
  send->queued |= status == CUDALINK_OK;
  return status;
}

static int queue_rows(struct send *send, const struct rows *rows, char *target,
                      const char *source) {
  struct gpu_copy copy = {.target = target,
                          .source = source,
                          .bytes = rows->bytes,
                          .rows = rows->count,
                          .target_stride = rows->target_stride,
                          .source_stride = rows->source_stride,
                          .strict = send->exporter->strict_device};
  if (rows->count == 1 ||
      (rows->target_stride >= rows->bytes && rows->source_stride >= rows->bytes))
    return queue_copy(send, &copy);
  int status = CUDALINK_OK; /* rows that lie over each other: the driver wants one at a time */
  copy.rows = 1;
  for (uint64_t r = 0; r < rows->count && status == CUDALINK_OK; r++) {
    copy.target = target + r * rows->target_stride;
    copy.source = source + r * rows->source_stride;
    status = queue_copy(send, &copy);
  }
  return status;
}

static bool is_empty(const cudalink_plane *plane) {
  for (uint32_t d = 0; d < plane->dimensions; d++)
    if (!plane->shape[d]) return true;
  return false;
}

/* Walks the dimensions left of the rows. */
/* All 0: as in the description. */
static const int64_t *strides_of(const cudalink_plane *plane, const cudalink_source *source) {
  static const int64_t none[CUDALINK_MAX_DIMENSIONS];
  return memcmp(source->strides, none, sizeof none) ? source->strides : plane->strides;
}

static int queue_plane(struct send *send, const cudalink_plane *plane,
                       const cudalink_source *source, char *target) {
  const int64_t *strides = strides_of(plane, source);
  struct rows rows = find_rows(plane, strides);
  uint64_t slices = 1;
  for (uint32_t d = 0; d < rows.outer; d++)
    slices *= (uint64_t)plane->shape[d];
  for (uint64_t i = 0; i < slices; i++) {
    uint64_t rest = i, to = 0, from = 0;
    for (uint32_t d = rows.outer; d > 0; d--) {
      uint64_t at = rest % (uint64_t)plane->shape[d - 1];
      to += at * (uint64_t)plane->strides[d - 1];
      from += at * (uint64_t)strides[d - 1];
      rest /= (uint64_t)plane->shape[d - 1];
    }
    int status = queue_rows(send, &rows, target + to, (const char *)source->data + from);
    if (status < 0) return status;
  }
  return CUDALINK_OK;
}

/* An array has rows of its own; the plane's must be dense inside. */
static int queue_array(struct send *send, const cudalink_plane *plane,
                       const cudalink_source *source, char *target) {
  cudalink_plane row = *plane; /* without its first dimension */
  if (plane->dimensions) {
    row.dimensions--;
    memmove(row.shape, &plane->shape[1], sizeof row.shape - sizeof *row.shape);
    memmove(row.strides, &plane->strides[1], sizeof row.strides - sizeof *row.strides);
  }
  struct rows rows = find_rows(&row, row.strides);
  struct gpu_copy copy = {.array = source->array,
                          .bytes = rows.bytes,
                          .rows = plane->dimensions ? (uint64_t)plane->shape[0] : 1,
                          .target_stride = (uint64_t)plane->strides[0]};
  copy.target = target;
  return queue_copy(send, &copy);
}

/* ---- checks --------------------------------------------------------------------------------------- */

static int check_strides(const struct send *send, uint32_t p) {
  const cudalink_plane *plane = &send->description->planes[p];
  const cudalink_source *source = &send->sources[p];
  uint64_t copies = 1;
  for (uint32_t d = 0; d < plane->dimensions; d++)
    if (source->strides[d] < 0)
      return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                       "%s: plane %u: source stride %u is negative (%lld); a copy can't flip",
                       send->call, p, d, (long long)source->strides[d]);
  struct rows rows = find_rows(plane, strides_of(plane, source));
  for (uint32_t d = 0; d < rows.outer; d++)
    copies *= (uint64_t)plane->shape[d]; /* the product of a shape fits 63 bits */
  if (rows.count > 1 && (rows.source_stride < rows.bytes || rows.target_stride < rows.bytes))
    copies *= rows.count;
  if (copies <= MOST_COPIES) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "%s: plane %u: its strides take %llu copies, at most %d are made; pack it first",
                   send->call, p, (unsigned long long)copies, MOST_COPIES);
}

static int check_array(const struct send *send, uint32_t p) {
  const cudalink_plane *plane = &send->description->planes[p];
  struct rows rows = find_rows(plane, plane->strides);
  if (rows.outer == 0 &&
      (!plane->dimensions || rows.count == (uint64_t)plane->shape[0] || rows.count == 1))
    return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "%s: plane %u: an array is copied row by row, so only the first dimension may "
                   "have a stride that is not dense",
                   send->call, p);
}

static int check_source(const struct send *send, uint32_t p) {
  const cudalink_source *source = &send->sources[p];
  if (is_empty(&send->description->planes[p])) return CUDALINK_OK;
  if (!source->data == !source->array)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: plane %u: %s; name either data or array",
                     send->call, p, source->data ? "both are named" : "no source");
  return source->array ? check_array(send, p) : check_strides(send, p);
}

static int check_sources(const struct send *send) {
  uint64_t bytes;
  int status = cudalink_description_bytes(send->description, &bytes);
  if (status < 0) return status;
  if (!send->sources) {
    if (send->data || !bytes) return CUDALINK_OK;
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: no data, but the frame has %llu bytes",
                     send->call, (unsigned long long)bytes);
  }
  for (uint32_t p = 0; p < send->description->plane_count && status == CUDALINK_OK; p++)
    status = check_source(send, p);
  return status;
}

/* ---- the copies ------------------------------------------------------------------------------------ */

static int queue_planes(struct send *send, char *slot) {
  int status = CUDALINK_OK;
  for (uint32_t p = 0; p < send->description->plane_count && status == CUDALINK_OK; p++) {
    const cudalink_plane *plane = &send->description->planes[p];
    const cudalink_source *source = &send->sources[p];
    if (is_empty(plane)) continue;
    status = source->array ? queue_array(send, plane, source, slot + plane->offset)
                           : queue_plane(send, plane, source, slot + plane->offset);
  }
  return status;
}

static int queue_copies(struct send *send, uint64_t bytes, char *slot) {
  struct gpu_copy copy = {.target = slot,
                          .source = send->data,
                          .bytes = bytes,
                          .rows = 1,
                          .strict = send->exporter->strict_device};
  if (send->sources) return queue_planes(send, slot);
  return queue_copy(send, &copy);
}

/* On which stream the copies run; with COMPLETE they are done when this returns. */
static int copy_frame(struct send *send, uint64_t bytes, char *slot) {
  const struct link_exporter *exporter = send->exporter;
  struct gpu_device *device = exporter->device;
  const struct gpu_operations *operations = device->operations;
  bool complete = send->stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  cudalink_stream own = exporter->copy_stream;
  send->on = own.kind && (complete || exporter->own_stream) ? own : send->stream;
  /* One copy on the stream itself: it checks that on the way. */
  send->checked =
      send->sources || complete || exporter->own_stream || !operations->stream_check_send;
  int status = send->checked ? operations->stream_check(device, send->stream) : CUDALINK_OK;
  if (status == CUDALINK_OK && own.kind && exporter->own_stream && !complete)
    status = operations->stream_after(device, own, send->stream);
  if (status == CUDALINK_OK) status = queue_copies(send, bytes, slot);
  if (complete && own.kind) { /* also after a failure: some of them may be under way */
    int finished = operations->stream_finish(device, own);
    send->queued &= finished < 0;
    if (status == CUDALINK_OK) status = finished;
  }
  if (!complete) send->stream = send->on;
  return status;
}

/* Behind whatever may still write to the slot. Noted again: a publish that fails may have been about to come
 * behind it. */
static void abandon(const struct send *send, const cudalink_slot *slot) {
  struct link_exporter *exporter = NULL;
  if (link_lock_begun(send->handle, slot, send->call, &exporter) < 0) return;
  if (send->queued) link_note_left(exporter, send->on);
  link_object_unlock(exporter);
  cudalink_exporter_abandon(send->handle, slot, CUDALINK_STREAM_COMPLETE);
}

/* Not inlined: so that the calls of the driver find the stack near. */
__attribute__((noinline, cold)) static int fail(const struct send *send, const cudalink_slot *slot,
                                                int status) {
  char sentence[512];
  strncpy(sentence, cudalink_last_error(), sizeof sentence - 1);
  sentence[sizeof sentence - 1] = 0;
  abandon(send, slot);
  return error_set(status, "%s", sentence);
}

/* Publishes what was copied, if that went well, and lets go of the mutex. */
static int publish_copied(struct send *send, const cudalink_slot *slot, int status,
                          struct link_publish *publish) {
  struct link_exporter *exporter = send->exporter;
  *publish = (struct link_publish){
      .exporter = exporter, .slot = slot, .stream = send->stream, .checked = true};
  if (status == CUDALINK_OK && !exporter->closing) return link_publish_locked(publish, send->here);
  if (exporter->closing) link_changed(exporter);
  link_object_unlock(exporter);
  return status == CUDALINK_OK ? link_publish_frame(publish, send->handle, send->call) : status;
}

/* With the mutex, which it lets go of. */
static int send_locked(struct send *send, const cudalink_slot *slot) {
  NVTX_RANGE("cudalink.exporter", slot->index);
  struct link_exporter *exporter = send->exporter;
  struct link_publish publish;
  uint64_t bytes = exporter->description_bytes;
  exporter->begun = LINK_PUBLISHING; /* nobody else ends this frame while it is copied */
  link_object_unlock(exporter);
  int status = copy_frame(send, bytes, slot->data);
  if (status == CUDALINK_OK && slot->user)
    link_copy_user(slot->user, send->user, send->description->user_size);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->begun = LINK_BEGUN;
  if (status == CUDALINK_OK) exporter->statistics.copies++;
  if (send->queued)
    link_note_left(exporter, send->on); /* a close may end the frame before its publish */
  status = publish_copied(send, slot, status, &publish);
  return status == CUDALINK_OK || publish.published ? status : fail(send, slot, status);
}

int link_send_begun(cudalink_exporter handle, const cudalink_description *description,
                    const void *data, const void *user, cudalink_stream stream,
                    const cudalink_slot *slot, const char *call) {
  struct send send = {.handle = handle,
                      .call = call,
                      .description = description,
                      .data = data,
                      .user = user,
                      .stream = stream};
  int status = link_lock_begun(handle, slot, call, &send.exporter);
  return status < 0 ? status : send_locked(&send, slot);
}

/* The mutex is kept behind begin, unless somebody waits for what comes with letting it go. */
static int begin(struct send *send, int64_t timeout, cudalink_slot *slot) {
  int status = link_begin_locked(send->handle, send->description, timeout, slot, &send->exporter);
  if (status != CUDALINK_OK) return status;
  struct link_exporter *exporter = send->exporter;
  if (!exporter->closing && !exporter->ended && !exporter->let_go) return CUDALINK_OK;
  link_exporter_unlock(exporter);
  return link_lock_begun(send->handle, slot, send->call, &send->exporter);
}

static int send_frame(struct send *send, int64_t timeout) {
  cudalink_slot slot;
  if (!send->description)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: description is NULL", send->call);
  int status = link_refuse_event(send->stream, send->call);
  if (status == CUDALINK_OK && (send->sources || !send->data)) status = check_sources(send);
  if (status == CUDALINK_OK) status = begin(send, timeout, &slot);
  return status != CUDALINK_OK ? status : send_locked(send, &slot);
}

int cudalink_exporter_send(cudalink_exporter handle, const cudalink_description *description,
                           const void *data, const void *user, cudalink_stream stream,
                           int64_t timeout) {
  struct send send = {.handle = handle,
                      .call = "cudalink_exporter_send",
                      .description = description,
                      .data = data,
                      .user = user,
                      .stream = stream};
  return send_frame(&send, timeout);
}

int cudalink_exporter_send_planes(cudalink_exporter handle, const cudalink_description *description,
                                  const cudalink_source *sources, const void *user,
                                  cudalink_stream stream, int64_t timeout) {
  static const char call[] = "cudalink_exporter_send_planes";
  if (!sources) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: sources is NULL", call);
  struct send send = {.handle = handle,
                      .call = call,
                      .description = description,
                      .sources = sources,
                      .user = user,
                      .stream = stream};
  return send_frame(&send, timeout);
}

int cudalink_exporter_get_stream(cudalink_exporter handle, cudalink_stream *stream) {
  static const char call[] = "cudalink_exporter_get_stream";
  struct link_exporter *exporter = NULL;
  if (!stream) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: stream is NULL", call);
  int status = link_exporter_lock(handle, call, &exporter);
  if (status != CUDALINK_OK) return status;
  struct gpu_device *device = exporter->device;
  *stream = CUDALINK_STREAM_COMPLETE;
  exporter->inside++; /* keeps the record */
  pthread_mutex_unlock(&exporter->object.mutex);
  if (device->operations->shared_stream) status = device->operations->shared_stream(device, stream);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->inside--;
  if (exporter->closing) link_changed(exporter);
  link_object_unlock(exporter);
  return status;
}

int cudalink_exporter_wait_sent(cudalink_exporter handle, cudalink_stream stream) {
  static const char call[] = "cudalink_exporter_wait_sent";
  struct link_exporter *exporter = NULL;
  int status = link_refuse_event(stream, call);
  if (status == CUDALINK_OK) status = link_exporter_lock(handle, call, &exporter);
  if (status != CUDALINK_OK) return status;
  struct gpu_device *device = exporter->device;
  cudalink_stream own = exporter->copy_stream;
  bool complete = stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  exporter->inside++; /* keeps the record */
  pthread_mutex_unlock(&exporter->object.mutex);
  status = device->operations->stream_check(device, stream);
  if (status == CUDALINK_OK && own.kind && exporter->own_stream)
    status = complete ? device->operations->stream_finish(device, own)
                      : device->operations->stream_after(device, stream, own);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->inside--;
  if (exporter->closing) link_changed(exporter);
  link_object_unlock(exporter);
  return status;
}
