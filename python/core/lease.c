/* SPDX-License-Identifier: MIT
 *
 * Lease: a held frame, given back with the object or before. cuda_link.Frame is a subclass of it that
 * adds methods and no fields; what a loop asks of every frame is here.
 *
 * Views of its memory and tensors made of it have references of their own, so the memory stays as it is
 * for as long as any of them lives.
 */
#include "lease.h"

#include <stddef.h>
#include <structmember.h>

#include "lock.h"

/* ---- begin and end ------------------------------------------------------------------------------ */

/* Zeroed up to `frame`. A frame refers to nothing that refers to it, and adds no fields: the collector need not look
 * at it, and nothing behind its planes is needed. */
static struct core_lease *allocate(PyObject *module, PyTypeObject *type, Py_ssize_t planes) {
  bool is_frame = (PyObject *)type == core_state(module)->frame_type;
  if (!is_frame || !(PyType_GetFlags(type) & Py_TPFLAGS_HAVE_GC)) {
    allocfunc call = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return (struct core_lease *)call(type, planes);
  }
  struct core_lease *lease = PyObject_GC_NewVar(struct core_lease, type, planes);
  const size_t head = sizeof(PyVarObject);
  if (lease) memset((char *)lease + head, 0, offsetof(struct core_lease, frame) - head);
  return lease;
}

static struct core_lease *lease_of(PyObject *module, PyTypeObject *type, PyObject *held,
                                   const cudalink_frame *frame) {
  const cudalink_description *description = &frame->description;
  struct core_lease *lease = allocate(module, type, (Py_ssize_t)description->plane_count);
  if (!lease) return NULL;
  lease->module = module;
  lease->held = Py_NewRef(held);
  memcpy(&lease->frame, frame, offsetof(cudalink_frame, text));
  lease->frame.text[0] = '\0'; /* all there is of a frame that is valid */
  if (frame->flags & CUDALINK_FRAME_INVALID)
    memcpy(lease->frame.text, frame->text, sizeof frame->text);
  memcpy(&lease->frame.description, description,
         offsetof(cudalink_description, planes) +
             description->plane_count * sizeof description->planes[0]);
  return lease;
}

int core_lease_check_type(PyObject *module, PyObject *type) {
  if (PyType_Check(type) &&
      PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)core_state(module)->lease_type))
    return 0;
  PyErr_Format(PyExc_TypeError, "%R is no subclass of Lease", type);
  return -1;
}

PyObject *core_lease_new(PyObject *module, PyTypeObject *type, PyObject *held,
                         const struct core_taken *taken) {
  struct core_lease *lease = lease_of(module, type, held, &taken->frame);
  if (!lease) {
    cudalink_hold_drop(taken->hold);
    return NULL;
  }
  lease->hold = taken->hold;
  core_held_add(lease);
  return (PyObject *)lease;
}

static void drop(struct core_lease *lease) {
  cudalink_hold *hold = lease->hold;
  lease->hold = NULL;
  if (!hold) return;
  core_held_remove(lease);
  cudalink_hold_drop(hold); /* never waits: the GIL may stay */
}

cudalink_hold *core_lease_hold(const struct core_lease *lease) {
  if (!lease->hold) {
    PyErr_SetString(PyExc_ValueError,
                    "this frame was released; what is needed longer has to be copied "
                    "(frame.copy()) or released later");
    return NULL;
  }
  int status = cudalink_hold_use(lease->hold, CUDALINK_STREAM_COMPLETE); /* FORKED? One load */
  if (status >= 0) return lease->hold;
  core_fail(lease->module, status);
  return NULL;
}

static PyObject *lease_refuse(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)type, (void)arguments, (void)keywords;
  PyErr_SetString(PyExc_TypeError, "frames come from an importer: importer.acquire()");
  return NULL;
}

/* _release(): behind the streams that the frame was exported to. _release(kind, handle): exactly so. */
static PyObject *lease_release(PyObject *self, PyObject *arguments) {
  struct core_lease *lease = core_lease_of(self);
  unsigned kind = CUDALINK_STREAM_NOT_SAID;
  unsigned long long handle = 0;
  if (!PyArg_ParseTuple(arguments, "|IK", &kind, &handle)) return NULL;
  cudalink_hold *hold = core_lease_hold(lease);
  if (!hold) {
    drop(lease); /* of a forked child's copy nothing is left to give back */
    return NULL;
  }
  if (kind == CUDALINK_STREAM_NOT_SAID) {
    drop(lease);
    Py_RETURN_NONE;
  }
  lease->hold = NULL; /* for other threads, during the call */
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_hold_release(hold, core_stream(kind, handle));
  Py_END_ALLOW_THREADS;
  bool kept = status == CUDALINK_ERROR_STREAM || status == CUDALINK_ERROR_CAPTURING ||
              status == CUDALINK_ERROR_BUSY || status == CUDALINK_ERROR_INVALID_ARGUMENT;
  if (kept)
    lease->hold = hold;
  else
    core_held_remove(lease);
  return core_answer(lease->module, status);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  struct core_lease *lease = core_lease_of(self);
  if (lease->weak) PyObject_ClearWeakRefs(self);
  drop(lease);
  Py_XDECREF(lease->held);
  Py_XDECREF(lease->layout);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

/* ---- what is in it -------------------------------------------------------------------------------- */

static PyObject *lease_flags(PyObject *self, PyObject *unused) {
  struct core_lease *lease = core_lease_of(self);
  (void)unused;
  if (!lease->hold) return PyLong_FromUnsignedLong(lease->frame.flags);
  cudalink_hold *hold = cudalink_hold_retain(lease->hold);
  uint32_t flags = 0;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_frame_flags(cudalink_hold_frame(hold), &flags);
  Py_END_ALLOW_THREADS;
  PyObject *answer = status < 0 ? core_fail(lease->module, status) : PyLong_FromUnsignedLong(flags);
  cudalink_hold_drop(hold);
  if (status >= 0) lease->frame.flags = flags;
  return answer;
}

/* _to_host(buffer): the packed frame. */
static PyObject *lease_to_host(PyObject *self, PyObject *buffer) {
  struct core_lease *lease = core_lease_of(self);
  Py_buffer out;
  if (!core_lease_hold(lease)) return NULL;
  if (PyObject_GetBuffer(buffer, &out, PyBUF_WRITABLE) < 0) return NULL;
  /* Again: the buffer may have released it. Another thread may meanwhile. */
  cudalink_hold *hold = cudalink_hold_retain(core_lease_hold(lease));
  if (!hold) {
    PyBuffer_Release(&out);
    return NULL;
  }
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = lease->written ? cudalink_hold_wait(hold, CUDALINK_STREAM_COMPLETE) : CUDALINK_OK;
  if (status == CUDALINK_OK)
    status = cudalink_frame_to_host(cudalink_hold_frame(hold), out.buf, (uint64_t)out.len);
  Py_END_ALLOW_THREADS;
  PyObject *answer = core_answer(lease->module, status);
  cudalink_hold_drop(hold);
  PyBuffer_Release(&out);
  return answer;
}

/* _to_host_begin(buffer) -> number of the copy, for importer_finish: the same in the background. The frame is
 * released behind the copy; the buffer has to stay until that is finished. */
static PyObject *lease_to_host_begin(PyObject *self, PyObject *buffer) {
  struct core_lease *lease = core_lease_of(self);
  Py_buffer out;
  if (!core_lease_hold(lease)) return NULL;
  if (PyObject_GetBuffer(buffer, &out, PyBUF_WRITABLE) < 0) return NULL;
  cudalink_hold *hold = core_lease_hold(lease); /* again: as in lease_to_host */
  if (!hold) {
    PyBuffer_Release(&out);
    return NULL;
  }
  cudalink_host_copy copy;
  lease->hold = NULL; /* for other threads, during the call */
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_hold_to_host_begin(hold, out.buf, (uint64_t)out.len, &copy);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&out);
  if (status < 0) {
    lease->hold = hold;
    return core_fail(lease->module, status);
  }
  core_held_remove(lease);
  return PyLong_FromUnsignedLongLong(copy.id);
}

/* _view() -> View of the frame's bytes, from the first to the last that its description names. */
static PyObject *lease_view(PyObject *self, PyObject *unused) {
  struct core_lease *lease = core_lease_of(self);
  (void)unused;
  if (!core_lease_hold(lease)) return NULL;
  if (lease->frame.kind != CUDALINK_KIND_HOST) {
    PyErr_SetString(PyExc_BufferError, "this frame is in GPU memory");
    return NULL;
  }
  int status = CUDALINK_OK;
  if (!lease->bytes) status = cudalink_description_bytes(&lease->frame.description, &lease->bytes);
  if (status < 0) return core_fail(lease->module, status);
  struct core_memory memory = {.address = lease->frame.data,
                               .bytes = (Py_ssize_t)lease->bytes,
                               .read_only = !lease->frame.writable,
                               .hold = cudalink_hold_retain(lease->hold),
                               .drop = cudalink_hold_drop};
  return core_view_new(lease->module, &memory);
}

cudalink_hold *core_lease_keep(const struct core_lease *lease, cudalink_stream stream) {
  cudalink_hold *hold = cudalink_hold_retain(core_lease_hold(lease));
  int status;
  if (!hold || stream.kind == CUDALINK_STREAM_NOT_SAID) return hold;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_hold_wait(hold, stream);
  Py_END_ALLOW_THREADS;
  if (status >= 0) return hold;
  core_fail(lease->module, status);
  cudalink_hold_drop(hold);
  return NULL;
}

/* _wait(kind, handle) */
static PyObject *lease_wait(PyObject *self, PyObject *arguments) {
  struct core_lease *lease = core_lease_of(self);
  unsigned kind;
  unsigned long long handle;
  if (!PyArg_ParseTuple(arguments, "IK", &kind, &handle)) return NULL;
  cudalink_hold *hold = core_lease_keep(lease, core_stream(kind, handle));
  cudalink_hold_drop(hold);
  return hold ? Py_NewRef(Py_None) : NULL;
}

/* _written(kind, handle): later waits, and the release, come behind what is queued there */
static PyObject *lease_written(PyObject *self, PyObject *arguments) {
  struct core_lease *lease = core_lease_of(self);
  unsigned kind;
  unsigned long long handle;
  if (!PyArg_ParseTuple(arguments, "IK", &kind, &handle)) return NULL;
  if (!core_lease_hold(lease)) return NULL;
  cudalink_hold *hold = cudalink_hold_retain(lease->hold);
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = cudalink_hold_written(hold, core_stream(kind, handle));
  Py_END_ALLOW_THREADS;
  cudalink_hold_drop(hold);
  if (status == CUDALINK_OK) lease->written = true;
  return core_answer(lease->module, status);
}

PyObject *core_lease_export(const struct core_lease *lease, cudalink_stream stream, unsigned plane,
                            bool versioned) {
  cudalink_view view;
  cudalink_hold *hold = core_lease_keep(lease, stream);
  if (!hold) return NULL;
  int status = cudalink_view_of_frame(&view, cudalink_hold_frame(hold), plane);
  if (status == CUDALINK_OK)
    return core_capsule(lease->module, &view, hold, cudalink_hold_drop, versioned);
  core_fail(lease->module, status);
  cudalink_hold_drop(hold);
  return NULL;
}

/* _export(plane, versioned) -> capsule */
static PyObject *lease_export(PyObject *self, PyObject *arguments) {
  const cudalink_stream unsaid = {.kind = CUDALINK_STREAM_NOT_SAID};
  unsigned plane;
  int versioned;
  if (!PyArg_ParseTuple(arguments, "Ip", &plane, &versioned)) return NULL;
  return core_lease_export(core_lease_of(self), unsaid, plane, versioned);
}

/* As a struct of _abi: with room for all planes. */
static PyObject *get_description(PyObject *self, void *unused) {
  (void)unused;
  const cudalink_description *ours = &core_lease_of(self)->frame.description;
  cudalink_description whole = {0};
  memcpy(&whole, ours,
         offsetof(cudalink_description, planes) + ours->plane_count * sizeof ours->planes[0]);
  return PyBytes_FromStringAndSize((const char *)&whole, sizeof whole);
}

/* _outline() -> what a layout is made of: the description without its timing. */
static PyObject *lease_outline(PyObject *self, PyObject *unused) {
  (void)unused;
  const cudalink_description *description = &core_lease_of(self)->frame.description;
  const size_t head = offsetof(cudalink_description, timing);
  size_t planes = description->plane_count * sizeof description->planes[0];
  PyObject *outline = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head + planes));
  if (!outline) return NULL;
  char *bytes = PyBytes_AsString(outline);
  memcpy(bytes, description, head);
  memcpy(bytes + head, description->planes, planes);
  return outline;
}

static PyObject *get_user(PyObject *self, void *unused) {
  struct core_lease *lease = core_lease_of(self);
  (void)unused;
  if (!core_lease_hold(lease)) return NULL;
  Py_ssize_t bytes = lease->frame.user ? (Py_ssize_t)lease->frame.description.user_size : 0;
  return PyBytes_FromStringAndSize(lease->frame.user, bytes);
}

static PyObject *get_text(PyObject *self, void *unused) {
  (void)unused;
  const char *text = core_lease_of(self)->frame.text;
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *get_address(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromVoidPtr(core_lease_of(self)->frame.data);
}

static PyObject *get_released(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(!core_lease_of(self)->hold);
}

/* Of its first plane: an invalid frame has none, nor memory for one. */
static PyObject *get_dimensions(PyObject *self, void *unused) {
  (void)unused;
  const cudalink_description *description = &core_lease_of(self)->frame.description;
  return PyLong_FromUnsignedLong(description->plane_count ? description->planes[0].dimensions : 0);
}

/* ---- one thread at a time ------------------------------------------------------------------------- */

CORE_LOCKED(lease_release, PyObject *)
CORE_LOCKED(lease_flags, PyObject *)
CORE_LOCKED(lease_outline, PyObject *)
CORE_LOCKED(lease_to_host, PyObject *)
CORE_LOCKED(lease_to_host_begin, PyObject *)
CORE_LOCKED(lease_view, PyObject *)
CORE_LOCKED(lease_wait, PyObject *)
CORE_LOCKED(lease_written, PyObject *)
CORE_LOCKED(lease_export, PyObject *)
CORE_LOCKED(core_lease_give, PyObject *)
CORE_LOCKED(get_user, void *)

static PyObject *get_layout(PyObject *self, void *unused) {
  struct core_lease *lease = core_lease_of(self);
  PyObject *layout;
  (void)unused;
  CORE_LOCK(self);
  layout = Py_NewRef(lease->layout ? lease->layout : Py_None);
  CORE_UNLOCK();
  return layout;
}

/* The first one stays: two threads may have made one. */
static int set_layout(PyObject *self, PyObject *layout, void *unused) {
  struct core_lease *lease = core_lease_of(self);
  (void)unused;
  CORE_LOCK(self);
  if (layout && !lease->layout) lease->layout = Py_NewRef(layout);
  CORE_UNLOCK();
  return 0;
}

static PyObject *lease_dlpack_locked(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                                     PyObject *names) {
  PyObject *answer;
  CORE_LOCK(self);
  answer = core_lease_dlpack(self, arguments, count, names);
  CORE_UNLOCK();
  return answer;
}

/* ---- the type --------------------------------------------------------------------------------------- */

#define MEMBER(name, field, type)                                                                  \
  { name, type, offsetof(struct core_lease, frame.field), READONLY, NULL }
static PyMemberDef members[] = {
    MEMBER("sequence", sequence, T_ULONGLONG),
    MEMBER("timestamp", timestamp, T_ULONGLONG),
    MEMBER("missed", missed, T_ULONGLONG),
    MEMBER("session", session, T_UINT),
    MEMBER("generation", generation, T_UINT),
    MEMBER("_slot", slot, T_UINT),
    MEMBER("_kind", kind, T_UINT),
    MEMBER("_writable", writable, T_UINT),
    MEMBER("_device", device, T_INT),
    MEMBER("_said", flags, T_UINT),
    MEMBER("_plane_count", description.plane_count, T_UINT),
    {"_held", T_OBJECT, offsetof(struct core_lease, held), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct core_lease, weak), READONLY, NULL},
    {0},
};

static PyGetSetDef properties[] = {
    {"user", get_user_locked, NULL, NULL, NULL},
    {"released", get_released, NULL, NULL, NULL},
    {"_description", get_description, NULL, NULL, NULL},
    {"_text", get_text, NULL, NULL, NULL},
    {"_address", get_address, NULL, NULL, NULL},
    {"_dimensions", get_dimensions, NULL, NULL, NULL},
    {"_layout", get_layout, set_layout, NULL, NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"_release", lease_release_locked, METH_VARARGS, NULL},
    {"_flags", lease_flags_locked, METH_NOARGS, NULL},
    {"_outline", lease_outline_locked, METH_NOARGS, NULL},
    {"_to_host", lease_to_host_locked, METH_O, NULL},
    {"_to_host_begin", lease_to_host_begin_locked, METH_O, NULL},
    {"_view", lease_view_locked, METH_NOARGS, NULL},
    {"_wait", lease_wait_locked, METH_VARARGS, NULL},
    {"_written", lease_written_locked, METH_VARARGS, NULL},
    {"_export", lease_export_locked, METH_VARARGS, NULL},
    {"_give", core_lease_give_locked, METH_O, NULL},
    {"_given", core_lease_given, METH_NOARGS, NULL},
    {"__dlpack__", _PyCFunction_CAST(lease_dlpack_locked), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"__dlpack_device__", core_lease_dlpack_device, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, lease_refuse},  {Py_tp_dealloc, dealloc}, {Py_tp_members, members},
    {Py_tp_getset, properties}, {Py_tp_methods, methods}, {0, NULL},
};

PyType_Spec core_lease_spec = {
    .name = "cuda_link._core.Lease",
    .basicsize = offsetof(struct core_lease, frame.description.planes),
    .itemsize = sizeof(cudalink_plane),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
