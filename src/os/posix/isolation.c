/* SPDX-License-Identifier: MIT
 *
 * A descriptor table of the service thread's own. What lies in it the program can't close, a forked
 * child doesn't inherit, and the kernel closes at once when the process is killed, however much
 * memory it has.
 */
#include "service_thread.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define FIRST 3 /* 0, 1, 2 are replaced, not closed: nothing of ours may get these numbers */
#define MOST_DESCRIPTORS (1 << 20)

/* Without /proc: every number that there can be. */
static void close_by_number(void) {
  if (!os_without(OS_FEATURE_CLOSE_RANGE) && syscall(SYS_close_range, FIRST, ~0U, 0) == 0) return;
  struct rlimit limit;
  rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : MOST_DESCRIPTORS;
  if (most > MOST_DESCRIPTORS) most = MOST_DESCRIPTORS;
  for (int handle = FIRST; handle < (int)most; handle++)
    close(handle);
}

static void close_one_by_one(void) {
  DIR *list = opendir("/proc/thread-self/fd");
  if (!list) {
    close_by_number();
    return;
  }
  for (struct dirent *entry; (entry = readdir(list));) {
    int handle = (int)strtol(entry->d_name, NULL, 10); /* "." and ".." are 0 */
    if (handle >= FIRST && handle != dirfd(list)) close(handle);
  }
  closedir(list);
}

static void replace_standard_streams(void) {
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) nothing = open("/", O_PATH | O_CLOEXEC); /* no /dev: reads and writes fail */
  for (int handle = 0; handle < FIRST; handle++)
    if (nothing >= 0 && nothing != handle) dup3(nothing, handle, O_CLOEXEC);
  if (nothing >= FIRST) close(nothing);
}

enum os_isolation os_isolate(void) {
  enum os_isolation isolation = OS_ISOLATED_NOT;
  if (!os_without(OS_FEATURE_CLOSE_RANGE) &&
      syscall(SYS_close_range, FIRST, ~0U, CLOSE_RANGE_UNSHARE) == 0) {
    isolation = OS_ISOLATED_CLOSE_RANGE;
  } else if (!os_without(OS_FEATURE_UNSHARE) && unshare(CLONE_FILES) == 0) {
    isolation = OS_ISOLATED_UNSHARE;
    close_one_by_one();
  }
  /* Not in a shared table: these would be the program's own streams. */
  if (isolation != OS_ISOLATED_NOT) replace_standard_streams();
  return isolation;
}
