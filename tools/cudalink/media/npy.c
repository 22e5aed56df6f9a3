/* SPDX-License-Identifier: MIT
 *
 * The element types of NPY files: byte order, kind, bytes.
 */
#include "media/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct npy_type {
  char kind;
  uint8_t bytes;
  uint8_t code; /* cudalink_dtype_code */
};

static const struct npy_type types[] = {
    {'b', 1, CUDALINK_DTYPE_BOOL},     {'i', 1, CUDALINK_DTYPE_INT},
    {'i', 2, CUDALINK_DTYPE_INT},      {'i', 4, CUDALINK_DTYPE_INT},
    {'i', 8, CUDALINK_DTYPE_INT},      {'u', 1, CUDALINK_DTYPE_UINT},
    {'u', 2, CUDALINK_DTYPE_UINT},     {'u', 4, CUDALINK_DTYPE_UINT},
    {'u', 8, CUDALINK_DTYPE_UINT},     {'f', 2, CUDALINK_DTYPE_FLOAT},
    {'f', 4, CUDALINK_DTYPE_FLOAT},    {'f', 8, CUDALINK_DTYPE_FLOAT},
    {'f', 16, CUDALINK_DTYPE_FLOAT},   {'c', 8, CUDALINK_DTYPE_COMPLEX},
    {'c', 16, CUDALINK_DTYPE_COMPLEX},
};
#define TYPE_COUNT (sizeof types / sizeof types[0])

static const char *why_not(char kind, unsigned long bytes) {
  switch (kind) {
  case 'V':
  case 'f':
    if (bytes <= 2)
      return "looks like bfloat16 or an 8-bit float, which NPY can't name; save it as float32, or "
             "its bits with .view('u1') or .view('u2')";
    return "is no number; save an array of plain numbers";
  case 'c': return "is too wide (128 bits per element is most); save it as complex128";
  case 'O': return "holds Python objects, which are not read; save an array of plain numbers";
  case 'S':
  case 'U':
  case 'a': return "holds text; save an array of plain numbers";
  case 'M':
  case 'm': return "holds dates; save them as int64 with .view('i8')";
  default: return "is no number; save an array of plain numbers";
  }
}

const char *npy_type_from_text(const char *text, cudalink_dtype *dtype, uint32_t *swap) {
  char order = '|';
  if (*text && strchr("<>=|", *text)) order = *text++;
  char kind = *text;
  char *end = NULL;
  unsigned long bytes = kind ? strtoul(text + 1, &end, 10) : 0;
  for (size_t i = 0; i < TYPE_COUNT && end && *end == 0; i++) {
    if (types[i].kind != kind || types[i].bytes != bytes) continue;
    *dtype = cudalink_dtype_make((cudalink_dtype_code)types[i].code, (uint8_t)(bytes * 8));
    *swap = order == '>' && bytes > 1 ? (uint32_t)bytes : 0;
    if (*swap && kind == 'c') *swap /= 2;
    return NULL;
  }
  return why_not(kind, bytes);
}

int npy_type_to_text(cudalink_dtype dtype, char text[NPY_TYPE_SIZE]) {
  for (size_t i = 0; i < TYPE_COUNT; i++)
    if (types[i].code == dtype.code && types[i].bytes * 8 == dtype.bits) {
      snprintf(text, NPY_TYPE_SIZE, "%c%c%u", types[i].bytes == 1 ? '|' : '<', types[i].kind,
               types[i].bytes);
      return 1;
    }
  return 0;
}
