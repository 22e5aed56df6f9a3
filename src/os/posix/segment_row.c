/* SPDX-License-Identifier: MIT
 *
 * Small segments side by side, so that a GPU driver can be told of all of them in one call.
 */
#include "posix.h"

#include <errno.h>
#include <sys/mman.h>

static void destroy(struct os_segment *segments, int count) {
  for (int i = 0; i < count; i++)
    os_segment_destroy(&segments[i]);
}

int os_segment_create_row(struct os_segment *segments, int count, const char *label,
                          uint64_t bytes) {
  char *row = mmap(NULL, (uint64_t)count * bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (row == MAP_FAILED)
    return error_set_errno(CUDALINK_ERROR_NO_MEMORY, errno, "no addresses for %d segments", count);
  for (int i = 0; i < count; i++) {
    int status = os_segment_create(&segments[i], label, bytes);
    if (status == CUDALINK_OK) {
      void *moved = mremap(segments[i].address, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                           row + (uint64_t)i * bytes);
      if (moved != MAP_FAILED) {
        segments[i].address = moved;
        continue;
      }
      status = error_set_errno(CUDALINK_ERROR_NO_MEMORY, errno, "can't place a segment");
      os_segment_destroy(&segments[i]);
    }
    destroy(segments, i);
    munmap(row + (uint64_t)i * bytes, (uint64_t)(count - i) * bytes);
    return status;
  }
  return CUDALINK_OK;
}
