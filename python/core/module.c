/* SPDX-License-Identifier: MIT
 *
 * The module: its types, its functions, errors.
 */
#define _GNU_SOURCE /* dladdr */
#include "core.h"

#include <dlfcn.h>

struct core_state *core_state(PyObject *module) {
  return PyModule_GetState(module);
}

/* A sentence that was too long may end inside of a letter, and so may a name in it. */
static PyObject *last_error(void) {
  const char *sentence = cudalink_last_error();
  return PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
}

static PyObject *raise_by(PyObject *function, int status) {
  PyObject *sentence = last_error();
  PyObject *error = sentence ? PyObject_CallFunction(function, "iN", status, sentence) : NULL;
  if (!error) return NULL;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
  return NULL;
}

PyObject *core_fail(PyObject *module, int status) {
  return raise_by(core_state(module)->error_for, status);
}

PyObject *core_refuse(PyObject *module, int status) {
  return raise_by(core_state(module)->refusal_for, status);
}

PyObject *core_answer(PyObject *module, int status) {
  if (status < 0) return core_fail(module, status);
  Py_RETURN_NONE;
}

void core_drop(void (*drop)(void *thing), void *thing) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  drop(thing);
  PyErr_Restore(type, value, traceback);
}

int core_overlook(void) {
  if (!PyErr_Occurred()) return 0;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  PyErr_Clear();
  return 0;
}

static PyObject *tuple_of(PyObject *first, PyObject *const *arguments, Py_ssize_t count) {
  Py_ssize_t place = 0;
  PyObject *tuple = PyTuple_New(count + (first ? 1 : 0));
  if (tuple && first) PyTuple_SetItem(tuple, place++, Py_NewRef(first));
  for (Py_ssize_t i = 0; tuple && i < count; i++)
    PyTuple_SetItem(tuple, place++, Py_NewRef(arguments[i]));
  return tuple;
}

static PyObject *dict_of(PyObject *names, PyObject *const *values) {
  PyObject *dict = PyDict_New();
  Py_ssize_t count = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; dict && i < count; i++)
    if (PyDict_SetItem(dict, PyTuple_GetItem(names, i), values[i]) < 0) Py_CLEAR(dict);
  return dict;
}

PyObject *core_call(PyObject *function, PyObject *first, PyObject *const *arguments,
                    Py_ssize_t count, PyObject *names) {
  PyObject *positional = tuple_of(first, arguments, count);
  PyObject *keywords = positional ? dict_of(names, arguments + count) : NULL;
  PyObject *answer = keywords ? PyObject_Call(function, positional, keywords) : NULL;
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return answer;
}

int core_check_size(Py_buffer *buffer, size_t size, const char *what) {
  if ((size_t)buffer->len >= size) return 0;
  PyErr_Format(PyExc_ValueError, "%s: a buffer of %zu bytes is needed, this one has %zd", what,
               size, buffer->len);
  PyBuffer_Release(buffer);
  return -1;
}

cudalink_stream core_stream(unsigned kind, unsigned long long handle) {
  return (cudalink_stream){.kind = kind, .handle = handle};
}

static PyObject *version(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  return PyLong_FromUnsignedLong(cudalink_version());
}

static PyObject *now(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  return PyLong_FromUnsignedLongLong(cudalink_now());
}

/* The file of the library that this module calls, for others that load it by its path. */
static PyObject *library_path(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  uint32_t (*function)(void) = cudalink_version;
  void *address;
  Dl_info info;
  memcpy(&address, &function, sizeof address);
  if (!dladdr(address, &info) || !info.dli_fname)
    return PyErr_Format(PyExc_OSError, "the file of libcudalink can't be found");
  return PyUnicode_DecodeFSDefault(info.dli_fname);
}

static PyMethodDef methods[] = {
    {"library_path", library_path, METH_NOARGS, NULL},
    {"version", version, METH_NOARGS, NULL},
    {"now", now, METH_NOARGS, NULL},
    {"view", core_view, METH_VARARGS, NULL},
    {0},
};

static int find_errors(struct core_state *state) {
  PyObject *errors = PyImport_ImportModule("cuda_link._errors");
  if (!errors) return -1;
  state->error_for = PyObject_GetAttrString(errors, "error_for");
  state->refusal_for = PyObject_GetAttrString(errors, "refusal_for");
  Py_DECREF(errors);
  return state->error_for && state->refusal_for ? 0 : -1;
}

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyObject **type) {
  *type = PyType_FromModuleAndSpec(module, spec, NULL);
  return *type ? PyModule_AddObjectRef(module, name, *type) : -1;
}

static PyMethodDef *all_functions[] = {
    core_capsule_methods, core_channel_methods,  core_exporter_methods, core_format_methods,
    core_getter_methods,  core_importer_methods, core_kept_methods,     core_sender_methods,
    core_slot_methods,    core_table_methods,    core_taker_methods,    NULL};

static int make_words(struct core_state *state) {
  static const char *const words[CORE_WORDS] = {
      [CORE_DLPACK_STREAM] = "stream",    [CORE_DLPACK_MAX_VERSION] = "max_version",
      [CORE_DLPACK_DEVICE] = "dl_device", [CORE_DLPACK_COPY] = "copy",
      [CORE_TIMEOUT] = "timeout",         [CORE_GET_FRAME] = "_get_frame",
  };
  for (int i = 0; i < CORE_WORDS; i++) {
    state->words[i] = PyUnicode_InternFromString(words[i]);
    if (!state->words[i]) return -1;
  }
  return 0;
}

static int fill_in(PyObject *module) {
  struct core_state *state = core_state(module);
  if (find_errors(state) < 0 || make_words(state) < 0 || core_sender_start(state) < 0) return -1;
  if (add_type(module, "Array", &core_array_spec, &state->array_type) < 0) return -1;
  if (add_type(module, "Getter", &core_getter_spec, &state->getter_type) < 0) return -1;
  if (add_type(module, "Held", &core_held_spec, &state->held_type) < 0) return -1;
  if (add_type(module, "Lease", &core_lease_spec, &state->lease_type) < 0) return -1;
  if (add_type(module, "Sender", &core_sender_spec, &state->sender_type) < 0) return -1;
  if (add_type(module, "Slot", &core_slot_spec, &state->slot_type) < 0) return -1;
  if (add_type(module, "Taker", &core_taker_spec, &state->taker_type) < 0) return -1;
  if (add_type(module, "View", &core_view_spec, &state->view_type) < 0) return -1;
  for (PyMethodDef **functions = all_functions; *functions; functions++)
    if (PyModule_AddFunctions(module, *functions) < 0) return -1;
  return core_kept_start(module);
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
  struct core_state *state = core_state(module);
  Py_VISIT(state->error_for);
  Py_VISIT(state->refusal_for);
  for (int i = 0; i < CORE_WORDS; i++)
    Py_VISIT(state->words[i]);
  for (int i = 0; i < CORE_ODDITIES; i++)
    Py_VISIT(state->oddities[i]);
  Py_VISIT(state->acquire);
  Py_VISIT(state->frame_type);
  Py_VISIT(state->get_frame);
  Py_VISIT(state->result_type);
  Py_VISIT(state->new_frame);
  Py_VISIT(state->array_type);
  Py_VISIT(state->getter_type);
  Py_VISIT(state->held_type);
  Py_VISIT(state->lease_type);
  Py_VISIT(state->sender_type);
  Py_VISIT(state->slot_type);
  Py_VISIT(state->taker_type);
  Py_VISIT(state->view_type);
  return 0;
}

static int clear(PyObject *module) {
  struct core_state *state = core_state(module);
  Py_CLEAR(state->error_for);
  Py_CLEAR(state->refusal_for);
  for (int i = 0; i < CORE_WORDS; i++)
    Py_CLEAR(state->words[i]);
  for (int i = 0; i < CORE_ODDITIES; i++)
    Py_CLEAR(state->oddities[i]);
  Py_CLEAR(state->acquire);
  Py_CLEAR(state->frame_type);
  Py_CLEAR(state->get_frame);
  Py_CLEAR(state->result_type);
  Py_CLEAR(state->new_frame);
  Py_CLEAR(state->array_type);
  Py_CLEAR(state->getter_type);
  Py_CLEAR(state->held_type);
  Py_CLEAR(state->lease_type);
  Py_CLEAR(state->sender_type);
  Py_CLEAR(state->slot_type);
  Py_CLEAR(state->taker_type);
  Py_CLEAR(state->view_type);
  return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill_in},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "cuda_link._core",
    .m_doc = "The C API of libcudalink. Internal: use cuda_link.",
    .m_size = sizeof(struct core_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
