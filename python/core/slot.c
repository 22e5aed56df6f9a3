/* SPDX-License-Identifier: MIT
 *
 * Memory of lent slots. Views and tensors keep it mapped (cudalink_slot_hold): Python can't see to it that
 * none of them is left when the exporter is closed.
 */
#include "core.h"

/* slot_view(exporter, slot, address, bytes) -> writable View of that part of the begun slot. */
static PyObject *slot_view(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  Py_buffer slot;
  unsigned long long address;
  cudalink_slot_hold *hold = NULL;
  struct core_memory memory = {.drop = cudalink_slot_hold_drop};
  if (!PyArg_ParseTuple(arguments, "Iy*Kn", &exporter.id, &slot, &address, &memory.bytes))
    return NULL;
  if (core_check_size(&slot, sizeof(cudalink_slot), "the slot") < 0) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_slot_hold_take(&hold, exporter, slot.buf);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&slot);
  if (status < 0) return core_fail(module, status);
  memory.address = (void *)(uintptr_t)address;
  memory.hold = hold;
  return core_view_new(module, &memory);
}

/* slot_export(exporter, slot, description, plane, versioned) -> capsule */
static PyObject *slot_export(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  Py_buffer slot, description;
  unsigned plane;
  int versioned;
  if (!PyArg_ParseTuple(arguments, "Iy*y*Ip", &exporter.id, &slot, &description, &plane,
                        &versioned))
    return NULL;
  cudalink_view view;
  cudalink_slot_hold *hold = NULL;
  int status = CUDALINK_OK;
  bool fits = (size_t)slot.len >= sizeof(cudalink_slot) &&
              (size_t)description.len >= sizeof(cudalink_description);
  if (fits) {
    Py_BEGIN_ALLOW_THREADS;
    status = cudalink_view_of_slot(&view, slot.buf, description.buf, plane);
    if (status == CUDALINK_OK) status = cudalink_slot_hold_take(&hold, exporter, slot.buf);
    Py_END_ALLOW_THREADS;
  }
  PyBuffer_Release(&slot);
  PyBuffer_Release(&description);
  if (!fits) return PyErr_Format(PyExc_ValueError, "slot_export: a buffer is too small");
  if (status < 0) return core_fail(module, status);
  return core_capsule(module, &view, hold, cudalink_slot_hold_drop, versioned);
}

/* slot_address(exporter, index) -> where it is in this process */
static PyObject *slot_address(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  unsigned index;
  void *address = NULL;
  if (!PyArg_ParseTuple(arguments, "II", &exporter.id, &index)) return NULL;
  int status = cudalink_exporter_slot_address(exporter, index, &address);
  return status < 0 ? core_fail(module, status) : PyLong_FromVoidPtr(address);
}

PyMethodDef core_slot_methods[] = {
    {"slot_address", slot_address, METH_VARARGS, NULL},
    {"slot_view", slot_view, METH_VARARGS, NULL},
    {"slot_export", slot_export, METH_VARARGS, NULL},
    {0},
};
