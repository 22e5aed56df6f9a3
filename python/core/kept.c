/* SPDX-License-Identifier: MIT
 *
 * What the copies of sends still read (cudalink_exporter_keep), until they have run.
 *
 * The library may say so on any thread, without the GIL, and at the end of the process. What is kept is somebody
 * else's and may be Python's, so it is put on a list here and let go by who has the GIL: by the call that
 * was told, else by the main thread. Behind atexit nothing of it is let go any more.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "core.h"

static struct {
  _Atomic(struct core_kept *) first; /* to be let go */
  _Atomic bool asked;                /* the main thread was, and has not come yet */
  _Atomic bool exiting;
  _Atomic unsigned asking; /* threads that do */
  pid_t process;           /* a forked child has no such threads, whatever `asking` says */
} gone;

static _Thread_local bool inside; /* this thread looks at the list when its call returns */

struct core_kept *core_kept_new(void *thing, void (*end)(void *thing)) {
  struct core_kept *kept = malloc(sizeof *kept);
  if (kept) *kept = (struct core_kept){.thing = thing, .end = end};
  return kept;
}

static void let_all_go(void) {
  struct core_kept *kept = atomic_exchange(&gone.first, NULL);
  while (kept) {
    struct core_kept *next = kept->next;
    kept->end(kept->thing);
    free(kept);
    kept = next;
  }
}

static int on_main_thread(void *unused) {
  (void)unused;
  atomic_store(&gone.asked, false);
  let_all_go();
  return 0;
}

static void ask_main_thread(void) {
  atomic_fetch_add(&gone.asking, 1);
  if (!atomic_load(&gone.exiting) && !atomic_exchange(&gone.asked, true) &&
      Py_AddPendingCall(on_main_thread, NULL) < 0)
    atomic_store(&gone.asked, false); /* too many wait: the next one asks again */
  atomic_fetch_sub(&gone.asking, 1);
}

void core_kept_drop(void *owner) {
  struct core_kept *kept = owner;
  kept->next = atomic_load(&gone.first);
  while (!atomic_compare_exchange_weak(&gone.first, &kept->next, kept)) {
  }
  if (!inside) ask_main_thread();
}

void core_kept_begin(void) { inside = true; }

void core_kept_end(void) {
  inside = false;
  if (!atomic_load_explicit(&gone.first, memory_order_relaxed)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  let_all_go();
  PyErr_Restore(type, value, traceback);
}

bool core_keep(cudalink_exporter exporter, struct core_kept *kept) {
  int status = cudalink_exporter_keep(exporter, kept, core_kept_drop);
  /* CLOSED: nothing reads it any more. */
  if (status == CUDALINK_ERROR_CLOSED) core_kept_drop(kept);
  return status == CUDALINK_OK || status == CUDALINK_ERROR_CLOSED;
}

static void drop_object(void *object) { Py_DECREF((PyObject *)object); }

/* exporter_keep(exporter, object) -> bool: it stays until what was sent so far is copied; else it is the
 * caller's, who does not know for how long. */
static PyObject *exporter_keep(PyObject *module, PyObject *arguments) {
  cudalink_exporter exporter;
  PyObject *object;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "IO", &exporter.id, &object)) return NULL;
  struct core_kept *kept = core_kept_new(object, drop_object);
  if (!kept) return PyErr_NoMemory();
  Py_INCREF(object);
  bool taken;
  core_kept_begin();
  Py_BEGIN_ALLOW_THREADS;
  taken = core_keep(exporter, kept);
  Py_END_ALLOW_THREADS;
  core_kept_end();
  if (!taken) {
    free(kept);
    Py_DECREF(object);
  }
  return PyBool_FromLong(taken);
}

static PyObject *at_exit(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  if (PyInterpreterState_GetID(PyInterpreterState_Get())) Py_RETURN_NONE; /* the process goes on */
  atomic_store(&gone.exiting, true);
  while (gone.process == getpid() && atomic_load(&gone.asking))
    sched_yield();
  Py_RETURN_NONE;
}

int core_kept_start(PyObject *module) {
  PyObject *function = PyObject_GetAttrString(module, "at_exit");
  PyObject *atexit = function ? PyImport_ImportModule("atexit") : NULL;
  PyObject *answer = atexit ? PyObject_CallMethod(atexit, "register", "O", function) : NULL;
  gone.process = getpid();
  Py_XDECREF(function);
  Py_XDECREF(atexit);
  Py_XDECREF(answer);
  return answer ? 0 : -1;
}

PyMethodDef core_kept_methods[] = {
    {"exporter_keep", exporter_keep, METH_VARARGS, NULL},
    {"at_exit", at_exit, METH_NOARGS, NULL},
    {0},
};
