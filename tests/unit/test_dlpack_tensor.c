/* SPDX-License-Identifier: MIT
 *
 * Tensors out and in: every type, every layout, what is refused, who is deleted when.
 */
#include "dlpack_test.h"

#include <pthread.h>

static _Alignas(64) char memory[4096];

/* ---- out ---------------------------------------------------------------------------------------------- */

static const cudalink_dtype types[] = {
    {0, 8, 1},  {0, 16, 1},  {0, 32, 1}, {0, 64, 1}, {1, 8, 1},   {1, 16, 1}, {1, 32, 1},
    {1, 64, 1}, {2, 16, 1},  {2, 32, 1}, {2, 64, 1}, {2, 128, 1}, {4, 16, 1}, {5, 32, 1},
    {5, 64, 1}, {5, 128, 1}, {6, 8, 1},  {7, 8, 1},  {8, 8, 1},   {9, 8, 1},  {10, 8, 1},
    {11, 8, 1}, {12, 8, 1},  {13, 8, 1}, {14, 8, 1}, {1, 8, 3},   {2, 32, 4}, {17, 4, 2},
    {0, 4, 1},  {1, 1, 1},   {1, 2, 1},  {1, 4, 1},  {15, 6, 1},  {16, 6, 1}, {17, 4, 1}};

static void every_type_goes_out_and_comes_in(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    cudalink_frame frame = {.data = memory};
    cudalink_view view, again;
    assert_ok(cudalink_describe_tensor(&frame.description, "", types[i], 2, NUMBERS(3, 16)));
    assert_ok(cudalink_view_of_frame(&view, &frame, 0));
    cudalink_dlpack_versioned *tensor = export(&view);
    assert_memory_equal(&tensor->tensor.dtype, &types[i], 4);
    assert_int_equal(tensor->tensor.strides[0], 16); /* in elements, whatever they are */
    assert_int_equal(tensor->tensor.strides[1], 1);
    assert_ok(cudalink_dlpack_import(tensor, &again));
    assert_memory_equal(&again, &view, sizeof view);
    tensor->deleter(tensor);

    cudalink_dlpack_legacy *legacy;
    assert_ok(cudalink_dlpack_export_legacy(&view, NULL, NULL, &legacy));
    assert_ok(cudalink_dlpack_import_legacy(legacy, &again));
    view.flags = 0; /* the legacy form can't say it */
    assert_memory_equal(&again, &view, sizeof view);
    legacy->deleter(legacy);
  }
}

static void a_versioned_tensor(void **state) {
  (void)state;
  int drops = 0;
  cudalink_view view = view_make(memory + 64, CUDALINK_FLOAT32, 2, NUMBERS(4, 6), NUMBERS(-32, 4));
  view.data = memory + 1024;
  view.device = (cudalink_dlpack_device){CUDALINK_DLPACK_CUDA, 5};
  view.flags = READ_ONLY | UINT64_C(0xf0);
  cudalink_dlpack_versioned *tensor;
  assert_ok(cudalink_dlpack_export(&view, &drops, count_drop, &tensor));
  assert_int_equal(tensor->version.major, 1);
  assert_int_equal(tensor->version.minor, 3);
  assert_int_equal(tensor->flags, READ_ONLY); /* unknown ones do not go out */
  assert_ptr_equal(tensor->tensor.data, memory + 1024);
  assert_int_equal(tensor->tensor.byte_offset, 0);
  assert_int_equal(tensor->tensor.device.type, 2);
  assert_int_equal(tensor->tensor.device.id, 5);
  assert_int_equal(tensor->tensor.dimensions, 2);
  assert_int_equal(tensor->tensor.shape[0], 4);
  assert_int_equal(tensor->tensor.shape[1], 6);
  assert_int_equal(tensor->tensor.strides[0], -8);
  assert_int_equal(tensor->tensor.strides[1], 1);
  assert_int_equal(drops, 0);
  tensor->deleter(tensor);
  assert_int_equal(drops, 1);
}

static void a_legacy_tensor(void **state) {
  (void)state;
  int drops = 0;
  cudalink_view view = view_make(memory, CUDALINK_UINT8, 1, NUMBERS(4), NUMBERS(1));
  cudalink_dlpack_legacy *first, *second;
  assert_ok(cudalink_dlpack_export_legacy(&view, &drops, count_drop, &first));
  assert_ok(cudalink_dlpack_export_legacy(&view, &drops, count_drop, &second));
  assert_ptr_not_equal(first, second);
  assert_ptr_not_equal(first->tensor.shape, second->tensor.shape);
  first->deleter(first);
  assert_int_equal(drops, 1);
  assert_int_equal(second->tensor.shape[0], 4);
  second->deleter(second);
  assert_int_equal(drops, 2);
}

static void scalars_and_empty_arrays(void **state) {
  (void)state;
  cudalink_view view = view_make(memory, CUDALINK_FLOAT32, 0, NUMBERS(0), NUMBERS(0)), again;
  cudalink_dlpack_versioned *tensor = export(&view);
  assert_int_equal(tensor->tensor.dimensions, 0);
  assert_null(tensor->tensor.shape);
  assert_null(tensor->tensor.strides);
  assert_ptr_equal(tensor->tensor.data, memory);
  assert_ok(cudalink_dlpack_import(tensor, &again));
  assert_memory_equal(&again, &view, sizeof view);
  tensor->deleter(tensor);

  view = view_make(memory + 1, CUDALINK_FLOAT32, 2, NUMBERS(0, 3), NUMBERS(13, 4));
  tensor = export(&view); /* where nothing is, nothing is misaligned */
  assert_null(tensor->tensor.data);
  assert_int_equal(tensor->tensor.strides[0], 3);
  assert_int_equal(tensor->tensor.strides[1], 1);
  assert_ok(cudalink_dlpack_import(tensor, &again));
  assert_null(again.data);
  tensor->tensor.data = memory; /* NULL or not is the same */
  assert_ok(cudalink_dlpack_import(tensor, &again));
  assert_null(again.data);
  tensor->deleter(tensor);
}

/* Strides of one element mean nothing, and go through as they are. */
static void odd_strides_of_one_element(void **state) {
  (void)state;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT8, 4);
  cudalink_view view;
  foreign_shape(&foreign, NUMBERS(1, 1, 8, 16), NUMBERS(7, 0, 16, 1));
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  assert_true(cudalink_view_is_dense(&view));
  cudalink_dlpack_versioned *tensor = export(&view);
  assert_memory_equal(tensor->tensor.strides, foreign.strides, 4 * sizeof(int64_t));
  tensor->deleter(tensor);
  foreign.strides[0] = INT64_MAX;
  foreign.versioned.tensor.dtype = CUDALINK_FLOAT32;
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  view.strides[0] = 3; /* can't be written in elements: a dense one stands in */
  tensor = export(&view);
  assert_int_equal(tensor->tensor.strides[0], 128);
  tensor->deleter(tensor);
}

static void refused_exports(void **state) {
  (void)state;
  int drops = 0;
  cudalink_dlpack_versioned *tensor = NULL;
  cudalink_dlpack_legacy *legacy = NULL;
  cudalink_view good = view_make(memory, CUDALINK_FLOAT32, 2, NUMBERS(4, 6), NUMBERS(24, 4));
  cudalink_view view = good;
#define REFUSED(code, text)                                                                        \
  assert_refused(code, text, cudalink_dlpack_export(&view, &drops, count_drop, &tensor));          \
  assert_refused(code, text, cudalink_dlpack_export_legacy(&view, &drops, count_drop, &legacy))
  view.strides[0] = 26;
  REFUSED(UNSUPPORTED, "strides[0] is 26 bytes");
  view = good, view.data = memory + 2;
  REFUSED(UNSUPPORTED, "not aligned");
  view = good, view.strides[0] = INT64_MAX - 3;
  REFUSED(INVALID_ARGUMENT, "addressed");
  view = view_make(memory, DTYPE(FLOAT6_E2M3FN, 6), 2, NUMBERS(4, 8), NUMBERS(8, 0));
  REFUSED(UNSUPPORTED, "strides[0] is 8 bytes"); /* 64 bits are no multiple of 6 */
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_dlpack_export(NULL, NULL, NULL, &tensor));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_dlpack_export(&good, NULL, NULL, NULL));
  view = view_make(memory, DTYPE(UINT, 4), 1, NUMBERS(4), NUMBERS(1));
  view.flags = PADDED;
  assert_refused(UNSUPPORTED, "versioned",
                 cudalink_dlpack_export_legacy(&view, &drops, count_drop, &legacy));
  assert_int_equal(drops, 0); /* the owner is still the caller's */
  assert_null(tensor);
  assert_null(legacy);
}

/* Half of a complex number is what has to be aligned, one lane of a vector, a byte of a packed row. */
static void alignment_is_that_of_a_lane(void **state) {
  (void)state;
  cudalink_view view = view_make(memory + 4, DTYPE(COMPLEX, 64), 1, NUMBERS(3), NUMBERS(8));
  cudalink_dlpack_versioned *tensor = export(&view);
  tensor->deleter(tensor);
  view = view_make(memory + 4, (cudalink_dtype){2, 32, 4}, 1, NUMBERS(3), NUMBERS(16));
  tensor = export(&view);
  tensor->deleter(tensor);
  view = view_make(memory + 1, DTYPE(UINT, 4), 1, NUMBERS(3), NUMBERS(0));
  tensor = export(&view);
  tensor->deleter(tensor);
  view = view_make(memory + 4, CUDALINK_FLOAT16, 1, NUMBERS(3), NUMBERS(6));
  tensor = export(&view);
  assert_int_equal(tensor->tensor.strides[0], 3);
  tensor->deleter(tensor);
}

static void padded_short_elements(void **state) {
  (void)state;
  cudalink_view view = view_make(memory, DTYPE(FLOAT4_E2M1FN, 4), 2, NUMBERS(2, 5), NUMBERS(10, 1)),
                again;
  view.flags = PADDED;
  cudalink_dlpack_versioned *tensor = export(&view);
  assert_int_equal(tensor->flags, PADDED);
  assert_int_equal(tensor->tensor.strides[0], 10);
  assert_ok(cudalink_dlpack_import(tensor, &again));
  assert_memory_equal(&again, &view, sizeof view);
  tensor->deleter(tensor);
}

#define MANY 64
static void *delete_all(void *context) {
  cudalink_dlpack_versioned **tensors = context;
  for (int i = 0; i < MANY; i++)
    tensors[i]->deleter(tensors[i]);
  return NULL;
}
static _Atomic int counted;
static void count_atomically(void *owner) {
  (void)owner;
  counted++;
}

static void deleters_run_on_any_thread(void **state) {
  (void)state;
  cudalink_view view = view_make(memory, CUDALINK_UINT8, 1, NUMBERS(4), NUMBERS(1));
  static cudalink_dlpack_versioned *tensors[4][MANY];
  pthread_t threads[4];
  for (int t = 0; t < 4; t++) {
    for (int i = 0; i < MANY; i++)
      assert_ok(cudalink_dlpack_export(&view, NULL, count_atomically, &tensors[t][i]));
    assert_int_equal(pthread_create(&threads[t], NULL, delete_all, tensors[t]), 0);
  }
  for (int t = 0; t < 4; t++)
    pthread_join(threads[t], NULL);
  assert_int_equal(counted, 4 * MANY);
}

/* ---- in ------------------------------------------------------------------------------------------------- */

static void no_strides_mean_row_major(void **state) {
  (void)state;
  cudalink_view view;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT16, 3);
  foreign_shape(&foreign, NUMBERS(2, 3, 4), NULL);
  for (uint32_t minor = 0; minor < 9; minor++) {
    foreign.versioned.version.minor = minor; /* also where the rules want strides */
    assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
    assert_int_equal(view.strides[0], 24);
    assert_int_equal(view.strides[1], 8);
    assert_int_equal(view.strides[2], 2);
    assert_true(cudalink_view_is_dense(&view));
  }
}

static void the_byte_offset_counts(void **state) {
  (void)state;
  cudalink_view view;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT16, 1);
  foreign_shape(&foreign, NUMBERS(4), NUMBERS(-1));
  foreign.versioned.tensor.byte_offset = 24;
  foreign.versioned.flags = UINT64_MAX;
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  assert_ptr_equal(view.data, memory + 24);
  assert_int_equal(view.strides[0], -2);
  assert_int_equal(view.flags, READ_ONLY | CUDALINK_DLPACK_IS_COPIED | PADDED);
  foreign.versioned.tensor.byte_offset = UINT64_MAX;
  assert_refused(INVALID_ARGUMENT, "addressed", cudalink_dlpack_import(&foreign.versioned, &view));
  assert_int_equal(foreign.deleted, 0);
}

/* Of another major version nothing but the deleter is known: not even the tensor is looked at. */
static void another_major_version(void **state) {
  (void)state;
  cudalink_view view;
  struct foreign foreign = foreign_make((void *)1, CUDALINK_UINT16, INT32_MAX);
  foreign.versioned.tensor.shape = (int64_t *)1;
  foreign.versioned.version.major = 2;
  assert_refused(VERSION, "2.0", cudalink_dlpack_import(&foreign.versioned, &view));
  foreign.versioned.version.major = 0;
  assert_refused(VERSION, "0.0", cudalink_dlpack_import(&foreign.versioned, &view));
  cudalink_array *array;
  assert_refused(VERSION, "0.0", cudalink_array_take(&array, &foreign.versioned));
  assert_int_equal(foreign.deleted, 0);
}

static void devices_are_refused_by_name(void **state) {
  (void)state;
  cudalink_view view;
  struct foreign foreign = foreign_make(memory, CUDALINK_UINT16, 0);
  static const struct {
    int32_t type;
    const char *name;
  } others[] = {{4, "OpenCL"},          {7, "Vulkan"},         {8, "Metal"},    {9, "VPI"},
                {10, "ROCm"},           {11, "ROCm host"},     {12, "ext dev"}, {14, "oneAPI"},
                {15, "WebGPU"},         {16, "Hexagon"},       {17, "MAIA"},    {18, "Trainium"},
                {0, "unknown"},         {5, "unknown"},        {19, "unknown"}, {-1, "unknown"},
                {INT32_MIN, "unknown"}, {INT32_MAX, "unknown"}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    foreign.versioned.tensor.device.type = others[i].type;
    assert_refused(UNSUPPORTED, others[i].name, cudalink_dlpack_import(&foreign.versioned, &view));
  }
  foreign.versioned.tensor.device.type = CUDALINK_DLPACK_CUDA_HOST;
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  assert_int_equal(view.device.type, CUDALINK_DLPACK_CUDA_HOST);
}

static void nonsense_is_refused(void **state) {
  (void)state;
  cudalink_view view = {.dimensions = 77};
  struct foreign good = foreign_make(memory, CUDALINK_UINT16, 2), foreign;
#define AGAIN                                                                                      \
  foreign = good;                                                                                  \
  foreign_shape(&foreign, NUMBERS(2, 3), NUMBERS(3, 1))
#define BAD(code, text)                                                                            \
  assert_refused(code, text, cudalink_dlpack_import(&foreign.versioned, &view))
  AGAIN, foreign.versioned.tensor.dimensions = -1;
  BAD(INVALID_ARGUMENT, "-1 dimensions");
  AGAIN, foreign.versioned.tensor.dimensions = 9;
  BAD(UNSUPPORTED, "9 dimensions");
  AGAIN, foreign.versioned.tensor.shape = NULL;
  BAD(INVALID_ARGUMENT, "2 dimensions, but shape is NULL");
  foreign.versioned.tensor.dimensions = 1;
  BAD(INVALID_ARGUMENT, "1 dimension, but shape is NULL");
  AGAIN, foreign.shape[1] = -3;
  BAD(INVALID_ARGUMENT, "shape[1] is -3");
  AGAIN, foreign.versioned.tensor.data = NULL;
  BAD(INVALID_ARGUMENT, "data is NULL");
  AGAIN, foreign.versioned.tensor.dtype.code = 3;
  BAD(UNSUPPORTED, "opaque");
  AGAIN, foreign.versioned.tensor.dtype.bits = 24;
  BAD(UNSUPPORTED, "24 bits");
  AGAIN, foreign.versioned.tensor.dtype.lanes = 0;
  BAD(UNSUPPORTED, "0 lanes");
  AGAIN, foreign.versioned.tensor.dtype.code = 18;
  BAD(UNSUPPORTED, "code 18");
  AGAIN, foreign.shape[0] = INT64_MAX;
  BAD(INVALID_ARGUMENT, "addressed");
  AGAIN, foreign.shape[0] = INT64_MAX, foreign.versioned.tensor.strides = NULL;
  BAD(INVALID_ARGUMENT, "addressed");
  AGAIN, foreign.strides[0] = INT64_MAX;
  BAD(INVALID_ARGUMENT, "addressed");
  AGAIN, foreign.strides[0] = INT64_MIN;
  BAD(INVALID_ARGUMENT, "addressed");
  AGAIN, foreign.versioned.tensor.dtype = DTYPE(UINT, 4), foreign.strides[0] = 4;
  foreign.strides[1] = 2;
  BAD(UNSUPPORTED, "side by side");
  AGAIN, foreign.versioned.tensor.dtype = DTYPE(UINT, 4);
  BAD(UNSUPPORTED, "whole byte"); /* a row of three */
  AGAIN, foreign.versioned.tensor.dtype = DTYPE(UINT, 4), foreign.strides[0] = INT64_MAX;
  BAD(INVALID_ARGUMENT, "addressed");
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_dlpack_import(NULL, &view));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_dlpack_import_legacy(NULL, &view));
  assert_refused(INVALID_ARGUMENT, "NULL", cudalink_dlpack_import(&good.versioned, NULL));
  assert_int_equal(view.dimensions, 77); /* is left alone */
}

static void packed_rows_without_strides(void **state) {
  (void)state;
  cudalink_view view;
  struct foreign foreign = foreign_make(memory, DTYPE(UINT, 4), 2);
  foreign_shape(&foreign, NUMBERS(3, 6), NULL);
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  assert_int_equal(view.strides[0], 3);
  foreign_shape(&foreign, NUMBERS(3, 5), NULL);
  assert_refused(UNSUPPORTED, "whole byte", cudalink_dlpack_import(&foreign.versioned, &view));
  foreign_shape(&foreign, NUMBERS(1, 5), NULL);
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  foreign_shape(&foreign, NUMBERS(0, 5), NULL);
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
}

/* Rows of short elements whose gap is not a whole number of bytes can't be written; others can. */
static void packed_rows(void **state) {
  (void)state;
  cudalink_view view;
  struct foreign foreign = foreign_make(memory, DTYPE(FLOAT6_E3M2FN, 6), 2);
  foreign_shape(&foreign, NUMBERS(5, 64), NUMBERS(128, 1));
  assert_ok(cudalink_dlpack_import(&foreign.versioned, &view));
  assert_int_equal(view.strides[0], 96);
  assert_int_equal(view.strides[1], 0);
  cudalink_dlpack_versioned *tensor = export(&view);
  assert_int_equal(tensor->tensor.strides[0], 128);
  assert_int_equal(tensor->tensor.strides[1], 1);
  tensor->deleter(tensor);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_goes_out_and_comes_in),
      cmocka_unit_test(a_versioned_tensor),
      cmocka_unit_test(a_legacy_tensor),
      cmocka_unit_test(scalars_and_empty_arrays),
      cmocka_unit_test(odd_strides_of_one_element),
      cmocka_unit_test(refused_exports),
      cmocka_unit_test(alignment_is_that_of_a_lane),
      cmocka_unit_test(padded_short_elements),
      cmocka_unit_test(deleters_run_on_any_thread),
      cmocka_unit_test(no_strides_mean_row_major),
      cmocka_unit_test(the_byte_offset_counts),
      cmocka_unit_test(another_major_version),
      cmocka_unit_test(devices_are_refused_by_name),
      cmocka_unit_test(nonsense_is_refused),
      cmocka_unit_test(packed_rows_without_strides),
      cmocka_unit_test(packed_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
