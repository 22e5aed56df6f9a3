/* SPDX-License-Identifier: MIT
 *
 * Helpers as their test sees them: start, talk, signal, wait.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "inside.h"

#define MAX_OPTIONS 32

static struct process *processes;
static struct process *ended; /* a test may still look at them */
static int started;

/* In the child, between fork and exec. */
static void become_helper(const char *helper, char *options, int channel, pid_t parent) {
  char *arguments[MAX_OPTIONS + 6] = {program_invocation_short_name, "--helper"};
  char parent_option[32], number_option[32];
  int count = 2;
  arguments[count++] = (char *)(uintptr_t)helper;
  snprintf(parent_option, sizeof parent_option, "parent=%d", parent);
  snprintf(number_option, sizeof number_option, "number=%d", started);
  arguments[count++] = parent_option;
  arguments[count++] = number_option;
  for (char *at = strtok(options, " "); at && count < MAX_OPTIONS + 5; at = strtok(NULL, " "))
    arguments[count++] = at;
  if (channel == HELPER_CHANNEL)
    fcntl(channel, F_SETFD, 0);
  else
    dup2(channel, HELPER_CHANNEL);
  execv("/proc/self/exe", arguments);
  _exit(126);
}

struct process *process_start(const char *helper, const char *format, ...) {
  char options[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(options, sizeof options, format, list);
  va_end(list);
  int ends[2];
  struct process *process = calloc(1, sizeof *process);
  CHECK(process != NULL);
  CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  pid_t parent = getpid();
  started++;
  fflush(NULL);
  process->pid = fork();
  CHECK(process->pid >= 0);
  if (process->pid == 0) become_helper(helper, options, ends[1], parent);
  close(ends[1]);
  process->channel = ends[0];
  snprintf(process->helper, sizeof process->helper, "%s", helper);
  process->next = processes;
  processes = process;
  return process;
}

static void tell(struct process *process, const char *format, va_list list) {
  char line[LINE_SIZE];
  int length = vsnprintf(line, sizeof line, format, list);
  snprintf(process->told, sizeof process->told, "%.39s", line);
  /* A dead helper is noticed where its answer is missing. */
  send(process->channel, line, (size_t)length, MSG_NOSIGNAL);
}

void process_tell(struct process *process, const char *format, ...) {
  va_list list;
  va_start(list, format);
  tell(process, format, list);
  va_end(list);
}

const char *process_ask(struct process *process, const char *format, ...) {
  va_list list;
  va_start(list, format);
  tell(process, format, list);
  va_end(list);
  return process_hear(process);
}

int64_t line_number(const char *line, const char *key) {
  size_t length = strlen(key);
  for (const char *at = strstr(line, key); at; at = strstr(at + 1, key))
    if (at[length] == '=' && (at == line || at[-1] == ' '))
      return strtoll(at + length + 1, NULL, 0);
  FAIL("no %s in '%s'", key, line);
}

const char *process_hear_or_end(struct process *process) {
  static char line[LINE_SIZE];
  static char what[120];
  snprintf(what, sizeof what, "what %s [%d] says to '%s'", process->helper, process->pid,
           process->told);
  harness_waits(__FILE__, __LINE__, what);
  ssize_t length;
  do
    length = recv(process->channel, line, sizeof line - 1, 0);
  while (length < 0 && errno == EINTR);
  line[length > 0 ? length : 0] = '\0';
  return line;
}

static void explain_end(struct process *process) {
  int status = process_wait(process);
  if (WIFSIGNALED(status))
    FAIL("helper %s was ended by signal %d", process->helper, WTERMSIG(status));
  FAIL("helper %s ended with code %d", process->helper, WEXITSTATUS(status));
}

const char *process_hear(struct process *process) {
  const char *line = process_hear_or_end(process);
  if (!*line) explain_end(process);
  return line;
}

void process_expect(struct process *process, const char *expected) {
  const char *line = process_hear(process);
  if (strcmp(line, expected))
    FAIL("helper %s said '%s', not '%s'", process->helper, line, expected);
}

bool process_has_line(struct process *process) {
  struct pollfd channel = {.fd = process->channel, .events = POLLIN};
  return poll(&channel, 1, 0) != 0;
}

void process_signal_only(struct process *process, int number) {
  if (process->pid) kill(process->pid, number);
}

void process_signal(struct process *process, int number) {
  process_signal_only(process, number);
  if (number == SIGKILL) process_wait(process);
}

void process_kill(struct process *process) {
  if (process->pid) process_signal(process, SIGKILL);
}

bool process_is_stopped(const struct process *process) {
  char path[64], state = '?';
  snprintf(path, sizeof path, "/proc/%d/stat", process->pid);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
  if (file) fclose(file);
  return state == 'T' || state == 't';
}

static void forget(struct process *process) {
  struct process **link = &processes;
  while (*link && *link != process)
    link = &(*link)->next;
  if (*link) *link = process->next;
  process->next = ended;
  ended = process;
}

void process_was_reaped(struct process *process, int status) {
  close(process->channel);
  process->status = status;
  process->pid = 0;
  forget(process);
}

int process_wait(struct process *process) {
  int status;
  if (!process->pid) return process->status;
  char what[80];
  snprintf(what, sizeof what, "the end of helper %s [%d]", process->helper, process->pid);
  harness_waits(__FILE__, __LINE__, what);
  while (waitpid(process->pid, &status, 0) < 0)
    if (errno != EINTR) FAIL("no helper %d to wait for", process->pid);
  process_was_reaped(process, status);
  return status;
}

void process_finish(struct process *process) {
  shutdown(process->channel, SHUT_WR);
  int status = process_wait(process);
  if (WIFSIGNALED(status))
    FAIL("helper %s was ended by signal %d", process->helper, WTERMSIG(status));
  if (status) FAIL("helper %s ended with code %d", process->helper, WEXITSTATUS(status));
}

void process_end_all(void) {
  while (processes) {
    kill(processes->pid, SIGCONT);
    process_kill(processes);
  }
  while (ended) {
    struct process *next = ended->next;
    free(ended);
    ended = next;
  }
}
