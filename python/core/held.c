/* SPDX-License-Identifier: MIT
 *
 * Held: the leases of one importer that were not given back. They outlive it.
 */
#include "lease.h"
#include "lock.h"

static struct core_held *held_of(PyObject *self) { return (struct core_held *)self; }

void core_held_add(struct core_lease *lease) {
  struct core_held *held = held_of(lease->held);
  CORE_LOCK(lease->held);
  lease->before = NULL;
  lease->next = held->first;
  if (lease->next) lease->next->before = lease;
  held->first = lease;
  held->count++;
  CORE_UNLOCK();
}

void core_held_remove(struct core_lease *lease) {
  struct core_held *held = held_of(lease->held);
  CORE_LOCK(lease->held);
  if (lease->next) lease->next->before = lease->before;
  if (lease->before)
    lease->before->next = lease->next;
  else
    held->first = lease->next;
  held->count--;
  CORE_UNLOCK();
}

Py_ssize_t core_held_count(PyObject *self) {
  Py_ssize_t count;
  CORE_LOCK(self);
  count = held_of(self)->count;
  CORE_UNLOCK();
  return count;
}

/* numbers() -> those of its frames, a list */
static PyObject *numbers(PyObject *self, PyObject *unused) {
  (void)unused;
  PyObject *list = PyList_New(0);
  for (struct core_lease *lease = held_of(self)->first; list && lease; lease = lease->next) {
    PyObject *number = PyLong_FromUnsignedLongLong(lease->frame.sequence);
    if (!number || PyList_Append(list, number) < 0) Py_CLEAR(list);
    Py_XDECREF(number);
  }
  return list;
}

CORE_LOCKED(numbers, PyObject *)

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"numbers", numbers_locked, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, core_held_count},
    {0, NULL},
};

PyType_Spec core_held_spec = {
    .name = "cuda_link._core.Held",
    .basicsize = sizeof(struct core_held),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
