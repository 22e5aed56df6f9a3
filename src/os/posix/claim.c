/* SPDX-License-Identifier: MIT
 *
 * Owning a name: the lock says who is the owner, FILE.sock is where the owner listens. The socket
 * appears complete (bound and listening elsewhere, then renamed), so nobody ever meets half a one.
 */
#include "claim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 128
#define ENTRY_SIZE (OS_FILE_SIZE + 8)

static void socket_entry(const char *file, char entry[ENTRY_SIZE]) {
  snprintf(entry, ENTRY_SIZE, "%s.sock", file);
}

/* Where a socket is made before it gets its name; hidden, and ours alone while we hold the lock. */
static void temporary_entry(const char *file, char entry[ENTRY_SIZE]) {
  snprintf(entry, ENTRY_SIZE, ".%s.new", file);
}

/* A socket of ours that a dead owner left may be replaced; anything else is left alone. */
static int check_socket(os_handle folder, const char *directory, const char *entry, bool *stale) {
  struct stat status;
  *stale = false;
  if (fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return CUDALINK_OK;
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't look at %s/%s", directory, entry);
  }
  *stale = S_ISSOCK(status.st_mode) && status.st_uid == os_own_uid();
  if (*stale) return CUDALINK_OK;
  char description[OS_DESCRIPTION_SIZE];
  os_path_describe(folder, entry, description);
  return error_set(CUDALINK_ERROR_REFUSED,
                   "%s/%s is in the way and not ours (%s); remove it or use another folder",
                   directory, entry, description);
}

static int bind_and_listen(os_handle folder, const char *directory, const char *entry,
                           os_handle *listener) {
  struct sockaddr_un address;
  socklen_t length;
  int result = os_path_address(directory, folder, entry, &address, &length);
  if (result != CUDALINK_OK) return result;
  *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (*listener < 0) {
    *listener = OS_NO_HANDLE;
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make a socket");
  }
  unlinkat(folder, entry, 0); /* left by an owner that died between bind and rename */
  /* 0666: the folder and the handshake's check of the peer's user decide who gets in, so that an
   * allow-list of users can work. */
  if (bind(*listener, (struct sockaddr *)&address, length) == 0 &&
      fchmodat(folder, entry, 0666, 0) == 0 && listen(*listener, BACKLOG) == 0)
    return CUDALINK_OK;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't listen at %s/%s", directory, entry);
}

static int give_socket_its_name(os_handle folder, const char *temporary, const char *entry,
                                uint64_t *inode) {
  struct stat status;
  if (fstatat(folder, temporary, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      renameat(folder, temporary, folder, entry) == 0) {
    *inode = status.st_ino;
    return CUDALINK_OK;
  }
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't rename a socket to %s", entry);
}

/* With the lock held. */
static int open_socket(struct os_claim *claim, os_handle folder, bool *replaced) {
  char entry[ENTRY_SIZE], temporary[ENTRY_SIZE];
  socket_entry(claim->file, entry);
  temporary_entry(claim->file, temporary);
  int result = check_socket(folder, claim->directory, entry, replaced);
  if (result != CUDALINK_OK) return result;
  result = bind_and_listen(folder, claim->directory, temporary, &claim->listener);
  if (result == CUDALINK_OK)
    result = give_socket_its_name(folder, temporary, entry, &claim->socket_inode);
  if (result == CUDALINK_OK) return result;
  unlinkat(folder, temporary, 0);
  os_handle_close(&claim->listener);
  return result;
}

static int take(struct os_claim *claim, os_handle folder, bool *replaced) {
  int result = os_own_name_add(&claim->own, folder, claim->file);
  if (result != CUDALINK_OK) return result;
  result = os_name_lock_take(folder, claim->directory, claim->file, OS_NAME_LOCK_OWN, &claim->lock,
                             &claim->owner);
  if (result == CUDALINK_OK) {
    result = open_socket(claim, folder, replaced);
    if (result != CUDALINK_OK) os_name_lock_drop(folder, claim->file, &claim->lock);
  }
  if (result != CUDALINK_OK) os_own_name_remove(claim->own);
  return result;
}

static const struct os_claim no_claim = {.lock = OS_NO_HANDLE, .listener = OS_NO_HANDLE};

int os_claim_take(struct os_claim *claim, const char *directory, const char *file, bool *replaced) {
  bool stale = false;
  os_handle folder;
  *claim = no_claim;
  if (replaced) *replaced = false;
  if (strlen(directory) >= OS_PATH_SIZE || strlen(file) >= OS_FILE_SIZE)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "the path of '%.40s' is too long", file);
  memcpy(claim->directory, directory, strlen(directory) + 1);
  memcpy(claim->file, file, strlen(file) + 1);
  int result = os_path_open(directory, false, &folder);
  if (result == CUDALINK_OK) result = take(claim, folder, &stale);
  os_handle_close(&folder);
  if (result == CUDALINK_OK) {
    if (replaced) *replaced = stale;
    return result;
  }
  int32_t owner = result == CUDALINK_ERROR_NAME_IN_USE ? claim->owner : 0;
  *claim = no_claim;
  claim->owner = owner;
  return result;
}

void os_claim_drop(struct os_claim *claim) {
  if (claim->lock == OS_NO_HANDLE) return;
  char entry[ENTRY_SIZE];
  os_handle folder;
  socket_entry(claim->file, entry);
  if (os_path_open(claim->directory, false, &folder) == CUDALINK_OK) {
    struct stat status;
    if (fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status.st_mode) &&
        status.st_ino == claim->socket_inode)
      unlinkat(folder, entry, 0);
    os_name_lock_drop(folder, claim->file, &claim->lock);
    os_handle_close(&folder);
  }
  os_handle_close(&claim->lock); /* the folder is gone: so is the lock file */
  os_handle_close(&claim->listener);
  os_own_name_remove(claim->own);
  *claim = no_claim;
}

/* Removes an entry that belongs to us. */
static bool remove_own(os_handle folder, const char *entry, mode_t kind) {
  struct stat status;
  return fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         (status.st_mode & S_IFMT) == kind && status.st_uid == os_own_uid() &&
         unlinkat(folder, entry, 0) == 0;
}

static bool exists(os_handle folder, const char *entry) {
  struct stat status;
  return fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool clean(os_handle folder, const char *directory, const char *file) {
  char entry[ENTRY_SIZE], temporary[ENTRY_SIZE], lock_file[ENTRY_SIZE];
  os_handle lock;
  int32_t owner;
  socket_entry(file, entry);
  temporary_entry(file, temporary);
  snprintf(lock_file, sizeof lock_file, "%s.lock", file);
  bool lock_existed = exists(folder, lock_file);
  if (!lock_existed && !exists(folder, entry) && !exists(folder, temporary)) return false;
  if (os_name_lock_take(folder, directory, file, OS_NAME_LOCK_CLEAN, &lock, &owner) != CUDALINK_OK)
    return false;
  bool removed = remove_own(folder, entry, S_IFSOCK);
  removed |= remove_own(folder, temporary, S_IFSOCK);
  os_name_lock_drop(folder, file, &lock);
  return removed || lock_existed;
}

bool os_claim_clean(const char *directory, const char *file) {
  os_handle folder;
  bool removed = false;
  if (os_path_open(directory, false, &folder) != CUDALINK_OK) return false;
  if (os_own_name_enter(folder, file)) {
    removed = clean(folder, directory, file);
    os_own_name_leave();
  }
  os_handle_close(&folder);
  return removed;
}

static bool is_own_socket(os_handle folder, const char *entry) {
  struct stat status;
  return fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status.st_mode) &&
         status.st_uid == os_own_uid();
}

/* The same questions as in clean, with nothing done about the answers. */
static bool would_clean(os_handle folder, const char *file, bool *has_socket) {
  char entry[ENTRY_SIZE], temporary[ENTRY_SIZE], lock_file[ENTRY_SIZE];
  socket_entry(file, entry);
  temporary_entry(file, temporary);
  snprintf(lock_file, sizeof lock_file, "%s.lock", file);
  *has_socket = is_own_socket(folder, entry);
  return (*has_socket || is_own_socket(folder, temporary) || exists(folder, lock_file)) &&
         faccessat(folder, ".", W_OK, 0) == 0 && os_name_lock_is_free(folder, file);
}

bool os_claim_would_clean(const char *directory, const char *file, bool *has_socket) {
  os_handle folder;
  bool would = false;
  *has_socket = false;
  if (os_path_open(directory, false, &folder) != CUDALINK_OK) return false;
  if (os_own_name_enter(folder, file)) {
    would = would_clean(folder, file, has_socket);
    os_own_name_leave();
  }
  os_handle_close(&folder);
  return would;
}
