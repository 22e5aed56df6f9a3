/* SPDX-License-Identifier: MIT
 *
 * Calls that exporters and importers have alike. The GIL is given up as in every other call.
 */
#include "core.h"

PyObject *core_statistics(PyObject *module, PyObject *arguments,
                          int (*get)(uint32_t id, void *statistics)) {
  unsigned id;
  Py_buffer statistics;
  if (!PyArg_ParseTuple(arguments, "Iw*", &id, &statistics)) return NULL;
  if (core_check_size(&statistics, sizeof(size_t), "statistics") < 0) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = get(id, statistics.buf);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&statistics);
  return core_answer(module, status);
}

PyObject *core_close(PyObject *module, PyObject *arguments, int (*close)(uint32_t id)) {
  unsigned id;
  if (!PyArg_ParseTuple(arguments, "I", &id)) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = close(id);
  Py_END_ALLOW_THREADS;
  return core_answer(module, status);
}

PyObject *core_wait(PyObject *module, PyObject *arguments,
                    int (*wait)(uint32_t id, int64_t timeout)) {
  unsigned id;
  long long timeout;
  if (!PyArg_ParseTuple(arguments, "IL", &id, &timeout)) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = wait(id, timeout);
  Py_END_ALLOW_THREADS;
  return core_answer(module, status);
}
