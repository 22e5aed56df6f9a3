/* SPDX-License-Identifier: MIT
 *
 * What is tried, in order. Runs in a helper, or in the program's process when it asked for that.
 */
#ifndef CUDALINK_SRC_PROBE_STEPS_H
#define CUDALINK_SRC_PROBE_STEPS_H

#include "gpu/probe.h"
#include "probe/lines.h"

/* Who maps what this process makes: one process per kind, since none is asked twice. */
#define PROBE_KINDS (CUDALINK_KIND_IPC + 1)

struct probe_steps {
  struct probe_sink sink;
  int32_t device;                  /* as in cudalink_probe_spec */
  int64_t limit;                   /* ns for one step */
  bool in_process;                 /* nobody else is there to map */
  os_handle importer[PROBE_KINDS]; /* connections */
  struct gpu_device *anchor;       /* keeps CUDA's context alive between the steps; may be NULL */
};

int probe_step_count(void);
const char *probe_step_id(int step); /* that of its item */
void probe_step_run(struct probe_steps *steps, int step);
void probe_steps_end(struct probe_steps *steps);

/* The importer's side: serves one block, which comes by `connection`. */
void probe_import(os_handle connection, int64_t limit);

#endif
