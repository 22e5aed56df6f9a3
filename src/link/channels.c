/* SPDX-License-Identifier: MIT
 *
 * Looking at channels from outside: a question to each producer's service thread, all at once, on
 * sockets of the caller's own; no exporter, no importer, no thread.
 */
#include "cudalink/channels.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "os/os.h"
#include "wire/message.h"

struct asked {
  os_handle handle;
  cudalink_channel_info info;
};

struct list {
  const char *directory;
  struct asked *asked;
  size_t count, capacity;
  bool failed;
};

/* What of it is set: most of it is room for consumers, and most channels have few. */
static size_t used_of(const cudalink_channel_info *info) {
  return offsetof(cudalink_channel_info, consumers) +
         info->consumer_count * sizeof info->consumers[0];
}

/* The one that was named, else all the usual ones. */
static int folders_of(const char *directory, char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE]) {
  if (!directory) return os_directory_all(NULL, paths);
  if (strlen(directory) >= OS_PATH_SIZE) return 0;
  memcpy(paths[0], directory, strlen(directory) + 1);
  return 1;
}

/* A name that was cut to fit is known to its producer only: then the file's has to do. */
static void name_of(const char *file, char name[CUDALINK_NAME_MAX + 1]) {
  if (!os_name_decode(file, name)) snprintf(name, CUDALINK_NAME_MAX + 1, "%s", file);
}

static bool add(struct list *list, const char *file) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity ? 2 * list->capacity : 16;
    struct asked *grown = realloc(list->asked, capacity * sizeof *grown);
    if (!grown) return !(list->failed = true);
    list->asked = grown;
    list->capacity = capacity;
  }
  struct asked *asked = &list->asked[list->count++];
  memset(asked, 0, offsetof(struct asked, info.consumers));
  memcpy(asked->info.directory, list->directory,
         strnlen(list->directory, sizeof asked->info.directory - 1));
  name_of(file, asked->info.name);
  asked->info.status = CUDALINK_ERROR_TIMEOUT;
  int status = os_connect(list->directory, file, &asked->handle);
  if (status < 0) {
    asked->handle = OS_NO_HANDLE;
    asked->info.status = status == CUDALINK_ERROR_NOT_FOUND ? CUDALINK_ERROR_LOST : status;
    return true;
  }
  struct wire_plain question = {.value = WIRE_STATUS_COUNTS | WIRE_STATUS_DEVICE |
                                         WIRE_STATUS_LATENCIES};
  wire_message_start(&question, WIRE_STATUS, sizeof question);
  os_send(asked->handle, &question, sizeof question, NULL, 0);
  return true;
}

static bool visit(void *context, const char *file) { return add(context, file); }

static void fill_consumer(cudalink_consumer_info *out, const struct wire_status_consumer *in,
                          const struct wire_status_counts *counts) {
  *out = (cudalink_consumer_info){.pid = in->pid,
                                  .uid = in->uid,
                                  .policy = in->policy,
                                  .hold = in->hold,
                                  .held = in->held,
                                  .isolated = in->isolated,
                                  .held_for = in->held_for,
                                  .position = in->position,
                                  .received = counts->received,
                                  .missed = counts->missed,
                                  .latency = counts->latency,
                                  .measured = counts->measured};
  memcpy(out->program, in->program, sizeof out->program);
  memcpy(out->group, in->group, sizeof out->group);
  memset(out->latencies, 0xff, sizeof out->latencies); /* CUDALINK_NOT_TOLD */
}

/* Behind the device, if the producer knows of them. */
static void fill_latencies(cudalink_channel_info *out, struct wire_status_reply *in) {
  const struct wire_status_latencies *latencies = wire_status_latencies_at(in);
  if ((const char *)latencies >= (const char *)in + in->head.bytes) return;
  for (uint32_t c = 0; c < in->count_count; c++)
    memcpy(out->consumers[c].latencies, latencies[c].counts, sizeof latencies[c].counts);
}

static void fill_device(cudalink_channel_info *out, const struct wire_status_device *in) {
  static const uint8_t none[16];
  if (memcmp(in->uuid, none, sizeof none) == 0) return;
  memcpy(out->device_uuid, in->uuid, sizeof out->device_uuid);
  memcpy(out->device_name, in->name, sizeof out->device_name);
  /* The driver names slices of a GPU so, and their UUIDs are written otherwise. */
  gpu_uuid_write(out->device, strstr(in->name, " MIG ") ? "MIG" : "GPU", in->uuid);
}

static void fill(cudalink_channel_info *out, struct wire_status_reply *in) {
  static const struct wire_status_counts not_told = {CUDALINK_NOT_TOLD, CUDALINK_NOT_TOLD,
                                                     CUDALINK_NOT_TOLD, CUDALINK_NOT_TOLD};
  const struct wire_status_counts *counts = in->count_count ? wire_status_counts_of(in) : NULL;
  memcpy(out->name, in->channel, sizeof out->name);
  memcpy(out->program, in->program, sizeof out->program);
  memcpy(out->path, in->path, sizeof out->path);
  memcpy(out->reason, in->reason, sizeof out->reason);
  out->status = CUDALINK_OK;
  out->pid = in->pid;
  out->uid = in->uid;
  out->kind = in->kind;
  out->slots = in->slots;
  out->slot_bytes = in->slot_bytes;
  out->generation = in->generation;
  out->published = in->published;
  out->dropped = in->dropped;
  out->newest_timestamp = in->newest_timestamp;
  out->opened = in->opened;
  out->format = in->format;
  out->width = in->width;
  out->height = in->height;
  out->plane_count = in->plane_count;
  const struct wire_status_device *device = wire_status_device_at(in);
  if ((const char *)device < (const char *)in + in->head.bytes) fill_device(out, device);
  out->consumer_count = in->consumer_count;
  for (uint32_t c = 0; c < in->consumer_count; c++)
    fill_consumer(&out->consumers[c], &in->consumers[c], counts ? &counts[c] : &not_told);
  fill_latencies(out, in);
}

/* The answer, if it is there; the socket is closed once there is nothing more to come. `buffer` has room for any
 * message: an answer may be longer than what a thread's own memory should have. */
static void receive(struct asked *asked, void *buffer) {
  size_t size;
  int status = os_receive(asked->handle, buffer, WIRE_MAX_MESSAGE, &size, NULL, NULL);
  if (status == CUDALINK_ERROR_BUSY) return;
  int type = status < 0 ? status : wire_message_check(buffer, size);
  if (type == WIRE_STATUS_REPLY)
    fill(&asked->info, buffer);
  else if (type == WIRE_REFUSED)
    asked->info.status = ((const struct wire_refused *)buffer)->error;
  else
    asked->info.status = type < 0 ? type : CUDALINK_ERROR_PROTOCOL;
  os_handle_close(&asked->handle);
}

/* Of those whose answers are awaited, and no others: more entries than this process may have descriptors are
 * an error. */
static size_t fill_polls(const struct list *list, struct pollfd *polls) {
  size_t open = 0;
  for (size_t i = 0; i < list->count; i++)
    if (list->asked[i].handle != OS_NO_HANDLE)
      polls[open++] = (struct pollfd){.fd = list->asked[i].handle, .events = POLLIN};
  return open;
}

static void wait_answers(struct list *list, uint64_t deadline) {
  struct pollfd *polls = calloc(list->count ? list->count : 1, sizeof *polls);
  void *buffer = malloc(WIRE_MAX_MESSAGE);
  bool has_memory = polls && buffer;
  for (;;) {
    size_t open = has_memory ? fill_polls(list, polls) : 0, p = 0;
    uint64_t now = os_now();
    if (!open || now >= deadline) break;
    uint64_t left = (deadline - now + 999999) / 1000000;
    if (poll(polls, open, left > 60000 ? 60000 : (int)left) < 0) continue;
    for (size_t i = 0; i < list->count; i++)
      if (list->asked[i].handle != OS_NO_HANDLE && polls[p++].revents)
        receive(&list->asked[i], buffer);
  }
  for (size_t i = 0; i < list->count; i++)
    os_handle_close(&list->asked[i].handle);
  free(buffer);
  free(polls);
}

static int by_name(const void *left, const void *right) {
  return strcmp((*(struct asked *const *)left)->info.name,
                (*(struct asked *const *)right)->info.name);
}

/* In order of their names; the room that no consumer needs stays untouched. NULL: there is no memory. */
static cudalink_channel_info *sorted(struct list *list) {
  size_t room = list->count ? list->count : 1;
  struct asked **order = malloc(room * sizeof *order); /* NOLINT(bugprone-sizeof-expression) */
  cudalink_channel_info *channels = order ? calloc(room, sizeof *channels) : NULL;
  for (size_t i = 0; i < list->count && channels; i++)
    order[i] = &list->asked[i];
  /* NOLINTNEXTLINE(bugprone-sizeof-expression): it is pointers that are sorted */
  if (channels) qsort(order, list->count, sizeof *order, by_name);
  for (size_t i = 0; i < list->count && channels; i++)
    memcpy(&channels[i], &order[i]->info, used_of(&order[i]->info));
  free(order);
  return channels;
}

int cudalink_channels_list(const char *directory, int64_t timeout, cudalink_channel_info **channels,
                           size_t *count) {
  if (!channels || !count)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_channels_list: an argument is NULL");
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  int folders = folders_of(directory, paths);
  struct list list = {0};
  for (int i = 0; i < folders; i++) {
    list.directory = paths[i];
    os_directory_list(paths[i], visit, &list);
  }
  wait_answers(&list, os_deadline(timeout));
  *channels = list.failed ? NULL : sorted(&list);
  *count = list.count;
  free(list.asked);
  if (*channels) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a list of %zu channels", list.count);
}

void cudalink_channels_free(cudalink_channel_info *channels) { free(channels); }

int cudalink_channel_get(const char *directory, const char *name, int64_t timeout,
                         cudalink_channel_info *channel) {
  char file[OS_FILE_SIZE], paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  if (!name || !channel)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_channel_get: an argument is NULL");
  int status = os_name_encode(name, file);
  if (status < 0) return status;
  int folders = folders_of(directory, paths);
  for (int i = 0; i < folders; i++) {
    struct list list = {.directory = paths[i]};
    if (!add(&list, file)) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a channel");
    wait_answers(&list, os_deadline(timeout));
    memset(channel, 0, sizeof *channel);
    memcpy(channel, &list.asked[0].info, used_of(&list.asked[0].info));
    free(list.asked);
    if (channel->status == CUDALINK_OK && strcmp(channel->name, name) != 0) continue;
    if (channel->status == CUDALINK_OK) return CUDALINK_OK;
    if (channel->status != CUDALINK_ERROR_LOST)
      return error_set(channel->status, "channel '%s' in %s: %s", name, paths[i],
                       cudalink_error_text(channel->status));
  }
  return error_set(CUDALINK_ERROR_NOT_FOUND,
                   "no channel '%s'; start a producer, for instance: cudalink send '%s'", name,
                   name);
}

struct clean {
  const char *directory;
  size_t removed;
};

static bool clean_one(void *context, const char *file) {
  struct clean *clean = context;
  if (os_claim_clean(clean->directory, file)) clean->removed++;
  return true;
}

int cudalink_channels_clean(const char *directory, size_t *removed) {
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  int folders = folders_of(directory, paths);
  struct clean clean = {0};
  for (int i = 0; i < folders; i++) {
    clean.directory = paths[i];
    os_directory_list(paths[i], clean_one, &clean);
    os_directory_list_locks(paths[i], clean_one, &clean);
  }
  if (removed) *removed = clean.removed;
  return CUDALINK_OK;
}

struct leftovers {
  const char *directory;
  cudalink_leftover_callback callback;
  void *context;
};

static void visit_leftover(const struct leftovers *leftovers, const char *file, bool is_lock) {
  char name[CUDALINK_NAME_MAX + 1];
  bool has_socket;
  if (!os_claim_would_clean(leftovers->directory, file, &has_socket)) return;
  if (is_lock && has_socket) return; /* its socket was visited */
  name_of(file, name);
  leftovers->callback(leftovers->context, leftovers->directory, name, has_socket);
}

static bool visit_socket(void *context, const char *file) {
  visit_leftover(context, file, false);
  return true;
}

static bool visit_lock(void *context, const char *file) {
  visit_leftover(context, file, true);
  return true;
}

int cudalink_channels_leftovers(const char *directory, cudalink_leftover_callback callback,
                                void *context) {
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  if (!callback)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_channels_leftovers: callback is NULL");
  int folders = folders_of(directory, paths);
  struct leftovers leftovers = {.callback = callback, .context = context};
  for (int i = 0; i < folders; i++) {
    leftovers.directory = paths[i];
    os_directory_list(paths[i], visit_socket, &leftovers);
    os_directory_list_locks(paths[i], visit_lock, &leftovers);
  }
  return CUDALINK_OK;
}
