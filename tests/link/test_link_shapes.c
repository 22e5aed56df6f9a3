/* SPDX-License-Identifier: MIT
 *
 * 100,000 frames of random shapes, each of which fits the slots: none of them allocates anything, in
 * the caller or in the service thread. This program's own malloc and its kin count every call.
 */
#include "link_test.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>

#define SANITIZED (WITH_THREAD_SANITIZER || WITH_ADDRESS_SANITIZER)
#define ROOM (UINT64_C(1) << 20)
#define USER_BYTES 4096

/* ---- the counter ------------------------------------------------------------------------------------ */

static _Atomic uint64_t allocations;

/* A sanitizer has an allocator of its own, which must be the only one. */
#if !SANITIZED
/* glibc's own, under the names that it exports them with for this use. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static void count_allocation(void) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed); /* a number, orders nothing */
}
void *malloc(size_t size) {
  count_allocation();
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  count_allocation();
  return __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
  count_allocation();
  return __libc_realloc(memory, size);
}
void *memalign(size_t alignment, size_t size) {
  count_allocation();
  return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  count_allocation();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size) {
  count_allocation();
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}
#endif

/* Else the test below would pass with a counter that nobody calls. */
static void the_counter_counts(void **state) {
  (void)state;
  if (SANITIZED) return;
  void *memory[5] = {0};
  void *(*volatile allocate)(size_t) = malloc; /* or the compiler leaves out what is not used */
  uint64_t before = atomic_load(&allocations);
  memory[0] = allocate(10);
  memory[1] = calloc(2, 10);
  memory[2] = realloc(NULL, 10);
  memory[3] = strdup("text"); /* inside libc */
  assert_int_equal(posix_memalign(&memory[4], 64, 64), 0);
  assert_int_equal(atomic_load(&allocations) - before, 5);
  for (int i = 0; i < 5; i++)
    free(memory[i]);
}

/* ---- anything that fits ------------------------------------------------------------------------------ */

static uint64_t random_state = 88172645463325252u;
static uint64_t draw(uint64_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % limit;
}

static void describe_tensors(cudalink_description *description) {
  static const cudalink_dtype types[] = {
      {CUDALINK_DTYPE_UINT, 8, 1},    {CUDALINK_DTYPE_FLOAT, 32, 1},
      {CUDALINK_DTYPE_BFLOAT, 16, 1}, {CUDALINK_DTYPE_COMPLEX, 64, 1},
      {CUDALINK_DTYPE_BOOL, 8, 1},    {CUDALINK_DTYPE_FLOAT4_E2M1FN, 4, 1}};
  enum { TYPES = sizeof types / sizeof *types };
  for (uint64_t planes = draw(CUDALINK_MAX_PLANES) + 1; planes; planes--) {
    int64_t shape[CUDALINK_MAX_DIMENSIONS];
    uint32_t dimensions = (uint32_t)draw(CUDALINK_MAX_DIMENSIONS + 1);
    for (uint32_t d = 0; d < dimensions; d++)
      shape[d] = (int64_t)draw(5);
    assert_ok(cudalink_describe_tensor(description, "p", types[draw(TYPES)], dimensions, shape));
  }
}

static cudalink_format formats[128];
static uint32_t format_count;

static void describe_a_picture(cudalink_description *description) {
  static const uint32_t pitches[] = {0, 1, 64};
  cudalink_format format = formats[draw(format_count)];
  uint32_t width = (uint32_t)draw(300) + 1, height = (uint32_t)draw(300) + 1;
  assert_ok(cudalink_describe_picture(description, format, width, height, pitches[draw(3)]));
  cudalink_picture *picture = &description->picture;
  picture->primaries = (uint8_t)(draw(2) ? 1 : 9);
  picture->transfer = (uint8_t)(draw(2) ? 1 : 16);
  picture->matrix = (uint8_t)(draw(2) ? 1 : 9);
  picture->range = (uint8_t)draw(3);
  picture->origin = (uint8_t)draw(2);
  picture->alpha = (uint8_t)draw(4);
  picture->field_order = (uint8_t)draw(3);
  picture->chroma_location = (uint8_t)draw(4);
  picture->pixel_aspect_numerator = (uint32_t)draw(3);
  picture->pixel_aspect_denominator = picture->pixel_aspect_numerator ? 11 : 0;
}

static void describe_anything(cudalink_description *description) {
  uint64_t bytes;
  do {
    memset(description, 0, offsetof(cudalink_description, planes));
    description->user_size = (uint32_t)draw(USER_BYTES + 1);
    description->timing = (cudalink_timing){.pts = (int64_t)draw(1000),
                                            .time_base_numerator = 1,
                                            .time_base_denominator = 1000,
                                            .rate_numerator = 30000,
                                            .rate_denominator = 1001,
                                            .clock = "clock"};
    if (draw(2))
      describe_tensors(description);
    else
      describe_a_picture(description);
    assert_ok(cudalink_description_bytes(description, &bytes));
  } while (bytes > ROOM);
}

/* ---- the frames --------------------------------------------------------------------------------------- */

static void pass(cudalink_exporter exporter, cudalink_importer importer, int number) {
  static cudalink_description description;
  cudalink_slot slot;
  cudalink_frame frame;
  describe_anything(&description);
  assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, &slot));
  memset(slot.user, number & 255, description.user_size);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  test_same(&frame.description, &description);
  const unsigned char *user = frame.user;
  for (uint32_t i = 0; i < description.user_size; i++)
    if (user[i] != (number & 255)) fail_msg("byte %u of the user data is %u", i, user[i]);
  assert_ok(cudalink_frame_release(&frame, COMPLETE));
}

static void random_shapes_allocate_nothing(void **state) {
  (void)state;
  int frames = SANITIZED ? 5000 : 100000;
  cudalink_exporter exporter;
  cudalink_importer importer;
  for (cudalink_format format = cudalink_format_next(CUDALINK_FORMAT_NONE);
       format != CUDALINK_FORMAT_NONE; format = cudalink_format_next(format))
    formats[format_count++] = format;
  assert_true(format_count > 40);
  test_open(&exporter, .slot_bytes = ROOM, .plane_count = CUDALINK_MAX_PLANES,
            .user_size = USER_BYTES);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (int i = 0; i < 10; i++) /* the first ones may prepare something */
    pass(exporter, importer, i);
  test_settle();
  uint64_t generations = test_sent(exporter).generations;
  uint64_t before = atomic_load(&allocations);
  for (int i = 0; i < frames; i++)
    pass(exporter, importer, i);
  uint64_t after = atomic_load(&allocations);
  assert_int_equal(after - before, 0);
  assert_int_equal(test_sent(exporter).generations, generations);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(the_counter_counts),
    test_case(random_shapes_allocate_nothing),
};
test_main(tests)
