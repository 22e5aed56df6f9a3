/* SPDX-License-Identifier: MIT
 *
 * The element types of NPY files, for its reader and its writer.
 */
#ifndef CUDALINK_MEDIA_NPY_H
#define CUDALINK_MEDIA_NPY_H

#include "cudalink/frame.h"

#define NPY_TYPE_SIZE 8

/* "<f4" to a type. NULL: done; `swap` is the size of the pieces whose bytes have to be turned
 * round, or 0. Else the end of a sentence about that type. */
const char *npy_type_from_text(const char *text, cudalink_dtype *dtype, uint32_t *swap);

/* The other way. 0: NumPy has no such type. */
int npy_type_to_text(cudalink_dtype dtype, char text[NPY_TYPE_SIZE]);

#endif
