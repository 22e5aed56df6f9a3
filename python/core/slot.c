/* SPDX-License-Identifier: MIT
 *
 * Slot: a slot that an exporter lends, from begin to its end. cuda_link.LentSlot is a subclass of it.
 *
 * Views and tensors of its memory keep that mapped (cudalink_slot_hold): Python can't see to it that none of them
 * is left when the exporter is closed.
 */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

#include "lock.h"

struct slot {
  PyObject_HEAD;
  PyObject *module; /* its type keeps it; NULL before begin */
  cudalink_exporter exporter;
  cudalink_slot slot;
  char open; /* begun, and not ended */
};

static struct slot *slot_of(PyObject *self) { return (struct slot *)self; }

/* False: an exception is set. */
static bool is_begun(const struct slot *slot) {
  if (!slot->module) PyErr_SetString(PyExc_ValueError, "this slot was not lent yet");
  return slot->module;
}

/* ---- begin and end ------------------------------------------------------------------------------------- */

static int begin(struct slot *slot, cudalink_exporter exporter, const Py_buffer *description,
                 long long timeout) {
  cudalink_slot begun;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_exporter_begin(exporter, description->buf, timeout, &begun);
  Py_END_ALLOW_THREADS;
  if (status < 0) return status;
  slot->exporter = exporter;
  slot->slot = begun;
  slot->open = 1;
  return status;
}

/* _begin(exporter, description, timeout) */
static PyObject *slot_begin(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                            Py_ssize_t count, PyObject *names) {
  struct slot *slot = slot_of(self);
  Py_buffer description;
  if (count != 3 || names) return PyErr_Format(PyExc_TypeError, "_begin takes 3 arguments");
  cudalink_exporter exporter = {(uint32_t)PyLong_AsUnsignedLong(arguments[0])};
  long long timeout = PyLong_AsLongLong(arguments[2]);
  if (PyErr_Occurred()) return NULL;
  if (PyObject_GetBuffer(arguments[1], &description, PyBUF_SIMPLE) < 0) return NULL;
  if (core_check_size(&description, sizeof(cudalink_description), "the description") < 0)
    return NULL;
  PyObject *module = PyType_GetModule(type);
  int status = begin(slot, exporter, &description, timeout);
  PyBuffer_Release(&description);
  if (status == CUDALINK_OK) slot->module = module;
  return core_answer(module, status);
}

/* A copy, since the object is everybody's. */
static PyObject *end(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                     int (*call)(cudalink_exporter, const cudalink_slot *, cudalink_stream)) {
  struct slot *slot = slot_of(self);
  if (count != 2) return PyErr_Format(PyExc_TypeError, "a stream is its kind and its handle");
  unsigned kind = (unsigned)PyLong_AsUnsignedLong(arguments[0]);
  unsigned long long handle = PyLong_AsUnsignedLongLong(arguments[1]);
  if (PyErr_Occurred() || !is_begun(slot)) return NULL;
  cudalink_exporter exporter = slot->exporter;
  cudalink_slot lent = slot->slot;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = call(exporter, &lent, core_stream(kind, handle));
  Py_END_ALLOW_THREADS;
  if (status == CUDALINK_OK) slot->open = 0;
  return core_answer(slot->module, status);
}

/* _publish(kind, handle) */
static PyObject *slot_publish(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
  return end(self, arguments, count, cudalink_exporter_publish);
}

/* _abandon(kind, handle) */
static PyObject *slot_abandon(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
  return end(self, arguments, count, cudalink_exporter_abandon);
}

/* _publish_invalid(text) */
static PyObject *slot_publish_invalid(PyObject *self, PyObject *arguments) {
  struct slot *slot = slot_of(self);
  const char *text;
  if (!PyArg_ParseTuple(arguments, "s", &text) || !is_begun(slot)) return NULL;
  cudalink_exporter exporter = slot->exporter;
  cudalink_slot lent = slot->slot;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_exporter_publish_invalid(exporter, &lent, text);
  Py_END_ALLOW_THREADS;
  if (status == CUDALINK_OK) slot->open = 0;
  return core_answer(slot->module, status);
}

/* Entered by hand, and forgotten: no other frame could be begun. */
static void finalize(PyObject *self) {
  if (!slot_of(self)->open) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *answer = PyObject_CallMethod(self, "_give_up", NULL);
  if (!answer) PyErr_WriteUnraisable(self);
  Py_XDECREF(answer);
  PyErr_Restore(type, value, traceback);
}

/* ---- its memory ------------------------------------------------------------------------------------------ */

static cudalink_slot_hold *hold_of(const struct slot *slot) {
  cudalink_exporter exporter = slot->exporter;
  cudalink_slot lent = slot->slot;
  cudalink_slot_hold *hold = NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_slot_hold_take(&hold, exporter, &lent);
  Py_END_ALLOW_THREADS;
  if (status < 0) core_fail(slot->module, status);
  return hold;
}

/* _view(address, bytes) -> writable View of that part of it */
static PyObject *slot_view(PyObject *self, PyObject *arguments) {
  struct slot *slot = slot_of(self);
  unsigned long long address;
  struct core_memory memory = {.drop = cudalink_slot_hold_drop};
  if (!PyArg_ParseTuple(arguments, "Kn", &address, &memory.bytes) || !is_begun(slot)) return NULL;
  memory.address = (void *)(uintptr_t)address;
  memory.hold = hold_of(slot);
  return memory.hold ? core_view_new(slot->module, &memory) : NULL;
}

/* _export(description, plane, versioned) -> capsule */
static PyObject *slot_export(PyObject *self, PyObject *arguments) {
  struct slot *slot = slot_of(self);
  Py_buffer description;
  unsigned plane;
  int versioned;
  cudalink_view view;
  if (!PyArg_ParseTuple(arguments, "y*Ip", &description, &plane, &versioned)) return NULL;
  if (core_check_size(&description, sizeof(cudalink_description), "the description") < 0)
    return NULL;
  bool begun = is_begun(slot);
  int status =
      begun ? cudalink_view_of_slot(&view, &slot->slot, description.buf, plane) : CUDALINK_OK;
  PyBuffer_Release(&description);
  if (status < 0) return core_fail(slot->module, status);
  cudalink_slot_hold *hold = begun ? hold_of(slot) : NULL;
  return hold ? core_capsule(slot->module, &view, hold, cudalink_slot_hold_drop, versioned) : NULL;
}

static PyObject *get_address(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromVoidPtr(slot_of(self)->slot.data);
}

static PyObject *get_user(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromVoidPtr(slot_of(self)->slot.user);
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

/* ---- one thread at a time ------------------------------------------------------------------------------- */

static PyObject *slot_begin_locked(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                                   Py_ssize_t count, PyObject *names) {
  PyObject *answer;
  CORE_LOCK(self);
  answer = slot_begin(self, type, arguments, count, names);
  CORE_UNLOCK();
  return answer;
}

CORE_LOCKED_FAST(slot_publish)
CORE_LOCKED_FAST(slot_abandon)
CORE_LOCKED(slot_publish_invalid, PyObject *)
CORE_LOCKED(slot_view, PyObject *)
CORE_LOCKED(slot_export, PyObject *)

/* ---- the type ------------------------------------------------------------------------------------------- */

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"sequence", T_ULONGLONG, offsetof(struct slot, slot.sequence), READONLY, NULL},
    {"_bytes", T_ULONGLONG, offsetof(struct slot, slot.bytes), READONLY, NULL},
    {"_device", T_INT, offsetof(struct slot, slot.device), READONLY, NULL},
    {"_exporter", T_UINT, offsetof(struct slot, exporter.id), READONLY, NULL},
    {"_open", T_BOOL, offsetof(struct slot, open), 0, NULL},
    {0},
};

static PyGetSetDef properties[] = {
    {"address", get_address, NULL, NULL, NULL},
    {"_user", get_user, NULL, NULL, NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"_begin", _PyCFunction_CAST(slot_begin_locked), METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     NULL},
    {"_publish", _PyCFunction_CAST(slot_publish_locked), METH_FASTCALL, NULL},
    {"_abandon", _PyCFunction_CAST(slot_abandon_locked), METH_FASTCALL, NULL},
    {"_publish_invalid", slot_publish_invalid_locked, METH_VARARGS, NULL},
    {"_view", slot_view_locked, METH_VARARGS, NULL},
    {"_export", slot_export_locked, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},   {Py_tp_finalize, finalize}, {Py_tp_members, members},
    {Py_tp_getset, properties}, {Py_tp_methods, methods},   {0, NULL},
};

PyType_Spec core_slot_spec = {
    .name = "cuda_link._core.Slot",
    .basicsize = sizeof(struct slot),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

PyMethodDef core_slot_methods[] = {
    {"slot_address", slot_address, METH_VARARGS, NULL},
    {0},
};
