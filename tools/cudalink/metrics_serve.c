/* SPDX-License-Identifier: MIT
 *
 * A small HTTP server for metrics: one request at a time, on loopback or a UNIX socket only.
 */
#include "channel_view.h"
#include "metrics.h"
#include "report.h"
#include "stop.h"
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUEST_SIZE 4096
#define PATIENCE UINT64_C(2000000000) /* ns that a client may take */

/* ---- listening ------------------------------------------------------------------------------ */

static int fail(const char *place, int listener) {
  int code = report(EXIT_CODE_SYSTEM, "watch: can't listen at %s: %s", place, strerror(errno));
  if (listener >= 0) close(listener);
  return code;
}

static int listen_at_port(const char *text, int *listener) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t size = sizeof address;
  unsigned long port = strtoul(text, NULL, 10);
  int on = 1;
  if (strlen(text) > 5 || port > 65535)
    return report(EXIT_CODE_USAGE, "watch: --prometheus %.60s: a port is 0 to 65535", text);
  address.sin_port = htons((uint16_t)port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*listener < 0) return fail("a port", -1);
  setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(*listener, (struct sockaddr *)&address, sizeof address) || listen(*listener, 16) ||
      getsockname(*listener, (struct sockaddr *)&address, &size))
    return fail(text, *listener);
  printf("metrics at http://127.0.0.1:%u/metrics\n", ntohs(address.sin_port));
  return EXIT_CODE_OK;
}

/* A socket that nobody listens at any more is removed; anything else stays. */
static void remove_stale(const struct sockaddr_un *address) {
  struct stat status;
  if (lstat(address->sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return;
  if (connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 &&
      errno == ECONNREFUSED)
    unlink(address->sun_path);
  close(probe);
}

static int listen_at_path(const char *path, int *listener) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char escaped[TEXT_ESCAPED_SIZE(sizeof address.sun_path)];
  if (!*path || strlen(path) >= sizeof address.sun_path)
    return report(EXIT_CODE_USAGE, "watch: --prometheus: the path of a socket has 1 to %zu bytes",
                  sizeof address.sun_path - 1);
  memcpy(address.sun_path, path, strlen(path) + 1);
  *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*listener < 0) return fail(path, -1);
  remove_stale(&address);
  mode_t mask = umask(0177); /* so that it never exists with more rights */
  int result = bind(*listener, (struct sockaddr *)&address, sizeof address);
  int reason = errno;
  umask(mask);
  errno = reason;
  if (result || listen(*listener, 16)) return fail(path, *listener);
  printf("metrics at %s\n", text_escape(escaped, sizeof escaped, path));
  return EXIT_CODE_OK;
}

/* ---- answering ------------------------------------------------------------------------------ */

/* Waits for a client; 0: it took too long, or we shall end. */
static int is_ready(int client, short events, uint64_t deadline) {
  struct pollfd entries[] = {{.fd = client, .events = events},
                             {.fd = stop_descriptor(), .events = POLLIN}};
  uint64_t now = cudalink_now();
  if (now >= deadline || stop_requested()) return 0;
  return poll(entries, 2, (int)((deadline - now) / 1000000) + 1) > 0 && entries[0].revents;
}

/* The head of a request; its first line is all that counts. */
static int read_request(int client, char request[REQUEST_SIZE], uint64_t deadline) {
  size_t length = 0;
  request[0] = 0;
  while (length + 1 < REQUEST_SIZE && !strstr(request, "\r\n\r\n")) {
    if (!is_ready(client, POLLIN, deadline)) return 0;
    ssize_t count = read(client, request + length, REQUEST_SIZE - 1 - length);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return 0;
    length += (size_t)count;
    request[length] = 0;
  }
  return 1;
}

static void write_all(int client, const char *bytes, size_t size, uint64_t deadline) {
  while (size > 0 && is_ready(client, POLLOUT, deadline)) {
    ssize_t count = send(client, bytes, size, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    if (count <= 0) continue;
    bytes += count;
    size -= (size_t)count;
  }
}

static void print_body(FILE *stream, const struct channel_filter *filter) {
  cudalink_channel_info *channels;
  size_t count;
  if (cudalink_channels_list(NULL, CHANNEL_VIEW_PATIENCE, &channels, &count)) return;
  count = channel_filter_apply(filter, channels, count);
  metrics_print(channels, count, cudalink_now(), stream);
  cudalink_channels_free(channels);
}

static int is_for_metrics(const char *request) {
  return strncmp(request, "GET /metrics ", 13) == 0 || strncmp(request, "GET / ", 6) == 0;
}

static void answer(int client, const struct channel_filter *filter) {
  char request[REQUEST_SIZE], head[256];
  char *body = NULL;
  size_t size = 0;
  uint64_t deadline = cudalink_now() + PATIENCE;
  if (!read_request(client, request, deadline)) return;
  int is_found = is_for_metrics(request);
  FILE *stream = open_memstream(&body, &size);
  if (!stream) return;
  if (is_found)
    print_body(stream, filter);
  else
    fputs("GET /metrics is all there is\n", stream);
  fclose(stream);
  int length = snprintf(head, sizeof head,
                        "HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                        is_found ? "200 OK" : "404 Not Found", size);
  write_all(client, head, (size_t)length, deadline);
  if (body) write_all(client, body, size, deadline);
  free(body);
}

static void serve(int listener, const struct channel_filter *filter) {
  struct pollfd entries[] = {{.fd = listener, .events = POLLIN},
                             {.fd = stop_descriptor(), .events = POLLIN}};
  while (!stop_requested()) {
    if (poll(entries, 2, -1) <= 0 || !entries[0].revents) continue;
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) continue;
    answer(client, filter);
    close(client);
  }
}

int metrics_serve(const char *port_or_path, const struct channel_filter *filter) {
  int listener = -1;
  int is_port = *port_or_path && strspn(port_or_path, "0123456789") == strlen(port_or_path);
  int code =
      is_port ? listen_at_port(port_or_path, &listener) : listen_at_path(port_or_path, &listener);
  if (code) return code;
  fflush(stdout);
  serve(listener, filter);
  close(listener);
  if (!is_port) unlink(port_or_path);
  return EXIT_CODE_OK;
}
