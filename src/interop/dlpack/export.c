/* SPDX-License-Identifier: MIT
 *
 * Tensors made of views. One allocation holds the struct, shape, strides and what keeps the memory.
 */
#include <stdlib.h>

#include "base/error.h"
#include "interop/dlpack/view.h"

#define UNSUPPORTED CUDALINK_ERROR_UNSUPPORTED

struct exported {
  union {
    cudalink_dlpack_versioned versioned;
    cudalink_dlpack_legacy legacy;
  };
  void *owner;
  void (*drop)(void *owner);
  int64_t numbers[]; /* shape, then strides */
};

static void delete_exported(struct exported *exported) {
  if (!exported) return;
  void *owner = exported->owner;
  void (*drop)(void *) = exported->drop;
  free(exported);
  if (drop) drop(owner);
}

static void delete_versioned(cudalink_dlpack_versioned *self) {
  delete_exported(self ? self->manager_context : NULL);
}

static void delete_legacy(cudalink_dlpack_legacy *self) {
  delete_exported(self ? self->manager_context : NULL);
}

/* Bytes to which consumers expect an element to be aligned: its lane, of complex its half. */
static uintptr_t alignment_of(cudalink_dtype dtype) {
  uintptr_t bytes = (dtype.bits + 7u) / 8;
  return dtype.code == CUDALINK_DTYPE_COMPLEX ? bytes / 2 : bytes;
}

/* One stride in elements. -1: it is none. */
static int stride_in_elements(const cudalink_view *view, uint32_t k, int64_t *stride) {
  if (view_is_packed(view)) {
    int64_t bits;
    *stride = 1;
    if (k == view->dimensions - 1) return 0;
    int64_t each = view_element_bits(view->dtype);
    if (__builtin_mul_overflow(view->strides[k], 8, &bits) || bits % each) return -1;
    *stride = bits / each;
    return 0;
  }
  int64_t each = view_element_bytes(view->dtype);
  if (view->strides[k] % each) return -1;
  *stride = view->strides[k] / each;
  return 0;
}

static int fill_strides(const cudalink_view *view, int64_t *strides) {
  bool empty = view_is_empty(view);
  int64_t compact = 1; /* stands in where a stride has no meaning and can't be written as it is */
  for (uint32_t k = view->dimensions; k-- > 0;) {
    if (stride_in_elements(view, k, &strides[k])) {
      if (!empty && view->shape[k] > 1)
        return error_set(UNSUPPORTED,
                         "tensor: strides[%u] is %lld byte%s, which is no multiple of an element's "
                         "%u bits; copy the array first",
                         k, (long long)view->strides[k], error_s((uint64_t)view->strides[k]),
                         view_element_bits(view->dtype));
      strides[k] = compact;
    }
    if (__builtin_mul_overflow(compact, view->shape[k] ? view->shape[k] : 1, &compact)) compact = 1;
  }
  return CUDALINK_OK;
}

static int fill(struct exported *exported, cudalink_dlpack_tensor *tensor,
                const cudalink_view *view) {
  int64_t *shape = exported->numbers, *strides = shape + view->dimensions;
  *tensor = (cudalink_dlpack_tensor){.device = view->device,
                                     .dimensions = (int32_t)view->dimensions,
                                     .dtype = view->dtype,
                                     .shape = view->dimensions ? shape : NULL,
                                     .strides = view->dimensions ? strides : NULL};
  for (uint32_t k = 0; k < view->dimensions; k++)
    shape[k] = view->shape[k];
  if (!view_is_empty(view)) tensor->data = view->data;
  return fill_strides(view, strides);
}

static int make(struct exported **made, const cudalink_view *view, void *owner,
                void (*drop)(void *)) {
  uint64_t bytes;
  int status = cudalink_view_extent(view, NULL, &bytes);
  if (status < 0) return status;
  if (bytes && (uintptr_t)view->data % alignment_of(view->dtype))
    return error_set(UNSUPPORTED,
                     "tensor: address %p is not aligned to an element of %u bits; copy the array "
                     "first",
                     view->data, view_element_bits(view->dtype));
  *made = malloc(sizeof **made + 2 * sizeof(int64_t) * view->dimensions);
  if (!*made) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a tensor");
  (*made)->owner = owner;
  (*made)->drop = drop;
  return CUDALINK_OK;
}

static int is_null(const char *call) {
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: a NULL was given", call);
}

int cudalink_dlpack_export(const cudalink_view *view, void *owner, void (*drop)(void *owner),
                           cudalink_dlpack_versioned **tensor) {
  struct exported *made;
  if (!view || !tensor) return is_null("cudalink_dlpack_export");
  int status = make(&made, view, owner, drop);
  if (status < 0) return status;
  made->versioned = (cudalink_dlpack_versioned){
      .version = {CUDALINK_DLPACK_VERSION_MAJOR, CUDALINK_DLPACK_VERSION_MINOR},
      .manager_context = made,
      .deleter = delete_versioned,
      .flags = view->flags & (CUDALINK_DLPACK_READ_ONLY | CUDALINK_DLPACK_IS_COPIED)};
  if (view_element_bits(view->dtype) < 8)
    made->versioned.flags |= view->flags & CUDALINK_DLPACK_PADDED;
  status = fill(made, &made->versioned.tensor, view);
  if (status < 0)
    free(made);
  else
    *tensor = &made->versioned;
  return status;
}

int cudalink_dlpack_export_legacy(const cudalink_view *view, void *owner, void (*drop)(void *owner),
                                  cudalink_dlpack_legacy **tensor) {
  struct exported *made;
  if (!view || !tensor) return is_null("cudalink_dlpack_export_legacy");
  if (view_element_bits(view->dtype) < 8 && (view->flags & CUDALINK_DLPACK_PADDED))
    return error_set(UNSUPPORTED,
                     "tensor: each element of %u bit%s fills a byte, which only the versioned form "
                     "can say",
                     view_element_bits(view->dtype), error_s(view_element_bits(view->dtype)));
  int status = make(&made, view, owner, drop);
  if (status < 0) return status;
  made->legacy = (cudalink_dlpack_legacy){.manager_context = made, .deleter = delete_legacy};
  status = fill(made, &made->legacy.tensor, view);
  if (status < 0)
    free(made);
  else
    *tensor = &made->legacy;
  return status;
}
