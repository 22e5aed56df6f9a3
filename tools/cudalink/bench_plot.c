/* SPDX-License-Identifier: MIT
 *
 * The results as a picture: one panel per row that has a shape, with its median, floor and target.
 */
#include <stdarg.h>

#include "bench.h"
#include "text.h"

#define COLUMNS 3
#define PANEL_WIDTH 340
#define PANEL_HEIGHT 190
#define MARGIN 20
#define HEADER 60
#define PLOT_WIDTH (PANEL_WIDTH - 2 * MARGIN)
#define PLOT_TOP 34
#define PLOT_HEIGHT 110

static void put_text(FILE *out, double x, double y, const char *style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void put_escaped(FILE *out, const char *text) {
  for (; *text; text++)
    switch (*text) {
    case '<': fputs("&lt;", out); break;
    case '>': fputs("&gt;", out); break;
    case '&': fputs("&amp;", out); break;
    default: fputc(*text, out);
    }
}

static void put_text(FILE *out, double x, double y, const char *style, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
  put_escaped(out, text);
  fputs("</text>\n", out);
}

/* Where a value lies in the panel; values beyond p99 lie in the last bar. */
static double place(const struct bench_spread *spread, double value) {
  double share = (value - spread->low) / (spread->step * BENCH_STEPS);
  return MARGIN + PLOT_WIDTH * (share < 0 ? 0 : share > 1 ? 1 : share);
}

static void put_mark(FILE *out, const struct bench_spread *spread, double value, const char *colour,
                     const char *dash) {
  double x = place(spread, value);
  fprintf(out,
          "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"%s\" stroke-width=\"1.5\" "
          "stroke-dasharray=\"%s\"/>\n",
          x, PLOT_TOP, x, PLOT_TOP + PLOT_HEIGHT, colour, dash);
}

static void put_bars(FILE *out, const struct bench_spread *spread) {
  double width = (double)PLOT_WIDTH / BENCH_STEPS;
  for (int i = 0; i < BENCH_STEPS; i++) {
    double height = (double)spread->counts[i] * PLOT_HEIGHT / spread->most;
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#7aa6c2\"/>\n",
            MARGIN + i * width, PLOT_TOP + PLOT_HEIGHT - height, width - 1, height);
  }
}

static void put_panel(FILE *out, const struct bench_result *result, int index) {
  const struct bench_row *row = result->row;
  const struct bench_spread *spread = &result->spread;
  double floor_y = PLOT_TOP + PLOT_HEIGHT + 14;
  fprintf(out, "<g transform=\"translate(%d %d)\">\n", index % COLUMNS * PANEL_WIDTH,
          HEADER + index / COLUMNS * PANEL_HEIGHT);
  put_text(out, MARGIN, 14, "class=\"name\"", "%s", row->name);
  put_text(out, MARGIN, 28, "class=\"small\"", "%s", row->what);
  put_bars(out, spread);
  put_mark(out, spread, result->p50, "#123f5c", "none");
  if (row->floor) put_mark(out, spread, result->floor, "#3a7d44", "4 3");
  if (row->has_target) put_mark(out, spread, result->target, "#b3261e", "2 2");
  put_text(out, MARGIN, floor_y, "class=\"small\"", "%.3g", spread->low);
  put_text(out, PANEL_WIDTH - MARGIN, floor_y, "class=\"small\" text-anchor=\"end\"", "p99 %.3g %s",
           result->p99, row->unit);
  char floor[40] = "", target[40] = "";
  if (row->floor) snprintf(floor, sizeof floor, ", floor %.3g", result->floor);
  if (row->has_target) snprintf(target, sizeof target, ", target %.3g", result->target);
  put_text(out, MARGIN, floor_y + 13, "class=\"small\"", "p50 %.3g%s%s", result->p50, floor,
           target);
  fputs("</g>\n", out);
}

int bench_plot(const char *path, const struct bench_machine *machine,
               const struct bench_options *options, const struct bench_result *results,
               size_t count) {
  int panels = 0;
  for (size_t i = 0; i < count; i++)
    panels += results[i].spread.most > 0;
  FILE *out = fopen(path, "we");
  if (!out) return -1;
  int rows = (panels + COLUMNS - 1) / COLUMNS;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n"
          "<style>text { font: 13px sans-serif; fill: #222 } .name { font-weight: bold }\n"
          ".small { font-size: 10px; fill: #555 }</style>\n"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          COLUMNS * PANEL_WIDTH, HEADER + rows * PANEL_HEIGHT);
  put_text(out, MARGIN, 24, "class=\"name\"", "cudalink bench %s, kind %s: %s, %d core%s, %s",
           CUDALINK_VERSION_STRING, cudalink_kind_name(options->kind), machine->cpu, machine->cores,
           text_s((uint64_t)machine->cores), machine->date);
  put_text(
      out, MARGIN, 42, "class=\"small\"",
      "bars: samples, the last one all beyond p99; line: median; dashed: floor of the same run; "
      "dotted: target");
  int panel = 0;
  for (size_t i = 0; i < count; i++)
    if (results[i].spread.most) put_panel(out, &results[i], panel++);
  fputs("</svg>\n", out);
  int failed = ferror(out);
  return fclose(out) || failed ? -1 : 0;
}
