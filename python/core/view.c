/* SPDX-License-Identifier: MIT
 *
 * View: memory at an address as a buffer of bytes. It is kept alive by what looks through it, and keeps
 * the memory: by a reference to its frame, or by an owner in Python.
 */
#include "core.h"

struct view {
  PyObject_HEAD;
  struct core_memory memory;
};

PyObject *core_view_new(PyObject *module, const struct core_memory *memory) {
  struct view *view = PyObject_New(struct view, (PyTypeObject *)core_state(module)->view_type);
  if (!view) {
    if (memory->hold) memory->drop(memory->hold);
    return NULL;
  }
  view->memory = *memory;
  Py_XINCREF(memory->owner);
  return (PyObject *)view;
}

PyObject *core_view(PyObject *module, PyObject *arguments) {
  unsigned long long address;
  struct core_memory memory = {0};
  if (!PyArg_ParseTuple(arguments, "KnpO", &address, &memory.bytes, &memory.read_only,
                        &memory.owner))
    return NULL;
  memory.address = (void *)(uintptr_t)address;
  return core_view_new(module, &memory);
}

static int get_buffer(PyObject *self, Py_buffer *buffer, int flags) {
  const struct core_memory *memory = &((struct view *)self)->memory;
  return PyBuffer_FillInfo(buffer, self, memory->address, memory->bytes, memory->read_only, flags);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  struct core_memory *memory = &((struct view *)self)->memory;
  if (memory->hold) memory->drop(memory->hold);
  Py_XDECREF(memory->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

PyType_Spec core_view_spec = {
    .name = "cuda_link._core.View",
    .basicsize = sizeof(struct view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
