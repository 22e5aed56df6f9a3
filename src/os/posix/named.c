/* SPDX-License-Identifier: MIT
 *
 * Memory with a name (shm_open), which the old wire has. Ours is created exclusively, allocated, and
 * owned by a lock; foreign memory is opened only when it is a plain file of this user's.
 */
#include "posix.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int give_up(struct os_named *named, int status) {
  os_handle_close(&named->segment.handle);
  *named = (struct os_named){.segment.handle = OS_NO_HANDLE};
  return status;
}

static int identify(struct os_named *named, const char *name) {
  struct stat status;
  if (fstat(named->segment.handle, &status) != 0)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't look at segment '%s'", name);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
    return error_set(CUDALINK_ERROR_REFUSED,
                     "segment '%s' is owner %u's, mode %06o; it must be memory of user %u", name,
                     (unsigned)status.st_uid, (unsigned)status.st_mode, (unsigned)geteuid());
  named->device = status.st_dev;
  named->inode = status.st_ino;
  named->segment.bytes = (uint64_t)status.st_size;
  return CUDALINK_OK;
}

static int map(struct os_named *named, const char *name, bool writable) {
  void *address = mmap(NULL, named->segment.bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                       MAP_SHARED, named->segment.handle, 0);
  if (address == MAP_FAILED)
    return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't map segment '%s'", name);
  named->segment.address = address;
  madvise(address, named->segment.bytes, MADV_DONTFORK); /* a child would go on owning its lock */
  return CUDALINK_OK;
}

static int set_size(const struct os_named *named, const char *name, uint64_t bytes) {
  int error = ftruncate(named->segment.handle, (off_t)bytes) ? errno : 0;
  /* Allocated now, so that no later touch can fail for lack of memory. */
  if (!error) error = posix_fallocate(named->segment.handle, 0, (off_t)bytes);
  if (!error) return CUDALINK_OK;
  return error_set_errno(
      CUDALINK_ERROR_NO_SPACE, error,
      "segment '%s' needs %" PRIu64 " bytes of shared memory (is /dev/shm full?)", name, bytes);
}

int os_named_create(struct os_named *named, const char *name, uint64_t bytes) {
  *named = (struct os_named){.segment.handle = OS_NO_HANDLE};
  named->segment.handle = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (named->segment.handle < 0)
    return error_set_errno(errno == EEXIST ? CUDALINK_ERROR_NAME_IN_USE : CUDALINK_ERROR_SYSTEM,
                           errno, "can't make segment '%s'", name);
  int status = set_size(named, name, bytes);
  if (status == CUDALINK_OK) status = identify(named, name);
  if (status == CUDALINK_OK) status = map(named, name, true);
  if (status == CUDALINK_OK) return CUDALINK_OK;
  shm_unlink(name);
  return give_up(named, status);
}

/* O_NONBLOCK: whatever is in the way under that name must not make this thread wait. */
static int open_name(const char *name, int flags) {
  return shm_open(name, flags | O_CLOEXEC | O_NONBLOCK, 0);
}

int os_named_open(struct os_named *named, const char *name, bool writable) {
  *named = (struct os_named){.segment.handle = OS_NO_HANDLE};
  named->segment.handle = open_name(name, writable ? O_RDWR : O_RDONLY);
  if (named->segment.handle < 0) {
    int code = errno == ENOENT ? CUDALINK_ERROR_NOT_FOUND : CUDALINK_ERROR_REFUSED;
    return error_set_errno(code, errno, "can't open segment '%s'", name);
  }
  int status = identify(named, name);
  if (status == CUDALINK_OK && named->segment.bytes == 0)
    status = error_set(CUDALINK_ERROR_BUSY, "segment '%s' is still empty", name);
  if (status == CUDALINK_OK) status = map(named, name, writable);
  return status == CUDALINK_OK ? status : give_up(named, status);
}

bool os_named_is_current(const struct os_named *named, const char *name) {
  int handle = open_name(name, O_RDONLY);
  struct stat status;
  bool same = handle >= 0 && fstat(handle, &status) == 0 && status.st_dev == named->device &&
              status.st_ino == named->inode;
  if (handle >= 0) close(handle);
  return same;
}

bool os_named_exists(const char *name) {
  int handle = open_name(name, O_RDONLY);
  if (handle < 0) return errno != ENOENT;
  close(handle);
  return true;
}

void os_named_unlink(const struct os_named *named, const char *name) {
  if (os_named_is_current(named, name)) shm_unlink(name);
}

/* The number of the watch; one that is added again says it, too. */
static int add_watch(os_handle handle) {
  return inotify_add_watch(handle, "/dev/shm", IN_CREATE | IN_MOVED_TO);
}

void os_named_unwatch(os_handle handle) {
  inotify_rm_watch(handle, add_watch(handle));
  os_watch_drain(handle);
}

bool os_named_rewatch(os_handle handle) { return add_watch(handle) >= 0; }

int os_named_watch(os_handle *handle) {
  *handle = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (*handle >= 0 && add_watch(*handle) >= 0) return CUDALINK_OK;
  int reason = errno;
  os_handle_close(handle);
  return error_set_errno(CUDALINK_ERROR_SYSTEM, reason, "can't watch /dev/shm");
}

int os_named_lock(const struct os_named *named, const char *name) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(named->segment.handle, F_OFD_SETLK, &lock) == 0) return CUDALINK_OK;
  if (errno == EAGAIN || errno == EACCES)
    return error_set(CUDALINK_ERROR_NAME_IN_USE,
                     "another exporter writes segment '%s'; end it, or take another cipd_name",
                     name);
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't lock segment '%s'", name);
}
