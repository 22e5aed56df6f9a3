/* SPDX-License-Identifier: MIT
 *
 * Memory whose pages cost nothing until they are written to. malloc gives none: what it has used before it
 * clears, page for page.
 */
#include <string.h>
#include <sys/mman.h>

#include "os/os.h"

/* LeakSanitizer looks for pointers in malloc's memory and where it is told. */
extern void __lsan_register_root_region(const void *begin, size_t bytes) __attribute__((weak));

void *os_pages(uint64_t bytes) {
  uint64_t whole = os_page_round(bytes);
  void *pages = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return NULL;
  if (__lsan_register_root_region) __lsan_register_root_region(pages, whole);
  return pages;
}

void os_pages_clear(void *pages, uint64_t from, uint64_t bytes) {
  uint64_t first = os_page_round(from), end = os_page_round(bytes);
  char *base = pages;
  memset(base + from, 0, (first < end ? first : end) - from);
  if (first < end && madvise(base + first, end - first, MADV_DONTNEED) != 0)
    memset(base + first, 0, end - first);
}
