/* SPDX-License-Identifier: MIT
 *
 * What the producer says: its messages, and the end of its connection. On the service thread.
 *
 * Nothing of a message is used before wire_message_check has passed it and it came in its turn.
 */
#include <stdio.h>
#include <string.h>

#include "link/importer.h"
#include "link/trace.h"

#define EXIT_LOOK 5000000 /* ns */

static _Alignas(64) unsigned char buffer[WIRE_MAX_MESSAGE + 64];

/* Of one that has joined; the text says why this process can't go on with it, "": the producer ended it. */
static void over_because(struct link_attachment *attachment, int reason, const char *text) {
  struct link_importer *importer = attachment->importer;
  pthread_mutex_lock(&importer->object.mutex);
  if (!attachment->over) {
    snprintf(attachment->gave_up, sizeof attachment->gave_up, "%s", text);
    if (text[0]) link_search_later(importer);
  }
  link_attachment_over(attachment, reason);
  pthread_mutex_unlock(&importer->object.mutex);
  link_importer_notify(importer);
}

static void over(struct link_attachment *attachment, int reason) {
  if (attachment->joined)
    over_because(attachment, reason, "");
  else
    link_join_lost(attachment, reason);
}

static void exit_fire(struct service_timer *timer) {
  struct link_attachment *attachment =
      (struct link_attachment *)(void *)((char *)timer - offsetof(struct link_attachment, timer));
  if (os_peer_exited(attachment->peer))
    over(attachment, CUDALINK_ERROR_LOST);
  else
    service_timer_set(timer, exit_fire, os_deadline(EXIT_LOOK));
}

static void word_ready(struct service_source *source, const struct os_event *event);

void link_words_drop(struct link_attachment *attachment) {
  if (attachment->word.handle != OS_NO_HANDLE) service_unwatch(&attachment->word);
  os_handle_close(&attachment->word.handle);
  service_death_disarm(attachment->death);
  attachment->death = 0;
}

/* The words of both ends' deaths, if the producer sent them. They hasten the notice; without them the
 * end of file has to do. */
static void take_words(struct link_attachment *attachment, os_handle words[2]) {
  if (words[0] == OS_NO_HANDLE || words[1] == OS_NO_HANDLE) return;
  if (os_death_word_check(words[0]) < 0 || os_death_word_check(words[1]) < 0) return;
  service_death_arm(words[1], &attachment->death);
  attachment->word.ready = word_ready;
  if (service_watch(&attachment->word, words[0], false) < 0)
    attachment->word.handle = OS_NO_HANDLE;
  else
    words[0] = OS_NO_HANDLE;
}

static int map_welcome(struct link_attachment *attachment, const struct wire_welcome *welcome,
                       os_handle handles[OS_MAX_HANDLES]) {
  os_handle control_handle = handles[0], mailbox_handle = handles[1];
  handles[0] = handles[1] = OS_NO_HANDLE;
  int status = os_segment_map(&attachment->control_segment, control_handle, welcome->control_bytes,
                              false, true);
  int second = os_segment_map(&attachment->mailbox_segment, mailbox_handle, welcome->mailbox_bytes,
                              true, false);
  if (status < 0 || second < 0) return status < 0 ? status : second;
  os_handle_close(&attachment->control_segment.handle);
  os_handle_close(&attachment->mailbox_segment.handle);
  const struct wire_control *control = attachment->control_segment.address;
  if (control->magic != WIRE_CONTROL_MAGIC || control->version != WIRE_VERSION)
    return error_set(CUDALINK_ERROR_PROTOCOL, "the producer's control block is not one");
  return CUDALINK_OK;
}

static void on_welcome(struct link_attachment *attachment, const struct wire_welcome *welcome,
                       os_handle handles[OS_MAX_HANDLES]) {
  struct link_importer *importer = attachment->importer;
  int status = map_welcome(attachment, welcome, handles);
  if (status < 0) {
    link_join_refused(attachment, status, cudalink_last_error());
    return;
  }
  take_words(attachment, &handles[2]);
  struct os_credentials who;
  if (os_peer_credentials(attachment->source.handle, &who) == CUDALINK_OK)
    os_peer_open(attachment->source.handle, who.pid, &attachment->peer);
  pthread_mutex_lock(&importer->object.mutex);
  attachment->control = attachment->control_segment.address;
  attachment->mailbox = attachment->mailbox_segment.address;
  attachment->entry_count = welcome->entries;
  attachment->hold = welcome->hold;
  attachment->shared_table = (welcome->features & WIRE_FEATURE_SHARED_TABLE) != 0;
  attachment->kind = welcome->kind;
  importer->statistics.kind = welcome->kind;
  memcpy(importer->statistics.path, welcome->path, sizeof importer->statistics.path);
  memcpy(importer->statistics.reason, welcome->reason, sizeof importer->statistics.reason);
  pthread_mutex_unlock(&importer->object.mutex);
  struct wire_plain message = {0};
  wire_message_start(&message, WIRE_MAPPED, sizeof message);
  os_send(attachment->source.handle, &message, sizeof message, NULL, 0);
}

static void on_joined(struct link_attachment *attachment, const struct wire_plain *message) {
  (void)message; /* its value is our number among the producer's consumers, for traces */
  TRACE(JOINED, message->value, attachment->entry_count, 0, 0);
  struct link_importer *importer = attachment->importer;
  service_timer_stop(&attachment->timer);
  link_joined(attachment);
  pthread_mutex_lock(&importer->object.mutex);
  attachment->joined = true;
  attachment->first = atomic_load(&attachment->mailbox->joined); /* before we can lose our place */
  attachment->session = ++importer->sessions;
  importer->statistics.sessions = importer->sessions;
  importer->attachment = attachment;
  importer->refusal = 0;
  pthread_mutex_unlock(&importer->object.mutex);
  if (attachment->shared_table && attachment->peer != OS_NO_HANDLE)
    service_timer_set(&attachment->timer, exit_fire, os_deadline(EXIT_LOOK));
  log_write(CUDALINK_LOG_INFO, "channel '%s': joined (session %u)", importer->name,
            attachment->session);
  link_importer_notify(importer);
}

static void on_generation(struct link_attachment *attachment, const struct wire_generation *message,
                          os_handle handles[2]) {
  struct link_importer *importer = attachment->importer;
  if (message->kind == CUDALINK_KIND_IPC) { /* only the metadata has a descriptor */
    handles[1] = handles[0];
    handles[0] = OS_NO_HANDLE;
  }
  pthread_mutex_lock(&importer->object.mutex);
  link_mapping_add(attachment, message, handles);
  link_attachment_wake(attachment);
  pthread_mutex_unlock(&importer->object.mutex);
  link_importer_notify(importer);
}

static void on_pool_block(struct link_attachment *attachment, const struct wire_pool_block *message,
                          os_handle *handle) {
  struct link_importer *importer = attachment->importer;
  pthread_mutex_lock(&importer->object.mutex);
  link_pool_add(attachment, message, handle);
  link_attachment_wake(attachment);
  pthread_mutex_unlock(&importer->object.mutex);
  link_importer_notify(importer);
}

static void on_pool_block_gone(struct link_attachment *attachment, uint64_t number) {
  pthread_mutex_lock(&attachment->importer->object.mutex);
  link_pool_gone(attachment, number);
  pthread_mutex_unlock(&attachment->importer->object.mutex);
}

/* Does this message fit what was said before, and does it bring the descriptors that it needs? */
static bool expected(const struct link_attachment *attachment, int type, int handle_count) {
  switch (type) {
  case WIRE_WELCOME: return !attachment->control && (handle_count == 2 || handle_count == 4);
  case WIRE_REFUSED: return !attachment->joined;
  case WIRE_JOINED: return attachment->control && !attachment->joined;
  case WIRE_GENERATION: {
    const struct wire_generation *message = (const struct wire_generation *)buffer;
    int memory = message->kind == CUDALINK_KIND_IPC ? 0 : 1;
    return attachment->joined && handle_count == memory + (message->metadata_bytes ? 1 : 0);
  }
  case WIRE_POOL_BLOCK:
    return attachment->joined && attachment->kind == CUDALINK_KIND_VMM && handle_count == 1;
  case WIRE_POOL_BLOCK_GONE:
  case WIRE_BELL: return attachment->joined;
  case WIRE_CLOSED: return true;
  default: return false;
  }
}

static void dispatch(struct link_attachment *attachment, int type,
                     os_handle handles[OS_MAX_HANDLES]) {
  switch (type) {
  case WIRE_WELCOME: on_welcome(attachment, (const struct wire_welcome *)buffer, handles); break;
  case WIRE_REFUSED: {
    const struct wire_refused *message = (const struct wire_refused *)buffer;
    link_join_refused(attachment, message->error, message->text);
    break;
  }
  case WIRE_JOINED: on_joined(attachment, (const struct wire_plain *)buffer); break;
  case WIRE_GENERATION:
    on_generation(attachment, (const struct wire_generation *)buffer, handles);
    break;
  case WIRE_POOL_BLOCK:
    on_pool_block(attachment, (const struct wire_pool_block *)buffer, &handles[0]);
    break;
  case WIRE_POOL_BLOCK_GONE:
    on_pool_block_gone(attachment, ((const struct wire_pool_block_gone *)buffer)->number);
    break;
  case WIRE_BELL: link_importer_notify(attachment->importer); break;
  case WIRE_CLOSED: over(attachment, CUDALINK_ERROR_ENDED); break;
  default: break;
  }
}

static void receive_failed(struct link_attachment *attachment, int status) {
  /* Held frames may keep it open, and its end would be told again and again. */
  service_unwatch(&attachment->source);
  if (status ==
      CUDALINK_ERROR_SYSTEM) { /* it is this process's fault: the producer may well live */
    if (attachment->joined)
      over_because(attachment, CUDALINK_ERROR_LOST, cudalink_last_error());
    else
      link_join_refused(attachment, status, cudalink_last_error());
    return;
  }
  /* Where the producer's sockets are its program's, only its exit tells of its death. */
  if (!attachment->joined || !attachment->shared_table || attachment->peer == OS_NO_HANDLE)
    over(attachment, CUDALINK_ERROR_LOST);
}

/* One message. False when there is none (more), or no connection. */
static bool receive(struct link_attachment *attachment) {
  size_t size;
  os_handle handles[OS_MAX_HANDLES] = {OS_NO_HANDLE, OS_NO_HANDLE, OS_NO_HANDLE, OS_NO_HANDLE};
  int count = OS_MAX_HANDLES;
  int status = os_receive(attachment->source.handle, buffer, sizeof buffer, &size, handles, &count);
  if (status == CUDALINK_ERROR_BUSY) return false;
  if (status < 0) {
    receive_failed(attachment, status);
    return false;
  }
  int type = wire_message_check(buffer, size);
  if (type > 0 && !expected(attachment, type, count))
    type = error_set(CUDALINK_ERROR_PROTOCOL, "message %d came out of turn", type);
  if (type > 0) dispatch(attachment, type, handles);
  for (int h = 0; h < OS_MAX_HANDLES; h++)
    os_handle_close(&handles[h]);
  if (type <= 0 && attachment->joined)
    over(attachment, CUDALINK_ERROR_LOST);
  else if (type <= 0)
    link_join_refused(attachment, type, cudalink_last_error());
  return !attachment->over;
}

void link_attachment_ready(struct service_source *source, const struct os_event *event) {
  (void)event;
  receive((struct link_attachment *)(void *)((char *)source -
                                             offsetof(struct link_attachment, source)));
}

/* The producer's process ends, or has let go of its word: what is still in the socket says which. */
static void word_ready(struct service_source *source, const struct os_event *event) {
  struct link_attachment *attachment =
      (struct link_attachment *)(void *)((char *)source - offsetof(struct link_attachment, word));
  (void)event;
  if (!service_word_ended(source)) return;
  uint32_t id = atomic_load(&attachment->object.id);
  while (receive(attachment)) {
  }
  bool same = atomic_load(&attachment->object.id) == id;
  if (same && !attachment->orphaned) over(attachment, CUDALINK_ERROR_LOST);
}
