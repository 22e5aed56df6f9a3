/* SPDX-License-Identifier: MIT
 *
 * What the tests of src/interop/dlpack share: status checks, views and tensors made in short, owners
 * that count.
 */
#ifndef CUDALINK_TESTS_DLPACK_TEST_H
#define CUDALINK_TESTS_DLPACK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cudalink/cudalink.h"

/* Sanitizers end the process where memory of this size is asked for. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||                               \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CAN_ASK_FOR_TOO_MUCH 0
#else
#define CAN_ASK_FOR_TOO_MUCH 1
#endif

#define READ_ONLY CUDALINK_DLPACK_READ_ONLY
#define PADDED CUDALINK_DLPACK_PADDED

#define assert_status(expected, call) assert_status_(expected, call, #call, __FILE__, __LINE__)
static inline void assert_status_(int expected, int status, const char *call, const char *file,
                                  int line) {
  if (status == expected) return;
  print_error("%s\n  is %s: %s\n  not %s\n", call, cudalink_error_name(status),
              status < 0 ? cudalink_last_error() : "", cudalink_error_name(expected));
  _fail(file, line);
}
#define assert_ok(call) assert_status(CUDALINK_OK, call)
/* Fails with this code and a sentence that names this. */
#define assert_refused(code, text, call)                                                           \
  do {                                                                                             \
    assert_status(CUDALINK_ERROR_##code, call);                                                    \
    if (!strstr(cudalink_last_error(), text)) {                                                    \
      print_error("\"%s\"\n  does not name \"%s\"\n", cudalink_last_error(), text);                \
      _fail(__FILE__, __LINE__);                                                                   \
    }                                                                                              \
  } while (0)

#define DTYPE(name, bits) cudalink_dtype_make(CUDALINK_DTYPE_##name, bits)

/* {2, 3, 4} and the like, for view_make. */
#define NUMBERS(...) ((const int64_t[8]){__VA_ARGS__})

/* A view of CPU memory; strides in bytes. */
static inline cudalink_view view_make(void *data, cudalink_dtype dtype, uint32_t dimensions,
                                      const int64_t shape[8], const int64_t strides[8]) {
  cudalink_view view = {
      .data = data, .device = {CUDALINK_DLPACK_CPU, 0}, .dtype = dtype, .dimensions = dimensions};
  for (uint32_t k = 0; k < dimensions; k++) {
    view.shape[k] = shape[k];
    view.strides[k] = strides[k];
  }
  return view;
}

/* An owner that counts how often it was dropped. */
static inline void count_drop(void *owner) { ++*(int *)owner; }

static inline cudalink_dlpack_versioned *export(const cudalink_view *view) {
  cudalink_dlpack_versioned *tensor = NULL;
  assert_ok(cudalink_dlpack_export(view, NULL, NULL, &tensor));
  assert_non_null(tensor);
  return tensor;
}

/* Somebody's versioned tensor on the CPU, strides in elements; it counts its deletions. */
struct foreign {
  cudalink_dlpack_versioned versioned;
  int64_t shape[16], strides[16];
  int deleted;
};
static inline void foreign_delete(cudalink_dlpack_versioned *self) {
  ((struct foreign *)(void *)self)->deleted++;
}
static inline struct foreign foreign_make(void *data, cudalink_dtype dtype, int32_t dimensions) {
  return (struct foreign){.versioned = {.version = {1, 0},
                                        .deleter = foreign_delete,
                                        .tensor = {.data = data,
                                                   .device = {CUDALINK_DLPACK_CPU, 0},
                                                   .dimensions = dimensions,
                                                   .dtype = dtype}}};
}
/* Its own arrays; called once the struct lies where it stays. */
static inline void foreign_shape(struct foreign *foreign, const int64_t *shape,
                                 const int64_t *strides) {
  for (int32_t k = 0; k < foreign->versioned.tensor.dimensions; k++) {
    foreign->shape[k] = shape[k];
    if (strides) foreign->strides[k] = strides[k];
  }
  foreign->versioned.tensor.shape = foreign->shape;
  foreign->versioned.tensor.strides = strides ? foreign->strides : NULL;
}

#endif
