/* SPDX-License-Identifier: MIT
 *
 * Conversions of frames in host memory: by a stream in its order, or done on return. The GPU kinds have
 * the same calls (tests/gpu/test_convert.c).
 */
#include "stream_pair.h"

static struct test_gate gate;
static cudalink_description nv12, rgba;
static cudalink_convert_plan *plan;
static uint64_t source_bytes, target_bytes;
static unsigned char *source, *target, *expected;

static void begin_pictures(uint32_t convert) {
  begin();
  memset(&nv12, 0, sizeof nv12);
  memset(&rgba, 0, sizeof rgba);
  assert_ok(cudalink_describe_picture(&nv12, CUDALINK_FORMAT_NV12, 127, 9, 0));
  assert_ok(cudalink_describe_picture(&rgba, CUDALINK_FORMAT_RGBA8, 127, 9, 0));
  assert_ok(cudalink_description_bytes(&nv12, &source_bytes));
  assert_ok(cudalink_description_bytes(&rgba, &target_bytes));
  assert_ok(cudalink_convert_plan_create(&plan, &nv12, &rgba, NULL));
  source = malloc(source_bytes);
  target = malloc(target_bytes);
  expected = malloc(target_bytes);
  test_paint(source, source_bytes, 7);
  memset(target, 0xa5, target_bytes);
  memset(expected, 0xa5, target_bytes);
  assert_ok(cudalink_convert_host(plan, source, expected));
  test_open(&exporter, .description = &rgba, .kind = CUDALINK_KIND_HOST, .convert = convert);
  test_join(&importer, .gpu_wait = 1, .convert = convert);
}

static void end_pictures(void) {
  end();
  cudalink_convert_plan_destroy(plan);
  free(source);
  free(target);
  free(expected);
}

static void spoil_source(void *context) {
  (void)context;
  memset(source, 0xee, source_bytes);
}

/* The source is overwritten behind the conversion, on the same stream; the plan goes before it runs. */
static void into_a_slot_in_the_order_of_a_stream(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_frame frame;
  begin_pictures(1);
  assert_ok(cudalink_exporter_begin(exporter, &rgba, FOREVER, &slot));
  memset(slot.data, 0xa5, target_bytes);
  test_gate_push(&gate, stream);
  assert_ok(
      cudalink_exporter_convert(exporter, plan, source, &slot, CUDALINK_STREAM_HANDLE(stream)));
  assert_int_equal(((unsigned char *)slot.data)[0], 0xa5);
  cudalink_convert_plan_destroy(plan);
  plan = NULL;
  assert_ok(cudalink_host_stream_push(stream, spoil_source, NULL));
  assert_ok(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_HANDLE(stream)));
  test_gate_open(&gate);
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_memory_equal(frame.data, expected, target_bytes);
  test_release(&frame);
  end_pictures();
}

static void into_a_slot_at_once(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_frame frame;
  begin_pictures(1);
  assert_ok(cudalink_exporter_begin(exporter, &rgba, FOREVER, &slot));
  memset(slot.data, 0xa5, target_bytes);
  assert_ok(cudalink_exporter_convert(exporter, plan, source, &slot, COMPLETE));
  assert_memory_equal(slot.data, expected, target_bytes);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_memory_equal(frame.data, expected, target_bytes);
  test_release(&frame);
  end_pictures();
}

/* The pixels come late; the conversion waits with its stream, or, with COMPLETE, the call does. */
static void from_a_frame(void **state) {
  (void)state;
  cudalink_frame frame;
  begin_pictures(1);
  for (int complete = 0; complete < 2; complete++) {
    memset(target, 0xa5, target_bytes);
    assert_ok(cudalink_exporter_send(exporter, &nv12, source, NULL, COMPLETE, FOREVER));
    assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
    test_release(&frame);
    test_gate_push(&gate, stream);
    assert_ok(cudalink_exporter_send(exporter, &nv12, source, NULL, CUDALINK_STREAM_HANDLE(stream),
                                     FOREVER));
    assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(other), FOREVER, &frame));
    assert_int_equal(flags_of(&frame), CUDALINK_FRAME_PENDING);
    if (complete) test_gate_open(&gate);
    assert_ok(cudalink_frame_convert(&frame, plan, target,
                                     complete ? COMPLETE : CUDALINK_STREAM_HANDLE(other)));
    if (!complete) {
      assert_int_equal(target[0], 0xa5);
      test_gate_open(&gate);
      assert_ok(cudalink_host_stream_synchronize(other));
    }
    assert_memory_equal(target, expected, target_bytes);
    test_release(&frame);
  }
  end_pictures();
}

static void what_is_refused(void **state) {
  (void)state;
  cudalink_slot slot = {0};
  cudalink_frame frame;
  const cudalink_stream event = CUDALINK_STREAM_EVENT(&slot), none = {0};
  begin_pictures(1);
  assert_ok(cudalink_exporter_send(exporter, &nv12, source, NULL, COMPLETE, FOREVER));
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_ok(cudalink_exporter_begin(exporter, &rgba, FOREVER, &slot));
  struct {
    const cudalink_convert_plan *plan;
    void *memory;
    cudalink_stream stream;
    int status;
    const char *says;
  } cases[] = {
      {NULL, target, COMPLETE, CUDALINK_ERROR_INVALID_ARGUMENT, "plan is NULL"},
      {plan, NULL, COMPLETE, CUDALINK_ERROR_INVALID_ARGUMENT, "is NULL"},
      {plan, target, none, CUDALINK_ERROR_STREAM, "no stream was said"},
      {plan, target, event, CUDALINK_ERROR_STREAM, "an event was named"},
      {plan, target, CUDALINK_STREAM_HANDLE(&slot), CUDALINK_ERROR_STREAM, "not a living"},
      {plan, target, CUDALINK_STREAM_LEGACY, CUDALINK_ERROR_STREAM, "host memory"},
      {plan, slot.data, COMPLETE, CUDALINK_ERROR_INVALID_ARGUMENT, "overlap"},
  };
  size_t count = sizeof cases / sizeof *cases;
  for (size_t i = 0; i < count; i++) {
    assert_status(cases[i].status,
                  cudalink_exporter_convert(exporter, cases[i].plan, cases[i].memory, &slot,
                                            cases[i].stream));
    assert_said(cases[i].says);
    if (i + 1 == count) cases[i].memory = frame.data;
    assert_status(cases[i].status,
                  cudalink_frame_convert(&frame, cases[i].plan, cases[i].memory, cases[i].stream));
    assert_said(cases[i].says);
  }
  assert_ok(cudalink_exporter_convert(exporter, plan, source, &slot, COMPLETE));
  assert_memory_equal(slot.data, expected, 127 * 4);
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_exporter_convert(exporter, plan, source, &slot, COMPLETE));
  assert_said("no frame is begun");
  test_release(&frame);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_frame_convert(&frame, plan, target, COMPLETE));
  assert_said("is not held");
  end_pictures();
}

/* Also here, so that a program written on kind host works on a GPU. */
static void an_open_has_to_ask_for_it(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_frame frame;
  begin_pictures(0);
  assert_ok(cudalink_exporter_send(exporter, &nv12, source, NULL, COMPLETE, FOREVER));
  assert_ok(cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_ok(cudalink_exporter_begin(exporter, &rgba, FOREVER, &slot));
  assert_status(CUDALINK_ERROR_UNSUPPORTED,
                cudalink_exporter_convert(exporter, plan, source, &slot, COMPLETE));
  assert_said("cudalink_exporter_spec");
  assert_status(CUDALINK_ERROR_UNSUPPORTED, cudalink_frame_convert(&frame, plan, target, COMPLETE));
  assert_said("cudalink_importer_spec");
  test_release(&frame);
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE));
  end_pictures();
}

static const struct CMUnitTest tests[] = {
    test_case(into_a_slot_in_the_order_of_a_stream),
    test_case(into_a_slot_at_once),
    test_case(from_a_frame),
    test_case(what_is_refused),
    test_case(an_open_has_to_ask_for_it),
};
test_main(tests)
