/* SPDX-License-Identifier: MIT
 *
 * cudalink/channels.h for Python.
 */
#include "core.h"

/* The infos, one behind the other, as bytes. */
static PyObject *channels_list(PyObject *module, PyObject *arguments) {
  const char *directory;
  long long timeout;
  if (!PyArg_ParseTuple(arguments, "zL", &directory, &timeout)) return NULL;
  cudalink_channel_info *channels = NULL;
  size_t count = 0;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_channels_list(directory, timeout, &channels, &count);
  Py_END_ALLOW_THREADS;
  if (status < 0) return core_fail(module, status);
  PyObject *bytes =
      PyBytes_FromStringAndSize((const char *)channels, (Py_ssize_t)(count * sizeof *channels));
  cudalink_channels_free(channels);
  return bytes;
}

static PyObject *channels_clean(PyObject *module, PyObject *arguments) {
  const char *directory;
  if (!PyArg_ParseTuple(arguments, "z", &directory)) return NULL;
  size_t removed = 0;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_channels_clean(directory, &removed);
  Py_END_ALLOW_THREADS;
  return status < 0 ? core_fail(module, status) : PyLong_FromSize_t(removed);
}

PyMethodDef core_channel_methods[] = {
    {"channels_list", channels_list, METH_VARARGS, NULL},
    {"channels_clean", channels_clean, METH_VARARGS, NULL},
    {0},
};
