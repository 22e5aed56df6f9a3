/* SPDX-License-Identifier: MIT
 *
 * `cudalink doctor`: does the things that sharing frames is made of, and says how each one went.
 */
#include "doctor.h"
#include "command.h"
#include "json.h"
#include "options.h"
#include "report.h"
#include "stop.h"
#include "terminal.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char notes[] =
    "Each line is the result of doing the thing: memory is made, exported, mapped in another\n"
    "process and read there, streams write and wait, a consumer is killed, and the main job\n"
    "itself runs (cudalink demo). \"->\" says what to change.\n"
    "\n"
    "Exit code: 0 the main job runs on host memory, and on the GPU if there is one; 1 on host\n"
    "memory only, though there is a GPU or a driver, or --kind or --device asks for one; 5 it "
    "does\n"
    "not run. With --kind host the GPU does not count.\n"
    "\n"
    "With --json one object per line: id state ns text advice; then one with summary host gpu\n"
    "(null: did not count).\n"
    "\n"
    "examples:\n"
    "  cudalink doctor\n"
    "  cudalink doctor --kind vmm --device 1   in a start script of a machine with two GPUs";

static const char *const states[] = {"unknown", "ok", "failed"};

#define INDENT 38 /* columns before the text of a line */
#define LEAST_WIDTH 30

struct diagnosis {
  int is_json;
  int kind;        /* cudalink_kind */
  uint64_t device; /* OPTION_NO_DEVICE: the first one, if there is any */
  int host, gpu, has_driver;
  int is_host_ill, is_gpu_ill; /* something that the main job needs there has failed */
  char gpu_reason[sizeof((cudalink_probe_item *)0)->text]; /* the first such thing of the GPU's */
  size_t width;                                            /* of the terminal; 0: it is none */
};

static int begins_with_one_of(const char *id, const char *const *beginnings) {
  for (; *beginnings; beginnings++)
    if (strncmp(id, *beginnings, strlen(*beginnings)) == 0) return 1;
  return 0;
}

static void blame(struct diagnosis *diagnosis, const cudalink_probe_item *item) {
  if (!*diagnosis->gpu_reason)
    snprintf(diagnosis->gpu_reason, sizeof diagnosis->gpu_reason, "%s", item->text);
}

static void note(struct diagnosis *diagnosis, const cudalink_probe_item *item) {
  static const char *const host[] = {"kind.host",      "memfd",         "limit.", "helper",
                                     "runtime_folder", "cgroup.memory", "kill",   NULL};
  static const char *const vmm[] = {"driver", "kind.vmm", "sync.", NULL};
  static const char *const ipc[] = {"driver", "kind.ipc", "sync.", NULL};
  const char *const *gpu = diagnosis->kind == CUDALINK_KIND_IPC ? ipc : vmm;
  if (item->state != CUDALINK_PROBE_FAILED) return;
  diagnosis->is_host_ill |= begins_with_one_of(item->id, host);
  if (begins_with_one_of(item->id, gpu)) blame(diagnosis, item);
  diagnosis->is_gpu_ill |= begins_with_one_of(item->id, gpu);
}

static const char *state_of(const cudalink_probe_item *item) {
  return states[item->state <= CUDALINK_PROBE_FAILED ? item->state : 0];
}

static void print_json(const cudalink_probe_item *item) {
  struct json json;
  json_start(&json, stdout);
  json_text(&json, "id", item->id);
  json_text(&json, "state", state_of(item));
  json_number(&json, "ns", item->ns);
  json_text(&json, "text", item->text);
  json_text(&json, "advice", *item->advice ? item->advice : NULL);
  json_end(&json);
}

/* In what is left of the window behind the first columns; with too little nothing is wrapped. */
static void print_behind(const struct diagnosis *diagnosis, const char *text) {
  char escaped[TEXT_ESCAPED_SIZE(sizeof((cudalink_probe_item *)0)->text)];
  size_t width = diagnosis->width;
  text_print_wrapped(text_escape(escaped, sizeof escaped, text),
                     width > INDENT + LEAST_WIDTH ? width - INDENT : 0, INDENT, stdout);
  putchar('\n');
}

/* Who can do all that was tried needs no advice. */
static void print_line(const struct diagnosis *diagnosis, const cudalink_probe_item *item) {
  char time[TEXT_DURATION_SIZE] = "";
  if (item->ns) text_duration(time, item->ns);
  printf("%-7s  %-18s %*s%s  ", state_of(item), item->id,
         text_columns(time) < 8 ? 8 - (int)text_columns(time) : 0, "", time);
  print_behind(diagnosis, item->text);
  if (!*item->advice || item->state == CUDALINK_PROBE_OK) return;
  printf("%*s-> ", INDENT - 3, "");
  print_behind(diagnosis, item->advice);
}

/* What was tried while a signal came says nothing: it reached all processes, perhaps. */
static void show(struct diagnosis *diagnosis, const cudalink_probe_item *item) {
  if (stop_requested()) return;
  note(diagnosis, item);
  if (diagnosis->is_json)
    print_json(item);
  else
    print_line(diagnosis, item);
  fflush(stdout);
}

static void show_devices(const struct diagnosis *diagnosis, const cudalink_probe *probe) {
  for (uint32_t i = 0; !diagnosis->is_json && i < probe->device_count; i++) {
    const cudalink_probe_device *device = &probe->devices[i];
    printf("         GPU %d: %s, %llu MiB, compute capability %d.%d%s\n", device->ordinal,
           device->name, (unsigned long long)(device->memory_bytes >> 20), device->capability_major,
           device->capability_minor, device->mig ? ", a MIG slice" : "");
  }
}

static int probe(struct diagnosis *diagnosis, const cudalink_probe_spec *spec) {
  cudalink_probe *probed;
  int status = cudalink_probe_run(spec, &probed);
  if (status < 0) return report_library(status);
  for (uint32_t i = 0; i < probed->item_count && !stop_requested(); i++) {
    show(diagnosis, &probed->items[i]);
    if (i == 0) show_devices(diagnosis, probed);
  }
  diagnosis->has_driver = probed->driver_library[0] != '\0';
  cudalink_probe_free(probed);
  return EXIT_CODE_OK;
}

static int is_gpu_asked_for(const struct diagnosis *diagnosis) {
  return diagnosis->kind == CUDALINK_KIND_VMM || diagnosis->kind == CUDALINK_KIND_IPC ||
         (diagnosis->kind == CUDALINK_KIND_AUTO && diagnosis->device != OPTION_NO_DEVICE);
}

static int does_gpu_count(const struct diagnosis *diagnosis) {
  return diagnosis->kind != CUDALINK_KIND_HOST;
}

static int try_demo(struct diagnosis *diagnosis, const char *kind, int is_explained) {
  cudalink_probe_item item = {0};
  if (stop_requested()) return 0;
  doctor_demo(&item, kind, diagnosis->device == OPTION_NO_DEVICE ? 0 : diagnosis->device,
              is_explained);
  show(diagnosis, &item);
  if (item.state != CUDALINK_PROBE_OK && strcmp(kind, "host") != 0) blame(diagnosis, &item);
  return item.state == CUDALINK_PROBE_OK;
}

static void try_all(struct diagnosis *diagnosis) {
  cudalink_probe_item folder = {0}, death = {0};
  doctor_folder(&folder);
  show(diagnosis, &folder);
  if (stop_requested()) return;
  doctor_kill(&death);
  show(diagnosis, &death);
  int is_host_ill = diagnosis->is_host_ill, is_gpu_ill = is_host_ill || diagnosis->is_gpu_ill;
  diagnosis->host = try_demo(diagnosis, "host", is_host_ill);
  if (!does_gpu_count(diagnosis) || (!diagnosis->has_driver && !is_gpu_asked_for(diagnosis)))
    return;
  diagnosis->gpu =
      try_demo(diagnosis, diagnosis->kind == CUDALINK_KIND_IPC ? "ipc" : "vmm", is_gpu_ill);
}

static int code_of(const struct diagnosis *diagnosis) {
  if (!diagnosis->host) return EXIT_CODE_SYSTEM;
  if (diagnosis->gpu || !does_gpu_count(diagnosis)) return EXIT_CODE_OK;
  return diagnosis->has_driver || is_gpu_asked_for(diagnosis) ? EXIT_CODE_CHECK : EXIT_CODE_OK;
}

static void print_conclusion(const struct diagnosis *diagnosis) {
  char line[512], escaped[TEXT_ESCAPED_SIZE(sizeof line)];
  const char *gpu = !does_gpu_count(diagnosis) ? "did not count"
                    : diagnosis->gpu           ? "yes"
                    : diagnosis->has_driver    ? "no: "
                                               : "no: there is no CUDA driver";
  int has_reason = does_gpu_count(diagnosis) && !diagnosis->gpu && diagnosis->has_driver;
  snprintf(line, sizeof line,
           "frames between processes, in memory of the CPU: %s; on the GPU: %s%s",
           diagnosis->host ? "yes" : "no", gpu, has_reason ? diagnosis->gpu_reason : "");
  putchar('\n');
  text_print_wrapped(text_escape(escaped, sizeof escaped, line), diagnosis->width, 2, stdout);
  putchar('\n');
}

static int conclude(const struct diagnosis *diagnosis) {
  if (diagnosis->is_json) {
    struct json json;
    json_start(&json, stdout);
    json_text(&json, "summary", "the main job");
    json_flag(&json, "host", diagnosis->host);
    if (does_gpu_count(diagnosis))
      json_flag(&json, "gpu", diagnosis->gpu);
    else
      json_text(&json, "gpu", NULL);
    json_end(&json);
  } else {
    print_conclusion(diagnosis);
  }
  return code_of(diagnosis);
}

int command_doctor(int argc, char **argv) {
  struct diagnosis diagnosis = {.device = OPTION_NO_DEVICE, .width = terminal_width(STDOUT_FILENO)};
  const struct option_row rows[] = {
      {"kind", OPTION_CHOICE, &diagnosis.kind, .choices = option_kinds,
       .help = "memory that the main job has to run on (default auto: what there is)"},
      {"device", OPTION_DEVICE, &diagnosis.device, .value = "N",
       .help = "GPU to try, by number or UUID; one that is named has to work"},
      {"json", OPTION_FLAG, &diagnosis.is_json, .help = "print a JSON object per line"},
      OPTION_ROWS_END};
  const struct option_page page = {.command = "doctor",
                                   .arguments = "",
                                   .summary =
                                       "Tries what this machine can do, and says what to change.",
                                   .rows = rows,
                                   .notes = notes};
  int code = options_parse(&page, argc, argv, NULL);
  if (code != OPTIONS_GO) return code;
  code = stop_install();
  if (code != EXIT_CODE_OK) return code;
  cudalink_probe_spec spec = {CUDALINK_PROBE_DEFAULTS, .program = "/proc/self/exe",
                              .stop = stop_descriptor(), .device = option_device(diagnosis.device)};
  code = probe(&diagnosis, &spec);
  if (code != EXIT_CODE_OK) return code;
  try_all(&diagnosis);
  return stop_exit_code(stop_requested() ? EXIT_CODE_OK : conclude(&diagnosis));
}
