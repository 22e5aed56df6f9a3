/* SPDX-License-Identifier: MIT
 *
 * The C exchange table of DLPack 1.3, both ways: ours, which C code takes frames and arrays by without a
 * call of Python, and those of other types. Neither synchronises: who takes a tensor by a table works on
 * the stream that the table calls current, or orders itself behind it.
 *
 * We queue nothing, so our current stream is the legacy default stream: a pending frame makes it wait, and
 * what is given to us is taken to be complete behind it.
 */
#include "table.h"

#include <stdlib.h>

#include "lease.h"
#include "lock.h"

#define ALIGNMENT 64u /* some consumers copy what is aligned less */

static const char capsule_name[] = "dlpack_exchange_api";

/* ---- ours ------------------------------------------------------------------------------------------- */

static int one_plane_only(const struct core_lease *lease) {
  uint32_t planes = lease->frame.description.plane_count;
  if (planes == 1) return 0;
  PyErr_Format(PyExc_BufferError, "this frame has %u planes; export one: frame.tensor(name)",
               planes);
  return -1;
}

static int from_lease(void *object, cudalink_dlpack_versioned **tensor) {
  const struct core_lease *lease = object;
  cudalink_stream stream = {.kind = CUDALINK_STREAM_NOT_SAID};
  cudalink_view view;
  if (lease->frame.device) stream = CUDALINK_STREAM_LEGACY;
  if (!core_lease_hold(lease) || one_plane_only(lease) < 0) return -1;
  cudalink_hold *hold = core_lease_keep(lease, stream);
  if (!hold) return -1;
  int status = cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0);
  if (status == CUDALINK_OK)
    status = cudalink_dlpack_export(&view, hold, cudalink_hold_drop, tensor);
  if (status == CUDALINK_OK) return 0;
  core_refuse(lease->module, status);
  cudalink_hold_drop(hold);
  return -1;
}

static int from_frame(void *object, cudalink_dlpack_versioned **tensor) {
  int status;
  CORE_LOCK((PyObject *)object);
  status = from_lease(object, tensor);
  CORE_UNLOCK();
  return status;
}

static int from_array(void *object, cudalink_dlpack_versioned **tensor) {
  cudalink_array *array = core_array_of_object(object);
  cudalink_view view = *cudalink_array_view(array);
  int status = CUDALINK_OK;
  view.flags &= ~CUDALINK_DLPACK_IS_COPIED;
  if (view.device.type == CUDALINK_DLPACK_CUDA && view.data) {
    Py_BEGIN_ALLOW_THREADS;
    status = cudalink_array_wait(array, CUDALINK_STREAM_LEGACY);
    Py_END_ALLOW_THREADS;
  }
  if (status == CUDALINK_OK)
    status = cudalink_dlpack_export(&view, array, cudalink_array_drop, tensor);
  if (status < 0) return core_refuse(core_array_module(object), status), -1;
  cudalink_array_retain(array); /* the tensor's */
  return 0;
}

/* On failure the tensor is left alone: whose it is then DLPack does not say, and a leak is better than a
 * second delete. So the object is made first. */
static PyObject *array_with(PyObject *module, PyTypeObject *type,
                            cudalink_dlpack_versioned *tensor) {
  PyObject *made = core_array_new(module, type, NULL);
  if (!made) return NULL;
  cudalink_array **array = core_array_place(made);
  int status = cudalink_array_take(array, tensor);
  if (status < 0) {
    core_refuse(module, status);
    Py_DECREF(made);
    return NULL;
  }
  const cudalink_view *view = cudalink_array_view(*array);
  if (view->device.type == CUDALINK_DLPACK_CUDA && view->data)
    cudalink_array_ready(*array, CUDALINK_STREAM_LEGACY);
  return made;
}

static int to_array(cudalink_dlpack_versioned *tensor, void **object) {
  PyObject *arrays = PyImport_ImportModule("cuda_link._array");
  PyObject *type = arrays ? PyObject_GetAttrString(arrays, "Array") : NULL;
  PyObject *core = type ? PyImport_ImportModule("cuda_link._core") : NULL;
  PyObject *made = core ? array_with(core, (PyTypeObject *)type, tensor) : NULL;
  if (made) *object = made;
  Py_XDECREF(core);
  Py_XDECREF(type);
  Py_XDECREF(arrays);
  return made ? 0 : -1;
}

static const char *allocate_like(const cudalink_dlpack_tensor *prototype,
                                 cudalink_dlpack_versioned **tensor) {
  cudalink_view view;
  uint64_t bytes;
  cudalink_dlpack_tensor dense = {.data = &view, /* any address: nobody reads there */
                                  .device = prototype->device,
                                  .dimensions = prototype->dimensions,
                                  .dtype = prototype->dtype,
                                  .shape = prototype->shape};
  if (prototype->device.type != CUDALINK_DLPACK_CPU)
    return "cuda_link allocates tensors in memory of the CPU only";
  if (cudalink_dlpack_import_tensor(&dense, 0, &view) < 0 ||
      cudalink_view_extent(&view, NULL, &bytes) < 0)
    return cudalink_last_error();
  if (bytes > SIZE_MAX - ALIGNMENT) return "the tensor is too large";
  void *memory = aligned_alloc(ALIGNMENT, ((size_t)bytes / ALIGNMENT + 1) * ALIGNMENT);
  if (!memory) return "no memory for the tensor";
  view.data = memory;
  if (cudalink_dlpack_export(&view, memory, free, tensor) == CUDALINK_OK) return NULL;
  free(memory);
  return cudalink_last_error();
}

static int allocate(cudalink_dlpack_tensor *prototype, cudalink_dlpack_versioned **tensor,
                    void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message)) {
  const char *failure = allocate_like(prototype, tensor);
  if (!failure) return 0;
  if (set_error) set_error(error_context, "BufferError", failure);
  return -1;
}

static int current_stream(int32_t device_type, int32_t device_id, void **stream) {
  (void)device_id;
  bool on_gpu = device_type == CUDALINK_DLPACK_CUDA || device_type == CUDALINK_DLPACK_CUDA_MANAGED;
  *stream = on_gpu ? (void *)1 : NULL; /* CU_STREAM_LEGACY */
  return 0;
}

#define TABLE(from)                                                                                \
  {                                                                                                \
    .header = {{CUDALINK_DLPACK_VERSION_MAJOR, CUDALINK_DLPACK_VERSION_MINOR}, NULL},              \
    .allocate = allocate, .from_object = from, .to_object = to_array,                              \
    .current_stream = current_stream                                                               \
  }
static cudalink_dlpack_exchange frame_table = TABLE(from_frame), array_table = TABLE(from_array);

/* table_offer(type): a subclass of Lease or Array gets our table. */
static PyObject *table_offer(PyObject *module, PyObject *type) {
  struct core_state *state = core_state(module);
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "%R is no type", type);
  bool is_frame = PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)state->lease_type);
  if (!is_frame && core_array_check_type(module, type) < 0) return NULL;
  PyObject *capsule = PyCapsule_New(is_frame ? &frame_table : &array_table, capsule_name, NULL);
  if (!capsule) return NULL;
  int status = PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule);
  Py_DECREF(capsule);
  return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- others' ------------------------------------------------------------------------------------------ */

const cudalink_dlpack_exchange *core_table_of(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, capsule_name)) return NULL;
  const cudalink_dlpack_exchange_header *header = PyCapsule_GetPointer(capsule, capsule_name);
  while (header && header->version.major != CUDALINK_DLPACK_VERSION_MAJOR)
    header = header->previous;
  return (const cudalink_dlpack_exchange *)header;
}

cudalink_stream core_stream_of(void *handle) {
  uintptr_t number = (uintptr_t)handle; /* 0 and 1: legacy; 2: per thread */
  return number > 2    ? CUDALINK_STREAM_HANDLE(handle)
         : number == 2 ? CUDALINK_STREAM_PER_THREAD
                       : CUDALINK_STREAM_LEGACY;
}

static int ask_stream(const cudalink_dlpack_exchange *table,
                      const cudalink_dlpack_versioned *tensor, void **stream) {
  cudalink_dlpack_device device = tensor->tensor.device;
  *stream = NULL;
  if (device.type != CUDALINK_DLPACK_CUDA && device.type != CUDALINK_DLPACK_CUDA_MANAGED) return 0;
  return table->current_stream ? table->current_stream(device.type, device.id, stream) : -1;
}

static void delete_tensor(void *pointer) {
  cudalink_dlpack_versioned *tensor = pointer;
  tensor->deleter(tensor);
}

/* table_take(capsule, object, type) -> (an array of type, handle of the stream behind which it is complete);
 * None: not by this table, whose errors are not told: __dlpack__ will say what there is to say. */
static PyObject *table_take(PyObject *module, PyObject *arguments) {
  PyObject *capsule, *object, *type;
  cudalink_dlpack_versioned *tensor = NULL;
  cudalink_array *array;
  void *stream;
  if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &object, &type)) return NULL;
  if (core_array_check_type(module, type) < 0) return NULL;
  const cudalink_dlpack_exchange *table = core_table_of(capsule);
  if (!table || !table->from_object || table->from_object(object, &tensor) < 0) tensor = NULL;
  if (!tensor || tensor->version.major != CUDALINK_DLPACK_VERSION_MAJOR ||
      ask_stream(table, tensor, &stream) < 0 || cudalink_array_take(&array, tensor) < 0) {
    if (tensor && tensor->deleter) core_drop(delete_tensor, tensor);
    return core_overlook() < 0 ? NULL : Py_NewRef(Py_None);
  }
  PyObject *taken = core_array_new(module, (PyTypeObject *)type, array);
  return taken ? Py_BuildValue("NK", taken, (unsigned long long)(uintptr_t)stream) : NULL;
}

PyMethodDef core_table_methods[] = {
    {"table_offer", table_offer, METH_O, NULL},
    {"table_take", table_take, METH_VARARGS, NULL},
    {0},
};
