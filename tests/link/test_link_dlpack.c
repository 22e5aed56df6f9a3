/* SPDX-License-Identifier: MIT
 *
 * Frames with several holders, and tensors of them: the lease lasts as long as the last one, wherever it
 * is given up, and ends behind every stream that used the frame.
 */
#include "painted_stream.h"

#include <sys/wait.h>

static struct test_gate second_gate;

#define ON(stream) CUDALINK_STREAM_HANDLE(stream)

static cudalink_hold *take_hold(void) {
  cudalink_hold *hold = NULL;
  cudalink_frame frame = test_take(importer);
  assert_ok(cudalink_hold_take(&hold, &frame));
  assert_int_equal(frame.lease, 0);
  return hold;
}

static cudalink_dlpack_versioned *tensor_of(cudalink_hold *hold) {
  cudalink_view view;
  cudalink_dlpack_versioned *tensor;
  assert_ok(cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0));
  assert_ok(cudalink_dlpack_export(&view, cudalink_hold_retain(hold), cudalink_hold_drop, &tensor));
  return tensor;
}

static cudalink_dlpack_legacy *legacy_of(cudalink_hold *hold) {
  cudalink_view view;
  cudalink_dlpack_legacy *tensor;
  assert_ok(cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0));
  assert_ok(cudalink_dlpack_export_legacy(&view, cudalink_hold_retain(hold), cudalink_hold_drop,
                                          &tensor));
  return tensor;
}

static void assert_tensor_painted(const cudalink_dlpack_tensor *tensor, uint64_t number) {
  const unsigned char *data = tensor->data;
  for (int64_t i = 0; i < tensor->shape[0]; i++)
    assert_int_equal(data[i], test_byte(number, (uint64_t)i));
}

static void *delete_one(void *context) {
  cudalink_dlpack_versioned *tensor = context;
  tensor->deleter(tensor);
  return NULL;
}
static void delete_on_a_thread(cudalink_dlpack_versioned *tensor) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, delete_one, tensor), 0);
  pthread_join(thread, NULL);
}

/* ---- counting ------------------------------------------------------------------------------------------- */

static void the_last_tensor_gives_the_frame_back(void **state) {
  (void)state;
  cudalink_frame frame;
  begin();
  test_open(&exporter);
  test_join(&importer);
  for (int round = 0; round < 20; round++) {
    uint64_t number = test_send(exporter);
    cudalink_hold *hold = take_hold();
    cudalink_dlpack_versioned *first = tensor_of(hold), *second = tensor_of(hold);
    cudalink_dlpack_legacy *legacy = legacy_of(hold);
    cudalink_hold_drop(hold);
    test_send(exporter);
    assert_status(CUDALINK_ERROR_BUSY, test_try(importer, &frame));
    first->deleter(first);
    legacy->deleter(legacy);
    assert_status(CUDALINK_ERROR_BUSY, test_try(importer, &frame));
    assert_int_equal(second->flags, CUDALINK_DLPACK_READ_ONLY);
    assert_tensor_painted(&second->tensor, number);
    delete_on_a_thread(second);
    UNTIL(test_got(importer).held == 0);
    test_pass(importer);
  }
  end();
}

static void bad_calls(void **state) {
  (void)state;
  cudalink_hold *hold = NULL;
  begin();
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  cudalink_frame frame = test_take(importer), copy = frame;
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_take(NULL, &frame));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_take(&hold, NULL));
  assert_ok(cudalink_hold_take(&hold, &frame));
  cudalink_hold *other_hold = NULL;
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_take(&other_hold, &frame));
  assert_said("is not held");
  assert_null(other_hold);
  assert_status(CUDALINK_ERROR_STREAM, cudalink_hold_wait(hold, (cudalink_stream){0}));
  assert_status(CUDALINK_ERROR_STREAM, cudalink_hold_use(hold, CUDALINK_STREAM_LEGACY));
  assert_status(CUDALINK_ERROR_STREAM, cudalink_hold_release(hold, ON(&copy)));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_wait(NULL, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_use(NULL, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_release(NULL, COMPLETE));
  assert_null(cudalink_hold_retain(NULL));
  cudalink_hold_drop(NULL);
  /* Released behind its back: nothing breaks. */
  assert_ok(cudalink_frame_release(&copy, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_hold_wait(hold, COMPLETE));
  cudalink_hold_drop(hold);
  test_settle();
  end();
}

static void many_threads_drop_at_once(void **state) {
  (void)state;
  begin();
  test_open(&exporter);
  test_join(&importer);
  for (int round = 0; round < 200; round++) {
    pthread_t threads[4];
    test_send(exporter);
    cudalink_hold *hold = take_hold();
    for (int t = 0; t < 4; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, delete_one, tensor_of(hold)), 0);
    cudalink_hold_drop(hold);
    for (int t = 0; t < 4; t++)
      pthread_join(threads[t], NULL);
    UNTIL(test_got(importer).held == 0);
  }
  end();
}

/* ---- what goes on meanwhile ----------------------------------------------------------------------------- */

static void a_tensor_outlives_frames_resize_and_both_ends(void **state) {
  (void)state;
  begin();
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .hold = 2);
  uint64_t number = test_send(exporter);
  cudalink_hold *hold = take_hold();
  cudalink_dlpack_versioned *tensor = tensor_of(hold);
  cudalink_hold_drop(hold);
  for (int i = 0; i < 1000; i++)
    test_send(exporter);
  assert_int_equal(test_pass(importer), number + 1000);
  test_send_bytes(exporter, 100000, COMPLETE); /* a new generation */
  assert_int_equal(test_pass(importer), number + 1001);
  assert_tensor_painted(&tensor->tensor, number);
  assert_ok(cudalink_exporter_close(exporter));
  assert_tensor_painted(&tensor->tensor, number);
  assert_ok(cudalink_importer_close(importer));
  test_settle();
  assert_tensor_painted(&tensor->tensor, number);
  delete_on_a_thread(tensor);
  test_settle();
  assert_int_equal(test_count_files(), 0);
  cudalink_host_stream_destroy(stream);
  cudalink_host_stream_destroy(other);
}

/* A slot's tensors are written by whoever lends it. */
static void a_slot_is_filled_through_a_tensor(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_view view;
  cudalink_dlpack_versioned *tensor;
  cudalink_description description = test_bytes(BYTES);
  begin();
  test_open(&exporter);
  test_join(&importer);
  assert_ok(cudalink_exporter_begin(exporter, &description, FOREVER, &slot));
  assert_int_equal(slot.device, 0);
  assert_ok(cudalink_view_of_slot(&view, &slot, &description, 0));
  assert_ok(cudalink_dlpack_export(&view, NULL, NULL, &tensor));
  assert_int_equal(tensor->flags, 0);
  test_paint(tensor->tensor.data, BYTES, slot.sequence);
  tensor->deleter(tensor);
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  cudalink_frame frame = test_take(importer); /* checks every byte */
  assert_int_equal(frame.device, 0);
  test_release(&frame);
  end();
}

/* In and out again: a tensor is sent, and what arrives is the same. */
static void a_tensor_is_sent(void **state) {
  (void)state;
  static unsigned char bytes[BYTES + 8];
  int64_t shape[] = {BYTES};
  cudalink_view view;
  cudalink_description description = {0};
  cudalink_dlpack_legacy tensor = {.tensor = {.data = bytes,
                                              .device = {CUDALINK_DLPACK_CPU, 0},
                                              .dimensions = 1,
                                              .dtype = CUDALINK_UINT8,
                                              .shape = shape,
                                              .byte_offset = 8}};
  begin();
  test_open(&exporter);
  test_join(&importer);
  test_paint(bytes + 8, BYTES, 1);
  assert_ok(cudalink_dlpack_import_legacy(&tensor, &view));
  assert_ok(cudalink_describe_view(&description, "bytes", &view));
  assert_ok(cudalink_exporter_send(exporter, &description, view.data, NULL, COMPLETE, FOREVER));
  assert_int_equal(test_pass(importer), 1);
  end();
}

/* ---- streams -------------------------------------------------------------------------------------------- */

/* Another stream than the one that acquire named is made to wait as well, without the CPU. */
static void any_stream_can_wait_for_the_pixels(void **state) {
  (void)state;
  cudalink_host_stream *third;
  begin();
  assert_ok(cudalink_host_stream_create(&third));
  test_open(&exporter);
  test_join(&importer, .gpu_wait = 1);
  warm_up();
  for (int round = 0; round < 50; round++) {
    cudalink_slot slot;
    cudalink_frame frame;
    cudalink_hold *hold;
    publish_painted_by_stream(&slot);
    assert_ok(cudalink_importer_acquire(importer, ON(other), FOREVER, &frame));
    assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING);
    assert_ok(cudalink_hold_take(&hold, &frame));
    struct reader reader = {cudalink_hold_frame(hold), 0};
    assert_ok(cudalink_hold_wait(hold, ON(third)));
    assert_ok(cudalink_host_stream_push(third, read_frame, &reader));
    assert_int_equal(atomic_load(&reader.result), 0);
    test_gate_open(&gate);
    assert_ok(cudalink_hold_wait(hold, COMPLETE));
    assert_int_equal(flags_of(cudalink_hold_frame(hold)), 0);
    assert_ok(cudalink_host_stream_synchronize(third));
    assert_int_equal(atomic_load(&reader.result), 1);
    assert_ok(cudalink_host_stream_synchronize(other));  /* it waited too */
    assert_ok(cudalink_host_stream_synchronize(stream)); /* it has done with `slot` */
    cudalink_hold_drop(hold);
    UNTIL(test_got(importer).held == 0);
  }
  assert_int_equal(test_got(importer).lost, 0);
  end();
  cudalink_host_stream_destroy(third);
}

/* Neither stream, nor the CPU, waits for a frame that does not come. */
static void a_wait_for_the_pixels_ends(void **state) {
  (void)state;
  cudalink_slot slot;
  cudalink_frame frame;
  cudalink_host_stream *third;
  begin();
  assert_ok(cudalink_host_stream_create(&third));
  test_open(&exporter, .hold_limit = FOREVER);
  test_join(&importer, .gpu_wait = 1, .gpu_wait_limit = SHORT);
  warm_up();
  publish_painted_by_stream(&slot);
  assert_ok(cudalink_importer_acquire(importer, ON(other), FOREVER, &frame));
  int waited = cudalink_frame_wait(&frame, ON(third)); /* unless the limit came first */
  assert_true(waited == CUDALINK_OK || waited == CUDALINK_ERROR_LOST);
  assert_status(CUDALINK_ERROR_LOST, cudalink_frame_wait(&frame, COMPLETE));
  assert_ok(cudalink_host_stream_synchronize(third)); /* the gate is shut: the limit ends it */
  assert_ok(cudalink_host_stream_synchronize(other));
  assert_status(CUDALINK_ERROR_LOST, cudalink_frame_wait(&frame, ON(third)));
  assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_frame_wait(&frame, COMPLETE));
  test_gate_open(&gate);
  end();
  cudalink_host_stream_destroy(third);
}

/* Sends frames round the ring; none of them goes where `kept` is. */
static void send_around(const cudalink_frame *kept) {
  cudalink_slot slot;
  for (int i = 0; i < 4; i++) {
    assert_ok(test_try_begin(exporter, FOREVER, &slot));
    assert_int_not_equal(slot.index, kept->slot);
    test_paint(slot.data, BYTES, slot.sequence);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  }
  assert_painted(kept, kept->sequence);
}

/* Until the slot is lent again. */
static void send_until_free(uint32_t index) {
  cudalink_slot slot;
  do {
    assert_ok(test_try_begin(exporter, FOREVER, &slot));
    test_paint(slot.data, BYTES, slot.sequence);
    assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  } while (slot.index != index);
}

static void a_drop_waits_for_every_stream_that_used_it(void **state) {
  (void)state;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer);
  warm_up();
  for (int round = 0; round < 40; round++) {
    test_send(exporter);
    cudalink_hold *hold = take_hold();
    cudalink_frame kept = *cudalink_hold_frame(hold);
    cudalink_dlpack_versioned *tensor = tensor_of(hold);
    assert_ok(cudalink_hold_wait(hold, ON(stream)));
    assert_ok(cudalink_hold_use(hold, ON(other)));
    assert_ok(cudalink_hold_wait(hold, ON(stream))); /* known already */
    test_gate_push(&gate, stream);
    test_gate_push(&second_gate, other);
    cudalink_hold_drop(hold);
    delete_on_a_thread(tensor);
    UNTIL(test_got(importer).held == 0); /* given back, but not free yet */
    send_around(&kept);
    test_gate_open(round % 2 ? &gate : &second_gate);
    assert_ok(cudalink_host_stream_synchronize(round % 2 ? stream : other));
    send_around(&kept);
    test_gate_open(round % 2 ? &second_gate : &gate);
    send_until_free(kept.slot);
    test_pass(importer);
  }
  end();
}

/* A release that is the last one says itself after what. */
static void the_last_release_counts(void **state) {
  (void)state;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer);
  warm_up();
  test_send(exporter);
  cudalink_hold *hold = take_hold();
  uint32_t index = cudalink_hold_frame(hold)->slot;
  assert_ok(cudalink_hold_use(hold, ON(stream)));
  test_gate_push(&gate, stream);
  assert_ok(cudalink_hold_release(hold, COMPLETE));
  assert_int_equal(test_got(importer).held, 0);
  send_until_free(index); /* the gate is shut */
  test_gate_open(&gate);

  test_pass(importer);
  test_send(exporter);
  hold = take_hold();
  cudalink_frame kept = *cudalink_hold_frame(hold);
  test_gate_push(&gate, stream);
  assert_ok(cudalink_hold_release(hold, ON(stream)));
  assert_int_equal(test_got(importer).held, 0);
  send_around(&kept);
  test_gate_open(&gate);
  send_until_free(kept.slot);
  end();
}

/* One that is not the last one is remembered. */
static void an_earlier_release_is_remembered(void **state) {
  (void)state;
  begin();
  test_open(&exporter, .slots = 3, .max_slots = 3, .hold_limit = FOREVER);
  test_join(&importer);
  warm_up();
  test_send(exporter);
  cudalink_hold *hold = take_hold();
  cudalink_frame kept = *cudalink_hold_frame(hold);
  cudalink_dlpack_versioned *tensor = tensor_of(hold);
  test_gate_push(&gate, stream);
  assert_ok(cudalink_hold_release(hold, ON(stream)));
  assert_int_equal(test_got(importer).held, 1);
  tensor->deleter(tensor);
  UNTIL(test_got(importer).held == 0);
  send_around(&kept);
  test_gate_open(&gate);
  send_until_free(kept.slot);
  end();
}

static void no_more_streams_than_it_remembers(void **state) {
  (void)state;
  cudalink_host_stream *streams[CUDALINK_HOLD_STREAMS + 1];
  begin();
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  cudalink_hold *hold = take_hold();
  for (int i = 0; i <= CUDALINK_HOLD_STREAMS; i++) {
    assert_ok(cudalink_host_stream_create(&streams[i]));
    assert_status(i < CUDALINK_HOLD_STREAMS ? CUDALINK_OK : CUDALINK_ERROR_BUSY,
                  cudalink_hold_wait(hold, ON(streams[i])));
  }
  assert_said("8 streams");
  assert_status(CUDALINK_ERROR_BUSY, cudalink_hold_use(hold, ON(stream)));
  assert_ok(cudalink_hold_use(hold, ON(streams[3])));
  assert_ok(cudalink_hold_use(hold, COMPLETE));
  cudalink_hold_drop(hold);
  UNTIL(test_got(importer).held == 0);
  for (int i = 0; i <= CUDALINK_HOLD_STREAMS; i++)
    cudalink_host_stream_destroy(streams[i]);
  end();
}

/* A deleter that runs in a stream's own work, as in a CUDA host function. */
static void delete_in_stream(void *context) { delete_one(context); }
static void a_deleter_may_run_inside_a_stream(void **state) {
  (void)state;
  begin();
  test_open(&exporter);
  test_join(&importer);
  for (int round = 0; round < 100; round++) {
    test_send(exporter);
    cudalink_hold *hold = take_hold();
    if (round % 2) assert_ok(cudalink_hold_use(hold, ON(stream)));
    assert_ok(cudalink_host_stream_push(stream, delete_in_stream, tensor_of(hold)));
    cudalink_hold_drop(hold);
    UNTIL(test_got(importer).held == 0);
  }
  end();
}

/* The frame stays held, and the log says why: it may still be read. */
static char warning[512];
static void note_warning(void *context, cudalink_log_level level, const char *text) {
  (void)context;
  if (level == CUDALINK_LOG_WARNING) snprintf(warning, sizeof warning, "%s", text);
}
static void a_destroyed_stream_keeps_the_frame(void **state) {
  (void)state;
  cudalink_host_stream *third;
  begin();
  assert_ok(cudalink_host_stream_create(&third));
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  cudalink_hold *hold = take_hold();
  assert_ok(cudalink_hold_use(hold, ON(third)));
  assert_ok(cudalink_hold_use(hold, ON(stream)));
  cudalink_host_stream_destroy(third);
  cudalink_set_log(note_warning, NULL, CUDALINK_LOG_WARNING);
  cudalink_hold_drop(hold);
  test_settle();
  cudalink_set_log(NULL, NULL, CUDALINK_LOG_WARNING);
  assert_int_equal(test_got(importer).held, 1);
  assert_non_null(strstr(warning, "stays held"));
  end();
}

/* ---- fork ------------------------------------------------------------------------------------------------ */

static void a_forked_child_can_not_give_back(void **state) {
  (void)state;
  begin();
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  cudalink_hold *hold = take_hold();
  cudalink_dlpack_versioned *tensor = tensor_of(hold), *used = tensor_of(hold);
  pid_t child = fork();
  if (child == 0) {
    int status = cudalink_hold_wait(hold, COMPLETE);
    if (status == CUDALINK_ERROR_FORKED) status = cudalink_hold_use(hold, ON(stream));
    if (status == CUDALINK_ERROR_FORKED) status = cudalink_hold_use(hold, COMPLETE);
    /* Not the last reference: it is given up, as the last one is. */
    if (status == CUDALINK_ERROR_FORKED)
      status = cudalink_hold_release(cudalink_hold_retain(hold), COMPLETE);
    tensor->deleter(tensor);
    used->deleter(used);
    cudalink_hold_drop(hold);
    _exit(status == CUDALINK_ERROR_FORKED ? 0 : 1);
  }
  int ended;
  assert_int_equal(waitpid(child, &ended, 0), child);
  assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  assert_int_equal(test_got(importer).held, 1);
  assert_tensor_painted(&tensor->tensor, cudalink_hold_frame(hold)->sequence);
  tensor->deleter(tensor);
  used->deleter(used);
  cudalink_hold_drop(hold);
  UNTIL(test_got(importer).held == 0);
  end();
}

static const struct CMUnitTest tests[] = {
    test_case(the_last_tensor_gives_the_frame_back),
    test_case(bad_calls),
    test_case(many_threads_drop_at_once),
    test_case(a_tensor_outlives_frames_resize_and_both_ends),
    test_case(a_slot_is_filled_through_a_tensor),
    test_case(a_tensor_is_sent),
    test_case(any_stream_can_wait_for_the_pixels),
    test_case(a_wait_for_the_pixels_ends),
    test_case(a_drop_waits_for_every_stream_that_used_it),
    test_case(the_last_release_counts),
    test_case(an_earlier_release_is_remembered),
    test_case(no_more_streams_than_it_remembers),
    test_case(a_deleter_may_run_inside_a_stream),
    test_case(a_destroyed_stream_keeps_the_frame),
    test_case(a_forked_child_can_not_give_back),
};
test_main(tests)
