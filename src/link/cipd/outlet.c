/* SPDX-License-Identifier: MIT
 *
 * Writing the old wire. Everything of a session is built first and committed with its version last;
 * a session that ends leaves its memory behind for as long as old producers do, and longer.
 */
#include "link/cipd/outlet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_STEP 100000000 /* ns between two looks for the segment and the barrier */
#define DEFAULT_SLOTS 3
#define ALIVE_STEP 1000000 /* ns between two looks whether an old producer still writes, */
#define ALIVE_LOOKS 100    /* and how many */

/* ---- the segment --------------------------------------------------------------------------------- */

/* Something that an old producer, or an outlet that was killed, has left behind? */
static bool is_old(const struct os_named *named) {
  const void *block = named->segment.address;
  uint32_t magic = 0;
  if (named->segment.bytes < WIRE_CIPD_HANDLES_AT) return false;
  memcpy(&magic, block, sizeof magic);
  return magic == WIRE_CIPD_MAGIC || (magic == 0 && named->segment.bytes % 128 == 49);
}

/* Old producers own nothing, but a segment whose counter moves has one. Only at open is there the time
 * to look; later a segment that is not shut down counts as one. */
static bool is_alive(const struct link_outlet *outlet, const struct os_named *named) {
  uint64_t first = wire_cipd_pulse(named->segment.address, named->segment.bytes);
  _Atomic uint32_t nobody = 0;
  if (!first || outlet->ring) return first != 0;
  for (int i = 0; i < ALIVE_LOOKS; i++) {
    os_sleep_on(&nobody, 0, os_deadline(ALIVE_STEP), false);
    if (wire_cipd_pulse(named->segment.address, named->segment.bytes) != first) return true;
  }
  return false;
}

/* The name is taken. A living producer's stays; what a dead one left is ended, so that its readers look
 * for the name again, and makes room. */
static int make_room(struct link_outlet *outlet) {
  struct os_named found;
  int status = os_named_open(&found, outlet->name, true);
  if (status == CUDALINK_ERROR_NOT_FOUND) return CUDALINK_OK;
  if (status < 0) return status;
  status = os_named_lock(&found, outlet->name);
  if (status == CUDALINK_OK && !is_old(&found))
    status = error_set(CUDALINK_ERROR_REFUSED,
                       "segment '%s' is no producer's: it was left alone; choose another cipd_name",
                       outlet->name);
  if (status == CUDALINK_OK && is_alive(outlet, &found))
    status = error_set(CUDALINK_ERROR_NAME_IN_USE,
                       "segment '%s' is written by another producer, of the original's kind",
                       outlet->name);
  if (status == CUDALINK_OK) {
    uint64_t version = wire_cipd_end(found.segment.address, found.segment.bytes);
    if (version > outlet->session.version) outlet->session.version = version;
    os_named_unlink(&found, outlet->name);
  }
  os_segment_destroy(&found.segment);
  return status;
}

/* A segment of our own under the name, locked. */
static int make_segment(struct link_outlet *outlet) {
  struct os_named *named = &outlet->named;
  int status = os_named_create(named, outlet->name, outlet->session.layout.bytes);
  if (status == CUDALINK_ERROR_NAME_IN_USE) {
    status = make_room(outlet);
    if (status == CUDALINK_OK)
      status = os_named_create(named, outlet->name, outlet->session.layout.bytes);
  }
  if (status < 0) return status;
  status = os_named_lock(named, outlet->name);
  os_handle_close(&named->segment.handle); /* the mapping keeps the lock */
  return status;
}

static void drop_segment(struct link_outlet *outlet) {
  struct os_named *named = &outlet->named;
  if (!named->segment.address) return;
  wire_cipd_shut_down(named->segment.address, &outlet->session.layout);
  wire_cipd_wipe_handles(named->segment.address, &outlet->session.layout);
  os_named_unlink(named, outlet->name);
  os_segment_destroy(&named->segment);
}

/* ---- sessions ---------------------------------------------------------------------------------------- */

/* Begins a session of `format`. The ring is a new one, so that readers of the last frames keep them. */
static int begin_session(struct link_outlet *outlet, const struct wire_cipd_format *format) {
  struct wire_cipd_session *session = &outlet->session;
  struct link_ring *ring;
  int status = link_ring_make(outlet->device, session->layout.slots, format->data_size, &ring);
  if (status < 0) return status;
  if (!os_named_is_current(&outlet->named, outlet->name)) {
    drop_segment(outlet); /* its readers look for the name again */
    status = make_segment(outlet);
  }
  if (status < 0) {
    link_ring_drop(ring);
    return status;
  }
  link_ring_retire(outlet->ring);
  outlet->ring = ring;
  outlet->index = 0;
  session->version++;
  session->format = *format;
  link_ring_handles(ring, session->handles);
  wire_cipd_begin_session(outlet->named.segment.address, session);
  return CUDALINK_OK;
}

static bool is_same(const struct wire_cipd_format *a, const struct wire_cipd_format *b) {
  return a->width == b->width && a->height == b->height && a->channels == b->channels &&
         memcmp(&a->dtype, &b->dtype, sizeof a->dtype) == 0 && a->mono_alpha == b->mono_alpha &&
         a->bgra == b->bgra;
}

/* Each LOOK_STEP: is the segment still there, is a barrier? False: it is too early for a look. */
static bool look_around(struct link_outlet *outlet, bool *vanished) {
  uint64_t now = os_now();
  *vanished = false;
  if (now < outlet->look_at) return false;
  outlet->look_at = now + LOOK_STEP;
  *vanished = outlet->ring && !os_named_is_current(&outlet->named, outlet->name);
  if (outlet->obeys) link_barrier_look(&outlet->barrier);
  return true;
}

static int passed_over(struct link_outlet *outlet, int status) {
  if (status < 0) snprintf(outlet->reason, sizeof outlet->reason, "%s", cudalink_last_error());
  return status;
}

/* Slots that are lent have no room for gaps. A copy leaves them out. */
static int check_dense(const struct link_outlet *outlet, const struct link_cipd_rows *rows) {
  if (!outlet->lends || (rows->offset == 0 && rows->pitch == rows->bytes)) return CUDALINK_OK;
  return error_set(
      CUDALINK_ERROR_UNSUPPORTED,
      "segment '%s': slots of the old wire have rows of %llu byte%s without gaps, from "
      "offset 0; this description has a pitch of %llu and offset %llu (pitch_alignment "
      "1 makes a dense one)",
      outlet->name, (unsigned long long)rows->bytes, error_s(rows->bytes),
      (unsigned long long)rows->pitch, (unsigned long long)rows->offset);
}

static int prepare(struct link_outlet *outlet, const cudalink_description *description) {
  struct wire_cipd_format format;
  struct link_cipd_rows rows;
  int status = link_cipd_format_of(description, &format, &rows);
  if (status == CUDALINK_OK) status = check_dense(outlet, &rows);
  if (status < 0) return status; /* the session of other frames goes on */
  outlet->rows = rows;
  outlet->frame_bytes = format.data_size;
  if (outlet->ring && outlet->index != UINT32_MAX && is_same(&format, &outlet->session.format))
    return CUDALINK_OK;
  return begin_session(outlet, &format);
}

int link_outlet_prepare(struct link_outlet *outlet, const cudalink_description *description,
                        uint64_t look) {
  bool vanished, due = look_around(outlet, &vanished);
  bool known = outlet->look == look && !vanished && outlet->index != UINT32_MAX;
  if (known && outlet->status == CUDALINK_OK) return CUDALINK_OK;
  /* What failed is tried again now and then, not with each frame. */
  if (known && !due) return error_set(outlet->status, "%s", outlet->reason);
  if (vanished) outlet->index = UINT32_MAX; /* a new session, in a new segment */
  outlet->look = look;
  outlet->status = passed_over(outlet, prepare(outlet, description));
  return outlet->status;
}

/* ---- frames ------------------------------------------------------------------------------------------- */

uint32_t link_outlet_slot(const struct link_outlet *outlet) {
  return wire_cipd_slot(outlet->index + 1, outlet->ring->slots);
}

static struct link_ring_slot *next_slot(struct link_outlet *outlet) {
  return &outlet->ring->slot[link_outlet_slot(outlet)];
}

bool link_outlet_held_back(struct link_outlet *outlet) {
  if (!outlet->obeys) return false;
  enum wire_barrier_answer answer = link_barrier_ask(&outlet->barrier, os_now());
  if (answer == WIRE_BARRIER_STALE) outlet->stale++;
  if (answer == WIRE_BARRIER_SKIP) outlet->held_back++;
  return answer == WIRE_BARRIER_SKIP;
}

static int queue_copy(struct link_outlet *outlet, const void *slot, cudalink_stream stream) {
  struct gpu_device *gpu = outlet->device->gpu;
  const struct gpu_legacy_operations *legacy = gpu->operations->legacy;
  const struct link_cipd_rows *rows = &outlet->rows;
  struct link_ring_slot *target = next_slot(outlet);
  const char *source = (const char *)slot + rows->offset;
  int status = legacy->event_query(&target->event);
  /* The copy of N frames ago may be on another stream. */
  if (status == CUDALINK_ERROR_BUSY) status = legacy->event_wait(&target->event, stream);
  if (status < 0) return status;
  status = legacy->stream_copy_rows(gpu, stream, target->block.address, source, rows->bytes,
                                    rows->pitch, rows->count);
  if (status < 0) return status;
  return legacy->event_record(&target->event, stream);
}

void link_outlet_copy(struct link_outlet *outlet, const void *slot, cudalink_stream *stream) {
  outlet->copied = false;
  if (outlet->status < 0) {
    outlet->skipped++;
    return;
  }
  if (link_outlet_held_back(outlet)) return;
  cudalink_stream on = *stream;
  if (on.kind == CUDALINK_STREAM_KIND_COMPLETE)
    on = outlet->device->gpu->operations->legacy->stream_own(outlet->device->gpu);
  outlet->copied = passed_over(outlet, queue_copy(outlet, slot, on)) == CUDALINK_OK;
  outlet->skipped += !outlet->copied;
  *stream = on; /* also when the record failed: the copy may be queued and reads the slot */
}

void link_outlet_skip(struct link_outlet *outlet, const char *reason) {
  outlet->copied = false;
  outlet->skipped++;
  snprintf(outlet->reason, sizeof outlet->reason, "%s", reason);
}

void link_outlet_show(struct link_outlet *outlet, uint64_t now) {
  if (!outlet->copied) return;
  outlet->copied = false;
  wire_cipd_publish(outlet->named.segment.address, &outlet->session.layout, ++outlet->index,
                    (double)now / 1e9);
  outlet->published++;
}

int link_outlet_lend(struct link_outlet *outlet, void **slot) {
  struct link_ring_slot *next = next_slot(outlet);
  int status = outlet->device->gpu->operations->legacy->event_query(&next->event);
  if (status == CUDALINK_OK) *slot = next->block.address;
  return status;
}

void *link_outlet_lent(const struct link_outlet *outlet) {
  return next_slot((struct link_outlet *)(uintptr_t)outlet)->block.address;
}

int link_outlet_record(struct link_outlet *outlet, cudalink_stream stream) {
  return outlet->device->gpu->operations->legacy->event_record(&next_slot(outlet)->event, stream);
}

void link_outlet_account(const struct link_outlet *outlet,
                         cudalink_exporter_statistics *statistics) {
  statistics->cipd_published = outlet->published;
  statistics->cipd_skipped = outlet->skipped;
  statistics->cipd_held_back = outlet->held_back;
  statistics->cipd_stale = outlet->stale;
  memcpy(statistics->cipd_reason, outlet->reason, sizeof statistics->cipd_reason);
}

/* ---- open and close ---------------------------------------------------------------------------------- */

static int check_spec(const cudalink_exporter_spec *spec) {
  if (spec->cipd_slots <= WIRE_CIPD_MAX_OWN_SLOTS) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "channel '%s': cipd_slots %u is over %u, which is what old readers accept",
                   spec->name, spec->cipd_slots, WIRE_CIPD_MAX_OWN_SLOTS);
}

static int open_outlet(struct link_outlet *outlet, const cudalink_exporter_spec *spec,
                       int32_t device) {
  uint32_t slots = spec->cipd_slots ? spec->cipd_slots : DEFAULT_SLOTS;
  int status = check_spec(spec);
  if (status == CUDALINK_OK) status = wire_cipd_segment_name(outlet->name, spec->cipd_name);
  if (status == CUDALINK_OK) status = wire_cipd_layout_make(&outlet->session.layout, slots);
  if (status == CUDALINK_OK) status = link_ring_device_open(device, false, &outlet->device);
  if (status == CUDALINK_OK) status = make_segment(outlet);
  return status;
}

int link_outlet_open(struct link_outlet **opened, const cudalink_exporter_spec *spec,
                     int32_t device) {
  struct link_outlet *outlet = calloc(1, sizeof *outlet);
  if (!outlet) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for an outlet");
  outlet->named.segment.handle = OS_NO_HANDLE;
  outlet->barrier.named.segment.handle = OS_NO_HANDLE;
  outlet->obeys = !spec->cipd_ignore_barrier;
  outlet->barrier.limit =
      spec->cipd_barrier_limit ? (uint64_t)spec->cipd_barrier_limit : WIRE_BARRIER_STALE_AFTER;
  outlet->lends = spec->cipd_only != 0;
  outlet->look = UINT64_MAX;
  int status = open_outlet(outlet, spec, device);
  if (status == CUDALINK_OK) {
    *opened = outlet;
    return CUDALINK_OK;
  }
  char sentence[512];
  strncpy(sentence, cudalink_last_error(), sizeof sentence - 1);
  sentence[sizeof sentence - 1] = 0;
  link_outlet_close(outlet);
  return error_set(status, "%s", sentence);
}

int link_outlet_start(struct link_outlet *outlet, const cudalink_description *description) {
  if (!description) return CUDALINK_OK;
  int status = link_outlet_prepare(outlet, description, 0);
  /* With a wire of our own beside it, frames that it can't carry are passed over. */
  bool passes_over = !outlet->lends &&
                     (status == CUDALINK_ERROR_UNSUPPORTED || status == CUDALINK_ERROR_TOO_LARGE);
  return passes_over ? CUDALINK_OK : status;
}

void link_outlet_close(struct link_outlet *outlet) {
  if (!outlet) return;
  drop_segment(outlet);
  link_ring_retire(outlet->ring);
  link_ring_device_drop(outlet->device);
  link_barrier_close(&outlet->barrier);
  free(outlet);
}
