/* SPDX-License-Identifier: MIT
 *
 * A lease, as lease.c makes it and exchange.c exports it.
 */
#ifndef CUDALINK_PYTHON_LEASE_H
#define CUDALINK_PYTHON_LEASE_H

#include "core.h"

/* held.c: those of one importer that were not given back. */
struct core_held {
  PyObject_HEAD;
  struct core_lease *first;
  Py_ssize_t count;
};

struct core_lease {
  PyObject_VAR_HEAD;
  PyObject *module;                 /* its type keeps it */
  cudalink_hold *hold;              /* NULL: given back */
  PyObject *held;                   /* a core_held, which has it as long as there is a hold */
  struct core_lease *next, *before; /* there */
  PyObject *layout;                 /* Python's, once it was asked for */
  PyObject *weak;
  uint64_t bytes;       /* of the frame, from data */
  bool written;         /* streams were named that write to it */
  cudalink_frame frame; /* last: only the planes that are there */
};

static inline struct core_lease *core_lease_of(PyObject *self) { return (struct core_lease *)self; }

void core_held_add(struct core_lease *lease);
void core_held_remove(struct core_lease *lease);

/* The hold of a lease that was not given back, in the process that took it; else NULL and an exception. */
cudalink_hold *core_lease_hold(const struct core_lease *lease);
/* A reference of the caller's own, once that stream, or the caller, waits for the pixels (NOT_SAID: nobody
 * has to). NULL: an exception is set. */
cudalink_hold *core_lease_keep(const struct core_lease *lease, cudalink_stream stream);
/* A capsule of one plane, for that stream. */
PyObject *core_lease_export(const struct core_lease *lease, cudalink_stream stream, unsigned plane,
                            bool versioned);

/* exchange.c: __dlpack__ and __dlpack_device__ of a frame with one plane */
PyObject *core_lease_dlpack(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                            PyObject *names);
PyObject *core_lease_dlpack_device(PyObject *self, PyObject *unused);
PyObject *core_lease_give(PyObject *self, PyObject *capsule);
PyObject *core_lease_give_by(struct core_lease *lease, const cudalink_dlpack_exchange *table);
PyObject *core_lease_given(PyObject *self, PyObject *unused);

#endif
