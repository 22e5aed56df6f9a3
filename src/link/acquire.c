/* SPDX-License-Identifier: MIT
 *
 * Acquire: look, map what is new, take a lease, wait for pixels, sleep. Model: tests/model/sleep.pml.
 *
 * Every function here is called with the importer's mutex held; those that sleep or map let go of it
 * meanwhile, and whoever called looks at everything again.
 */
#include "link/acquire.h"

#include "link/cipd/reader.h"

#include <string.h>

#include "base/nvtx.h"

#define LOOK_STEP 100000   /* ns: a GPU wakes nobody, so its words are looked at */
#define READY_SPIN 20000   /* ns: pixels, or a stream's release, are often complete in a moment */
#define SPIN_TURN 10000    /* ns until a spinning call looks at everything again */
#define SPIN_STEP 1000     /* ns: until one that awaits a GPU does */
#define MEASURED_ONE_IN 16 /* frames that were there already: the clock costs more than the count */

/* ---- what must be told first ---------------------------------------------------------------------- */

static int told(const struct link_importer *importer, int notice, const char *text) {
  switch (notice) {
  case CUDALINK_ERROR_LOST:
    if (text[0])
      return error_set(notice, "channel '%s': the connection has ended: %s", importer->name, text);
    return error_set(notice, "channel '%s': the producer died", importer->name);
  case CUDALINK_ERROR_ENDED:
    return error_set(notice, "channel '%s': the producer closed the channel", importer->name);
  case CUDALINK_ERROR_EVICTED:
    return error_set(notice,
                     "channel '%s': the producer took this importer's frames back, because they "
                     "were held for longer than its hold_limit while it had no free slot; release "
                     "them earlier",
                     importer->name);
  default: return notice;
  }
}

/* The end of a connection, a refusal: told once. 0 = nothing. */
static int take_notice(struct link_importer *importer) {
  int notice = importer->notice;
  if (notice) {
    if (!importer->spec.once) importer->notice = 0;
    return told(importer, notice, importer->notice_text);
  }
  if (importer->attachment || !importer->refusal) return 0;
  notice = error_set(importer->refusal, "channel '%s': %s", importer->name, importer->refusal_text);
  importer->refusal = 0;
  return notice;
}

static int closed(const struct link_importer *importer) {
  return error_set(CUDALINK_ERROR_CLOSED, "channel '%s': the importer was closed meanwhile",
                   importer->name);
}

int link_acquire_interrupted(struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  return importer->closing ? closed(importer) : take_notice(importer);
}

int link_acquire_timed_out(const struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  struct link_attachment *attachment =
      importer->draining ? importer->draining : importer->attachment;
  if (attachment && attachment->held >= attachment->hold)
    return error_set(CUDALINK_ERROR_BUSY,
                     "channel '%s': %u frame%s held, as many as hold allows; release one, or "
                     "open with a larger hold",
                     importer->name, attachment->held, attachment->held == 1 ? " is" : "s are");
  if (link_reader_full(importer))
    return error_set(CUDALINK_ERROR_BUSY,
                     "channel '%s': as many frames are held as hold (%u) allows; release one, or "
                     "open with a larger hold",
                     importer->name, importer->spec.hold);
  if (importer->attachment && acquire->pick.unmapped)
    return error_set(CUDALINK_ERROR_TIMEOUT,
                     "channel '%s': a frame was published, but its memory was not mapped here in "
                     "time; it will be offered again",
                     importer->name);
  if (attachment || importer->reader)
    return error_set(CUDALINK_ERROR_TIMEOUT, "channel '%s': no new frame in time", importer->name);
  if (importer->spec.once)
    return error_set(CUDALINK_ERROR_NOT_FOUND, "channel '%s': there is no producer",
                     importer->name);
  return error_set(CUDALINK_ERROR_TIMEOUT, "channel '%s': no producer appeared in time%s",
                   importer->name, importer->reader_text);
}

/* ---- sleeping ---------------------------------------------------------------------------------------- */

bool link_acquire_late(struct acquire *acquire) {
  if (acquire->timeout <= 0) return true;
  uint64_t now = os_now();
  if (!acquire->deadline) { /* the first look found nothing */
    acquire->deadline = os_deadline(acquire->timeout);
    acquire->spin_until = now + acquire->importer->spec.spin;
  }
  return now >= acquire->deadline;
}

void link_sleep_detached(struct acquire *acquire, uint32_t seen, uint64_t until) {
  struct link_importer *importer = acquire->importer;
  if (acquire->deadline < until) until = acquire->deadline;
  pthread_mutex_unlock(&importer->object.mutex);
  os_sleep_on(&importer->changed, seen, until, false);
  pthread_mutex_lock(&importer->object.mutex);
}

void link_set_asleep(struct link_attachment *attachment, bool asleep) {
  if (asleep && attachment->sleepers++) return; /* another thread is asleep already */
  if (!asleep && --attachment->sleepers) return;
  /* seq_cst: pairs with the producer's bell, then its look at asleep (publish.c, link_ring). */
  atomic_store(&attachment->mailbox->asleep, asleep ? 1u : 0u);
  if (!asleep) link_attachment_settle(attachment);
}

void link_sleep_attached(struct acquire *acquire, struct link_attachment *attachment, uint32_t bell,
                         uint64_t until) {
  struct link_importer *importer = acquire->importer;
  if (!acquire->slept) importer->statistics.waits++;
  acquire->slept = true;
  const wire_half *word = &attachment->control->bell;
  uint32_t mapped = attachment->mapped;
  pthread_mutex_unlock(&importer->object.mutex);
  os_sleep_on(word, bell, until, true);
  pthread_mutex_lock(&importer->object.mutex);
  if (mapped != attachment->mapped) attachment->outdated--;
  importer->statistics.wakes++;
}

/* ---- one look -------------------------------------------------------------------------------------------- */

static int fill(struct link_attachment *attachment, uint32_t e, cudalink_frame *frame) {
  struct link_entry *entry = &attachment->entries[e];
  const struct link_mapping *mapping = &attachment->mappings[entry->mapping];
  const struct wire_geometry *geometry = &mapping->geometry;
  struct wire_limits limits = {geometry->slot_bytes, geometry->plane_count, geometry->user_size};
  const char *metadata = link_mapping_metadata(mapping, entry->slot);
  frame->flags = 0;
  struct wire_place place;
  int status = wire_description_decode_place(frame, metadata, &limits, &place);
  if (status < 0) return status;
  if (entry->sequence && frame->sequence != entry->sequence)
    return error_set(CUDALINK_ERROR_PROTOCOL, "slot %u holds frame %llu, not %llu", entry->slot,
                     (unsigned long long)frame->sequence, (unsigned long long)entry->sequence);
  frame->lease = link_lease_handle(attachment, e);
  frame->session = attachment->session;
  frame->generation = (uint32_t)mapping->number;
  frame->slot = entry->slot;
  frame->kind = mapping->message.kind;
  frame->writable = mapping->block.writable;
  frame->device = gpu_device_number(mapping->block.device);
  frame->data = (char *)mapping->block.address + (uint64_t)entry->slot * geometry->slot_stride;
  frame->user = frame->description.user_size
                    ? metadata + wire_metadata_user_offset(geometry->plane_count)
                    : NULL;
  return place.block ? link_pool_fill(attachment, entry, &place, frame) : CUDALINK_OK;
}

bool link_is_evicted(const struct link_attachment *attachment) {
  return (atomic_load(&attachment->mailbox->verdict) & WIRE_VERDICT_EVICTED) != 0;
}

void link_acquire_evicted(struct link_attachment *attachment) {
  if (!link_is_evicted(attachment)) return;
  attachment->importer->statistics.evictions++;
  link_attachment_over(attachment, CUDALINK_ERROR_EVICTED);
}

/* A lease on the next frame, described. 1 = there is none. */
static int look(struct acquire *acquire, struct link_attachment *attachment) {
  struct link_importer *importer = acquire->importer;
  cudalink_policy policy = importer->spec.policy;
  struct link_pick *pick = &acquire->pick;
  bool chosen = link_choose(attachment, policy, importer->spec.isolated != 0, pick);
  int32_t free_one = chosen ? link_entry_free(attachment) : -1;
  acquire->full = chosen && free_one < 0;
  if (free_one < 0 || !link_lease_take(attachment, (uint32_t)free_one, pick)) {
    link_acquire_evicted(attachment);
    return 1;
  }
  acquire->entry = (uint32_t)free_one;
  int status = fill(attachment, acquire->entry, acquire->frame);
  if (status == CUDALINK_OK) return CUDALINK_OK;
  link_lease_undo(attachment, acquire->entry);
  if (status > 0) { /* counts as no frame until its block is mapped */
    pick->unmapped = true;
    return status;
  }
  link_confirm(attachment, policy, pick); /* a frame that can't be read is passed over */
  return status;
}

/* ---- pixels ----------------------------------------------------------------------------------------------- */

/* 0 = go on waiting; 1 = the connection is over, look at everything again. */
static int not_ready(struct acquire *acquire, const struct link_attachment *attachment) {
  if (attachment->over) return 1; /* what is left is read first, then its end is told */
  int interrupted = link_acquire_interrupted(acquire);
  if (interrupted) return interrupted;
  if (!link_acquire_late(acquire)) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_TIMEOUT,
                   "channel '%s': frame %llu was published, but its pixels were not complete in "
                   "time; it will be offered again",
                   acquire->importer->name, (unsigned long long)acquire->frame->sequence);
}

/* Without the mutex; the lease keeps the memory. */
static void spin_for_pixels(struct acquire *acquire, struct link_attachment *attachment,
                            uint64_t until) {
  struct link_importer *importer = acquire->importer;
  pthread_mutex_unlock(&importer->object.mutex);
  while (!link_is_ready(attachment, acquire->pick.slot, acquire->frame->sequence) &&
         os_now() < until) {
  }
  pthread_mutex_lock(&importer->object.mutex);
}

/* Waits by the CPU until the pixels of a leased frame are complete. On failure the lease is given
 * back, and the frame is offered again. */
static int wait_ready(struct acquire *acquire, struct link_attachment *attachment) {
  NVTX_INNER_RANGE("cudalink.importer.event_wait");
  struct link_importer *importer = acquire->importer;
  uint64_t spin = importer->spec.spin > READY_SPIN ? importer->spec.spin : READY_SPIN;
  uint64_t spin_until = os_now() + spin;
  attachment->settling = true; /* no other thread takes this frame, or one behind it, meanwhile */
  int status = CUDALINK_OK;
  while (!link_is_ready(attachment, acquire->pick.slot, acquire->frame->sequence)) {
    status = not_ready(acquire, attachment);
    if (status) break;
    uint64_t now = os_now();
    if (now < spin_until)
      spin_for_pixels(acquire, attachment, now + SPIN_TURN);
    else
      link_sleep_detached(acquire, atomic_load(&importer->changed), now + LOOK_STEP);
  }
  attachment->settling = false;
  link_importer_changed(importer);
  if (!status) return CUDALINK_OK;
  link_lease_undo(attachment, acquire->entry);
  link_attachment_settle(attachment);
  return status;
}

/* The producer's pixels may be complete later: leave that to the stream, or wait. */
static int settle_pixels(struct acquire *acquire, struct link_attachment *attachment) {
  cudalink_frame *frame = acquire->frame;
  if (link_is_ready(attachment, acquire->pick.slot, frame->sequence)) return CUDALINK_OK;
  const struct link_importer *importer = acquire->importer;
  bool by_stream = acquire->stream.kind != CUDALINK_STREAM_KIND_COMPLETE &&
                   importer->spec.gpu_wait && importer->device->stream_waits &&
                   link_can_wait(attachment, frame->sequence);
  if (!by_stream) return wait_ready(acquire, attachment);
  attachment->entries[acquire->entry].sequence = frame->sequence;
  int status = link_wait_queue(attachment, acquire->stream, acquire->pick.slot, frame->sequence);
  if (status < 0)
    link_lease_undo(attachment, acquire->entry);
  else
    frame->flags |= CUDALINK_FRAME_PENDING;
  return status;
}

/* In another time namespace clocks may differ. */
static uint64_t latency_of(const cudalink_frame *frame) {
  uint64_t now = os_now();
  return now > frame->timestamp ? now - frame->timestamp : 0;
}

void link_acquire_count(struct acquire *acquire) {
  cudalink_importer_statistics *statistics = &acquire->importer->statistics;
  const cudalink_frame *frame = acquire->frame;
  statistics->received++;
  statistics->missed += frame->missed;
  for (uint32_t p = 0; p < frame->description.plane_count; p++)
    statistics->bytes += frame->description.planes[p].bytes;
  if (!acquire->slept) return;
  acquire->latency = latency_of(frame);
  uint32_t bucket = acquire->latency ? 63u - (uint32_t)__builtin_clzll(acquire->latency) : 0;
  if (bucket >= CUDALINK_HISTOGRAM_BUCKETS) bucket = CUDALINK_HISTOGRAM_BUCKETS - 1;
  statistics->wake_latency[bucket]++;
}

static void tell(wire_word *word, uint64_t value) {
  atomic_store_explicit(word, value,
                        memory_order_relaxed); /* pairs with none: numbers for people */
}

/* For whoever looks at the channel: one store per frame, the others where they matter. */
static void tell_counts(const struct acquire *acquire, struct link_attachment *attachment) {
  struct wire_mailbox *mailbox = attachment->mailbox;
  const cudalink_frame *frame = acquire->frame;
  tell(&mailbox->received, ++attachment->received);
  if (frame->missed) tell(&mailbox->missed, attachment->missed += frame->missed);
  if (!acquire->slept && attachment->received % MEASURED_ONE_IN != 1) return;
  uint64_t latency = acquire->slept ? acquire->latency : latency_of(frame);
  wire_word *bucket = &mailbox->latencies[wire_latency_bucket(latency)];
  tell(bucket, atomic_load_explicit(bucket, memory_order_relaxed) + 1); /* nobody else writes it */
  tell(&mailbox->latency, attachment->latency += latency);
  tell(&mailbox->measured, ++attachment->measured);
}

/* A frame is leased and described: its pixels, then the books. */
static int complete(struct acquire *acquire, struct link_attachment *attachment) {
  struct link_importer *importer = acquire->importer;
  cudalink_frame *frame = acquire->frame;
  struct link_pick *pick = &acquire->pick;
  int status = settle_pixels(acquire, attachment);
  if (status) return status;
  pick->sequence = frame->sequence; /* of an offer it was not known before */
  frame->missed = pick->missed;
  if (pick->offer && wire_offer_redelivered(pick->offer)) {
    frame->flags |= CUDALINK_FRAME_REDELIVERED;
    importer->statistics.redelivered++;
  }
  attachment->entries[acquire->entry].sequence = frame->sequence;
  attachment->entries[acquire->entry].flags = frame->flags;
  link_confirm(attachment, importer->spec.policy, pick);
  if (importer->spec.gpu_wait) wire_description_copy(&attachment->description, &frame->description);
  /* The next one's slot may be too small for it, and the next one elsewhere. */
  if (frame->flags & CUDALINK_FRAME_SHARED) attachment->description.plane_count = 0;
  link_acquire_count(acquire);
  tell_counts(acquire, attachment);
  return CUDALINK_OK;
}

/* ---- the loop --------------------------------------------------------------------------------------------- */

/* Has nothing changed since `seen` was read? The head first: while the producer is about to ring, the
 * bell's line is on its way, and need not be waited for. */
static bool nothing_new(const struct link_importer *importer, const struct wire_control *control,
                        const struct seen *seen) {
  return atomic_load_explicit(&control->head, memory_order_relaxed) == seen->head &&
         atomic_load_explicit(&control->bell, memory_order_relaxed) == seen->bell &&
         atomic_load_explicit(&importer->changed, memory_order_relaxed) == seen->changed;
}

/* Where the next frame's description will be, if the generation stays. */
static void remember_place(struct link_attachment *attachment, struct seen *seen) {
  uint64_t generation = atomic_load_explicit(&attachment->control->gen, memory_order_relaxed);
  const struct link_mapping *mapping =
      link_mapping_find(attachment, generation & WIRE_GENERATION_MASK);
  seen->metadata = mapping ? link_mapping_metadata(mapping, 0) : NULL;
  seen->stride = mapping ? mapping->geometry.metadata_stride : 0;
}

/* Is it the head that has changed? An older value than the present one only makes the next spin end at
 * once. */
static bool remember(const struct link_importer *importer, const struct wire_control *control,
                     struct seen *seen) {
  uint64_t head = atomic_load_explicit(&control->head, memory_order_relaxed);
  bool published = head != seen->head;
  if (!published) {
    seen->bell = atomic_load_explicit(&control->bell, memory_order_relaxed);
    seen->changed = atomic_load_explicit(&importer->changed, memory_order_relaxed);
  }
  seen->head = head;
  return published;
}

/* On its way while the mutex is taken and the frame chosen. */
static void fetch_seen(const struct link_attachment *attachment, const struct seen *seen) {
  uint32_t slot = wire_frame_slot(seen->head);
  if (!seen->metadata) return;
  link_fetch_ahead(attachment, seen->metadata + slot * seen->stride, slot);
}

/* Looks without sleeping and without the mutex: the service thread may need it. What it compares with
 * was read before the look that found nothing. A dead producer rings nothing, but `changed` changes.
 * A frame that was published meanwhile is taken at once, before any clock is read. */
static int spin(struct acquire *acquire, struct link_attachment *attachment) {
  struct link_importer *importer = acquire->importer;
  const struct wire_control *control = attachment->control;
  uint64_t until = acquire->spin_until;
  if (link_must_look(attachment, importer->spec.policy)) until = os_deadline(SPIN_STEP);
  remember_place(attachment, &acquire->seen);
  attachment->spinners++; /* keeps the control block mapped */
  pthread_mutex_unlock(&importer->object.mutex);
  for (uint32_t i = 1; nothing_new(importer, control, &acquire->seen); i++) {
    if (i % 16) continue; /* the clock costs more than a look */
    /* The producer's scan has taken the line away; back it is needed for the lease. */
    __builtin_prefetch(attachment->mailbox->want, 1);
    if (os_now() >= until) break;
  }
  bool published = remember(importer, control, &acquire->seen);
  if (published) fetch_seen(attachment, &acquire->seen);
  pthread_mutex_lock(&importer->object.mutex);
  attachment->spinners--;
  link_attachment_settle(attachment);
  if (!published || attachment->over || attachment->settling || importer->closing) return 1;
  return look(acquire, attachment);
}

/* Nothing was there: say that we sleep, look once more, sleep. 1 = look again. */
static int sleep_or_take(struct acquire *acquire, struct link_attachment *attachment) {
  struct link_importer *importer = acquire->importer;
  uint64_t now = os_now();
  if (now < acquire->spin_until) return spin(acquire, attachment);
  uint32_t bell = atomic_load(&attachment->control->bell);
  link_set_asleep(attachment, true);
  int status = look(acquire, attachment);
  if (status > 0 && !attachment->over && !acquire->full && !link_mapping_pending(attachment)) {
    uint64_t until = acquire->deadline, try_at = link_mapping_try_at(attachment);
    if (try_at < until) until = try_at;
    if (link_must_look(attachment, importer->spec.policy) && now + LOOK_STEP < until)
      until = now + LOOK_STEP;
    link_sleep_attached(acquire, attachment, bell, until);
  }
  link_set_asleep(attachment, false);
  return status;
}

static int round_attached(struct acquire *acquire, struct link_attachment *attachment) {
  while (link_mapping_pending(attachment)) {
    int mapped = link_mapping_map(attachment); /* lets go of the mutex */
    if (mapped < 0 || attachment->over) return mapped < 0 ? mapped : 1;
  }
  /* Behind the mapping: from here on the mutex is kept until a frame is leased. */
  if (attachment->settling) {
    acquire->full = true; /* another thread waits for its pixels */
    return 1;
  }
  int status = look(acquire, attachment);
  if (status > 0 && !attachment->over && !acquire->full && !link_acquire_late(acquire))
    status = sleep_or_take(acquire, attachment);
  if (status == CUDALINK_OK) return complete(acquire, attachment);
  return status;
}

/* Frames that a producer left behind: the next one, or 1 when there is none (any more). */
static int drain(struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  struct link_attachment *attachment = importer->draining;
  if (importer->closing || importer->mapping || attachment->settling) return 1;
  while (link_mapping_pending(attachment))
    if (link_mapping_map(attachment) < 0) break;
  if (importer->draining != attachment || attachment->settling) return 1;
  int status = look(acquire, attachment);
  if (acquire->full) return 1;
  if (status == CUDALINK_OK) {
    if (link_is_ready(attachment, acquire->pick.slot, acquire->frame->sequence))
      return complete(acquire, attachment);
    link_lease_undo(attachment, acquire->entry); /* its pixels will never be complete */
  }
  link_attachment_drained(importer);
  return 1;
}

void link_wait_for_hands(struct acquire *acquire, struct link_attachment *attachment,
                         uint32_t seen) {
  struct link_importer *importer = acquire->importer;
  uint64_t now = os_now();
  if (!acquire->full_since) acquire->full_since = now;
  if (attachment->streams && now < acquire->full_since + READY_SPIN) {
    pthread_mutex_unlock(&importer->object.mutex); /* only a stream's word is awaited */
    pthread_mutex_lock(&importer->object.mutex);
  } else {
    link_sleep_detached(acquire, seen, now + LOOK_STEP);
  }
}

int link_acquire_left(struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  while (!importer->closing) {
    int earlier = importer->earlier_notice;
    if (earlier && !(importer->draining && importer->drains_earlier)) {
      importer->earlier_notice = 0;
      return told(importer, earlier, importer->earlier_text);
    }
    if (!importer->draining) break;
    acquire->full = false;
    int status = drain(acquire);
    if (status <= 0) return status;
    if (!importer->draining) continue;
    if (link_acquire_late(acquire)) return link_acquire_timed_out(acquire);
    link_sleep_detached(acquire, atomic_load(&importer->changed), os_deadline(LOOK_STEP));
  }
  return 1;
}

static int acquire_locked(struct acquire *acquire) {
  struct link_importer *importer = acquire->importer;
  for (;;) {
    acquire->full = false;
    if (__builtin_expect(importer->earlier_notice || importer->draining, false)) {
      int left = link_acquire_left(acquire);
      if (left <= 0) return left;
    }
    int interrupted = link_acquire_interrupted(acquire);
    if (interrupted) return interrupted;
    bool last = link_acquire_last(acquire);
    uint32_t seen = atomic_load(&importer->changed);
    struct link_attachment *attachment = importer->attachment;
    if (attachment) link_reader_leave(importer); /* our own wire goes first */
    int status = attachment ? round_attached(acquire, attachment) : link_reader_round(acquire);
    if (status <= 0) return status;
    if (attachment && attachment->over) continue; /* there is something to read, or to tell */
    if (importer->notice) continue;
    if (last) return link_acquire_timed_out(acquire);
    if (link_acquire_late(acquire)) continue;
    if (!attachment)
      link_reader_sleep(acquire, seen);
    else if (acquire->full)
      link_wait_for_hands(acquire, attachment, seen);
  }
}

static int check_stream(struct link_importer *importer, cudalink_stream stream) {
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return CUDALINK_OK;
  if (stream.kind == CUDALINK_STREAM_NOT_SAID || stream.kind == CUDALINK_STREAM_KIND_EVENT)
    return error_set(CUDALINK_ERROR_STREAM,
                     "channel '%s': acquire needs a stream, or CUDALINK_STREAM_COMPLETE",
                     importer->name);
  if (!importer->device) return CUDALINK_OK; /* nothing is mapped yet: checked when it is used */
  return importer->device->operations->stream_check(importer->device, stream);
}

int link_acquire_run(cudalink_importer handle, const char *call, cudalink_stream stream,
                     int64_t timeout, cudalink_frame *frame, int (*run)(struct acquire *)) {
  if (!frame) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: frame is NULL", call);
  NVTX_RANGE("cudalink.importer.acquire", NVTX_NO_SLOT);
  int status;
  struct link_importer *importer = link_importer_lock(handle, call, &status);
  if (!importer) return status;
  struct acquire acquire = {
      .importer = importer, .stream = stream, .timeout = timeout, .frame = frame};
  importer->inside++; /* keeps the record while this call sleeps */
  status = check_stream(importer, stream);
  if (status == CUDALINK_OK) status = run(&acquire);
  importer->inside--;
  if (importer->closing) service_post(&importer->work);
  if (status < 0) frame->lease = 0;
  link_object_unlock(importer);
  return status;
}

int cudalink_importer_acquire(cudalink_importer handle, cudalink_stream stream, int64_t timeout,
                              cudalink_frame *frame) {
  return link_acquire_run(handle, "cudalink_importer_acquire", stream, timeout, frame,
                          acquire_locked);
}
