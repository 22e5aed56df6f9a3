/* SPDX-License-Identifier: MIT
 *
 * One message at a time over a connection, with or without descriptors. Nothing here blocks, raises
 * a signal, or keeps a descriptor that was not asked for.
 */
#include "posix.h"

#include <errno.h>
#include <string.h>

#define HANDLES_SIZE (OS_MAX_HANDLES * sizeof(os_handle))

/* Aligned room for one SCM_RIGHTS message. */
union control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(HANDLES_SIZE)];
};

static int send_failed(int reason) {
  switch (reason) {
  case EAGAIN:
  case ENOBUFS:
  case ENOMEM:
  case ETOOMANYREFS: /* too many descriptors under way */
    return error_set_errno(CUDALINK_ERROR_BUSY, reason, "the peer's queue is full");
  case EPIPE:
  case ECONNRESET:
  case ENOTCONN: return error_set(CUDALINK_ERROR_LOST, "the peer has closed the connection");
  case EMSGSIZE:
    return error_set(CUDALINK_ERROR_TOO_LARGE, "the message does not fit into the socket's buffer");
  default: return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "can't send to the peer");
  }
}

int os_send(os_handle connection, const void *bytes, size_t size, const os_handle *handles,
            int handle_count) {
  struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  union control control;
  if (handle_count < 0 || handle_count > OS_MAX_HANDLES)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "a message carries up to %d descriptors",
                     OS_MAX_HANDLES);
  if (handle_count > 0) {
    size_t length = (size_t)handle_count * sizeof(os_handle);
    memset(&control, 0, sizeof control);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(length);
    memcpy(CMSG_DATA(&control.header), handles, length);
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(length);
  }
  ssize_t sent;
  do
    sent = sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent < 0 ? send_failed(errno) : CUDALINK_OK;
}

/* Takes the descriptors out of what was received. */
static int collect(struct msghdr *message, os_handle handles[OS_MAX_HANDLES]) {
  int count = 0;
  for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    size_t length = (item->cmsg_len - CMSG_LEN(0)) / sizeof(os_handle);
    for (size_t i = 0; i < length && count < OS_MAX_HANDLES; i++)
      memcpy(&handles[count++], CMSG_DATA(item) + i * sizeof(os_handle), sizeof(os_handle));
  }
  return count;
}

static int receive_failed(int reason) {
  if (reason == EAGAIN) return error_set(CUDALINK_ERROR_BUSY, "no message is there");
  if (reason == ECONNRESET || reason == EPIPE || reason == ENOTCONN)
    return error_set(CUDALINK_ERROR_LOST, "the peer has closed the connection");
  return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "can't receive from the peer");
}

int os_receive(os_handle connection, void *bytes, size_t capacity, size_t *size, os_handle *handles,
               int *handle_count) {
  struct iovec part = {.iov_base = bytes, .iov_len = capacity};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  union control control;
  os_handle received[OS_MAX_HANDLES];
  *size = 0;
  if (handle_count) *handle_count = 0;
  if (handles) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
  }
  /* A peer that closed with unread messages of ours shows as ECONNRESET once, before the messages that
   * it sent before: they still count. */
  int reset = 0;
  ssize_t length;
  do
    length = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (length < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
  if (length < 0) return receive_failed(errno);

  int count = handles ? collect(&message, received) : 0;
  bool whole = !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
  if (length > 0 && whole) {
    for (int i = 0; i < count; i++)
      handles[i] = received[i];
    if (handle_count) *handle_count = count;
    *size = (size_t)length;
    return CUDALINK_OK;
  }
  for (int i = 0; i < count; i++)
    os_handle_close(&received[i]);
  if (length == 0 && whole) /* end of file; an empty message means no more than that */
    return error_set(CUDALINK_ERROR_LOST, "the peer has closed the connection");
  if (message.msg_flags & MSG_TRUNC)
    return error_set(CUDALINK_ERROR_PROTOCOL, "the peer sent a message of more than %zu bytes",
                     capacity);
  /* The kernel drops what does not fit: into the message's room, or into the process's table. */
  if (handles && count < OS_MAX_HANDLES)
    return error_set(
        CUDALINK_ERROR_SYSTEM,
        "a descriptor from the peer did not fit into this process's table of open files; "
        "raise its limit (ulimit -n)");
  return error_set(CUDALINK_ERROR_PROTOCOL, "the peer sent more descriptors than %d",
                   handles ? OS_MAX_HANDLES : 0);
}

int os_pair(os_handle pair[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0)
    return CUDALINK_OK;
  pair[0] = pair[1] = OS_NO_HANDLE;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make a socket pair");
}

int os_send_byte(os_handle handle) {
  ssize_t sent;
  do
    sent = send(handle, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == 1 || errno == EAGAIN) return CUDALINK_OK; /* a full queue wakes as well */
  return send_failed(errno);
}

void os_drain(os_handle handle) {
  char dropped[4096];
  ssize_t length;
  do
    length = recv(handle, dropped, sizeof dropped, MSG_DONTWAIT);
  while (length == (ssize_t)sizeof dropped || (length < 0 && errno == EINTR));
}
