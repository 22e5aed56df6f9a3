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
#include "text.h"

#include <stdio.h>
#include <string.h>

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

struct diagnosis {
  int is_json;
  int kind;        /* cudalink_kind */
  uint64_t device; /* OPTION_NO_DEVICE: the first one, if there is any */
  int host, gpu, has_driver;
  int is_host_ill, is_gpu_ill; /* something that the main job needs there has failed */
};

static int begins_with_one_of(const char *id, const char *const *beginnings) {
  for (; *beginnings; beginnings++)
    if (strncmp(id, *beginnings, strlen(*beginnings)) == 0) return 1;
  return 0;
}

static void note(struct diagnosis *diagnosis, const cudalink_probe_item *item) {
  static const char *const host[] = {"kind.host",      "memfd",         "limit.", "helper",
                                     "runtime_folder", "cgroup.memory", "kill",   NULL};
  static const char *const vmm[] = {"driver", "kind.vmm", "sync.", NULL};
  static const char *const ipc[] = {"driver", "kind.ipc", "sync.", NULL};
  const char *const *gpu = diagnosis->kind == CUDALINK_KIND_IPC ? ipc : vmm;
  if (item->state != CUDALINK_PROBE_FAILED) return;
  diagnosis->is_host_ill |= begins_with_one_of(item->id, host);
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

static void print_line(const cudalink_probe_item *item) {
  char text[TEXT_ESCAPED_SIZE(sizeof item->text)], advice[TEXT_ESCAPED_SIZE(sizeof item->advice)];
  char time[TEXT_DURATION_SIZE] = "";
  if (item->ns) text_duration(time, item->ns);
  printf("%-7s  %-18s %8s  %s\n", state_of(item), item->id, time,
         text_escape(text, sizeof text, item->text));
  if (*item->advice) printf("%*s-> %s\n", 37, "", text_escape(advice, sizeof advice, item->advice));
}

/* What was tried while a signal came says nothing: it reached all processes, perhaps. */
static void show(struct diagnosis *diagnosis, const cudalink_probe_item *item) {
  if (stop_requested()) return;
  note(diagnosis, item);
  if (diagnosis->is_json)
    print_json(item);
  else
    print_line(item);
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

static int conclude(const struct diagnosis *diagnosis) {
  const char *gpu = !does_gpu_count(diagnosis) ? "did not count"
                    : diagnosis->gpu           ? "yes"
                    : diagnosis->has_driver    ? "no"
                                               : "no: there is no CUDA driver";
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
    printf("\nframes between processes, in memory of the CPU: %s; on the GPU: %s\n",
           diagnosis->host ? "yes" : "no", gpu);
  }
  return code_of(diagnosis);
}

int command_doctor(int argc, char **argv) {
  struct diagnosis diagnosis = {.device = OPTION_NO_DEVICE};
  const struct option_row rows[] = {
      {"kind", OPTION_CHOICE, &diagnosis.kind, .choices = option_kinds,
       .help = "memory that the main job has to run on (default auto: what there is)"},
      {"device", OPTION_DEVICE, &diagnosis.device, .value = "N",
       .help = "GPU to try, by number or UUID (default 0, the first)"},
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
