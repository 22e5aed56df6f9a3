/* SPDX-License-Identifier: MIT
 *
 * cudalink/exporter.h for Python.
 */
#include <stdlib.h>

#include "core.h"

static PyObject *exporter_open(PyObject *module, PyObject *arguments) {
  Py_buffer spec;
  if (!PyArg_ParseTuple(arguments, "y*", &spec)) return NULL;
  if (core_check_size(&spec, sizeof(size_t), "the spec") < 0) return NULL;
  cudalink_exporter exporter = {0};
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_exporter_open(&exporter, spec.buf);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&spec);
  return status < 0 ? core_fail(module, status) : PyLong_FromUnsignedLong(exporter.id);
}

struct send {
  cudalink_exporter exporter;
  Py_buffer description;
  Py_buffer user;
  unsigned kind;
  unsigned long long handle;
  long long timeout;
};

/* One of three. */
struct source {
  const void *data;
  const Py_buffer *sources;
  const cudalink_array *array;
  struct core_kept *kept; /* has the array */
  int *shared;            /* it was taken over */
};

static int send_source(const struct send *send, const struct source *source) {
  const cudalink_description *description = send->description.buf;
  cudalink_stream stream = core_stream(send->kind, send->handle);
  if (source->sources)
    return cudalink_exporter_send_planes(send->exporter, description, source->sources->buf,
                                         send->user.buf, stream, send->timeout);
  if (!source->array)
    return cudalink_exporter_send(send->exporter, description, source->data, send->user.buf, stream,
                                  send->timeout);
  return cudalink_exporter_send_shared(
      send->exporter, description, cudalink_array_view(source->array)->data, send->user.buf, stream,
      send->timeout, source->kept, core_kept_drop, source->shared);
}

static void release(struct send *send) {
  PyBuffer_Release(&send->description);
  PyBuffer_Release(&send->user);
}

/* Takes the buffers of `send` back. */
static PyObject *send_frame(PyObject *module, struct send *send, const struct source *source) {
  const cudalink_description *description = send->description.buf;
  const Py_buffer *sources = source->sources;
  int status = CUDALINK_ERROR_INVALID_ARGUMENT;
  bool fits =
      (size_t)send->description.len >= sizeof *description &&
      (!send->user.buf || (size_t)send->user.len >= description->user_size) &&
      (!sources || (size_t)sources->len / sizeof(cudalink_source) >= description->plane_count);
  if (fits) {
    Py_BEGIN_ALLOW_THREADS;
    status = send_source(send, source);
    Py_END_ALLOW_THREADS;
  }
  release(send);
  if (!fits) return PyErr_Format(PyExc_ValueError, "send: a buffer is too small");
  return core_answer(module, status);
}

/* exporter_send(exporter, description, address, user or None, kind, handle, timeout) */
static PyObject *exporter_send(PyObject *module, PyObject *arguments) {
  struct send send;
  unsigned long long data;
  if (!PyArg_ParseTuple(arguments, "Iy*Kz*IKL", &send.exporter.id, &send.description, &data,
                        &send.user, &send.kind, &send.handle, &send.timeout))
    return NULL;
  return send_frame(module, &send, &(struct source){.data = (const void *)(uintptr_t)data});
}

/* The same with an object that has a dense buffer. The caller knows that it is as large as the
 * description says. */
static PyObject *exporter_send_buffer(PyObject *module, PyObject *arguments) {
  struct send send;
  Py_buffer data;
  if (!PyArg_ParseTuple(arguments, "Iy*y*z*IKL", &send.exporter.id, &send.description, &data,
                        &send.user, &send.kind, &send.handle, &send.timeout))
    return NULL;
  PyObject *answer = send_frame(module, &send, &(struct source){.data = data.buf});
  PyBuffer_Release(&data);
  return answer;
}

/* The same with a buffer of cudalink_source, one per plane. */
static PyObject *exporter_send_planes(PyObject *module, PyObject *arguments) {
  struct send send;
  Py_buffer sources;
  if (!PyArg_ParseTuple(arguments, "Iy*y*z*IKL", &send.exporter.id, &send.description, &sources,
                        &send.user, &send.kind, &send.handle, &send.timeout))
    return NULL;
  PyObject *answer = send_frame(module, &send, &(struct source){.sources = &sources});
  PyBuffer_Release(&sources);
  return answer;
}

static PyObject *exporter_stream(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  cudalink_stream stream;
  if (!PyArg_ParseTuple(arguments, "I", &exporter.id)) return NULL;
  int status = cudalink_exporter_get_stream(exporter, &stream);
  if (status < 0) return core_answer(module, status);
  return Py_BuildValue("(IK)", stream.kind, (unsigned long long)stream.handle);
}

/* exporter_send_array(exporter, description, array, user or None, kind, handle, timeout) -> bool: published
 * where it lies, and kept until nobody reads it there; else copied. */
static PyObject *exporter_send_array(PyObject *module, PyObject *arguments) {
  struct send send;
  PyObject *object;
  if (!PyArg_ParseTuple(arguments, "Iy*O!z*IKL", &send.exporter.id, &send.description,
                        core_state(module)->array_type, &object, &send.user, &send.kind,
                        &send.handle, &send.timeout))
    return NULL;
  cudalink_array *array = core_array_of_object(object);
  int shared = 0;
  struct core_kept *kept = core_kept_new(array, cudalink_array_drop);
  if (!kept) return release(&send), PyErr_NoMemory();
  cudalink_array_retain(array);
  core_kept_begin();
  PyObject *answer =
      send_frame(module, &send, &(struct source){.array = array, .kept = kept, .shared = &shared});
  core_kept_end();
  if (!shared) {
    cudalink_array_drop(array); /* never the last one */
    free(kept);
  }
  if (!answer) return NULL;
  Py_DECREF(answer);
  return PyBool_FromLong(shared);
}

static PyObject *exporter_wait_consumers(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  unsigned count;
  long long timeout;
  if (!PyArg_ParseTuple(arguments, "IIL", &exporter.id, &count, &timeout)) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_exporter_wait_consumers(exporter, count, timeout);
  Py_END_ALLOW_THREADS;
  return core_answer(module, status);
}

static int wait_taken(uint32_t id, int64_t timeout) {
  return cudalink_exporter_wait_taken((cudalink_exporter){id}, timeout);
}

static PyObject *exporter_wait_taken(PyObject *module, PyObject *arguments) {
  return core_wait(module, arguments, wait_taken);
}

static int get_statistics(uint32_t id, void *statistics) {
  return cudalink_exporter_get_statistics((cudalink_exporter){id}, statistics);
}

static PyObject *exporter_statistics(PyObject *module, PyObject *arguments) {
  return core_statistics(module, arguments, get_statistics);
}

static int close_by_id(uint32_t id) { return cudalink_exporter_close((cudalink_exporter){id}); }

static PyObject *exporter_close(PyObject *module, PyObject *arguments) {
  return core_close(module, arguments, close_by_id);
}

PyMethodDef core_exporter_methods[] = {
    {"exporter_open", exporter_open, METH_VARARGS, NULL},
    {"exporter_send", exporter_send, METH_VARARGS, NULL},
    {"exporter_send_buffer", exporter_send_buffer, METH_VARARGS, NULL},
    {"exporter_send_planes", exporter_send_planes, METH_VARARGS, NULL},
    {"exporter_stream", exporter_stream, METH_VARARGS, NULL},
    {"exporter_send_array", exporter_send_array, METH_VARARGS, NULL},
    {"exporter_wait_consumers", exporter_wait_consumers, METH_VARARGS, NULL},
    {"exporter_wait_taken", exporter_wait_taken, METH_VARARGS, NULL},
    {"exporter_statistics", exporter_statistics, METH_VARARGS, NULL},
    {"exporter_close", exporter_close, METH_VARARGS, NULL},
    {0},
};
