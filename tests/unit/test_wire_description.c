/* SPDX-License-Identifier: MIT
 *
 * Descriptions through shared memory: nothing is lost, and nothing that a hostile producer writes
 * there, before or during the copy, gets out unchecked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudalink/format.h"
#include "wire/description.h"

#define SLOT_BYTES UINT64_C(1000000)
#define ROOM (sizeof(struct wire_header) + CUDALINK_MAX_PLANES * sizeof(struct wire_plane))

static const struct wire_limits limits = {SLOT_BYTES, CUDALINK_MAX_PLANES, 64};
static _Alignas(64) unsigned char metadata[ROOM];
static struct wire_header *const header = (struct wire_header *)(void *)metadata;
static struct wire_plane *const planes =
    (struct wire_plane *)(void *)(metadata + sizeof(struct wire_header));

static uint64_t random_state = 88172645463325252u;
static uint64_t random_number(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static cudalink_description picture(void) {
  cudalink_description d = {.plane_count = 2, .user_size = 5};
  d.picture = (cudalink_picture){CUDALINK_FORMAT_NV12, 64, 48, 1, 13, 6, 1, 1, 2, 2, 3, 16, 11};
  d.timing = (cudalink_timing){-7, 3, 1, 90000, 30000, 1001, "house"};
  d.planes[0] = (cudalink_plane){.name = "y",
                                 .dtype = CUDALINK_UINT8,
                                 .dimensions = 2,
                                 .bytes = 64 * 48,
                                 .shape = {48, 64},
                                 .strides = {64, 1}};
  d.planes[1] = (cudalink_plane){.name = "uv",
                                 .dtype = CUDALINK_UINT8,
                                 .dimensions = 3,
                                 .offset = 3072,
                                 .bytes = 64 * 24,
                                 .shape = {24, 32, 2},
                                 .strides = {64, 2, 1}};
  return d;
}

static void encode(const cudalink_description *d) {
  memset(metadata, 0xee, sizeof metadata);
  wire_description_encode(metadata, d, 42, 1234567, NULL);
}

static void a_description_arrives_whole(void **state) {
  (void)state;
  cudalink_description d = picture();
  encode(&d);
  cudalink_frame frame;
  memset(&frame, 0xaa, sizeof frame);
  frame.flags = CUDALINK_FRAME_PENDING | CUDALINK_FRAME_INVALID;
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
  assert_int_equal(frame.sequence, 42);
  assert_int_equal(frame.timestamp, 1234567);
  assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING); /* the others are not decode's */
  assert_string_equal(frame.text, "");
  assert_memory_equal(&frame.description.picture, &d.picture, sizeof d.picture);
  assert_memory_equal(&frame.description.timing, &d.timing, sizeof d.timing);
  assert_int_equal(frame.description.plane_count, 2);
  assert_int_equal(frame.description.user_size, 5);
  assert_memory_equal(frame.description.planes, d.planes, 2 * sizeof d.planes[0]);
}

static void only_the_planes_that_are_there_are_written(void **state) {
  (void)state;
  cudalink_description d = picture();
  encode(&d);
  for (size_t i = sizeof(struct wire_header) + 2 * sizeof(struct wire_plane); i < ROOM; i++)
    assert_int_equal(metadata[i], 0xee);
  cudalink_frame frame;
  memset(&frame, 0xaa, sizeof frame);
  wire_description_decode(&frame, metadata, &limits);
  const unsigned char *rest = (const unsigned char *)&frame.description.planes[2];
  for (size_t i = 0; i < 14 * sizeof(cudalink_plane); i++)
    assert_int_equal(rest[i], 0xaa);
}

static cudalink_description random_description(void) {
  cudalink_description d = {.plane_count = (uint32_t)(1 + random_number() % 16)};
  d.user_size = (uint32_t)(random_number() % 65);
  for (uint32_t i = 0; i < d.plane_count; i++) {
    cudalink_plane *plane = &d.planes[i];
    memset(plane->name, 'a' + (int)i, random_number() % CUDALINK_PLANE_NAME_SIZE);
    plane->dtype = CUDALINK_FLOAT16;
    plane->dimensions = (uint32_t)(random_number() % 5);
    plane->bytes = 2;
    for (uint32_t k = 0; k < plane->dimensions; k++) {
      plane->shape[k] = (int64_t)(1 + random_number() % 9);
      plane->strides[k] = (int64_t)(random_number() % 1000);
      plane->bytes += (uint64_t)((plane->shape[k] - 1) * plane->strides[k]);
    }
    plane->offset = random_number() % (SLOT_BYTES - plane->bytes + 1);
  }
  return d;
}

static void random_descriptions_arrive_whole(void **state) {
  (void)state;
  for (int round = 0; round < 10000; round++) {
    cudalink_description d = random_description();
    uint64_t bytes = 0;
    assert_int_equal(wire_description_check(CUDALINK_ERROR_INVALID_ARGUMENT, &d, &bytes), 0);
    assert_true(bytes <= SLOT_BYTES);
    encode(&d);
    cudalink_frame frame;
    memset(&frame.description, 0, sizeof frame.description);
    assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
    assert_memory_equal(&frame.description, &d, sizeof d);
  }
}

static void an_invalid_frame_has_a_text_and_no_planes(void **state) {
  (void)state;
  cudalink_description d = picture();
  wire_description_encode(metadata, &d, 42, 1, "camera unplugged");
  planes[0].offset = UINT64_MAX; /* its planes are not looked at */
  cudalink_frame frame = {.flags = CUDALINK_FRAME_PENDING};
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
  assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING | CUDALINK_FRAME_INVALID);
  assert_string_equal(frame.text, "camera unplugged");
  assert_int_equal(frame.description.plane_count, 0);
  assert_int_equal(frame.description.user_size, 5);
}

/* Who maps no pools takes it for invalid, with its text; who does finds the planes. */
static void a_shared_frame_says_where_it_lies(void **state) {
  (void)state;
  cudalink_description d = picture();
  wire_description_encode(metadata, &d, 42, 1, "it lies elsewhere");
  wire_description_share(metadata, 7, 4096);
  cudalink_frame frame = {0};
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
  assert_int_equal(frame.flags, CUDALINK_FRAME_INVALID);
  assert_string_equal(frame.text, "it lies elsewhere");
  assert_int_equal(frame.description.plane_count, 0);

  const struct wire_limits small = {1, CUDALINK_MAX_PLANES, 64}; /* its slot says nothing */
  struct wire_place place;
  assert_int_equal(wire_description_decode_place(&frame, metadata, &small, &place), CUDALINK_OK);
  assert_int_equal(frame.flags, 0);
  assert_string_equal(frame.text, "");
  assert_int_equal(frame.description.plane_count, 2);
  assert_int_equal(place.block, 7);
  assert_int_equal(place.offset, 4096);
  assert_int_equal(place.bytes, 64 * 72);
  assert_int_equal(wire_place_check(&place, 4096 + 64 * 72), CUDALINK_OK);
  assert_int_equal(wire_place_check(&place, 4096 + 64 * 72 - 1), CUDALINK_ERROR_PROTOCOL);
  place.offset = UINT64_MAX - 64 * 72 + 1; /* the sum is 0 */
  assert_int_equal(wire_place_check(&place, UINT64_MAX), CUDALINK_ERROR_PROTOCOL);

  header->pool_block = 0;
  assert_int_equal(wire_description_decode_place(&frame, metadata, &limits, &place),
                   CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(frame.description.plane_count, 0);
}

/* For a reader that maps pools nothing else changes. */
static void other_frames_lie_in_their_slots(void **state) {
  (void)state;
  cudalink_description d = picture();
  encode(&d);
  cudalink_frame frame = {0};
  struct wire_place place;
  assert_int_equal(wire_description_decode_place(&frame, metadata, &limits, &place), CUDALINK_OK);
  assert_int_equal(place.block, 0);
  const struct wire_limits small = {64 * 72 - 1, CUDALINK_MAX_PLANES, 64};
  assert_int_equal(wire_description_decode_place(&frame, metadata, &small, &place),
                   CUDALINK_ERROR_PROTOCOL);
  wire_description_encode(metadata, &d, 42, 1, "camera unplugged");
  assert_int_equal(wire_description_decode_place(&frame, metadata, &limits, &place), CUDALINK_OK);
  assert_int_equal(frame.flags, CUDALINK_FRAME_INVALID);
  assert_int_equal(place.block, 0);
}

static void a_long_text_is_cut_between_characters(void **state) {
  (void)state;
  char text[200];
  for (int i = 0; i < 198; i += 2)
    memcpy(text + i, "\xc3\xa4", 2); /* two bytes each; byte 95 would be half of one */
  text[198] = '\0';
  cudalink_description d = picture();
  wire_description_encode(metadata, &d, 1, 1, text);
  assert_int_equal(strlen(header->text), CUDALINK_TEXT_SIZE - 2);
  memset(header->text, 'x', sizeof header->text); /* a hostile text without an end */
  cudalink_frame frame = {0};
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
  assert_int_equal(strlen(frame.text), CUDALINK_TEXT_SIZE - 1);
}

static void a_frame_that_is_no_picture_says_nothing_about_one(void **state) {
  (void)state;
  cudalink_description d = picture();
  d.picture.format = CUDALINK_FORMAT_NONE;
  d.picture.range = 77;
  encode(&d);
  cudalink_frame frame;
  memset(&frame, 0xaa, sizeof frame);
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
  assert_memory_equal(&frame.description.picture, &(cudalink_picture){0}, sizeof d.picture);
}

static void refused(const char *words) {
  cudalink_frame frame = {0};
  frame.description.plane_count = 99;
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_ERROR_PROTOCOL);
  if (!strstr(cudalink_last_error(), words))
    fail_msg("\"%s\" does not say \"%s\"", cudalink_last_error(), words);
  assert_int_equal(frame.description.plane_count, 0); /* nothing to touch for a careless caller */
  assert_int_equal(frame.description.user_size, 0);
}

/* Writes one value over a field of a good description and expects a refusal that names it. */
#define HOSTILE(field, value, words)                                                               \
  do {                                                                                             \
    cudalink_description good = picture();                                                         \
    encode(&good);                                                                                 \
    (field) = (value);                                                                             \
    refused(words);                                                                                \
  } while (0)

static void hostile_values_are_refused(void **state) {
  (void)state;
  HOSTILE(header->plane_count, 0, "0 planes");
  HOSTILE(header->plane_count, 17, "plane_count is 17");
  HOSTILE(header->plane_count, UINT32_MAX, "plane_count");
  HOSTILE(header->user_size, 65, "user_size is 65");
  HOSTILE(header->picture_width, 65536, "width is 65536");
  HOSTILE(header->picture_height, 0, "64 x 0");
  HOSTILE(header->picture_height, UINT32_MAX, "height");
  HOSTILE(header->range, 3, "range is 3");
  HOSTILE(header->origin, 2, "origin is 2");
  HOSTILE(header->alpha, 4, "alpha is 4");
  HOSTILE(header->field_order, 3, "field_order is 3");
  HOSTILE(header->chroma_location, 4, "chroma_location is 4");
  HOSTILE(header->pixel_aspect_denominator, 0, "pixel_aspect is 16/0");
  HOSTILE(header->pixel_aspect_numerator, 0, "pixel_aspect is 0/11");
  HOSTILE(header->time_base_denominator, 0, "time_base is 1/0");
  HOSTILE(header->rate_denominator, 0, "rate is 30000/0");
  HOSTILE(planes[1].offset, SLOT_BYTES, "slot of 1000000");
  HOSTILE(planes[1].offset, UINT64_MAX, "plane 1");
  HOSTILE(planes[1].bytes, SLOT_BYTES - 3071, "end at byte 1000001");
  HOSTILE(planes[0].shape[0], INT64_MAX, "plane 0");
  HOSTILE(planes[0].shape[1], -1, "shape[1] is -1");
  HOSTILE(planes[1].strides[2], -1, "strides[2] is -1");
  HOSTILE(planes[1].strides[0], INT64_MAX, "plane 1");
  HOSTILE(planes[1].dimensions, 9, "9 dimensions");
  HOSTILE(planes[0].dtype_code, 3, "code 3");
  HOSTILE(planes[0].dtype_bits, 7, "7 bits");
  HOSTILE(planes[0].dtype_lanes, 0, "0 lanes");
}

static void texts_without_an_end_are_refused(void **state) {
  (void)state;
  cudalink_description d = picture();
  encode(&d);
  memset(header->clock, 'x', sizeof header->clock);
  refused("clock");
  encode(&d);
  memset(planes[1].name, 'x', sizeof planes[1].name);
  refused("plane 1: its name");
}

static void a_slot_may_be_used_to_its_last_byte(void **state) {
  (void)state;
  cudalink_description d = picture();
  d.planes[1].offset = SLOT_BYTES - d.planes[1].bytes;
  encode(&d);
  cudalink_frame frame = {0};
  assert_int_equal(wire_description_decode(&frame, metadata, &limits), CUDALINK_OK);
}

static void assert_inside(const cudalink_description *d) {
  assert_in_range(d->plane_count, 1, CUDALINK_MAX_PLANES);
  for (uint32_t i = 0; i < d->plane_count; i++) {
    const cudalink_plane *plane = &d->planes[i];
    unsigned __int128 reach = 0; /* wide enough for anything: an independent sum */
    bool empty = false;
    assert_in_range(plane->dimensions, 0, CUDALINK_MAX_DIMENSIONS);
    for (uint32_t k = 0; k < plane->dimensions; k++) {
      assert_true(plane->shape[k] >= 0 && plane->strides[k] >= 0);
      if (plane->shape[k] == 0)
        empty = true;
      else
        reach += (unsigned __int128)(plane->shape[k] - 1) * (uint64_t)plane->strides[k];
    }
    if (!empty) assert_true(reach + plane->offset < SLOT_BYTES);
    assert_true((unsigned __int128)plane->offset + plane->bytes <= SLOT_BYTES);
    assert_non_null(memchr(plane->name, 0, sizeof plane->name));
  }
}

static void damaged_bytes_never_lead_outside(void **state) {
  (void)state;
  unsigned passed = 0;
  for (int round = 0; round < 30000; round++) {
    cudalink_description d = random_description();
    encode(&d);
    size_t used = sizeof(struct wire_header) + d.plane_count * sizeof(struct wire_plane);
    for (uint64_t n = 1 + random_number() % 4; n > 0; n--)
      metadata[random_number() % used] ^= (unsigned char)(1u << random_number() % 8);
    cudalink_frame frame = {0};
    if (wire_description_decode(&frame, metadata, &limits) < 0) continue;
    if (frame.flags & CUDALINK_FRAME_INVALID) continue;
    assert_inside(&frame.description);
    passed++;
  }
  assert_true(passed > 1000); /* else nothing was tested */
}

static void change_for_ever(struct wire_header *hostile, struct wire_plane *plane) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;)
    for (int bad = 1; bad >= 0; bad--) {
      for (int i = 0; i < CUDALINK_MAX_PLANES; i++)
        __atomic_store_n(&plane[i].offset, bad ? UINT64_C(1) << 40 : 0, __ATOMIC_RELAXED);
      __atomic_store_n(&hostile->plane_count, bad ? 4000000 : 16, __ATOMIC_RELAXED);
    }
}

/* Another process changes the bytes while they are being read. Whatever mixture was copied, what
 * passed the check must be what is handed out. */
static void a_change_during_the_copy_gets_nothing_through(void **state) {
  (void)state;
  void *shared = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  cudalink_description d = picture();
  for (d.plane_count = 0; d.plane_count < CUDALINK_MAX_PLANES; d.plane_count++)
    d.planes[d.plane_count] = d.planes[0];
  wire_description_encode(shared, &d, 1, 1, NULL);
  struct wire_header *hostile = shared;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) change_for_ever(hostile, (void *)(hostile + 1));
  /* Which share passes depends on how long a copy takes; with a sanitizer it is small. */
  for (int passed = 0, refusals = 0; passed + refusals < 100000 || !passed || !refusals;) {
    cudalink_frame frame = {0};
    if (wire_description_decode(&frame, shared, &limits) < 0) {
      refusals++;
      continue;
    }
    assert_inside(&frame.description);
    passed++;
  }
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  munmap(shared, ROOM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_description_arrives_whole),
      cmocka_unit_test(only_the_planes_that_are_there_are_written),
      cmocka_unit_test(random_descriptions_arrive_whole),
      cmocka_unit_test(an_invalid_frame_has_a_text_and_no_planes),
      cmocka_unit_test(a_shared_frame_says_where_it_lies),
      cmocka_unit_test(other_frames_lie_in_their_slots),
      cmocka_unit_test(a_long_text_is_cut_between_characters),
      cmocka_unit_test(a_frame_that_is_no_picture_says_nothing_about_one),
      cmocka_unit_test(hostile_values_are_refused),
      cmocka_unit_test(texts_without_an_end_are_refused),
      cmocka_unit_test(a_slot_may_be_used_to_its_last_byte),
      cmocka_unit_test(damaged_bytes_never_lead_outside),
      cmocka_unit_test(a_change_during_the_copy_gets_nothing_through),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
