/* SPDX-License-Identifier: MIT
 *
 * Array: somebody's tensor, kept (cudalink_array). The last reference calls its deleter, with the GIL:
 * it may be Python's.
 */
#include "core.h"

struct array {
  PyObject_HEAD;
  PyObject *module; /* its type keeps it */
  cudalink_array *array;
};

static cudalink_array *array_of(PyObject *self) { return ((struct array *)self)->array; }

static PyObject *module_of(PyObject *self) { return ((struct array *)self)->module; }

cudalink_array *core_array_of_object(PyObject *self) { return array_of(self); }

cudalink_array **core_array_place(PyObject *self) { return &((struct array *)self)->array; }

PyObject *core_array_module(PyObject *self) { return module_of(self); }

PyObject *core_array_new(PyObject *module, PyTypeObject *type, cudalink_array *array) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  struct array *object = (struct array *)allocate(type, 0);
  if (!object) {
    core_drop(cudalink_array_drop, array);
    return NULL;
  }
  object->module = module;
  object->array = array;
  return (PyObject *)object;
}

int core_array_check_type(PyObject *module, PyObject *type) {
  if (PyType_Check(type) &&
      PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)core_state(module)->array_type))
    return 0;
  PyErr_Format(PyExc_TypeError, "%R is no subclass of Array", type);
  return -1;
}

static PyObject *refuse(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)type, (void)arguments, (void)keywords;
  PyErr_SetString(PyExc_TypeError, "arrays are made by cuda_link.from_dlpack");
  return NULL;
}

/* The dense view of a buffer. */
static void fill_strides(cudalink_view *view) {
  int64_t step = view->dtype.bits * view->dtype.lanes / 8;
  for (uint32_t i = view->dimensions; i-- > 0; step *= view->shape[i])
    view->strides[i] = step;
}

static PyObject *copy_of(PyObject *module, PyTypeObject *type, const cudalink_view *view) {
  cudalink_dlpack_versioned *tensor;
  cudalink_array *borrowed = NULL, *copy = NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_dlpack_export(view, NULL, NULL, &tensor);
  if (status == CUDALINK_OK) {
    status = cudalink_array_take(&borrowed, tensor);
    if (status < 0) tensor->deleter(tensor);
  }
  if (status == CUDALINK_OK)
    status = cudalink_array_copy(&copy, borrowed, CUDALINK_STREAM_COMPLETE);
  cudalink_array_drop(borrowed);
  Py_END_ALLOW_THREADS;
  return status < 0 ? core_fail(module, status) : core_array_new(module, type, copy);
}

/* array_of(buffer, code, bits, lanes, shape, type) -> array in memory of its own, with the elements of a
 * dense buffer, which the caller knows to be as large. */
PyObject *core_array_of(PyObject *module, PyObject *arguments) {
  Py_buffer data;
  PyObject *shape, *type;
  cudalink_view view = {.device = {CUDALINK_DLPACK_CPU, 0}};
  if (!PyArg_ParseTuple(arguments, "y*bbHO!O", &data, &view.dtype.code, &view.dtype.bits,
                        &view.dtype.lanes, &PyTuple_Type, &shape, &type))
    return NULL;
  int dimensions = core_array_check_type(module, type);
  if (dimensions >= 0) dimensions = core_shape(shape, view.shape);
  PyObject *answer = NULL;
  if (dimensions >= 0) {
    view.dimensions = (uint32_t)dimensions;
    view.data = data.buf;
    fill_strides(&view);
    answer = copy_of(module, (PyTypeObject *)type, &view);
  }
  PyBuffer_Release(&data);
  return answer;
}

/* array_pinned(device as in frames, code, bits, lanes, shape, type) -> dense array in pinned memory */
PyObject *core_array_pinned(PyObject *module, PyObject *arguments) {
  PyObject *shape, *type;
  cudalink_dtype dtype;
  cudalink_array *array = NULL;
  int64_t extents[CUDALINK_MAX_DIMENSIONS];
  int device, status;
  if (!PyArg_ParseTuple(arguments, "ibbHO!O", &device, &dtype.code, &dtype.bits, &dtype.lanes,
                        &PyTuple_Type, &shape, &type))
    return NULL;
  int dimensions = core_array_check_type(module, type) < 0 ? -1 : core_shape(shape, extents);
  if (dimensions < 0) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_array_pinned(&array, device, dtype, (uint32_t)dimensions, extents);
  Py_END_ALLOW_THREADS;
  return status < 0 ? core_fail(module, status)
                    : core_array_new(module, (PyTypeObject *)type, array);
}

static PyObject *tuple_of(const int64_t *numbers, uint32_t count) {
  PyObject *tuple = PyTuple_New((Py_ssize_t)count);
  for (uint32_t i = 0; tuple && i < count; i++) {
    PyObject *number = PyLong_FromLongLong(numbers[i]);
    if (number && PyTuple_SetItem(tuple, (Py_ssize_t)i, number) == 0) continue;
    Py_CLEAR(tuple);
  }
  return tuple;
}

/* _look() -> address, device type, device id, flags, code, bits, lanes, shape, strides in bytes, dense */
static PyObject *array_look(PyObject *self, PyObject *unused) {
  (void)unused;
  const cudalink_view *view = cudalink_array_view(array_of(self));
  PyObject *shape = tuple_of(view->shape, view->dimensions);
  PyObject *strides = shape ? tuple_of(view->strides, view->dimensions) : NULL;
  if (!strides) {
    Py_XDECREF(shape);
    return NULL;
  }
  return Py_BuildValue("KiiKBBHNNN", (unsigned long long)(uintptr_t)view->data, view->device.type,
                       view->device.id, (unsigned long long)view->flags, view->dtype.code,
                       view->dtype.bits, view->dtype.lanes, shape, strides,
                       PyBool_FromLong(cudalink_view_is_dense(view)));
}

/* _extent() -> lowest address that the array touches, bytes from there on */
static PyObject *array_extent(PyObject *self, PyObject *unused) {
  (void)unused;
  void *low = NULL;
  uint64_t bytes;
  int status = cudalink_view_extent(cudalink_array_view(array_of(self)), &low, &bytes);
  if (status < 0) return core_fail(module_of(self), status);
  return Py_BuildValue("KK", (unsigned long long)(uintptr_t)low, (unsigned long long)bytes);
}

/* ---- other arrays of it -------------------------------------------------------------------------- */

typedef int copy_function(cudalink_array **, cudalink_array *, cudalink_stream);

static PyObject *copy_by(PyObject *self, PyObject *arguments, copy_function *call) {
  unsigned kind;
  unsigned long long handle;
  if (!PyArg_ParseTuple(arguments, "IK", &kind, &handle)) return NULL;
  cudalink_array *copy;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = call(&copy, array_of(self), core_stream(kind, handle));
  Py_END_ALLOW_THREADS;
  return status < 0 ? core_fail(module_of(self), status)
                    : core_array_new(module_of(self), Py_TYPE(self), copy);
}

/* _copy(kind, handle): dense, on the same device, writable */
static PyObject *array_copy(PyObject *self, PyObject *arguments) {
  return copy_by(self, arguments, cudalink_array_copy);
}

/* _to_host(kind, handle): the same in memory of the CPU */
static PyObject *array_to_host(PyObject *self, PyObject *arguments) {
  return copy_by(self, arguments, cudalink_array_to_host);
}

/* One cut: (dimension, index), or (dimension, start, count, step). */
static int cut(cudalink_view *view, PyObject *tuple) {
  unsigned dimension = 0;
  long long start = 0, count = -1, step = 1;
  if (!PyArg_ParseTuple(tuple, "IL|LL", &dimension, &start, &count, &step))
    return CUDALINK_ERROR_INVALID_ARGUMENT;
  return count < 0 ? cudalink_view_index(view, dimension, start)
                   : cudalink_view_slice(view, dimension, start, count, step);
}

/* _part(tuple of cuts) -> the array cut down, one cut after the other */
static PyObject *array_part(PyObject *self, PyObject *cuts) {
  if (!PyTuple_Check(cuts)) return PyErr_Format(PyExc_TypeError, "a tuple is needed, not %R", cuts);
  cudalink_view view = *cudalink_array_view(array_of(self));
  cudalink_array *part;
  int status = CUDALINK_OK;
  for (Py_ssize_t i = 0; status == CUDALINK_OK && i < PyTuple_Size(cuts); i++)
    status = cut(&view, PyTuple_GetItem(cuts, i));
  if (PyErr_Occurred()) return NULL;
  if (status == CUDALINK_OK) status = cudalink_array_part(&part, array_of(self), &view);
  return status != CUDALINK_OK ? core_fail(module_of(self), status)
                               : core_array_new(module_of(self), Py_TYPE(self), part);
}

/* ---- order -------------------------------------------------------------------------------------------- */

typedef int order_function(cudalink_array *, cudalink_stream);

static PyObject *order_by(PyObject *self, PyObject *arguments, order_function *call) {
  unsigned kind;
  unsigned long long handle;
  if (!PyArg_ParseTuple(arguments, "IK", &kind, &handle)) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = call(array_of(self), core_stream(kind, handle));
  Py_END_ALLOW_THREADS;
  return core_answer(module_of(self), status);
}

/* _ready(kind, handle): complete behind what is queued there now */
static PyObject *array_ready(PyObject *self, PyObject *arguments) {
  return order_by(self, arguments, cudalink_array_ready);
}

/* _wait(kind, handle): that stream, or the caller, waits until it is */
static PyObject *array_wait(PyObject *self, PyObject *arguments) {
  return order_by(self, arguments, cudalink_array_wait);
}

/* ---- out ---------------------------------------------------------------------------------------------- */

/* _export(versioned, copied) -> capsule */
static PyObject *array_export(PyObject *self, PyObject *arguments) {
  int versioned, copied;
  if (!PyArg_ParseTuple(arguments, "pp", &versioned, &copied)) return NULL;
  cudalink_view view = *cudalink_array_view(array_of(self));
  view.flags &= ~CUDALINK_DLPACK_IS_COPIED; /* of who gave it to us */
  if (copied) view.flags |= CUDALINK_DLPACK_IS_COPIED;
  return core_capsule(module_of(self), &view, cudalink_array_retain(array_of(self)),
                      cudalink_array_drop, versioned);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  core_drop(cudalink_array_drop, array_of(self));
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"_look", array_look, METH_NOARGS, NULL},
    {"_extent", array_extent, METH_NOARGS, NULL},
    {"_copy", array_copy, METH_VARARGS, NULL},
    {"_to_host", array_to_host, METH_VARARGS, NULL},
    {"_part", array_part, METH_O, NULL},
    {"_ready", array_ready, METH_VARARGS, NULL},
    {"_wait", array_wait, METH_VARARGS, NULL},
    {"_export", array_export, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, refuse},
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec core_array_spec = {
    .name = "cuda_link._core.Array",
    .basicsize = sizeof(struct array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
