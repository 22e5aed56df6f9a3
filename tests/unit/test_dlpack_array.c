/* SPDX-License-Identifier: MIT
 *
 * Arrays: who owns what for how long, parts that stay inside, copies of any layout.
 */
#include "dlpack_test.h"

#include <pthread.h>

static _Alignas(64) unsigned char memory[32768];

#define COMPLETE CUDALINK_STREAM_COMPLETE

static cudalink_array *take(struct foreign *foreign) {
  cudalink_array *array = NULL;
  assert_ok(cudalink_array_take(&array, &foreign->versioned));
  return array;
}

static void a_tensor_lives_as_long_as_its_arrays(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT16, 2);
  foreign_shape(&foreign, NUMBERS(4, 8), NUMBERS(8, 1));
  cudalink_array *array = take(&foreign), *part;
  cudalink_view view = *cudalink_array_view(array);
  assert_ok(cudalink_view_slice(&view, 0, 1, 2, 1));
  assert_ok(cudalink_array_part(&part, array, &view));
  cudalink_array_drop(array);
  assert_int_equal(foreign.deleted, 0);
  cudalink_dlpack_versioned *tensor;
  assert_ok(cudalink_dlpack_export(cudalink_array_view(part), cudalink_array_retain(part),
                                   cudalink_array_drop, &tensor));
  assert_ptr_equal(tensor->tensor.data, memory + 16);
  cudalink_array_drop(part);
  assert_int_equal(foreign.deleted, 0);
  tensor->deleter(tensor);
  assert_int_equal(foreign.deleted, 1);
  cudalink_array_drop(NULL);
}

static void a_refused_tensor_is_still_the_callers(void **state) {
  (void)state;
  cudalink_array *array = NULL;
  struct foreign foreign = foreign_make(NULL, CUDALINK_UINT16, 0);
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_array_take(&array, &foreign.versioned));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_array_take(NULL, &foreign.versioned));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_array_take_legacy(&array, NULL));
  assert_int_equal(foreign.deleted, 0);
  assert_null(array);
}

/* Empty tensors have a deleter as well; some have none at all. */
static void every_deleter_is_called_once(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(NULL, CUDALINK_UINT16, 1);
  foreign_shape(&foreign, NUMBERS(0), NULL);
  for (int i = 1; i <= 1000; i++) {
    cudalink_array_drop(take(&foreign));
    assert_int_equal(foreign.deleted, i);
  }
  foreign.versioned.deleter = NULL;
  cudalink_array_drop(take(&foreign));
  cudalink_dlpack_legacy legacy = {.tensor = foreign.versioned.tensor};
  cudalink_array *array;
  assert_ok(cudalink_array_take_legacy(&array, &legacy));
  cudalink_array_drop(array);
}

static void parts_stay_inside(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(memory + 100, CUDALINK_UINT8, 1);
  foreign_shape(&foreign, NUMBERS(50), NUMBERS(1));
  foreign.versioned.flags = READ_ONLY;
  cudalink_array *array = take(&foreign), *part;
  cudalink_view view = view_make(memory + 100, CUDALINK_UINT8, 1, NUMBERS(50), NUMBERS(1));
  assert_ok(cudalink_array_part(&part, array, &view));
  assert_int_equal(cudalink_array_view(part)->flags, READ_ONLY);
  cudalink_array_drop(part);
  view.data = memory + 149, view.strides[0] = -1; /* the other way round */
  assert_ok(cudalink_array_part(&part, array, &view));
  cudalink_array_drop(part);
  view.data = memory + 101;
  assert_refused(INVALID_ARGUMENT, "not inside", cudalink_array_part(&part, array, &view));
  view.strides[0] = 1;
  assert_refused(INVALID_ARGUMENT, "not inside", cudalink_array_part(&part, array, &view));
  view.data = memory + 99, view.shape[0] = 2;
  assert_refused(INVALID_ARGUMENT, "not inside", cudalink_array_part(&part, array, &view));
  view.data = memory + 4000;
  assert_refused(INVALID_ARGUMENT, "not inside", cudalink_array_part(&part, array, &view));
  view.shape[0] = 0;
  assert_ok(cudalink_array_part(&part, array, &view));
  cudalink_array_drop(part);
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_array_part(&part, array, NULL));
  cudalink_array_drop(array);
}

/* ---- copies ------------------------------------------------------------------------------------------- */

/* Element `index` of a view, by the definition. */
static const unsigned char *element(const cudalink_view *view, const int64_t *index) {
  const unsigned char *at = view->data;
  for (uint32_t k = 0; k < view->dimensions; k++)
    at += index[k] * view->strides[k];
  return at;
}

static void compare(const cudalink_view *a, const cudalink_view *b) {
  int64_t index[8] = {0}, count = 1;
  size_t bytes = a->dtype.bits / 8u * a->dtype.lanes;
  for (uint32_t k = 0; k < a->dimensions; k++)
    count *= a->shape[k];
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i;
    for (uint32_t k = a->dimensions; k-- > 0; rest /= a->shape[k])
      index[k] = rest % a->shape[k];
    assert_memory_equal(element(a, index), element(b, index), bytes);
  }
}

static void check_copy(const cudalink_view *view) {
  struct foreign foreign = foreign_make(view->data, view->dtype, (int32_t)view->dimensions);
  int64_t strides[8];
  int64_t bytes = view->dtype.bits / 8 * view->dtype.lanes;
  for (uint32_t k = 0; k < view->dimensions; k++)
    strides[k] = view->strides[k] / bytes;
  foreign_shape(&foreign, view->shape, strides);
  foreign.versioned.flags = READ_ONLY;
  cudalink_array *array = take(&foreign), *copy;
  assert_ok(cudalink_array_copy(&copy, array, COMPLETE));
  cudalink_array_drop(array); /* the copy needs nothing of it */
  assert_int_equal(foreign.deleted, 1);
  const cudalink_view *got = cudalink_array_view(copy);
  assert_int_equal(got->flags, CUDALINK_DLPACK_IS_COPIED);
  assert_int_equal(got->dimensions, view->dimensions);
  assert_true(cudalink_view_is_dense(got));
  assert_int_equal((uintptr_t)got->data % 64, 0);
  if (got->data)
    assert_false((unsigned char *)got->data >= memory &&
                 (unsigned char *)got->data < memory + sizeof memory);
  compare(got, view);
  cudalink_array_drop(copy);
}

static uint32_t seed = 1;
static int64_t random_below(int64_t most) {
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % most;
}

static void copies_of_any_layout(void **state) {
  (void)state;
  static const cudalink_dtype dtypes[] = {{1, 8, 1}, {1, 16, 1},  {2, 32, 1}, {2, 64, 1},
                                          {1, 8, 3}, {5, 128, 1}, {4, 16, 1}};
  for (size_t i = 0; i < sizeof memory; i++)
    memory[i] = (unsigned char)(i * 7 + i / 256);
  for (int round = 0; round < 20000; round++) {
    cudalink_dtype dtype = dtypes[random_below(7)];
    int64_t bytes = dtype.bits / 8 * dtype.lanes;
    cudalink_view view =
        view_make(memory + 16384, dtype, (uint32_t)random_below(5), NUMBERS(0), NUMBERS(0));
    for (uint32_t k = 0; k < view.dimensions; k++) {
      view.shape[k] = random_below(5);
      view.strides[k] = (random_below(17) - 8) * bytes;
    }
    if (random_below(2)) { /* often rows that are dense inside */
      int64_t stride = bytes;
      for (uint32_t k = view.dimensions; k-- > 0; stride *= view.shape[k])
        view.strides[k] = k ? stride : stride + bytes * random_below(3);
    }
    check_copy(&view);
  }
}

static void packed_copies(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(memory, DTYPE(UINT, 4), 2);
  foreign_shape(&foreign, NUMBERS(3, 5), NUMBERS(16, 1));
  for (int i = 0; i < 64; i++)
    memory[i] = (unsigned char)(i + 1);
  cudalink_array *array = take(&foreign), *copy;
  assert_ok(cudalink_array_copy(&copy, array, COMPLETE));
  const cudalink_view *view = cudalink_array_view(copy);
  const unsigned char *data = view->data, expected[] = {1, 2, 3, 9, 10, 11, 17, 18, 19};
  assert_int_equal(view->strides[0], 3); /* each row begins at a whole byte */
  assert_memory_equal(data, expected, 9);
  cudalink_array_drop(copy);
  cudalink_array_drop(array);
}

static void copies_that_do_not_fit(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT8, 2);
  cudalink_array *array, *copy;
  foreign_shape(&foreign, NUMBERS(INT64_C(1) << 40, INT64_C(1) << 40), NUMBERS(0, 0));
  array = take(&foreign); /* one byte, repeated */
  assert_refused(TOO_LARGE, "63 bits", cudalink_array_copy(&copy, array, COMPLETE));
  cudalink_array_drop(array);
  foreign_shape(&foreign, NUMBERS(INT64_C(1) << 31, INT64_C(1) << 31), NUMBERS(0, 0));
  array = take(&foreign);
  if (CAN_ASK_FOR_TOO_MUCH)
    assert_refused(NO_MEMORY, "4611686018427387904", cudalink_array_copy(&copy, array, COMPLETE));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_array_copy(NULL, array, COMPLETE));
  assert_refused(STREAM, "COMPLETE", cudalink_array_copy(&copy, array, CUDALINK_STREAM_LEGACY));
  assert_refused(STREAM, "COMPLETE", cudalink_array_wait(array, CUDALINK_STREAM_LEGACY));
  assert_ok(cudalink_array_ready(array, COMPLETE));
  assert_ok(cudalink_array_wait(array, COMPLETE));
  cudalink_array_drop(array);
}

/* ---- threads -------------------------------------------------------------------------------------------- */

static void *use(void *context) {
  cudalink_array *array = context;
  for (int i = 0; i < 2000; i++) {
    cudalink_array *part;
    cudalink_view view = *cudalink_array_view(array);
    if (cudalink_view_index(&view, 0, i % 4) < 0 || cudalink_array_part(&part, array, &view) < 0)
      return array;
    cudalink_array_drop(part);
  }
  cudalink_array_drop(array);
  return NULL;
}

static void the_last_of_many_threads_deletes(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT16, 2);
  foreign_shape(&foreign, NUMBERS(4, 8), NUMBERS(8, 1));
  cudalink_array *array = take(&foreign);
  pthread_t threads[4];
  for (int t = 0; t < 4; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, use, cudalink_array_retain(array)), 0);
  cudalink_array_drop(array);
  for (int t = 0; t < 4; t++) {
    void *failed;
    pthread_join(threads[t], &failed);
    assert_null(failed);
  }
  assert_int_equal(foreign.deleted, 1);
}

/* A deleter that uses the library itself finds no lock held. */
static cudalink_array *inner;
static void delete_another(cudalink_dlpack_versioned *self) {
  (void)self;
  cudalink_array_drop(inner);
  inner = NULL;
}
static void a_deleter_may_drop_others(void **state) {
  (void)state;
  struct foreign first = foreign_make(memory, CUDALINK_UINT16, 0), second = first;
  inner = take(&first);
  second.versioned.deleter = delete_another;
  cudalink_array_drop(take(&second));
  assert_null(inner);
  assert_int_equal(first.deleted, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tensor_lives_as_long_as_its_arrays),
      cmocka_unit_test(a_refused_tensor_is_still_the_callers),
      cmocka_unit_test(every_deleter_is_called_once),
      cmocka_unit_test(parts_stay_inside),
      cmocka_unit_test(copies_of_any_layout),
      cmocka_unit_test(packed_copies),
      cmocka_unit_test(copies_that_do_not_fit),
      cmocka_unit_test(the_last_of_many_threads_deletes),
      cmocka_unit_test(a_deleter_may_drop_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
