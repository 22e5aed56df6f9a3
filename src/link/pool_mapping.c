/* SPDX-License-Identifier: MIT
 *
 * Blocks of pools as a consumer has them: told of by the service thread, mapped read-only by the next
 * acquire, unmapped when the producer says that they are gone, and not before the last use here: what it
 * said may be older than a frame that lies there again. Model: tests/model/pool.pml.
 */
#include <string.h>

#include "link/importer.h"
#include "link/reaper.h"

static struct link_pool_mapping *place_of(struct link_attachment *attachment, uint64_t number) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_MAPPINGS; i++)
    if (attachment->pools[i].number == number) return &attachment->pools[i];
  return NULL;
}

static struct link_pool_mapping *find_mapped(struct link_attachment *attachment, uint64_t number) {
  struct link_pool_mapping *found = attachment->pool_count ? place_of(attachment, number) : NULL;
  return found && found->mapped ? found : NULL;
}

struct link_pool_mapping *link_pool_pending(struct link_attachment *attachment) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_MAPPINGS && attachment->pool_count; i++) {
    struct link_pool_mapping *pool = &attachment->pools[i];
    if (pool->number && !pool->mapped && !pool->busy) return pool;
  }
  return NULL;
}

int link_pool_fill(struct link_attachment *attachment, struct link_entry *entry,
                   const struct wire_place *place, cudalink_frame *frame) {
  const struct link_pool_mapping *pool = find_mapped(attachment, place->block);
  if (!pool) return 1;
  int status = wire_place_check(place, pool->block.bytes);
  if (status < 0) return status;
  entry->pool_block = place->block;
  frame->flags |= CUDALINK_FRAME_SHARED;
  frame->writable = pool->block.writable;
  frame->data = (char *)pool->block.address + place->offset;
  return CUDALINK_OK;
}

void link_pool_add(struct link_attachment *attachment, const struct wire_pool_block *message,
                   os_handle *handle) {
  struct link_pool_mapping *known = place_of(attachment, message->number);
  if (known) { /* told again, before it was unmapped */
    known->gone = false;
    return;
  }
  struct link_pool_mapping *place = place_of(attachment, 0);
  if (!place) return; /* more than an honest producer tells of: its frames will not be found */
  *place = (struct link_pool_mapping){.number = message->number,
                                      .bytes = message->bytes,
                                      .inside = *handle,
                                      .block.shared.handle = OS_NO_HANDLE};
  memcpy(place->device_uuid, message->device_uuid, sizeof place->device_uuid);
  *handle = OS_NO_HANDLE;
  attachment->pool_count++;
}

/* Held, or given back behind a stream that has not come so far. What is held is known here: the producer can
 * write to the mailbox, too. */
static bool in_use(const struct link_attachment *attachment, uint64_t number) {
  for (uint32_t e = 0; e < attachment->entry_count; e++) {
    if (attachment->entries[e].pool_block != number) continue;
    if (attachment->entries[e].word) return true;
    uint64_t want = atomic_load_explicit(&attachment->mailbox->want[e], memory_order_relaxed);
    /* acquire: pairs with the stream's write of done; its reads are over. */
    if (want && atomic_load_explicit(&attachment->mailbox->done[e], memory_order_acquire) != want)
      return true;
  }
  return false;
}

/* A handle that was not mapped is the service thread's. */
static void drop(struct link_attachment *attachment, struct link_pool_mapping *pool) {
  if (pool->mapped)
    reaper_block(&pool->block);
  else
    os_handle_close(&pool->inside);
  *pool = (struct link_pool_mapping){0};
  attachment->pool_count--;
}

void link_pool_collect(struct link_attachment *attachment) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_MAPPINGS && attachment->pool_count; i++) {
    struct link_pool_mapping *pool = &attachment->pools[i];
    if (!pool->gone || pool->busy || in_use(attachment, pool->number)) continue;
    if (pool->mapped || service_is_current()) drop(attachment, pool);
  }
}

void link_pool_gone(struct link_attachment *attachment, uint64_t number) {
  struct link_pool_mapping *pool = place_of(attachment, number);
  if (!pool) return;
  pool->gone = true;
  link_pool_collect(attachment);
}

void link_pool_drop_all(struct link_attachment *attachment) {
  for (uint32_t i = 0; i < LINK_MAX_POOL_MAPPINGS && attachment->pool_count; i++)
    if (attachment->pools[i].number) drop(attachment, &attachment->pools[i]);
}

/* ---- mapping ---------------------------------------------------------------------------------------- */

/* Without the mutex. */
static int do_map(struct link_importer *importer, const struct link_pool_mapping *pool,
                  struct gpu_block *block) {
  struct gpu_shared shared = {.handle = OS_NO_HANDLE};
  int status = link_mapping_device(importer, CUDALINK_KIND_VMM, pool->device_uuid);
  if (status == CUDALINK_OK) status = service_take(pool->inside, &shared.handle);
  if (status < 0) return status;
  struct gpu_device *device = importer->device;
  status = device->operations->block_import(device, &shared, pool->bytes, false, block);
  os_handle_close(&block->shared.handle); /* the mapping is enough */
  return status;
}

/* It stays pending: another acquire tries again. */
int link_pool_map(struct link_attachment *attachment, struct link_pool_mapping *pool) {
  struct link_importer *importer = attachment->importer;
  struct gpu_block block = {.shared.handle = OS_NO_HANDLE};
  importer->mapping = pool->busy = true; /* keeps the attachment, and other threads out */
  pthread_mutex_unlock(&importer->object.mutex);
  int status = do_map(importer, pool, &block);
  if (status == CUDALINK_OK) service_close(pool->inside);
  pthread_mutex_lock(&importer->object.mutex);
  importer->mapping = pool->busy = false;
  if (status == CUDALINK_OK) {
    pool->inside = OS_NO_HANDLE;
    pool->block = block;
    pool->mapped = true;
  } else if (pool->gone) { /* so are its frames: no error */
    status = CUDALINK_OK;
    service_post(&attachment->work);
  }
  link_attachment_mapped(attachment);
  if (attachment->over)
    link_attachment_settle(attachment);
  else
    link_pool_collect(attachment);
  if (importer->closing) service_post(&importer->work);
  return status;
}
