/* SPDX-License-Identifier: MIT
 *
 * Finding a producer and joining it, on the service thread. Connecting never blocks; waiting for a
 * producer is inotify on the folders, and a slow timer for what inotify can't see.
 */
#include <stdio.h>
#include <string.h>

#include "link/cipd/reader.h"
#include "link/importer.h"

#define RETRY_BUSY 2000000         /* ns: the producer's queue is full, or it is just closing */
#define RETRY_SLOW 500000000       /* ns: what inotify can't see, and after a refusal */
#define HANDSHAKE_LIMIT 2000000000 /* ns */

static void search_fire(struct service_timer *timer);

static const char *directory_of(const struct link_importer *importer) {
  return importer->directory[0] ? importer->directory : NULL;
}

static void try_again(struct link_importer *importer, int64_t delay) {
  importer->search = LINK_SEARCH_ON;
  service_timer_set(&importer->timer, search_fire, os_deadline(delay));
}

/* Ends an attempt to join: nothing of it is held by anybody. */
static void drop_joining(struct link_attachment *attachment, int reason) {
  struct link_importer *importer = attachment->importer;
  importer->joining = NULL;
  service_timer_stop(&attachment->timer);
  pthread_mutex_lock(&importer->object.mutex);
  attachment->over = reason;
  pthread_mutex_unlock(&importer->object.mutex);
  link_attachment_run(&attachment->work);
}

static void keep_refusal(struct link_importer *importer, int error, const char *text) {
  pthread_mutex_lock(&importer->object.mutex);
  importer->refusal = error;
  snprintf(importer->refusal_text, sizeof importer->refusal_text, "%s", text);
  pthread_mutex_unlock(&importer->object.mutex);
  link_importer_notify(importer);
}

void link_join_refused(struct link_attachment *attachment, int error, const char *text) {
  struct link_importer *importer = attachment->importer;
  importer->unanswered = false;
  drop_joining(attachment, error);
  keep_refusal(importer, error, text);
  try_again(importer, RETRY_SLOW);
}

void link_join_lost(struct link_attachment *attachment, int reason) {
  struct link_importer *importer = attachment->importer;
  importer->unanswered = false;
  drop_joining(attachment, reason);
  try_again(importer, RETRY_BUSY); /* like nobody there */
}

void link_joined(struct link_attachment *attachment) {
  struct link_importer *importer = attachment->importer;
  importer->joining = NULL;
  importer->search = LINK_SEARCH_OFF;
  importer->unanswered = false;
  link_folders_leave(&importer->lookout);
  link_reader_unwatch(importer);
}

void link_search_later(struct link_importer *importer) {
  if (!importer->spec.once) try_again(importer, RETRY_SLOW);
}

static void handshake_fire(struct service_timer *timer) {
  struct link_attachment *attachment =
      (struct link_attachment *)(void *)((char *)timer - offsetof(struct link_attachment, timer));
  struct link_importer *importer = attachment->importer;
  drop_joining(attachment, CUDALINK_ERROR_TIMEOUT);
  /* Stopped, or its machine is busy: how long to wait is the caller's business. */
  try_again(importer, RETRY_SLOW);
}

static void say_hello(struct link_importer *importer, os_handle handle) {
  const cudalink_importer_spec *spec = &importer->spec;
  struct wire_hello hello = {
      .features = WIRE_FEATURE_POOL | WIRE_FEATURE_COUNTS | WIRE_FEATURE_LATENCIES |
                  (service_isolation() == OS_ISOLATED_NOT ? WIRE_FEATURE_SHARED_TABLE : 0),
      .policy = spec->policy,
      .hold = spec->hold,
      .isolated = spec->isolated != 0,
      .writable = spec->writable != 0,
      .gpu_wait = spec->gpu_wait != 0,
      .kinds = 1u << CUDALINK_KIND_HOST | 1u << CUDALINK_KIND_VMM | 1u << CUDALINK_KIND_IPC,
      .pid = os_own_pid()};
  memcpy(hello.channel, importer->name, sizeof importer->name);
  memcpy(hello.group, importer->group, sizeof hello.group);
  os_own_program(hello.program);
  wire_message_start(&hello, WIRE_HELLO, sizeof hello);
  os_send(handle, &hello, sizeof hello, NULL, 0);
}

/* Whether the old wire may be looked at: ours goes first. */
static void set_nobody(struct link_importer *importer, bool nobody) {
  pthread_mutex_lock(&importer->object.mutex);
  bool news = nobody && !importer->nobody && importer->segment[0];
  importer->nobody = nobody;
  if (nobody) importer->unanswered = false;
  if (news) link_importer_changed(importer);
  if (news) service_post(&importer->reader_work); /* it may be armed */
  pthread_mutex_unlock(&importer->object.mutex);
}

static void connected(struct link_importer *importer, os_handle handle) {
  set_nobody(importer, false);
  struct link_attachment *attachment = link_attachment_make(importer, handle);
  if (!attachment) {
    os_handle_close(&handle);
    try_again(importer, RETRY_SLOW);
    return;
  }
  attachment->source.ready = link_attachment_ready;
  importer->joining = attachment;
  importer->search = LINK_SEARCH_JOINING;
  service_timer_stop(&importer->timer);
  service_watch(&attachment->source, handle, false);
  service_timer_set(&attachment->timer, handshake_fire, os_deadline(HANDSHAKE_LIMIT));
  say_hello(importer, handle);
  importer->unanswered = true;
}

/* A channel may be there now: looked for in a moment, from the service thread's loop. */
static void folders_changed(struct link_lookout *lookout) {
  struct link_importer *importer =
      (struct link_importer *)(void *)((char *)lookout - offsetof(struct link_importer, lookout));
  if (importer->search == LINK_SEARCH_ON)
    service_timer_set(&importer->timer, search_fire, os_now());
}

/* Is there a producer now? If not: when to try again, whatever the folders say. */
static bool try_all(struct link_importer *importer, int64_t *delay) {
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  int count = os_directory_all(directory_of(importer), paths);
  *delay = RETRY_SLOW;
  for (int i = 0; i < count; i++) {
    os_handle handle;
    int status = os_connect(paths[i], importer->file, &handle);
    if (status == CUDALINK_OK) {
      connected(importer, handle);
      return true;
    }
    if (status == CUDALINK_ERROR_BUSY) *delay = RETRY_BUSY;
    /* SYSTEM: no descriptor is left, say, to look with. */
    if (status == CUDALINK_ERROR_REFUSED || status == CUDALINK_ERROR_SYSTEM)
      keep_refusal(importer, status, cudalink_last_error());
  }
  return false;
}

void link_search_start(struct link_importer *importer) {
  if (importer->search == LINK_SEARCH_JOINING) return;
  importer->search = LINK_SEARCH_ON;
  bool watched = importer->lookout.folders != NULL;
  int64_t delay;
  if (try_all(importer, &delay)) return; /* mostly it is there, and nothing need be watched */
  if (!watched) {
    importer->lookout.changed = folders_changed;
    link_folders_watch(&importer->lookout, directory_of(importer));
    link_reader_watch(importer);
    if (try_all(importer, &delay)) return; /* it may have come before the watch */
  }
  set_nobody(importer, delay == RETRY_SLOW);
  if (delay == RETRY_BUSY) importer->unanswered = true;
  try_again(importer, delay);
}

static void search_fire(struct service_timer *timer) {
  struct link_importer *importer =
      (struct link_importer *)(void *)((char *)timer - offsetof(struct link_importer, timer));
  if (importer->search == LINK_SEARCH_ON) link_search_start(importer);
}

void link_search_stop(struct link_importer *importer) {
  importer->search = LINK_SEARCH_OFF;
  service_timer_stop(&importer->timer);
  link_folders_leave(&importer->lookout);
  link_reader_unwatch(importer);
  if (importer->joining) drop_joining(importer->joining, CUDALINK_ERROR_CLOSED);
}

/* Posted when a connection is over, or the importer closes. */
void link_search_run(struct service_work *work) {
  struct link_importer *importer =
      (struct link_importer *)(void *)((char *)work - offsetof(struct link_importer, work));
  if (!atomic_load(&importer->object.id)) return;
  pthread_mutex_lock(&importer->object.mutex);
  bool closing = importer->closing;
  bool search = !importer->attachment && !importer->joining &&
                !(importer->spec.once && importer->sessions) &&
                importer->spec.wire != CUDALINK_WIRE_CIPD;
  pthread_mutex_unlock(&importer->object.mutex);
  if (closing)
    link_importer_clear(importer);
  else if (search && importer->search == LINK_SEARCH_OFF)
    link_search_start(importer);
}
