/* SPDX-License-Identifier: MIT
 *
 * GPUs. A process for which CUDA_VISIBLE_DEVICES hides the others is told of them by another one: this
 * program, started again.
 */
#include "gpus.h"
#include "command.h"
#include "options.h"
#include "report.h"
#include "tool.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult, CUdevice;

#define PREFIX 4           /* "GPU-" or "MIG-"; the driver's UUID is without it */
#define LIMIT 30000000000  /* ns; only a driver that hangs comes near */
#define SENTENCE_SIZE 1000 /* room for the UUIDs of 16 GPUs */

/* X(name, exported symbol, arguments) */
#define FUNCTIONS(X)                                                                               \
  X(init, cuInit, (unsigned flags))                                                                \
  X(get_version, cuDriverGetVersion, (int *version))                                               \
  X(get_name, cuDeviceGetName, (char *name, int size, CUdevice device))                            \
  X(get_count, cuDeviceGetCount, (int *count))                                                     \
  X(get, cuDeviceGet, (CUdevice * device, int ordinal))                                            \
  X(get_uuid, cuDeviceGetUuid_v2, (uint8_t uuid[16], CUdevice device))

struct driver {
#define MEMBER(name, symbol, arguments) CUresult(*name) arguments;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

/* NULL, or why not. */
static const char *load(struct driver *driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found;
  if (!library) return "no CUDA driver is installed (libcuda.so.1 is not found)";
#define FIND(name, symbol, arguments)                                                              \
  if (!(found = dlsym(library, #symbol))) return "the CUDA driver has no " #symbol;                \
  memcpy(&driver->name, &found, sizeof found);
  FUNCTIONS(FIND)
#undef FIND
  return NULL;
}

/* NULL, or why not. */
static const char *start(struct driver *driver, int *count) {
  const char *missing = load(driver);
  if (missing) return missing;
  if (driver->init(0) != 0 || driver->get_count(count) != 0 || *count == 0)
    return "the CUDA driver finds no GPU that it may use";
  return NULL;
}

static void write_uuid(char text[CUDALINK_DEVICE_TEXT_SIZE], const uint8_t uuid[16]) {
  int length = snprintf(text, CUDALINK_DEVICE_TEXT_SIZE, "GPU");
  for (int i = 0; i < 16; i++) {
    int begins_group = i == 0 || (i >= 4 && i <= 10 && i % 2 == 0);
    length += snprintf(text + length, CUDALINK_DEVICE_TEXT_SIZE - (size_t)length, "%s%02x",
                       begins_group ? "-" : "", uuid[i]);
  }
}

static int read_uuid(const struct driver *driver, int number,
                     char text[CUDALINK_DEVICE_TEXT_SIZE]) {
  uint8_t uuid[16];
  CUdevice device;
  if (driver->get(&device, number) != 0 || driver->get_uuid(uuid, device) != 0) return -1;
  write_uuid(text, uuid);
  return 0;
}

const char *gpus_uuid(long number, char uuid[CUDALINK_DEVICE_TEXT_SIZE], char *reason,
                      size_t size) {
  struct driver driver;
  int count = 0;
  const char *missing = start(&driver, &count);
  if (missing) return missing;
  if (number >= count) {
    if (count == 1) return "there is only GPU 0";
    snprintf(reason, size, "there are GPUs 0 to %d", count - 1);
    return reason;
  }
  return read_uuid(&driver, (int)number, uuid) ? "the CUDA driver does not tell its UUID" : NULL;
}

int gpus_ordinal(const uint8_t uuid[16]) {
  struct driver driver;
  int count = 0;
  if (start(&driver, &count)) return -1;
  for (int i = 0; i < count; i++) {
    CUdevice device;
    uint8_t found[16];
    if (driver.get(&device, i) == 0 && driver.get_uuid(found, device) == 0 &&
        memcmp(found, uuid, sizeof found) == 0)
      return i;
  }
  return -1;
}

int gpus_are_there(void) {
  struct driver driver;
  int count = 0;
  return !start(&driver, &count);
}

int gpus_only(void) {
  struct driver driver;
  int count = 0;
  return !start(&driver, &count) && count == 1 ? 0 : -1;
}

/* Of the kernel's module; CUDA knows its own version only. */
static void print_driver_version(void) {
  char text[32] = "";
  FILE *file = fopen("/sys/module/nvidia/version", "re");
  if (file && !fgets(text, sizeof text, file)) *text = 0;
  if (file) fclose(file);
  printf("%.*s\n", (int)strcspn(text, "\n"), text);
}

static void print_machine(const struct driver *driver, int number) {
  char name[CUDALINK_DEVICE_NAME_SIZE] = "";
  CUdevice device;
  int version = 0;
  if (driver->get(&device, number) != 0 ||
      driver->get_name(name, (int)sizeof name - 1, device) != 0)
    *name = 0;
  driver->get_version(&version);
  printf("%s\n%d.%d\n", name, version / 1000, version % 1000 / 10);
  print_driver_version();
}

/* gpus: prints the UUID of each that any process would see. gpus N: the name of one that is visible, and
 * versions. Not for people. A UUID of --device stands in CUDA_VISIBLE_DEVICES. */
int command_gpus(int argc, char **argv) {
  struct driver driver;
  char uuid[CUDALINK_DEVICE_TEXT_SIZE];
  int count = 0;
  if (argc == 1) unsetenv("CUDA_VISIBLE_DEVICES");
  if (start(&driver, &count)) return EXIT_CODE_SYSTEM;
  if (argc > 1) {
    print_machine(&driver, (int)strtol(argv[1], NULL, 10));
    return EXIT_CODE_OK;
  }
  for (int i = 0; i < count; i++)
    if (read_uuid(&driver, i, uuid) == 0) printf("%s\n", uuid);
  return EXIT_CODE_OK;
}

static void ask_for_all(struct tool *tool) {
  char *arguments[] = {(char *)"/proc/self/exe", (char *)"gpus", NULL};
  tool_run(tool, arguments, "", LIMIT);
}

/* A line of what was said; *text moves behind it. */
static void take_line(const char **text, char *to, size_t size) {
  size_t length = strcspn(*text, "\n");
  snprintf(to, size, "%.*s", (int)length, *text);
  *text += length + ((*text)[length] == '\n');
}

void gpus_machine_read(struct gpus_machine *machine, int number) {
  static struct tool tool;
  char digits[16];
  char *arguments[] = {(char *)"/proc/self/exe", (char *)"gpus", digits, NULL};
  const char *text = tool.output;
  *machine = (struct gpus_machine){.gpu = ""};
  snprintf(digits, sizeof digits, "%d", number);
  tool_run(&tool, arguments, "", LIMIT);
  if (tool.end != TOOL_ENDED || tool.status != 0) return;
  take_line(&text, machine->gpu, sizeof machine->gpu);
  take_line(&text, machine->cuda, sizeof machine->cuda);
  take_line(&text, machine->driver, sizeof machine->driver);
}

static int is_known(const char *uuids, const char *wanted) {
  for (const char *line = uuids; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, wanted, strlen(wanted)) == 0) return 1;
  }
  return 0;
}

static void join(char to[SENTENCE_SIZE], const char *lines) {
  size_t length = 0;
  for (; *lines && length + 2 < SENTENCE_SIZE; lines++) {
    if (*lines == '\n') to[length++] = ',';
    to[length++] = *lines == '\n' ? ' ' : *lines;
  }
  to[length] = 0;
}

/* Of slices (MIG) a process sees one only, so nothing can be said of others. */
int gpus_report_unknown(void) {
  static struct tool tool;
  char list[SENTENCE_SIZE];
  const char *wanted = option_device_uuid();
  if (!wanted || strncmp(wanted, "GPU-", PREFIX) != 0) return 0;
  ask_for_all(&tool);
  if (tool.end != TOOL_ENDED || tool.status != 0 || is_known(tool.output, wanted)) return 0;
  join(list, tool.output);
  report(EXIT_CODE_SYSTEM, "--device %.60s: no GPU's UUID begins so; %s %s", wanted,
         strchr(tool.output, '\n') ? "there are" : "there is only", list);
  return 1;
}

int gpus_report(int error) {
  if (error == CUDALINK_ERROR_UNSUPPORTED && gpus_report_unknown()) return EXIT_CODE_SYSTEM;
  return report_library(error);
}

int gpus_check(uint64_t device) {
  char uuid[CUDALINK_DEVICE_TEXT_SIZE], reason[64], number[24];
  if (device == OPTION_NO_DEVICE) return EXIT_CODE_OK;
  const char *failure = gpus_uuid((long)device, uuid, reason, sizeof reason);
  if (!failure) return EXIT_CODE_OK;
  if (gpus_report_unknown()) return EXIT_CODE_SYSTEM;
  const char *named = option_device_uuid();
  snprintf(number, sizeof number, "%llu", (unsigned long long)device);
  return report(
      EXIT_CODE_SYSTEM,
      "--device %.60s: %s; without --device frames are taken where their producer has them",
      named ? named : number, failure);
}
