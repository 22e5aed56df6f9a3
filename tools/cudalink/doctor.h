/* SPDX-License-Identifier: MIT
 *
 * `cudalink doctor` inside: what it finds out, beside what the library's probe does.
 */
#ifndef CUDALINK_DOCTOR_H
#define CUDALINK_DOCTOR_H

#include "cudalink/cudalink.h"

/* Each tries one thing and fills in an item as the probe does. */

/* `cudalink demo` with that kind on that GPU: four processes, each byte checked. */
void doctor_demo(cudalink_probe_item *item, const char *kind, uint64_t device, int is_explained);
/* A consumer in another process is killed; how long until its producer knows. */
void doctor_kill(cudalink_probe_item *item);
/* What lies in the folders of channels and is not one. */
void doctor_folder(cudalink_probe_item *item);

#endif
