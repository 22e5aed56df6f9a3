/* SPDX-License-Identifier: MIT
 *
 * cudalink_probe_run: starts a helper, collects what it says, and looks at the system itself.
 */
#include "cudalink/probe.h"
#include "probe/helper.h"
#include "probe/steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_TIMEOUT INT64_C(30000000000)
#define LONGEST_TIMEOUT INT64_C(3600000000000) /* so that nothing hangs */
#define STEP_SHARE 3                           /* a step may take that part of the time-out */

static void set_item(struct probe_findings *findings, const char *id, cudalink_probe_state state,
                     const char *text, const char *advice) {
  cudalink_probe_item *item = probe_item(findings, id);
  if (!item) return;
  item->state = (uint32_t)state;
  snprintf(item->text, sizeof item->text, "%s", text);
  snprintf(item->advice, sizeof item->advice, "%s", advice);
}

/* ---- the helper's output ------------------------------------------------------------------------- */

struct reader {
  struct probe_findings *findings;
  char line[PROBE_LINE_SIZE];
  size_t length;
  bool too_long; /* drop what is left of this line */
};

static void take_bytes(struct reader *reader, const char *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] == '\n') {
      reader->line[reader->length] = '\0';
      if (!reader->too_long) probe_take_line(reader->findings, reader->line);
      reader->length = 0;
      reader->too_long = false;
    } else if (reader->length < sizeof reader->line - 1) {
      reader->line[reader->length++] = bytes[i];
    } else {
      reader->too_long = true;
    }
  }
}

/* CUDALINK_OK also when it ended without having said all. */
static int listen(struct os_child *child, struct probe_findings *findings, uint64_t deadline,
                  os_handle stop) {
  struct reader reader = {.findings = findings};
  int status = CUDALINK_OK;
  while (status == CUDALINK_OK && !findings->ended) {
    char bytes[4096];
    size_t size;
    status = os_child_read(child, bytes, sizeof bytes, &size, deadline, stop);
    if (status == CUDALINK_OK && !size) break;
    if (os_now() >= deadline && !findings->ended && size == sizeof bytes)
      status = error_set(CUDALINK_ERROR_TIMEOUT, "the helper talked on and on");
    take_bytes(&reader, bytes, size);
  }
  return status;
}

static void ask_helper(const cudalink_probe_spec *spec, struct probe_findings *findings,
                       const char *program) {
  char device[16], limit[24], text[320];
  uint64_t deadline = os_deadline(spec->timeout);
  snprintf(device, sizeof device, "%d", spec->device);
  snprintf(limit, sizeof limit, "%" PRId64, spec->timeout / STEP_SHARE + 1);
  const char *arguments[] = {program, PROBE_HELPER_WORD, device, limit, NULL};
  struct os_child child;
  int status = os_child_start(&child, program, arguments);
  if (status == CUDALINK_OK) {
    snprintf(findings->probe.helper, sizeof findings->probe.helper, "%s", program);
    status = listen(&child, findings, deadline, spec->stop ? spec->stop : OS_NO_HANDLE);
    os_child_end(&child, findings->ended ? deadline : 0);
  }
  if (findings->ended)
    set_item(findings, "helper", CUDALINK_PROBE_OK, program, "");
  else if (status < 0)
    set_item(findings, "helper", CUDALINK_PROBE_FAILED, cudalink_last_error(),
             "look at the kernel's log (dmesg) for the driver, or allow more time");
  else {
    snprintf(text, sizeof text, "%s ended before it had said all", program);
    set_item(findings, "helper", CUDALINK_PROBE_FAILED, text,
             "name a program cudalink of this version as helper");
  }
}

static void try_here(const cudalink_probe_spec *spec, struct probe_findings *findings) {
  struct probe_steps steps = {.sink = {probe_take_line, findings},
                              .device = spec->device,
                              .limit = spec->timeout / STEP_SHARE + 1,
                              .in_process = true};
  for (int step = 0; step < probe_step_count(); step++)
    probe_step_run(&steps, step);
  probe_steps_end(&steps);
  findings->ended = true;
}

static void try_all(const cudalink_probe_spec *spec, struct probe_findings *findings) {
  char program[OS_PATH_SIZE];
  if (os_program_find(spec->program, program) == CUDALINK_OK) {
    ask_helper(spec, findings, program);
    return;
  }
  char text[320];
  snprintf(text, sizeof text, "%s%s", cudalink_last_error(),
           spec->in_process ? ": tried in this process" : "");
  if (spec->in_process) try_here(spec, findings);
  set_item(findings, "helper", CUDALINK_PROBE_FAILED, text,
           "install the program cudalink, or name a helper, so that tries have a process of their "
           "own");
}

/* Every step has its item, in the order of the steps, whatever the helper said. */
static void complete(struct probe_findings *findings) {
  cudalink_probe *probe = &findings->probe;
  struct probe_findings *copy = malloc(sizeof *copy);
  if (!copy) return; /* then the order is the helper's */
  *copy = *findings;
  probe->item_count = 0;
  for (int step = 0; step < probe_step_count(); step++) {
    const char *id = probe_step_id(step);
    cudalink_probe_item *said = probe_item(copy, id), *item = probe_item(findings, id);
    if (said && said->text[0])
      *item = *said;
    else
      set_item(findings, id, CUDALINK_PROBE_UNKNOWN, "not tried: see the item helper", "");
  }
  for (uint32_t i = 0; i < copy->probe.item_count; i++) {
    cudalink_probe_item *item = probe_item(findings, copy->items[i].id);
    if (item && !item->text[0]) *item = copy->items[i];
  }
  free(copy);
}

static void tell(void *context, const char *id, bool good, const char *text, const char *advice) {
  set_item(context, id, good ? CUDALINK_PROBE_OK : CUDALINK_PROBE_FAILED, text, advice);
}

/* ---- run ----------------------------------------------------------------------------------------- */

static int copy_spec(cudalink_probe_spec *copy, const cudalink_probe_spec *spec) {
  *copy = (cudalink_probe_spec){.size = sizeof *copy};
  if (spec) {
    if (spec->size < sizeof spec->size || spec->size > sizeof *copy)
      return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                       "cudalink_probe_run: spec.size is %zu, this library knows %zu; start with "
                       "CUDALINK_PROBE_DEFAULTS",
                       spec->size, sizeof *copy);
    memcpy(copy, spec, spec->size);
  }
  if (copy->device < 0 || copy->timeout < 0 || copy->stop < 0)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_probe_run: device is %d, timeout %" PRId64
                     ", stop %d; none may be negative",
                     copy->device, copy->timeout, copy->stop);
  if (!copy->timeout) copy->timeout = USUAL_TIMEOUT;
  if (copy->timeout > LONGEST_TIMEOUT) copy->timeout = LONGEST_TIMEOUT;
  return CUDALINK_OK;
}

int cudalink_probe_run(const cudalink_probe_spec *given, cudalink_probe **probe) {
  cudalink_probe_spec spec;
  if (!probe)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "cudalink_probe_run: probe is NULL");
  *probe = NULL;
  if (os_forked())
    return error_set(
        CUDALINK_ERROR_FORKED,
        "this process was forked after cudalink was used; use it in a process of its own, or exec");
  int status = copy_spec(&spec, given);
  if (status < 0) return status;
  struct probe_findings *findings = calloc(1, sizeof *findings);
  if (!findings) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for the findings");
  findings->probe.size = sizeof findings->probe;
  findings->probe.devices = findings->devices;
  findings->probe.items = findings->items;
  try_all(&spec, findings);
  complete(findings);
  os_surroundings(spec.directory, tell, findings);
  *probe = &findings->probe;
  return CUDALINK_OK;
}

void cudalink_probe_free(cudalink_probe *probe) { free(probe); }
