/* SPDX-License-Identifier: MIT
 *
 * Tables.
 */
#include "table.h"
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GAP 2
#define LEAST_FIRST 10 /* columns of the first column, before others go */
#define CELL_SIZE 512

static struct table_row no_row; /* where cells go when there is no memory for a row */

void table_begin_row(struct table *table, enum live_colour colour) {
  if (table->row_count == table->capacity) {
    size_t capacity = table->capacity ? 2 * table->capacity : 64;
    struct table_row *grown = realloc(table->rows, capacity * sizeof *grown);
    if (!grown) return;
    table->rows = grown;
    table->capacity = capacity;
  }
  table->rows[table->row_count++] = (struct table_row){.colour = colour};
}

void table_cell(struct table *table, size_t column, const char *format, ...) {
  char text[CELL_SIZE], escaped[TEXT_ESCAPED_SIZE(CELL_SIZE)];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  struct table_row *row = table->row_count ? &table->rows[table->row_count - 1] : &no_row;
  free(row->cells[column]);
  row->cells[column] = strdup(text_escape(escaped, sizeof escaped, text));
}

void table_keep_first(struct table *table) {
  const char *cell = table->row_count ? table->rows[table->row_count - 1].cells[0] : NULL;
  size_t width = cell ? text_columns(cell) : 0;
  if (width > table->least) table->least = width;
}

static size_t natural_width(const struct table *table, size_t column) {
  size_t width = 0;
  for (size_t i = 0; i < table->row_count; i++) {
    const char *cell = table->rows[i].cells[column];
    size_t columns = cell ? text_columns(cell) : 0;
    if (columns > width) width = columns;
  }
  size_t title = text_columns(table->columns[column].title);
  return (width || column == 0) && width < title ? title : width;
}

/* A column goes; the shorter one whose place it had comes back. */
static void hide(struct table *table, size_t column) {
  table->widths[column] = 0;
  if (table->columns[column].is_right == TABLE_LONGER)
    table->widths[column - 1] = natural_width(table, column - 1);
}

/* The column that goes next: the highest rank that is still shown. 0: only the first is left. */
static size_t least_important(const struct table *table) {
  size_t found = 0;
  for (size_t i = 1; table->columns[i].title; i++)
    if (table->widths[i] && (!found || table->columns[i].rank > table->columns[found].rank))
      found = i;
  return found;
}

static size_t width_of_others(const struct table *table) {
  size_t width = 0;
  for (size_t i = 1; table->columns[i].title; i++)
    if (table->widths[i]) width += table->widths[i] + GAP;
  return width;
}

void table_fit(struct table *table, size_t width) {
  for (size_t i = 0; table->columns[i].title; i++)
    table->widths[i] = natural_width(table, i);
  for (size_t i = 1; table->columns[i].title; i++)
    if (table->columns[i].is_right == TABLE_LONGER && table->widths[i]) table->widths[i - 1] = 0;
  if (!width) return;
  size_t least = table->least > LEAST_FIRST ? table->least : LEAST_FIRST, column;
  if (least > table->widths[0]) least = table->widths[0];
  while (least + width_of_others(table) > width && (column = least_important(table)))
    hide(table, column);
  size_t left = width - (width_of_others(table) < width ? width_of_others(table) : width);
  if (table->widths[0] > left) table->widths[0] = left;
}

static void print_spaces(size_t count, FILE *stream) { fprintf(stream, "%*s", (int)count, ""); }

static void print_cut(const char *text, size_t width, FILE *stream) {
  if (text_columns(text) <= width)
    fputs(text, stream);
  else if (width > 0)
    fprintf(stream, "%.*s…", (int)text_fit(text, width - 1), text);
}

/* `wanted` collects spaces that are printed only when something follows. */
static void print_cell(const struct table *table, size_t column, const char *text, size_t *wanted,
                       FILE *stream) {
  size_t width = table->widths[column], length = text_columns(text);
  size_t padding = length < width ? width - length : 0;
  if (*text) {
    print_spaces(*wanted + (table->columns[column].is_right ? padding : 0), stream);
    print_cut(text, width, stream);
    *wanted = 0;
  }
  if (!*text || !table->columns[column].is_right) *wanted += padding;
  *wanted += GAP;
}

void table_print_titles(const struct table *table, FILE *stream) {
  size_t wanted = 0;
  for (size_t i = 0; table->columns[i].title; i++)
    if (table->widths[i]) print_cell(table, i, table->columns[i].title, &wanted, stream);
}

void table_print_row(const struct table *table, size_t row, FILE *stream) {
  size_t wanted = 0;
  enum live_colour colour = table->rows[row].colour;
  if (colour) fputs(live_colour(STDOUT_FILENO, colour), stream);
  for (size_t i = 0; table->columns[i].title; i++) {
    const char *cell = table->rows[row].cells[i];
    if (table->widths[i]) print_cell(table, i, cell ? cell : "", &wanted, stream);
  }
  if (colour) fputs(live_colour(STDOUT_FILENO, LIVE_PLAIN), stream);
}

void table_print(struct table *table, size_t width, FILE *stream) {
  table_fit(table, width);
  table_print_titles(table, stream);
  fputc('\n', stream);
  for (size_t i = 0; i < table->row_count; i++) {
    table_print_row(table, i, stream);
    fputc('\n', stream);
  }
}

void table_free(struct table *table) {
  for (size_t i = 0; i < table->row_count; i++)
    for (size_t column = 0; column < TABLE_COLUMNS; column++)
      free(table->rows[i].cells[column]);
  free(table->rows);
  table->rows = NULL;
  table->row_count = table->capacity = 0;
}
