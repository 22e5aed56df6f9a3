/* SPDX-License-Identifier: MIT
 *
 * The program: finds the command and runs it.
 */
#include "command.h"
#include "environment.h"
#include "nearest.h"
#include "options.h"
#include "report.h"

#include "cudalink/cudalink.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static int command_help(int argc, char **argv);
static int command_version(int argc, char **argv);
static int command_complete(int argc, char **argv);

struct command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *summary; /* NULL: not for people */
};

static const struct command commands[] = {
    {"demo", command_demo,
     "one process sends a moving picture to three others, every byte is checked"},
    {"send", command_send, "sends patterns, files, folders or a pipe into a channel"},
    {"recv", command_recv,
     "receives frames from a channel: into files, a folder, a pipe, or nowhere"},
    {"record", command_record, "records a channel into a file: every byte, every time"},
    {"replay", command_replay, "sends a recording again, each frame as it was and when it was"},
    {"list", command_list, "lists the channels, live or dead"},
    {"info", command_info, "says everything about one channel"},
    {"watch", command_watch,
     "shows the channels and who is on them, live; serves metrics for Prometheus"},
    {"gc", command_gc, "removes what dead producers left behind"},
    {"doctor", command_doctor, "tries what this machine can do, and says what to change"},
    {"bench", command_bench, "measures, beside the floors of this machine"},
    {"mps", command_mps, "starts, stops or shows NVIDIA's Multi-Process Service"},
    {"help", command_help, "this text, or that of a command; `help formats` lists the formats"},
    {"version", command_version, "prints the version"},
    {"demo-consumer", command_demo_consumer, NULL},
    {"gpus", command_gpus, NULL},
    {"complete", command_complete, NULL}, /* for tools/completion */
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static const struct command *find_command(const char *name) {
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  return NULL;
}

static int fail_unknown(const char *name) {
  struct nearest nearest = nearest_to(name);
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (commands[i].summary) nearest_offer(&nearest, commands[i].name);
  if (nearest.best)
    return report(EXIT_CODE_USAGE, "there is no command \"%.60s\"; did you mean %s?", name,
                  nearest.best);
  return report(EXIT_CODE_USAGE, "there is no command \"%.60s\"; cudalink help lists them", name);
}

static void print_overview(FILE *stream) {
  fprintf(stream, "usage: cudalink COMMAND [options]\n\n"
                  "Hands pictures and tensors from one process to others, without copies.\n\n"
                  "commands:\n");
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (commands[i].summary) fprintf(stream, "  %-9s %s\n", commands[i].name, commands[i].summary);
  fprintf(stream, "\ncudalink COMMAND --help says more.\n\nexit codes:\n");
#define PRINT_EXIT_CODE(name, value, text) fprintf(stream, "  %-9d %s\n", value, text);
  EXIT_CODES(PRINT_EXIT_CODE)
#undef PRINT_EXIT_CODE
  fprintf(stream, "  128 + N   ended by signal N, after everything was put away\n");
}

static int print_formats(void) {
  cudalink_format format = CUDALINK_FORMAT_NONE;
  while ((format = cudalink_format_next(format)) != CUDALINK_FORMAT_NONE)
    printf("%s\n", cudalink_format_name((uint32_t)format));
  return EXIT_CODE_OK;
}

static int command_help(int argc, char **argv) {
  if (argc < 2 || strncmp(argv[1], "-", 1) == 0) {
    print_overview(stdout);
    return EXIT_CODE_OK;
  }
  if (strcmp(argv[1], "formats") == 0) return print_formats();
  const struct command *command = find_command(argv[1]);
  if (!command || command->run == command_help) return fail_unknown(argv[1]);
  char *arguments[] = {argv[1], (char *)"--help", NULL};
  return command->run(2, arguments);
}

static int command_version(int argc, char **argv) {
  uint32_t version = cudalink_version();
  (void)argc;
  (void)argv;
  printf("cudalink %s, library %u.%u.%u\n", CUDALINK_VERSION_STRING, version / 10000,
         version / 100 % 100, version % 100);
  return EXIT_CODE_OK;
}

static void print_commands(void) {
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (commands[i].summary) printf("%s\n", commands[i].name);
}

/* complete WORD...: the words behind "cudalink"; prints what could stand in place of the last. */
static int command_complete(int argc, char **argv) {
  const struct command *command = argc > 2 ? find_command(argv[1]) : NULL;
  if (argc == 2 || (argc == 3 && command && command->run == command_help)) print_commands();
  if (!command || !command->summary || command->run == command_help ||
      command->run == command_version)
    return EXIT_CODE_OK;
  char *name = argv[1];
  argv[0] = name;
  argv[1] = (char *)OPTIONS_COMPLETE;
  return command->run(argc, argv);
}

static int is_about_channels(const struct command *command, int argc, char **argv) {
  for (int i = 2; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 0;
  return command->run != command_help && command->run != command_version &&
         command->run != command_complete && command->run != command_mps &&
         command->run != command_doctor; /* which tells more */
}

int main(int argc, char **argv) {
  int code = cudalink_probe_helper(argc, argv);
  if (code >= 0) return code;
  signal(SIGPIPE, SIG_IGN); /* a closed pipe and a file-size limit are errors of write */
  signal(SIGXFSZ, SIG_IGN);
  if (argc < 2) {
    print_overview(stderr);
    return EXIT_CODE_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
  if (strcmp(name, "--version") == 0) name = "version";
  const struct command *command = find_command(name);
  if (!command) return fail_unknown(name);
  code = is_about_channels(command, argc, argv) ? environment_check() : EXIT_CODE_OK;
  return report_stdout(code ? code : command->run(argc - 1, argv + 1));
}
