/* SPDX-License-Identifier: MIT
 *
 * One connection to one producer: its end, and what outlives it.
 *
 * When a connection is over, its frames stay whole until they are released, and streams that wait for
 * pixels go on waiting; then the socket (if it is still open) closes, and the reaper unmaps. Until then
 * the record is the service thread's, whose timers bring it back here (link_attachment_run).
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "link/importer.h"
#include "link/reaper.h"

#define WAKE_STEP 1000000    /* ns between two wakes of sleepers that may not have slept yet */
#define RELEASE_STEP 1000000 /* ns between two looks at releases that were left to a stream */

struct link_table link_attachments = LINK_TABLE(struct link_attachment);

struct link_attachment *link_attachment_make(struct link_importer *importer, os_handle handle) {
  struct link_attachment *attachment = link_table_take(&link_attachments);
  if (!attachment) return NULL;
  attachment->source.handle = handle;
  attachment->peer = attachment->word.handle = OS_NO_HANDLE;
  attachment->control_segment.handle = attachment->mailbox_segment.handle = OS_NO_HANDLE;
  attachment->work.run = link_attachment_run;
  for (uint32_t i = 0; i < LINK_MAX_MAPPINGS; i++) {
    struct link_mapping *mapping = &attachment->mappings[i];
    mapping->inside = mapping->inside_metadata = OS_NO_HANDLE;
    mapping->block.shared.handle = mapping->metadata.handle = OS_NO_HANDLE;
  }
  /* release: pairs with the acquire load of who looks a lease up. */
  atomic_store_explicit(&attachment->importer, importer, memory_order_release);
  pthread_mutex_lock(&importer->object.mutex);
  importer->attachments++;
  pthread_mutex_unlock(&importer->object.mutex);
  return attachment;
}

int link_attachment_register(struct link_attachment *attachment, struct gpu_device *device) {
  attachment->device = device;
  if (attachment->registered || !device->operations->register_words) return CUDALINK_OK;
  int status = device->operations->register_words(device, attachment->mailbox_segment.address,
                                                  attachment->mailbox_segment.bytes);
  attachment->registered = status == CUDALINK_OK;
  return status;
}

/* Nothing is left to be read: then its memory need not wait for an acquire, which may never come. What a group
 * was offered is looked at there. */
static bool is_read_out(const struct link_attachment *attachment) {
  if (attachment->importer->spec.policy == CUDALINK_POLICY_SHARED) return false;
  /* acquire: pairs with the producer's last publish; CLOSED came behind it. */
  uint64_t head = atomic_load_explicit(&attachment->control->head, memory_order_acquire);
  return !attachment->settling && wire_frame_sequence(head) <= attachment->last;
}

/* It writes nowhere any more, so that what it published stays whole. One that lives does so for as long as it hears
 * of our leases. */
static bool producer_has_gone(const struct link_attachment *attachment) {
  return (attachment->over == CUDALINK_ERROR_LOST && !attachment->gave_up[0]) ||
         attachment->over == CUDALINK_ERROR_ENDED;
}

/* What is told of it, behind what was not told in time. */
static void note(struct link_importer *importer, int notice, const char *text) {
  if (importer->notice) {
    importer->earlier_notice = importer->notice;
    memcpy(importer->earlier_text, importer->notice_text, sizeof importer->earlier_text);
  }
  importer->notice = notice;
  snprintf(importer->notice_text, sizeof importer->notice_text, "%s", text);
}

void link_attachment_over(struct link_attachment *attachment, int reason) {
  struct link_importer *importer = attachment->importer;
  /* Who closes an end in order goes on with what is queued. */
  bool orphaned = reason == CUDALINK_ERROR_LOST || reason == CUDALINK_ERROR_EVICTED;
  if (orphaned && !attachment->orphaned && attachment->mailbox) link_wait_complete(attachment);
  if (attachment->over) {
    link_attachment_settle(attachment);
    return;
  }
  attachment->over = reason;
  if (importer->attachment == attachment) {
    importer->attachment = NULL;
    note(importer, importer->closing ? 0 : reason, attachment->gave_up);
    importer->drains_earlier = true;
    /* What a producer published before it went stays whole: it is read first, then its end is told. */
    if (producer_has_gone(attachment) && !importer->closing) {
      if (importer->draining) link_attachment_drained(importer);
      importer->draining = attachment;
      importer->drains_earlier = false;
      if (is_read_out(attachment)) link_attachment_drained(importer);
    }
  }
  link_importer_changed(importer);
  service_post(&attachment->work);
  service_post(&importer->work);
}

void link_attachment_drained(struct link_importer *importer) {
  struct link_attachment *attachment = importer->draining;
  importer->draining = NULL;
  importer->statistics.missed += link_left_behind(attachment, importer->spec.policy);
  link_attachment_settle(attachment);
}

void link_attachment_settle(struct link_attachment *attachment) {
  if (attachment->over) service_post(&attachment->work);
}

static bool releases_landed(const struct link_attachment *attachment) {
  if (!attachment->mailbox) return true;
  for (uint32_t e = 0; e < attachment->entry_count; e++) {
    uint64_t want = atomic_load_explicit(&attachment->mailbox->want[e], memory_order_relaxed);
    /* acquire: pairs with the stream's write of done, its last one to this mailbox. */
    if (want && atomic_load_explicit(&attachment->mailbox->done[e], memory_order_acquire) != want)
      return false;
  }
  return true;
}

static int send_value(struct link_attachment *attachment, enum wire_message_type type,
                      uint64_t value) {
  if (attachment->source.handle == OS_NO_HANDLE) return CUDALINK_OK;
  struct wire_plain message = {.value = value};
  wire_message_start(&message, type, sizeof message);
  return os_send(attachment->source.handle, &message, sizeof message, NULL, 0);
}

static void send_plain(struct link_attachment *attachment, enum wire_message_type type) {
  send_value(attachment, type, 0);
}

static void close_socket(struct link_attachment *attachment) {
  if (attachment->source.handle == OS_NO_HANDLE) return;
  service_unwatch(&attachment->source);
  os_handle_close(&attachment->source.handle);
  link_words_drop(attachment);
}

/* Everything goes to the reaper. Service thread, under the mutex. */
static void finish(struct link_attachment *attachment) {
  struct link_importer *importer = attachment->importer;
  attachment->finishing = true;
  close_socket(attachment);
  service_timer_stop(&attachment->timer);
  service_timer_stop(&attachment->wake_timer);
  service_timer_stop(&attachment->wait_timer);
  os_handle_close(&attachment->peer);
  link_mapping_drop_all(attachment);
  os_handle_close(&attachment->control_segment.handle);
  os_handle_close(&attachment->mailbox_segment.handle);
  reaper_segment(&attachment->control_segment);
  if (attachment->registered)
    reaper_words(&attachment->mailbox_segment, attachment->device);
  else
    reaper_segment_after_waits(&attachment->mailbox_segment, attachment->device);
  attachment->control = NULL;
  attachment->mailbox = NULL;
  importer->attachments--;
  service_post(&importer->work);
}

static void look_again(struct service_timer *timer) {
  struct link_attachment *attachment =
      (struct link_attachment *)(void *)((char *)timer -
                                         offsetof(struct link_attachment, wake_timer));
  link_attachment_run(&attachment->work);
}

void link_attachment_wake(struct link_attachment *attachment) {
  if (!attachment->sleepers || !attachment->control) return;
  os_wake(&attachment->control->bell, INT_MAX, true);
  service_timer_set(&attachment->wake_timer, look_again, os_deadline(WAKE_STEP));
}

static void let_all_look(struct link_attachment *attachment) {
  attachment->mapped++;
  attachment->outdated = attachment->sleepers;        /* whoever has the mutex does not sleep */
  attachment->awaited |= attachment->importer->armed; /* whoever polls is to be told, too */
  if (attachment->outdated || attachment->awaited) service_post(&attachment->work);
}

void link_attachment_mapped(struct link_attachment *attachment) {
  struct link_importer *importer = attachment->importer;
  let_all_look(attachment);
  /* Its producer may have gone meanwhile, and the next one's memory could not be mapped beside it. */
  if (importer->attachment && importer->attachment != attachment)
    let_all_look(importer->attachment);
  link_importer_changed(importer);
}

void link_attachment_tell(struct link_attachment *attachment) {
  for (uint32_t c = 0; c < LINK_MAX_MAPPINGS; c++) {
    if (!attachment->closed_generations[c]) continue;
    struct wire_generation_closed message = {.generation = attachment->closed_generations[c]};
    wire_message_start(&message, WIRE_GENERATION_CLOSED, sizeof message);
    if (attachment->source.handle != OS_NO_HANDLE)
      os_send(attachment->source.handle, &message, sizeof message, NULL, 0);
    attachment->closed_generations[c] = 0;
  }
  if (attachment->tell_released) send_plain(attachment, WIRE_RELEASED);
  attachment->tell_released = false;
}

static void handles_closed(void *argument) {
  struct link_attachment *attachment = argument;
  pthread_mutex_lock(&attachment->importer->object.mutex);
  attachment->unmapped = true;
  service_post(&attachment->work);
  pthread_mutex_unlock(&attachment->importer->object.mutex);
}

/* The producer frees its memory once it hears that legacy handles are closed: so the reaper closes them
 * first. False: not yet. */
static bool closed_handles(struct link_attachment *attachment) {
  if (!attachment->unmapping) {
    attachment->unmapping = true;
    link_mapping_drop_all(attachment);
    reaper_call(handles_closed, attachment);
  }
  return attachment->unmapped;
}

/* The end of the socket alone does not say so: that of a process that ends comes before the end of its
 * handles. False: the producer's queue is full. */
static bool told_unmapped(struct link_attachment *attachment) {
  return send_value(attachment, WIRE_BYE, WIRE_BYE_UNMAPPED) != CUDALINK_ERROR_BUSY;
}

/* Kind ipc: nothing of the producer's is open here, and it knows. False: not yet. */
static bool gave_back(struct link_attachment *attachment) {
  if (!closed_handles(attachment)) return false;
  if (told_unmapped(attachment)) return true;
  service_timer_set(&attachment->wake_timer, look_again, os_deadline(RELEASE_STEP));
  return false;
}

/* The producer waits for the end of the socket before it goes on with its memory. */
static bool is_waited_for(const struct link_attachment *attachment) {
  return attachment->kind == CUDALINK_KIND_IPC || attachment->pool_count;
}

/* The connection is over: wake who sleeps, and clear up once nobody needs it. True: it is done. */
static bool wind_up(struct link_attachment *attachment) {
  struct link_importer *importer = attachment->importer;
  bool gone = producer_has_gone(attachment);
  bool waits = link_wait_left(attachment);
  /* The socket stays open while legacy handles are: that they are closed is still to be told; and while
   * frames of a pool may be read, whose memory somebody goes on to write to then. And while a stream
   * waits: its end tells that the producer died. */
  if (gone && !waits && !is_waited_for(attachment))
    close_socket(attachment);
  else if (!gone && !attachment->said_bye)
    send_plain(attachment, WIRE_BYE); /* no new leases from here on */
  attachment->said_bye = true;
  link_attachment_wake(attachment);
  if (importer->mapping) { /* of this attachment or another one: look again behind it */
    service_timer_set(&attachment->wake_timer, look_again, os_deadline(RELEASE_STEP));
    return false;
  }
  if (waits || attachment->held || attachment->sleepers || attachment->spinners ||
      attachment->settling || importer->draining == attachment)
    return false;
  if (!releases_landed(attachment)) {
    service_timer_set(&attachment->wake_timer, look_again, os_deadline(RELEASE_STEP));
    return false;
  }
  if (attachment->kind == CUDALINK_KIND_IPC && !gave_back(attachment)) return false;
  finish(attachment);
  return true;
}

/* An armed program waits for pixels, whose stream rings nothing. True: they are complete. */
static bool look_for_awaited(struct link_attachment *attachment) {
  struct link_importer *importer = attachment->importer;
  if (!attachment->awaited || !importer->armed || attachment->over) return false;
  if (link_something_there(importer)) return true;
  service_timer_set(&attachment->wake_timer, look_again, os_deadline(WAKE_STEP));
  return false;
}

/* Whatever there is to do for an attachment. Service thread. */
void link_attachment_run(struct service_work *work) {
  struct link_attachment *attachment =
      (struct link_attachment *)(void *)((char *)work - offsetof(struct link_attachment, work));
  struct link_importer *importer = attachment->importer;
  if (!atomic_load(&attachment->object.id)) return;
  pthread_mutex_lock(&importer->object.mutex);
  link_attachment_tell(attachment);
  link_pool_collect(attachment);
  if (attachment->waited && !attachment->finishing) link_wait_start(attachment);
  if (!attachment->over && (attachment->outdated || link_mapping_pending(attachment)))
    link_attachment_wake(attachment);
  bool ready = look_for_awaited(attachment);
  bool done = attachment->over && !attachment->finishing && wind_up(attachment);
  /* A record that is posted again must not be given away yet: it is in the service thread's list.
   * Its next run ends here too. Nobody posts once it is finishing. */
  bool give = (done || attachment->finishing) && !atomic_load(&attachment->work.posted);
  pthread_mutex_unlock(&importer->object.mutex);
  if (ready) link_importer_notify(importer);
  if (give) link_table_give(&link_attachments, attachment);
}
