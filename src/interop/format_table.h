/* SPDX-License-Identifier: MIT
 *
 * The table of picture formats. One row says everything that the library knows about a format:
 * describing, checking and converting pictures all read it here.
 */
#ifndef CUDALINK_SRC_INTEROP_FORMAT_TABLE_H
#define CUDALINK_SRC_INTEROP_FORMAT_TABLE_H

#include "cudalink/format.h"

#define FORMAT_MAX_PLANES 4

enum format_model { FORMAT_MODEL_RGB, FORMAT_MODEL_YUV, FORMAT_MODEL_GRAY };

/* How one plane covers the picture. A group of group_width x group_height pixels is stored as
 * group_columns columns in one row; a group that the picture's edge cuts is stored whole. */
struct format_plane {
  char name[8];          /* also the order of the samples in memory, one letter each */
  uint8_t group_width;   /* pixels */
  uint8_t group_height;  /* pixels */
  uint8_t group_columns; /* columns in memory */
  uint8_t samples;       /* elements per column; 1 = the plane has no such dimension */
  uint8_t stack;         /* 1, or 3 when the plane is {3, rows, columns} */
};

struct format_row {
  uint32_t format; /* cudalink_format */
  const char *name;
  uint8_t model;     /* enum format_model */
  uint8_t code;      /* cudalink_dtype_code of every element */
  uint8_t bits;      /* of an element, in memory */
  uint8_t depth;     /* bits that a sample really uses */
  uint8_t shift;     /* unused bits below them */
  uint8_t own_pitch; /* 1: the pitch is part of the format and is never padded */
  uint8_t plane_count;
  struct format_plane planes[FORMAT_MAX_PLANES];
};

/* The shape of one plane of a picture, and the sizes that follow from it. */
struct format_shape {
  uint32_t dimensions;
  int64_t shape[4];
  uint64_t rows;          /* of all stacked planes together */
  uint64_t row_bytes;     /* a dense row */
  uint32_t row_dimension; /* the dimension whose stride is the pitch */
};

/* NULL for a number that is no format. */
const struct format_row *format_find(uint32_t format);

struct format_shape format_plane_shape(const struct format_row *row, uint32_t plane, uint32_t width,
                                       uint32_t height);

#endif
