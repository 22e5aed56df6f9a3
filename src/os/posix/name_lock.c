/* SPDX-License-Identifier: MIT
 *
 * The lock that makes a process the owner of a name: fcntl(F_SETLK) on FILE.lock. It belongs to the
 * calling thread's descriptor table, is not inherited by a fork, and the kernel drops it at once
 * when the process dies.
 */
#include "claim.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TRIES 1000 /* each one more means that somebody else made progress */

static void lock_entry(const char *file, char entry[OS_FILE_SIZE + 8]) {
  snprintf(entry, OS_FILE_SIZE + 8, "%s.lock", file);
}

static int refuse(os_handle folder, const char *directory, const char *entry, int reason) {
  char description[OS_DESCRIPTION_SIZE];
  os_path_describe(folder, entry, description);
  if (reason == EMFILE || reason == ENFILE || reason == ENOSPC || reason == EROFS)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "can't make %s/%s", directory, entry);
  return error_set_errno(CUDALINK_ERROR_REFUSED, reason, "can't use %s/%s (%s)", directory, entry,
                         description);
}

static int open_lock(os_handle folder, const char *directory, const char *entry, os_handle *lock) {
  /* O_NONBLOCK: a FIFO in the way must not hold us up. */
  *lock = openat(folder, entry, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (*lock < 0) {
    *lock = OS_NO_HANDLE;
    return refuse(folder, directory, entry, errno);
  }
  struct stat status;
  if (fstat(*lock, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == os_own_uid())
    return CUDALINK_OK;
  os_handle_close(lock);
  return refuse(folder, directory, entry, EACCES);
}

enum attempt { LOCKED, OWNED, AGAIN };

static enum attempt try_lock(os_handle lock, enum os_name_lock_purpose purpose, int32_t *owner) {
  struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = purpose};
  if (fcntl(lock, F_SETLK, &range) == 0) return LOCKED;
  range = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = purpose};
  if (fcntl(lock, F_GETLK, &range) != 0 || range.l_type == F_UNLCK) return AGAIN;
  *owner = range.l_pid > 0 ? range.l_pid : 0; /* 0 and -1: in another pid namespace */
  return range.l_len == OS_NAME_LOCK_CLEAN ? AGAIN : OWNED;
}

/* Files have another name than channels: who asked for this one puts the channel's before it. */
static int in_use(int32_t owner) {
  char program[32];
  os_program_of(owner, program);
  if (owner == 0)
    return error_set(CUDALINK_ERROR_NAME_IN_USE,
                     "the name is owned by a process that is not visible here; take another name");
  return error_set(CUDALINK_ERROR_NAME_IN_USE,
                   "the name is owned by process %d%s%s%s; end it, or take another name", owner,
                   program[0] ? " (" : "", program, program[0] ? ")" : "");
}

int os_name_lock_take(os_handle folder, const char *directory, const char *file,
                      enum os_name_lock_purpose purpose, os_handle *lock, int32_t *owner) {
  char entry[OS_FILE_SIZE + 8];
  *owner = 0;
  lock_entry(file, entry);
  for (int tries = 0; tries < MAX_TRIES; tries++) {
    int result = open_lock(folder, directory, entry, lock);
    if (result != CUDALINK_OK) return result;
    enum attempt attempt = try_lock(*lock, purpose, owner);
    if (attempt == LOCKED && os_name_lock_holds(folder, file, *lock)) return CUDALINK_OK;
    os_handle_close(lock);
    if (attempt == OWNED) return in_use(*owner);
    sched_yield(); /* a cleaner is at work, or the file was removed before we locked it */
  }
  return error_set(CUDALINK_ERROR_BUSY, "the name is being tidied up (by process %d); try again",
                   *owner);
}

bool os_name_lock_holds(os_handle folder, const char *file, os_handle lock) {
  char entry[OS_FILE_SIZE + 8];
  struct stat held, named;
  lock_entry(file, entry);
  return fstat(lock, &held) == 0 && fstatat(folder, entry, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void os_name_lock_drop(os_handle folder, const char *file, os_handle *lock) {
  char entry[OS_FILE_SIZE + 8];
  lock_entry(file, entry);
  if (os_name_lock_holds(folder, file, *lock)) unlinkat(folder, entry, 0);
  os_handle_close(lock);
}

bool os_name_lock_is_free(os_handle folder, const char *file) {
  char entry[OS_FILE_SIZE + 8];
  struct stat status;
  struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = OS_NAME_LOCK_CLEAN};
  lock_entry(file, entry);
  os_handle lock = openat(folder, entry, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (lock < 0) return errno == ENOENT;
  bool is_free = fstat(lock, &status) == 0 && S_ISREG(status.st_mode) &&
                 status.st_uid == os_own_uid() && fcntl(lock, F_GETLK, &range) == 0 &&
                 range.l_type == F_UNLCK;
  os_handle_close(&lock);
  return is_free;
}
