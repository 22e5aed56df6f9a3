/* SPDX-License-Identifier: MIT
 *
 * Beginning a frame: find a slot, and when there is none, wait, take frames back from consumers that
 * sit on them, or move to new memory.
 */
#include <stdio.h>
#include <string.h>

#include "base/nvtx.h"
#include "link/send.h"

#define LOOK_STEP 100000 /* ns: a GPU wakes nobody, so its words are looked at */

enum step { STEP_FOUND, STEP_AGAIN, STEP_SLEEP, STEP_MOVE };

struct begin {
  struct link_exporter *exporter;
  bool shared;    /* the frame lies elsewhere */
  uint64_t bytes; /* of the frame */
  int64_t timeout;
  uint64_t deadline; /* 0 until the first look found nothing: a slot that is free costs no clock */
  uint64_t sleep_until;
  struct link_want want;
  int32_t slot;
  bool waited;
};

static void set_deadline(struct begin *begin) {
  if (!begin->deadline) begin->deadline = os_deadline(begin->timeout);
}

/* What the slot must hold. */
static uint64_t room(const struct begin *begin) { return begin->shared ? 0 : begin->bytes; }

/* May anything that this begin waits for change without a message? */
static bool must_look(const struct link_exporter *exporter, enum link_blocked why) {
  if (why == LINK_BLOCKED_QUEUE) return true;
  LINK_EACH_MEMBER(exporter, m) {
    /* relaxed: the consumer sets it once, before its first release by a stream, and then tells. */
    if (atomic_load_explicit(&exporter->members[m].mailbox->streams, memory_order_relaxed))
      return true;
  }
  return false;
}

/* One look, under the mutex. */
static enum step look(struct begin *begin, const cudalink_description *description) {
  struct link_exporter *exporter = begin->exporter;
  enum link_blocked why = LINK_BLOCKED_PLACE;
  bool must;
  bool move = link_generation_wanted(exporter, description, room(begin), &begin->want, &must);
  if (move && link_drained(exporter)) return STEP_MOVE;
  if (!link_group_idle(exporter)) why = LINK_BLOCKED_OFFER;
  if (!must) {
    begin->slot = link_own_slot(exporter, exporter->last_sequence + 1, &why);
    if (begin->slot >= 0) return STEP_FOUND;
  }
  set_deadline(begin);
  uint64_t now = os_now(), next;
  if (link_evict_due(exporter, now, why, &next)) return STEP_AGAIN;
  begin->sleep_until = next < begin->deadline ? next : begin->deadline;
  if (must_look(exporter, why) && now + LOOK_STEP < begin->sleep_until)
    begin->sleep_until = now + LOOK_STEP;
  return STEP_SLEEP;
}

/* Makes a generation while the mutex is free. */
static int prepare(struct begin *begin) {
  struct link_exporter *exporter = begin->exporter;
  struct link_generation *made;
  pthread_mutex_unlock(&exporter->object.mutex);
  int status = link_generation_make(exporter, &begin->want, &made);
  pthread_mutex_lock(&exporter->object.mutex);
  if (status < 0) return status;
  made->number = ++exporter->last_generation;
  exporter->begun_generation = made;
  link_tell_now(exporter); /* so that consumers map it before its first frame */
  return CUDALINK_OK;
}

/* Nobody can have a lease in a generation that was never current; but a slot's words are shared with
 * the generations before. */
static int32_t landed_slot(const struct link_exporter *exporter) {
  if (!exporter->begun_generation) return -1;
  for (uint32_t s = 0; s < exporter->begun_generation->geometry.slots; s++)
    if (link_slot_landed(exporter, s)) return (int32_t)s;
  return -1;
}

static int dropped(struct begin *begin) {
  struct link_exporter *exporter = begin->exporter;
  exporter->statistics.dropped++;
  return error_set(
      CUDALINK_ERROR_BUSY,
      "channel '%s': no slot became free in time; %u of %u slot%s, %u consumer%s. Give "
      "more time, raise max_slots, or let consumers release earlier",
      exporter->name, exporter->current ? exporter->current->geometry.slots : 0,
      exporter->max_slots, error_s(exporter->max_slots), exporter->statistics.consumers,
      error_s(exporter->statistics.consumers));
}

/* Sleeps without the mutex. `seen` was read before the last look, so a change since then is noticed. */
static void sleep_for(struct begin *begin, uint32_t seen) {
  struct link_exporter *exporter = begin->exporter;
  if (!begin->waited) exporter->statistics.waits++;
  begin->waited = true;
  pthread_mutex_unlock(&exporter->object.mutex);
  os_sleep_on(&exporter->changed, seen, begin->sleep_until, false);
  pthread_mutex_lock(&exporter->object.mutex);
}

void link_set_waiting(struct link_exporter *exporter, bool on) {
  exporter->waiters += on ? 1 : -1u;
  if (exporter->waiters > (on ? 1u : 0u)) return;
  /* seq_cst: pairs with the consumer's look at waiting behind its seq_cst release. Either it sees the
   * bit and tells, or the look that follows here sees the release. */
  if (on)
    atomic_fetch_or(&exporter->control->waiting, WIRE_WAITING_SLOT);
  else
    atomic_fetch_and(&exporter->control->waiting, ~WIRE_WAITING_SLOT);
}

static bool is_over(const struct link_exporter *exporter, uint32_t id) {
  return exporter->closing || atomic_load(&exporter->object.id) != id;
}

static int find_slot(struct begin *begin, const cudalink_description *description, uint32_t id) {
  struct link_exporter *exporter = begin->exporter;
  bool waiting = false;
  int status = CUDALINK_OK;
  begin->slot = -1;
  for (;;) {
    uint32_t seen = atomic_load(&exporter->changed);
    enum step step = look(begin, description);
    if (step == STEP_FOUND) break;
    if (step == STEP_AGAIN) continue;
    if (step == STEP_MOVE) {
      set_deadline(begin); /* before memory is made, which takes time */
      if (!exporter->begun_generation) status = prepare(begin);
      if (status == CUDALINK_OK) begin->slot = landed_slot(exporter);
      if (status < 0 || begin->slot >= 0) break;
      begin->sleep_until = os_deadline(LOOK_STEP);
    }
    if (os_now() >= begin->deadline) {
      status = dropped(begin);
      break;
    }
    if (!waiting) {
      link_set_waiting(exporter, true);
      waiting = true;
      continue; /* look once more: a release may have come before the bit */
    }
    sleep_for(begin, seen);
    if (is_over(exporter, id)) {
      status = error_set(CUDALINK_ERROR_CLOSED, "the exporter was closed while begin waited");
      break;
    }
  }
  if (waiting) link_set_waiting(exporter, false);
  if (status == CUDALINK_OK) exporter->blocked_since = 0;
  return status;
}

static void fill(const struct link_exporter *exporter, cudalink_slot *slot) {
  const struct link_generation *generation = exporter->begun_generation;
  uint32_t index = exporter->begun_slot;
  *slot = (cudalink_slot){
      .sequence = exporter->begun_sequence,
      .bytes = generation->geometry.slot_bytes,
      .index = index,
      .generation = (uint32_t)generation->number,
      .device = gpu_device_number(exporter->device),
      .data = link_slot_address(generation, index),
      .user = exporter->user_size ? (char *)link_metadata(generation, index) +
                                        wire_metadata_user_offset(generation->geometry.plane_count)
                                  : NULL,
  };
}

/* What publish writes lies in the caches of those that had the slot's last frame. Stores become visible in
 * order, so that `head` would wait for each of these lines to come back: they are fetched now. */
static void fetch_ahead(const struct link_exporter *exporter) {
  struct wire_control *control = exporter->control;
  uint32_t slot = exporter->begun_slot;
  __builtin_prefetch(link_metadata(exporter->begun_generation, slot), 1);
  __builtin_prefetch(&control->ready[slot], 1);
  __builtin_prefetch(&control->index[exporter->begun_sequence % WIRE_INDEX_SIZE], 1);
}

/* The announced slot serves when the frame fits; otherwise the announcement is void. */
static bool use_announced(struct begin *begin, const cudalink_description *description) {
  struct link_exporter *exporter = begin->exporter;
  if (!exporter->announced) return false;
  bool must;
  link_generation_wanted(exporter, description, room(begin), &begin->want, &must);
  if (!must) return true;
  link_withdraw(exporter);
  return false;
}

static void drop_begun_generation(struct link_exporter *exporter) {
  if (!exporter->begun_generation || exporter->begun_generation == exporter->current) return;
  exporter->begun_generation->older = exporter->older; /* members may have been told of it */
  exporter->older = exporter->begun_generation;
  exporter->begun_generation = NULL;
  link_generation_collect(exporter);
}

static bool looks_the_same(const cudalink_description *a, const cudalink_description *b) {
  return a->plane_count == b->plane_count && a->user_size == b->user_size &&
         !memcmp(&a->picture, &b->picture, sizeof a->picture) &&
         !memcmp(&a->timing.time_base_numerator, &b->timing.time_base_numerator,
                 sizeof a->timing - offsetof(cudalink_timing, time_base_numerator)) &&
         !memcmp(a->planes, b->planes, a->plane_count * sizeof a->planes[0]);
}

/* A description is checked when it differs from the last one that was. */
static int check_description(struct begin *begin, const cudalink_description *description,
                             bool *same) {
  struct link_exporter *exporter = begin->exporter;
  *same = exporter->look && looks_the_same(description, &exporter->description);
  begin->bytes = exporter->description_bytes;
  return *same ? CUDALINK_OK : cudalink_description_bytes(description, &begin->bytes);
}

static int begin_locked(struct begin *begin, const cudalink_description *description, uint32_t id,
                        cudalink_slot *slot) {
  struct link_exporter *exporter = begin->exporter;
  bool same;
  int checked = check_description(begin, description, &same);
  if (checked < 0) return checked;
  exporter->begun = LINK_BEGINNING;
  if (exporter->only) {
    exporter->begun_sequence = ++exporter->last_sequence;
  } else if (!use_announced(begin, description)) {
    exporter->begun_generation = NULL;
    int status = find_slot(begin, description, id);
    if (status < 0) {
      drop_begun_generation(exporter);
      exporter->begun = LINK_IDLE;
      link_changed(exporter); /* close may wait for this begin to end */
      return status;
    }
    if (!exporter->begun_generation) exporter->begun_generation = exporter->current;
    exporter->begun_slot = (uint32_t)begin->slot;
    exporter->begun_sequence = ++exporter->last_sequence;
  }
  if (same) {
    exporter->description.timing = description->timing;
  } else {
    wire_description_copy(&exporter->description, description);
    exporter->description_bytes = begin->bytes;
    exporter->look++;
  }
  if (exporter->only) return CUDALINK_OK;
  fetch_ahead(exporter);
  fill(exporter, slot);
  return CUDALINK_OK;
}

/* The old wire gets its slots ready. What it can't carry is no error here: it is passed over. */
static void prepare_outlet(struct link_exporter *exporter) {
  if (!exporter->outlet) return;
  pthread_mutex_unlock(&exporter->object.mutex);
  link_outlet_prepare(exporter->outlet, &exporter->description, exporter->look);
  pthread_mutex_lock(&exporter->object.mutex);
}

static int check_user_size(const struct link_exporter *exporter,
                           const cudalink_description *description) {
  if (description->user_size <= exporter->user_size) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "channel '%s': %u byte%s of user data, but the channel was opened with "
                   "user_size %u; open it with a larger one",
                   exporter->name, description->user_size, error_s(description->user_size),
                   exporter->user_size);
}

/* Begun and locked, unless it fails. */
static int begin_frame(struct begin *begin, cudalink_exporter handle,
                       const cudalink_description *description, cudalink_slot *slot) {
  if (!description || !slot)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_exporter_begin: %s is NULL",
                     description ? "slot" : "description");
  NVTX_INNER_RANGE("cudalink.exporter.begin");
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, "cudalink_exporter_begin", &exporter);
  if (status < 0) return status;
  begin->exporter = exporter;
  status = check_user_size(exporter, description);
  if (status == CUDALINK_OK && exporter->begun != LINK_IDLE)
    status = error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                       "channel '%s': a frame is begun already; publish or abandon it first",
                       exporter->name);
  if (status == CUDALINK_OK) status = begin_locked(begin, description, handle.id, slot);
  if (status < 0) {
    link_owner_collect(exporter);
    link_exporter_unlock(exporter);
    return status;
  }
  /* Lets go of the mutex for memory. Still BEGINNING: neither close nor another thread ends it. */
  if (exporter->only) {
    set_deadline(begin);
    status = link_only_begin(exporter, begin->deadline, slot);
  } else {
    if (exporter->isolated_mask) status = link_isolated_make(exporter, exporter->begun_generation);
    prepare_outlet(exporter);
  }
  exporter->begun = LINK_BEGUN;
  if (status < 0) link_end_begun(exporter);
  if (exporter->closing) link_changed(exporter);
  if (status != CUDALINK_OK) link_exporter_unlock(exporter);
  return status;
}

int link_begin_locked(cudalink_exporter handle, const cudalink_description *description,
                      int64_t timeout, cudalink_slot *slot, struct link_exporter **locked) {
  struct begin begin = {.timeout = timeout};
  int status = begin_frame(&begin, handle, description, slot);
  *locked = begin.exporter;
  return status;
}

static int begin_unlocked(struct begin *begin, cudalink_exporter handle,
                          const cudalink_description *description, cudalink_slot *slot) {
  int status = begin_frame(begin, handle, description, slot);
  if (status == CUDALINK_OK) link_exporter_unlock(begin->exporter);
  return status;
}

int cudalink_exporter_begin(cudalink_exporter handle, const cudalink_description *description,
                            int64_t timeout, cudalink_slot *slot) {
  struct begin begin = {.timeout = timeout};
  return begin_unlocked(&begin, handle, description, slot);
}

int link_begin_shared(cudalink_exporter handle, const cudalink_description *description,
                      int64_t timeout, cudalink_slot *slot) {
  struct begin begin = {.shared = true, .timeout = timeout};
  return begin_unlocked(&begin, handle, description, slot);
}
