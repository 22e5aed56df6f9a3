/* SPDX-License-Identifier: MIT
 *
 * The old wire against golden segments. They are built here from the offsets of the public project's
 * layout, written down as numbers, and not through src/wire.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/cipd.h"

/* Offsets of everything behind the handles, for each number of slots that is in use. */
struct golden_layout {
  unsigned slots, shutdown, width, height, comps, kind, bits, flags, data_size, timestamp, bytes;
};
static const struct golden_layout layouts[] = {
    {2, 276, 277, 281, 285, 289, 290, 291, 293, 297, 305},
    {3, 404, 405, 409, 413, 417, 418, 419, 421, 425, 433},
    {4, 532, 533, 537, 541, 545, 546, 547, 549, 553, 561},
    {10, 1300, 1301, 1305, 1309, 1313, 1314, 1315, 1317, 1321, 1329},
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])
static const struct golden_layout *const three = &layouts[1];

static const struct golden_type {
  unsigned kind, bits, flag;
  uint8_t code;
} types[] = {{2, 32, 0, CUDALINK_DTYPE_FLOAT},  {2, 16, 0, CUDALINK_DTYPE_FLOAT},
             {2, 16, 1, CUDALINK_DTYPE_BFLOAT}, {1, 8, 0, CUDALINK_DTYPE_UINT},
             {1, 16, 0, CUDALINK_DTYPE_UINT},   {0, 8, 0, CUDALINK_DTYPE_INT},
             {0, 16, 0, CUDALINK_DTYPE_INT}};
#define TYPES (sizeof types / sizeof types[0])

static _Alignas(64) uint8_t block[12288];

static void put(unsigned at, uint64_t value, unsigned bytes) { memcpy(block + at, &value, bytes); }
static void put_double(unsigned at, double value) { memcpy(block + at, &value, 8); }
static uint64_t get(unsigned at, unsigned bytes) {
  uint64_t value = 0;
  memcpy(&value, block + at, bytes);
  return value;
}

/* A producer of 640 x 480 RGBA float32 that has published 5 frames in its 7th session. */
static void golden(const struct golden_layout *at) {
  memset(block, 0, sizeof block);
  put(0, 0x43495044, 4);
  put(4, 7, 8);
  put(12, at->slots, 4);
  put(16, 5, 4);
  for (unsigned i = 0; i < at->slots; i++) {
    memset(block + 20 + 128 * i, 0x10 + (int)i, 64);
    memset(block + 84 + 128 * i, 0x80 + (int)i, 64);
  }
  put(at->width, 640, 4);
  put(at->height, 480, 4);
  put(at->comps, 4, 4);
  put(at->kind, 2, 1);
  put(at->bits, 32, 1);
  put(at->data_size, 640 * 480 * 4 * 4, 4);
  put_double(at->timestamp, 1234.5);
}

static void golden_type(const struct golden_layout *at, const struct golden_type *type,
                        unsigned comps, unsigned flags) {
  put(at->comps, comps, 4);
  put(at->kind, type->kind, 1);
  put(at->bits, type->bits, 1);
  put(at->flags, type->flag | flags, 2);
  put(at->data_size, 640 * 480 * comps * (type->bits / 8), 4);
}

static struct wire_cipd_session session;

static void read_well(unsigned mapped) {
  int status = wire_cipd_read_session(&session, block, mapped);
  if (status < 0) fail_msg("%s", cudalink_last_error());
}

static void refused_as(int error, const char *words) {
  assert_int_equal(wire_cipd_read_session(&session, block, 4096), error);
  if (!strstr(cudalink_last_error(), words))
    fail_msg("\"%s\" does not say \"%s\"", cudalink_last_error(), words);
}

static void layouts_are_those_of_the_reference(void **state) {
  (void)state;
  for (size_t i = 0; i < LAYOUTS; i++) {
    const struct golden_layout *at = &layouts[i];
    struct wire_cipd_layout layout;
    assert_int_equal(wire_cipd_layout_make(&layout, at->slots), CUDALINK_OK);
    assert_int_equal(layout.shutdown, at->shutdown);
    assert_int_equal(layout.width, at->width);
    assert_int_equal(layout.height, at->height);
    assert_int_equal(layout.channels, at->comps);
    assert_int_equal(layout.kind, at->kind);
    assert_int_equal(layout.bits, at->bits);
    assert_int_equal(layout.flags, at->flags);
    assert_int_equal(layout.data_size, at->data_size);
    assert_int_equal(layout.timestamp, at->timestamp);
    assert_int_equal(layout.bytes, at->bytes);
  }
  assert_int_equal(wire_cipd_memory_at(2), 276);
  assert_int_equal(wire_cipd_event_at(2), 340);
  struct wire_cipd_layout layout;
  assert_int_equal(wire_cipd_layout_make(&layout, 0), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(wire_cipd_layout_make(&layout, 65), CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void golden_segments_are_read(void **state) {
  (void)state;
  for (size_t i = 0; i < LAYOUTS; i++) {
    golden(&layouts[i]);
    read_well(layouts[i].bytes);
    assert_int_equal(session.version, 7);
    assert_int_equal(session.index, 5);
    assert_int_equal(session.layout.slots, layouts[i].slots);
    assert_int_equal(session.format.width, 640);
    assert_int_equal(session.format.height, 480);
    assert_int_equal(session.format.channels, 4);
    assert_int_equal(session.format.data_size, 640 * 480 * 16);
    assert_int_equal(session.format.dtype.code, CUDALINK_DTYPE_FLOAT);
    assert_int_equal(session.format.dtype.bits, 32);
    for (unsigned slot = 0; slot < layouts[i].slots; slot++)
      for (unsigned byte = 0; byte < 64; byte++) {
        assert_int_equal(session.handles[slot].memory[byte], 0x10 + slot);
        assert_int_equal(session.handles[slot].event[byte], 0x80 + slot);
      }
  }
}

static void all_types_and_flags_are_read(void **state) {
  (void)state;
  for (size_t i = 0; i < TYPES; i++)
    for (unsigned comps = 1; comps <= 4; comps++)
      for (unsigned flags = 0; flags < 0x10000; flags += flags < 16 ? 2 : 0xff0) {
        golden(three);
        golden_type(three, &types[i], comps, flags & ~1u);
        read_well(433);
        assert_int_equal(session.format.dtype.code, types[i].code);
        assert_int_equal(session.format.dtype.bits, types[i].bits);
        assert_int_equal(session.format.dtype.lanes, 1);
        assert_int_equal(session.format.mono_alpha, (flags & 2) && comps == 2);
        assert_int_equal(session.format.bgra,
                         (flags & 4) && comps == 4 && types[i].kind == 1 && types[i].bits == 8);
      }
}

static bool is_golden_type(unsigned kind, unsigned bits, unsigned flag) {
  for (size_t i = 0; i < TYPES; i++)
    if (types[i].kind == kind && types[i].bits == bits && types[i].flag == flag) return true;
  return false;
}

static void other_types_are_errors(void **state) {
  (void)state;
  for (unsigned kind = 0; kind < 256; kind += kind < 4 ? 1 : 63)
    for (unsigned bits = 0; bits < 256; bits++)
      for (unsigned flag = 0; flag < 2; flag++) {
        if (is_golden_type(kind, bits, flag)) continue;
        golden(three);
        put(three->kind, kind, 1);
        put(three->bits, bits, 1);
        put(three->flags, flag, 2);
        refused_as(CUDALINK_ERROR_PROTOCOL, "no element type");
      }
}

static void what_is_written_is_golden(void **state) {
  (void)state;
  for (size_t i = 0; i < LAYOUTS; i++)
    for (size_t k = 0; k < TYPES; k++)
      for (unsigned comps = 1; comps <= 4; comps++) {
        bool bgra = comps == 4 && types[k].kind == 1 && types[k].bits == 8;
        uint8_t expected[2048];
        golden(&layouts[i]);
        golden_type(&layouts[i], &types[k], comps, (comps == 2 ? 2u : 0u) | (bgra ? 4u : 0u));
        memcpy(expected, block, sizeof expected);

        struct wire_cipd_session written = {.version = 7};
        cudalink_dtype dtype = {types[k].code, (uint8_t)types[k].bits, 1};
        assert_int_equal(wire_cipd_layout_make(&written.layout, layouts[i].slots), 0);
        assert_int_equal(
            wire_cipd_format_make(&written.format, 640, 480, comps, dtype, comps == 2, bgra), 0);
        for (unsigned slot = 0; slot < layouts[i].slots; slot++) {
          memset(written.handles[slot].memory, 0x10 + (int)slot, 64);
          memset(written.handles[slot].event, 0x80 + (int)slot, 64);
        }
        memset(block, 0xee, layouts[i].bytes);
        wire_cipd_begin_session(block, &written);
        for (uint32_t frame = 1; frame <= 5; frame++)
          wire_cipd_publish(block, &written.layout, frame, frame == 5 ? 1234.5 : frame);
        assert_memory_equal(block, expected, layouts[i].bytes);
        assert_int_equal(block[layouts[i].bytes], 0); /* and not a byte more */
      }
}

static void a_session_begins_with_no_frame_and_ends_with_its_version(void **state) {
  (void)state;
  golden(three);
  read_well(433);
  struct wire_cipd_session next = session;
  struct wire_cipd_frame frame;
  next.version = 8;
  put(three->shutdown, 1, 1);
  wire_cipd_begin_session(block, &next);
  assert_int_equal(get(three->shutdown, 1), 0);
  assert_int_equal(get(16, 4), 0);
  assert_int_equal(get(4, 8), 8);
  assert_int_equal(wire_cipd_poll(block, &session, 5, &frame), WIRE_CIPD_VERSION_CHANGED);
  refused_as(CUDALINK_ERROR_BUSY, "nothing yet");
  next.version = UINT64_C(0x100000005); /* both halves of the version */
  wire_cipd_begin_session(block, &next);
  assert_int_equal(get(4, 8), UINT64_C(0x100000005));
  wire_cipd_publish(block, &next.layout, 1, 1);
  read_well(433);
  assert_int_equal(session.version, UINT64_C(0x100000005));
}

static void a_reader_sees_the_states_of_the_reference(void **state) {
  (void)state;
  struct wire_cipd_frame frame = {0};
  golden(three);
  read_well(433);
  assert_int_equal(wire_cipd_poll(block, &session, 0, &frame), WIRE_CIPD_NEW_FRAME);
  assert_int_equal(frame.index, 5);
  assert_int_equal(frame.slot, 1); /* (5 - 1) % 3 */
  assert_int_equal(frame.missed, 0);
  assert_true(frame.timestamp == 1234.5);
  assert_int_equal(wire_cipd_poll(block, &session, 0, &frame), WIRE_CIPD_NEW_FRAME); /* not taken */
  assert_int_equal(wire_cipd_poll(block, &session, 5, &frame), WIRE_CIPD_NO_FRAME);
  put(16, 9, 4);
  put_double(three->timestamp, 1300.25);
  assert_int_equal(wire_cipd_poll(block, &session, 5, &frame), WIRE_CIPD_NEW_FRAME);
  assert_int_equal(frame.index, 9);
  assert_int_equal(frame.slot, 2);
  assert_int_equal(frame.missed, 3);
  assert_true(frame.timestamp == 1300.25);
  put(three->shutdown, 1, 1); /* before the new frame is looked at */
  assert_int_equal(wire_cipd_poll(block, &session, 5, &frame), WIRE_CIPD_SHUTDOWN);
  put(three->shutdown, 0, 1);
  put(4, 8, 8);
  assert_int_equal(wire_cipd_poll(block, &session, 5, &frame), WIRE_CIPD_VERSION_CHANGED);
}

static void a_counter_that_goes_back_is_another_session(void **state) {
  (void)state;
  struct wire_cipd_frame frame;
  golden(three);
  read_well(433);
  put(16, 0, 4); /* a Python producer that starts anew, its version not changed yet */
  assert_int_equal(wire_cipd_poll(block, &session, 0, &frame), WIRE_CIPD_VERSION_CHANGED);
  put(16, 4, 4);
  assert_int_equal(wire_cipd_poll(block, &session, 0, &frame), WIRE_CIPD_VERSION_CHANGED);
  put(16, 6, 4);
  assert_int_equal(wire_cipd_poll(block, &session, 7, &frame), WIRE_CIPD_VERSION_CHANGED);
}

/* A ring that got more slots keeps handles where this reader expects the shutdown byte. */
static void a_new_number_of_slots_is_not_a_shutdown(void **state) {
  (void)state;
  struct wire_cipd_frame frame;
  golden(three);
  read_well(433);
  golden(&layouts[2]);
  put(4, 8, 8);
  assert_int_not_equal(block[404], 0);
  assert_int_equal(wire_cipd_poll(block, &session, 5, &frame), WIRE_CIPD_VERSION_CHANGED);
  read_well(561);
  assert_int_equal(session.layout.slots, 4);
}

static void frames_are_proven_after_use(void **state) {
  (void)state;
  for (uint32_t slots = 1; slots <= 64; slots++) {
    struct golden_layout at = *three;
    at.slots = slots;
    unsigned end = 20 + 128 * slots;
    at = (struct golden_layout){slots,    end,      end + 1,  end + 5,  end + 9, end + 13,
                                end + 14, end + 15, end + 17, end + 21, end + 29};
    golden(&at);
    assert_int_equal(wire_cipd_read_session(&session, block, sizeof block), CUDALINK_OK);
    /* Frame 5 + slots comes to the slot of frame 5. It may be on its way there once the frame before
     * it, 4 + slots, is published. */
    for (uint32_t now = 5; now < 5 + 2 * slots + 2; now++) {
      put(16, now, 4);
      assert_int_equal(wire_cipd_intact(block, &session, 5), slots > 1 && now < 4 + slots);
    }
  }
}

static void nothing_is_proven_across_an_end(void **state) {
  (void)state;
  golden(three);
  read_well(433);
  assert_true(wire_cipd_intact(block, &session, 5));
  put(three->shutdown, 1, 1); /* its memory may be freed */
  assert_false(wire_cipd_intact(block, &session, 5));
  put(three->shutdown, 0, 1);
  put(4, 8, 8);
  assert_false(wire_cipd_intact(block, &session, 5));
  put(4, 7, 8);
  put(16, 0, 4);
  assert_false(wire_cipd_intact(block, &session, 5));
  put(16, UINT32_MAX, 4);
  assert_true(wire_cipd_intact(block, &session, UINT32_MAX - 1));
  put(16, 1, 4); /* wrapped */
  assert_false(wire_cipd_intact(block, &session, UINT32_MAX));
}

static void shutting_down_is_seen(void **state) {
  (void)state;
  struct wire_cipd_frame frame;
  golden(three);
  read_well(433);
  wire_cipd_shut_down(block, &session.layout);
  assert_int_equal(get(three->shutdown, 1), 1);
  assert_int_equal(block[20], 0x10);
  assert_int_equal(wire_cipd_poll(block, &session, 4, &frame), WIRE_CIPD_SHUTDOWN);
  struct wire_cipd_layout layout = session.layout;
  wire_cipd_wipe_handles(block, &layout);
  for (unsigned at = 20; at < 404; at++)
    assert_int_equal(block[at], 0);
  assert_int_equal(get(three->width, 4), 640);
  refused_as(CUDALINK_ERROR_ENDED, "shut the segment down");
  wire_cipd_publish(block, &layout, 6, 1); /* a producer that lives after all */
  assert_int_equal(get(three->shutdown, 1), 0);
}

#define HOSTILE(at, value, bytes, words)                                                           \
  do {                                                                                             \
    golden(three);                                                                                 \
    put(at, value, bytes);                                                                         \
    refused_as(CUDALINK_ERROR_PROTOCOL, words);                                                    \
  } while (0)

static void hostile_segments_are_refused(void **state) {
  (void)state;
  HOSTILE(0, 0x12345678, 4, "starts with 0x12345678");
  HOSTILE(12, 0, 4, "num_slots is 0");
  HOSTILE(12, 65, 4, "num_slots is 65");
  HOSTILE(12, UINT32_MAX, 4, "num_slots");
  HOSTILE(12, 40, 4, "which takes 5169 bytes; the segment has 4096");
  HOSTILE(three->width, 0, 4, "width 0");
  HOSTILE(three->height, 0, 4, "height 0");
  HOSTILE(three->comps, 0, 4, "num_comps 0");
  HOSTILE(three->comps, 5, 4, "num_comps 5");
  HOSTILE(three->width, 641, 4, "data_size is 4915200");
  HOSTILE(three->data_size, 4915201, 4, "data_size is 4915201");
  HOSTILE(three->data_size, 0, 4, "data_size is 0");
  HOSTILE(three->width, 1, 4, "have 7680 bytes");
  golden(three);
  put(three->width, 0x40000000, 4); /* times 4 times 4 bytes is 0 in 32 bits */
  put(three->height, 1, 4);
  put(three->data_size, 0, 4);
  refused_as(CUDALINK_ERROR_PROTOCOL, "have 17179869184 bytes");
  golden(three);
  put(three->width, UINT32_MAX, 4);
  put(three->height, UINT32_MAX, 4); /* does not fit 64 bits either */
  refused_as(CUDALINK_ERROR_PROTOCOL, "data_size");
  golden(three);
  memset(block + 276, 0, 64);
  refused_as(CUDALINK_ERROR_PROTOCOL, "slot 2 has no memory handle");
  golden(three);
  memset(block + 340, 0, 64); /* no event: allowed */
  read_well(433);
}

static void leftovers_are_ended_and_pulses_felt(void **state) {
  (void)state;
  golden(three);
  uint64_t pulse = wire_cipd_pulse(block, 433);
  assert_int_not_equal(pulse, 0);
  put(16, 6, 4);
  assert_int_not_equal(wire_cipd_pulse(block, 433), pulse);
  put(16, 5, 4);
  assert_int_equal(wire_cipd_pulse(block, 433), pulse);
  put(4, 8, 8);
  assert_int_not_equal(wire_cipd_pulse(block, 433), pulse);
  assert_int_equal(wire_cipd_end(block, 433), 8);
  assert_int_equal(get(three->shutdown, 1), 1);
  assert_int_equal(wire_cipd_pulse(block, 433), 0);
  assert_int_equal(wire_cipd_end(block, 432), 0); /* it does not fit: nothing is touched */
  put(0, 0, 4);
  put(three->shutdown, 0, 1);
  assert_int_equal(wire_cipd_end(block, 433), 0);
  assert_int_equal(get(three->shutdown, 1), 0);
  assert_int_equal(wire_cipd_pulse(block, 433), 0);
}

static void unfinished_segments_are_busy(void **state) {
  (void)state;
  memset(block, 0, sizeof block);
  refused_as(CUDALINK_ERROR_BUSY, "still empty");
  golden(three);
  put(16, 0, 4);
  refused_as(CUDALINK_ERROR_BUSY, "published nothing yet");
  golden(three);
  put(4, 0, 8);
  refused_as(CUDALINK_ERROR_BUSY, "starting anew");
  golden(three);
  memset(block + three->width, 0, three->timestamp - three->width);
  refused_as(CUDALINK_ERROR_BUSY, "what frames look like");
  golden(three);
  put(0, 0x43495043, 4);
  refused_as(CUDALINK_ERROR_VERSION, "older than 1.0.0");
}

static void small_mappings_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < LAYOUTS; i++)
    for (unsigned mapped = 0; mapped < layouts[i].bytes; mapped++) {
      golden(&layouts[i]);
      uint8_t *exact = malloc(mapped ? mapped : 1); /* address sanitizer watches its end */
      assert_non_null(exact);
      memcpy(exact, block, mapped);
      assert_int_equal(wire_cipd_read_session(&session, exact, mapped), CUDALINK_ERROR_PROTOCOL);
      free(exact);
    }
}

static void own_formats_are_checked(void **state) {
  (void)state;
  struct wire_cipd_format format;
  int invalid = CUDALINK_ERROR_INVALID_ARGUMENT;
  cudalink_dtype u8 = CUDALINK_UINT8;
  assert_int_equal(wire_cipd_format_make(&format, 0, 1, 1, u8, 0, 0), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 0, 1, u8, 0, 0), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 0, u8, 0, 0), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 5, u8, 0, 0), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 1, CUDALINK_UINT32, 0, 0), invalid);
  cudalink_dtype lanes = u8;
  lanes.lanes = 4;
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 1, lanes, 0, 0), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 4, u8, 1, 0), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 3, u8, 0, 1), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 1, 1, 4, CUDALINK_UINT16, 0, 1), invalid);
  assert_int_equal(wire_cipd_format_make(&format, 65536, 65536, 1, u8, 0, 0),
                   CUDALINK_ERROR_TOO_LARGE);
  assert_int_equal(wire_cipd_format_make(&format, UINT32_MAX, 1, 1, u8, 0, 0), CUDALINK_OK);
  assert_int_equal(format.data_size, UINT32_MAX);
}

static void times_are_believed_only_if_they_can_be(void **state) {
  (void)state;
  assert_int_equal(wire_cipd_nanoseconds(1.5), 1500000000);
  assert_int_equal(wire_cipd_nanoseconds(0), 0);
  assert_int_equal(wire_cipd_nanoseconds(-1), 0);
  assert_int_equal(wire_cipd_nanoseconds((double)NAN), 0);
  assert_int_equal(wire_cipd_nanoseconds((double)INFINITY), 0);
  assert_int_equal(wire_cipd_nanoseconds(1e300), 0);
}

static void names(void **state) {
  (void)state;
  char out[WIRE_CIPD_PATH_SIZE], name[400];
  int invalid = CUDALINK_ERROR_INVALID_ARGUMENT;
  assert_int_equal(wire_cipd_segment_name(out, "cudalink_ipc_TD>>Python"), CUDALINK_OK);
  assert_string_equal(out, "/cudalink_ipc_TD>>Python");
  assert_int_equal(wire_cipd_doorbell_name(out, "cam"), CUDALINK_OK);
  assert_string_equal(out, "Local\\cudalink_db_cam");
  memset(name, 'x', sizeof name);
  name[WIRE_CIPD_NAME_MAX] = '\0';
  assert_int_equal(wire_cipd_doorbell_name(out, name), CUDALINK_OK);
  assert_int_equal(strlen(out), 18 + WIRE_CIPD_NAME_MAX);
  name[WIRE_CIPD_NAME_MAX] = 'x';
  name[WIRE_CIPD_NAME_MAX + 1] = '\0';
  assert_int_equal(wire_cipd_segment_name(out, name), invalid);
  assert_int_equal(wire_cipd_segment_name(out, ""), invalid);
  assert_int_equal(wire_cipd_segment_name(out, "a/b"), invalid);
  assert_int_equal(wire_cipd_segment_name(out, ".."), invalid);
}

/* ---- a real race: a producer in another process laps a reader at full speed ---- */

#define WORDS 512
#define FRAMES 150000u

static struct race {
  _Alignas(64) uint8_t block[512];
  uint32_t slots[3][WORDS];
  uint32_t go;
} * race;

static void produce(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (uint32_t index = 1; index <= FRAMES; index++) {
    uint32_t *slot = race->slots[wire_cipd_slot(index, 3)];
    for (unsigned i = 0; i < WORDS; i++)
      __atomic_store_n(&slot[i], index, __ATOMIC_RELAXED);
    wire_cipd_publish(race->block, &session.layout, index, index);
    while (index == 1 && !__atomic_load_n(&race->go, __ATOMIC_ACQUIRE))
      sched_yield();
  }
  wire_cipd_shut_down(race->block, &session.layout);
  _exit(0);
}

static bool whole(const struct wire_cipd_frame *frame) {
  const uint32_t *slot = race->slots[frame->slot];
  bool same = true;
  for (unsigned i = 0; i < WORDS; i++)
    same &= __atomic_load_n(&slot[i], __ATOMIC_RELAXED) == frame->index;
  return same;
}

static void a_proven_frame_is_never_torn(void **state) {
  (void)state;
  race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(race != MAP_FAILED);
  golden(three);
  read_well(433);
  wire_cipd_begin_session(race->block, &session);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) produce();

  struct wire_cipd_frame frame;
  while (wire_cipd_read_session(&session, race->block, 433) == CUDALINK_ERROR_BUSY)
    sched_yield();
  unsigned proven = 0, torn = 0;
  uint32_t last = 0;
  enum wire_cipd_state seen;
  while ((seen = wire_cipd_poll(race->block, &session, last, &frame)) != WIRE_CIPD_SHUTDOWN) {
    assert_int_not_equal(seen, WIRE_CIPD_VERSION_CHANGED);
    if (seen == WIRE_CIPD_NO_FRAME) continue;
    bool good = whole(&frame);
    if (wire_cipd_intact(race->block, &session, frame.index)) {
      proven++;
      torn += !good;
    }
    last = frame.index;
    __atomic_store_n(&race->go, 1, __ATOMIC_RELEASE); /* the first one had all the time it wants */
  }
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(torn, 0);
  assert_true(proven > 0);
  munmap(race, sizeof *race);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layouts_are_those_of_the_reference),
      cmocka_unit_test(golden_segments_are_read),
      cmocka_unit_test(all_types_and_flags_are_read),
      cmocka_unit_test(other_types_are_errors),
      cmocka_unit_test(what_is_written_is_golden),
      cmocka_unit_test(a_session_begins_with_no_frame_and_ends_with_its_version),
      cmocka_unit_test(a_reader_sees_the_states_of_the_reference),
      cmocka_unit_test(a_counter_that_goes_back_is_another_session),
      cmocka_unit_test(a_new_number_of_slots_is_not_a_shutdown),
      cmocka_unit_test(frames_are_proven_after_use),
      cmocka_unit_test(nothing_is_proven_across_an_end),
      cmocka_unit_test(shutting_down_is_seen),
      cmocka_unit_test(hostile_segments_are_refused),
      cmocka_unit_test(unfinished_segments_are_busy),
      cmocka_unit_test(leftovers_are_ended_and_pulses_felt),
      cmocka_unit_test(small_mappings_are_refused),
      cmocka_unit_test(own_formats_are_checked),
      cmocka_unit_test(times_are_believed_only_if_they_can_be),
      cmocka_unit_test(names),
      cmocka_unit_test(a_proven_frame_is_never_torn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
