/* SPDX-License-Identifier: MIT
 *
 * Messages: good ones pass, and each field that a peer can get wrong is refused by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/geometry.h"
#include "wire/mailbox.h"
#include "wire/message.h"

static union { /* one buffer, aligned, for a message of any type */
  struct wire_message_head head;
  struct wire_hello hello;
  struct wire_welcome welcome;
  struct wire_refused refused;
  struct wire_generation generation;
  struct wire_generation_closed closed;
  struct wire_pool_block block;
  struct wire_pool_block_gone gone;
  struct wire_plain plain;
  struct wire_status_reply reply;
} message;

static const uint16_t all_types[] = {WIRE_HELLO,    WIRE_WELCOME,    WIRE_REFUSED,
                                     WIRE_MAPPED,   WIRE_GENERATION, WIRE_GENERATION_CLOSED,
                                     WIRE_RELEASED, WIRE_BELL,       WIRE_BYE,
                                     WIRE_CLOSED,   WIRE_STATUS,     WIRE_STATUS_REPLY,
                                     WIRE_JOINED,   WIRE_POOL_BLOCK, WIRE_POOL_BLOCK_GONE};
#define TYPES (sizeof all_types / sizeof all_types[0])

static size_t make_hello(void) {
  strcpy(message.hello.channel, "cudalink_ipc_TD>>Python");
  strcpy(message.hello.program, "viewer");
  message.hello.hold = 1;
  message.hello.kinds = 2;
  message.hello.pid = 4711;
  return sizeof message.hello;
}

static size_t make_welcome(void) {
  message.welcome.control_bytes = sizeof(struct wire_control);
  message.welcome.mailbox_bytes = sizeof(struct wire_mailbox);
  message.welcome.entries = 2;
  message.welcome.hold = 1;
  message.welcome.kind = CUDALINK_KIND_HOST;
  strcpy(message.welcome.path, "memfd");
  return sizeof message.welcome;
}

static size_t make_generation(uint64_t slot_bytes, int inside) {
  struct wire_geometry geometry;
  assert_int_equal(wire_geometry_make(&geometry, slot_bytes, 4, 2, 100, 4096, inside), 0);
  wire_geometry_to_message(&geometry, &message.generation);
  message.generation.generation = 1;
  message.generation.kind = inside ? CUDALINK_KIND_HOST : CUDALINK_KIND_VMM;
  return sizeof message.generation;
}

static size_t make_status_reply(uint32_t consumers) {
  strcpy(message.reply.channel, "camera");
  message.reply.kind = CUDALINK_KIND_HOST;
  message.reply.slots = 4;
  message.reply.consumer_count = consumers;
  message.reply.count_count = consumers;
  for (uint32_t i = 0; i < consumers; i++)
    message.reply.consumers[i].hold = 1;
  return offsetof(struct wire_status_reply, consumers) +
         consumers * (sizeof(struct wire_status_consumer) + sizeof(struct wire_status_counts));
}

static size_t fill(uint16_t type) {
  switch (type) {
  case WIRE_HELLO: return make_hello();
  case WIRE_WELCOME: return make_welcome();
  case WIRE_REFUSED:
    message.refused.error = CUDALINK_ERROR_REFUSED;
    strcpy(message.refused.text, "not yours");
    return sizeof message.refused;
  case WIRE_GENERATION: return make_generation(1000, 1);
  case WIRE_GENERATION_CLOSED: message.closed.generation = 9; return sizeof message.closed;
  case WIRE_POOL_BLOCK:
    message.block.number = 1;
    message.block.bytes = 2 << 20;
    return sizeof message.block;
  case WIRE_POOL_BLOCK_GONE: message.gone.number = UINT64_MAX >> 1; return sizeof message.gone;
  case WIRE_STATUS_REPLY: return make_status_reply(3);
  default: return sizeof message.plain;
  }
}

static size_t make(uint16_t type) {
  memset(&message, 0, sizeof message);
  size_t bytes = fill(type);
  wire_message_start(&message, type, bytes);
  return bytes;
}

static void refused_as(int error, size_t bytes, const char *words) {
  assert_int_equal(wire_message_check(&message, bytes), error);
  if (!strstr(cudalink_last_error(), words))
    fail_msg("\"%s\" does not say \"%s\"", cudalink_last_error(), words);
}

static void good_messages_pass(void **state) {
  (void)state;
  for (size_t i = 0; i < TYPES; i++) {
    size_t bytes = make(all_types[i]);
    assert_int_equal(wire_message_check(&message, bytes), all_types[i]);
  }
}

static void the_size_is_exact(void **state) {
  (void)state;
  for (size_t i = 0; i < TYPES; i++) {
    size_t bytes = make(all_types[i]);
    for (size_t length = 0; length < bytes + 300; length++) {
      bool has_device =
          all_types[i] == WIRE_STATUS_REPLY && length == bytes + sizeof(struct wire_status_device);
      if (length == bytes || has_device) continue;
      refused_as(CUDALINK_ERROR_PROTOCOL, length, ""); /* the datagram was cut or grown */
      if (length < sizeof message.head) continue;
      message.head.bytes = (uint32_t)length; /* and the head agrees with it */
      refused_as(CUDALINK_ERROR_PROTOCOL, length, "it must have");
      message.head.bytes = (uint32_t)bytes;
    }
  }
}

static void nothing_behind_the_end_is_read(void **state) {
  (void)state;
  for (size_t length = 0; length < 700; length++) { /* address sanitizer watches the block's end */
    char *exact = malloc(length ? length : 1);
    assert_non_null(exact);
    for (size_t i = 0; i < TYPES; i++) {
      make(all_types[i]);
      message.head.bytes = (uint32_t)length;
      memcpy(exact, &message, length);
      wire_message_check(exact, length);
    }
    free(exact);
  }
}

static void the_head_is_checked(void **state) {
  (void)state;
  size_t bytes = make(WIRE_BELL);
  message.head.magic++;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "magic");
  bytes = make(WIRE_BELL);
  message.head.version = 77;
  refused_as(CUDALINK_ERROR_VERSION, bytes, "version 77 of the protocol, this library version 1");
  bytes = make(WIRE_BELL);
  message.head.type = 0;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "type is 0");
  message.head.type = WIRE_POOL_BLOCK_GONE + 1;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "type is 16");
  message.head.type = 65535;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "type is 65535");
  bytes = make(WIRE_BELL);
  message.head.bytes++;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "bytes is 25, but 24 bytes arrived");
}

#define HOSTILE(type, field, value, words)                                                         \
  do {                                                                                             \
    size_t size = make(type);                                                                      \
    message.field = (value);                                                                       \
    refused_as(CUDALINK_ERROR_PROTOCOL, size, words);                                              \
  } while (0)

static void a_pool_block_is_checked(void **state) {
  (void)state;
  HOSTILE(WIRE_POOL_BLOCK, block.number, 0, "POOL_BLOCK: number is 0");
  HOSTILE(WIRE_POOL_BLOCK, block.number, UINT64_MAX, "number");
  HOSTILE(WIRE_POOL_BLOCK, block.bytes, 0, "bytes is 0");
  HOSTILE(WIRE_POOL_BLOCK, block.bytes, (uint64_t)INT64_MAX + 1, "bytes");
  HOSTILE(WIRE_POOL_BLOCK_GONE, gone.number, 0, "POOL_BLOCK_GONE: number is 0");
}

static void a_hello_is_checked(void **state) {
  (void)state;
  HOSTILE(WIRE_HELLO, hello.policy, 5, "HELLO: policy is 5");
  HOSTILE(WIRE_HELLO, hello.hold, 0, "hold is 0; it must be 1 to 16");
  HOSTILE(WIRE_HELLO, hello.hold, 17, "hold is 17");
  HOSTILE(WIRE_HELLO, hello.isolated, 2, "isolated is 2");
  HOSTILE(WIRE_HELLO, hello.writable, UINT32_MAX, "writable");
  HOSTILE(WIRE_HELLO, hello.gpu_wait, 2, "gpu_wait");
  HOSTILE(WIRE_HELLO, hello.pid, -1, "pid");
  HOSTILE(WIRE_HELLO, hello.policy, CUDALINK_POLICY_SHARED, "group is empty");
  HOSTILE(WIRE_HELLO, hello.channel[0], '\0', "channel has 0 bytes");
  HOSTILE(WIRE_HELLO, hello.channel[100], 'x', "bytes behind its end");
  size_t bytes = make(WIRE_HELLO);
  memset(message.hello.channel, 'x', CUDALINK_NAME_MAX);
  assert_int_equal(wire_message_check(&message, bytes), WIRE_HELLO);
  message.hello.channel[CUDALINK_NAME_MAX] = 'x';
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "channel has 201 bytes");
  memset(message.hello.channel, 'x', sizeof message.hello.channel);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "channel has 208 bytes");
  bytes = make(WIRE_HELLO);
  memset(message.hello.program, 'x', sizeof message.hello.program);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "program does not end");
  bytes = make(WIRE_HELLO);
  memset(message.hello.group, 'x', sizeof message.hello.group);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "group does not end");
}

static void a_welcome_is_checked(void **state) {
  (void)state;
  HOSTILE(WIRE_WELCOME, welcome.control_bytes, sizeof(struct wire_control) - 1, "control_bytes");
  HOSTILE(WIRE_WELCOME, welcome.control_bytes, UINT64_MAX, "control_bytes");
  HOSTILE(WIRE_WELCOME, welcome.mailbox_bytes, sizeof(struct wire_mailbox) - 1, "mailbox_bytes");
  HOSTILE(WIRE_WELCOME, welcome.entries, 1, "entries is 1");
  HOSTILE(WIRE_WELCOME, welcome.entries, 18, "entries is 18");
  HOSTILE(WIRE_WELCOME, welcome.hold, 2, "hold is 2, but there are 2 entries");
  HOSTILE(WIRE_WELCOME, welcome.consumer, 64, "consumer is 64");
  HOSTILE(WIRE_WELCOME, welcome.user_size, 65537, "user_size");
  HOSTILE(WIRE_WELCOME, welcome.kind, 0, "kind is 0");
  HOSTILE(WIRE_WELCOME, welcome.kind, 4, "kind is 4");
  size_t bytes = make(WIRE_WELCOME);
  memset(message.welcome.reason, 'x', sizeof message.welcome.reason);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "reason does not end");
}

static void a_refusal_is_checked(void **state) {
  (void)state;
  HOSTILE(WIRE_REFUSED, refused.error, 0, "error is 0; it must be -255 to -1");
  HOSTILE(WIRE_REFUSED, refused.error, 1, "error is 1");
  HOSTILE(WIRE_REFUSED, refused.error, INT32_MIN, "error");
  size_t bytes = make(WIRE_REFUSED);
  message.refused.error = -100; /* of a later library: its text says it */
  assert_int_equal(wire_message_check(&message, bytes), WIRE_REFUSED);
  memset(message.refused.text, 'x', sizeof message.refused.text);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "text does not end");
}

static void a_generation_is_checked(void **state) {
  (void)state;
  HOSTILE(WIRE_GENERATION, generation.generation, 0, "generation is 0");
  HOSTILE(WIRE_GENERATION, generation.generation, 1u << 24, "generation is 16777216");
  HOSTILE(WIRE_GENERATION, generation.slots, 0, "slots is 0");
  HOSTILE(WIRE_GENERATION, generation.slots, 65, "slots is 65");
  HOSTILE(WIRE_GENERATION, generation.slots, 5, "5 slots");
  HOSTILE(WIRE_GENERATION, generation.plane_count, 0, "plane_count is 0");
  HOSTILE(WIRE_GENERATION, generation.plane_count, 17, "plane_count is 17");
  HOSTILE(WIRE_GENERATION, generation.plane_count, 16, "metadata_stride");
  HOSTILE(WIRE_GENERATION, generation.user_size, 65537, "user_size");
  HOSTILE(WIRE_GENERATION, generation.user_size, 4096, "metadata_stride");
  HOSTILE(WIRE_GENERATION, generation.slot_bytes, 1025, "slot_stride is 1024");
  HOSTILE(WIRE_GENERATION, generation.slot_bytes, UINT64_MAX, "slot_bytes");
  HOSTILE(WIRE_GENERATION, generation.slot_stride, 1023, "slot_stride is 1023");
  HOSTILE(WIRE_GENERATION, generation.slot_stride, 1280, "4 slots");
  HOSTILE(WIRE_GENERATION, generation.slot_stride, UINT64_C(1) << 62, "4 slots");
  HOSTILE(WIRE_GENERATION, generation.slot_stride, UINT64_MAX - 255, "slot_stride");
  HOSTILE(WIRE_GENERATION, generation.metadata_stride, 0, "metadata_stride is 0");
  HOSTILE(WIRE_GENERATION, generation.metadata_stride, 800, "metadata_stride is 800");
  HOSTILE(WIRE_GENERATION, generation.metadata_stride, UINT64_C(1) << 62, "4 descriptions");
  HOSTILE(WIRE_GENERATION, generation.metadata_offset, 4095, "multiple of 64");
  HOSTILE(WIRE_GENERATION, generation.metadata_offset, 4032, "4 slots");
  HOSTILE(WIRE_GENERATION, generation.metadata_offset, 8192, "4 descriptions");
  HOSTILE(WIRE_GENERATION, generation.metadata_offset, INT64_MAX & ~63, "4 descriptions");
  HOSTILE(WIRE_GENERATION, generation.memory_bytes, 4096, "4 descriptions");
  HOSTILE(WIRE_GENERATION, generation.memory_bytes, UINT64_MAX, "memory_bytes");
  HOSTILE(WIRE_GENERATION, generation.metadata_bytes, 4096, "GPU kinds");
  HOSTILE(WIRE_GENERATION, generation.kind, CUDALINK_KIND_VMM, "GPU kinds");
  HOSTILE(WIRE_GENERATION, generation.kind, 0, "kind is 0");
  HOSTILE(WIRE_GENERATION, generation.writable, 2, "writable is 2");
  HOSTILE(WIRE_GENERATION_CLOSED, closed.generation, 0, "generation is 0");
  HOSTILE(WIRE_GENERATION_CLOSED, closed.generation, UINT64_MAX, "generation");
}

static void a_generation_of_a_gpu_is_checked(void **state) {
  (void)state;
  memset(&message, 0, sizeof message);
  size_t bytes = make_generation(1000, 0);
  wire_message_start(&message, WIRE_GENERATION, bytes);
  assert_int_equal(wire_message_check(&message, bytes), WIRE_GENERATION);
  message.generation.metadata_bytes--;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "4 descriptions");
  message.generation.metadata_bytes++;
  message.generation.memory_bytes = 4095;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "4 slots");
}

static void a_status_reply_is_checked(void **state) {
  (void)state;
  HOSTILE(WIRE_STATUS_REPLY, reply.consumer_count, 65, "it must have");
  HOSTILE(WIRE_STATUS_REPLY, reply.consumer_count, UINT32_MAX, "it must have");
  HOSTILE(WIRE_STATUS_REPLY, reply.consumer_count, 2, "it must have");
  HOSTILE(WIRE_STATUS_REPLY, reply.count_count, 0, "it must have");
  HOSTILE(WIRE_STATUS_REPLY, reply.count_count, 2, "it must have");
  HOSTILE(WIRE_STATUS_REPLY, reply.count_count, UINT32_MAX, "it must have");
  HOSTILE(WIRE_STATUS_REPLY, reply.kind, 9, "kind is 9");
  HOSTILE(WIRE_STATUS_REPLY, reply.slots, 65, "slots");
  HOSTILE(WIRE_STATUS_REPLY, reply.width, 65536, "width");
  HOSTILE(WIRE_STATUS_REPLY, reply.plane_count, 17, "plane_count");
  HOSTILE(WIRE_STATUS_REPLY, reply.channel[0], '\0', "channel");
  HOSTILE(WIRE_STATUS_REPLY, reply.consumers[2].policy, 5, "policy is 5");
  HOSTILE(WIRE_STATUS_REPLY, reply.consumers[2].held, 18, "held is 18");
  size_t bytes = make(WIRE_STATUS_REPLY);
  memset(message.reply.consumers[1].group, 'x', CUDALINK_GROUP_NAME_SIZE);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "group does not end");
  memset(&message, 0, sizeof message);
  bytes = make_status_reply(WIRE_MAX_CONSUMERS);
  assert_int_equal(bytes + sizeof(struct wire_status_device) +
                       WIRE_MAX_CONSUMERS * sizeof(struct wire_status_latencies),
                   WIRE_MAX_MESSAGE);
  wire_message_start(&message, WIRE_STATUS_REPLY, bytes);
  assert_int_equal(wire_message_check(&message, bytes), WIRE_STATUS_REPLY);
  /* The longest count with a datagram that has no room for it. */
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes - sizeof(struct wire_status_consumer), "");
}

/* An older producer tells no counts, an older observer wants none. */
static void a_status_reply_without_counts(void **state) {
  (void)state;
  size_t bytes = make_status_reply(3) - 3 * sizeof(struct wire_status_counts);
  message.reply.count_count = 0;
  wire_message_start(&message, WIRE_STATUS_REPLY, bytes);
  assert_int_equal(wire_message_check(&message, bytes), WIRE_STATUS_REPLY);
  message.reply.count_count = 2; /* neither none nor all of them */
  bytes += 2 * sizeof(struct wire_status_counts);
  wire_message_start(&message, WIRE_STATUS_REPLY, bytes);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "count_count is 2 for 3 consumers");
}

static size_t make_with_device(uint32_t consumers) {
  memset(&message, 0, sizeof message);
  size_t bytes = make_status_reply(consumers) + sizeof(struct wire_status_device);
  strcpy(wire_status_device_at(&message.reply)->name, "NVIDIA H200");
  wire_message_start(&message, WIRE_STATUS_REPLY, bytes);
  return bytes;
}

/* Behind the last count, or behind the head, whole or not at all. */
static void a_status_reply_with_a_device(void **state) {
  (void)state;
  static const uint32_t consumers[] = {0, 1, 3, WIRE_MAX_CONSUMERS};
  for (size_t i = 0; i < sizeof consumers / sizeof *consumers; i++) {
    size_t bytes = make_with_device(consumers[i]);
    assert_int_equal(wire_message_check(&message, bytes), WIRE_STATUS_REPLY);
    struct wire_status_device *device = wire_status_device_at(&message.reply);
    assert_ptr_equal(device + 1, (char *)&message + bytes);
    memset(device->name, 'x', sizeof device->name);
    refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "name does not end");
    make_with_device(consumers[i]);
    wire_message_start(&message, WIRE_STATUS_REPLY, bytes - 8);
    refused_as(CUDALINK_ERROR_PROTOCOL, bytes - 8, "it must have");
  }
  size_t bytes = make_with_device(3);
  message.reply.consumer_count = UINT32_MAX;
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "it must have");
  bytes = offsetof(struct wire_status_reply, consumers) + sizeof(struct wire_status_device);
  wire_message_start(&message, WIRE_STATUS_REPLY, bytes); /* as one without any consumer */
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "consumer_count is 4294967295");
}

/* Behind the device, one for each count, or not at all. */
static void a_status_reply_with_latencies(void **state) {
  (void)state;
  static const uint32_t consumers[] = {1, 3, WIRE_MAX_CONSUMERS};
  const size_t each = sizeof(struct wire_status_latencies);
  for (size_t i = 0; i < sizeof consumers / sizeof *consumers; i++) {
    size_t bytes = make_with_device(consumers[i]) + consumers[i] * each;
    wire_message_start(&message, WIRE_STATUS_REPLY, bytes);
    memset(wire_status_latencies_at(&message.reply), 0xff, each); /* any number will do */
    assert_int_equal(wire_message_check(&message, bytes), WIRE_STATUS_REPLY);
    struct wire_status_latencies *latencies = wire_status_latencies_at(&message.reply);
    assert_ptr_equal(latencies + consumers[i], (char *)&message + bytes);
    wire_message_start(&message, WIRE_STATUS_REPLY, bytes - 8);
    refused_as(CUDALINK_ERROR_PROTOCOL, bytes - 8, "it must have");
    wire_message_start(&message, WIRE_STATUS_REPLY, bytes + each);
    refused_as(CUDALINK_ERROR_PROTOCOL, bytes + each, "it must have");
  }
  size_t bytes = make_with_device(3) - 3 * sizeof(struct wire_status_counts) + 3 * each;
  message.reply.count_count = 0; /* nobody counts: then there are none of these either */
  wire_message_start(&message, WIRE_STATUS_REPLY, bytes);
  refused_as(CUDALINK_ERROR_PROTOCOL, bytes, "it must have");
}

/* Each latency is in the bucket that its bounds say, and the bounds are those of the header. */
static void latencies_have_their_buckets(void **state) {
  (void)state;
  assert_int_equal(cudalink_latency_bucket_start(0), 0);
  assert_int_equal(cudalink_latency_bucket_start(1), 1024);
  assert_int_equal(cudalink_latency_bucket_start(5), 2048);
  assert_int_equal(cudalink_latency_bucket_start(95), UINT64_C(12884901888));
  for (uint32_t i = 0; i < CUDALINK_LATENCY_BUCKETS; i++) {
    uint64_t start = cudalink_latency_bucket_start(i);
    assert_int_equal(wire_latency_bucket(start), i);
    if (i) assert_int_equal(wire_latency_bucket(start - 1), i - 1);
  }
  assert_int_equal(wire_latency_bucket(UINT64_MAX), CUDALINK_LATENCY_BUCKETS - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good_messages_pass),
      cmocka_unit_test(the_size_is_exact),
      cmocka_unit_test(nothing_behind_the_end_is_read),
      cmocka_unit_test(the_head_is_checked),
      cmocka_unit_test(a_pool_block_is_checked),
      cmocka_unit_test(a_hello_is_checked),
      cmocka_unit_test(a_welcome_is_checked),
      cmocka_unit_test(a_refusal_is_checked),
      cmocka_unit_test(a_generation_is_checked),
      cmocka_unit_test(a_generation_of_a_gpu_is_checked),
      cmocka_unit_test(a_status_reply_is_checked),
      cmocka_unit_test(a_status_reply_without_counts),
      cmocka_unit_test(a_status_reply_with_a_device),
      cmocka_unit_test(a_status_reply_with_latencies),
      cmocka_unit_test(latencies_have_their_buckets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
