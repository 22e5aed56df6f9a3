/* SPDX-License-Identifier: MIT
 *
 * The one clock: CLOCK_MONOTONIC in nanoseconds. It stands still while the machine is suspended,
 * so a suspended machine never makes a peer look late.
 */
#include "posix.h"

#include <time.h>

uint64_t os_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t cudalink_now(void) { return os_now(); }

uint64_t os_deadline(int64_t timeout) {
  if (timeout == CUDALINK_FOREVER) return OS_FOREVER;
  if (timeout <= 0) return os_now();
  uint64_t deadline;
  if (__builtin_add_overflow(os_now(), (uint64_t)timeout, &deadline)) return OS_FOREVER;
  return deadline;
}
