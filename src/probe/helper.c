/* SPDX-License-Identifier: MIT
 *
 * The helper: a process that waits, one that tries, and one per kind of memory that maps what the
 * second makes. All are forked before CUDA is loaded. The first loads none, so it can always be
 * ended and reaped, whatever a driver does to the others, which end with it. When a step ends its
 * process, the next one goes on behind that step.
 */
#include "probe/helper.h"
#include "cudalink/probe.h"
#include "probe/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static os_handle results;

static void write_line(void *context, const char *line) {
  (void)context;
  os_write_all(results, line, strlen(line));
}

static int start_importer(struct probe_steps *steps, cudalink_kind kind) {
  os_handle pair[2];
  int32_t pid;
  int status = os_pair(pair);
  if (status == CUDALINK_OK) status = os_helper_fork(&pid);
  if (status == CUDALINK_OK && pid == 0) {
    os_handle_close(&pair[0]); /* not the results: whoever reads them waits for all of us */
    probe_import(pair[1], steps->limit / 2);
    os_helper_exit(0);
  }
  os_handle_close(&pair[1]);
  steps->importer[kind] = pair[0];
  return status;
}

static void run_steps(struct probe_steps *steps, int first, _Atomic int *now) {
  for (int step = first; step < probe_step_count(); step++) {
    atomic_store(now, step); /* read by the process that waits for this one */
    os_helper_limit(steps->limit);
    probe_step_run(steps, step);
  }
  os_helper_exit(0); /* taking CUDA apart is the kernel's work */
}

static void say_ended(struct probe_steps *steps, int step, const char *how) {
  cudalink_probe_item item = {.state = CUDALINK_PROBE_FAILED};
  snprintf(item.id, sizeof item.id, "%s", probe_step_id(step));
  snprintf(item.text, sizeof item.text, "trying it did not come to an end: %s", how);
  snprintf(item.advice, sizeof item.advice, "look at the kernel's log (dmesg) for the driver");
  probe_say_item(&steps->sink, &item);
}

static int supervise(struct probe_steps *steps, _Atomic int *now) {
  for (int first = 0; first < probe_step_count(); first = atomic_load(now) + 1) {
    char how[OS_HOW_SIZE];
    int32_t pid;
    atomic_store(now, first);
    int status = os_helper_fork(&pid);
    if (status < 0) return status;
    if (pid == 0) run_steps(steps, first, now);
    if (os_helper_wait(pid, how)) break;
    say_ended(steps, atomic_load(now), how);
  }
  return CUDALINK_OK;
}

static int run(struct probe_steps *steps) {
  _Atomic int *now = os_helper_share(sizeof *now);
  int status = now ? CUDALINK_OK : CUDALINK_ERROR_NO_MEMORY;
  for (int kind = CUDALINK_KIND_HOST; kind < PROBE_KINDS && status == CUDALINK_OK; kind++)
    status = start_importer(steps, (cudalink_kind)kind);
  if (status == CUDALINK_OK) status = supervise(steps, now);
  if (status < 0) return 1;
  probe_say_end(&steps->sink);
  return 0;
}

int cudalink_probe_helper(int argc, char **argv) {
  if (argc != 4 || !argv || strcmp(argv[1], PROBE_HELPER_WORD) != 0) return -1;
  struct probe_steps steps = {.sink = {write_line, NULL},
                              .device = (int32_t)strtol(argv[2], NULL, 10),
                              .limit = (int64_t)strtoll(argv[3], NULL, 10)};
  if (steps.limit <= 0 || os_helper_begin(&results) < 0) return 1;
  os_helper_exit(run(&steps)); /* nothing of the program's runs behind this */
  return 1;
}
