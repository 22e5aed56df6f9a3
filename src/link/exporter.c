/* SPDX-License-Identifier: MIT
 *
 * Opening and closing an exporter, and its counters.
 */
#include "link/exporter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nvtx.h"
#include "link/reaper.h"
#include "link/trace.h"

#define CLOSE_LOOK 1000000 /* ns between two looks at the words that queued work still writes */
#define DYING_STEP                                                                                 \
  1000000 /* ns between two tries to take the name of a producer that is being killed, */
#define DYING_LOOKS 3          /* which is alive when so many looks say so, */
#define DYING_LIMIT 5000000000 /* ns, for so long: a GPU driver tidies up, too */
#define DEFAULT_SLOTS 4
#define DEFAULT_MAX_SLOTS 16
#define DEFAULT_HOLD_LIMIT 2000000000

struct link_table link_exporters = LINK_TABLE(struct link_exporter);

void link_changed(struct link_exporter *exporter) {
  /* seq_cst: pairs with the load that begin makes before it looks and sleeps. */
  atomic_fetch_add(&exporter->changed, 1);
  os_wake(&exporter->changed, INT_MAX, false);
}

static int check_spec(const cudalink_exporter_spec *spec) {
  if (!spec->name)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_exporter_open: name is NULL");
  if (!spec->description && !spec->slot_bytes)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': say how large frames are, by description or slot_bytes",
                     spec->name);
  if (spec->user_size > CUDALINK_MAX_USER_SIZE)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': user_size %u is over %u",
                     spec->name, spec->user_size, CUDALINK_MAX_USER_SIZE);
  uint32_t most = spec->max_slots ? spec->max_slots : DEFAULT_MAX_SLOTS;
  if (most < 3 || most > WIRE_MAX_SLOTS || (spec->slots && (spec->slots < 2 || spec->slots > most)))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': slots %u, max_slots %u; max_slots is 3 to %u, slots 2 to "
                     "max_slots",
                     spec->name, spec->slots, most, WIRE_MAX_SLOTS);
  if (spec->cipd_name && spec->kind == CUDALINK_KIND_HOST)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': the old wire (cipd_name '%.64s') needs frames on a GPU, not of "
                     "kind host",
                     spec->name, spec->cipd_name);
  if (spec->plane_count > CUDALINK_MAX_PLANES)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': plane_count %u is over %u",
                     spec->name, spec->plane_count, CUDALINK_MAX_PLANES);
  if (spec->own_stream_priority < CUDALINK_PRIORITY_NORMAL ||
      spec->own_stream_priority > CUDALINK_PRIORITY_HIGH)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': own_stream_priority %d is no cudalink_priority", spec->name,
                     (int)spec->own_stream_priority);
  if (spec->cipd_barrier_limit < 0)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': cipd_barrier_limit is negative", spec->name);
  if (spec->hold_limit < 0)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': hold_limit is negative",
                     spec->name);
  if (spec->allowed_user_count > CUDALINK_MAX_ALLOWED_USERS)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': allowed_user_count %u is over %u", spec->name,
                     spec->allowed_user_count, CUDALINK_MAX_ALLOWED_USERS);
  return CUDALINK_OK;
}

/* The caller's struct may be older (shorter) than ours: what it lacks is zero, the default. */
static int copy_spec(cudalink_exporter_spec *copy, const cudalink_exporter_spec *spec) {
  memset(copy, 0, sizeof *copy);
  if (!spec || spec->size < offsetof(cudalink_exporter_spec, description) ||
      spec->size > sizeof *copy)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_exporter_open: spec.size is %zu, this library knows %zu; start with "
                     "CUDALINK_EXPORTER_DEFAULTS",
                     spec ? spec->size : 0, sizeof *copy);
  memcpy(copy, spec, spec->size);
  return check_spec(copy);
}

static void keep_spec(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  snprintf(exporter->name, sizeof exporter->name, "%s", spec->name);
  os_own_program(exporter->program);
  exporter->user_size = spec->user_size;
  exporter->max_slots = spec->max_slots ? spec->max_slots : DEFAULT_MAX_SLOTS;
  uint32_t slots = spec->slots ? spec->slots : DEFAULT_SLOTS;
  exporter->least_slots = slots < exporter->max_slots ? slots : exporter->max_slots;
  exporter->hold_limit = spec->hold_limit ? spec->hold_limit : DEFAULT_HOLD_LIMIT;
  exporter->zombie_limit = spec->zombie_limit;
  exporter->only = spec->cipd_only != 0;
  exporter->refuse_writers = spec->refuse_writers != 0;
  exporter->own_stream = spec->own_stream != 0;
  exporter->export_sync = spec->export_sync != 0;
  exporter->flush_probe = spec->flush_probe != 0;
  exporter->strict_device = spec->strict_device != 0;
  exporter->converts = spec->convert != 0;
  exporter->allowed_user_count = spec->allowed_user_count;
  memcpy(exporter->allowed_users, spec->allowed_users, sizeof exporter->allowed_users);
  exporter->opened = os_now();
  exporter->newest_slot = -1;
  exporter->inside_control = exporter->listener.handle = OS_NO_HANDLE;
  exporter->control_segment.handle = exporter->claim.lock = OS_NO_HANDLE;
  exporter->wake_work.run = link_wake_run;
  exporter->tell_work.run = link_tell_run;
}

static int make_control(struct link_exporter *exporter) {
  struct os_segment *segment = &exporter->control_segment;
  int status =
      os_segment_create(segment, "cudalink-control", os_page_round(sizeof(struct wire_control)));
  if (status < 0) return status;
  struct wire_control *control = segment->address;
  control->magic = WIRE_CONTROL_MAGIC;
  control->version = WIRE_VERSION;
  control->bytes = sizeof *control;
  status = os_segment_seal_writers(segment);
  if (status == CUDALINK_OK) status = service_give(segment->handle, &exporter->inside_control);
  os_handle_close(&segment->handle);
  exporter->control = control;
  return status;
}

/* A GPU writes into the control block and into mailboxes. */
static int prepare_words(struct link_exporter *exporter) {
  struct gpu_device *device = exporter->device;
  if (!device->operations->register_words) return CUDALINK_OK;
  int status = device->operations->register_words(device, exporter->control_segment.address,
                                                  exporter->control_segment.bytes);
  exporter->control_registered = status == CUDALINK_OK;
  return status < 0 ? status : link_mailbox_prepare(exporter, LINK_MAILBOX_FEW);
}

static int prepare_copies(struct link_exporter *exporter, cudalink_priority priority) {
  struct gpu_device *device = exporter->device;
  if (!device->operations->copy_stream) return CUDALINK_OK;
  return device->operations->copy_stream(device, priority, &exporter->copy_stream);
}

/* The first generation, so that the first begin has nothing to allocate. */
static int make_first(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  struct link_want want = {.slot_bytes = spec->slot_bytes,
                           .plane_count = spec->plane_count ? spec->plane_count : 1,
                           .slots = exporter->least_slots};
  if (spec->description) {
    uint64_t bytes;
    int status = cudalink_description_bytes(spec->description, &bytes);
    if (status < 0) return status;
    if (bytes > want.slot_bytes) want.slot_bytes = bytes;
    if (spec->description->plane_count > want.plane_count)
      want.plane_count = spec->description->plane_count;
  }
  struct link_generation *first;
  int status = link_generation_make(exporter, &want, &first);
  if (status < 0) return status;
  first->number = ++exporter->last_generation;
  link_generation_switch(exporter, first);
  const struct gpu_operations *operations = exporter->device->operations;
  if (operations->send_prepare)
    operations->send_prepare(exporter->device, &first->block, exporter->least_slots);
  return CUDALINK_OK;
}

/* Takes the name. Nobody is let in before the exporter is whole: an end of it would be told. */
static int claim_inside(void *argument) {
  struct link_exporter *exporter = argument;
  int status = link_accept_start(exporter);
  if (status < 0) return status;
  service_unwatch(&exporter->listener);
  exporter->listener_paused = true;
  return CUDALINK_OK;
}

/* A producer that is being killed keeps its name for as long as the kernel takes to end it. Here and not on the
 * service thread, which has others to look after. */
static int claim_name(struct link_exporter *exporter) {
  uint64_t deadline = os_deadline(DYING_LIMIT);
  _Atomic uint32_t nobody = 0;
  for (int alive = 0;;) {
    int status = service_call(claim_inside, exporter);
    if (status != CUDALINK_ERROR_NAME_IN_USE || os_now() >= deadline) return status;
    /* Several looks: for a moment the signal is not pending any more, and its exit has not begun. */
    alive = os_process_is_ending(exporter->claim.owner) ? 0 : alive + 1;
    if (alive == DYING_LOOKS) return status;
    os_sleep_on(&nobody, 0, os_deadline(DYING_STEP), false);
  }
}

static int let_in_inside(void *argument) {
  struct link_exporter *exporter = argument;
  exporter->listener_paused = false;
  return service_watch(&exporter->listener, exporter->claim.listener, false);
}

/* The old wire beside our own, once the name is ours. */
static int open_outlet(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  if (!spec->cipd_name) return CUDALINK_OK;
  if (!exporter->device->operations->legacy)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "channel '%s': the old wire (cipd_name '%.64s') needs a GPU; %s", spec->name,
                     spec->cipd_name, exporter->device->reason);
  int status =
      link_outlet_open(&exporter->outlet, spec, CUDALINK_DEVICE(exporter->device->ordinal));
  if (status == CUDALINK_OK) status = link_outlet_start(exporter->outlet, spec->description);
  if (status == CUDALINK_OK) link_outlet_account(exporter->outlet, &exporter->statistics);
  return status;
}

/* What the options need of an open device. */
static int prepare_device(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  int status = prepare_copies(exporter, spec->own_stream_priority);
  if (status == CUDALINK_OK && spec->convert) status = gpu_convert_load(exporter->device);
  return status;
}

static int open_ends(struct link_exporter *exporter, const cudalink_exporter_spec *spec) {
  if (exporter->only) {
    int only = link_only_open(exporter, spec);
    if (only == CUDALINK_OK) only = prepare_device(exporter, spec);
    return only == CUDALINK_OK ? link_only_start(exporter, spec) : only;
  }
  int status = os_name_encode(spec->name, exporter->file);
  if (status == CUDALINK_OK) status = os_directory_own(spec->directory, exporter->directory);
  if (status == CUDALINK_OK)
    status = gpu_device_open(spec->kind, spec->device, NULL, &exporter->device);
  if (status == CUDALINK_OK) status = prepare_device(exporter, spec);
  if (status == CUDALINK_OK) status = make_control(exporter);
  if (status == CUDALINK_OK) status = prepare_words(exporter);
  if (status == CUDALINK_OK) status = make_first(exporter, spec);
  if (status == CUDALINK_OK) status = claim_name(exporter);
  if (status == CUDALINK_OK) status = open_outlet(exporter, spec);
  return status == CUDALINK_OK ? service_call(let_in_inside, exporter) : status;
}

/* ---- close ----------------------------------------------------------------------------------------- */

static void doom_all(struct link_exporter *exporter) {
  struct link_generation *generation = exporter->current;
  if (generation)
    generation->older = exporter->older;
  else
    generation = exporter->older;
  exporter->current = exporter->older = NULL;
  while (generation) {
    struct link_generation *older = generation->older;
    link_generation_doom(exporter, generation);
    generation = older;
  }
}

static bool all_landed(const struct link_exporter *exporter) {
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS && exporter->control; s++)
    if (!link_slot_landed(exporter, s)) return false;
  return true;
}

/* True: copies that somebody is to be told of are still under way. */
static bool look_at_owners(struct link_exporter *exporter) {
  pthread_mutex_lock(&exporter->object.mutex);
  link_owner_close(exporter);
  bool kept = exporter->owners != NULL;
  pthread_mutex_unlock(&exporter->object.mutex);
  return kept;
}

/* Looks until all queued work has landed, then ends the connections and lets go of the rest: members'
 * streams may wait for that work, and to them the end of the socket says that nothing more comes, now
 * or because this process died. Those of kind ipc end by themselves: legacy handles stay good until who
 * opened them has closed them, or its process has ended, however long that takes; so it is while frames lie
 * in a pool, whose owner goes on with its memory once nobody reads them, and while a stopped process can't be told
 * of the last frames and the end, because its queue is full. Service thread. */
static void close_fire(struct service_timer *timer) {
  struct link_exporter *exporter =
      (struct link_exporter *)(void *)((char *)timer - offsetof(struct link_exporter, close_timer));
  bool legacy = exporter->device && exporter->device->kind == CUDALINK_KIND_IPC;
  bool theirs = legacy || exporter->shares || exporter->untold, kept = look_at_owners(exporter);
  if (!theirs && all_landed(exporter)) link_accept_end(exporter);
  if (!link_accept_over(exporter) || exporter->exiting_mask) { /* theirs: link_close_look */
    service_timer_set(timer, close_fire, theirs && !kept ? OS_FOREVER : os_deadline(CLOSE_LOOK));
    return;
  }
  pthread_mutex_lock(&exporter->object.mutex);
  /* A member that dies right now still names frames; its own timer removes it. */
  if (!exporter->present_mask) doom_all(exporter);
  link_doom_collect(exporter);
  bool landed = !exporter->present_mask && !exporter->doomed && all_landed(exporter) &&
                !exporter->owners && !exporter->asking && !exporter->preparing &&
                !atomic_load(&exporter->wake_work.posted) &&
                !atomic_load(&exporter->tell_work.posted);
  exporter->over = landed;
  pthread_mutex_unlock(&exporter->object.mutex);
  if (!landed) {
    service_timer_set(timer, close_fire, os_deadline(CLOSE_LOOK));
    return;
  }
  service_timer_stop(&exporter->doom_timer);
  service_timer_stop(&exporter->close_timer);
  LINK_EACH_OF(exporter->present_mask, m)
    service_timer_stop(&exporter->members[m].timer);
  link_share_close(exporter);
  os_handle_close(&exporter->inside_control);
  exporter->control = NULL;
  link_mailbox_close(exporter);
  if (exporter->control_registered)
    reaper_words(&exporter->control_segment, exporter->device);
  else
    reaper_segment(&exporter->control_segment);
  reaper_device(exporter->device);
  for (uint32_t g = 0; g < LINK_MAX_GROUPS; g++)
    free(exporter->groups[g].queue);
  link_table_give(&link_exporters, exporter);
}

void link_close_look(struct link_exporter *exporter) {
  if (exporter->close_timer.linked) service_timer_set(&exporter->close_timer, close_fire, os_now());
}

static int stop_inside(void *argument) {
  struct link_exporter *exporter = argument;
  if (exporter->claim.lock != OS_NO_HANDLE) link_accept_stop(exporter);
  close_fire(&exporter->close_timer);
  return CUDALINK_OK;
}

static void close_outlet(struct link_exporter *exporter) {
  if (exporter->only) exporter->device = NULL; /* it is the outlet's */
  link_outlet_close(exporter->outlet);
  exporter->outlet = NULL;
}

static int open_failed(struct link_exporter *exporter, int status) {
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s", cudalink_last_error());
  exporter->closing = true;
  close_outlet(exporter);
  service_call(stop_inside, exporter);
  return error_set(status, "%s", sentence);
}

int cudalink_exporter_open(cudalink_exporter *handle, const cudalink_exporter_spec *given) {
  cudalink_exporter_spec spec;
  if (!handle)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_exporter_open: exporter is NULL");
  handle->id = 0;
  nvtx_open();
  int status = copy_spec(&spec, given);
  if (status == CUDALINK_OK) status = service_start();
  if (status < 0) return status;
  struct link_exporter *exporter = link_table_take(&link_exporters);
  if (!exporter)
    return error_set(CUDALINK_ERROR_NO_MEMORY, "channel '%s': no memory for another exporter",
                     spec.name);
  keep_spec(exporter, &spec);
  uint32_t id = atomic_load(&exporter->object.id);
  status = open_ends(exporter, &spec);
  if (status < 0) return open_failed(exporter, status);
  TRACE(EXPORTER, 0, 0, 0, 0);
  handle->id = id;
  return CUDALINK_OK;
}

int link_exporter_lock(cudalink_exporter handle, const char *call, struct link_exporter **locked) {
  int status = service_check_fork();
  if (status < 0) return status;
  struct link_exporter *exporter = link_table_lock(&link_exporters, handle.id);
  if (exporter && !exporter->closing) {
    *locked = exporter;
    return CUDALINK_OK;
  }
  if (exporter) link_object_unlock(exporter);
  return error_set(CUDALINK_ERROR_CLOSED, "%s: the exporter is closed", call);
}

/* Another thread may be inside begin or send: it notices `closing`, which takes microseconds, or the
 * time of its copy. */
static void wait_until_idle(struct link_exporter *exporter) {
  while (exporter->begun == LINK_BEGINNING || exporter->begun == LINK_PUBLISHING ||
         exporter->inside) {
    uint32_t seen = atomic_load(&exporter->changed);
    pthread_mutex_unlock(&exporter->object.mutex);
    os_sleep_on(&exporter->changed, seen, os_deadline(CLOSE_LOOK), false);
    pthread_mutex_lock(&exporter->object.mutex);
  }
}

int cudalink_exporter_close(cudalink_exporter handle) {
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, "cudalink_exporter_close", &exporter);
  if (status < 0) return status;
  exporter->closing = true;
  link_changed(exporter);
  wait_until_idle(exporter);
  if (exporter->begun == LINK_BEGUN || exporter->announced) link_end_begun(exporter);
  link_owner_collect(exporter);
  link_exporter_unlock(exporter);
  close_outlet(exporter); /* nobody begins or publishes any more */
  return service_call(stop_inside, exporter);
}

/* ---- counters -------------------------------------------------------------------------------------- */

/* `inside` keeps the record while this call sleeps without the mutex. */
static void sleep_on_changed(struct link_exporter *exporter, uint32_t seen, uint64_t deadline) {
  pthread_mutex_unlock(&exporter->object.mutex);
  os_sleep_on(&exporter->changed, seen, deadline, false);
  pthread_mutex_lock(&exporter->object.mutex);
}

static int refuse_wait(const struct link_exporter *exporter, const char *call) {
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "channel '%s': %s: a producer on the old wire alone can't know its readers",
                   exporter->name, call);
}

int cudalink_exporter_wait_consumers(cudalink_exporter handle, uint32_t count, int64_t timeout) {
  uint64_t deadline = os_deadline(timeout);
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, "cudalink_exporter_wait_consumers", &exporter);
  if (status < 0) return status;
  if (exporter->only) status = refuse_wait(exporter, "wait_consumers");
  exporter->inside++;
  while (exporter->statistics.consumers < count && status == CUDALINK_OK) {
    uint32_t seen = atomic_load(&exporter->changed);
    if (exporter->closing)
      status = error_set(CUDALINK_ERROR_CLOSED, "channel '%s': closed meanwhile", exporter->name);
    else if (os_now() >= deadline)
      status = error_set(CUDALINK_ERROR_TIMEOUT, "channel '%s': %u of %u consumer%s joined in time",
                         exporter->name, exporter->statistics.consumers, count, error_s(count));
    else
      sleep_on_changed(exporter, seen, deadline);
  }
  exporter->inside--;
  if (exporter->closing) link_changed(exporter);
  link_object_unlock(exporter);
  return status;
}

static bool all_taken(struct link_exporter *exporter) {
  return link_drained(exporter) && !link_group_mourns(exporter);
}

int cudalink_exporter_wait_taken(cudalink_exporter handle, int64_t timeout) {
  uint64_t deadline = os_deadline(timeout);
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, "cudalink_exporter_wait_taken", &exporter);
  if (status < 0) return status;
  if (exporter->only) {
    status = refuse_wait(exporter, "wait_taken");
    link_object_unlock(exporter);
    return status;
  }
  link_set_waiting(exporter, true); /* before the first look: who takes a frame tells */
  exporter->inside++;
  while (!all_taken(exporter) && status == CUDALINK_OK) {
    uint32_t seen = atomic_load(&exporter->changed);
    if (all_taken(exporter)) break;
    if (exporter->closing)
      status = error_set(CUDALINK_ERROR_CLOSED, "channel '%s': closed meanwhile", exporter->name);
    else if (os_now() >= deadline)
      status = error_set(CUDALINK_ERROR_TIMEOUT, "channel '%s': not all frames were taken in time",
                         exporter->name);
    if (status == CUDALINK_OK) sleep_on_changed(exporter, seen, deadline);
  }
  exporter->inside--;
  link_set_waiting(exporter, false);
  if (exporter->closing) link_changed(exporter);
  link_object_unlock(exporter);
  return status;
}

static void count(const struct link_exporter *exporter, cudalink_exporter_statistics *copy) {
  const struct link_generation *current = exporter->current;
  copy->retired_bytes = exporter->retired_bytes;
  copy->memory_bytes = current->geometry.memory_bytes + current->geometry.metadata_bytes;
  copy->slots = current->geometry.slots;
  uint32_t wanted = link_wanted_slots(exporter);
  copy->slots_short = wanted > exporter->max_slots ? wanted - exporter->max_slots : 0;
  copy->kind = exporter->device->kind;
  memcpy(copy->path, exporter->device->path, sizeof copy->path);
  memcpy(copy->reason, exporter->device->reason, sizeof copy->reason);
}

int cudalink_exporter_get_statistics(cudalink_exporter handle,
                                     cudalink_exporter_statistics *statistics) {
  if (!statistics || !statistics->size || statistics->size > sizeof *statistics)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_exporter_get_statistics: statistics.size is %zu, this library knows "
                     "%zu",
                     statistics ? statistics->size : 0, sizeof *statistics);
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, "cudalink_exporter_get_statistics", &exporter);
  if (status < 0) return status;
  cudalink_exporter_statistics copy = exporter->statistics;
  if (exporter->only)
    link_only_count(&copy);
  else
    count(exporter, &copy);
  copy.size = statistics->size;
  link_object_unlock(exporter);
  memcpy(statistics, &copy, copy.size);
  return CUDALINK_OK;
}
