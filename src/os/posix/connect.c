/* SPDX-License-Identifier: MIT
 *
 * Reaching the owner of a name, and accepting who reaches us.
 */
#include "posix.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static int connect_failed(int reason, os_handle folder, const char *directory, const char *entry) {
  char description[OS_DESCRIPTION_SIZE];
  switch (reason) {
  case ENOENT:
  case ECONNREFUSED:
    return error_set(CUDALINK_ERROR_NOT_FOUND, "nobody listens at %s/%s", directory, entry);
  case EAGAIN:
    return error_set(CUDALINK_ERROR_BUSY, "the queue of %s/%s is full", directory, entry);
  case EACCES:
  case EPERM:
    os_path_describe(folder, entry, description);
    return error_set_errno(CUDALINK_ERROR_REFUSED, reason, "can't connect to %s/%s (%s)", directory,
                           entry, description);
  case EPROTOTYPE:
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "%s/%s is a socket of another program; remove it, or use another folder",
                     directory, entry);
  default:
    return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "can't connect to %s/%s", directory,
                           entry);
  }
}

static int connect_in(os_handle folder, const char *directory, const char *entry,
                      os_handle *handle) {
  struct sockaddr_un address;
  socklen_t length;
  int result = os_path_address(directory, folder, entry, &address, &length);
  if (result != CUDALINK_OK) return result;
  os_handle made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made < 0) return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make a socket");
  int status;
  do
    status = connect(made, (struct sockaddr *)&address, length);
  while (status != 0 && errno == EINTR);
  if (status != 0) {
    int reason = errno;
    os_handle_close(&made);
    return connect_failed(reason, folder, directory, entry);
  }
  *handle = made;
  return CUDALINK_OK;
}

int os_connect(const char *directory, const char *file, os_handle *handle) {
  char entry[OS_FILE_SIZE + 8];
  os_handle folder;
  *handle = OS_NO_HANDLE;
  snprintf(entry, sizeof entry, "%s.sock", file);
  int result = os_path_open(directory, true, &folder);
  if (result != CUDALINK_OK) return result;
  result = connect_in(folder, directory, entry, handle);
  os_handle_close(&folder);
  return result;
}

int os_accept(os_handle listener, os_handle *handle) {
  do
    *handle = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  while (*handle < 0 && errno == EINTR);
  if (*handle >= 0) return CUDALINK_OK;
  *handle = OS_NO_HANDLE;
  if (errno == EAGAIN || errno == ECONNABORTED)
    return error_set(CUDALINK_ERROR_BUSY, "no connection is waiting");
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't accept a connection");
}
