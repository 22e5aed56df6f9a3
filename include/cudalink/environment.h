/* SPDX-License-Identifier: MIT
 *
 * cudalink/environment.h - options from the environment (docs/environment.md has the list).
 *
 * The library never takes options from the environment behind the program's back, but for the folder
 * of channels (CUDALINK_RUNTIME_DIR) and ranges for profilers (CUDALINK_NVTX). A program whose users
 * set the CUDALINK_ variables of the original cuda-link asks for them:
 *
 * ```c fragment
 * cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = "camera", .slot_bytes = 4096};
 * cudalink_exporter_spec_from_environment(&spec);
 * ```
 *
 * What the program has set stays: only members that are still zero, which means the default, are
 * filled in. A variable that is not set, or is no value, changes nothing. The second is told in a
 * log line of level warning, with name and value.
 */
#ifndef CUDALINK_ENVIRONMENT_H
#define CUDALINK_ENVIRONMENT_H

#include "cudalink/exporter.h"
#include "cudalink/importer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the variables that are the exporter's (the importer's), now. Thread safety: as getenv. Never
 * blocks. Errors: INVALID_ARGUMENT (spec is NULL, or its size is none). */
CUDALINK_API int cudalink_exporter_spec_from_environment(cudalink_exporter_spec *spec);
CUDALINK_API int cudalink_importer_spec_from_environment(cudalink_importer_spec *spec);

/* Reads one variable, "CUDALINK_NVML": its value, or its default. Flags are 0 or 1, words are numbered in
 * the order in which docs/environment.md lists them. Errors: INVALID_ARGUMENT (no such variable, or one
 * that is a text). */
CUDALINK_API int cudalink_environment_get(const char *name, uint64_t *value);

#ifdef __cplusplus
}
#endif
#endif
