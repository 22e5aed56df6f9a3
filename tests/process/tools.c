/* SPDX-License-Identifier: MIT
 *
 * Random numbers from a seed, and what /proc tells.
 */
#include <dirent.h>
#include <sys/mman.h>

#include "inside.h"

static uint64_t random_state = 1;

void inside_seed(uint64_t seed) { random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1; }

/* splitmix64 */
uint64_t random_number(void) {
  uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

uint64_t random_below(uint64_t limit) { return limit ? random_number() % limit : 0; }

/* Calls back for each name of the folder, and counts them. */
static int walk(const char *path, void (*visit)(void *context, const char *name), void *context) {
  int count = 0;
  DIR *folder = opendir(path);
  if (!folder) return 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (visit) visit(context, entry->d_name);
    count++;
  }
  closedir(folder);
  return count;
}

int folder_count(const char *path) { return walk(path, NULL, NULL); }

bool folder_has(const char *name) {
  char path[LINE_SIZE];
  snprintf(path, sizeof path, "%s/%s", test_folder, name);
  return access(path, F_OK) == 0;
}

int64_t proc_number(const char *path, const char *key) {
  char line[LINE_SIZE];
  long long value = -1;
  size_t length = strlen(key);
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, key, length) && line[length] == ':') value = atoll(line + length + 1);
  if (file) fclose(file);
  return value;
}

/* INT64_MAX: no such file, or "max". */
static int64_t number_in(const char *folder, const char *group, const char *name) {
  char path[2 * LINE_SIZE];
  long long value = INT64_MAX;
  snprintf(path, sizeof path, "%s%s/%s", folder, group, name);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%lld", &value) != 1) value = INT64_MAX;
  if (file) fclose(file);
  return value;
}

/* What this process's memory group, of either version, has left. */
static int64_t left_in_group(void) {
  char line[LINE_SIZE];
  int64_t left = INT64_MAX;
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *group = strrchr(line, ':');
    if (!controllers || group == controllers) continue;
    *group++ = '\0';
    bool first = !strcmp(controllers, ":memory"), second = !strcmp(controllers, ":");
    const char *folder = first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    if (!first && !second) continue;
    int64_t most = number_in(folder, group, first ? "memory.limit_in_bytes" : "memory.max");
    int64_t used = number_in(folder, group, first ? "memory.usage_in_bytes" : "memory.current");
    if (used != INT64_MAX && most - used < left) left = most - used;
  }
  if (file) fclose(file);
  return left;
}

int64_t available_memory(void) {
  int64_t machine = proc_number("/proc/meminfo", "MemAvailable") * 1024, group = left_in_group();
  return group < machine ? group : machine;
}

struct thread_visit {
  void (*visit)(void *context, pid_t thread);
  void *context;
};

static void visit_thread(void *context, const char *name) {
  struct thread_visit *with = context;
  with->visit(with->context, atoi(name));
}

int for_each_thread(pid_t pid, void (*visit)(void *context, pid_t thread), void *context) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  struct thread_visit with = {visit, context};
  return walk(path, visit_thread, &with);
}

/* Of this thread's table, the walk's own not counted. */
int count_descriptors(void) { return folder_count("/proc/self/fd") - 1; }

int count_memory_mappings(void) {
  char line[LINE_SIZE];
  int count = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  while (file && fgets(line, sizeof line, file))
    if (strstr(line, "/memfd:")) count++;
  if (file) fclose(file);
  return count;
}
