/* SPDX-License-Identifier: MIT
 *
 * Taker: what an importer is in C, and what nearly every call of its acquire asks: a frame that is there, with
 * its pixels complete. cuda_link._importer has the method itself, which answers what is asked beyond that: a
 * wait, a stream, why there is none.
 */
#include "core.h"
#include "lock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <structmember.h>

struct taker {
  PyObject_HEAD;
  PyObject *module; /* its type keeps it; NULL without a Held */
  PyObject *held;   /* a Held, or NULL */
  cudalink_importer importer;
  Py_ssize_t hold;
};

static void set(PyObject **place, PyObject *value) {
  PyObject *old = *place;
  *place = value;
  Py_XDECREF(old);
}

/* ---- acquire -------------------------------------------------------------------------------------------- */

/* Other values are Python's to look at. */
static bool is_time(PyObject *timeout) {
  int overflow;
  if (timeout == Py_None) return true;
  if (PyFloat_CheckExact(timeout)) return PyFloat_AsDouble(timeout) >= 0;
  return PyLong_CheckExact(timeout) && PyLong_AsLongLongAndOverflow(timeout, &overflow) >= 0;
}

/* (timeout=None, *, stream=None), and no stream is named. */
static bool is_plain(PyTypeObject *type, PyObject *const *arguments, Py_ssize_t count,
                     PyObject *names) {
  if (count > 1 || (count && !is_time(arguments[0]))) return false;
  if (!names) return true;
  const struct core_state *state = core_state(PyType_GetModule(type));
  Py_ssize_t given = PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < given; i++) {
    PyObject *name = PyTuple_GetItem(names, i), *value = arguments[count + i];
    bool fits = name == state->words[CORE_TIMEOUT]
                    ? !count && is_time(value)
                    : name == state->words[CORE_DLPACK_STREAM] && value == Py_None;
    if (!fits) return false;
  }
  return true;
}

/* Python says which frames are held. */
static bool is_full(const struct taker *taker) {
  return !taker->held || core_held_count(taker->held) >= taker->hold;
}

/* NULL without an exception: there is none at once. */
static PyObject *take(const struct taker *taker) {
  struct core_taken taken;
  int status = core_take_frame(cudalink_importer_acquire, taker->importer, CUDALINK_STREAM_COMPLETE,
                               0, &taken);
  if (status == CUDALINK_ERROR_TIMEOUT || status == CUDALINK_ERROR_BUSY ||
      status == CUDALINK_ERROR_NOT_FOUND)
    return NULL;
  if (status < 0) return core_fail(taker->module, status);
  PyTypeObject *type = (PyTypeObject *)core_state(taker->module)->frame_type;
  return core_lease_new(taker->module, type, taker->held, &taken);
}

PyObject *core_taker_take(PyObject *self) {
  const struct taker *taker = (const struct taker *)self;
  PyObject *frame = NULL;
  CORE_LOCK(self);
  if (!is_full(taker)) frame = take(taker);
  CORE_UNLOCK();
  return frame;
}

static PyObject *taker_acquire(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                               Py_ssize_t count, PyObject *names) {
  PyObject *frame = NULL;
  if (is_plain(type, arguments, count, names)) frame = core_taker_take(self);
  if (frame || PyErr_Occurred()) return frame;
  return core_call(core_state(PyType_GetModule(type))->acquire, self, arguments, count, names);
}

/* ---- the type ------------------------------------------------------------------------------------------- */

/* _keep(held): its frames are noted there. */
static PyObject *taker_keep(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                            Py_ssize_t count, PyObject *names) {
  PyObject *module = PyType_GetModule(type), *held_type = core_state(module)->held_type;
  if (count != 1 || names || !PyObject_TypeCheck(arguments[0], (PyTypeObject *)held_type))
    return PyErr_Format(PyExc_TypeError, "_keep takes a Held");
  CORE_LOCK(self);
  ((struct taker *)self)->module = module;
  set(&((struct taker *)self)->held, Py_NewRef(arguments[0]));
  CORE_UNLOCK();
  Py_RETURN_NONE;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((struct taker *)self)->held);
  return 0;
}

static int clear(PyObject *self) {
  Py_CLEAR(((struct taker *)self)->held);
  return 0;
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"_id", T_UINT, offsetof(struct taker, importer.id), 0, NULL},
    {"_hold", T_PYSSIZET, offsetof(struct taker, hold), 0, NULL},
    {"_held", T_OBJECT, offsetof(struct taker, held), READONLY, NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"_keep", _PyCFunction_CAST(taker_keep), METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
    {Py_tp_members, members}, {Py_tp_methods, methods},   {0, NULL},
};

PyType_Spec core_taker_spec = {
    .name = "cuda_link._core.Taker",
    .basicsize = sizeof(struct taker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

/* As inspect and help read it. */
static char *described(PyObject *function, const char *signature) {
  PyObject *text = PyObject_GetAttrString(function, "__doc__");
  const char *said = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  const size_t size = said ? strlen(signature) + strlen(said) + 1 : 0;
  char *all = said ? malloc(size) : NULL;
  if (all) snprintf(all, size, "%s%s", signature, said);
  Py_XDECREF(text);
  PyErr_Clear(); /* python -OO has no texts */
  return all;
}

int core_offer(PyObject *type, PyObject *base, PyMethodDef *method, const char *signature,
               PyObject **python) {
  set(python, PyObject_GetAttrString(type, method->ml_name));
  if (!*python) return -1;
  if (!method->ml_doc) method->ml_doc = described(*python, signature);
  PyObject *ours = PyDescr_NewMethod((PyTypeObject *)base, method);
  int status = ours ? PyObject_SetAttrString(type, method->ml_name, ours) : -1;
  Py_XDECREF(ours);
  return status;
}

/* taker_offer(type, frames): the acquire of that subclass of Taker is tried here first, and returns instances of
 * `frames`. Once per process: the method stays. */
static PyObject *taker_offer(PyObject *module, PyObject *arguments) {
  static const char signature[] = "acquire($self, /, timeout=None, *, stream=None)\n--\n\n";
  static PyMethodDef method = {"acquire", _PyCFunction_CAST(taker_acquire),
                               METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL};
  struct core_state *state = core_state(module);
  PyObject *type, *frames;
  if (!PyArg_ParseTuple(arguments, "OO", &type, &frames)) return NULL;
  if (core_lease_check_type(module, frames) < 0) return NULL;
  set(&state->frame_type, Py_NewRef(frames));
  int status = core_offer(type, state->taker_type, &method, signature, &state->acquire);
  return status < 0 ? NULL : Py_NewRef(Py_None);
}

PyMethodDef core_taker_methods[] = {
    {"taker_offer", taker_offer, METH_VARARGS, NULL},
    {0},
};
