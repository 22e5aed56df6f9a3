/* SPDX-License-Identifier: MIT
 *
 * The same pictures through Python: multiprocessing.shared_memory and a queue. The script measures.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "tool.h"

static bool python_is_there(void) {
  struct tool tool;
  char *arguments[] = {(char *)"python3", (char *)"-c",
                       (char *)"import multiprocessing.shared_memory", NULL};
  tool_run(&tool, arguments, "", INT64_MAX);
  return tool.end == TOOL_ENDED && tool.status == 0;
}

/* Its output goes into a pipe, whose other end *output is. -1: it can't be started. */
static pid_t start_python(const char *script, const char *what, uint32_t rounds, int *output) {
  char number[16];
  snprintf(number, sizeof number, "%u", rounds);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  pid_t pid = fork();
  if (pid == 0) {
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (dup2(ends[1], 1) >= 0 && dup2(nowhere, 2) >= 0)
      execlp("python3", "python3", "-c", script, what, number, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  *output = ends[0];
  if (pid < 0) close(ends[0]);
  return pid;
}

/* One number per line, to the end. */
static void read_numbers(int from, struct bench_samples *samples) {
  char line[64];
  FILE *file = fdopen(from, "r");
  while (file && fgets(line, sizeof line, file))
    bench_samples_add(samples, strtod(line, NULL));
  if (file)
    fclose(file);
  else
    close(from);
}

static int run_python(struct bench_case *test, struct bench_samples *samples, const char *what) {
  if (!python_is_there()) {
    snprintf(test->text, sizeof test->text, "there is no python3");
    return BENCH_LEFT_OUT;
  }
  int output;
  size_t before = samples->count;
  pid_t pid = start_python(bench_python_peer, what, test->rounds, &output);
  if (pid < 0) return BENCH_FAILED;
  read_numbers(output, samples);
  waitpid(pid, NULL, 0);
  if (samples->count > before) return BENCH_OK;
  snprintf(test->text, sizeof test->text, "the Python script gave no numbers");
  return BENCH_FAILED;
}

int bench_python_latency(struct bench_case *test, struct bench_samples *samples) {
  return run_python(test, samples, "latency");
}
int bench_python_rate(struct bench_case *test, struct bench_samples *samples) {
  return run_python(test, samples, "rate");
}
