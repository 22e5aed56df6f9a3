/* SPDX-License-Identifier: MIT
 *
 * Sleeping on a 32-bit word and waking its sleepers: the futex system call, which works on a
 * read-only mapping too.
 */
#include "posix.h"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

/* SYS_futex takes a timespec of two longs. */
_Static_assert(sizeof(long) == 8, "cuda-link needs a 64-bit Linux");

bool os_sleep_on(const _Atomic uint32_t *word, uint32_t value, uint64_t deadline, bool shared) {
  struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000U),
                           .tv_nsec = (long)(deadline % 1000000000U)};
  /* WAIT_BITSET, unlike WAIT, takes an absolute time of CLOCK_MONOTONIC. */
  int operation = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
  long result = syscall(SYS_futex, word, operation, value, deadline == OS_FOREVER ? NULL : &until,
                        NULL, FUTEX_BITSET_MATCH_ANY);
  return result == -1 && errno == ETIMEDOUT;
}

int os_wake(const _Atomic uint32_t *word, int count, bool shared) {
  int operation = FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG);
  long woken = syscall(SYS_futex, word, operation, count, NULL, NULL, 0);
  return woken > 0 ? (int)woken : 0;
}
