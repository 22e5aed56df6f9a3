/* SPDX-License-Identifier: MIT
 *
 * Getter: what the known face's Importer is in C, and what nearly every get_frame asks: a frame that is there,
 * as torch's exchange table gives it. cuda_link._known.importer has the method itself, which answers all else
 * (a stream, a wait, why there is none, another shape, a copy), says when gets may go straight, and goes on with
 * what was taken here and is no such frame.
 */
#include "lease.h"
#include "lock.h"
#include "table.h"

#include <stddef.h>
#include <structmember.h>

struct getter {
  PyObject_HEAD;
  PyObject *taker;                       /* of its channel; NULL: not straight */
  const cudalink_dlpack_exchange *table; /* torch's */
  PyObject *capsule;                     /* which keeps it */
  PyObject *frame;                       /* the last one that was lent */
  Py_ssize_t frames;
  unsigned long long got, stamp; /* ns: of that get, of its frame */
};

static struct getter *getter_of(PyObject *self) { return (struct getter *)self; }

/* ---- get_frame ------------------------------------------------------------------------------------------ */

/* (stream=None), and no stream is named. */
static bool is_plain(const struct core_state *state, PyObject *const *arguments, Py_ssize_t given,
                     PyObject *names) {
  if (!given && !names) return true;
  if (given + (names ? PyTuple_Size(names) : 0) != 1 || arguments[0] != Py_None) return false;
  return given || PyTuple_GetItem(names, 0) == state->words[CORE_DLPACK_STREAM];
}

/* As ImportResult(NEW_FRAME, tensor) makes one, whose __new__ is Python's. Takes the tensor over. */
static PyObject *result_of(const struct core_state *state, PyObject *tensor) {
  newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
  PyObject *items = PyTuple_Pack(2, state->new_frame, tensor);
  PyObject *arguments = items ? PyTuple_Pack(1, items) : NULL;
  PyObject *result = arguments ? make((PyTypeObject *)state->result_type, arguments, NULL) : NULL;
  Py_XDECREF(arguments);
  Py_XDECREF(items);
  Py_DECREF(tensor);
  return result;
}

/* Other shapes are Python's to change, and what was published as invalid is nobody's. */
static bool is_picture(const cudalink_frame *frame) {
  return !(frame->flags & CUDALINK_FRAME_INVALID) && frame->description.planes[0].dimensions == 3;
}

/* self._get_frame(None, taken): a frame, or why there is none. NULL: nothing was. Takes `taken` over. */
static PyObject *ask_python(PyObject *self, const struct core_state *state, PyObject *taken) {
  PyObject *name = state->words[CORE_GET_FRAME];
  PyObject *answer = PyObject_CallMethodObjArgs(self, name, Py_None, taken, NULL);
  Py_XDECREF(taken);
  return answer;
}

static PyObject *caught(void) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return error;
}

static void count_in(PyObject *self, const cudalink_frame *frame, unsigned long long got) {
  struct getter *getter = getter_of(self);
  CORE_LOCK(self);
  getter->frames++;
  getter->got = got;
  getter->stamp = frame->timestamp;
  CORE_UNLOCK();
}

/* It stays until the next one is there. */
static void keep(PyObject *self, PyObject *lease) {
  struct getter *getter = getter_of(self);
  PyObject *before;
  CORE_LOCK(self);
  before = getter->frame;
  getter->frame = Py_NewRef(lease);
  CORE_UNLOCK();
  Py_XDECREF(before);
}

static PyObject *lend(PyObject *self, const struct core_state *state, PyObject *lease,
                      const cudalink_dlpack_exchange *table) {
  if (!is_picture(&core_lease_of(lease)->frame)) return ask_python(self, state, lease);
  unsigned long long got = cudalink_now();
  PyObject *tensor = core_lease_give_by(core_lease_of(lease), table); /* nobody else has it */
  if (tensor == Py_None) {
    Py_DECREF(tensor);
    return ask_python(self, state, lease);
  }
  count_in(self, &core_lease_of(lease)->frame, got);
  if (tensor) keep(self, lease);
  Py_DECREF(lease);
  return tensor ? result_of(state, tensor) : NULL;
}

struct way {
  PyObject *taker, *capsule; /* references */
  const cudalink_dlpack_exchange *table;
};

/* False: gets don't go straight. */
static bool find_way(PyObject *self, struct way *way) {
  const struct getter *getter = getter_of(self);
  CORE_LOCK(self);
  *way = (struct way){Py_XNewRef(getter->taker), Py_XNewRef(getter->capsule), getter->table};
  CORE_UNLOCK();
  return way->taker;
}

static PyObject *get_frame(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                           Py_ssize_t count, PyObject *names) {
  const struct core_state *state = core_state(PyType_GetModule(type));
  struct way way;
  PyObject *answer;
  if (!is_plain(state, arguments, count, names))
    return core_call(state->get_frame, self, arguments, count, names);
  if (!find_way(self, &way)) return ask_python(self, state, NULL);
  PyObject *lease = core_taker_take(way.taker);
  if (lease)
    answer = lend(self, state, lease, way.table);
  else
    answer = ask_python(self, state, PyErr_Occurred() ? caught() : NULL);
  Py_DECREF(way.taker);
  Py_DECREF(way.capsule);
  return answer;
}

/* ---- the type ------------------------------------------------------------------------------------------- */

static void set_way(PyObject *self, const struct way *way) {
  struct getter *getter = getter_of(self);
  PyObject *taker, *capsule;
  CORE_LOCK(self);
  taker = getter->taker;
  capsule = getter->capsule;
  getter->taker = Py_XNewRef(way->taker);
  getter->capsule = Py_XNewRef(way->capsule);
  getter->table = way->table;
  CORE_UNLOCK();
  Py_XDECREF(taker);
  Py_XDECREF(capsule);
}

/* _straight(importer, table): gets may go straight. _straight(None, None): they may not. */
static PyObject *getter_straight(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                                 Py_ssize_t count, PyObject *names) {
  PyObject *taker_type = core_state(PyType_GetModule(type))->taker_type;
  struct way way = {0};
  if (count != 2 || names)
    return PyErr_Format(PyExc_TypeError, "_straight takes an importer and a table");
  if (PyObject_TypeCheck(arguments[0], (PyTypeObject *)taker_type))
    way = (struct way){arguments[0], arguments[1], core_table_of(arguments[1])};
  set_way(self, &way);
  Py_RETURN_NONE;
}

/* _note(frame): it was got just now. */
static PyObject *getter_note(PyObject *self, PyTypeObject *type, PyObject *const *arguments,
                             Py_ssize_t count, PyObject *names) {
  PyObject *module = PyType_GetModule(type);
  if (count != 1 || names) return PyErr_Format(PyExc_TypeError, "_note takes a frame");
  if (core_lease_check_type(module, (PyObject *)Py_TYPE(arguments[0])) < 0) return NULL;
  count_in(self, &core_lease_of(arguments[0])->frame, cudalink_now());
  Py_RETURN_NONE;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
  const struct getter *getter = getter_of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(getter->taker);
  Py_VISIT(getter->capsule);
  Py_VISIT(getter->frame);
  return 0;
}

static int clear(PyObject *self) {
  struct getter *getter = getter_of(self);
  set_way(self, &(struct way){0});
  Py_CLEAR(getter->frame);
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
    {"_frame", T_OBJECT, offsetof(struct getter, frame), 0, NULL},
    {"frame_count", T_PYSSIZET, offsetof(struct getter, frames), 0, NULL},
    {"_got", T_ULONGLONG, offsetof(struct getter, got), 0, NULL},
    {"_stamp", T_ULONGLONG, offsetof(struct getter, stamp), 0, NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"_note", _PyCFunction_CAST(getter_note), METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_straight", _PyCFunction_CAST(getter_straight), METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
    {Py_tp_members, members}, {Py_tp_methods, methods},   {0, NULL},
};

PyType_Spec core_getter_spec = {
    .name = "cuda_link._core.Getter",
    .basicsize = sizeof(struct getter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

/* getter_offer(type, results, new): the get_frame of that subclass of Getter is tried here first, and returns
 * instances of `results`, a tuple of `new` and a tensor. Once per process: the method stays. */
static PyObject *getter_offer(PyObject *module, PyObject *arguments) {
  static const char signature[] = "get_frame($self, /, stream=None)\n--\n\n";
  static PyMethodDef method = {"get_frame", _PyCFunction_CAST(get_frame),
                               METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL};
  struct core_state *state = core_state(module);
  PyObject *type, *results, *new_frame;
  if (!PyArg_ParseTuple(arguments, "OOO", &type, &results, &new_frame)) return NULL;
  if (!PyType_Check(results) || !PyType_IsSubtype((PyTypeObject *)results, &PyTuple_Type))
    return PyErr_Format(PyExc_TypeError, "%R is no tuple", results);
  Py_CLEAR(state->result_type);
  Py_CLEAR(state->new_frame);
  state->result_type = Py_NewRef(results);
  state->new_frame = Py_NewRef(new_frame);
  int status = core_offer(type, state->getter_type, &method, signature, &state->get_frame);
  return status < 0 ? NULL : Py_NewRef(Py_None);
}

PyMethodDef core_getter_methods[] = {
    {"getter_offer", getter_offer, METH_VARARGS, NULL},
    {0},
};
