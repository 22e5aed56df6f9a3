/* SPDX-License-Identifier: MIT
 *
 * Watching folders for channels that appear or vanish (inotify).
 */
#include "posix.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define IN_FOLDER                                                                                  \
  (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)
#define ABOVE_FOLDER (IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

/* MASK_ADD: two of the paths may lead to one folder. */
static int add(os_handle watch, const char *path, uint32_t mask) {
  return inotify_add_watch(watch, path, mask | IN_ONLYDIR | IN_MASK_ADD);
}

/* Cuts the last component off; false at the root. */
static bool cut(char *path) {
  char *last = strrchr(path, '/');
  if (!last || path[1] == '\0') return false;
  last[last == path ? 1 : 0] = '\0';
  return true;
}

/* Watches the folder, or the nearest one above it that exists. */
static int watch_nearest(os_handle watch, const char *path) {
  char above[OS_PATH_SIZE];
  int number = add(watch, path, IN_FOLDER);
  snprintf(above, sizeof above, "%s", path);
  while (number < 0 && (errno == ENOENT || errno == ENOTDIR) && cut(above))
    number = add(watch, above, ABOVE_FOLDER);
  return number;
}

/* Twice, since a nearer one may have been made just before the watch, which then says nothing. */
static bool watch_one(os_handle watch, const char *path) {
  int number = watch_nearest(watch, path);
  for (int before = -1; number >= 0 && number != before;) {
    before = number;
    number = watch_nearest(watch, path);
  }
  if (number >= 0) return true;
  return errno == EACCES || errno == ENOENT || errno == ENOTDIR; /* nothing to see there for us */
}

int os_watch_open(const char paths[][OS_PATH_SIZE], int count, os_handle *handle) {
  *handle = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (*handle < 0) {
    *handle = OS_NO_HANDLE;
    return error_set_errno(
        CUDALINK_ERROR_SYSTEM, errno,
        "can't watch folders (is fs.inotify.max_user_instances reached? raise it)");
  }
  for (int i = 0; i < count; i++) {
    if (watch_one(*handle, paths[i])) continue;
    int reason = errno;
    os_handle_close(handle);
    return error_set_errno(
        CUDALINK_ERROR_SYSTEM, reason,
        "can't watch the folder %s (is fs.inotify.max_user_watches reached? raise it)", paths[i]);
  }
  return CUDALINK_OK;
}

static bool is_channel(const char *name) {
  static const char suffix[] = ".sock";
  size_t length = strlen(name), end = sizeof suffix - 1;
  return length > end && strcmp(name + length - end, suffix) == 0;
}

/* Was it in that folder? A watch that is added again keeps its number. True when in doubt. */
static bool was_in(os_handle watch, const struct inotify_event *event, const char *folder,
                   uint32_t mask) {
  int number = add(watch, folder, mask);
  return number < 0 ? errno != ENOENT && errno != ENOTDIR : number == event->wd;
}

/* A channel in the folder, or the next component of its path in a folder above. */
static bool concerns(os_handle watch, const struct inotify_event *event, const char *path) {
  char above[OS_PATH_SIZE];
  if (event->len == 0) return true; /* the folder itself, or events were lost */
  if (is_channel(event->name) && was_in(watch, event, path, IN_FOLDER)) return true;
  snprintf(above, sizeof above, "%s", path);
  while (cut(above)) {
    const char *next = &path[strlen(above)]; /* "/name/..." or, below the root, "name/..." */
    next += strspn(next, "/");
    size_t length = strcspn(next, "/");
    if (strlen(event->name) == length && memcmp(event->name, next, length) == 0 &&
        was_in(watch, event, above, ABOVE_FOLDER))
      return true;
  }
  return false;
}

static bool drain_relevant(os_handle handle, const char paths[][OS_PATH_SIZE], int count) {
  char bytes[4096] __attribute__((aligned(8)));
  bool relevant = false;
  for (;;) {
    ssize_t length = read(handle, bytes, sizeof bytes);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return relevant;
    for (ssize_t at = 0; at < length && !relevant;) {
      const struct inotify_event *event = (const void *)&bytes[at];
      for (int i = 0; i < count && !relevant; i++)
        relevant = concerns(handle, event, paths[i]);
      at += (ssize_t)(sizeof *event + event->len);
    }
  }
}

bool os_watch_relevant(os_handle handle, const char paths[][OS_PATH_SIZE], int count) {
  if (!drain_relevant(handle, paths, count)) return false;
  for (int i = 0; i < count; i++)
    watch_one(handle, paths[i]); /* what is nearer now */
  return true;
}

void os_watch_drain(os_handle handle) {
  char dropped[4096];
  ssize_t length;
  do
    length = read(handle, dropped, sizeof dropped);
  while (length > 0 || (length < 0 && errno == EINTR));
}

bool os_watch_renew(os_handle handle, const char paths[][OS_PATH_SIZE], int count) {
  bool watched = true;
  os_watch_drain(handle);
  for (int i = 0; i < count; i++)
    watched &= watch_one(handle, paths[i]);
  return watched;
}

void os_watch_forget(os_handle handle, const char paths[][OS_PATH_SIZE], int count) {
  for (int i = 0; i < count; i++) {
    char folder[OS_PATH_SIZE];
    snprintf(folder, sizeof folder, "%s", paths[i]);
    do { /* a watch that is added again says its number */
      int number = add(handle, folder, ABOVE_FOLDER);
      if (number >= 0) inotify_rm_watch(handle, number);
    } while (cut(folder));
  }
  os_watch_drain(handle);
}
