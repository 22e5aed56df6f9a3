/* SPDX-License-Identifier: MIT
 *
 * May this process read there? Asked of the kernel, which answers instead of raising a signal: a call
 * that does nothing (no such `how`) reads its 8-byte argument first.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

#define SET_BYTES 8u
#define NO_SUCH_HOW (-1)

static bool readable_at(uintptr_t address) {
  uintptr_t set = address - address % SET_BYTES;
  return syscall(SYS_rt_sigprocmask, NO_SUCH_HOW, set, NULL, SET_BYTES) == 0 || errno != EFAULT;
}

bool os_memory_readable(const void *address, uint64_t bytes) {
  uintptr_t first = (uintptr_t)address;
  if (!first) return false;
  return readable_at(first) && readable_at(first + (bytes ? bytes - 1 : 0));
}
