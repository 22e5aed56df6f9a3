/* SPDX-License-Identifier: MIT
 *
 * The live table of `cudalink watch`.
 */
#include "report.h"
#include "stop.h"
#include "terminal.h"
#include "text.h"
#include "watch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_AROUND 3 /* summary, titles, keys */
#define BACKSPACE 0x7f

struct screen {
  const struct watch_options *options;
  struct watch_look look;
  int sort;
  int reverse;
  int with_consumers;
  int is_typing; /* the filter */
  char filter[WATCH_FILTER_SIZE];
  size_t top; /* the first row that is shown */
  int is_over;
};

/* ---- drawing -------------------------------------------------------------------------------- */

/* One line that is cut at the width of the window. */
static void print_line(FILE *stream, size_t width, const char *text) {
  char escaped[TEXT_ESCAPED_SIZE(512)];
  text_escape(escaped, sizeof escaped, text);
  fprintf(stream, "%.*s\033[K", (int)text_fit(escaped, width), escaped);
}

static void print_summary(const struct screen *screen, size_t shown, size_t width, FILE *stream) {
  char text[256];
  size_t consumers = 0;
  for (size_t i = 0; i < screen->look.count; i++)
    if (screen->look.channels[i].status == CUDALINK_OK)
      consumers += screen->look.channels[i].consumer_count;
  int length = snprintf(text, sizeof text, "%zu channel%s, %zu consumer%s", screen->look.count,
                        text_s(screen->look.count), consumers, text_s(consumers));
  if (shown != screen->look.count)
    snprintf(text + length, sizeof text - (size_t)length, ", %zu shown", shown);
  print_line(stream, width, text);
  fputs("\r\n", stream);
}

static void print_keys(const struct screen *screen, size_t width, FILE *stream) {
  char text[512];
  if (screen->is_typing)
    snprintf(text, sizeof text, "/%s_", screen->filter);
  else
    snprintf(text, sizeof text, "q quit  s sort: %s%s  r reverse  / filter%s%s  c consumers  ↑↓",
             watch_sorts[screen->sort], screen->reverse ? " (reversed)" : "",
             *screen->filter ? ": " : "", screen->filter);
  print_line(stream, width, text);
}

static void fill_table(struct table *table, const struct screen *screen, const size_t *order,
                       size_t count) {
  for (size_t i = 0; i < count; i++)
    channel_view_rows(table, &screen->look.channels[order[i]], screen->look.time,
                      &screen->look.rates[order[i]], screen->with_consumers);
}

static void keep_top(struct screen *screen, size_t rows, size_t room) {
  size_t last = rows > room ? rows - room : 0;
  if (screen->top > last) screen->top = last;
}

static void print_rows(const struct table *table, size_t top, size_t room, FILE *stream) {
  for (size_t i = 0; i < room; i++) {
    if (top + i < table->row_count) table_print_row(table, top + i, stream);
    fputs("\033[K\r\n", stream);
  }
}

static void compose(struct screen *screen, const size_t *order, size_t count, FILE *stream) {
  struct table table = {.columns = channel_view_columns};
  size_t width, lines;
  terminal_size(&width, &lines);
  size_t room = lines > LINES_AROUND ? lines - LINES_AROUND : 1;
  fill_table(&table, screen, order, count);
  table_fit(&table, width);
  keep_top(screen, table.row_count, room);
  fputs("\033[H", stream);
  print_summary(screen, count, width, stream);
  table_print_titles(&table, stream);
  fputs("\033[K\r\n", stream);
  print_rows(&table, screen->top, room, stream);
  print_keys(screen, width, stream);
  fputs("\033[J", stream);
  table_free(&table);
}

/* Everything in one write, so that nothing flickers. */
static void draw(struct screen *screen) {
  char *bytes = NULL;
  size_t size = 0;
  size_t *order = malloc((screen->look.count ? screen->look.count : 1) * sizeof *order);
  FILE *stream = open_memstream(&bytes, &size);
  if (order && stream) {
    size_t count = watch_arrange(&screen->look, (enum watch_sort)screen->sort, screen->reverse,
                                 screen->filter, order);
    compose(screen, order, count, stream);
  }
  if (stream) fclose(stream);
  int is_written = order && bytes && fwrite(bytes, 1, size, stdout) == size && fflush(stdout) == 0;
  free(order);
  free(bytes);
  screen->is_over |= !is_written;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void type(struct screen *screen, int key) {
  size_t length = strlen(screen->filter);
  if (key == TERMINAL_ESCAPE) {
    screen->filter[0] = 0;
    screen->is_typing = 0;
  } else if (key == '\n' || key == '\r') {
    screen->is_typing = 0;
  } else if (key == BACKSPACE || key == '\b') {
    while (length > 0 && ((unsigned char)screen->filter[length - 1] & 0xc0) == 0x80)
      length--; /* the rest of a character of several bytes */
    screen->filter[length ? length - 1 : 0] = 0;
  } else if (key >= ' ' && key < 256 && length + 1 < sizeof screen->filter) {
    screen->filter[length] = (char)key;
    screen->filter[length + 1] = 0;
  }
}

static void scroll(struct screen *screen, long lines) {
  long top = (long)screen->top + lines;
  screen->top = top > 0 ? (size_t)top : 0;
}

static void command(struct screen *screen, int key) {
  switch (key) {
  case 'q': screen->is_over = 1; break;
  case 's': screen->sort = (screen->sort + 1) % WATCH_SORT_COUNT; break;
  case 'r': screen->reverse = !screen->reverse; break;
  case 'c': screen->with_consumers = !screen->with_consumers; break;
  case '/': screen->is_typing = 1; break;
  case TERMINAL_ESCAPE: screen->filter[0] = 0; break;
  case 'k':
  case TERMINAL_UP: scroll(screen, -1); break;
  case 'j':
  case TERMINAL_DOWN: scroll(screen, 1); break;
  case TERMINAL_PAGE_UP: scroll(screen, -10); break;
  case TERMINAL_PAGE_DOWN: scroll(screen, 10); break;
  default: break;
  }
}

/* Until the next look is due. */
static void take_keys(struct screen *screen, uint64_t due) {
  while (!screen->is_over) {
    int key = terminal_wait_key(due);
    if (key == TERMINAL_TIME) return;
    if (key == TERMINAL_STOP)
      screen->is_over = 1;
    else if (screen->is_typing)
      type(screen, key);
    else
      command(screen, key);
    if (!screen->is_over) draw(screen);
  }
}

int watch_screen(const struct watch_options *options) {
  struct screen screen = {
      .options = options, .sort = options->sort, .reverse = options->reverse, .with_consumers = 1};
  int result = CUDALINK_OK;
  if (options->filter) snprintf(screen.filter, sizeof screen.filter, "%s", options->filter);
  terminal_enter();
  for (uint64_t looks = 1; !screen.is_over && !stop_requested(); looks++) {
    result = watch_take_look(&screen.look, &options->channels);
    if (result) break;
    draw(&screen);
    if (options->count && looks >= options->count) break;
    take_keys(&screen, screen.look.time + (uint64_t)options->interval);
  }
  terminal_leave();
  watch_free_look(&screen.look);
  return result ? report_library(result) : EXIT_CODE_OK; /* on the screen that stays */
}
