/* SPDX-License-Identifier: MIT
 *
 * DLPack's capsules: made of views, taken apart into arrays. A capsule that nobody consumed deletes its
 * tensor; one that was consumed has another name.
 */
#include "core.h"
#include "lock.h"

static const char legacy_name[] = "dltensor";
static const char versioned_name[] = "dltensor_versioned";
static const char used_legacy_name[] = "used_dltensor";
static const char used_versioned_name[] = "used_dltensor_versioned";

/* Our deleters are plain C, but what a tensor keeps may be somebody else's array. */
static void delete_legacy(void *pointer) {
  cudalink_dlpack_legacy *tensor = pointer;
  tensor->deleter(tensor);
}

static void delete_versioned(void *pointer) {
  cudalink_dlpack_versioned *tensor = pointer;
  tensor->deleter(tensor);
}

static void end_legacy(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, legacy_name))
    core_drop(delete_legacy, PyCapsule_GetPointer(capsule, legacy_name));
}

static void end_versioned(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, versioned_name))
    core_drop(delete_versioned, PyCapsule_GetPointer(capsule, versioned_name));
}

PyObject *core_capsule(PyObject *module, const cudalink_view *view, void *owner,
                       void (*drop)(void *owner), bool versioned) {
  cudalink_dlpack_legacy *legacy = NULL;
  cudalink_dlpack_versioned *tensor = NULL;
  if (!view->data && drop) { /* no memory to keep: some consumers never delete an empty tensor */
    drop(owner);
    drop = NULL;
  }
  int status = versioned ? cudalink_dlpack_export(view, owner, drop, &tensor)
                         : cudalink_dlpack_export_legacy(view, owner, drop, &legacy);
  if (status < 0) {
    core_refuse(module, status);
    if (drop) drop(owner);
    return NULL;
  }
  PyObject *capsule = versioned ? PyCapsule_New(tensor, versioned_name, end_versioned)
                                : PyCapsule_New(legacy, legacy_name, end_legacy);
  if (capsule) return capsule;
  if (versioned)
    tensor->deleter(tensor);
  else
    legacy->deleter(legacy);
  return NULL;
}

static PyObject *take_versioned(PyObject *module, PyObject *capsule, PyTypeObject *type) {
  cudalink_dlpack_versioned *tensor = PyCapsule_GetPointer(capsule, versioned_name);
  cudalink_array *array;
  int status = cudalink_array_take(&array, tensor);
  if (status < 0) return core_refuse(module, status);
  PyCapsule_SetName(capsule, used_versioned_name);
  return core_array_new(module, type, array);
}

static PyObject *take_legacy(PyObject *module, PyObject *capsule, PyTypeObject *type) {
  cudalink_dlpack_legacy *tensor = PyCapsule_GetPointer(capsule, legacy_name);
  cudalink_array *array;
  int status = cudalink_array_take_legacy(&array, tensor);
  if (status < 0) return core_refuse(module, status);
  PyCapsule_SetName(capsule, used_legacy_name);
  return core_array_new(module, type, array);
}

static PyObject *take(PyObject *module, PyObject *capsule, PyTypeObject *type) {
  if (PyCapsule_IsValid(capsule, versioned_name)) return take_versioned(module, capsule, type);
  if (PyCapsule_IsValid(capsule, legacy_name)) return take_legacy(module, capsule, type);
  if (!PyCapsule_CheckExact(capsule))
    return PyErr_Format(PyExc_TypeError, "a DLPack capsule is needed, not %R", capsule);
  return PyErr_Format(PyExc_BufferError, "%R holds no tensor: a DLPack capsule can be used once",
                      capsule);
}

/* array_take(capsule, type) -> an instance of type. BufferError for a capsule that was used before. */
static PyObject *array_take(PyObject *module, PyObject *arguments) {
  PyObject *capsule, *type, *answer;
  if (!PyArg_ParseTuple(arguments, "OO", &capsule, &type)) return NULL;
  if (core_array_check_type(module, type) < 0) return NULL;
  CORE_LOCK(capsule);
  answer = take(module, capsule, (PyTypeObject *)type);
  CORE_UNLOCK();
  return answer;
}

PyMethodDef core_capsule_methods[] = {
    {"array_take", array_take, METH_VARARGS, NULL},
    {"array_of", core_array_of, METH_VARARGS, NULL},
    {"array_pinned", core_array_pinned, METH_VARARGS, NULL},
    {0},
};
