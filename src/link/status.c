/* SPDX-License-Identifier: MIT
 *
 * What an observer is told of a channel: itself, its consumers, what they hold and for how long.
 */
#include <string.h>

#include "link/exporter.h"

static uint64_t last_taken(const struct link_member *member) {
  if (member->policy != CUDALINK_POLICY_EVERY) return 0;
  uint64_t next = link_position(member);
  return next ? next - 1 : 0;
}

static void fill_consumer(struct wire_status_consumer *out, const struct link_exporter *exporter,
                          const struct link_member *member, uint64_t now) {
  *out = (struct wire_status_consumer){.pid = member->who.pid,
                                       .uid = member->who.uid,
                                       .policy = member->policy,
                                       .hold = member->hold,
                                       .isolated = member->wants_isolated,
                                       .position = last_taken(member)};
  memcpy(out->program, member->program, sizeof out->program);
  if (member->group >= 0)
    memcpy(out->group, exporter->groups[member->group].name, sizeof out->group);
  for (uint32_t e = 0; e < member->entries; e++) {
    if (!member->seen_word[e]) continue;
    out->held++;
    uint64_t held_for = now - member->held_since[e];
    if (held_for > out->held_for) out->held_for = held_for;
  }
}

/* relaxed: numbers for people, each by itself, and whatever the consumer likes them to be. */
static uint64_t told(const wire_word *word) {
  return atomic_load_explicit(word, memory_order_relaxed);
}

static void fill_counts(struct wire_status_counts *out, const struct link_member *member) {
  const struct wire_mailbox *mailbox = member->mailbox;
  if (!member->counts) {
    memset(out, 0xff, sizeof *out); /* CUDALINK_NOT_TOLD */
    return;
  }
  *out = (struct wire_status_counts){.received = told(&mailbox->received),
                                     .missed = told(&mailbox->missed),
                                     .latency = told(&mailbox->latency),
                                     .measured = told(&mailbox->measured)};
}

static bool with_latencies(uint64_t wanted) {
  const uint64_t all = WIRE_STATUS_COUNTS | WIRE_STATUS_DEVICE | WIRE_STATUS_LATENCIES;
  return (wanted & all) == all;
}

static void fill_latencies(struct wire_status_latencies *out, const struct link_member *member) {
  const struct wire_mailbox *mailbox = member->mailbox;
  if (!member->latencies) {
    memset(out, 0xff, sizeof *out);
    return;
  }
  for (uint32_t b = 0; b < CUDALINK_LATENCY_BUCKETS; b++)
    out->counts[b] = told(&mailbox->latencies[b]);
}

static void fill_consumers(struct link_exporter *exporter, struct wire_status_reply *reply,
                           uint64_t now) {
  uint32_t c = 0;
  reply->consumer_count = (uint32_t)__builtin_popcountll(exporter->present_mask);
  LINK_EACH_OF(exporter->present_mask, m)
    fill_consumer(&reply->consumers[c++], exporter, &exporter->members[m], now);
}

/* Without the mutex: these are 13 lines of each consumer, most of them in another core's cache, and a publish
 * would wait for all. Only this thread lets members come and go, so they are those that were counted. */
static void fill_numbers(const struct link_exporter *exporter, struct wire_status_reply *reply,
                         uint64_t wanted) {
  if (!(wanted & WIRE_STATUS_COUNTS)) return;
  uint32_t c = 0;
  reply->count_count = reply->consumer_count;
  LINK_EACH_OF(exporter->present_mask, m) {
    fill_counts(&wire_status_counts_of(reply)[c], &exporter->members[m]);
    if (with_latencies(wanted))
      fill_latencies(&wire_status_latencies_at(reply)[c], &exporter->members[m]);
    c++;
  }
}

/* Returns the bytes of it. */
static size_t fill_device(struct wire_status_device *out, const struct gpu_device *device) {
  memcpy(out->uuid, device->uuid, sizeof out->uuid);
  memcpy(out->name, device->name, sizeof out->name);
  return sizeof *out;
}

static size_t fill_status(struct link_exporter *exporter, struct wire_status_reply *reply,
                          uint64_t wanted) {
  memset(reply, 0, sizeof *reply);
  memcpy(reply->channel, exporter->name, sizeof exporter->name);
  memcpy(reply->program, exporter->program, sizeof reply->program);
  memcpy(reply->path, exporter->device->path, sizeof reply->path);
  memcpy(reply->reason, exporter->device->reason, sizeof reply->reason);
  reply->pid = os_own_pid();
  reply->uid = os_own_uid();
  reply->kind = exporter->device->kind;
  reply->opened = exporter->opened;
  pthread_mutex_lock(&exporter->object.mutex);
  uint64_t now = os_now();
  link_note_holders(exporter, now);
  if (exporter->current) {
    reply->slots = exporter->current->geometry.slots;
    reply->slot_bytes = exporter->current->geometry.slot_bytes;
    reply->generation = exporter->current->number;
  }
  reply->published = exporter->statistics.published;
  reply->dropped = exporter->statistics.dropped;
  reply->newest_timestamp = exporter->newest_timestamp;
  reply->format = exporter->newest_format;
  reply->width = reply->format ? exporter->newest_width : 0;
  reply->height = reply->format ? exporter->newest_height : 0;
  reply->plane_count = exporter->newest_planes;
  fill_consumers(exporter, reply, now);
  pthread_mutex_unlock(&exporter->object.mutex);
  fill_numbers(exporter, reply, wanted);
  size_t bytes = offsetof(struct wire_status_reply, consumers) +
                 reply->consumer_count * sizeof reply->consumers[0] +
                 reply->count_count * sizeof(struct wire_status_counts);
  if (wanted & WIRE_STATUS_DEVICE)
    bytes += fill_device(wire_status_device_at(reply), exporter->device);
  if (with_latencies(wanted)) bytes += reply->count_count * sizeof(struct wire_status_latencies);
  return bytes;
}

void link_send_status(struct link_connection *connection, uint64_t wanted) {
  static struct wire_status_reply reply; /* service thread only */
  size_t bytes = fill_status(connection->exporter, &reply, wanted);
  link_send(connection, &reply, WIRE_STATUS_REPLY, bytes, NULL, 0);
}
