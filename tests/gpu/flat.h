/* SPDX-License-Identifier: MIT
 *
 * Is what a process has still what it had? Descriptors and mapped memory files; on the fake driver its
 * bytes and handles, with events and streams among them; on a GPU the free memory of the whole device, so
 * nobody else may work there.
 */
#ifndef CUDALINK_TESTS_GPU_FLAT_H
#define CUDALINK_TESTS_GPU_FLAT_H

#include "gpu.h"

#define FLAT_TOLERANCE (4u << 20) /* two of the driver's granules */

struct flat {
  uint64_t descriptors, mappings; /* without those of mailboxes */
  uint64_t mailboxes;             /* descriptors and mappings of them */
  uint64_t bytes, handles, free_memory;
};
/* Behind a warm-up, in which the driver makes what it keeps. */
void flat_start(struct flat *flat);
/* Fails when there is more of anything than before, and goes on being; of mailboxes so many more. */
void flat_check(const struct flat *before, struct flat *now, uint64_t mailboxes);
void flat_report(const char *what, uint64_t rounds, const struct flat *before,
                 const struct flat *now);

#endif
