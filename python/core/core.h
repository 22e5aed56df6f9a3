/* SPDX-License-Identifier: MIT
 *
 * cuda_link._core: the public headers as Python functions, and the types under cuda_link.Frame and
 * cuda_link.Array. Structs of the C API travel as buffers that cuda_link._abi lays out; cuda_link._pure
 * is the same in ctypes, and the package's other modules can't tell the two apart. Only DLPack's
 * exchange table (table.c) is here alone.
 *
 * Limited API of CPython 3.11; with free-threaded CPython, which has none, the whole of it (lock.h). Every call that may take a lock of the library gives up the GIL first:
 * a thread inside the library never waits for it.
 */
#ifndef CUDALINK_PYTHON_CORE_H
#define CUDALINK_PYTHON_CORE_H

#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cudalink/cudalink.h"

/* Names of arguments: those of __dlpack__, then one more of acquire; a method of Python's. */
enum {
  CORE_DLPACK_STREAM,
  CORE_DLPACK_MAX_VERSION,
  CORE_DLPACK_DEVICE,
  CORE_DLPACK_COPY,
  CORE_DLPACK_WORDS,
  CORE_TIMEOUT = CORE_DLPACK_WORDS,
  CORE_GET_FRAME,
  CORE_WORDS
};

#define CORE_ODDITIES 7

struct core_state {
  PyObject *error_for;               /* cuda_link._errors.error_for */
  PyObject *refusal_for;             /* cuda_link._errors.refusal_for */
  PyObject *words[CORE_WORDS];       /* interned */
  PyObject *oddities[CORE_ODDITIES]; /* sender.c: names, interned */
  PyObject *acquire;                 /* taker.c: the method of Python's */
  PyObject *frame_type;              /* taker.c: what it returns */
  PyObject *get_frame;               /* getter.c: the method of Python's */
  PyObject *result_type;             /* getter.c: what it returns, a tuple */
  PyObject *new_frame;               /* getter.c: the first thing in there */
  _Atomic cudalink_dtype given;      /* exchange.c: of a frame that was given by __dlpack__ */
  PyObject *array_type;
  PyObject *getter_type;
  PyObject *held_type;
  PyObject *lease_type;
  PyObject *sender_type;
  PyObject *slot_type;
  PyObject *taker_type;
  PyObject *view_type;
};

/* Raises the exception of a status, with the sentence of the last failing call. Returns NULL. */
PyObject *core_fail(PyObject *module, int status);
/* The same for arrays that can't be lent or taken as they are: a BufferError. */
PyObject *core_refuse(PyObject *module, int status);
/* None, or core_fail. */
PyObject *core_answer(PyObject *module, int status);
struct core_state *core_state(PyObject *module);

/* drop(thing), of which something may be Python's, while an exception may be on its way: that stays. */
void core_drop(void (*drop)(void *thing), void *thing);
/* For who goes another way when one has failed: forgets its exception, if there is one. -1: it stays, since it tells of
 * something else, as KeyboardInterrupt does. */
int core_overlook(void);

/* function(first, ...) with the arguments of a fast call; no `first` when that is NULL. */
PyObject *core_call(PyObject *function, PyObject *first, PyObject *const *arguments,
                    Py_ssize_t count, PyObject *names);

/* Frees `buffer` on failure; raises ValueError. */
int core_check_size(Py_buffer *buffer, size_t size, const char *what);
cudalink_stream core_stream(unsigned kind, unsigned long long handle);

/* ---- kept.c: what copies still read ------------------------------------------------------------------ */
struct core_kept {
  struct core_kept *next;
  void *thing;
  void (*end)(void *thing); /* lets it go; called with the GIL */
};
struct core_kept *core_kept_new(void *thing, void (*end)(void *thing)); /* NULL: no memory */
/* For the library: `owner` is a core_kept. Any thread, with the GIL or without. */
void core_kept_drop(void *owner);
/* True: taken over. Without the GIL. */
bool core_keep(cudalink_exporter exporter, struct core_kept *kept);
/* With the GIL, around calls that may drop: what they do is let go at the end. */
void core_kept_begin(void);
void core_kept_end(void);
int core_kept_start(PyObject *module);

/* ---- handle.c: what is alike for exporters and importers, which have a number each -------------- */
/* (handle, buffer of statistics) -> None */
PyObject *core_statistics(PyObject *module, PyObject *arguments,
                          int (*get)(uint32_t id, void *statistics));
/* (handle) -> None */
PyObject *core_close(PyObject *module, PyObject *arguments, int (*close)(uint32_t id));
/* (id, ns) -> None */
PyObject *core_wait(PyObject *module, PyObject *arguments,
                    int (*wait)(uint32_t id, int64_t timeout));

typedef int core_take_function(cudalink_importer, cudalink_stream, int64_t, cudalink_frame *);
/* A frame that was acquired. */
struct core_taken {
  cudalink_hold *hold;
  cudalink_frame frame; /* what it is; the lease is the hold's */
};
/* One of importer.h's, and a hold on its frame, without the GIL. On failure there is none. */
int core_take_frame(core_take_function *call, cudalink_importer importer, cudalink_stream stream,
                    long long timeout, struct core_taken *taken);
int core_lease_check_type(PyObject *module, PyObject *type);
/* A lease of it: an instance of `type`, which is Lease or a subclass. `held`, a Held, has it until it is given
 * back. Takes the hold over, also on failure. */
PyObject *core_lease_new(PyObject *module, PyTypeObject *type, PyObject *held,
                         const struct core_taken *taken);
/* taker.c: what an acquire of this Taker returns that waits for nothing. NULL without an exception: there is
 * none at once, or Python has to say why. */
PyObject *core_taker_take(PyObject *self);
/* taker.c: `method` becomes that of `type`, a subclass of `base`, in front of the one that Python has, which
 * goes to `*python`. `signature`: as inspect reads it. -1: an exception is set. */
int core_offer(PyObject *type, PyObject *base, PyMethodDef *method, const char *signature,
               PyObject **python);

/* Memory, and what keeps it. */
struct core_memory {
  void *address;
  Py_ssize_t bytes;
  int read_only;
  PyObject *owner;          /* may be NULL */
  void *hold;               /* may be NULL */
  void (*drop)(void *hold); /* gives it up */
};
/* Takes a reference of its own to the owner, and the hold over, also on failure. */
PyObject *core_view_new(PyObject *module, const struct core_memory *memory);
/* view(address, bytes, read_only, owner) */
PyObject *core_view(PyObject *module, PyObject *arguments);

/* Dimensions of a tuple of extents, or -1 with an exception. */
int core_shape(PyObject *tuple, int64_t *shape);

/* A capsule of a new tensor. Takes `owner` over, also on failure. */
PyObject *core_capsule(PyObject *module, const cudalink_view *view, void *owner,
                       void (*drop)(void *owner), bool versioned);
/* An array of `type`, which is Array or a subclass. Takes `array` over, also on failure. NULL: one that is put into its
 * place, before anybody sees the object. */
PyObject *core_array_new(PyObject *module, PyTypeObject *type, cudalink_array *array);
int core_array_check_type(PyObject *module, PyObject *type);
cudalink_array *core_array_of_object(PyObject *self);
cudalink_array **core_array_place(PyObject *self);
PyObject *core_array_module(PyObject *self);
PyObject *core_array_of(PyObject *module, PyObject *arguments);
PyObject *core_array_pinned(PyObject *module, PyObject *arguments);

/* How many leases a Held has. */
Py_ssize_t core_held_count(PyObject *self);

extern PyType_Spec core_array_spec;
int core_sender_start(struct core_state *state);
extern PyType_Spec core_getter_spec;
extern PyType_Spec core_held_spec;
extern PyType_Spec core_lease_spec;
extern PyType_Spec core_sender_spec;
extern PyType_Spec core_slot_spec;
extern PyType_Spec core_taker_spec;
extern PyType_Spec core_view_spec;
extern PyMethodDef core_capsule_methods[];
extern PyMethodDef core_channel_methods[];
extern PyMethodDef core_exporter_methods[];
extern PyMethodDef core_format_methods[];
extern PyMethodDef core_getter_methods[];
extern PyMethodDef core_importer_methods[];
extern PyMethodDef core_kept_methods[];
extern PyMethodDef core_sender_methods[];
extern PyMethodDef core_slot_methods[];
extern PyMethodDef core_table_methods[];
extern PyMethodDef core_taker_methods[];

#endif
