/* SPDX-License-Identifier: MIT
 *
 * Sender: what nearly everybody sends, in one call: a dense array on a GPU, taken by its type's exchange
 * table, that looks as the last one did. cuda_link._plan knows the rules; ChannelExporter._learn teaches a
 * sender what they made of one such array. Everything else it leaves to them: send answers None.
 */
#include <stdlib.h>

#include "core.h"
#include "lock.h"
#include "table.h"

/* Attributes of arrays that can't be sent as they are (cuda_link._oddities): true, or called. */
#define FLAGS 5
static const char *const oddities[CORE_ODDITIES] = {
    "requires_grad", "is_sparse", "is_quantized", "is_meta", "is_nested", "is_conj", "is_neg"};

/* What was learned. Changed as a whole, so that a send goes on with what it has begun with. */
struct lesson {
  uint32_t references; /* under the lock of its sender, or the GIL */
  PyObject *type;      /* of the arrays */
  PyObject *capsule;   /* keeps the table */
  const cudalink_dlpack_exchange *table;
  Py_buffer description;
  cudalink_dlpack_device device;
  cudalink_dtype dtype;
  uint32_t dimensions;
  int64_t shape[CUDALINK_MAX_DIMENSIONS];
  bool asked[CORE_ODDITIES]; /* may arrays of this type have that attribute? */
};

struct sender {
  PyObject_HEAD;
  PyObject *module; /* its type keeps it */
  cudalink_exporter exporter;
  struct lesson *lesson;
};

static void forget(struct lesson *lesson) {
  if (!lesson || --lesson->references) return;
  Py_XDECREF(lesson->type);
  Py_XDECREF(lesson->capsule);
  PyBuffer_Release(&lesson->description);
  free(lesson);
}

/* ---- learning ------------------------------------------------------------------------------------------- */

/* An instance with a dictionary may have any attribute. */
static int learn_oddities(struct lesson *lesson) {
  PyObject *offset = PyObject_GetAttrString(lesson->type, "__dictoffset__");
  bool any = offset && PyLong_AsLong(offset) != 0;
  Py_XDECREF(offset);
  if (!offset) return -1;
  for (int i = 0; i < CORE_ODDITIES; i++)
    lesson->asked[i] = any || PyObject_HasAttrString(lesson->type, oddities[i]);
  return 0;
}

static void learn_view(struct lesson *lesson, const cudalink_view *view) {
  lesson->device = view->device;
  lesson->dtype = view->dtype;
  lesson->dimensions = view->dimensions;
  memcpy(lesson->shape, view->shape, sizeof lesson->shape);
}

/* learn(type of the array, capsule of its table, array as one of ours, description): such an array was sent
 * so. */
static PyObject *sender_learn(PyObject *self, PyObject *arguments) {
  struct sender *sender = (struct sender *)self;
  PyObject *type, *capsule, *array;
  struct lesson *lesson = calloc(1, sizeof *lesson);
  if (!lesson) return PyErr_NoMemory();
  lesson->references = 1;
  if (!PyArg_ParseTuple(arguments, "OOO!y*", &type, &capsule,
                        core_state(sender->module)->array_type, &array, &lesson->description)) {
    free(lesson);
    return NULL;
  }
  lesson->type = Py_NewRef(type);
  lesson->capsule = Py_NewRef(capsule);
  lesson->table = core_table_of(capsule);
  learn_view(lesson, cudalink_array_view(core_array_of_object(array)));
  bool fits = lesson->table && lesson->table->from_object && lesson->table->current_stream &&
              (size_t)lesson->description.len >= sizeof(cudalink_description);
  if (!fits || learn_oddities(lesson) < 0) {
    forget(lesson);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  }
  struct lesson *old = sender->lesson;
  sender->lesson = lesson;
  forget(old);
  Py_RETURN_NONE;
}

/* ---- is it such an array? ------------------------------------------------------------------------------- */

/* Who does not know says what there is to say, with the exception. */
static bool has(PyObject *array, PyObject *name, bool called) {
  PyObject *value =
      called ? PyObject_CallMethodObjArgs(array, name, NULL) : PyObject_GetAttr(array, name);
  bool set = value == Py_True || (value && called && PyObject_IsTrue(value) != 0);
  Py_XDECREF(value);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return set || !value;
  PyErr_Clear();
  return false;
}

static bool is_odd(PyObject *module, const struct lesson *lesson, PyObject *array) {
  PyObject *const *names = core_state(module)->oddities;
  for (int i = 0; i < CORE_ODDITIES; i++)
    if (lesson->asked[i] && has(array, names[i], i >= FLAGS)) return true;
  return false;
}

static bool looks_so(const struct lesson *lesson, const cudalink_dlpack_tensor *tensor) {
  int64_t step = 1;
  if (memcmp(&tensor->device, &lesson->device, sizeof tensor->device) != 0 ||
      memcmp(&tensor->dtype, &lesson->dtype, sizeof tensor->dtype) != 0 || !tensor->data ||
      tensor->dimensions != (int32_t)lesson->dimensions)
    return false;
  for (int32_t i = tensor->dimensions; i-- > 0; step *= tensor->shape[i]) {
    if (tensor->shape[i] != lesson->shape[i]) return false;
    if (tensor->strides && tensor->shape[i] != 1 && tensor->strides[i] != step) return false;
  }
  return true;
}

static void drop_tensor(void *pointer) {
  cudalink_dlpack_versioned *tensor = pointer;
  if (tensor->deleter) tensor->deleter(tensor);
}

/* Its memory, and what keeps that; NULL: not by this way. Taken, not borrowed: an array that is kept need not keep
 * its memory (torch: `tensor.data = other`, `set_`), which consumers may read for long where it lies in a
 * pool. */
static struct core_kept *take(const struct lesson *lesson, PyObject *array, const void **data) {
  cudalink_dlpack_versioned *whole = NULL;
  struct core_kept *kept = NULL;
  if (lesson->table->from_object(array, &whole) < 0 || !whole) return NULL;
  const cudalink_dlpack_tensor *tensor = &whole->tensor;
  if (whole->version.major == CUDALINK_DLPACK_VERSION_MAJOR && looks_so(lesson, tensor))
    kept = core_kept_new(whole, drop_tensor);
  if (kept)
    *data = (const char *)tensor->data + tensor->byte_offset;
  else
    drop_tensor(whole);
  return kept;
}

static int find_stream(const struct lesson *lesson, PyObject *after, cudalink_stream *stream) {
  void *handle = NULL;
  if (after != Py_None)
    return PyArg_ParseTuple(after, "IK", &stream->kind, &stream->handle) ? 0 : -1;
  if (lesson->table->current_stream(lesson->device.type, lesson->device.id, &handle) < 0) return -1;
  *stream = core_stream_of(handle);
  return 0;
}

/* ---- sending -------------------------------------------------------------------------------------------- */

/* Takes `kept` over, or has it let go. Without the GIL. */
static int send_kept(cudalink_exporter exporter, const struct lesson *lesson, const void *data,
                     cudalink_stream stream, struct core_kept *kept) {
  int shared = 0;
  int status = cudalink_exporter_send_shared(exporter, lesson->description.buf, data, NULL, stream,
                                             0, kept, core_kept_drop, &shared);
  if (shared) return status;
  bool copies = status != CUDALINK_ERROR_BUSY && stream.kind != CUDALINK_STREAM_KIND_COMPLETE;
  if (!copies)
    core_kept_drop(kept);
  else
    core_keep(exporter,
              kept); /* else no memory for it, and a leak is better than a free too early */
  return status;
}

static PyObject *send(struct sender *sender, const struct lesson *lesson, PyObject *array,
                      PyObject *after) {
  cudalink_stream stream = {0};
  const void *data = NULL;
  struct core_kept *kept = NULL;
  if (!is_odd(sender->module, lesson, array) && find_stream(lesson, after, &stream) == 0)
    kept = take(lesson, array, &data);
  if (!kept) return core_overlook() < 0 ? NULL : Py_NewRef(Py_None);
  int status;
  core_kept_begin();
  Py_BEGIN_ALLOW_THREADS;
  status = send_kept(sender->exporter, lesson, data, stream, kept);
  Py_END_ALLOW_THREADS;
  if (status < 0 && status != CUDALINK_ERROR_BUSY) core_fail(sender->module, status);
  core_kept_end();
  if (status == CUDALINK_OK) Py_RETURN_TRUE;
  return status == CUDALINK_ERROR_BUSY ? Py_NewRef(Py_False) : NULL;
}

/* send(array, (kind, handle) or None) -> True; False: nothing was free; None: it is another's to send. */
static PyObject *sender_send(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
  struct sender *sender = (struct sender *)self;
  struct lesson *lesson = sender->lesson;
  if (count != 2) return PyErr_Format(PyExc_TypeError, "send takes an array and a stream");
  if (!lesson || (PyObject *)Py_TYPE(arguments[0]) != lesson->type) Py_RETURN_NONE;
  lesson->references++; /* what follows may run anything */
  PyObject *answer = send(sender, lesson, arguments[0], arguments[1]);
  forget(lesson);
  return answer;
}

CORE_LOCKED(sender_learn, PyObject *)

CORE_LOCKED_FAST(sender_send)

/* ---- the type ------------------------------------------------------------------------------------------- */

static PyObject *sender_refuse(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)type, (void)arguments, (void)keywords;
  PyErr_SetString(PyExc_TypeError, "senders belong to exporters");
  return NULL;
}

/* sender(exporter) */
static PyObject *make(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  if (!PyArg_ParseTuple(arguments, "I", &exporter.id)) return NULL;
  struct sender *sender =
      PyObject_GC_New(struct sender, (PyTypeObject *)core_state(module)->sender_type);
  if (!sender) return NULL;
  sender->module = module;
  sender->exporter = exporter;
  sender->lesson = NULL;
  PyObject_GC_Track(sender);
  return (PyObject *)sender;
}

/* A lesson has one reference to each, whoever goes on with it. */
static int traverse(PyObject *self, visitproc visit, void *arg) {
  const struct lesson *lesson = ((struct sender *)self)->lesson;
  Py_VISIT(Py_TYPE(self));
  if (!lesson) return 0;
  Py_VISIT(lesson->type);
  Py_VISIT(lesson->capsule);
  Py_VISIT(lesson->description.obj);
  return 0;
}

static int clear(PyObject *self) {
  struct sender *sender = (struct sender *)self;
  struct lesson *lesson = sender->lesson;
  sender->lesson = NULL;
  forget(lesson);
  return 0;
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int core_sender_start(struct core_state *state) {
  for (int i = 0; i < CORE_ODDITIES; i++) {
    state->oddities[i] = PyUnicode_InternFromString(oddities[i]);
    if (!state->oddities[i]) return -1;
  }
  return 0;
}

static PyMethodDef methods[] = {
    {"learn", sender_learn_locked, METH_VARARGS, NULL},
    {"send", (PyCFunction)(void (*)(void))sender_send_locked, METH_FASTCALL, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, sender_refuse}, {Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},       {Py_tp_methods, methods}, {0, NULL},
};

PyType_Spec core_sender_spec = {
    .name = "cuda_link._core.Sender",
    .basicsize = sizeof(struct sender),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

PyMethodDef core_sender_methods[] = {
    {"sender", make, METH_VARARGS, NULL},
    {0},
};
