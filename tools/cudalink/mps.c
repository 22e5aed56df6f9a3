/* SPDX-License-Identifier: MIT
 *
 * `cudalink mps`: NVIDIA's Multi-Process Service, run as this user's own daemon. It lets processes
 * use a GPU side by side instead of in turns.
 */
#include "command.h"
#include "json.h"
#include "options.h"
#include "report.h"
#include "tool.h"

#include "cudalink/cudalink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONTROL "nvidia-cuda-mps-control"
#define LIMIT 10000000000 /* ns; only a stuck daemon comes near */

static const char notes[] =
    "With MPS a frame goes from a kernel of one process to a kernel of another in 6 to 17 us, "
    "without\n"
    "it in 141 us, because the GPU works for one process at a time (measured on an H200). The "
    "price:\n"
    "a client that is killed in the middle of a kernel takes the CUDA contexts of all others "
    "along.\n"
    "Programs started before the daemon go on without it.\n"
    "\n"
    "stop waits for the clients to end; with --timeout S it ends them after S seconds.\n"
    "The daemon's folder is CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps.\n"
    "Exit code of status: 0 it runs, 3 it does not.\n"
    "JSON keys: running folder servers.";

struct options {
  int json;
  uint64_t timeout; /* s, 0 = until the clients have ended */
};

static const char *folder(void) {
  const char *named = getenv("CUDA_MPS_PIPE_DIRECTORY");
  return named && *named ? named : "/tmp/nvidia-mps";
}

static int fail(const struct tool *tool, const char *doing) {
  switch (tool->end) {
  case TOOL_MISSING:
    return report(EXIT_CODE_SYSTEM,
                  "%s: there is no " CONTROL " in PATH; it comes with the NVIDIA driver", doing);
  case TOOL_STUCK:
    return report(EXIT_CODE_SYSTEM, "%s: " CONTROL " did not answer; look for a stuck one in %s",
                  doing, folder());
  case TOOL_FAILED:
    return report(EXIT_CODE_SYSTEM, "%s: " CONTROL " can't be started: %s", doing, strerror(errno));
  case TOOL_ENDED: break;
  }
  return report(EXIT_CODE_SYSTEM, "%s: " CONTROL " ended with %d: %.200s", doing, tool->status,
                tool->output);
}

static void ask(struct tool *tool, const char *question, int64_t limit) {
  char *arguments[] = {(char *)CONTROL, NULL};
  tool_run(tool, arguments, question, limit);
}

/* Its answer without a daemon: a complaint, and exit status 1. */
static int runs(const struct tool *tool) { return tool->end == TOOL_ENDED && tool->status == 0; }

static int print_status(const struct options *options, int running, const char *servers) {
  if (options->json) {
    struct json json;
    json_start(&json, stdout);
    json_flag(&json, "running", running);
    json_text(&json, "folder", folder());
    json_text(&json, "servers", running ? servers : NULL);
    json_end(&json);
  } else if (!running) {
    printf("MPS: off; processes take turns on the GPU, about 141 us each time (H200)\n");
  } else {
    printf("MPS: on, daemon in %s, servers: %s\n", folder(), *servers ? servers : "none yet");
    printf("a client killed inside a kernel takes the others' CUDA contexts along\n");
  }
  return running ? EXIT_CODE_OK : EXIT_CODE_CHANNEL;
}

static int status(const struct options *options) {
  struct tool tool;
  ask(&tool, "get_server_list\n", LIMIT);
  if (tool.end != TOOL_ENDED && tool.end != TOOL_MISSING) return fail(&tool, "mps status");
  for (char *c = tool.output; *c; c++)
    if (*c == '\n') *c = ' ';
  return print_status(options, runs(&tool), tool.output);
}

static int start(const struct options *options) {
  struct tool tool;
  ask(&tool, "get_server_list\n", LIMIT);
  if (runs(&tool)) {
    printf("MPS runs already, in %s\n", folder());
    return EXIT_CODE_OK;
  }
  char log[4096];
  snprintf(log, sizeof log, "%s/log", folder());
  mkdir(folder(), 0700); /* the daemon says it if it can't use it */
  mkdir(log, 0700);
  setenv("CUDA_MPS_PIPE_DIRECTORY", folder(), 1);
  setenv("CUDA_MPS_LOG_DIRECTORY", log, 0);
  char *arguments[] = {(char *)CONTROL, (char *)"-d", NULL};
  tool_run(&tool, arguments, "", LIMIT);
  if (!runs(&tool)) return fail(&tool, "mps start");
  return status(options);
}

static int stop(const struct options *options) {
  struct tool tool;
  char question[64];
  ask(&tool, "get_server_list\n", LIMIT);
  if (tool.end == TOOL_MISSING) return fail(&tool, "mps stop");
  if (!runs(&tool)) return report(EXIT_CODE_CHANNEL, "mps stop: no daemon runs in %s", folder());
  if (options->timeout)
    snprintf(question, sizeof question, "quit -t %llu\n", (unsigned long long)options->timeout);
  else
    snprintf(question, sizeof question, "quit\n");
  ask(&tool, question, CUDALINK_FOREVER);
  if (!runs(&tool)) return fail(&tool, "mps stop");
  printf("MPS: stopped\n");
  return EXIT_CODE_OK;
}

int command_mps(int argc, char **argv) {
  struct options options = {0};
  const char *what = NULL;
  const struct option_row rows[] = {
      {"timeout", OPTION_NUMBER, &options.timeout, .value = "S", .minimum = 1, .maximum = 86400,
       .help = "stop: end clients that are still there after S seconds"},
      {"json", OPTION_FLAG, &options.json, .help = "status as one JSON object"},
      OPTION_ROWS_END};
  const struct option_page page = {
      .command = "mps",
      .arguments = "start|stop|status",
      .summary = "Runs NVIDIA's Multi-Process Service as a daemon of this user.",
      .rows = rows,
      .notes = notes,
      .least_arguments = 1,
      .most_arguments = 1};
  int code = options_parse(&page, argc, argv, &what);
  if (code != OPTIONS_GO) return code;
  if (!strcmp(what, "status")) return status(&options);
  if (!strcmp(what, "start")) return start(&options);
  if (!strcmp(what, "stop")) return stop(&options);
  return report(EXIT_CODE_USAGE, "mps: what is \"%.60s\"? It takes start, stop or status", what);
}
