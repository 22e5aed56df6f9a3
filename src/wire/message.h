/* SPDX-License-Identifier: MIT
 *
 * What is said over a connection: one datagram each, fixed size per type, checked before use.
 *
 * Consumer -> producer: HELLO, MAPPED, GENERATION_CLOSED, RELEASED, BYE; observer: STATUS.
 * Producer -> consumer: WELCOME (control block and mailbox descriptors), REFUSED, JOINED, GENERATION
 * (memory descriptor), POOL_BLOCK (memory descriptor), POOL_BLOCK_GONE, BELL, CLOSED; to an observer:
 * STATUS_REPLY.
 */
#ifndef CUDALINK_SRC_WIRE_MESSAGE_H
#define CUDALINK_SRC_WIRE_MESSAGE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "cudalink/channels.h"
#include "wire/control.h"

#define WIRE_MESSAGE_MAGIC 0x4b4c4443u /* "CDLK" as bytes */

enum wire_message_type {
  WIRE_HELLO = 1,
  WIRE_WELCOME = 2,
  WIRE_REFUSED = 3,
  WIRE_MAPPED = 4,
  WIRE_GENERATION = 5,
  WIRE_GENERATION_CLOSED = 6,
  WIRE_RELEASED = 7, /* look at the mailboxes: a lease ended, an offer was taken */
  WIRE_BELL = 8,     /* your armed descriptor is due */
  WIRE_BYE = 9,      /* no new leases from me; still scan me until my entries are free.
                        WIRE_BYE_UNMAPPED: and I have nothing of yours mapped any more (kind ipc) */
  WIRE_CLOSED = 10,  /* the channel ended */
  WIRE_STATUS = 11,
  WIRE_STATUS_REPLY = 12,
  WIRE_JOINED = 13,         /* you are a member: what is published from here on is for you */
  WIRE_POOL_BLOCK = 14,     /* frames may lie in this memory, too */
  WIRE_POOL_BLOCK_GONE = 15 /* no frame lies there any more: unmap it */
};

struct wire_message_head { /* starts every message */
  uint32_t magic;
  uint16_t version; /* WIRE_VERSION */
  uint16_t type;
  uint32_t bytes; /* of the whole message */
  uint32_t reserved;
};
_Static_assert(sizeof(struct wire_message_head) == 16, "layout");

/* features */
#define WIRE_FEATURE_SHARED_TABLE 1u /* its sockets are in its program's descriptor table */
#define WIRE_FEATURE_POOL 2u         /* a consumer that maps blocks of pools */
#define WIRE_FEATURE_COUNTS 4u       /* a consumer that counts in its mailbox what it takes */
#define WIRE_FEATURE_LATENCIES 8u    /* and by how long that took */

struct wire_hello {
  struct wire_message_head head;
  uint64_t features;
  char channel[CUDALINK_NAME_MAX + 1 + 7]; /* full name, NUL-ended, rest zero */
  char program[CUDALINK_PROGRAM_SIZE];
  char group[CUDALINK_GROUP_NAME_SIZE];
  uint32_t policy;
  uint32_t hold;
  uint32_t isolated;
  uint32_t writable;
  uint32_t gpu_wait; /* 1: write my mirrors */
  uint32_t kinds;    /* bit i: can map cudalink_kind i */
  uint8_t device_uuid[16];
  int32_t pid; /* as the consumer sees itself; information only */
  uint32_t reserved;
};
_Static_assert(sizeof(struct wire_hello) == 16 + 8 + 208 + 32 + 64 + 24 + 16 + 8, "layout");

struct wire_welcome { /* with two descriptors: control block, mailbox */
  struct wire_message_head head;
  uint64_t features;
  uint64_t control_bytes;
  uint64_t mailbox_bytes;
  uint32_t entries;  /* lease quota E, 2 to 17 */
  uint32_t hold;     /* granted */
  uint32_t consumer; /* index, 0 to 63; information */
  uint32_t user_size;
  char program[CUDALINK_PROGRAM_SIZE];
  int32_t pid;
  uint32_t kind;
  char path[32];
  char reason[160];
};
_Static_assert(sizeof(struct wire_welcome) == 16 + 24 + 16 + 32 + 8 + 32 + 160, "layout");

struct wire_refused {
  struct wire_message_head head;
  int32_t error; /* cudalink_error */
  uint32_t reserved;
  char text[200];
};
_Static_assert(sizeof(struct wire_refused) == 16 + 8 + 200, "layout");

struct wire_generation { /* with the memory's descriptor (not ipc), and on GPUs the metadata's */
  struct wire_message_head head;
  uint64_t generation;
  uint64_t memory_bytes; /* of the whole block */
  uint64_t slot_bytes;   /* capacity of a slot */
  uint64_t slot_stride;
  uint64_t metadata_offset; /* in the memory (host) or in the metadata segment (GPU kinds) */
  uint64_t metadata_stride;
  uint64_t metadata_bytes; /* of the metadata segment; 0 on host */
  uint32_t slots;
  uint32_t plane_count;
  uint32_t user_size;
  uint32_t kind;
  uint32_t writable;       /* 1: may be mapped writable */
  uint32_t device_ordinal; /* of the producer; information */
  uint8_t device_uuid[16];
  uint8_t ipc_handle[64]; /* kind ipc; then there is no memory descriptor */
  uint64_t reserved[2];
};
_Static_assert(sizeof(struct wire_generation) == 16 + 56 + 24 + 16 + 64 + 16, "layout");

struct wire_generation_closed {
  struct wire_message_head head;
  uint64_t generation;
};

struct wire_pool_block { /* with the memory's descriptor; mapped read-only, kind vmm alone */
  struct wire_message_head head;
  uint64_t number; /* from 1, never used again in its producer's life */
  uint64_t bytes;
  uint8_t device_uuid[16];
  uint64_t reserved[2];
};
_Static_assert(sizeof(struct wire_pool_block) == 16 + 16 + 16 + 16, "layout");

struct wire_pool_block_gone {
  struct wire_message_head head;
  uint64_t number;
};

#define WIRE_BYE_UNMAPPED 1u     /* else 0 */
#define WIRE_STATUS_COUNTS 1u    /* what consumers count is wanted, too */
#define WIRE_STATUS_DEVICE 2u    /* and where the frames lie */
#define WIRE_STATUS_LATENCIES 4u /* and latencies by their length; only beside these two */

struct wire_plain { /* MAPPED, JOINED, RELEASED, BELL, BYE, CLOSED, STATUS */
  struct wire_message_head head;
  uint64_t value; /* BELL: the arming number; JOINED: which consumer; BYE: 1 = unmapped;
                     STATUS: WIRE_STATUS_*, what is wanted beside the channel; else 0 */
};
_Static_assert(sizeof(struct wire_plain) == 24, "layout");

struct wire_status_consumer {
  int32_t pid;
  uint32_t uid;
  char program[CUDALINK_PROGRAM_SIZE];
  char group[CUDALINK_GROUP_NAME_SIZE];
  uint32_t policy, hold, held, isolated;
  uint64_t held_for;
  uint64_t position;
};
_Static_assert(sizeof(struct wire_status_consumer) == 8 + 32 + 64 + 16 + 16, "layout");

/* Of one consumer; all CUDALINK_NOT_TOLD: it does not count. */
struct wire_status_counts {
  uint64_t received; /* frames taken */
  uint64_t missed;   /* frames that it never got */
  uint64_t latency;  /* ns from publish to acquire, of `measured` frames together */
  uint64_t measured; /* frames */
};
_Static_assert(sizeof(struct wire_status_counts) == 32, "layout");

/* Where the frames lie. */
struct wire_status_device {
  uint8_t uuid[16]; /* zeros = memory of the CPU */
  char name[CUDALINK_DEVICE_NAME_SIZE];
  uint64_t reserved[2];
};
_Static_assert(sizeof(struct wire_status_device) == 16 + 96 + 16, "layout");

/* Of one consumer; all CUDALINK_NOT_TOLD: it does not count these. */
struct wire_status_latencies {
  uint64_t counts[CUDALINK_LATENCY_BUCKETS]; /* as in its mailbox */
};
_Static_assert(sizeof(struct wire_status_latencies) == 768, "layout");

struct wire_status_reply {
  struct wire_message_head head;
  char channel[CUDALINK_NAME_MAX + 1 + 7];
  char program[CUDALINK_PROGRAM_SIZE];
  int32_t pid;
  uint32_t uid;
  uint32_t kind, slots;
  uint64_t slot_bytes, generation, published, dropped, newest_timestamp, opened;
  uint32_t format, width, height, plane_count;
  char path[32];
  char reason[160];
  uint32_t consumer_count;
  uint32_t count_count; /* 0, or consumer_count: counts, right behind the last consumer */
  struct wire_status_consumer consumers[WIRE_MAX_CONSUMERS]; /* only consumer_count are sent */
  struct wire_status_counts room[WIRE_MAX_CONSUMERS];        /* where counts lie behind all 64 */
  struct wire_status_device room_behind; /* behind the last count, or not sent */
  struct wire_status_latencies room_last[WIRE_MAX_CONSUMERS]; /* behind the device, or none */
};
_Static_assert(offsetof(struct wire_status_reply, consumers) ==
                   16 + 208 + 32 + 16 + 48 + 16 + 32 + 160 + 8,
               "layout");

/* Those of the first consumer. */
static inline struct wire_status_counts *wire_status_counts_of(struct wire_status_reply *reply) {
  return (struct wire_status_counts *)(void *)&reply->consumers[reply->consumer_count];
}

/* Where the device is, if it was sent: if the message does not end there. */
static inline struct wire_status_device *wire_status_device_at(struct wire_status_reply *reply) {
  return (struct wire_status_device *)(void *)&wire_status_counts_of(reply)[reply->count_count];
}

/* Where those of the first consumer are, if they were sent: if the message does not end there. */
static inline struct wire_status_latencies *wire_status_latencies_at(
    struct wire_status_reply *reply) {
  return (struct wire_status_latencies *)(void *)&wire_status_device_at(reply)[1];
}

#define WIRE_MAX_MESSAGE sizeof(struct wire_status_reply)

#define WIRE_SLOT_ALIGNMENT 256u /* every slot starts at a multiple, whatever its kind */

/* Fills in the head, nothing else. */
void wire_message_start(void *message, enum wire_message_type type, size_t bytes);

/* Checks a received message: head, type known, size exact for its type, strings NUL-ended, numbers in
 * range, sizes consistent (64-bit arithmetic). Returns its type, or a negative error: PROTOCOL names
 * the field, VERSION both versions. What passed can be used without further checks of its own
 * fields. `message` is 8-byte aligned and in memory of our own, not in shared memory. */
int wire_message_check(const void *message, size_t bytes);

#endif
