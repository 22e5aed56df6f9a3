/* SPDX-License-Identifier: MIT
 *
 * Sending what lies in a pool: begin a slot of any size, publish it with the place of the pixels. Where that
 * can't be done it is a send like any other, counted, with a reason.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/nvtx.h"
#include "cudalink/pool.h"
#include "link/exporter.h"
#include "link/pool.h"

static const char call[] = "cudalink_exporter_send_shared";

struct shared_send {
  cudalink_exporter handle;
  const cudalink_description *description;
  const void *data, *user;
  cudalink_stream stream;
  int64_t timeout;
};

/* A copy was made although the frame lies in a pool. The frame is published: that the exporter was closed
 * since is no failure of the send. */
static void note(cudalink_exporter handle, const char *reason) {
  struct link_exporter *exporter = NULL;
  if (link_exporter_lock(handle, call, &exporter) < 0) return;
  cudalink_exporter_statistics *statistics = &exporter->statistics;
  statistics->share_copies++;
  snprintf(statistics->share_reason, sizeof statistics->share_reason, "%s", reason);
  link_object_unlock(exporter);
}

static int copy(const struct shared_send *send, const char *reason) {
  int status = cudalink_exporter_send(send->handle, send->description, send->data, send->user,
                                      send->stream, send->timeout);
  if (status == CUDALINK_OK) note(send->handle, reason);
  return status;
}

/* What was begun: into its slot, where that is large enough. */
static int copy_begun(const struct shared_send *send, const cudalink_slot *slot, uint64_t bytes) {
  static const char reason[] = "it was wanted in its slot, or too many blocks are in use";
  if (slot->bytes < bytes) {
    cudalink_exporter_abandon(send->handle, slot, CUDALINK_STREAM_COMPLETE);
    return copy(send, reason);
  }
  int status = link_send_begun(send->handle, send->description, send->data, send->user,
                               send->stream, slot, call);
  if (status == CUDALINK_OK) note(send->handle, reason);
  return status;
}

/* Nothing was published; what failed stays the last error. */
static int failed(const struct shared_send *send, const cudalink_slot *slot, int status) {
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s", cudalink_last_error());
  cudalink_exporter_abandon(send->handle, slot, CUDALINK_STREAM_COMPLETE);
  return error_set(status, "%s", sentence);
}

/* Another thread, or a `drop` that begin has called, may have closed the exporter: then its memory is gone. */
static int write_user(const struct shared_send *send, const cudalink_slot *slot) {
  struct link_exporter *exporter = NULL;
  if (!slot->user) return CUDALINK_OK;
  int status = link_lock_begun(send->handle, slot, call, &exporter);
  if (status < 0) return status;
  link_copy_user(slot->user, send->user, send->description->user_size);
  link_object_unlock(exporter);
  return CUDALINK_OK;
}

/* Takes the share over if *shared becomes 1. */
static int publish(const struct shared_send *send, struct link_share *share, uint64_t bytes,
                   int *shared) {
  cudalink_slot slot;
  int status = link_begin_shared(send->handle, send->description, send->timeout, &slot);
  if (status < 0) return status;
  NVTX_RANGE("cudalink.exporter", slot.index);
  status = write_user(send, &slot);
  struct link_publish publish = {.slot = &slot, .stream = send->stream, .share = share};
  if (status == CUDALINK_OK) status = link_publish_frame(&publish, send->handle, call);
  *shared = publish.published;
  if (publish.published) return status;
  return status > 0 ? copy_begun(send, &slot, bytes) : failed(send, &slot, status);
}

/* NULL: it can be tried. */
static int ask(cudalink_exporter handle, const struct pool_block *block, const char **refused) {
  struct link_exporter *exporter = NULL;
  int status = link_exporter_lock(handle, call, &exporter);
  if (status < 0) return status;
  status = link_share_check(exporter, block);
  *refused = link_share_refused(exporter);
  link_object_unlock(exporter);
  return status;
}

static int send_from(const struct shared_send *send, struct link_share *share, uint64_t bytes,
                     int *shared) {
  const char *refused = NULL;
  int status = link_refuse_event(send->stream, call);
  if (status == CUDALINK_OK) status = ask(send->handle, share->block, &refused);
  if (status < 0) return status;
  return refused ? copy(send, refused) : publish(send, share, bytes, shared);
}

/* NOLINTNEXTLINE(readability-function-size): one more than send takes, twice */
int cudalink_exporter_send_shared(cudalink_exporter handle, const cudalink_description *description,
                                  const void *data, const void *user, cudalink_stream stream,
                                  int64_t timeout, void *owner, void (*drop)(void *owner),
                                  int *shared) {
  uint64_t bytes = 0, offset = 0;
  if (!description || !shared)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                     description ? "shared" : "description");
  *shared = 0;
  int status = service_check_fork(); /* the table's lock may have been held at the fork */
  if (status == CUDALINK_OK) status = cudalink_description_bytes(description, &bytes);
  if (status < 0) return status;
  struct shared_send send = {handle, description, data, user, stream, timeout};
  struct pool_block *block = bytes ? pool_find(data, bytes, &offset) : NULL;
  if (!block) return cudalink_exporter_send(handle, description, data, user, stream, timeout);
  struct link_share *share = malloc(sizeof *share);
  if (!share) {
    pool_leave(block);
    return error_set(CUDALINK_ERROR_NO_MEMORY, "%s: no memory to remember the frame", call);
  }
  *share = (struct link_share){.block = block, .offset = offset, .owner = owner, .drop = drop};
  status = send_from(&send, share, bytes, shared);
  if (*shared) return status;
  pool_leave(block);
  free(share);
  return status;
}
