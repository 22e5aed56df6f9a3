/* SPDX-License-Identifier: MIT
 *
 * Closing a descriptor exactly once.
 */
#include "posix.h"

#include <errno.h>
#include <unistd.h>

void os_handle_close(os_handle *handle) {
  if (*handle < 0) return;
  int saved = errno;
  close(*handle); /* Linux has closed it even when it answers EINTR */
  errno = saved;
  *handle = OS_NO_HANDLE;
}
