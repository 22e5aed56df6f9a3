/* SPDX-License-Identifier: MIT
 *
 * What the user's environment says on top of the command line, which counts first
 * (docs/environment.md).
 */
#ifndef CUDALINK_PROGRAM_ENVIRONMENT_H
#define CUDALINK_PROGRAM_ENVIRONMENT_H

#include "cudalink/cudalink.h"

/* Fills in what is at its default. A variable that is not understood is reported, and not taken. */
void environment_exporter(cudalink_exporter_spec *spec);
void environment_importer(cudalink_importer_spec *spec);

/* A folder that no command could use is said at once: those that only look would find no channel. An
 * exit code. */
int environment_check(void);

#endif
