/* SPDX-License-Identifier: MIT
 *
 * Messages: one table row per field that a peer fills in, then what the fields say about each other.
 *
 * A message lies in our own memory when it is checked (a datagram was received into it), so it may
 * be read more than once.
 */
#include "wire/message.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "wire/description.h"
#include "wire/mailbox.h"

#define LARGEST ((uint64_t)INT64_MAX)   /* of a size or an offset */
#define MAX_SEGMENT UINT64_C(0x1000000) /* of a control block or mailbox, with room to grow */

enum field_kind { NUMBER, NEGATIVE, STRING, NAME };

struct field {
  const char *name;
  uint16_t offset;
  uint16_t size;
  enum field_kind kind;
  uint64_t min, max; /* NEGATIVE: of the absolute value */
};

#define FIELD(type, field, kind, min, max)                                                         \
  { #field, offsetof(struct type, field), sizeof(((struct type *)0)->field), kind, min, max }
#define RANGE(type, field, min, max) FIELD(type, field, NUMBER, min, max)
#define TEXT(type, field) FIELD(type, field, STRING, 0, 0)
#define END                                                                                        \
  { NULL, 0, 0, NUMBER, 0, 0 }

#define MIN_KIND CUDALINK_KIND_HOST
#define MAX_KIND CUDALINK_KIND_IPC
#define MAX_PID INT32_MAX

static const struct field hello_fields[] = {
    FIELD(wire_hello, channel, NAME, 1, CUDALINK_NAME_MAX),
    TEXT(wire_hello, program),
    TEXT(wire_hello, group),
    RANGE(wire_hello, policy, 0, CUDALINK_POLICY_SHARED),
    RANGE(wire_hello, hold, 1, CUDALINK_MAX_HOLD),
    RANGE(wire_hello, isolated, 0, 1),
    RANGE(wire_hello, writable, 0, 1),
    RANGE(wire_hello, gpu_wait, 0, 1),
    RANGE(wire_hello, pid, 0, MAX_PID),
    END,
};

static const struct field welcome_fields[] = {
    RANGE(wire_welcome, control_bytes, sizeof(struct wire_control), MAX_SEGMENT),
    RANGE(wire_welcome, mailbox_bytes, sizeof(struct wire_mailbox), MAX_SEGMENT),
    RANGE(wire_welcome, entries, 2, WIRE_MAX_ENTRIES),
    RANGE(wire_welcome, hold, 1, CUDALINK_MAX_HOLD),
    RANGE(wire_welcome, consumer, 0, WIRE_MAX_CONSUMERS - 1),
    RANGE(wire_welcome, user_size, 0, CUDALINK_MAX_USER_SIZE),
    TEXT(wire_welcome, program),
    RANGE(wire_welcome, pid, 0, MAX_PID),
    RANGE(wire_welcome, kind, MIN_KIND, MAX_KIND),
    TEXT(wire_welcome, path),
    TEXT(wire_welcome, reason),
    END,
};

/* A later library may refuse for a reason that has no name here yet; the text says it. */
static const struct field refused_fields[] = {
    FIELD(wire_refused, error, NEGATIVE, 1, 255),
    TEXT(wire_refused, text),
    END,
};

static const struct field generation_fields[] = {
    RANGE(wire_generation, generation, 1, WIRE_GENERATION_MASK),
    RANGE(wire_generation, memory_bytes, 1, LARGEST),
    RANGE(wire_generation, slot_bytes, 0, LARGEST),
    RANGE(wire_generation, slot_stride, 1, LARGEST),
    RANGE(wire_generation, metadata_offset, 0, LARGEST),
    RANGE(wire_generation, metadata_stride, 1, LARGEST),
    RANGE(wire_generation, metadata_bytes, 0, LARGEST),
    RANGE(wire_generation, slots, 1, WIRE_MAX_SLOTS),
    RANGE(wire_generation, plane_count, 1, CUDALINK_MAX_PLANES),
    RANGE(wire_generation, user_size, 0, CUDALINK_MAX_USER_SIZE),
    RANGE(wire_generation, kind, MIN_KIND, MAX_KIND),
    RANGE(wire_generation, writable, 0, 1),
    END,
};

static const struct field generation_closed_fields[] = {
    RANGE(wire_generation_closed, generation, 1, WIRE_GENERATION_MASK),
    END,
};

static const struct field pool_block_fields[] = {
    RANGE(wire_pool_block, number, 1, LARGEST),
    RANGE(wire_pool_block, bytes, 1, LARGEST),
    END,
};

static const struct field pool_block_gone_fields[] = {
    RANGE(wire_pool_block_gone, number, 1, LARGEST),
    END,
};

static const struct field plain_fields[] = {END};

static const struct field status_reply_fields[] = {
    FIELD(wire_status_reply, channel, NAME, 1, CUDALINK_NAME_MAX),
    TEXT(wire_status_reply, program),
    RANGE(wire_status_reply, pid, 0, MAX_PID),
    RANGE(wire_status_reply, kind, MIN_KIND, MAX_KIND),
    RANGE(wire_status_reply, slots, 0, WIRE_MAX_SLOTS),
    RANGE(wire_status_reply, slot_bytes, 0, LARGEST),
    RANGE(wire_status_reply, generation, 0, WIRE_GENERATION_MASK),
    RANGE(wire_status_reply, width, 0, WIRE_MAX_PICTURE_SIDE),
    RANGE(wire_status_reply, height, 0, WIRE_MAX_PICTURE_SIDE),
    RANGE(wire_status_reply, plane_count, 0, CUDALINK_MAX_PLANES),
    TEXT(wire_status_reply, path),
    TEXT(wire_status_reply, reason),
    RANGE(wire_status_reply, consumer_count, 0, WIRE_MAX_CONSUMERS),
    RANGE(wire_status_reply, count_count, 0, WIRE_MAX_CONSUMERS),
    END,
};

static const struct field status_consumer_fields[] = {
    RANGE(wire_status_consumer, pid, 0, MAX_PID),
    TEXT(wire_status_consumer, program),
    TEXT(wire_status_consumer, group),
    RANGE(wire_status_consumer, policy, 0, CUDALINK_POLICY_SHARED),
    RANGE(wire_status_consumer, hold, 0, CUDALINK_MAX_HOLD),
    RANGE(wire_status_consumer, held, 0, WIRE_MAX_ENTRIES),
    RANGE(wire_status_consumer, isolated, 0, 1),
    END,
};

static const struct field status_device_fields[] = {
    TEXT(wire_status_device, name),
    END,
};

static const struct {
  const char *name;
  const struct field *fields;
  size_t bytes; /* STATUS_REPLY: without its consumers */
} types[] = {
    [WIRE_HELLO] = {"HELLO", hello_fields, sizeof(struct wire_hello)},
    [WIRE_WELCOME] = {"WELCOME", welcome_fields, sizeof(struct wire_welcome)},
    [WIRE_REFUSED] = {"REFUSED", refused_fields, sizeof(struct wire_refused)},
    [WIRE_MAPPED] = {"MAPPED", plain_fields, sizeof(struct wire_plain)},
    [WIRE_GENERATION] = {"GENERATION", generation_fields, sizeof(struct wire_generation)},
    [WIRE_GENERATION_CLOSED] = {"GENERATION_CLOSED", generation_closed_fields,
                                sizeof(struct wire_generation_closed)},
    [WIRE_RELEASED] = {"RELEASED", plain_fields, sizeof(struct wire_plain)},
    [WIRE_BELL] = {"BELL", plain_fields, sizeof(struct wire_plain)},
    [WIRE_BYE] = {"BYE", plain_fields, sizeof(struct wire_plain)},
    [WIRE_CLOSED] = {"CLOSED", plain_fields, sizeof(struct wire_plain)},
    [WIRE_STATUS] = {"STATUS", plain_fields, sizeof(struct wire_plain)},
    [WIRE_STATUS_REPLY] = {"STATUS_REPLY", status_reply_fields,
                           offsetof(struct wire_status_reply, consumers)},
    [WIRE_JOINED] = {"JOINED", plain_fields, sizeof(struct wire_plain)},
    [WIRE_POOL_BLOCK] = {"POOL_BLOCK", pool_block_fields, sizeof(struct wire_pool_block)},
    [WIRE_POOL_BLOCK_GONE] = {"POOL_BLOCK_GONE", pool_block_gone_fields,
                              sizeof(struct wire_pool_block_gone)},
};
#define TYPE_COUNT (sizeof types / sizeof types[0])

void wire_message_start(void *message, enum wire_message_type type, size_t bytes) {
  struct wire_message_head *head = message;
  head->magic = WIRE_MESSAGE_MAGIC;
  head->version = WIRE_VERSION;
  head->type = (uint16_t)type;
  head->bytes = (uint32_t)bytes;
  head->reserved = 0;
}

static uint64_t load_number(const struct field *field, const char *base) {
  if (field->size == sizeof(uint64_t)) {
    uint64_t value;
    memcpy(&value, base + field->offset, sizeof value);
    return value;
  }
  uint32_t value;
  memcpy(&value, base + field->offset, sizeof value);
  return value;
}

static int check_number(const char *message, const struct field *field, const char *base) {
  uint64_t value = load_number(field, base);
  if (value >= field->min && value <= field->max) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "%s: %s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64, message,
                   field->name, value, field->min, field->max);
}

static int check_negative(const char *message, const struct field *field, const char *base) {
  int32_t value;
  memcpy(&value, base + field->offset, sizeof value);
  if (value <= -(int32_t)field->min && value >= -(int32_t)field->max) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "%s: %s is %" PRId32 "; it must be -%" PRIu64 " to -%" PRIu64, message,
                   field->name, value, field->max, field->min);
}

static int check_string(const char *message, const struct field *field, const char *base) {
  if (memchr(base + field->offset, '\0', field->size)) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL, "%s: %s does not end within its %u bytes", message,
                   field->name, field->size);
}

/* A channel's name: of legal length, and nothing but zeros behind its end. */
static int check_name(const char *message, const struct field *field, const char *base) {
  const char *name = base + field->offset;
  size_t length = strnlen(name, field->size);
  if (length < field->min || length > field->max)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "%s: %s has %zu bytes; it must have %" PRIu64 " to %" PRIu64, message,
                     field->name, length, field->min, field->max);
  for (size_t i = length; i < field->size; i++)
    if (name[i] != '\0')
      return error_set(CUDALINK_ERROR_PROTOCOL, "%s: %s has bytes behind its end", message,
                       field->name);
  return CUDALINK_OK;
}

static int check_field(const char *message, const struct field *field, const char *base) {
  switch (field->kind) {
  case NUMBER: return check_number(message, field, base);
  case NEGATIVE: return check_negative(message, field, base);
  case STRING: return check_string(message, field, base);
  case NAME: return check_name(message, field, base);
  }
  return CUDALINK_OK;
}

static int check_fields(const char *message, const struct field *fields, const void *base) {
  for (const struct field *field = fields; field->name; field++) {
    int status = check_field(message, field, base);
    if (status < 0) return status;
  }
  return CUDALINK_OK;
}

static int check_hello(const struct wire_hello *hello) {
  if (hello->policy == CUDALINK_POLICY_SHARED && hello->group[0] == '\0')
    return error_set(CUDALINK_ERROR_PROTOCOL, "HELLO: policy is shared, but group is empty");
  return CUDALINK_OK;
}

static int check_welcome(const struct wire_welcome *welcome) {
  if (welcome->hold >= welcome->entries)
    return error_set(CUDALINK_ERROR_PROTOCOL, "WELCOME: hold is %u, but there are %u entries",
                     welcome->hold, welcome->entries);
  return CUDALINK_OK;
}

/* Up to the last count: of an answer whose two counts are in range. */
static size_t status_reply_bytes(const struct wire_status_reply *reply) {
  return offsetof(struct wire_status_reply, consumers) +
         reply->consumer_count * sizeof(struct wire_status_consumer) +
         reply->count_count * sizeof(struct wire_status_counts);
}

static int check_status_reply(const struct wire_status_reply *reply) {
  if (reply->count_count && reply->count_count != reply->consumer_count)
    return error_set(CUDALINK_ERROR_PROTOCOL, "STATUS_REPLY: count_count is %u for %u consumers",
                     reply->count_count, reply->consumer_count);
  for (uint32_t i = 0; i < reply->consumer_count; i++) {
    int status = check_fields("STATUS_REPLY", status_consumer_fields, &reply->consumers[i]);
    if (status < 0) return status;
  }
  size_t bytes = status_reply_bytes(reply);
  if (reply->head.bytes == bytes) return CUDALINK_OK;
  return check_fields("STATUS_REPLY", status_device_fields, (const char *)reply + bytes);
}

static int does_not_fit(const char *what, uint32_t slots, uint64_t stride, uint64_t offset,
                        uint64_t room) {
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "GENERATION: %u %s at a stride of %" PRIu64 " from byte %" PRIu64
                   " do not fit %" PRIu64 " bytes",
                   slots, what, stride, offset, room);
}

static bool array_fits(uint32_t count, uint64_t stride, uint64_t offset, uint64_t room) {
  uint64_t bytes, end;
  return !__builtin_mul_overflow(stride, (uint64_t)count, &bytes) &&
         !__builtin_add_overflow(bytes, offset, &end) && end <= room;
}

static int check_strides(const struct wire_generation *generation) {
  uint64_t metadata = wire_metadata_stride(generation->plane_count, generation->user_size);
  if (generation->slot_stride % WIRE_SLOT_ALIGNMENT != 0 ||
      generation->slot_stride < generation->slot_bytes)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "GENERATION: slot_stride is %" PRIu64 "; it must be a multiple of %u and hold "
                     "slot_bytes, %" PRIu64,
                     generation->slot_stride, WIRE_SLOT_ALIGNMENT, generation->slot_bytes);
  if (generation->metadata_stride % 64 != 0 || generation->metadata_stride < metadata)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "GENERATION: metadata_stride is %" PRIu64 "; it must be a multiple of 64, at "
                     "least %" PRIu64 " for %u planes and %u bytes of user data",
                     generation->metadata_stride, metadata, generation->plane_count,
                     generation->user_size);
  if (generation->metadata_offset % 64 != 0)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "GENERATION: metadata_offset is %" PRIu64 "; it must be a multiple of 64",
                     generation->metadata_offset);
  return CUDALINK_OK;
}

static int check_generation(const struct wire_generation *generation) {
  int status = check_strides(generation);
  if (status < 0) return status;
  bool inside = generation->metadata_bytes == 0;
  if (inside != (generation->kind == CUDALINK_KIND_HOST))
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "GENERATION: metadata_bytes is %" PRIu64 " with kind %u; a segment for "
                     "metadata goes with GPU kinds, and only with them",
                     generation->metadata_bytes, generation->kind);
  uint64_t slot_room = inside ? generation->metadata_offset : generation->memory_bytes;
  uint64_t metadata_room = inside ? generation->memory_bytes : generation->metadata_bytes;
  if (!array_fits(generation->slots, generation->slot_stride, 0, slot_room))
    return does_not_fit("slots", generation->slots, generation->slot_stride, 0, slot_room);
  if (!array_fits(generation->slots, generation->metadata_stride, generation->metadata_offset,
                  metadata_room))
    return does_not_fit("descriptions", generation->slots, generation->metadata_stride,
                        generation->metadata_offset, metadata_room);
  return CUDALINK_OK;
}

/* What the fields of one message say about each other. */
static int check_together(const struct wire_message_head *head) {
  switch (head->type) {
  case WIRE_HELLO: return check_hello((const void *)head);
  case WIRE_WELCOME: return check_welcome((const void *)head);
  case WIRE_GENERATION: return check_generation((const void *)head);
  case WIRE_STATUS_REPLY: return check_status_reply((const void *)head);
  default: return CUDALINK_OK;
  }
}

static int check_head(const struct wire_message_head *head, size_t bytes) {
  if (bytes < sizeof *head)
    return error_set(CUDALINK_ERROR_PROTOCOL, "a message of %zu bytes; the head alone has %zu",
                     bytes, sizeof *head);
  if (head->magic != WIRE_MESSAGE_MAGIC)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "a message starts with %#" PRIx32 "; magic must be %#" PRIx32, head->magic,
                     WIRE_MESSAGE_MAGIC);
  if (head->version != WIRE_VERSION)
    return error_set(CUDALINK_ERROR_VERSION,
                     "the peer speaks version %u of the protocol, this library version %u; install "
                     "the same cudalink on both sides",
                     head->version, WIRE_VERSION);
  if (head->type >= TYPE_COUNT || !types[head->type].name)
    return error_set(CUDALINK_ERROR_PROTOCOL, "type is %u; there is no such message", head->type);
  if (head->bytes != bytes)
    return error_set(CUDALINK_ERROR_PROTOCOL, "%s: bytes is %u, but %zu bytes arrived",
                     types[head->type].name, head->bytes, bytes);
  return CUDALINK_OK;
}

/* Exact for its type. A STATUS_REPLY is as long as its two counts say, which are checked by their rows of
 * the table before the lists are read, or by one device longer, or by that and latencies for each count. */
static int check_size(const struct wire_message_head *head, size_t bytes) {
  size_t wanted = types[head->type].bytes;
  if (head->type == WIRE_STATUS_REPLY && bytes >= wanted) {
    const struct wire_status_reply *reply = (const void *)head;
    bool in_range =
        reply->consumer_count <= WIRE_MAX_CONSUMERS && reply->count_count <= WIRE_MAX_CONSUMERS;
    if (in_range) wanted = status_reply_bytes(reply);
    size_t with_device = wanted + sizeof(struct wire_status_device);
    if (bytes == with_device) return CUDALINK_OK;
    if (in_range &&
        bytes == with_device + reply->count_count * sizeof(struct wire_status_latencies))
      return CUDALINK_OK;
  }
  if (bytes == wanted) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL, "%s: %zu bytes; it must have %zu",
                   types[head->type].name, bytes, wanted);
}

int wire_message_check(const void *message, size_t bytes) {
  const struct wire_message_head *head = message;
  int status = check_head(head, bytes);
  if (status == CUDALINK_OK) status = check_size(head, bytes);
  if (status == CUDALINK_OK)
    status = check_fields(types[head->type].name, types[head->type].fields, message);
  if (status == CUDALINK_OK) status = check_together(head);
  return status < 0 ? status : head->type;
}
