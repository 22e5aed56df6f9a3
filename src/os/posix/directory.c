/* SPDX-License-Identifier: MIT
 *
 * The folders where channels live. A producer uses the first that is safe: a real directory of its
 * own user that others can't write to. A folder that was named and is not usable is an error, never
 * silently another one.
 */
#include "posix.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct candidate {
  char path[OS_PATH_SIZE];
  bool named;      /* by option or CUDALINK_RUNTIME_DIR: this one or none */
  bool own_parent; /* the parent must be ours as well: sudo keeps XDG_RUNTIME_DIR of another user */
};

/* Adds PARENT + TAIL (absolute, no ending '/'). Returns false when there is none or it is unusable
 * as a path. */
static bool add(struct candidate *list, int *count, const char *parent, const char *tail) {
  if (!parent || parent[0] != '/') return false;
  size_t length = strlen(parent);
  while (length > 1 && parent[length - 1] == '/')
    length--;
  if (length == 1 && *tail) length = 0;
  struct candidate *next = &list[*count];
  if (length + strlen(tail) >= OS_PATH_SIZE) return false;
  memset(next, 0, sizeof *next);
  memcpy(next->path, parent, length);
  memcpy(next->path + length, tail, strlen(tail) + 1);
  (*count)++;
  return true;
}

static int add_named(struct candidate *list, int *count, const char *what, const char *path) {
  if (!path || path[0] == '\0') return CUDALINK_OK;
  if (!add(list, count, path, ""))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "%s '%.80s' must be an absolute path of less than %d bytes", what, path,
                     OS_PATH_SIZE);
  list[*count - 1].named = true;
  return CUDALINK_OK;
}

/* All candidates in order. secure_getenv: a set-uid program trusts no environment. */
static int candidates(const char *option, struct candidate list[OS_MAX_DIRECTORIES], int *count) {
  *count = 0;
  int result = add_named(list, count, "the folder", option);
  if (result == CUDALINK_OK)
    result = add_named(list, count, "CUDALINK_RUNTIME_DIR", secure_getenv("CUDALINK_RUNTIME_DIR"));
  if (result != CUDALINK_OK) return result;
  if (add(list, count, secure_getenv("XDG_RUNTIME_DIR"), "/cudalink"))
    list[*count - 1].own_parent = true;
  char text[OS_PATH_SIZE];
  snprintf(text, sizeof text, "/run/user/%u", os_own_uid());
  if (add(list, count, text, "/cudalink")) list[*count - 1].own_parent = true;
  snprintf(text, sizeof text, "/cudalink-%u", os_own_uid());
  if (!add(list, count, secure_getenv("TMPDIR"), text)) add(list, count, "/tmp", text);
  return CUDALINK_OK;
}

static bool parent_is_own(const char path[OS_PATH_SIZE]) {
  char parent[OS_PATH_SIZE];
  memcpy(parent, path, sizeof parent);
  *strrchr(parent, '/') = '\0';
  struct stat status;
  return stat(parent, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == os_own_uid();
}

/* A real directory (lstat: no symbolic link) of ours that others can't write to? */
static int check(const char *path) {
  struct stat status;
  if (lstat(path, &status) != 0)
    return error_set_errno(CUDALINK_ERROR_REFUSED, errno, "the folder %s is not usable", path);
  if (S_ISDIR(status.st_mode) && status.st_uid == os_own_uid() && (status.st_mode & 022) == 0)
    return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_REFUSED,
                   "the folder %s is not usable: %s of owner %u, mode %04o; expected a directory "
                   "of owner %u that others can't write to",
                   path,
                   S_ISDIR(status.st_mode)   ? "a directory"
                   : S_ISLNK(status.st_mode) ? "a symbolic link"
                                             : "a file",
                   status.st_uid, (unsigned)(status.st_mode & 07777), os_own_uid());
}

/* Makes it when it is missing, the last component only. */
static int prepare(const struct candidate *candidate) {
  if (candidate->own_parent && !parent_is_own(candidate->path))
    return error_set(CUDALINK_ERROR_REFUSED,
                     "the folder above %s is not ours; name one in CUDALINK_RUNTIME_DIR",
                     candidate->path);
  if (mkdir(candidate->path, 0700) != 0 && errno != EEXIST)
    return error_set_errno(CUDALINK_ERROR_REFUSED, errno, "can't make the folder %s",
                           candidate->path);
  return check(candidate->path);
}

int os_directory_own(const char *option, char path[OS_PATH_SIZE]) {
  struct candidate list[OS_MAX_DIRECTORIES];
  int count;
  path[0] = '\0';
  int result = candidates(option, list, &count);
  if (result != CUDALINK_OK) return result;
  for (int i = 0; i < count; i++) {
    result = prepare(&list[i]);
    if (result == CUDALINK_OK) memcpy(path, list[i].path, OS_PATH_SIZE);
    if (result == CUDALINK_OK || list[i].named) return result;
  }
  return result; /* the sentence is about the last one */
}

int os_directory_candidates(const char *option, char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE]) {
  struct candidate list[OS_MAX_DIRECTORIES];
  int count;
  if (candidates(option, list, &count) != CUDALINK_OK) return 0;
  for (int i = 0; i < count; i++)
    memcpy(paths[i], list[i].path, OS_PATH_SIZE);
  return count;
}

/* A named folder may be another user's (the handshake checks who is there); the others are ours or
 * not looked at. */
static bool worth_a_look(const struct candidate *candidate, struct stat *status) {
  if (stat(candidate->path, status) != 0 || !S_ISDIR(status->st_mode)) return false;
  return candidate->named || check(candidate->path) == CUDALINK_OK;
}

int os_directory_all(const char *option, char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE]) {
  struct candidate list[OS_MAX_DIRECTORIES];
  struct stat found[OS_MAX_DIRECTORIES];
  int count, kept = 0;
  if (candidates(option, list, &count) != CUDALINK_OK) return 0;
  for (int i = 0; i < count; i++) {
    if (!worth_a_look(&list[i], &found[kept])) continue;
    bool twice = false; /* XDG_RUNTIME_DIR is mostly /run/user/UID */
    for (int j = 0; j < kept; j++)
      twice |= found[j].st_dev == found[kept].st_dev && found[j].st_ino == found[kept].st_ino;
    if (!twice) memcpy(paths[kept++], list[i].path, OS_PATH_SIZE);
  }
  return kept;
}

/* NAME + suffix, visible, and of this kind: writes NAME. */
static bool named(int folder, const char *entry, const char *suffix, mode_t kind,
                  char file[OS_FILE_SIZE]) {
  size_t length = strlen(entry), suffix_length = strlen(suffix);
  if (entry[0] == '.' || length <= suffix_length || length - suffix_length >= OS_FILE_SIZE)
    return false;
  if (strcmp(entry + length - suffix_length, suffix) != 0) return false;
  struct stat status;
  if (fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
      (status.st_mode & S_IFMT) != kind)
    return false;
  snprintf(file, OS_FILE_SIZE, "%.*s", (int)(length - suffix_length), entry);
  return true;
}

static int list(const char *path, const char *suffix, mode_t kind, os_directory_visit *visit,
                void *context) {
  DIR *directory = opendir(path);
  if (!directory)
    return error_set_errno(errno == ENOENT ? CUDALINK_ERROR_NOT_FOUND : CUDALINK_ERROR_REFUSED,
                           errno, "can't read the folder %s", path);
  char file[OS_FILE_SIZE];
  for (struct dirent *entry; (entry = readdir(directory));)
    if (named(dirfd(directory), entry->d_name, suffix, kind, file) && !visit(context, file)) break;
  closedir(directory);
  return CUDALINK_OK;
}

int os_directory_list(const char *path, os_directory_visit *visit, void *context) {
  return list(path, ".sock", S_IFSOCK, visit, context);
}

int os_directory_list_locks(const char *path, os_directory_visit *visit, void *context) {
  return list(path, ".lock", S_IFREG, visit, context);
}
