/* SPDX-License-Identifier: MIT
 *
 * A table of text that fits its window: what there is no room for goes, the least important column
 * first; then the first column is cut.
 */
#ifndef CUDALINK_TABLE_H
#define CUDALINK_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "live.h"

#define TABLE_COLUMNS 20

/* On the right, too, and says more than the column before it, whose place it takes while there is room; with the higher
 * rank of the two. */
#define TABLE_LONGER 2

struct table_column {
  const char *title;
  int rank;     /* the higher, the earlier it goes; the first column never goes */
  int is_right; /* or TABLE_LONGER */
};

struct table_row {
  char *cells[TABLE_COLUMNS]; /* NULL = empty */
  enum live_colour colour;
};

struct table {
  const struct table_column *columns; /* ends with a title of NULL */
  struct table_row *rows;
  size_t row_count;
  size_t capacity;
  size_t widths[TABLE_COLUMNS]; /* set by table_fit; 0 = not shown */
  size_t least;                 /* columns of the first one that stay while others can go */
};

/* `*table` is all zeros but for its columns. */
void table_begin_row(struct table *table, enum live_colour colour);

/* Fills in a cell of the newest row. The text is escaped; with no memory the cell stays empty. */
void table_cell(struct table *table, size_t column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The first cell of the newest row is not cut while there is another column to go. */
void table_keep_first(struct table *table);

/* Chooses columns for a window of so many; 0 = no limit. Columns that are empty in every row go. */
void table_fit(struct table *table, size_t width);

/* One line each, without its end. Colours are those of stdout. */
void table_print_titles(const struct table *table, FILE *stream);
void table_print_row(const struct table *table, size_t row, FILE *stream);

/* Fits, and prints everything. */
void table_print(struct table *table, size_t width, FILE *stream);

void table_free(struct table *table);

#endif
