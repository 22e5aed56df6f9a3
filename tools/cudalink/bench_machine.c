/* SPDX-License-Identifier: MIT
 *
 * Where it was measured: processor, kernel, load, date.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static void read_cpu(char *text, size_t size) {
  snprintf(text, size, "unknown processor");
  FILE *file = fopen("/proc/cpuinfo", "re");
  char line[256];
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, "model name", 10) != 0) continue;
    const char *value = strchr(line, ':');
    snprintf(text, size, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
    break;
  }
  if (file) fclose(file);
}

void bench_machine_read(struct bench_machine *machine) {
  *machine = (struct bench_machine){0};
  read_cpu(machine->cpu, sizeof machine->cpu);
  machine->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  struct utsname system_name;
  uname(&system_name);
  snprintf(machine->kernel, sizeof machine->kernel, "%.64s %.128s", system_name.sysname,
           system_name.release);
  double loads[1];
  if (getloadavg(loads, 1) == 1) machine->load = loads[0];
  time_t now = time(NULL);
  struct tm calendar;
  strftime(machine->date, sizeof machine->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &calendar));
}
