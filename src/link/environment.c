/* SPDX-License-Identifier: MIT
 *
 * Specs from the environment: each variable fills in one member that is still at its default.
 */
#include "cudalink/environment.h"
#include "base/environment.h"
#include "base/error.h"

#include <stddef.h>
#include <string.h>

/* The caller's struct may be older, and end before the member. */
#define REACHES(spec, member)                                                                      \
  ((spec)->size >= offsetof(__typeof__(*(spec)), member) + sizeof(spec)->member)
#define FILL(spec, member, variable)                                                               \
  do {                                                                                             \
    struct environment_value found = environment_read(ENVIRONMENT_##variable##_VARIABLE);          \
    if (REACHES(spec, member) && found.given && !(spec)->member)                                   \
      (spec)->member = (__typeof__((spec)->member))found.value;                                    \
  } while (0)

static int check(const char *call, bool there, size_t size, size_t least, size_t most) {
  if (there && size >= least && size <= most) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "%s: spec.size is %zu, this library knows %zu; start with the DEFAULTS", call,
                   size, most);
}

int cudalink_exporter_spec_from_environment(cudalink_exporter_spec *spec) {
  int status = check("cudalink_exporter_spec_from_environment", spec, spec ? spec->size : 0,
                     offsetof(cudalink_exporter_spec, description), sizeof *spec);
  if (status < 0) return status;
  FILL(spec, own_stream_priority, LIB_STREAM_PRIO);
  FILL(spec, export_sync, EXPORT_SYNC);
  FILL(spec, flush_probe, EXPORT_FLUSH_PROBE);
  FILL(spec, strict_device, STRICT_DEVICE);
  struct environment_value barrier = environment_read(ENVIRONMENT_ACTIVATION_BARRIER_VARIABLE);
  if (REACHES(spec, cipd_ignore_barrier) && barrier.given && !barrier.value)
    spec->cipd_ignore_barrier = 1;
  FILL(spec, cipd_barrier_limit, BARRIER_STALE_NS);
  return CUDALINK_OK;
}

int cudalink_importer_spec_from_environment(cudalink_importer_spec *spec) {
  int status = check("cudalink_importer_spec_from_environment", spec, spec ? spec->size : 0,
                     offsetof(cudalink_importer_spec, policy), sizeof *spec);
  if (status < 0) return status;
  FILL(spec, host_streams, D2H_STREAMS);
  FILL(spec, host_pipelined, D2H_PIPELINED);
  FILL(spec, gpu_wait, TORCH_GPU_WAIT);
  struct environment_value reconnect = environment_read(ENVIRONMENT_IMPORT_RECONNECT_VARIABLE);
  if (REACHES(spec, once) && reconnect.given && !reconnect.value) spec->once = 1;
  struct environment_value spin = environment_read(ENVIRONMENT_WAIT_SPIN_US_VARIABLE);
  if (REACHES(spec, spin) && spin.given && !spec->spin) spec->spin = spin.value * 1000;
  return CUDALINK_OK;
}

int cudalink_environment_get(const char *name, uint64_t *value) {
  for (int i = 0; name && value && i < ENVIRONMENT_COUNT; i++)
    if (strcmp(name, environment_variables[i].name) == 0 &&
        environment_variables[i].type != ENVIRONMENT_TEXT) {
      *value = environment_read((enum environment_name)i).value;
      return CUDALINK_OK;
    }
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "cudalink_environment_get: '%.80s' is no variable with a value that this "
                   "library reads; docs/environment.md lists them",
                   name ? name : "(null)");
}
