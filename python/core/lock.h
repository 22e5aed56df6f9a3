/* SPDX-License-Identifier: MIT
 *
 * What the GIL is to one object, where there is none: in free-threaded CPython each method that looks at
 * fields which may change runs in its object's critical section. As the GIL it is given up wherever a
 * thread detaches (Py_BEGIN_ALLOW_THREADS), and taken again behind it. Elsewhere nothing is left of it.
 */
#ifndef CUDALINK_PYTHON_LOCK_H
#define CUDALINK_PYTHON_LOCK_H

#include <Python.h>

#ifdef Py_GIL_DISABLED
#define CORE_LOCK(object) Py_BEGIN_CRITICAL_SECTION(object)
#define CORE_UNLOCK() Py_END_CRITICAL_SECTION()
#else
#define CORE_LOCK(object) {
#define CORE_UNLOCK() }
#endif

/* function##_locked: function, which takes (self, argument), in the critical section of self. */
#define CORE_LOCKED(function, type)                                                                \
  static PyObject *function##_locked(PyObject *self, type argument) {                              \
    PyObject *answer;                                                                              \
    CORE_LOCK(self);                                                                               \
    answer = function(self, argument);                                                             \
    CORE_UNLOCK();                                                                                 \
    return answer;                                                                                 \
  }

/* The same of one that takes (self, arguments, count). */
#define CORE_LOCKED_FAST(function)                                                                 \
  static PyObject *function##_locked(PyObject *self, PyObject *const *arguments,                   \
                                     Py_ssize_t count) {                                           \
    PyObject *answer;                                                                              \
    CORE_LOCK(self);                                                                               \
    answer = function(self, arguments, count);                                                     \
    CORE_UNLOCK();                                                                                 \
    return answer;                                                                                 \
  }

#endif
