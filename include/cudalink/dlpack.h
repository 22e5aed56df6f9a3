/* SPDX-License-Identifier: MIT
 *
 * cudalink/dlpack.h - frames as DLPack tensors, and DLPack tensors as frames.
 *
 * DLPack is the way in which PyTorch, CuPy, JAX, NumPy and others lend each other arrays inside one
 * process. This header has its structs under names of our own with the same layout (legacy, and
 * versioned as of DLPack 1.3), so it can be included beside dlpack.h; pointers are converted by a cast.
 *
 * In the middle is a cudalink_view: where an array lies and how, in plain data. It comes from a plane of
 * a frame, from a lent slot or from somebody's tensor; it can be cut down; it goes out as a tensor or
 * into a description for cudalink_exporter_send.
 *
 * ```c fragment
 * cudalink_exporter exporter;
 * cudalink_importer importer;
 * cudalink_description description = {0};
 * cudalink_describe_tensor(&description, "x", CUDALINK_FLOAT32, 2, (const int64_t[]){4, 6});
 * cudalink_exporter_open(&exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
 *     .name = "dlpack", .description = &description, .kind = CUDALINK_KIND_HOST});
 * cudalink_importer_open(&importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
 *     .name = "dlpack", .open_timeout = CUDALINK_FOREVER});
 * float numbers[24] = {1, 2, 3};
 * cudalink_exporter_send(exporter, &description, numbers, NULL, CUDALINK_STREAM_COMPLETE, 0);
 *
 * cudalink_frame frame;
 * cudalink_hold *hold;
 * cudalink_view view;
 * cudalink_dlpack_versioned *tensor;
 * cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER, &frame);
 * cudalink_hold_take(&hold, &frame);
 * cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0);
 * if (cudalink_dlpack_export(&view, cudalink_hold_retain(hold), cudalink_hold_drop, &tensor) < 0)
 *   return fprintf(stderr, "%s\n", cudalink_last_error()), 1;
 * cudalink_hold_drop(hold);     // the tensor has a reference of its own
 * printf("%g\n", ((float *)tensor->tensor.data)[2]);
 * tensor->deleter(tensor);      // the last one: the frame goes back
 * cudalink_importer_close(importer);
 * cudalink_exporter_close(exporter);
 * ```
 */
#ifndef CUDALINK_DLPACK_H
#define CUDALINK_DLPACK_H

#include "cudalink/exporter.h"
#include "cudalink/frame.h"
#include "cudalink/hold.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DLPack's own structs ---------------------------------------------------------------------- */

#define CUDALINK_DLPACK_VERSION_MAJOR 1
#define CUDALINK_DLPACK_VERSION_MINOR 3

/* Kinds of memory that views can be in; DLPack numbers others too, which are refused by name. */
typedef enum cudalink_dlpack_device_type {
  CUDALINK_DLPACK_CPU = 1,
  CUDALINK_DLPACK_CUDA = 2,
  CUDALINK_DLPACK_CUDA_HOST = 3, /* pinned memory of the CPU */
  CUDALINK_DLPACK_CUDA_MANAGED = 13
} cudalink_dlpack_device_type;

typedef struct cudalink_dlpack_device { /* DLDevice */
  int32_t type;                         /* cudalink_dlpack_device_type */
  int32_t id; /* ordinal of the GPU as this process counts; 0 for the CPU */
} cudalink_dlpack_device;

/* Flags of a versioned tensor and of a view. */
#define CUDALINK_DLPACK_READ_ONLY UINT64_C(1)
#define CUDALINK_DLPACK_IS_COPIED UINT64_C(2) /* nobody else has this memory */
/* Each element of less than 8 bits fills a byte. Otherwise they lie side by side. */
#define CUDALINK_DLPACK_PADDED UINT64_C(4)

typedef struct cudalink_dlpack_tensor { /* DLTensor */
  void *data;
  cudalink_dlpack_device device;
  int32_t dimensions;
  cudalink_dtype dtype;
  int64_t *shape;
  int64_t *strides;     /* in elements; NULL = row-major without gaps */
  uint64_t byte_offset; /* of the first element from data */
} cudalink_dlpack_tensor;

typedef struct cudalink_dlpack_legacy { /* DLManagedTensor; capsule "dltensor" */
  cudalink_dlpack_tensor tensor;
  void *manager_context;
  void (*deleter)(struct cudalink_dlpack_legacy *self);
} cudalink_dlpack_legacy;

typedef struct cudalink_dlpack_version { /* DLPackVersion */
  uint32_t major;
  uint32_t minor;
} cudalink_dlpack_version;

typedef struct cudalink_dlpack_versioned { /* DLManagedTensorVersioned; "dltensor_versioned" */
  cudalink_dlpack_version version;
  void *manager_context;
  void (*deleter)(struct cudalink_dlpack_versioned *self);
  uint64_t flags;
  cudalink_dlpack_tensor tensor;
} cudalink_dlpack_versioned;

/* The table that a Python type offers as __dlpack_c_exchange_api__ (DLPack 1.3): tensors change hands
 * without Python calls and without synchronisation. `object` is a PyObject *. Functions return 0, or -1
 * with a Python exception set. The library has no such table of its own; language bindings do. */
typedef struct cudalink_dlpack_exchange_header { /* DLPackExchangeAPIHeader */
  cudalink_dlpack_version version;
  struct cudalink_dlpack_exchange_header *previous;
} cudalink_dlpack_exchange_header;

typedef struct cudalink_dlpack_exchange { /* DLPackExchangeAPI */
  cudalink_dlpack_exchange_header header;
  int (*allocate)(cudalink_dlpack_tensor *prototype, cudalink_dlpack_versioned **tensor,
                  void *error_context,
                  void (*set_error)(void *error_context, const char *kind, const char *message));
  int (*from_object)(void *object, cudalink_dlpack_versioned **tensor);
  int (*to_object)(cudalink_dlpack_versioned *tensor, void **object);
  int (*borrow_from_object)(void *object, cudalink_dlpack_tensor *tensor); /* may be NULL */
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} cudalink_dlpack_exchange;

/* ---- views -------------------------------------------------------------------------------------- */

/* An array somewhere in memory, as plain data. Element (i0, i1, ...) is at
 * data + sum(ik * strides[k]); strides are in bytes and may be 0 or negative. Elements of less than 8
 * bits that are not PADDED lie side by side in the last dimension, the first one in the low bits; that
 * dimension's stride is written as 0. Nobody owns anything through a view. */
typedef struct cudalink_view {
  void *data; /* element (0, 0, ...); NULL when the view is empty */
  cudalink_dlpack_device device;
  uint64_t flags; /* CUDALINK_DLPACK_READ_ONLY | ... */
  cudalink_dtype dtype;
  uint32_t dimensions;
  int64_t shape[CUDALINK_MAX_DIMENSIONS];
  int64_t strides[CUDALINK_MAX_DIMENSIONS];
} cudalink_view;

/* Looks at plane `plane` of a held frame; READ_ONLY unless the frame is mapped writable. The view is good as
 * long as the frame is held. Errors: INVALID_ARGUMENT (no such plane), UNSUPPORTED (the frame was
 * published as invalid). */
CUDALINK_API int cudalink_view_of_frame(cudalink_view *view, const cudalink_frame *frame,
                                        uint32_t plane);

/* Looks at plane `plane` of a begun slot that will be published with this description: to be written. The view
 * is good until publish or abandon, and so is every tensor made of it. With a cudalink_slot_hold as its owner a
 * tensor's memory stays mapped for as long as it lives.
 * Errors: INVALID_ARGUMENT (no such plane, or it ends behind the slot). */
CUDALINK_API int cudalink_view_of_slot(cudalink_view *view, const cudalink_slot *slot,
                                       const cudalink_description *description, uint32_t plane);

/* Cuts a view down, in place: fixes one index (the dimension goes away), or takes `count` elements from
 * `start` on, `step` apart (may be negative, not 0). Indices count from 0 and are checked. Errors:
 * INVALID_ARGUMENT with the values; UNSUPPORTED where elements of less than a byte would begin inside
 * one; both leave the view as it was. */
CUDALINK_API int cudalink_view_index(cudalink_view *view, uint32_t dimension, int64_t index);
CUDALINK_API int cudalink_view_slice(cudalink_view *view, uint32_t dimension, int64_t start,
                                     int64_t count, int64_t step);

/* Measures the bytes that a view touches: from the lowest address to behind the highest; 0 when it is empty.
 * Checks the view: type, shape, strides, with 64-bit arithmetic that notices overflow. Errors:
 * INVALID_ARGUMENT with the values. `low` may be NULL. */
CUDALINK_API int cudalink_view_extent(const cudalink_view *view, void **low, uint64_t *bytes);

/* Whether a view is dense. 1: row-major without gaps. Dimensions of one element, and empty views, do not matter. */
CUDALINK_API int cudalink_view_is_dense(const cudalink_view *view);

/* Adds the view as the next plane of a description, at offset 0: for cudalink_exporter_send with one
 * plane, `data` = view->data. Errors: UNSUPPORTED (negative strides: copy it first; PADDED),
 * INVALID_ARGUMENT, TOO_LARGE (the product of the shape passes 63 bits). */
CUDALINK_API int cudalink_describe_view(cudalink_description *description, const char *name,
                                        const cudalink_view *view);

/* ---- out: tensors for others ------------------------------------------------------------------- */

/* Makes a tensor of a view. Each call makes a new one, and there may be any number of one frame.
 *
 * `owner` keeps the memory: the tensor's deleter calls drop(owner) once, then frees the tensor. For a
 * frame: cudalink_hold_retain(hold), cudalink_hold_drop. Both may be NULL (the caller then sees to it
 * that the memory outlives the tensor). On failure the owner is still the caller's. The deleter is plain
 * C, makes no CUDA call, and may be called on any thread, with any or no CUDA context current; as DLPack
 * says, once.
 *
 * Written as DLPack's consumers want it: byte_offset 0, strides always there, unchanged also where a
 * dimension has one element, data NULL when empty. Order is not the tensor's business: make the
 * consumer's stream wait first (cudalink_hold_wait).
 *
 * A legacy tensor can't say READ_ONLY: whoever makes one of a read-only view must know that its
 * consumer does not write (NumPy and JAX do not; torch and CuPy would).
 *
 * Errors: UNSUPPORTED with the values: a stride that is no multiple of the element's size, an address
 * that is not aligned to it (consumers read such memory wrongly or fault), a packed row that does not
 * begin at a whole element, PADDED in a legacy tensor. INVALID_ARGUMENT, NO_MEMORY. */
CUDALINK_API int cudalink_dlpack_export(const cudalink_view *view, void *owner,
                                        void (*drop)(void *owner),
                                        cudalink_dlpack_versioned **tensor);
CUDALINK_API int cudalink_dlpack_export_legacy(const cudalink_view *view, void *owner,
                                               void (*drop)(void *owner),
                                               cudalink_dlpack_legacy **tensor);

/* ---- in: tensors of others --------------------------------------------------------------------- */

/* Looks at somebody's tensor and describes it as a view; takes nothing over. All of it is checked:
 * device, type, sizes, overflow. NULL strides mean row-major, byte_offset is added to data, unknown
 * flags are dropped.
 *
 * For device types 2 and 13 the CUDA driver is asked about the address: the view's device is what it
 * says (libraries number GPUs differently; managed memory is often declared as plain), and an address
 * that it does not know is refused.
 *
 * Errors: VERSION (another major version: the only thing that may still be done with this tensor is to
 * call its deleter), UNSUPPORTED (a device of another kind, named; an opaque handle; more than 8
 * dimensions; a type that DLPack does not know), INVALID_ARGUMENT (negative extent, NULL data that is
 * not empty, sizes that pass 63 bits, memory that is not CUDA's). */
CUDALINK_API int cudalink_dlpack_import(const cudalink_dlpack_versioned *tensor,
                                        cudalink_view *view);
CUDALINK_API int cudalink_dlpack_import_legacy(const cudalink_dlpack_legacy *tensor,
                                               cudalink_view *view);
/* Looks at a bare tensor in the same way, as the exchange table lends one; `flags` as in a versioned tensor. */
CUDALINK_API int cudalink_dlpack_import_tensor(const cudalink_dlpack_tensor *tensor, uint64_t flags,
                                               cudalink_view *view);

/* The name of a device type: "CPU", "CUDA", "CUDA host", "Vulkan", ... for any number; "unknown" for one that DLPack 1.3 does not
 * have. Static. */
CUDALINK_API const char *cudalink_dlpack_device_name(int32_t type);

/* ---- arrays: somebody's tensor, kept ------------------------------------------------------------ */

/* A view together with what keeps its memory: a tensor that was taken over, or memory of the library's
 * own. Counted: all functions may be called on any thread; the last drop calls the tensor's deleter (on
 * the thread that drops, with no lock held). The view never changes. */
typedef struct cudalink_array cudalink_array;

/* Takes the tensor over; it lives as long as any array made of it. On failure it is still the
 * caller's, to be deleted. Errors: as import; NO_MEMORY. */
CUDALINK_API int cudalink_array_take(cudalink_array **array, cudalink_dlpack_versioned *tensor);
CUDALINK_API int cudalink_array_take_legacy(cudalink_array **array, cudalink_dlpack_legacy *tensor);

/* The view of an array, valid as long as the caller has it. */
CUDALINK_API const cudalink_view *cudalink_array_view(const cudalink_array *array);

/* Another array over the same memory: `view` is a part of it, made with cudalink_view_index and
 * cudalink_view_slice. READ_ONLY stays. Errors: INVALID_ARGUMENT (it reaches out of the array),
 * NO_MEMORY. */
CUDALINK_API int cudalink_array_part(cudalink_array **part, cudalink_array *array,
                                     const cudalink_view *view);

/* Order on a GPU. `ready` says that the contents are complete once the work queued on `stream` so far is
 * done (a tensor that was taken: the stream that its producer was asked for). `wait` makes later work of
 * a stream wait for that, without the CPU; COMPLETE: the call waits. Parts share both with their array.
 * In memory of the CPU there is nothing to order, and only COMPLETE is allowed; an empty array of a GPU
 * takes any stream. Errors: STREAM, CAPTURING (it is not complete yet, and the stream captures a graph),
 * BUSY (more than CUDALINK_HOLD_STREAMS streams). */
CUDALINK_API int cudalink_array_ready(cudalink_array *array, cudalink_stream stream);
CUDALINK_API int cudalink_array_wait(cudalink_array *array, cudalink_stream stream);

/* A copy in memory of its own, writable and row-major. What is in memory of the CPU, pinned or managed,
 * is copied by the CPU into memory of the CPU before the call returns, and `stream` must be COMPLETE.
 * GPU memory is copied on the same GPU: by `stream`, behind what is queued there, and the copy is ready
 * on it (with COMPLETE: at return); until then the array must stay. The copy's memory comes from the
 * driver's pool and is freed behind every stream that it was ready on or that waited for it, so these
 * must exist as long. Errors: STREAM, CAPTURING, NO_MEMORY, TOO_LARGE, GPU; UNSUPPORTED where the
 * strides of GPU memory would take more than 4096 copies. */
CUDALINK_API int cudalink_array_copy(cudalink_array **copy, cudalink_array *array,
                                     cudalink_stream stream);
/* The same into memory of the CPU, from wherever it is. Blocks until it is there. */
CUDALINK_API int cudalink_array_to_host(cudalink_array **copy, cudalink_array *array,
                                        cudalink_stream stream);

/* A dense array in pinned memory of the CPU, with any contents: what frames of a GPU are
 * copied to fastest (cudalink_frame_to_host). `device` = CUDALINK_DEVICE(ordinal) of a GPU that will be used anyway; 0 =
 * the first. Blocks for the driver's call, which takes milliseconds: make it once and use it again.
 *
 * `*array` is the caller's; cudalink_array_drop gives it back, on any thread. A thread of the library (the
 * reaper) then frees the memory, since that waits for the whole GPU; no exporter's gpu_waits counts it.
 * Errors: INVALID_ARGUMENT, NO_MEMORY, TOO_LARGE, UNSUPPORTED (no such GPU, no driver), GPU,
 * SYSTEM (no thread for it), FORKED. */
CUDALINK_API int cudalink_array_pinned(cudalink_array **array, int32_t device, cudalink_dtype dtype,
                                       uint32_t dimensions, const int64_t *shape);

/* One holder more; returns `array`. */
CUDALINK_API cudalink_array *cudalink_array_retain(cudalink_array *array);
/* One holder less. NULL is allowed. For cudalink_dlpack_export: cudalink_array_retain(array), cudalink_array_drop. */
CUDALINK_API void cudalink_array_drop(void *array);

#ifdef __cplusplus
}
#endif
#endif
