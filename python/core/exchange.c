/* SPDX-License-Identifier: MIT
 *
 * __dlpack__ of frames, for what nearly every consumer asks: this memory, ready for this stream. What is
 * asked beyond that (another device, a copy, a stream that is none) is answered, or refused, by
 * cuda_link._tensor, as is everything with the ctypes back end.
 */
#include "lease.h"
#include "table.h"

static bool is_unsaid(PyObject *value) { return !value || value == Py_None; }

/* The stream that has to wait. False: let Python look at it. */
static bool read_stream(PyObject *value, bool on_gpu, cudalink_stream *stream) {
  *stream = (cudalink_stream){.kind = CUDALINK_STREAM_NOT_SAID};
  if (is_unsaid(value)) return !on_gpu;
  if (!PyLong_CheckExact(value)) return false;
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (number == -1 && !overflow) return true;
  if (!on_gpu || overflow || number < 1) return false;
  *stream = number == 1   ? CUDALINK_STREAM_LEGACY
            : number == 2 ? CUDALINK_STREAM_PER_THREAD
                          : CUDALINK_STREAM_HANDLE((uintptr_t)number);
  return true;
}

static bool read_version(PyObject *value, bool *versioned) {
  *versioned = false;
  if (is_unsaid(value)) return true;
  if (!PyTuple_CheckExact(value) || PyTuple_Size(value) < 1) return false;
  PyObject *major = PyTuple_GetItem(value, 0);
  if (!PyLong_CheckExact(major)) return false;
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(major, &overflow);
  *versioned = number >= 1;
  return !overflow;
}

struct request {
  PyObject *values[CORE_DLPACK_WORDS];
  cudalink_stream stream;
  bool versioned;
};

/* Callers' keywords are interned, as ours are. */
static bool read_words(struct core_state *state, PyObject *const *arguments, PyObject *names,
                       struct request *request) {
  Py_ssize_t given = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < given; i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    int word = 0;
    while (word < CORE_DLPACK_WORDS && state->words[word] != name)
      word++;
    if (word == CORE_DLPACK_WORDS) return false;
    request->values[word] = arguments[i];
  }
  return true;
}

static bool is_simple(const struct core_lease *lease, PyObject *const *arguments, Py_ssize_t count,
                      PyObject *names, struct request *request) {
  if (count || lease->frame.description.plane_count != 1) return false;
  if (!read_words(core_state(lease->module), arguments, names, request)) return false;
  PyObject *copy = request->values[CORE_DLPACK_COPY];
  return is_unsaid(request->values[CORE_DLPACK_DEVICE]) && (is_unsaid(copy) || copy == Py_False) &&
         read_stream(request->values[CORE_DLPACK_STREAM], lease->frame.device, &request->stream) &&
         read_version(request->values[CORE_DLPACK_MAX_VERSION], &request->versioned);
}

/* self._only_tensor().__dlpack__(*arguments, **keywords) */
static PyObject *ask_python(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                            PyObject *names) {
  PyObject *tensor = PyObject_CallMethod(self, "_only_tensor", NULL);
  PyObject *method = tensor ? PyObject_GetAttrString(tensor, "__dlpack__") : NULL;
  PyObject *answer = method ? core_call(method, NULL, arguments, count, names) : NULL;
  Py_XDECREF(method);
  Py_XDECREF(tensor);
  return answer;
}

PyObject *core_lease_dlpack(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                            PyObject *names) {
  struct core_lease *lease = core_lease_of(self);
  struct request request = {0};
  if (!is_simple(lease, arguments, count, names, &request))
    return ask_python(self, arguments, count, names);
  return core_lease_export(lease, request.stream, 0, request.versioned);
}

PyObject *core_lease_dlpack_device(PyObject *self, PyObject *unused) {
  (void)unused;
  int32_t device = core_lease_of(self)->frame.device;
  return device ? Py_BuildValue("ii", CUDALINK_DLPACK_CUDA, (int)device - 1)
                : Py_BuildValue("ii", CUDALINK_DLPACK_CPU, 0);
}

/* ---- by the table of who asks -------------------------------------------------------------------------- */

static bool is_known(const struct core_state *state, const cudalink_view *view) {
  cudalink_dtype given = atomic_load(&state->given);
  return !memcmp(&given, &view->dtype, sizeof given) && view->data;
}

/* One that its consumer may write to, on a GPU. */
static bool is_one_array(const cudalink_frame *frame) {
  return frame->device && frame->writable && frame->description.plane_count == 1;
}

/* _give(capsule) -> an array of the type whose exchange table that is, ready on its current stream. None: go
 * by __dlpack__, which has not given it such elements yet (_given): if the table fails, nobody knows whose the
 * tensor is. */
PyObject *core_lease_give(PyObject *self, PyObject *capsule) {
  struct core_lease *lease = core_lease_of(self);
  return core_lease_give_by(lease, is_one_array(&lease->frame) ? core_table_of(capsule) : NULL);
}

PyObject *core_lease_give_by(struct core_lease *lease, const cudalink_dlpack_exchange *table) {
  cudalink_dlpack_versioned *tensor;
  cudalink_view view;
  void *stream = NULL, *array = NULL;
  if (!table || !table->current_stream || !table->to_object || !is_one_array(&lease->frame))
    Py_RETURN_NONE;
  if (!core_lease_hold(lease)) return NULL;
  int status = cudalink_view_of_frame(&view, cudalink_hold_frame(lease->hold), 0);
  if (status < 0) return core_fail(lease->module, status);
  if (!is_known(core_state(lease->module), &view)) Py_RETURN_NONE;
  if (table->current_stream(view.device.type, view.device.id, &stream) < 0)
    return core_overlook() < 0 ? NULL : Py_NewRef(Py_None);
  cudalink_hold *hold = core_lease_keep(lease, core_stream_of(stream));
  if (!hold) return NULL;
  status = cudalink_dlpack_export(&view, hold, cudalink_hold_drop, &tensor);
  if (status < 0) {
    cudalink_hold_drop(hold);
    return core_refuse(lease->module, status);
  }
  if (table->to_object(tensor, &array) == 0) return array;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the exchange table takes no tensor");
  return NULL;
}

/* _given(): __dlpack__ has given elements of this frame's type. */
PyObject *core_lease_given(PyObject *self, PyObject *unused) {
  struct core_lease *lease = core_lease_of(self);
  (void)unused;
  if (lease->frame.description.plane_count == 1)
    atomic_store(&core_state(lease->module)->given, lease->frame.description.planes[0].dtype);
  Py_RETURN_NONE;
}
