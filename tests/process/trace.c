/* SPDX-License-Identifier: MIT
 *
 * ptrace of all threads of a helper. The marks are system calls that no kernel has, and for the
 * end a signal as well, which single-stepping sees.
 */
#include "trace.h"

#include <linux/futex.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "inside.h"

#define MARK_CALL 0x7FFF4D4B
#define END_CALL 0x7FFF4D4C
#define END_SIGNAL SIGUSR2
#define OPTIONS (PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
#define NEVER INT64_MAX
#define PARTS 50 /* counted at most */

void trace_begin(void) { syscall(MARK_CALL, NULL); }
void trace_begin_without(const int *not_ours) { syscall(MARK_CALL, not_ours); }

static void ignore(int number) { (void)number; }

void trace_end(void) {
  syscall(END_CALL);
  signal(END_SIGNAL, ignore);
  raise(END_SIGNAL);
}

struct trace {
  struct process *process;
  pid_t marked;      /* the thread that called trace_begin; 0 = not yet */
  uint64_t not_ours; /* the address given to trace_begin_without */
  int64_t calls, other_calls, instructions;
  int64_t mutex_calls; /* of `calls`: to wait for another thread of its process, or to wake it */
  int64_t kill_at_call, kill_at_instruction;
  bool stepping, counted, ended, killed, gone; /* counted: calls from here on are trace_end's own */
};

static void attach_thread(void *context, pid_t thread) {
  (void)context;
  if (ptrace(PTRACE_SEIZE, thread, NULL, OPTIONS) != 0) FAIL("can't trace: %s", strerror(errno));
  ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
}

void trace_attach(struct process *process) { for_each_thread(process->pid, attach_thread, NULL); }

/* What processes share is no private futex. */
static bool is_for_mutex(const struct __ptrace_syscall_info *call) {
  return call->entry.nr == SYS_futex && (call->entry.args[1] & FUTEX_PRIVATE_FLAG);
}

static void note_call(struct trace *trace, pid_t thread) {
  struct __ptrace_syscall_info call;
  long size = ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof call, &call);
  if (size <= 0 || call.op != PTRACE_SYSCALL_INFO_ENTRY) return;
  if (call.entry.nr == MARK_CALL) {
    trace->marked = thread;
    trace->not_ours = call.entry.args[0];
    return;
  }
  if (call.entry.nr == END_CALL) trace->counted = true;
  if (!trace->marked || trace->counted) return;
  if (thread == trace->marked && trace->not_ours &&
      (int)ptrace(PTRACE_PEEKDATA, thread, (void *)(uintptr_t)trace->not_ours, NULL))
    return;
  if (thread != trace->marked) {
    trace->other_calls++;
    return;
  }
  trace->calls++;
  trace->mutex_calls += is_for_mutex(&call);
}

/* Lets a stopped thread go on; `signal` is delivered. */
static void go_on(const struct trace *trace, pid_t thread, int number) {
  bool step = trace->stepping && thread == trace->marked && !trace->ended;
  ptrace(step ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, thread, NULL, (void *)(intptr_t)number);
}

static void kill_now(struct trace *trace) {
  trace->killed = true;
  kill(trace->process->pid, SIGKILL);
}

static void handle_stop(struct trace *trace, pid_t thread, int status) {
  int number = WSTOPSIG(status), event = status >> 16;
  if (number == (SIGTRAP | 0x80)) {
    note_call(trace, thread);
    number = 0;
  } else if (event) {
    number = 0; /* a new thread, an interrupt, a group stop */
  } else if (number == SIGTRAP) {
    trace->instructions += thread == trace->marked;
    number = 0;
  } else if (number == END_SIGNAL && thread == trace->marked) {
    trace->ended = true;
  }
  bool due = trace->calls + trace->other_calls >= trace->kill_at_call ||
             trace->instructions >= trace->kill_at_instruction;
  if (due && !trace->ended && !trace->killed) kill_now(trace);
  go_on(trace, thread, number);
}

/* Until the end mark (then the helper runs on without a tracer) or its death. */
static void run(struct trace *trace) {
  struct process *process = trace->process;
  harness_waits(__FILE__, __LINE__, "a traced helper");
  process_tell(process, "go");
  while (!trace->gone && !trace->ended) {
    int status;
    pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0 && errno != EINTR) FAIL("waitpid: %s", strerror(errno));
    if (thread <= 0) continue;
    if (WIFSTOPPED(status)) {
      handle_stop(trace, thread, status);
    } else if (thread == process->pid) {
      trace->gone = true;
      process_was_reaped(process, status);
    }
  }
}

static void detach_thread(void *context, pid_t thread) {
  int status;
  (void)context;
  /* A thread must be stopped to be let go; whatever it stops for first takes the place of the
   * interrupt. */
  ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
  if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return;
  int number = WSTOPSIG(status);
  bool ours = status >> 16 || number == (SIGTRAP | 0x80) || number == SIGTRAP;
  ptrace(PTRACE_DETACH, thread, NULL, (void *)(intptr_t)(ours ? 0 : number));
}

static void finish(const struct trace *trace) {
  if (!trace->gone) for_each_thread(trace->process->pid, detach_thread, NULL);
}

bool trace_kill_at_call(struct process *process, int64_t n) {
  struct trace trace = {.process = process, .kill_at_call = n, .kill_at_instruction = NEVER};
  run(&trace);
  finish(&trace);
  return trace.killed;
}

bool trace_kill_at_instruction(struct process *process, int64_t n) {
  struct trace trace = {
      .process = process, .kill_at_call = NEVER, .kill_at_instruction = n, .stepping = true};
  run(&trace);
  finish(&trace);
  return trace.killed;
}

static struct trace count_part(struct process *process) {
  struct trace trace = {.process = process, .kill_at_call = NEVER, .kill_at_instruction = NEVER};
  trace_attach(process);
  run(&trace);
  finish(&trace);
  if (trace.gone) FAIL("the helper ended while its calls were counted");
  process_expect(process, "done");
  printf("%lld calls, %lld of them for mutexes, %lld of other threads\n", (long long)trace.calls,
         (long long)trace.mutex_calls, (long long)trace.other_calls);
  return trace;
}

static bool was_in_the_way(const struct trace *trace) {
  return trace->mutex_calls > 0 && trace->calls == trace->mutex_calls;
}

int64_t trace_count_calls(struct process *process, void (*between)(void *context), void *context) {
  struct trace trace = count_part(process);
  for (int i = 1; i < PARTS && was_in_the_way(&trace); i++) {
    if (between) between(context);
    trace = count_part(process);
  }
  return trace.calls;
}

int64_t trace_count_instructions(struct process *process) {
  struct trace trace = {
      .process = process, .kill_at_call = NEVER, .kill_at_instruction = NEVER, .stepping = true};
  run(&trace);
  finish(&trace);
  if (trace.gone) FAIL("the helper ended while its instructions were counted");
  return trace.instructions;
}
