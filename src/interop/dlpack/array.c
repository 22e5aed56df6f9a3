/* SPDX-License-Identifier: MIT
 *
 * Arrays: a view, a count, and what keeps the memory; on a GPU also in which order it may be used.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "interop/dlpack/view.h"
#include "link/reaper.h"
#include "link/service.h"

#define ALIGNMENT 64u        /* some consumers copy what is aligned less */
#define CAPTURE_STEP 1000000 /* ns between two tries while a stream captures a graph */

struct cudalink_array {
  _Atomic uint32_t references;
  cudalink_view view;
  void *owner;
  void (*drop)(void *owner);
  struct gpu_array *gpu; /* NULL: nothing to order */
  bool is_part;          /* gpu is another array's */
};

static int is_null(const char *call) {
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: a NULL was given", call);
}

static int make(cudalink_array **array, const cudalink_view *view, void *owner,
                void (*drop)(void *)) {
  cudalink_array *made = malloc(sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for an array");
  *made = (cudalink_array){.references = 1, .view = *view, .owner = owner, .drop = drop};
  *array = made;
  return CUDALINK_OK;
}

static bool is_on_gpu(const cudalink_view *view) {
  return view->device.type == CUDALINK_DLPACK_CUDA && view->data;
}

/* ---- memory on a GPU ------------------------------------------------------------------------------ */

/* On the reaper: makes CUDA calls, which the thread of the last drop may not be allowed to make. */
static void free_gpu(void *argument) {
  _Atomic uint32_t nobody = 0;
  if (gpu_array_free(argument) != CUDALINK_ERROR_CAPTURING) return;
  os_sleep_on(&nobody, 0, os_deadline(CAPTURE_STEP), false);
  reaper_call(free_gpu, argument); /* behind what others want of the reaper */
}

static int make_gpu(const cudalink_view *view, struct gpu_array **gpu) {
  int status = reaper_start();
  return status < 0 ? status : gpu_array_make(view->device.id, gpu);
}

/* ---- tensors taken over ----------------------------------------------------------------------------- */

static void drop_versioned(void *owner) {
  cudalink_dlpack_versioned *tensor = owner;
  if (tensor->deleter) tensor->deleter(tensor);
}

static void drop_legacy(void *owner) {
  cudalink_dlpack_legacy *tensor = owner;
  if (tensor->deleter) tensor->deleter(tensor);
}

static int take(cudalink_array **array, const cudalink_view *view, void *owner,
                void (*drop)(void *)) {
  struct gpu_array *gpu = NULL;
  int status = is_on_gpu(view) ? make_gpu(view, &gpu) : CUDALINK_OK;
  if (status == CUDALINK_OK) status = make(array, view, owner, drop);
  if (status == CUDALINK_OK)
    (*array)->gpu = gpu;
  else if (gpu)
    gpu_array_free(gpu); /* nothing is queued for it */
  return status;
}

int cudalink_array_take(cudalink_array **array, cudalink_dlpack_versioned *tensor) {
  cudalink_view view;
  if (!array) return is_null("cudalink_array_take");
  int status = cudalink_dlpack_import(tensor, &view);
  return status < 0 ? status : take(array, &view, tensor, drop_versioned);
}

int cudalink_array_take_legacy(cudalink_array **array, cudalink_dlpack_legacy *tensor) {
  cudalink_view view;
  if (!array) return is_null("cudalink_array_take_legacy");
  int status = cudalink_dlpack_import_legacy(tensor, &view);
  return status < 0 ? status : take(array, &view, tensor, drop_legacy);
}

const cudalink_view *cudalink_array_view(const cudalink_array *array) { return &array->view; }

cudalink_array *cudalink_array_retain(cudalink_array *array) {
  /* relaxed: the caller has a reference already, and passes the new one on by means of its own. */
  if (array) atomic_fetch_add_explicit(&array->references, 1, memory_order_relaxed);
  return array;
}

void cudalink_array_drop(void *pointer) {
  cudalink_array *array = pointer;
  /* acq_rel: what each holder did with the memory comes before its decrement (release), and whoever
   * makes the last one (acquire) gives it up behind all of it. */
  if (!array || atomic_fetch_sub_explicit(&array->references, 1, memory_order_acq_rel) != 1) return;
  if (array->gpu && !array->is_part && !os_forked()) reaper_call(free_gpu, array->gpu);
  if (array->drop) array->drop(array->owner);
  free(array);
}

/* ---- order ------------------------------------------------------------------------------------------ */

/* What the CPU can see needs none, and on a GPU an array with nothing in it. */
static int check_cpu(const char *call, const cudalink_array *array, cudalink_stream stream) {
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) return CUDALINK_OK;
  if (array->view.device.type == CUDALINK_DLPACK_CUDA) return CUDALINK_OK;
  return error_set(
      CUDALINK_ERROR_STREAM,
      "%s: the array is in memory of the CPU; see to it that nothing is pending there, "
      "and say CUDALINK_STREAM_COMPLETE",
      call);
}

int cudalink_array_ready(cudalink_array *array, cudalink_stream stream) {
  if (!array) return is_null("cudalink_array_ready");
  if (!array->gpu) return check_cpu("cudalink_array_ready", array, stream);
  return gpu_array_ready(array->gpu, stream);
}

int cudalink_array_wait(cudalink_array *array, cudalink_stream stream) {
  if (!array) return is_null("cudalink_array_wait");
  if (!array->gpu) return check_cpu("cudalink_array_wait", array, stream);
  return gpu_array_wait(array->gpu, stream);
}

/* ---- parts --------------------------------------------------------------------------------------- */

static int check_inside(const cudalink_view *whole, const cudalink_view *part) {
  void *low, *low_part;
  uint64_t bytes, bytes_part = 0;
  int status = cudalink_view_extent(whole, &low, &bytes);
  if (status == CUDALINK_OK) status = cudalink_view_extent(part, &low_part, &bytes_part);
  if (status < 0 || bytes_part == 0) return status;
  uintptr_t start = (uintptr_t)low, start_part = (uintptr_t)low_part;
  if (start_part >= start && start_part - start <= bytes &&
      bytes_part <= bytes - (start_part - start))
    return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "cudalink_array_part: %llu byte%s at %p %s not inside of the array's %llu at %p",
                   (unsigned long long)bytes_part, error_s(bytes_part), low_part,
                   bytes_part == 1 ? "is" : "are", (unsigned long long)bytes, low);
}

int cudalink_array_part(cudalink_array **part, cudalink_array *array, const cudalink_view *view) {
  if (!part || !array || !view) return is_null("cudalink_array_part");
  int status = check_inside(&array->view, view);
  if (status < 0) return status;
  cudalink_view kept = *view;
  kept.device = array->view.device;
  kept.flags |= array->view.flags;
  if (view_is_empty(&kept)) kept.data = NULL; /* it lies nowhere, as when it is taken */
  status = make(part, &kept, array, cudalink_array_drop);
  if (status < 0) return status;
  cudalink_array_retain(array);
  (*part)->gpu = array->gpu;
  (*part)->is_part = true;
  return CUDALINK_OK;
}

/* ---- copies -------------------------------------------------------------------------------------- */

/* What the copy will look like, but for its address. */
static int plan_copy(const cudalink_array *array, cudalink_view *view, int64_t *bytes) {
  *view = array->view;
  if (!view_fill_strides(view, bytes) || *bytes > INT64_MAX - ALIGNMENT)
    return error_set(CUDALINK_ERROR_TOO_LARGE, "a copy of the array would pass 63 bits");
  view->flags = (view->flags & CUDALINK_DLPACK_PADDED) | CUDALINK_DLPACK_IS_COPIED;
  return CUDALINK_OK;
}

int cudalink_array_to_host(cudalink_array **copy, cudalink_array *array, cudalink_stream stream) {
  static const char call[] = "cudalink_array_to_host";
  cudalink_view view;
  int64_t bytes;
  if (!copy || !array) return is_null(call);
  int status = plan_copy(array, &view, &bytes);
  if (status == CUDALINK_OK && !array->gpu) status = check_cpu(call, array, stream);
  if (status == CUDALINK_OK && array->gpu) status = gpu_array_wait(array->gpu, stream);
  if (status < 0) return status;
  void *memory = aligned_alloc(ALIGNMENT, ((size_t)bytes / ALIGNMENT + 1) * ALIGNMENT);
  if (!memory)
    return error_set(CUDALINK_ERROR_NO_MEMORY, "%s: no memory for %lld bytes", call,
                     (long long)bytes);
  view.device = (cudalink_dlpack_device){CUDALINK_DLPACK_CPU, 0};
  view.data = bytes ? memory : NULL;
  if (!array->gpu) {
    view_copy_dense(&array->view, memory);
  } else {
    status = view_copy_by_gpu(&array->view, memory, array->gpu, stream, true);
    int finished = gpu_array_finish(array->gpu, stream); /* also what was queued before a failure */
    if (status == CUDALINK_OK) status = finished;
  }
  if (status == CUDALINK_OK) status = make(copy, &view, memory, free);
  if (status < 0) free(memory);
  return status;
}

static int fill_gpu(struct gpu_array *gpu, const cudalink_array *array, cudalink_view *view,
                    int64_t bytes, cudalink_stream stream) {
  int status = gpu_array_wait(array->gpu, stream);
  if (status == CUDALINK_OK) status = gpu_array_allocate(gpu, stream, (uint64_t)bytes, &view->data);
  if (status == CUDALINK_OK)
    status = view_copy_by_gpu(&array->view, view->data, gpu, stream, false);
  int noted = stream.kind == CUDALINK_STREAM_KIND_COMPLETE ? gpu_array_finish(gpu, stream)
                                                           : gpu_array_ready(gpu, stream);
  return status < 0 ? status : noted;
}

int cudalink_array_copy(cudalink_array **copy, cudalink_array *array, cudalink_stream stream) {
  cudalink_view view;
  struct gpu_array *gpu;
  int64_t bytes;
  if (!copy || !array) return is_null("cudalink_array_copy");
  if (array->view.device.type != CUDALINK_DLPACK_CUDA)
    return cudalink_array_to_host(copy, array, stream);
  int status = plan_copy(array, &view, &bytes);
  if (status == CUDALINK_OK && !view.data) return make(copy, &view, NULL, NULL);
  if (status == CUDALINK_OK) status = make_gpu(&view, &gpu);
  if (status < 0) return status;
  status = fill_gpu(gpu, array, &view, bytes, stream);
  if (status == CUDALINK_OK) status = make(copy, &view, NULL, NULL);
  if (status == CUDALINK_OK)
    (*copy)->gpu = gpu;
  else
    reaper_call(free_gpu, gpu);
  return status;
}

/* ---- pinned memory ------------------------------------------------------------------------------------ */

static void drop_pinned(void *pinned) {
  if (!os_forked()) reaper_call(gpu_pinned_free, pinned);
}

static int describe_dense(cudalink_view *view, cudalink_dtype dtype, uint32_t dimensions,
                          const int64_t *shape, int64_t *bytes) {
  static const char call[] = "cudalink_array_pinned";
  if (dimensions > CUDALINK_MAX_DIMENSIONS || (dimensions && !shape))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: %u dimension%s; there may be %d", call,
                     dimensions, error_s(dimensions), CUDALINK_MAX_DIMENSIONS);
  *view = (cudalink_view){
      .device = {CUDALINK_DLPACK_CUDA_HOST, 0}, .dtype = dtype, .dimensions = dimensions};
  for (uint32_t d = 0; d < dimensions; d++) {
    if (shape[d] < 0)
      return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: extent %u is negative (%lld)", call, d,
                       (long long)shape[d]);
    view->shape[d] = shape[d];
  }
  if (!dtype.bits || !dtype.lanes)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: a type of %u bit%s, %u lane%s", call,
                     dtype.bits, error_s(dtype.bits), dtype.lanes, error_s(dtype.lanes));
  if (view_fill_strides(view, bytes)) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_TOO_LARGE, "%s: more bytes than 63 bits say", call);
}

int cudalink_array_pinned(cudalink_array **array, int32_t device, cudalink_dtype dtype,
                          uint32_t dimensions, const int64_t *shape) {
  cudalink_view view;
  struct gpu_pinned *pinned = NULL;
  int64_t bytes = 0;
  if (!array) return is_null("cudalink_array_pinned");
  int status = service_check_fork();
  if (status == CUDALINK_OK) status = describe_dense(&view, dtype, dimensions, shape, &bytes);
  if (status == CUDALINK_OK) status = reaper_start();
  if (status == CUDALINK_OK && bytes)
    status = gpu_pinned_make(device ? device - 1 : 0, (uint64_t)bytes, &pinned, &view.data);
  if (status < 0) return status;
  status = make(array, &view, pinned, pinned ? drop_pinned : NULL);
  if (status < 0 && pinned) drop_pinned(pinned);
  return status;
}
