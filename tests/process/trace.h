/* SPDX-License-Identifier: MIT
 *
 * Exact points in a helper's life, by ptrace: it is killed at its n-th system call, or at its n-th
 * instruction, or its system calls are counted. The helper marks where that begins and ends.
 */
#ifndef CUDALINK_TESTS_PROCESS_TRACE_H
#define CUDALINK_TESTS_PROCESS_TRACE_H

#include "harness.h"

/* In the helper: the part to look at lies between. */
void trace_begin(void);
/* The same, but calls that this thread makes while *not_ours is not 0 don't count. */
void trace_begin_without(const int *not_ours);
void trace_end(void);

/* Attaches to a helper that waits for a line. It goes on by itself. */
void trace_attach(struct process *process);
/* Lets it go on; kills it when its threads together make their n-th system call after trace_begin
 * (1 = the first), before that call is done. False: trace_end came before; it runs on. */
bool trace_kill_at_call(struct process *process, int64_t n);
/* The same for the n-th instruction of the thread that called trace_begin. */
bool trace_kill_at_instruction(struct process *process, int64_t n);

/* The system calls of the thread that called trace_begin, until trace_end. The helper does that part
 * once for each line and then says "done". A part in which it waited for a mutex that another of its
 * threads held is counted again, after `between` (may be NULL): the service thread may still be busy
 * with a consumer that joined, but takes the mutex a few times only for each. */
int64_t trace_count_calls(struct process *process, void (*between)(void *context), void *context);
/* Instructions between trace_begin and trace_end. */
int64_t trace_count_instructions(struct process *process);

#endif
