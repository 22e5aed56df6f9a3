/* SPDX-License-Identifier: MIT
 *
 * The producer's side of connections, all on the service thread: who may connect, the handshake
 * (HELLO, WELCOME with descriptors, MAPPED), the messages of members.
 *
 * Nothing of a message is used before wire_message_check has passed it. A peer that breaks the rules
 * loses its connection, nobody else notices.
 */
#include <stdio.h>
#include <string.h>

#include "link/exporter.h"
#include "link/trace.h"

#define HANDSHAKE_LIMIT 2000000000 /* ns */
#define EXIT_LOOK 5000000

static _Alignas(64) unsigned char buffer[WIRE_MAX_MESSAGE + 64];

bool link_send(struct link_connection *connection, void *message, enum wire_message_type type,
               size_t bytes, const os_handle *handles, int count) {
  wire_message_start(message, type, bytes);
  /* A dead peer: the end of the connection will tell. */
  return os_send(connection->source.handle, message, bytes, handles, count) != CUDALINK_ERROR_BUSY;
}

bool link_send_plain(struct link_connection *connection, enum wire_message_type type,
                     uint64_t value) {
  struct wire_plain message = {.value = value};
  return link_send(connection, &message, type, sizeof message, NULL, 0);
}

static void refuse(struct link_connection *connection, int error) {
  struct wire_refused message = {.error = error};
  snprintf(message.text, sizeof message.text, "%s", cudalink_last_error());
  link_send(connection, &message, WIRE_REFUSED, sizeof message, NULL, 0);
  link_connection_close(connection);
}

/* A connection record, or a place among the unfinished handshakes, is free again. */
static void resume_listener(struct link_exporter *exporter) {
  if (!exporter->listener_paused) return;
  exporter->listener_paused = false;
  service_watch(&exporter->listener, exporter->listener.handle, false);
}

/* Closes the socket and forgets the record. The member, if there is one, is told elsewhere. */
void link_connection_close(struct link_connection *connection) {
  service_timer_stop(&connection->timer);
  service_unwatch(&connection->source);
  os_handle_close(&connection->source.handle);
  if (connection->word.handle != OS_NO_HANDLE) service_unwatch(&connection->word);
  os_handle_close(&connection->word.handle);
  service_death_disarm(connection->death);
  os_handle_close(&connection->mailbox.handle);
  pthread_mutex_lock(&connection->exporter->object.mutex);
  link_mailbox_leave(connection->exporter, &connection->mailbox);
  pthread_mutex_unlock(&connection->exporter->object.mutex);
  os_handle_close(&connection->peer);
  connection->state = LINK_CONNECTION_NONE;
  resume_listener(connection->exporter);
  link_close_look(connection->exporter);
}

static void end(struct link_connection *connection) {
  struct link_exporter *exporter = connection->exporter;
  bool was_member = connection->state == LINK_CONNECTION_MEMBER;
  uint32_t member = connection->member;
  if (was_member) {
    pthread_mutex_lock(&exporter->object.mutex);
    link_member_ended(exporter, member);
    pthread_mutex_unlock(&exporter->object.mutex);
  }
  link_connection_close(connection);
}

/* The peer's socket shares its program's descriptor table: end of file may only mean that the
 * program closed descriptors, and a forked child may keep it open. Its exit decides. */
static bool exit_decides(const struct link_connection *connection) {
  return (connection->hello.features & WIRE_FEATURE_SHARED_TABLE) != 0 && !connection->said_bye;
}

static os_handle peer_of(const struct link_connection *connection) {
  if (connection->state != LINK_CONNECTION_MEMBER) return connection->peer;
  return connection->exporter->members[connection->member].peer;
}

static struct link_connection *of_timer(struct service_timer *timer) {
  return (struct link_connection *)(void *)((char *)timer -
                                            offsetof(struct link_connection, timer));
}

static void exit_fire(struct service_timer *timer) {
  struct link_connection *connection = of_timer(timer);
  if (os_peer_exited(peer_of(connection)))
    end(connection);
  else
    service_timer_set(timer, exit_fire, os_deadline(EXIT_LOOK));
}

static void ended(struct link_connection *connection) {
  if (exit_decides(connection) && peer_of(connection) != OS_NO_HANDLE) {
    service_unwatch(&connection->source);
    exit_fire(&connection->timer);
    return;
  }
  end(connection);
}

static void handshake_fire(struct service_timer *timer) {
  struct link_connection *connection = of_timer(timer);
  error_set(CUDALINK_ERROR_TIMEOUT, "the handshake took longer than 2 s");
  refuse(connection, CUDALINK_ERROR_TIMEOUT);
}

/* ---- handshake ---------------------------------------------------------------------------------- */

static bool allowed(const struct link_exporter *exporter, const struct os_credentials *who) {
  if (!who->uid_known) return false;
  if (who->uid == os_own_uid()) return true;
  for (uint32_t i = 0; i < exporter->allowed_user_count; i++)
    if (exporter->allowed_users[i] == who->uid) return true;
  return false;
}

static int check_user(const struct link_exporter *exporter, const struct os_credentials *who) {
  if (allowed(exporter, who)) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_REFUSED,
                   "channel '%s' belongs to user %u and does not allow user %u%s; the producer can "
                   "name it in allowed_users",
                   exporter->name, os_own_uid(), who->uid,
                   who->uid_known ? "" : " (not visible in the producer's user namespace)");
}

static int check_hello(const struct link_exporter *exporter, const struct wire_hello *hello) {
  if (strcmp(hello->channel, exporter->name) != 0)
    return error_set(CUDALINK_ERROR_NOT_FOUND, "this socket is channel '%s', not '%s'",
                     exporter->name, hello->channel);
  if (!(hello->kinds >> exporter->device->kind & 1u))
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "channel '%s' has frames of kind %s, which the consumer can't map",
                     exporter->name, cudalink_kind_name(exporter->device->kind));
  return CUDALINK_OK;
}

static void word_ready(struct service_source *source, const struct os_event *event);

/* Two words, one for each end's death. Both are made here, so that nothing has to be received from a
 * consumer; who writes to them by itself fools only itself. */
static bool make_words(struct link_connection *connection, os_handle words[2]) {
  if (os_death_word_make(&words[0]) < 0) return false;
  if (service_death_arm(words[0], &connection->death) < 0 || os_death_word_make(&words[1]) < 0) {
    os_handle_close(&words[0]);
    return false; /* the end of file has to do */
  }
  connection->word.ready = word_ready;
  service_watch(&connection->word, words[1], false);
  return true;
}

static void welcome(struct link_connection *connection) {
  struct link_exporter *exporter = connection->exporter;
  int status = link_mailbox_take(exporter, &connection->mailbox);
  if (status == CUDALINK_ERROR_BUSY) {
    connection->state = LINK_CONNECTION_QUEUED; /* more are on their way */
    return;
  }
  if (status < 0) {
    refuse(connection, status);
    return;
  }
  os_peer_open(connection->source.handle, connection->who.pid, &connection->peer);
  struct wire_welcome message = {
      .features = service_isolation() == OS_ISOLATED_NOT ? WIRE_FEATURE_SHARED_TABLE : 0,
      .control_bytes = exporter->control_segment.bytes,
      .mailbox_bytes = connection->mailbox.bytes,
      .entries = connection->entries,
      .hold = connection->hold,
      .consumer = (uint32_t)(connection - exporter->connections) % WIRE_MAX_CONSUMERS,
      .user_size = exporter->user_size,
      .pid = os_own_pid(),
      .kind = exporter->device->kind};
  memcpy(message.program, exporter->program, sizeof message.program);
  memcpy(message.path, exporter->device->path, sizeof message.path);
  memcpy(message.reason, exporter->device->reason, sizeof message.reason);
  os_handle handles[4] = {exporter->inside_control, connection->mailbox.handle, OS_NO_HANDLE,
                          OS_NO_HANDLE};
  bool words = make_words(connection, &handles[2]);
  link_send(connection, &message, WIRE_WELCOME, sizeof message, handles, words ? 4 : 2);
  os_handle_close(&handles[2]);
  connection->state = LINK_CONNECTION_MAPPED;
}

static void on_hello(struct link_connection *connection, const struct wire_hello *hello) {
  struct link_exporter *exporter = connection->exporter;
  int status = check_hello(exporter, hello);
  if (status < 0) {
    refuse(connection, status);
    return;
  }
  connection->hello = *hello;
  uint32_t most = exporter->max_slots - 2;
  connection->hold = hello->hold < most ? hello->hold : most;
  connection->entries = connection->hold + 1;
  welcome(connection);
}

static void on_mapped(struct link_connection *connection) {
  struct link_exporter *exporter = connection->exporter;
  int status = os_segment_seal_writers(&connection->mailbox);
  os_handle_close(&connection->mailbox.handle);
  if (status < 0 && status != CUDALINK_ERROR_UNSUPPORTED) {
    refuse(connection, status);
    return;
  }
  service_timer_stop(&connection->timer);
  pthread_mutex_lock(&exporter->object.mutex);
  struct link_member *member = link_member_join(exporter, connection, &status);
  if (member) {
    connection->member = (uint32_t)(member - exporter->members);
    connection->state = LINK_CONNECTION_MEMBER;
    /* All that it needs is in its socket before anybody hears of it: should this process die now, the
     * consumer still gets what is published from here on. */
    link_send_plain(connection, WIRE_JOINED, connection->member);
    link_tell_locked(exporter);
    if (link_group_dispatch(exporter))
      link_ring(exporter); /* frames may have waited for a member */
    link_changed(exporter);
  }
  pthread_mutex_unlock(&exporter->object.mutex);
  if (!member) {
    refuse(connection, status);
    return;
  }
  resume_listener(exporter);
  log_write(CUDALINK_LOG_INFO, "channel '%s': consumer %s (pid %d) joined", exporter->name,
            member->program, member->who.pid);
  if (exit_decides(connection) && member->peer != OS_NO_HANDLE) exit_fire(&connection->timer);
}

/* Consumers that came while no mailbox was ready. */
void link_welcome_queued(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < exporter->connection_limit; i++)
    if (exporter->connections[i].state == LINK_CONNECTION_QUEUED)
      welcome(&exporter->connections[i]);
}

/* ---- messages ----------------------------------------------------------------------------------- */

static void on_generation_closed(struct link_connection *connection, uint64_t generation) {
  struct link_exporter *exporter = connection->exporter;
  pthread_mutex_lock(&exporter->object.mutex);
  struct link_member *member = &exporter->members[connection->member];
  for (uint32_t i = 0; i < LINK_MEMBER_GENERATIONS; i++)
    if (member->open_generations[i] == generation) member->open_generations[i] = 0;
  link_isolated_collect(exporter, member);
  link_generation_collect(exporter);
  pthread_mutex_unlock(&exporter->object.mutex);
  link_tell_generations(exporter); /* it may just have been offered a frame of that one */
}

static void on_released(struct link_connection *connection) {
  struct link_exporter *exporter = connection->exporter;
  pthread_mutex_lock(&exporter->object.mutex);
  if (link_group_dispatch(exporter)) link_ring(exporter);
  link_changed(exporter);
  pthread_mutex_unlock(&exporter->object.mutex);
}

static void on_bye(struct link_connection *connection, uint64_t what) {
  struct link_exporter *exporter = connection->exporter;
  struct link_member *member = &exporter->members[connection->member];
  connection->said_bye = true;
  pthread_mutex_lock(&exporter->object.mutex);
  link_member_leave(exporter, connection->member);
  if (what == WIRE_BYE_UNMAPPED)
    memset(member->open_generations, 0, sizeof member->open_generations);
  link_changed(exporter);
  pthread_mutex_unlock(&exporter->object.mutex);
}

/* Does this message fit what was said before? */
static bool expected(const struct link_connection *connection, int type) {
  switch (connection->state) {
  case LINK_CONNECTION_HELLO: return type == WIRE_HELLO || type == WIRE_STATUS;
  case LINK_CONNECTION_MAPPED: return type == WIRE_MAPPED;
  case LINK_CONNECTION_MEMBER:
    return type == WIRE_GENERATION_CLOSED || type == WIRE_RELEASED || type == WIRE_BYE;
  case LINK_CONNECTION_QUEUED:
  case LINK_CONNECTION_NONE: break;
  }
  return false;
}

static void dispatch(struct link_connection *connection, int type) {
  switch (type) {
  case WIRE_HELLO: on_hello(connection, (const struct wire_hello *)buffer); break;
  case WIRE_STATUS:
    link_send_status(connection, ((const struct wire_plain *)buffer)->value);
    link_connection_close(connection);
    break;
  case WIRE_MAPPED: on_mapped(connection); break;
  case WIRE_GENERATION_CLOSED:
    on_generation_closed(connection, ((const struct wire_generation_closed *)buffer)->generation);
    break;
  case WIRE_RELEASED: on_released(connection); break;
  case WIRE_BYE: on_bye(connection, ((const struct wire_plain *)buffer)->value); break;
  default: break;
  }
}

/* One message. False when there is none (more), or no connection. */
static bool receive(struct link_connection *connection) {
  size_t size;
  /* No control buffer: a peer can't make this process receive descriptors. */
  int status = os_receive(connection->source.handle, buffer, sizeof buffer, &size, NULL, NULL);
  if (status == CUDALINK_ERROR_BUSY) return false;
  if (status < 0) {
    ended(connection);
    return false;
  }
  int type = wire_message_check(buffer, size);
  if (type > 0 && !expected(connection, type))
    type = error_set(CUDALINK_ERROR_PROTOCOL, "message %d came out of turn", type);
  if (type > 0)
    dispatch(connection, type);
  else if (connection->state == LINK_CONNECTION_MEMBER)
    end(connection);
  else
    refuse(connection, type);
  return connection->state != LINK_CONNECTION_NONE;
}

static void connection_ready(struct service_source *source, const struct os_event *event) {
  (void)event;
  receive((struct link_connection *)(void *)source);
}

/* The consumer's process ends, or has let go of its word: what is still in the socket says which. */
static void word_ready(struct service_source *source, const struct os_event *event) {
  struct link_connection *connection =
      (struct link_connection *)(void *)((char *)source - offsetof(struct link_connection, word));
  (void)event;
  if (!service_word_ended(source)) return;
  while (receive(connection)) {
  }
  if (connection->state != LINK_CONNECTION_NONE) end(connection);
}

static struct link_connection *free_connection(struct link_exporter *exporter) {
  struct link_connection *found = NULL;
  uint32_t unfinished = 0;
  for (uint32_t i = 0; i < exporter->connection_limit; i++) {
    struct link_connection *connection = &exporter->connections[i];
    if (connection->state == LINK_CONNECTION_NONE)
      found = connection;
    else if (connection->state != LINK_CONNECTION_MEMBER)
      unfinished++;
  }
  if (unfinished >= LINK_MAX_HANDSHAKES) return NULL;
  if (!found && exporter->connection_limit < LINK_MAX_CONNECTIONS)
    found = &exporter->connections[exporter->connection_limit++];
  return found;
}

static void accepted(struct link_exporter *exporter, struct link_connection *connection,
                     os_handle handle) {
  *connection = (struct link_connection){.source = {.ready = connection_ready, .handle = handle},
                                         .exporter = exporter,
                                         .state = LINK_CONNECTION_HELLO,
                                         .mailbox.handle = OS_NO_HANDLE,
                                         .word.handle = OS_NO_HANDLE,
                                         .peer = OS_NO_HANDLE};
  int status = os_peer_credentials(handle, &connection->who);
  if (status == CUDALINK_OK) status = check_user(exporter, &connection->who);
  if (status == CUDALINK_OK) status = service_watch(&connection->source, handle, false);
  if (status < 0)
    refuse(connection, status);
  else
    service_timer_set(&connection->timer, handshake_fire, os_deadline(HANDSHAKE_LIMIT));
}

/* Or it would be readable all the time. */
static void pause_listener(struct link_exporter *exporter) {
  service_unwatch(&exporter->listener);
  exporter->listener_paused = true;
}

static void listener_fire(struct service_timer *timer) {
  resume_listener((struct link_exporter *)(void *)((char *)timer -
                                                   offsetof(struct link_exporter, listener_timer)));
}

static void listener_ready(struct service_source *source, const struct os_event *event) {
  struct link_exporter *exporter =
      (struct link_exporter *)(void *)((char *)source - offsetof(struct link_exporter, listener));
  (void)event;
  os_handle handle;
  struct link_connection *connection = free_connection(exporter);
  if (!connection) {
    pause_listener(exporter);
    return;
  }
  int status = os_accept(source->handle, &handle);
  if (status == CUDALINK_ERROR_SYSTEM) { /* nobody tells when a descriptor becomes free */
    pause_listener(exporter);
    service_timer_set(&exporter->listener_timer, listener_fire, os_deadline(SERVICE_LISTEN_AGAIN));
  }
  if (status == CUDALINK_OK) accepted(exporter, connection, handle);
}

/* ---- start and stop -------------------------------------------------------------------------------- */

static int claim(struct link_exporter *exporter, bool *replaced) {
  int status = os_claim_take(&exporter->claim, exporter->directory, exporter->file, replaced);
  if (status == CUDALINK_OK) return CUDALINK_OK;
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s", cudalink_last_error());
  return error_set(status, "channel '%s': %s", exporter->name, sentence);
}

int link_accept_start(struct link_exporter *exporter) {
  bool replaced;
  int status = claim(exporter, &replaced);
  if (status < 0) return status;
  if (replaced)
    log_write(CUDALINK_LOG_INFO, "channel '%s': replaced what a dead producer left in %s",
              exporter->name, exporter->directory);
  exporter->listener.ready = listener_ready;
  status = service_watch(&exporter->listener, exporter->claim.listener, false);
  if (status < 0) os_claim_drop(&exporter->claim);
  return status;
}

/* Behind all that it is still to be told; who can't be told now is told when it reads again. */
void link_tell_closed(struct link_connection *connection) {
  struct link_exporter *exporter = connection->exporter;
  bool member = connection->state == LINK_CONNECTION_MEMBER;
  bool behind = member && exporter->members[connection->member].untold;
  if (connection->told_closed) return;
  connection->told_closed = !behind && link_send_plain(connection, WIRE_CLOSED, 0);
  exporter->untold |= member && !connection->told_closed;
}

void link_accept_stop(struct link_exporter *exporter) {
  if (!exporter->listener_paused) service_unwatch(&exporter->listener);
  exporter->listener_paused = false;
  service_timer_stop(&exporter->listener_timer);
  os_claim_drop(&exporter->claim);
  exporter->stopped = true;
  link_tell_generations(exporter); /* of the last frames' memory, and behind it of the end */
  for (uint32_t i = 0; i < exporter->connection_limit; i++) {
    struct link_connection *connection = &exporter->connections[i];
    if (connection->state == LINK_CONNECTION_NONE) continue;
    link_tell_closed(connection);
    connection->said_bye = true;
    /* Members may still wait for what is queued, or have legacy handles open (exporter.c, close_fire). */
    if (connection->state != LINK_CONNECTION_MEMBER) end(connection);
  }
}

bool link_accept_over(const struct link_exporter *exporter) {
  for (uint32_t i = 0; i < exporter->connection_limit; i++)
    if (exporter->connections[i].state != LINK_CONNECTION_NONE) return false;
  return true;
}

void link_accept_end(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < exporter->connection_limit; i++)
    if (exporter->connections[i].state != LINK_CONNECTION_NONE) end(&exporter->connections[i]);
}
