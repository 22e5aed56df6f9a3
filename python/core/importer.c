/* SPDX-License-Identifier: MIT
 *
 * cudalink/importer.h for Python.
 */
#include "core.h"

#include <stddef.h>

static PyObject *importer_open(PyObject *module, PyObject *arguments) {
  Py_buffer spec;
  if (!PyArg_ParseTuple(arguments, "y*", &spec)) return NULL;
  if (core_check_size(&spec, sizeof(size_t), "the spec") < 0) return NULL;
  cudalink_importer importer = {0};
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_importer_open(&importer, spec.buf);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&spec);
  return status < 0 ? core_fail(module, status) : PyLong_FromUnsignedLong(importer.id);
}

static int wait_producer(uint32_t id, int64_t timeout) {
  return cudalink_importer_wait_producer((cudalink_importer){id}, timeout);
}

static PyObject *importer_wait_producer(PyObject *module, PyObject *arguments) {
  return core_wait(module, arguments, wait_producer);
}

/* The frame goes back when there is no memory for a hold. */
static int hold(struct core_taken *taken) {
  int status = cudalink_hold_take(&taken->hold, &taken->frame);
  if (status < 0) cudalink_frame_release(&taken->frame, CUDALINK_STREAM_COMPLETE);
  return status;
}

int core_take_frame(core_take_function *call, cudalink_importer importer, cudalink_stream stream,
                    long long timeout, struct core_taken *taken) {
  cudalink_description *description = &taken->frame.description;
  int status;
  /* Layouts are compared with the gaps between their fields. */
  memset(description, 0, offsetof(cudalink_description, planes));
  Py_BEGIN_ALLOW_THREADS;
  status = call(importer, stream, timeout, &taken->frame);
  if (status == CUDALINK_OK) status = hold(taken);
  Py_END_ALLOW_THREADS;
  return status;
}

/* (importer, kind, handle, timeout, held, type) -> an instance of type */
static PyObject *take(PyObject *module, PyObject *arguments, core_take_function *call) {
  cudalink_importer importer;
  unsigned kind;
  unsigned long long handle;
  long long timeout;
  PyObject *held, *type;
  if (!PyArg_ParseTuple(arguments, "IIKLO!O", &importer.id, &kind, &handle, &timeout,
                        core_state(module)->held_type, &held, &type))
    return NULL;
  if (core_lease_check_type(module, type) < 0) return NULL;
  struct core_taken taken;
  int status = core_take_frame(call, importer, core_stream(kind, handle), timeout, &taken);
  if (status < 0) return core_fail(module, status);
  return core_lease_new(module, (PyTypeObject *)type, held, &taken);
}

static PyObject *importer_acquire(PyObject *module, PyObject *arguments) {
  return take(module, arguments, cudalink_importer_acquire);
}

static PyObject *importer_wait_next(PyObject *module, PyObject *arguments) {
  return take(module, arguments, cudalink_importer_wait_next);
}

static PyObject *importer_descriptor(PyObject *module, PyObject *arguments) {
  cudalink_importer importer;
  if (!PyArg_ParseTuple(arguments, "I", &importer.id)) return NULL;
  int status, descriptor = -1;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_importer_descriptor(importer, &descriptor);
  Py_END_ALLOW_THREADS;
  return status < 0 ? core_fail(module, status) : PyLong_FromLong(descriptor);
}

/* True: armed. False: there is something to acquire right now. */
static PyObject *importer_arm(PyObject *module, PyObject *arguments) {
  cudalink_importer importer;
  if (!PyArg_ParseTuple(arguments, "I", &importer.id)) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_importer_arm(importer);
  Py_END_ALLOW_THREADS;
  if (status < 0 && status != CUDALINK_ERROR_BUSY) return core_fail(module, status);
  return PyBool_FromLong(status == CUDALINK_OK);
}

static int get_statistics(uint32_t id, void *statistics) {
  return cudalink_importer_get_statistics((cudalink_importer){id}, statistics);
}

static PyObject *importer_statistics(PyObject *module, PyObject *arguments) {
  return core_statistics(module, arguments, get_statistics);
}

/* Waits until the copy of _to_host_begin is done. */
static PyObject *importer_finish(PyObject *module, PyObject *arguments) {
  unsigned long long number;
  if (!PyArg_ParseTuple(arguments, "K", &number)) return NULL;
  cudalink_host_copy copy = {.id = number};
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_frame_to_host_finish(&copy);
  Py_END_ALLOW_THREADS;
  return core_answer(module, status);
}

static int close_by_id(uint32_t id) { return cudalink_importer_close((cudalink_importer){id}); }

static PyObject *importer_close(PyObject *module, PyObject *arguments) {
  return core_close(module, arguments, close_by_id);
}

PyMethodDef core_importer_methods[] = {
    {"importer_open", importer_open, METH_VARARGS, NULL},
    {"importer_wait_producer", importer_wait_producer, METH_VARARGS, NULL},
    {"importer_acquire", importer_acquire, METH_VARARGS, NULL},
    {"importer_wait_next", importer_wait_next, METH_VARARGS, NULL},
    {"importer_descriptor", importer_descriptor, METH_VARARGS, NULL},
    {"importer_arm", importer_arm, METH_VARARGS, NULL},
    {"importer_statistics", importer_statistics, METH_VARARGS, NULL},
    {"importer_finish", importer_finish, METH_VARARGS, NULL},
    {"importer_close", importer_close, METH_VARARGS, NULL},
    {0},
};
