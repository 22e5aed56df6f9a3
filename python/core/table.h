/* SPDX-License-Identifier: MIT
 *
 * Exchange tables of other types.
 */
#ifndef CUDALINK_PYTHON_TABLE_H
#define CUDALINK_PYTHON_TABLE_H

#include "core.h"

/* The part of a table that we understand, or NULL. */
const cudalink_dlpack_exchange *core_table_of(PyObject *capsule);
/* What a table's current_stream says. */
cudalink_stream core_stream_of(void *handle);

#endif
