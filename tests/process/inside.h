/* SPDX-License-Identifier: MIT
 *
 * What the runner (harness.c) calls in the processes of tests and helpers (inside.c).
 */
#ifndef CUDALINK_TESTS_PROCESS_INSIDE_H
#define CUDALINK_TESTS_PROCESS_INSIDE_H

#include "harness.h"

/* Runs the test or helper in this process and returns its exit code. */
int inside_run(struct harness_case *found, char **options);
void inside_seed(uint64_t seed);
/* Somebody else has waited for it. */
void process_was_reaped(struct process *process, int status);
/* Ends all helpers that the test has not waited for. */
void process_end_all(void);

#endif
