/* SPDX-License-Identifier: MIT
 *
 * cudalink/format.h for Python, and what cudalink/frame.h computes.
 */
#include "core.h"

static PyObject *describe_picture(PyObject *module, PyObject *arguments) {
  Py_buffer description;
  unsigned format, width, height, alignment;
  if (!PyArg_ParseTuple(arguments, "w*IIII", &description, &format, &width, &height, &alignment))
    return NULL;
  if (core_check_size(&description, sizeof(cudalink_description), "the description") < 0)
    return NULL;
  int status =
      cudalink_describe_picture(description.buf, (cudalink_format)format, width, height, alignment);
  PyBuffer_Release(&description);
  return core_answer(module, status);
}

int core_shape(PyObject *tuple, int64_t *shape) {
  Py_ssize_t dimensions = PyTuple_Size(tuple);
  if (dimensions > CUDALINK_MAX_DIMENSIONS) {
    PyErr_Format(PyExc_ValueError, "%zd dimensions; a tensor may have %d", dimensions,
                 CUDALINK_MAX_DIMENSIONS);
    return -1;
  }
  for (Py_ssize_t i = 0; i < dimensions; i++) {
    shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (shape[i] == -1 && PyErr_Occurred()) return -1;
  }
  return (int)dimensions;
}

/* describe_tensor(description, name or None, code, bits, lanes, shape) */
static PyObject *describe_tensor(PyObject *module, PyObject *arguments) {
  Py_buffer description;
  const char *name;
  cudalink_dtype dtype;
  PyObject *tuple;
  int64_t shape[CUDALINK_MAX_DIMENSIONS];
  if (!PyArg_ParseTuple(arguments, "w*zbbHO!", &description, &name, &dtype.code, &dtype.bits,
                        &dtype.lanes, &PyTuple_Type, &tuple))
    return NULL;
  if (core_check_size(&description, sizeof(cudalink_description), "the description") < 0)
    return NULL;
  int dimensions = core_shape(tuple, shape);
  int status = CUDALINK_OK;
  if (dimensions >= 0)
    status = cudalink_describe_tensor(description.buf, name, dtype, (uint32_t)dimensions, shape);
  PyBuffer_Release(&description);
  return dimensions < 0 ? NULL : core_answer(module, status);
}

typedef int bytes_function(const cudalink_description *, uint64_t *);

static PyObject *count_bytes(PyObject *module, PyObject *arguments, bytes_function *call) {
  Py_buffer description;
  if (!PyArg_ParseTuple(arguments, "y*", &description)) return NULL;
  if (core_check_size(&description, sizeof(cudalink_description), "the description") < 0)
    return NULL;
  uint64_t bytes = 0;
  int status = call(description.buf, &bytes);
  PyBuffer_Release(&description);
  return status < 0 ? core_fail(module, status) : PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *description_bytes(PyObject *module, PyObject *arguments) {
  return count_bytes(module, arguments, cudalink_description_bytes);
}

static PyObject *packed_bytes(PyObject *module, PyObject *arguments) {
  return count_bytes(module, arguments, cudalink_packed_bytes);
}

static PyObject *format_name(PyObject *module, PyObject *arguments) {
  unsigned format;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "I", &format)) return NULL;
  const char *name = cudalink_format_name(format);
  if (!name) Py_RETURN_NONE;
  return PyUnicode_FromString(name);
}

static PyObject *format_from_name(PyObject *module, PyObject *arguments) {
  const char *name;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "s", &name)) return NULL;
  return PyLong_FromUnsignedLong((unsigned long)cudalink_format_from_name(name));
}

static PyObject *format_next(PyObject *module, PyObject *arguments) {
  unsigned format;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "I", &format)) return NULL;
  return PyLong_FromUnsignedLong((unsigned long)cudalink_format_next((cudalink_format)format));
}

/* copy_dense(address, object): the elements of a buffer, row by row with nothing between, to there. The
 * caller knows that they fit. */
static PyObject *copy_dense(PyObject *module, PyObject *arguments) {
  unsigned long long address;
  PyObject *object;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "KO", &address, &object)) return NULL;
  void *target = (void *)(uintptr_t)address;
  Py_buffer source;
  if (PyObject_GetBuffer(object, &source, PyBUF_FULL_RO) < 0) return NULL;
  int status = 0;
  if (PyBuffer_IsContiguous(&source, 'C')) {
    Py_BEGIN_ALLOW_THREADS;
    if (source.len) memcpy(target, source.buf, (size_t)source.len); /* else it may lie nowhere */
    Py_END_ALLOW_THREADS;
  } else {
    status = PyBuffer_ToContiguous(target, &source, source.len, 'C');
  }
  PyBuffer_Release(&source);
  if (status < 0) return NULL;
  Py_RETURN_NONE;
}

PyMethodDef core_format_methods[] = {
    {"describe_picture", describe_picture, METH_VARARGS, NULL},
    {"describe_tensor", describe_tensor, METH_VARARGS, NULL},
    {"description_bytes", description_bytes, METH_VARARGS, NULL},
    {"packed_bytes", packed_bytes, METH_VARARGS, NULL},
    {"format_name", format_name, METH_VARARGS, NULL},
    {"format_from_name", format_from_name, METH_VARARGS, NULL},
    {"format_next", format_next, METH_VARARGS, NULL},
    {"copy_dense", copy_dense, METH_VARARGS, NULL},
    {0},
};
