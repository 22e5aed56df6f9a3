/* SPDX-License-Identifier: MIT
 *
 * Following an old producer. It can't know its readers and rings no bell here, so this side looks, and
 * believes nothing: what a frame is proven by is the counter after its use.
 *
 * Waits for pixels are the CPU's, always: a stream that waited for the event of a producer that is
 * then killed would wait for ever.
 */
#include "link/cipd/reader.h"

#include <stdio.h>
#include <string.h>

#include "link/cipd/format.h"
#include "link/reaper.h"

#define SEARCH_STEP 25000000  /* ns between two looks for a segment */
#define RETRY_SLOW 500000000  /* ns: behind an error that was told */
#define REOPEN_STEP 100000000 /* ns: behind handles that could not be opened */
#define SHORTEST_NAP 50000    /* ns */
#define LONGEST_NAP 1000000
#define READY_SPIN 20000 /* ns: pixels are often complete in a moment */

struct link_table link_readers = LINK_TABLE(struct link_reader);

/* Names that appear in /dev/shm are noticed by one watch for all importers, of the service thread. Its handle
 * is kept while nobody looks. */
static struct service_source watch;
static uint32_t watchers; /* importers; service thread */
static _Atomic bool watching;
static _Atomic uint32_t appearances;

/* ---- which wire -------------------------------------------------------------------------------------- */

static bool may_read(const struct link_importer *importer) {
  if (!importer->segment[0] || importer->closing) return false;
  if (importer->reader) return true;
  bool first = !importer->sessions || importer->reader_inode; /* or a new session of the first */
  return importer->nobody && (first || !importer->spec.once);
}

/* What an importer on the old wire can't be. */
static int check_options(const struct link_importer *importer) {
  const cudalink_importer_spec *spec = &importer->spec;
  if (spec->policy == CUDALINK_POLICY_LATEST && !spec->isolated) return CUDALINK_OK;
  return error_set(
      CUDALINK_ERROR_UNSUPPORTED,
      "channel '%s': its producer speaks the old wire, which knows only policy LATEST, "
      "not isolated",
      importer->name);
}

/* ---- attaching ------------------------------------------------------------------------------------------ */

/* Old Python producers show a new version before anything else of it: then everything else is still
 * the last session's, with the frame that was taken last. */
static bool is_begun_only(const struct link_importer *importer, const struct link_reader *reader) {
  return importer->reader_inode == reader->named.inode &&
         importer->reader_index == reader->session.index &&
         memcmp(importer->reader_handle, reader->session.handles[0].memory,
                sizeof importer->reader_handle) == 0;
}

static int open_segment(const struct link_importer *importer, struct link_reader *reader) {
  int status = os_named_open(&reader->named, importer->segment, false);
  if (status < 0) return status;
  os_handle_close(&reader->named.segment.handle);
  status = wire_cipd_read_session(&reader->session, reader->named.segment.address,
                                  reader->named.segment.bytes);
  return status == CUDALINK_OK && is_begun_only(importer, reader)
             ? error_set(CUDALINK_ERROR_BUSY, "the producer is starting anew; try again")
             : status;
}

/* With streams for copies to host memory: without, they would run on the default stream, unwaited for. */
static int open_device(struct link_importer *importer) {
  const cudalink_importer_spec *spec = &importer->spec;
  struct link_ring_device *made;
  int status = link_ring_device_open(spec->device, true, &made);
  if (status < 0) return status;
  status =
      made->gpu->operations->host_prepare(made->gpu, spec->host_streams ? spec->host_streams : 1);
  if (status < 0)
    link_ring_device_drop(made);
  else
    importer->reader_device = made;
  return status;
}

/* A producer that was killed leaves a segment whose handles lead nowhere: like no producer. */
static int open_ring(struct link_importer *importer, struct link_reader *reader) {
  int status = CUDALINK_OK;
  if (!importer->reader_device) status = open_device(importer);
  if (status < 0) return status;
  status = link_ring_open(importer->reader_device, &reader->session, &reader->ring);
  return status == CUDALINK_ERROR_GPU ? CUDALINK_ERROR_LOST : status;
}

/* Without the mutex. */
static int open_session(struct link_importer *importer, struct link_reader **opened) {
  struct link_reader *reader = link_table_take(&link_readers);
  if (!reader) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for another session");
  int status = open_segment(importer, reader);
  if (status == CUDALINK_OK) status = check_options(importer);
  if (status == CUDALINK_OK) status = open_ring(importer, reader);
  if (status == CUDALINK_OK)
    status = link_cipd_describe(&reader->session.format, &reader->description);
  if (status == CUDALINK_OK) {
    *opened = reader;
    return CUDALINK_OK;
  }
  link_ring_drop(reader->ring);
  os_segment_destroy(&reader->named.segment);
  link_table_give(&link_readers, reader);
  return status;
}

static void join(struct link_importer *importer, struct link_reader *reader) {
  cudalink_importer_statistics *statistics = &importer->statistics;
  const struct os_named *named = &reader->named;
  bool same = importer->reader_inode == named->inode;
  /* release: pairs with the acquire load of who looks a lease up. */
  atomic_store_explicit(&reader->importer, importer, memory_order_release);
  importer->attachments++;
  importer->reader = reader;
  importer->reader_inode = named->inode;
  importer->reader_text[0] = 0;
  if (!same) statistics->sessions = ++importer->sessions;
  reader->number = importer->sessions;
  reader->generation = (uint32_t)++statistics->generations;
  reader->base = importer->reader_sequence;
  reader->idle_since = reader->looked_at = os_now();
  statistics->kind = CUDALINK_KIND_IPC;
  snprintf(statistics->path, sizeof statistics->path, "cipd, gpu ipc handle");
  snprintf(statistics->reason, sizeof statistics->reason, "%s",
           importer->spec.wire == CUDALINK_WIRE_CIPD
               ? "the old wire was asked for"
               : "no channel, but an old segment of that name");
}

void link_reader_leave(struct link_importer *importer) {
  struct link_reader *reader = importer->reader;
  if (!reader) return;
  importer->reader = NULL;
  importer->reader_sequence = reader->base + reader->last;
  importer->reader_try = 0;
  importer->reader_index = reader->last;
  memcpy(importer->reader_handle, reader->session.handles[0].memory,
         sizeof importer->reader_handle);
  reader->over = true;
  link_reader_settle(reader);
}

static int ended(struct link_importer *importer, int notice) {
  link_reader_leave(importer);
  importer->reader_inode = 0;
  importer->notice = notice;
  importer->notice_text[0] = 0;
  link_importer_changed(importer);
  return 1;
}

/* Another segment has the name now: its producer was replaced, or made a new one. */
static int replaced(struct link_importer *importer) {
  if (importer->spec.once) return ended(importer, CUDALINK_ERROR_LOST);
  link_reader_leave(importer);
  return 1;
}

static bool is_replaced(const struct link_importer *importer, struct link_reader *reader) {
  uint64_t now = os_now();
  if (now - reader->looked_at < SEARCH_STEP) return false;
  reader->looked_at = now;
  return !os_named_is_current(&reader->named, importer->segment) &&
         os_named_exists(importer->segment);
}

/* When to look again behind this; what the caller should be told, or 1. */
static int not_there(struct link_importer *importer, int status, uint64_t now) {
  switch (status) {
  case CUDALINK_ERROR_BUSY: /* it is starting */
    snprintf(importer->reader_text, sizeof importer->reader_text, "; there is a segment: %.150s",
             cudalink_last_error());
    importer->reader_try = now + SEARCH_STEP;
    return 1;
  case CUDALINK_ERROR_NOT_FOUND:
  case CUDALINK_ERROR_ENDED: /* stale: its producer has gone, another one will come */
    importer->reader_text[0] = 0;
    importer->reader_try = now + SEARCH_STEP;
    return 1;
  case CUDALINK_ERROR_LOST:
    snprintf(importer->reader_text, sizeof importer->reader_text,
             "; there is a segment, but not its memory: %.150s", cudalink_last_error());
    importer->reader_try = now + REOPEN_STEP;
    return 1;
  default: importer->reader_try = now + RETRY_SLOW; return status;
  }
}

int link_reader_try(struct link_importer *importer) {
  struct link_reader *reader = NULL;
  uint64_t now = os_now();
  if (!may_read(importer) || importer->attaching || now < importer->reader_try) return 1;
  importer->attaching = true;
  pthread_mutex_unlock(&importer->object.mutex);
  uint32_t seen = atomic_load(&appearances);
  int status = open_session(importer, &reader);
  pthread_mutex_lock(&importer->object.mutex);
  importer->attaching = false;
  importer->absent = status == CUDALINK_ERROR_NOT_FOUND && seen == atomic_load(&appearances);
  if (!reader) return not_there(importer, status, now);
  bool other = importer->reader_inode && importer->reader_inode != reader->named.inode;
  join(importer, reader);
  if (other && importer->spec.once) return ended(importer, CUDALINK_ERROR_LOST);
  if (importer->closing || importer->attachment) link_reader_leave(importer);
  return CUDALINK_OK;
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

static int32_t free_entry(const struct link_reader *reader) {
  uint32_t hold = atomic_load(&reader->importer)->spec.hold;
  for (uint32_t e = 0; e < hold; e++)
    if (reader->entries[e].hold == LINK_READER_FREE) return (int32_t)e;
  return -1;
}

bool link_reader_full(const struct link_importer *importer) {
  return importer->reader && free_entry(importer->reader) < 0;
}

static int too_late(const struct link_importer *importer, uint32_t index) {
  return error_set(
      CUDALINK_ERROR_TIMEOUT,
      "channel '%s': frame %u was published, but its pixels were not complete in time; "
      "it will be offered again. Was its producer killed?",
      importer->name, index);
}

/* One look at the slot's event, without the mutex. */
static int query(struct link_importer *importer, struct link_reader *reader, uint32_t slot) {
  struct gpu_event *event = &reader->ring->slot[slot].event;
  if (!event->implementation) return CUDALINK_OK; /* old producers then wait before they publish */
  pthread_mutex_unlock(&importer->object.mutex);
  int status = event->device->operations->legacy->event_query(event);
  pthread_mutex_lock(&importer->object.mutex);
  return status;
}

/* Waits by the CPU until the slot's copy is done. 1 = look at everything again. */
static int wait_ready(struct acquire *acquire, struct link_reader *reader,
                      const struct wire_cipd_frame *found) {
  struct link_importer *importer = acquire->importer;
  uint64_t start = os_now(),
           spin = importer->spec.spin > READY_SPIN ? importer->spec.spin : READY_SPIN;
  reader->settling = true; /* no other thread takes this frame meanwhile */
  reader->calls++;         /* and the ring stays */
  int status;
  while ((status = query(importer, reader, found->slot)) == CUDALINK_ERROR_BUSY) {
    uint64_t now = os_now();
    int interrupted = link_acquire_interrupted(acquire);
    if (interrupted || importer->reader != reader)
      status = interrupted ? interrupted : 1;
    else if (link_acquire_late(acquire))
      status = too_late(importer, found->index);
    if (status != CUDALINK_ERROR_BUSY) break;
    if (now - start > spin)
      link_sleep_detached(acquire, atomic_load(&importer->changed), now + SHORTEST_NAP);
  }
  reader->settling = false;
  reader->calls--;
  bool left = importer->reader != reader;
  link_reader_settle(reader);
  return status == CUDALINK_OK && left ? 1 : status;
}

static void fill(struct link_reader *reader, uint32_t e, const struct wire_cipd_frame *found,
                 cudalink_frame *frame) {
  const cudalink_description *description = &reader->description;
  frame->lease = link_reader_lease(reader, e);
  frame->sequence = reader->base + found->index;
  frame->timestamp = wire_cipd_nanoseconds(found->timestamp);
  frame->missed = found->missed;
  frame->session = reader->number;
  frame->generation = reader->generation;
  frame->slot = found->slot;
  frame->flags = 0;
  frame->kind = CUDALINK_KIND_IPC;
  frame->writable = 0;
  frame->device = gpu_device_number(reader->ring->device->gpu);
  frame->data = reader->ring->slot[found->slot].block.address;
  frame->user = NULL;
  frame->text[0] = 0;
  memcpy(&frame->description, description,
         offsetof(cudalink_description, planes) + sizeof description->planes[0]);
}

static void hand_out(struct acquire *acquire, struct link_reader *reader, uint32_t e,
                     const struct wire_cipd_frame *found) {
  struct link_reader_entry *entry = &reader->entries[e];
  entry->hold = LINK_READER_HELD;
  entry->serial++;
  entry->index = found->index;
  entry->overwritten = false;
  reader->held++;
  acquire->importer->held++;
  reader->last = found->index;
  reader->idle_since = os_now();
  fill(reader, e, found, acquire->frame);
  link_acquire_count(acquire);
}

/* A frame that was found: its pixels, then the proof that it still is that frame. */
static int take_found(struct acquire *acquire, struct link_reader *reader,
                      const struct wire_cipd_frame *found) {
  struct link_importer *importer = acquire->importer;
  if (reader->settling || free_entry(reader) < 0) {
    acquire->full = true;
    return 1;
  }
  int status = wait_ready(acquire, reader, found);
  if (status == CUDALINK_ERROR_TIMEOUT && importer->reader == reader &&
      is_replaced(importer, reader))
    return replaced(importer); /* this one never comes */
  if (status) return status;
  int32_t e = free_entry(reader);
  if (e < 0) return 1; /* another thread was faster */
  /* The event may have been that of a later round: then there is a newer frame. With one slot no
   * frame can be proven, not even now. */
  if (reader->session.layout.slots > 1 &&
      !wire_cipd_intact(reader->named.segment.address, &reader->session, found->index))
    return 1;
  hand_out(acquire, reader, (uint32_t)e, found);
  return CUDALINK_OK;
}

static int take(struct acquire *acquire, struct link_reader *reader) {
  struct link_importer *importer = acquire->importer;
  struct wire_cipd_frame found;
  switch (wire_cipd_poll(reader->named.segment.address, &reader->session, reader->last, &found)) {
  case WIRE_CIPD_SHUTDOWN: return ended(importer, CUDALINK_ERROR_ENDED);
  case WIRE_CIPD_VERSION_CHANGED: link_reader_leave(importer); return 1;
  case WIRE_CIPD_NEW_FRAME: return take_found(acquire, reader, &found);
  case WIRE_CIPD_NO_FRAME: break;
  }
  return is_replaced(importer, reader) ? replaced(importer) : 1;
}

int link_reader_round(struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  for (int turn = 0; turn < 2; turn++) { /* the second one: a new session, if there is one */
    int status = importer->reader ? CUDALINK_OK : link_reader_try(importer);
    struct link_reader *reader = importer->reader;
    if (status) return status;
    if (!reader) return 1;
    struct gpu_device *gpu = reader->ring->device->gpu;
    status = gpu->operations->stream_check(gpu, acquire->stream);
    if (status < 0) return status;
    link_reader_collect(reader);
    status = take(acquire, reader);
    if (status <= 0 || importer->reader || importer->notice) return status;
  }
  return 1;
}

/* ---- names that appear ------------------------------------------------------------------------------------- */

/* True: to be told that its segment is there now. */
static bool has_appeared(struct link_importer *importer) {
  pthread_mutex_lock(&importer->object.mutex);
  bool appeared = atomic_load(&importer->object.id) && importer->absent && may_read(importer) &&
                  os_named_exists(importer->segment);
  if (appeared) importer->absent = false;
  pthread_mutex_unlock(&importer->object.mutex);
  return appeared;
}

static void name_appeared(struct service_source *source, const struct os_event *event) {
  struct link_importer *importer;
  (void)event;
  os_watch_drain(source->handle);
  atomic_fetch_add(&appearances, 1); /* before the look: who misses it does not go to sleep */
  for (uint32_t i = 0; (importer = link_table_at(&link_importers, i)); i++)
    if (has_appeared(importer)) link_importer_notify(importer);
}

static bool start_watching(void) {
  os_handle handle = watch.handle;
  if (watch.ready ? !os_named_rewatch(handle) : os_named_watch(&handle) < 0) return false;
  watch.ready = name_appeared;
  return service_watch(&watch, handle, false) == CUDALINK_OK;
}

void link_reader_watch(struct link_importer *importer) {
  if (!importer->segment[0] || importer->watches_names) return;
  importer->watches_names = true;
  if (!watchers++) watching = start_watching();
}

/* Any program's names would wake this one. */
void link_reader_unwatch(struct link_importer *importer) {
  if (!importer->watches_names) return;
  importer->watches_names = false;
  if (--watchers || !watching) return;
  watching = false;
  service_unwatch(&watch);
  os_named_unwatch(watch.handle);
}

/* ---- waiting ---------------------------------------------------------------------------------------------- */

/* The longer nothing came, the longer the nap: a sixteenth of the time. */
uint64_t link_reader_look_at(const struct link_importer *importer) {
  uint64_t now = os_now();
  if (!may_read(importer)) return OS_FOREVER;
  if (!importer->reader && importer->absent)
    return watching ? OS_FOREVER : now + RETRY_SLOW; /* the watch tells */
  if (!importer->reader)
    return importer->reader_try > now ? importer->reader_try : now + SEARCH_STEP;
  uint64_t nap = (now - importer->reader->idle_since) / 16;
  if (nap < SHORTEST_NAP) nap = SHORTEST_NAP;
  return now + (nap < LONGEST_NAP ? nap : LONGEST_NAP);
}

void link_reader_sleep(struct acquire *acquire, uint32_t seen) {
  struct link_importer *importer = acquire->importer;
  bool reads = importer->reader != NULL;
  if (reads && os_now() < acquire->spin_until) return;
  if (reads && !acquire->slept) importer->statistics.waits++;
  acquire->slept |= reads;
  link_sleep_detached(acquire, seen, link_reader_look_at(importer));
  importer->statistics.wakes += reads;
}

/* ---- for armed descriptors ---------------------------------------------------------------------------------- */

/* Is there a session to attach to, or something wrong with it? */
static bool segment_there(struct link_importer *importer) {
  struct os_named named;
  struct wire_cipd_session session;
  if (os_now() < importer->reader_try) return false;
  int status = os_named_open(&named, importer->segment, false);
  importer->absent = status == CUDALINK_ERROR_NOT_FOUND;
  if (status < 0) return status == CUDALINK_ERROR_REFUSED;
  status = wire_cipd_read_session(&session, named.segment.address, named.segment.bytes);
  os_handle_close(&named.segment.handle);
  os_segment_destroy(&named.segment);
  return status != CUDALINK_ERROR_BUSY && status != CUDALINK_ERROR_ENDED;
}

bool link_reader_there(struct link_importer *importer) {
  struct link_reader *reader = importer->reader;
  struct wire_cipd_frame found;
  if (!may_read(importer)) return false;
  if (!reader) return !importer->attaching && segment_there(importer);
  enum wire_cipd_state state =
      wire_cipd_poll(reader->named.segment.address, &reader->session, reader->last, &found);
  return state != WIRE_CIPD_NO_FRAME || is_replaced(importer, reader);
}

static void look_armed(struct service_timer *timer) {
  struct link_importer *importer =
      (struct link_importer *)(void *)((char *)timer -
                                       offsetof(struct link_importer, reader_timer));
  pthread_mutex_lock(&importer->object.mutex);
  bool there = importer->armed && link_something_there(importer);
  uint64_t next = importer->armed ? link_reader_look_at(importer) : OS_FOREVER;
  pthread_mutex_unlock(&importer->object.mutex);
  if (there)
    link_importer_notify(importer);
  else if (next != OS_FOREVER)
    service_timer_set(timer, look_armed, next);
}

void link_reader_armed(struct service_work *work) {
  struct link_importer *importer =
      (struct link_importer *)(void *)((char *)work - offsetof(struct link_importer, reader_work));
  look_armed(&importer->reader_timer);
  pthread_mutex_lock(&importer->object.mutex);
  bool closing = importer->closing;
  pthread_mutex_unlock(&importer->object.mutex);
  if (closing) service_post(&importer->work); /* the record was kept for this */
}
