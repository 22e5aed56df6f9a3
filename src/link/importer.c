/* SPDX-License-Identifier: MIT
 *
 * Opening and closing an importer, and its counters.
 */
#include "link/importer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/nvtx.h"
#include "link/cipd/reader.h"
#include "link/reaper.h"

#define DEFAULT_GPU_WAIT_LIMIT 2000000000
#define HANDLES_LIMIT 2000000000 /* ns that close waits for legacy handles, */
#define HANDLES_LOOK 200000      /* and between two looks */

struct link_table link_importers = LINK_TABLE(struct link_importer);

void link_importer_changed(struct link_importer *importer) {
  /* seq_cst: pairs with the load that a waiting call makes before it looks and sleeps. */
  atomic_fetch_add(&importer->changed, 1);
  os_wake(&importer->changed, INT_MAX, false);
}

static int check_spec(const cudalink_importer_spec *spec) {
  if (!spec->name)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_importer_open: name is NULL");
  if (spec->policy < CUDALINK_POLICY_LATEST || spec->policy > CUDALINK_POLICY_SHARED)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': policy %d is none", spec->name,
                     (int)spec->policy);
  if (spec->hold > CUDALINK_MAX_HOLD)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': hold %u is over %u",
                     spec->name, spec->hold, CUDALINK_MAX_HOLD);
  size_t length = spec->group ? strlen(spec->group) : 0;
  bool shared = spec->policy == CUDALINK_POLICY_SHARED;
  if (shared != (length > 0) || length >= CUDALINK_GROUP_NAME_SIZE)
    return error_set(
        CUDALINK_ERROR_INVALID_ARGUMENT,
        "channel '%s': group '%s'; policy SHARED needs a group of 1 to 63 bytes, other "
        "policies have none",
        spec->name, spec->group ? spec->group : "");
  if (spec->wire > CUDALINK_WIRE_CIPD)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': wire %u is none", spec->name,
                     spec->wire);
  if (spec->wire == CUDALINK_WIRE_CIPD &&
      (spec->policy != CUDALINK_POLICY_LATEST || spec->isolated || spec->writable))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "channel '%s': the old wire knows only policy LATEST, neither isolated nor "
                     "writable",
                     spec->name);
  if (spec->open_timeout < 0 || spec->gpu_wait_limit < 0)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': a time is negative",
                     spec->name);
  if (spec->host_streams > CUDALINK_MAX_HOST_STREAMS)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': host_streams %u is over %d",
                     spec->name, spec->host_streams, CUDALINK_MAX_HOST_STREAMS);
  if (spec->directory && strlen(spec->directory) >= OS_PATH_SIZE)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "channel '%s': directory is over %d bytes",
                     spec->name, OS_PATH_SIZE - 1);
  return CUDALINK_OK;
}

/* The caller's struct may be older (shorter) than ours: what it lacks is zero, the default. */
static int copy_spec(cudalink_importer_spec *copy, const cudalink_importer_spec *spec) {
  memset(copy, 0, sizeof *copy);
  if (!spec || spec->size < offsetof(cudalink_importer_spec, policy) || spec->size > sizeof *copy)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_importer_open: spec.size is %zu, this library knows %zu; start with "
                     "CUDALINK_IMPORTER_DEFAULTS",
                     spec ? spec->size : 0, sizeof *copy);
  memcpy(copy, spec, spec->size);
  return check_spec(copy);
}

static void keep_spec(struct link_importer *importer, const cudalink_importer_spec *spec) {
  snprintf(importer->name, sizeof importer->name, "%s", spec->name);
  if (spec->group) snprintf(importer->group, sizeof importer->group, "%s", spec->group);
  if (spec->directory)
    snprintf(importer->directory, sizeof importer->directory, "%s", spec->directory);
  importer->spec = *spec;
  if (!importer->spec.hold) importer->spec.hold = 1;
  if (!importer->spec.gpu_wait_limit) importer->spec.gpu_wait_limit = DEFAULT_GPU_WAIT_LIMIT;
  importer->descriptor = importer->inside_descriptor = OS_NO_HANDLE;
  importer->work.run = link_search_run;
  importer->reader_work.run = link_reader_armed;
  importer->nobody = spec->wire == CUDALINK_WIRE_CIPD; /* ours is not looked for at all */
}

/* The old wire's name: a file name, so not every channel's. */
static int keep_segment(struct link_importer *importer) {
  if (importer->spec.wire == CUDALINK_WIRE_OWN) return CUDALINK_OK;
  int status = wire_cipd_segment_name(importer->segment, importer->name);
  if (status == CUDALINK_OK || importer->spec.wire == CUDALINK_WIRE_CIPD) return status;
  importer->segment[0] = 0;
  return CUDALINK_OK;
}

struct link_importer *link_importer_lock(cudalink_importer handle, const char *call, int *status) {
  *status = service_check_fork();
  if (*status < 0) return NULL;
  struct link_importer *importer = link_table_lock(&link_importers, handle.id);
  if (importer && !importer->closing) return importer;
  if (importer) link_object_unlock(importer);
  *status = error_set(CUDALINK_ERROR_CLOSED, "%s: the importer is closed", call);
  return NULL;
}

/* ---- close ------------------------------------------------------------------------------------ */

static int close_inside(void *argument) {
  struct link_importer *importer = argument;
  link_importer_notify(importer); /* also who polls */
  link_search_stop(importer);
  service_timer_stop(&importer->reader_timer);
  pthread_mutex_lock(&importer->object.mutex);
  if (importer->attachment) link_attachment_over(importer->attachment, CUDALINK_ERROR_CLOSED);
  if (importer->draining) link_attachment_settle(importer->draining);
  importer->draining = NULL;
  link_reader_leave(importer);
  importer->inside--;
  pthread_mutex_unlock(&importer->object.mutex);
  service_post(&importer->work);
  return CUDALINK_OK;
}

/* The record goes once no attachment and no waiting call needs it; until then its mutex guards. */
void link_importer_clear(struct link_importer *importer) {
  pthread_mutex_lock(&importer->object.mutex);
  bool last = !importer->attachments && !importer->mapping && !importer->inside &&
              !importer->attaching && !atomic_load(&importer->reader_work.posted);
  pthread_mutex_unlock(&importer->object.mutex);
  if (!last || atomic_load(&importer->work.posted)) return; /* it is posted again then */
  os_handle_close(&importer->inside_descriptor);
  for (struct gpu_device *device = importer->device, *older; device; device = older) {
    older = device->older;
    reaper_device(device);
  }
  link_ring_device_drop(importer->reader_device);
  link_table_give(&link_importers, importer);
}

/* A program may end right behind close. A producer that can't see its process would then not know when
 * legacy handles are closed. */
static void wait_for_handles(struct link_importer *importer, uint32_t id) {
  uint64_t deadline = os_deadline(HANDLES_LIMIT);
  _Atomic uint32_t nobody = 0;
  while (atomic_load(&importer->object.id) == id && os_now() < deadline)
    os_sleep_on(&nobody, 0, os_deadline(HANDLES_LOOK), false);
}

int cudalink_importer_close(cudalink_importer handle) {
  int status;
  struct link_importer *importer = link_importer_lock(handle, "cudalink_importer_close", &status);
  if (!importer) return status;
  importer->closing = true;
  /* Work that is posted already would give the record away before close_inside. */
  importer->inside++;
  bool legacy = importer->statistics.kind == CUDALINK_KIND_IPC && !importer->held;
  os_handle descriptor = importer->descriptor;
  importer->descriptor = OS_NO_HANDLE;
  link_importer_changed(importer);
  link_object_unlock(importer);
  status = service_call(close_inside, importer);
  os_handle_close(&descriptor); /* the end of it would wake nobody while frames are held */
  if (legacy) wait_for_handles(importer, handle.id);
  return status;
}

/* ---- open ------------------------------------------------------------------------------------- */

static int start_inside(void *argument) {
  struct link_importer *importer = argument;
  if (importer->spec.wire == CUDALINK_WIRE_CIPD)
    link_reader_watch(importer); /* first the watch, then the first look */
  else
    link_search_start(importer);
  return CUDALINK_OK;
}

static int no_producer(const struct link_importer *importer) {
  if (importer->unanswered || importer->attachment) /* joined, but not told of memory yet */
    return error_set(CUDALINK_ERROR_TIMEOUT,
                     "channel '%s': there is a producer, but it does not answer; is it stopped?",
                     importer->name);
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE], where[300] = "";
  int count = os_directory_candidates(importer->directory[0] ? importer->directory : NULL, paths);
  for (int i = 0; i < count; i++) {
    size_t used = strlen(where), room = sizeof where - used;
    if (snprintf(where + used, room, "%s%s", i ? ", " : "", paths[i]) >= (int)room) break;
  }
  return error_set(CUDALINK_ERROR_NOT_FOUND,
                   "no channel '%.64s' in time; start a producer, for instance: cudalink send "
                   "'%.64s' (looked in %s%s%.64s%s)",
                   importer->name, importer->name, where, importer->segment[0] ? ", /dev/shm" : "",
                   importer->segment, importer->reader_text);
}

/* Joined, and told of the memory, so that a look without waiting finds what is there. An isolated
 * consumer's memory is made by the producer's next begin. */
static bool is_usable(struct link_importer *importer) {
  struct link_attachment *attachment = importer->attachment;
  if (importer->reader) return true;
  if (!attachment) return importer->sessions != 0; /* it was, and is over already */
  return importer->spec.isolated || link_mapping_any(attachment);
}

/* Waits for a producer; what it answered instead is the error. With the mutex, which it lets go of meanwhile. */
static int wait_joined(struct link_importer *importer, uint64_t deadline) {
  for (;;) {
    uint32_t seen = atomic_load(&importer->changed);
    if (importer->closing)
      return error_set(CUDALINK_ERROR_CLOSED, "channel '%s': the importer was closed meanwhile",
                       importer->name);
    bool joined = importer->attachment || importer->reader;
    int tried = joined ? 1 : link_reader_try(importer);
    if (is_usable(importer)) return CUDALINK_OK;
    if (importer->refusal)
      return error_set(importer->refusal, "channel '%s': %s", importer->name,
                       importer->refusal_text);
    if (tried < 0) return tried;
    uint64_t until = link_reader_look_at(importer);
    if (os_now() >= deadline) return no_producer(importer);
    pthread_mutex_unlock(&importer->object.mutex);
    os_sleep_on(&importer->changed, seen, until < deadline ? until : deadline, false);
    pthread_mutex_lock(&importer->object.mutex);
  }
}

int cudalink_importer_wait_producer(cudalink_importer handle, int64_t timeout) {
  int status;
  struct link_importer *importer =
      link_importer_lock(handle, "cudalink_importer_wait_producer", &status);
  if (!importer) return status;
  importer->inside++; /* keeps the record while this call sleeps */
  status = wait_joined(importer, os_deadline(timeout));
  importer->inside--;
  if (importer->closing) service_post(&importer->work);
  link_object_unlock(importer);
  return status;
}

int cudalink_importer_open(cudalink_importer *handle, const cudalink_importer_spec *given) {
  cudalink_importer_spec spec;
  if (!handle)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_importer_open: importer is NULL");
  handle->id = 0;
  nvtx_open();
  char file[OS_FILE_SIZE];
  int status = copy_spec(&spec, given);
  if (status == CUDALINK_OK) status = os_name_encode(spec.name, file);
  if (status == CUDALINK_OK) status = service_start();
  if (status < 0) return status;
  struct link_importer *importer = link_table_take(&link_importers);
  if (!importer)
    return error_set(CUDALINK_ERROR_NO_MEMORY, "channel '%s': no memory for another importer",
                     spec.name);
  keep_spec(importer, &spec);
  status = keep_segment(importer);
  if (status < 0) {
    link_table_give(&link_importers, importer);
    return status;
  }
  memcpy(importer->file, file, sizeof importer->file);
  cudalink_importer opened = {atomic_load(&importer->object.id)};
  service_call(start_inside, importer);
  if (spec.open_timeout > 0) status = cudalink_importer_wait_producer(opened, spec.open_timeout);
  if (status == CUDALINK_OK) {
    *handle = opened;
    return CUDALINK_OK;
  }
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s", cudalink_last_error());
  cudalink_importer_close(opened);
  return error_set(status, "%s", sentence);
}

/* ---- counters ------------------------------------------------------------------------------------ */

/* Of the newest generation that was told. */
static uint32_t slots_of(const struct link_importer *importer) {
  const struct link_attachment *attachment = importer->attachment;
  if (importer->reader) return importer->reader->session.layout.slots;
  uint64_t newest = 0;
  uint32_t slots = 0;
  for (uint32_t i = 0; attachment && i < LINK_MAX_MAPPINGS; i++) {
    const struct link_mapping *mapping = &attachment->mappings[i];
    if ((mapping->number & WIRE_GENERATION_MASK) <= newest) continue;
    newest = mapping->number & WIRE_GENERATION_MASK;
    slots = mapping->message.slots;
  }
  return slots;
}

int cudalink_importer_get_statistics(cudalink_importer handle,
                                     cudalink_importer_statistics *statistics) {
  if (!statistics || !statistics->size || statistics->size > sizeof *statistics)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_importer_get_statistics: statistics.size is %zu, this library knows "
                     "%zu",
                     statistics ? statistics->size : 0, sizeof *statistics);
  int status;
  struct link_importer *importer =
      link_importer_lock(handle, "cudalink_importer_get_statistics", &status);
  if (!importer) return status;
  cudalink_importer_statistics copy = importer->statistics;
  struct link_attachment *attachment = importer->attachment;
  bool joined = attachment || importer->reader;
  bool over = importer->spec.once && importer->sessions && !joined;
  copy.size = statistics->size;
  copy.hold = attachment ? attachment->hold : importer->spec.hold;
  copy.held = importer->held;
  copy.slots = slots_of(importer);
  copy.connection = joined ? CUDALINK_CONNECTION_JOINED
                    : over ? CUDALINK_CONNECTION_OVER
                           : CUDALINK_CONNECTION_SEARCHING;
  link_object_unlock(importer);
  memcpy(statistics, &copy, copy.size);
  return CUDALINK_OK;
}
