/* SPDX-License-Identifier: MIT
 *
 * Folders as starting points, addresses of UNIX sockets in long folders, and a description of a
 * file that is in the way.
 */
#include "posix.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int os_path_open(const char *directory, bool follow, os_handle *handle) {
  *handle = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
  if (*handle >= 0) return CUDALINK_OK;
  int reason = errno;
  *handle = OS_NO_HANDLE;
  int code = reason == ENOENT                       ? CUDALINK_ERROR_NOT_FOUND
             : reason == EMFILE || reason == ENFILE ? CUDALINK_ERROR_SYSTEM
                                                    : CUDALINK_ERROR_REFUSED;
  return error_set_errno(code, reason, "can't open the folder %s", directory);
}

int os_path_address(const char *directory, os_handle folder, const char *entry,
                    struct sockaddr_un *address, socklen_t *length) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  int size = (int)sizeof address->sun_path;
  int written = snprintf(address->sun_path, sizeof address->sun_path, "%s/%s", directory, entry);
  if (written >= size) /* thread-self, because the service thread's descriptors are its own */
    written = snprintf(address->sun_path, sizeof address->sun_path, "/proc/thread-self/fd/%d/%s",
                       folder, entry);
  if (written >= size)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "the file name %s is too long for a socket",
                     entry);
  *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)written + 1);
  return CUDALINK_OK;
}

static const char *kind_of(mode_t mode) {
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a special file";
}

void os_path_describe(os_handle folder, const char *entry, char text[OS_DESCRIPTION_SIZE]) {
  struct stat status;
  if (fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) != 0)
    snprintf(text, OS_DESCRIPTION_SIZE, "owner and mode not readable");
  else
    snprintf(text, OS_DESCRIPTION_SIZE, "owner %u, mode %04o, %s", status.st_uid,
             (unsigned)(status.st_mode & 07777), kind_of(status.st_mode));
}
