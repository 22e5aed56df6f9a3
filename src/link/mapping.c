/* SPDX-License-Identifier: MIT
 *
 * Generations as a consumer has them: told of by the service thread, mapped by the next acquire,
 * unmapped when they are over and no frame of theirs is out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/importer.h"
#include "link/reaper.h"

#define FAILED_STEP 10000000 /* ns between two tries to open a legacy handle, */
#define MOST_FAILURES 200    /* and how many */

static bool is_pending(const struct link_mapping *mapping) {
  return mapping->number && !mapping->mapped;
}

/* One that may be tried now. Asked by each acquire: where there is none, one look says so. */
static struct link_mapping *next_pending(struct link_attachment *attachment) {
  bool any = false;
  if (!attachment->told) return NULL;
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    struct link_mapping *mapping = &attachment->mappings[i];
    if (!is_pending(mapping)) continue;
    if (!mapping->try_at || mapping->try_at <= os_now()) return mapping;
    any = true;
  }
  attachment->told = any;
  return NULL;
}

uint64_t link_mapping_try_at(const struct link_attachment *attachment) {
  uint64_t at = OS_FOREVER;
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    const struct link_mapping *mapping = &attachment->mappings[i];
    if (is_pending(mapping) && mapping->try_at && mapping->try_at < at) at = mapping->try_at;
  }
  return at;
}

bool link_mapping_any(const struct link_attachment *attachment) {
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++)
    if (attachment->mappings[i].number) return true;
  return false;
}

bool link_mapping_pending(struct link_attachment *attachment) {
  if (attachment->importer->mapping) return false;
  return next_pending(attachment) != NULL ||
         (attachment->pool_count && link_pool_pending(attachment) != NULL);
}

/* Service thread: the handles are of its table. */
static void drop_pending(struct link_mapping *mapping) {
  os_handle_close(&mapping->inside);
  os_handle_close(&mapping->inside_metadata);
  mapping->number = 0;
}

/* The producer is to be told that nothing of it is mapped here. */
static void note_closed(struct link_attachment *attachment, uint64_t number) {
  for (uint32_t c = 0; c < LINK_MAX_MAPPINGS; c++) {
    if (attachment->closed_generations[c]) continue;
    attachment->closed_generations[c] = number;
    break;
  }
  service_post(&attachment->work);
}

struct closed {
  struct link_attachment *attachment;
  uint64_t number;
};

/* The reaper, behind the unmapping. Its queue is in order, so the attachment is still there. */
static void tell_closed(void *argument) {
  struct closed *closed = argument;
  struct link_importer *importer = closed->attachment->importer;
  pthread_mutex_lock(&importer->object.mutex);
  note_closed(closed->attachment, closed->number);
  pthread_mutex_unlock(&importer->object.mutex);
  free(closed);
}

/* Of legacy handles only once the reaper has closed them, since the producer then frees. */
static void tell_unmapped(struct link_attachment *attachment, const struct link_mapping *mapping,
                          uint64_t number) {
  bool legacy = mapping->message.kind == CUDALINK_KIND_IPC;
  struct closed *closed = legacy ? malloc(sizeof *closed) : NULL;
  if (!closed) {
    note_closed(attachment, number);
    return;
  }
  *closed = (struct closed){attachment, number};
  reaper_call(tell_closed, closed);
}

static struct link_mapping *place_of(struct link_attachment *attachment, uint64_t number) {
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++)
    if (attachment->mappings[i].number == number) return &attachment->mappings[i];
  return NULL;
}

/* That no acquire is busy with. */
static struct link_mapping *oldest_pending(struct link_attachment *attachment) {
  struct link_mapping *oldest = NULL;
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    struct link_mapping *mapping = &attachment->mappings[i];
    if (!is_pending(mapping) || mapping->busy) continue;
    if (!oldest || mapping->number < oldest->number) oldest = mapping;
  }
  return oldest;
}

/* Service thread. The producer is told: it may free the memory, and tells of it again if need be. */
static void forget_pending(struct link_attachment *attachment, struct link_mapping *mapping) {
  note_closed(attachment, mapping->number);
  link_attachment_tell(attachment); /* many may come at once, and the list is short */
  drop_pending(mapping);
}

/* Of several unread ones only the latest is kept; a group may be offered frames of an older one, and the
 * current one may be older than the one that is announced. */
static void forget_unread(struct link_attachment *attachment) {
  struct link_mapping *pending = oldest_pending(attachment);
  if (!pending || attachment->importer->spec.policy == CUDALINK_POLICY_SHARED) return;
  uint64_t current = atomic_load_explicit(&attachment->control->gen, memory_order_acquire);
  if ((pending->number & WIRE_GENERATION_MASK) != current) forget_pending(attachment, pending);
}

/* All places are taken when many came while an acquire was busy: then the oldest gives way. */
static struct link_mapping *make_place(struct link_attachment *attachment) {
  struct link_mapping *place = place_of(attachment, 0);
  if (place) return place;
  place = oldest_pending(attachment);
  if (place) forget_pending(attachment, place);
  return place;
}

void link_mapping_add(struct link_attachment *attachment, const struct wire_generation *message,
                      os_handle handles[2]) {
  if (place_of(attachment, message->generation)) return; /* told twice */
  forget_unread(attachment);
  link_mapping_collect(attachment);
  struct link_mapping *place = make_place(attachment);
  if (!place) return;
  *place = (struct link_mapping){.number = message->generation,
                                 .inside = handles[0],
                                 .inside_metadata = handles[1],
                                 .message = *message,
                                 .block.shared.handle = OS_NO_HANDLE,
                                 .metadata.handle = OS_NO_HANDLE};
  wire_geometry_from_message(&place->geometry, message);
  attachment->told = true;
  handles[0] = handles[1] = OS_NO_HANDLE;
}

struct map {
  struct wire_generation message;
  os_handle inside, inside_metadata;
  struct gpu_block block;
  struct os_segment metadata;
  bool tried; /* to import the block: what else can fail has nothing to do with the producer */
};

/* Fetches the descriptors from the service thread and maps them. Without the mutex. */
static int do_map(struct gpu_device *device, bool writable, struct map *map) {
  os_handle handle;
  struct gpu_shared shared = {.handle = OS_NO_HANDLE};
  memcpy(shared.ipc, map->message.ipc_handle, sizeof shared.ipc);
  int status = map->message.kind == CUDALINK_KIND_IPC ? CUDALINK_OK
                                                      : service_take(map->inside, &shared.handle);
  if (status < 0) return status;
  map->tried = true;
  status = device->operations->block_import(device, &shared, map->message.memory_bytes,
                                            writable && map->message.writable, &map->block);
  os_handle_close(&map->block.shared.handle); /* the mapping is enough */
  if (status < 0 || !map->message.metadata_bytes) return status;
  status = service_take(map->inside_metadata, &handle);
  if (status < 0) return status;
  status = os_segment_map(&map->metadata, handle, map->message.metadata_bytes, false, true);
  os_handle_close(&map->metadata.handle);
  return status;
}

static int prepare_host_copies(const struct link_importer *importer, struct gpu_device *device) {
  if (!device->operations->host_prepare) return CUDALINK_OK;
  uint32_t streams = importer->spec.host_streams;
  return device->operations->host_prepare(device, streams ? streams : 1);
}

/* Devices stay for the importer's life: frames of an earlier producer, on another kind of memory, may
 * still be held. */
int link_mapping_device(struct link_importer *importer, cudalink_kind kind, const uint8_t *uuid) {
  struct gpu_device **at = &importer->device, *opened;
  while (*at && (*at)->kind != kind)
    at = &(*at)->older;
  if (*at && at == &importer->device) return CUDALINK_OK;
  opened = *at;
  if (!opened) {
    int status = gpu_device_open(kind, importer->spec.device, uuid, &opened);
    if (status < 0) return status;
    status = prepare_host_copies(importer, opened);
    if (status == CUDALINK_OK && importer->spec.convert) status = gpu_convert_load(opened);
    if (status < 0) {
      reaper_device(opened);
      return status;
    }
  }
  pthread_mutex_lock(&importer->object.mutex);
  *at = opened->older; /* out of its place */
  opened->older = importer->device;
  importer->device = opened;
  pthread_mutex_unlock(&importer->object.mutex);
  return CUDALINK_OK;
}

static void drop_map(struct map *map) {
  reaper_block(&map->block);
  reaper_segment(&map->metadata);
}

/* A legacy handle that leads nowhere may mean that its producer ends right now, before its connection
 * does. Then that is to be told. So for a while it counts as not there yet; only after that the
 * driver's answer is told. */
static int put_off(struct link_attachment *attachment, struct link_mapping *mapping, int status) {
  if (attachment->over) {
    mapping->try_at = OS_FOREVER;
    return CUDALINK_OK;
  }
  if (mapping->failures == MOST_FAILURES) return status;
  mapping->failures++;
  mapping->try_at = os_deadline(FAILED_STEP);
  return CUDALINK_OK;
}

/* It stays pending: another acquire tries again. */
static int settle_failed(struct link_attachment *attachment, struct link_mapping *mapping,
                         struct map *map, int status) {
  struct link_importer *importer = attachment->importer;
  bool legacy = mapping->message.kind == CUDALINK_KIND_IPC;
  drop_map(map);
  pthread_mutex_lock(&importer->object.mutex);
  importer->mapping = mapping->busy = false;
  link_attachment_mapped(attachment);
  if (attachment->over) link_attachment_settle(attachment);
  if (importer->closing) service_post(&importer->work);
  return legacy && map->tried && status == CUDALINK_ERROR_GPU ? put_off(attachment, mapping, status)
                                                              : status;
}

/* What was asked for is done in another way: that can be read. */
static void note_waits(struct link_importer *importer) {
  const struct gpu_device *device = importer->device;
  if (!importer->spec.gpu_wait || device->stream_waits) return;
  snprintf(importer->statistics.reason, sizeof importer->statistics.reason,
           "acquire waits by the CPU; %s", device->words);
}

/* Of the words, at the first mapping rather than at the first use: it delays other threads' launches. And without the
 * mutex: the driver may have to wait for streams, whose waits the service thread ends under it. */
static int tell_driver(struct link_attachment *attachment) {
  struct gpu_device *device = attachment->importer->device;
  if (!device->operations->register_words) return CUDALINK_OK;
  return link_attachment_register(attachment, device);
}

int link_mapping_map(struct link_attachment *attachment) {
  struct link_importer *importer = attachment->importer;
  struct link_mapping *mapping = next_pending(attachment);
  if (!mapping) return link_pool_map(attachment, link_pool_pending(attachment));
  struct map map = {.message = mapping->message,
                    .inside = mapping->inside,
                    .inside_metadata = mapping->inside_metadata,
                    .block.shared.handle = OS_NO_HANDLE,
                    .metadata.handle = OS_NO_HANDLE};
  bool writable = importer->spec.writable != 0, known = attachment->registered;
  importer->mapping = mapping->busy = true; /* keeps the attachment, and other threads out */
  pthread_mutex_unlock(&importer->object.mutex);
  int status =
      link_mapping_device(importer, (cudalink_kind)map.message.kind, map.message.device_uuid);
  if (status == CUDALINK_OK) status = do_map(importer->device, writable, &map);
  bool outdated = (mapping->number & WIRE_GENERATION_MASK) !=
                  atomic_load_explicit(&attachment->control->gen, memory_order_acquire);
  if (status < 0 && !outdated) return settle_failed(attachment, mapping, &map, status);
  service_close(map.inside);
  service_close(map.inside_metadata);
  int registered = status == CUDALINK_OK && !known ? tell_driver(attachment) : CUDALINK_OK;
  pthread_mutex_lock(&importer->object.mutex);
  importer->mapping = mapping->busy = false;
  mapping->inside = mapping->inside_metadata = OS_NO_HANDLE;
  mapping->mapped = status == CUDALINK_OK;
  if (mapping->mapped) {
    mapping->block = map.block;
    mapping->metadata = map.metadata;
    importer->statistics.generations++;
    note_waits(importer);
    if (registered == CUDALINK_OK) link_attachment_register(attachment, importer->device);
  } else { /* its memory is gone, and so are its frames: no error */
    drop_map(&map);
    tell_unmapped(attachment, mapping, mapping->number);
    mapping->number = 0;
  }
  link_attachment_mapped(attachment);
  if (attachment->over)
    link_attachment_settle(attachment);
  else
    link_mapping_collect(attachment);
  if (importer->closing) service_post(&importer->work);
  return registered;
}

static void unmap(struct link_mapping *mapping) {
  reaper_block(&mapping->block);
  reaper_segment(&mapping->metadata);
  mapping->mapped = false;
  mapping->number = 0;
}

static void unmap_and_tell(struct link_attachment *attachment, struct link_mapping *mapping) {
  uint64_t number = mapping->number;
  unmap(mapping);
  tell_unmapped(attachment, mapping, number);
}

/* May a stream still read from this generation, in the name of a release that has not landed? */
static bool release_pending(const struct link_attachment *attachment, uint64_t number) {
  for (uint32_t e = 0; e < attachment->entry_count; e++) {
    uint64_t want = atomic_load_explicit(&attachment->mailbox->want[e], memory_order_relaxed);
    if (!want || wire_lease_generation(want) != (number & WIRE_GENERATION_MASK)) continue;
    if (atomic_load_explicit(&attachment->mailbox->done[e], memory_order_acquire) != want)
      return true;
  }
  return false;
}

static uint64_t highest_told(const struct link_attachment *attachment) {
  uint64_t highest = 0;
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++)
    if (attachment->mappings[i].number > highest) highest = attachment->mappings[i].number;
  return highest;
}

/* Is a frame of it offered, and not taken yet? */
static bool is_offered(const struct link_attachment *attachment, uint64_t number) {
  if (attachment->importer->spec.policy != CUDALINK_POLICY_SHARED) return false;
  /* acquire: pairs with the producer's seq_cst store of the offer (group.c). */
  uint64_t offer = atomic_load_explicit(&attachment->mailbox->offer, memory_order_acquire);
  return offer && wire_offer_number(offer) != attachment->taken &&
         wire_offer_generation(offer) == (number & WIRE_GENERATION_MASK);
}

/* Only the current one, and the newest told of, which may become current, are kept without a frame. A
 * producer may also have dropped one that it told of; one that a group is offered is told again. */
void link_mapping_collect(struct link_attachment *attachment) {
  link_pool_collect(attachment);
  uint64_t current = atomic_load_explicit(&attachment->control->gen, memory_order_acquire);
  uint64_t highest = highest_told(attachment);
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    struct link_mapping *mapping = &attachment->mappings[i];
    if (!mapping->mapped || mapping->leases || mapping->number == highest) continue;
    if ((mapping->number & WIRE_GENERATION_MASK) == current) continue;
    if (is_offered(attachment, mapping->number)) continue;
    if (release_pending(attachment, mapping->number)) continue;
    unmap_and_tell(attachment, mapping);
  }
}

void link_mapping_drop_all(struct link_attachment *attachment) {
  link_pool_drop_all(attachment);
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    struct link_mapping *mapping = &attachment->mappings[i];
    if (mapping->mapped)
      unmap(mapping);
    else
      drop_pending(mapping);
  }
}
