/* SPDX-License-Identifier: MIT
 *
 * Knowing that this process is a forked copy: one word in a page that the kernel clears in the
 * child (MADV_WIPEONFORK), so that nothing has to run at the fork.
 */
#include "posix.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* NULL until os_fork_guard_set; afterwards 1 in the process that set it, 0 in its children. */
static _Atomic(_Atomic uint32_t *) guard;

int os_fork_guard_set(void) {
  if (os_forked())
    return error_set(
        CUDALINK_ERROR_FORKED,
        "this process was forked after cudalink was used; use it in a process of its own, or exec");
  if (atomic_load_explicit(&guard, memory_order_acquire)) return CUDALINK_OK;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *address = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return error_set_errno(CUDALINK_ERROR_NO_MEMORY, errno, "no page for the fork guard");
  if (madvise(address, page, MADV_WIPEONFORK) != 0) {
    int reason = errno;
    munmap(address, page);
    return error_set_errno(CUDALINK_ERROR_SYSTEM, reason,
                           "the kernel does not clear a page at fork (MADV_WIPEONFORK)");
  }
  _Atomic uint32_t *word = address;
  atomic_store_explicit(word, 1, memory_order_relaxed);
  _Atomic uint32_t *none = NULL;
  /* release: pairs with the acquire loads of guard, which then see the 1. */
  if (!atomic_compare_exchange_strong_explicit(&guard, &none, word, memory_order_release,
                                               memory_order_relaxed))
    munmap(address, page); /* another thread was first */
  return CUDALINK_OK;
}

bool os_forked(void) {
  _Atomic uint32_t *word = atomic_load_explicit(&guard, memory_order_acquire);
  return word && atomic_load_explicit(word, memory_order_relaxed) == 0;
}
