/* SPDX-License-Identifier: MIT
 *
 * How much memory there is to take. The kernel's own answers to taking too much are a signal
 * (SIGXFSZ) and the OOM killer; this is asked before, so that the answer is a sentence.
 */
#include "posix.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define NO_LIMIT UINT64_MAX

/* The first number in the file; NO_LIMIT when it can't be read or says "max". */
static uint64_t read_number(const char *path) {
  FILE *file = fopen(path, "re");
  if (!file) return NO_LIMIT;
  char line[64] = "", *rest;
  if (!fgets(line, sizeof line, file)) line[0] = '\0';
  fclose(file);
  uint64_t number = strtoull(line, &rest, 10);
  return rest != line ? number : NO_LIMIT;
}

/* What the line says if it is the named one, else 0. */
static uint64_t number_of(const char *line, const char *name) {
  size_t length = strlen(name);
  if (strncmp(line, name, length) != 0 || !isspace((unsigned char)line[length])) return 0;
  return strtoull(line + length, NULL, 10);
}

/* The sum of the `count` named lines ("NAME NUMBER" or "NAME: NUMBER kB") of a file. */
static uint64_t read_lines(const char *path, const char *const *names, int count) {
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  char line[256];
  uint64_t sum = 0;
  while (fgets(line, sizeof line, file))
    for (int i = 0; i < count; i++)
      sum += number_of(line, names[i]);
  fclose(file);
  return sum;
}

/* Where a version of cgroups keeps its numbers. */
struct cgroup_files {
  const char *mounts[2];
  const char *limit, *usage;
  const char *cache[2]; /* lines of memory.stat: file cache, which makes room when asked to */
};
static const struct cgroup_files version_2 = {{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
                                              "memory.max",
                                              "memory.current",
                                              {"inactive_file", "active_file"}};
static const struct cgroup_files version_1 = {{"/sys/fs/cgroup/memory", NULL},
                                              "memory.limit_in_bytes",
                                              "memory.usage_in_bytes",
                                              {"total_inactive_file", "total_active_file"}};

static int check_group(const struct cgroup_files *files, const char *folder, uint64_t bytes) {
  char path[OS_PATH_SIZE * 4];
  snprintf(path, sizeof path, "%s/%s", folder, files->limit);
  uint64_t limit = read_number(path);
  snprintf(path, sizeof path, "%s/%s", folder, files->usage);
  uint64_t usage = read_number(path);
  if (limit == NO_LIMIT || usage == NO_LIMIT) return CUDALINK_OK;
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  uint64_t cache = read_lines(path, files->cache, 2);
  uint64_t taken = usage > cache ? usage - cache : 0;
  if (limit >= taken && limit - taken >= bytes) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_NO_SPACE,
                   "%" PRIu64 " bytes of shared memory are needed, but the memory limit %s/%s of "
                   "%" PRIu64 " bytes leaves %" PRIu64 "; raise it or use smaller or fewer slots",
                   bytes, folder, files->limit, limit, limit > taken ? limit - taken : 0);
}

/* From the process's own group up to the root. A container sees its group as the root, so folders
 * that don't exist are passed over. */
static int check_groups(const struct cgroup_files *files, const char *group, uint64_t bytes) {
  for (int i = 0; i < 2 && files->mounts[i]; i++) {
    char folder[OS_PATH_SIZE * 3];
    size_t mount = strlen(files->mounts[i]);
    int written = snprintf(folder, sizeof folder, "%s%s", files->mounts[i], group);
    if (written >= (int)sizeof folder || strstr(group, "/..")) folder[mount] = '\0';
    while (strlen(folder) >= mount) {
      int result = check_group(files, folder, bytes);
      if (result != CUDALINK_OK) return result;
      *strrchr(folder, '/') = '\0';
    }
  }
  return CUDALINK_OK;
}

/* Lines of /proc/self/cgroup: "0::/GROUP" (version 2), "4:memory:/GROUP" (version 1). */
static int check_cgroup(uint64_t bytes) {
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return CUDALINK_OK;
  char line[OS_PATH_SIZE * 2];
  int result = CUDALINK_OK;
  while (result == CUDALINK_OK && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = '\0';
    if (controllers[1] == '\0')
      result = check_groups(&version_2, group, bytes);
    else if (strstr(controllers, "memory"))
      result = check_groups(&version_1, group, bytes);
  }
  fclose(file);
  return result;
}

static int check_machine(uint64_t bytes) {
  static const char *const names[] = {"MemAvailable:", "SwapFree:"};
  uint64_t left = read_lines("/proc/meminfo", names, 2) * 1024;
  if (left == 0 || left >= bytes) return CUDALINK_OK; /* 0: not readable */
  return error_set(CUDALINK_ERROR_NO_SPACE,
                   "%" PRIu64 " bytes of shared memory are needed, but the machine has %" PRIu64
                   " left; use smaller or fewer slots",
                   bytes, left);
}

int os_memory_limit_check(uint64_t bytes) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < bytes)
    return error_set(CUDALINK_ERROR_NO_SPACE,
                     "%" PRIu64 " bytes of shared memory are needed, but the file size limit "
                     "(ulimit -f, RLIMIT_FSIZE) is %" PRIu64 " byte%s; raise it",
                     bytes, (uint64_t)limit.rlim_cur, error_s(limit.rlim_cur));
  int result = check_cgroup(bytes);
  return result != CUDALINK_OK ? result : check_machine(bytes);
}
