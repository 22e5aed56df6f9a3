/* SPDX-License-Identifier: MIT
 *
 * Publishing: the frame becomes visible in one store of `head`, behind everything that it needs.
 *
 * Order: description; stream work (mirrors first, ready last); index; st; head; next, when it is announced; bell;
 * then a look at who sleeps. Each from head on pairs with a consumer's look in the opposite order.
 * Models: tests/model/ready.pml, next.pml, sleep.pml.
 */
#include <limits.h>
#include <string.h>

#include "base/nvtx.h"
#include "gpu/streams.h"
#include "link/pool.h"
#include "link/send.h"
#include "link/trace.h"

#define DIRECT_WAKES 1 /* with more sleepers than this, waking is left to the service thread */

/* Is waking them the service thread's? If so, the others' words are not looked at: who has just gone to
 * sleep has his in another processor's cache. */
static bool must_leave(const struct link_exporter *exporter, uint32_t *sleepers) {
  LINK_EACH_MEMBER(exporter, m) {
    const struct wire_mailbox *mailbox = exporter->mailboxes[m];
    uint32_t arming = atomic_load(&mailbox->armed);
    uint32_t asleep = atomic_load(&mailbox->asleep);
    if (!(arming | asleep)) continue;
    *sleepers += asleep != 0;
    if (*sleepers > DIRECT_WAKES || (arming && arming != exporter->members[m].rung)) return true;
  }
  return false;
}

void link_ring(struct link_exporter *exporter) {
  struct wire_control *control = exporter->control;
  uint32_t sleepers = 0;
  /* seq_cst: pairs with the consumer's asleep := 1, then a look at what it waits for. Either it sees
   * the change, or we see it asleep here. */
  atomic_fetch_add(&control->bell, 1);
  bool leave = must_leave(exporter, &sleepers);
  if (sleepers || leave) exporter->statistics.wakes++;
  if (leave)
    service_post(&exporter->wake_work);
  else if (sleepers)
    os_wake(&control->bell, INT_MAX, true);
}

/* ---- old mirrors ------------------------------------------------------------------------------ */

/* Where a driver has 32-bit memory operations only, a stream compares low halves, cyclically: no mirror
 * may be half a cycle old when it is first waited for. */
#define OLD_WORD (UINT64_C(1) << 30)

static void freshen(struct wire_mailbox *mailbox, uint32_t slot, uint64_t sequence) {
  /* relaxed: whoever may wait for a later value learns of it by a release store that follows
   * (mirrored_from, head). */
  atomic_store_explicit(&mailbox->mirror[slot], sequence - 1, memory_order_relaxed);
}

/* Before anybody can wait for `sequence` in this slot. Nothing is queued that writes these. */
static void freshen_old(struct link_exporter *exporter, uint32_t slot, uint64_t sequence) {
  if (sequence < OLD_WORD) return;
  bool rested = sequence - exporter->queued_in[slot] >= OLD_WORD;
  LINK_EACH_OF(exporter->gpu_wait_mask, m)
    if (!(exporter->mirrored_mask >> m & 1))
      for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++)
        freshen(exporter->mailboxes[m], s, sequence);
    else if (rested)
      freshen(exporter->mailboxes[m], slot, sequence);
}

/* ---- announcing the next frame (wait_next) -------------------------------------------------- */

/* Completes the mirrors of a frame that will never be published, as its GPU would have. */
static void complete_mirrors(struct link_exporter *exporter, uint32_t slot, uint64_t sequence) {
  LINK_EACH_MEMBER(exporter, m) {
    struct wire_mailbox *mailbox = exporter->members[m].mailbox;
    if (!atomic_load_explicit(&mailbox->mirrored_from, memory_order_relaxed)) continue;
    wire_word *mirror = &mailbox->mirror[slot];
    uint64_t older = atomic_load_explicit(mirror, memory_order_relaxed);
    while ((int64_t)(older - sequence) < 0 &&
           !atomic_compare_exchange_weak_explicit(mirror, &older, sequence, memory_order_release,
                                                  memory_order_relaxed)) {
    }
  }
}

void link_void(struct link_exporter *exporter, uint32_t slot, uint64_t sequence) {
  /* release: pairs with the consumer's acquire load of the index, once its wait is over. */
  atomic_store_explicit(&exporter->control->index[sequence % WIRE_INDEX_SIZE],
                        wire_index_word(sequence, 1, slot), memory_order_release);
  complete_mirrors(exporter, slot, sequence);
  link_ring(exporter);
}

/* A publish that was refused has described its frame; whoever waits for it must not take that for the frame
 * (release.c, is_void). Ordered before the index by link_void. */
static void forget_description(struct link_generation *generation, uint32_t slot) {
  wire_description_forget(link_metadata(generation, slot));
  generation->look_in[slot] = 0;
}

void link_withdraw(struct link_exporter *exporter) {
  if (!exporter->announced) return;
  exporter->announced = false;
  forget_description(exporter->begun_generation, exporter->begun_slot);
  /* seq_cst: pairs with wait_next's look at next behind its store of want. */
  atomic_store(&exporter->control->next, 0);
  link_void(exporter, exporter->begun_slot, exporter->begun_sequence);
}

static bool anyone_waits_next(const struct link_exporter *exporter) {
  LINK_EACH_OF(exporter->gpu_wait_mask, m)
    if (exporter->members[m].state == LINK_MEMBER_JOINED) return true;
  return false;
}

/* The caller rings. */
static void announce(struct link_exporter *exporter) {
  if (!anyone_waits_next(exporter) || exporter->must_move) return;
  enum link_blocked why;
  int32_t slot = link_own_slot(exporter, exporter->last_sequence + 1, &why);
  if (slot < 0) return;
  exporter->announced = true;
  exporter->begun_generation = exporter->current;
  exporter->begun_slot = (uint32_t)slot;
  exporter->begun_sequence = ++exporter->last_sequence;
  freshen_old(exporter, exporter->begun_slot, exporter->begun_sequence);
  TRACE_BEGIN();
  atomic_store(&exporter->control->next,
               wire_frame_word(exporter->begun_sequence, exporter->begun_slot));
  TRACE_END(ANNOUNCE, exporter->begun_slot, exporter->begun_sequence, 0, 0);
}

/* ---- publishing ------------------------------------------------------------------------------- */

/* Queues the words that say how far this frame is. All or nothing. */
static int queue_words(struct link_publish *publish, uint32_t slot, uint64_t sequence, bool here) {
  struct link_exporter *exporter = publish->exporter;
  const struct gpu_operations *operations = exporter->device->operations;
  struct gpu_write writes[LINK_MAX_MEMBERS + 1];
  uint32_t count = 0;
  freshen_old(exporter, slot, sequence);
  LINK_EACH_OF(exporter->gpu_wait_mask, m)
    writes[count++] = (struct gpu_write){&exporter->mailboxes[m]->mirror[slot], sequence};
  writes[count++] = (struct gpu_write){&exporter->control->ready[slot].word, sequence};
  int (*write)(struct gpu_device *, cudalink_stream, const struct gpu_write *, uint32_t) =
      !publish->checked ? operations->stream_check_write
      : here            ? operations->stream_write_here
                        : operations->stream_write;
  int status = write(exporter->device, publish->stream, writes, count);
  if (status < 0) return status;
  exporter->queued_in[slot] = sequence;
  LINK_EACH_OF(exporter->gpu_wait_mask & ~exporter->mirrored_mask, m)
    /* release: who sees it (through st) may wait for this and later mirrors. */
    atomic_store_explicit(&exporter->mailboxes[m]->mirrored_from, sequence, memory_order_release);
  exporter->mirrored_mask |= exporter->gpu_wait_mask;
  return CUDALINK_OK;
}

static void show(struct link_exporter *exporter, struct link_generation *generation, uint32_t slot,
                 uint64_t sequence) {
  struct wire_control *control = exporter->control;
  if (generation != exporter->current) link_generation_switch(exporter, generation);
  TRACE_BEGIN();
  /* release: pairs with the acquire load of who looks a sequence up. */
  atomic_store_explicit(&control->index[sequence % WIRE_INDEX_SIZE],
                        wire_index_word(sequence, 0, slot), memory_order_release);
  /* release: who sees the sequence in st sees the pixels and the description. */
  atomic_store_explicit(&control->st[slot].word, sequence, memory_order_release);
  /* seq_cst: pairs with the consumer's look behind asleep := 1. */
  atomic_store(&control->head, wire_frame_word(sequence, slot));
  TRACE_END(PUBLISH, slot, sequence, generation->number, 0);
  generation->frame_in[slot] = sequence;
  exporter->newest_slot = (int32_t)slot;
  exporter->head_sequence = sequence;
}

static void count(struct link_exporter *exporter, uint64_t timestamp) {
  const cudalink_description *description = &exporter->description;
  exporter->statistics.published++;
  exporter->statistics.bytes += exporter->description_bytes;
  exporter->newest_timestamp = timestamp;
  exporter->newest_format = description->picture.format;
  exporter->newest_width = description->picture.width;
  exporter->newest_height = description->picture.height;
  exporter->newest_planes = description->plane_count;
}

/* A library that knows no pools takes the frame for an invalid one, and tells this text. */
static void describe_shared(const struct link_exporter *exporter, void *metadata,
                            const struct link_share *share, uint64_t now) {
  wire_description_encode(metadata, &exporter->description, exporter->begun_sequence, now,
                          "it lies in a memory pool, which this version of the library can't map");
  wire_description_share(metadata, share->block->number, share->offset);
}

/* May the begun frame still lie there? */
static bool can_share(struct link_exporter *exporter, const struct link_share *share) {
  if (link_share_refused(exporter)) return false;
  if (exporter->announced) {
    /* seq_cst, before the scan: pairs with wait_next's look at next behind its store of want. Who took
     * it knows its address already. */
    atomic_store(&exporter->control->next, 0);
    if (link_slot_wanted(exporter, exporter->begun_generation, exporter->begun_slot)) return false;
  }
  return link_share_admit(exporter, share);
}

/* Frames mostly look like those before them: then a slot's description is there already, also in the
 * caches of its readers, and only the stamp is new. */
static void describe(const struct link_publish *publish, uint64_t now) {
  struct link_exporter *exporter = publish->exporter;
  const char *invalid = publish->invalid;
  struct link_generation *generation = exporter->begun_generation;
  uint32_t slot = exporter->begun_slot;
  void *metadata = link_metadata(generation, slot);
  const cudalink_description *description = &exporter->description;
  if (publish->share) {
    describe_shared(exporter, metadata, publish->share, now);
    generation->look_in[slot] = 0;
    return;
  }
  if (!invalid && generation->look_in[slot] == exporter->look) {
    wire_description_stamp(metadata, &description->timing, exporter->begun_sequence, now);
    return;
  }
  wire_description_encode(metadata, description, exporter->begun_sequence, now, invalid);
  generation->look_in[slot] = invalid ? 0 : exporter->look;
}

static void show_on_outlet(struct link_exporter *exporter, uint64_t now) {
  exporter->statistics.copies += exporter->outlet->copied;
  link_outlet_show(exporter->outlet, now);
  link_outlet_account(exporter->outlet, &exporter->statistics);
}

static int finish(struct link_publish *publish, bool here) {
  struct link_exporter *exporter = publish->exporter;
  struct link_generation *generation = exporter->begun_generation;
  uint32_t slot = exporter->begun_slot;
  uint64_t sequence = exporter->begun_sequence, now = os_now();
  if (publish->share && !can_share(exporter, publish->share)) return 1;
  describe(publish, now);
  int status = queue_words(publish, slot, sequence, here);
  if (status < 0) return status;
  if (exporter->announced) {
    exporter->announced = false;
    atomic_store(&exporter->control->next, 0); /* before the next slot is looked for */
  }
  if (publish->share) link_share_begin(exporter, generation, slot, publish->share);
  show(exporter, generation, slot, sequence);
  if (exporter->outlet) show_on_outlet(exporter, now);
  exporter->begun = LINK_IDLE;
  exporter->begun_generation = NULL;
  exporter->left_on = (cudalink_stream){0};
  exporter->statistics.shared += publish->share != NULL;
  count(exporter, now);
  if (exporter->grouped) {
    link_group_queue(exporter, generation, slot, sequence);
    link_group_dispatch(exporter);
  }
  announce(exporter);
  link_ring(exporter); /* for both */
  if (exporter->retired_bytes) link_unpin_released(exporter);
  if (exporter->older) link_generation_collect(exporter);
  if (exporter->owners) link_owner_collect(exporter);
  return CUDALINK_OK;
}

/* ---- work that a failed call left ---------------------------------------------------------------- */

void link_note_left(struct link_exporter *exporter, cudalink_stream stream) {
  bool queues = stream.kind && stream.kind != CUDALINK_STREAM_KIND_COMPLETE;
  if (queues && !exporter->left_on.kind) exporter->left_on = stream;
}

/* Waits for it, without the mutex. */
static int finish_left(struct link_exporter *exporter) {
  struct gpu_device *device = exporter->device;
  cudalink_stream left = exporter->left_on;
  if (!left.kind) return CUDALINK_OK;
  exporter->begun = LINK_PUBLISHING; /* nobody else ends this frame meanwhile */
  pthread_mutex_unlock(&exporter->object.mutex);
  int status = device->operations->stream_finish(device, left);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->begun = LINK_BEGUN;
  if (status == CUDALINK_OK) exporter->left_on = (cudalink_stream){0};
  if (exporter->closing) link_changed(exporter);
  return status;
}

/* The begun slot has landed only once these streams have come so far. */
static int land_behind(struct link_exporter *exporter, const cudalink_stream *streams,
                       uint32_t count) {
  struct gpu_device *device = exporter->device;
  struct gpu_write write = {&exporter->control->ready[exporter->begun_slot].word,
                            exporter->begun_sequence};
  int status = count == 1 ? device->operations->stream_write(device, streams[0], &write, 1)
                          : device->operations->streams_write(device, streams, count, &write);
  if (status == CUDALINK_OK) exporter->queued_in[exporter->begun_slot] = write.value;
  return status;
}

/* ---- the copies of a publish --------------------------------------------------------------------- */

static int queue_isolated(struct link_publish *publish, cudalink_stream on) {
  struct link_exporter *exporter = publish->exporter;
  const struct link_generation *generation = exporter->begun_generation;
  uint32_t slot = exporter->begun_slot;
  uint64_t bytes = exporter->description_bytes;
  char *source = link_slot_address(generation, slot);
  char *metadata = link_metadata(generation, slot);
  wire_description_encode(metadata, &exporter->description, exporter->begun_sequence, os_now(),
                          publish->invalid);
  for (uint32_t m = 0; m < LINK_MAX_MEMBERS; m++) {
    pthread_mutex_lock(&exporter->object.mutex);
    struct link_isolated *isolated = &exporter->members[m].isolated;
    if (generation != exporter->current) isolated = &exporter->members[m].isolated_next;
    bool mine = exporter->members[m].state == LINK_MEMBER_JOINED &&
                isolated->generation == generation->number;
    char *target = mine ? isolated->block.address : NULL;
    if (mine) exporter->statistics.copies++;
    pthread_mutex_unlock(&exporter->object.mutex);
    if (!target) continue;
    int status = exporter->device->operations->stream_copy(
        exporter->device, on, target + (uint64_t)slot * generation->geometry.slot_stride, source,
        bytes);
    if (status < 0) return status;
    if (exporter->device->metadata_inside)
      memcpy(target + generation->geometry.metadata_offset +
                 (uint64_t)slot * generation->geometry.metadata_stride,
             metadata, generation->geometry.metadata_stride);
  }
  return CUDALINK_OK;
}

/* The copies for isolated consumers, on the frame's own stream, or done when this returns. Without the
 * mutex: LINK_PUBLISHING keeps their blocks. *on: where they are. */
static int copy_isolated(struct link_publish *publish, cudalink_stream *on) {
  struct gpu_device *device = publish->exporter->device;
  cudalink_stream own = publish->exporter->copy_stream;
  bool complete = publish->stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  *on = complete && own.kind ? own : publish->stream;
  int status = queue_isolated(publish, *on);
  if (status == CUDALINK_OK && complete) status = device->operations->stream_finish(device, *on);
  return status;
}

static bool any_isolated(const struct link_exporter *exporter) {
  LINK_EACH_OF(exporter->isolated_mask, m)
    if (exporter->members[m].isolated.generation || exporter->members[m].isolated_next.generation)
      return true;
  return false;
}

static int not_begun(const struct link_exporter *exporter, const cudalink_slot *slot,
                     const char *call) {
  unsigned long long wanted = slot->sequence, begun = exporter->begun_sequence;
  if (exporter->begun == LINK_BEGUN && begun)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': %s of frame %llu, but the begun frame is %llu", exporter->name,
                     call, wanted, begun);
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "channel '%s': %s of frame %llu, but no frame is begun", exporter->name, call,
                   wanted);
}

int link_lock_begun(cudalink_exporter handle, const cudalink_slot *slot, const char *call,
                    struct link_exporter **locked) {
  if (!slot) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: slot is NULL", call);
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, call, &exporter);
  if (status < 0) return status;
  if (exporter->begun != LINK_BEGUN || slot->sequence != exporter->begun_sequence) {
    status = not_begun(exporter, slot, call);
    link_object_unlock(exporter);
    return status;
  }
  *locked = exporter;
  return CUDALINK_OK;
}

int link_refuse_event(cudalink_stream stream, const char *call) {
  if (stream.kind != CUDALINK_STREAM_KIND_EVENT) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_STREAM,
                   "%s: an event was named, but work is queued here: name "
                   "the stream",
                   call);
}

/* Queued on the frame's own stream. Its own words come behind it, so the slot is free again only when
 * the copy is done, too. */
static void copy_to_outlet(struct link_publish *publish) {
  struct link_exporter *exporter = publish->exporter;
  const struct link_share *share = publish->share;
  char *source = share ? (char *)share->block->block.address + share->offset
                       : link_slot_address(exporter->begun_generation, exporter->begun_slot);
  if (publish->invalid)
    link_outlet_skip(exporter->outlet, "it was published as invalid, which the old wire can't say");
  else
    link_outlet_copy(exporter->outlet, source, &publish->stream);
}

static int refuse_invalid(const struct link_exporter *exporter) {
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "channel '%s': the old wire can't say that a frame is invalid; abandon it",
                   exporter->name);
}

/* The options that act behind a publish. With the mutex, which is let go meanwhile. */
static int follow_up(struct link_exporter *exporter, cudalink_stream stream) {
  struct gpu_device *device = exporter->device;
  const struct gpu_operations *operations = device->operations;
  int status = CUDALINK_OK;
  exporter->inside++; /* keeps the record */
  pthread_mutex_unlock(&exporter->object.mutex);
  if (exporter->export_sync)
    status = operations->stream_finish(device, stream);
  else if (operations->stream_probe)
    status = operations->stream_probe(device, stream);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->inside--;
  if (exporter->closing) link_changed(exporter);
  return status;
}

/* The last step of a publish, which ended with `status`. */
static int followed(struct link_publish *publish, int status) {
  const struct link_exporter *exporter = publish->exporter;
  publish->published = status == CUDALINK_OK;
  if (publish->published && (exporter->export_sync || exporter->flush_probe))
    status = follow_up(publish->exporter, publish->stream);
  link_exporter_unlock(publish->exporter);
  return status;
}

/* May the stream be checked where its words are queued? Nothing else is queued before that. The frame is described
 * by then, which nobody takes for published: st has not its number, and a withdrawn one is forgotten. */
static bool checks_late(const struct link_publish *publish) {
  const struct link_exporter *exporter = publish->exporter;
  return exporter->device->operations->stream_check_write && !exporter->only && !exporter->outlet &&
         !exporter->isolated_mask && !publish->share;
}

static int check_stream(struct link_publish *publish) {
  struct gpu_device *device = publish->exporter->device;
  if (publish->checked || checks_late(publish)) return CUDALINK_OK;
  publish->checked = true;
  return device->operations->stream_check(device, publish->stream);
}

int link_publish_locked(struct link_publish *publish, bool here) {
  struct link_exporter *exporter = publish->exporter;
  int status = CUDALINK_OK;
  /* A send's own copy: its words come behind that. */
  if (publish->checked && gpu_stream_is(exporter->left_on, publish->stream))
    exporter->left_on = (cudalink_stream){0};
  if (exporter->left_on.kind) status = finish_left(exporter); /* it may have been tried before */
  if (status == CUDALINK_OK) status = check_stream(publish);
  if (status == CUDALINK_OK && exporter->only) {
    status =
        publish->invalid ? refuse_invalid(exporter) : link_only_publish(exporter, publish->stream);
    return followed(publish, status);
  }
  bool isolated = any_isolated(exporter);
  bool complete = publish->stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  if (status == CUDALINK_OK && publish->share && link_share_refused(exporter)) status = 1;
  if (status == CUDALINK_OK && (exporter->outlet || isolated)) {
    exporter->begun = LINK_PUBLISHING;
    pthread_mutex_unlock(&exporter->object.mutex);
    cudalink_stream on = publish->stream;
    if (isolated) status = copy_isolated(publish, &on);
    if (status == CUDALINK_OK && exporter->outlet) copy_to_outlet(publish);
    pthread_mutex_lock(&exporter->object.mutex);
    exporter->begun = LINK_BEGUN;
    /* Until it is published: what follows may fail. */
    link_note_left(exporter, status < 0 ? on : publish->stream);
    if (exporter->closing) link_changed(exporter);
  }
  if (status == CUDALINK_OK && publish->share) {
    exporter->begun = LINK_PUBLISHING; /* as above */
    link_share_prepare(exporter, publish->share);
    exporter->begun = LINK_BEGUN;
    if (exporter->closing) link_changed(exporter);
  }
  if (status == CUDALINK_OK) status = finish(publish, here);
  /* The old wire's copy, on a stream that the caller does not know, reads what is the caller's again. */
  if (status != CUDALINK_OK && publish->share && complete) finish_left(exporter);
  return followed(publish, status);
}

int link_publish_frame(struct link_publish *publish, cudalink_exporter handle, const char *call) {
  int status = link_refuse_event(publish->stream, call);
  if (status == CUDALINK_OK)
    status = link_lock_begun(handle, publish->slot, call, &publish->exporter);
  return status < 0 ? status : link_publish_locked(publish, false);
}

int cudalink_exporter_publish(cudalink_exporter handle, const cudalink_slot *slot,
                              cudalink_stream stream) {
  NVTX_RANGE("cudalink.exporter", slot ? slot->index : NVTX_NO_SLOT);
  struct link_publish publish = {.slot = slot, .stream = stream};
  return link_publish_frame(&publish, handle, "cudalink_exporter_publish");
}

int cudalink_exporter_publish_invalid(cudalink_exporter handle, const cudalink_slot *slot,
                                      const char *text) {
  struct link_publish publish = {
      .slot = slot, .stream = CUDALINK_STREAM_COMPLETE, .invalid = text ? text : ""};
  return link_publish_frame(&publish, handle, "cudalink_exporter_publish_invalid");
}

static void drop_begun(struct link_exporter *exporter) {
  struct link_generation *generation = exporter->begun_generation;
  exporter->begun = LINK_IDLE;
  exporter->begun_generation = NULL;
  exporter->left_on = (cudalink_stream){0};
  if (!generation || generation == exporter->current) return;
  generation->older = exporter->older; /* it never became current */
  exporter->older = generation;
  link_generation_collect(exporter);
}

/* Nobody has seen the number of a frame that was not announced and has no work queued. */
static void give_number_back(struct link_exporter *exporter) {
  exporter->last_sequence--;
  drop_begun(exporter);
}

static int abandon(struct link_exporter *exporter, cudalink_stream stream) {
  cudalink_stream left = exporter->left_on, behind[2];
  uint32_t count = 0;
  if (stream.kind != CUDALINK_STREAM_KIND_COMPLETE) behind[count++] = stream;
  if (left.kind && !gpu_stream_is(left, stream)) behind[count++] = left;
  int status = count ? land_behind(exporter, behind, count) : CUDALINK_OK;
  if (status < 0) return status;
  exporter->left_on = (cudalink_stream){0};
  exporter->statistics.abandoned++;
  if (!count && !exporter->announced)
    give_number_back(exporter);
  else
    link_end_begun(exporter);
  return CUDALINK_OK;
}

static int abandon_any(struct link_exporter *exporter, cudalink_stream stream) {
  bool complete = stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  if (!exporter->only) return abandon(exporter, stream);
  return link_only_abandon(exporter,
                           complete && exporter->left_on.kind ? exporter->left_on : stream);
}

int cudalink_exporter_abandon(cudalink_exporter handle, const cudalink_slot *slot,
                              cudalink_stream stream) {
  struct link_exporter *exporter = NULL;
  int status = link_lock_begun(handle, slot, "cudalink_exporter_abandon", &exporter);
  if (status < 0) return status;
  int checked = exporter->device->operations->stream_check(exporter->device, stream);
  status = checked < 0 ? checked : abandon_any(exporter, stream);
  if (status < 0 && checked == CUDALINK_OK && exporter->left_on.kind) {
    /* Nothing can be queued behind it: it is waited for. Where that fails as well the GPU is lost, and
     * runs nothing any more. */
    finish_left(exporter);
    exporter->left_on = (cudalink_stream){0};
    status = abandon_any(exporter, stream);
  }
  link_object_unlock(exporter);
  return status;
}

void link_end_begun(struct link_exporter *exporter) {
  if (exporter->left_on.kind && !exporter->only) land_behind(exporter, &exporter->left_on, 1);
  if (exporter->announced)
    link_withdraw(exporter);
  else if (!exporter->only) /* there nobody knows of it */
    link_void(exporter, exporter->begun_slot, exporter->begun_sequence);
  drop_begun(exporter);
}
