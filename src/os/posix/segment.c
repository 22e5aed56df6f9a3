/* SPDX-License-Identifier: MIT
 *
 * Memory that several processes map: memfds. Ours are fully allocated before anyone uses them, so
 * that no later touch can fail; foreign ones are checked before a byte of them is read.
 */
#include "posix.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ALLOCATION_STEP (64U << 20)
#define SMALLEST_STEP (1U << 20)
#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static uint64_t page_size(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

uint64_t os_page_round(uint64_t bytes) {
  uint64_t page = page_size(), sum;
  if (__builtin_add_overflow(bytes, page - 1, &sum)) return UINT64_MAX;
  return sum & ~(page - 1);
}

static int make_memfd(const char *label, os_handle *handle) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  *handle = OS_NO_HANDLE;
  if (!os_without(OS_FEATURE_NOEXEC_SEAL)) *handle = memfd_create(label, flags | MFD_NOEXEC_SEAL);
  if (*handle < 0) *handle = memfd_create(label, flags); /* before 6.3 */
  if (*handle >= 0) return CUDALINK_OK;
  *handle = OS_NO_HANDLE;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't make shared memory '%s'", label);
}

/* A signal makes fallocate give up and undo its step. Smaller steps then, or a fast timer of the
 * program could keep us here for ever. */
static int allocate(os_handle handle, uint64_t bytes) {
  uint64_t step = ALLOCATION_STEP;
  for (uint64_t done = 0; done < bytes;) {
    uint64_t length = bytes - done < step ? bytes - done : step;
    if (fallocate(handle, 0, (off_t)done, (off_t)length) == 0) {
      done += length;
    } else if (errno == EINTR) {
      if (step > SMALLEST_STEP) step /= 2;
    } else {
      return error_set_errno(CUDALINK_ERROR_NO_SPACE, errno,
                             "%" PRIu64 " bytes of shared memory are needed, the kernel gave "
                             "%" PRIu64 " (smaller or fewer slots need less)",
                             bytes, done);
    }
  }
  return CUDALINK_OK;
}

static int fault_in(void *address, uint64_t bytes) {
  while (!os_without(OS_FEATURE_POPULATE)) {
    if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0) return CUDALINK_OK;
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) break; /* before 5.14: touch each page instead */
    return error_set_errno(CUDALINK_ERROR_NO_SPACE, errno,
                           "%" PRIu64 " bytes of shared memory can't be faulted in", bytes);
  }
  volatile char *first = address;
  uint64_t page = page_size();
  for (uint64_t offset = 0; offset < bytes; offset += page)
    first[offset] = 0;
  return CUDALINK_OK;
}

static int map(struct os_segment *segment, int protection, int flags) {
  void *address = mmap(NULL, segment->bytes, protection, flags, segment->handle, 0);
  if (address == MAP_FAILED)
    return error_set_errno(errno == EPERM || errno == EACCES ? CUDALINK_ERROR_REFUSED
                                                             : CUDALINK_ERROR_NO_SPACE,
                           errno, "can't map %" PRIu64 " bytes of shared memory %s", segment->bytes,
                           protection & PROT_WRITE ? "for writing" : "read-only");
  segment->address = address;
  madvise(address, segment->bytes, MADV_DONTDUMP); /* only makes core dumps smaller */
  return CUDALINK_OK;
}

static int create(struct os_segment *segment, const char *label) {
  int result = os_memory_limit_check(segment->bytes);
  if (result == CUDALINK_OK) result = make_memfd(label, &segment->handle);
  if (result == CUDALINK_OK) result = allocate(segment->handle, segment->bytes);
  if (result == CUDALINK_OK) result = map(segment, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (result == CUDALINK_OK) result = fault_in(segment->address, segment->bytes);
  if (result != CUDALINK_OK) return result;
  if (fcntl(segment->handle, F_ADD_SEALS, SIZE_SEALS) == 0) return CUDALINK_OK;
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't seal shared memory '%s'", label);
}

/* Forgets what a failed create or map left behind. */
static int give_up(struct os_segment *segment, int result) {
  if (segment->address) munmap(segment->address, segment->bytes);
  os_handle_close(&segment->handle);
  *segment = (struct os_segment){.handle = OS_NO_HANDLE};
  return result;
}

int os_segment_create(struct os_segment *segment, const char *label, uint64_t bytes) {
  *segment = (struct os_segment){.handle = OS_NO_HANDLE, .bytes = os_page_round(bytes)};
  if (bytes == 0 || segment->bytes > INT64_MAX)
    return give_up(segment, error_set(CUDALINK_ERROR_TOO_LARGE,
                                      "%" PRIu64 " bytes of shared memory is not a size", bytes));
  int result = create(segment, label);
  return result == CUDALINK_OK ? result : give_up(segment, result);
}

int os_segment_seal_writers(const struct os_segment *segment) {
  int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (!os_without(OS_FEATURE_FUTURE_WRITE) && fcntl(segment->handle, F_ADD_SEALS, seals) == 0)
    return CUDALINK_OK;
  if (os_without(OS_FEATURE_FUTURE_WRITE) || errno == EINVAL)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "this kernel can't seal shared memory against writers (Linux 5.1 can)");
  return error_set_errno(CUDALINK_ERROR_SYSTEM, errno, "can't seal shared memory against writers");
}

static int check_file(os_handle handle, uint64_t bytes) {
  struct stat status;
  struct statfs system;
  if (fstat(handle, &status) != 0 || fstatfs(handle, &system) != 0)
    return error_set_errno(CUDALINK_ERROR_PROTOCOL, errno,
                           "the peer sent a descriptor that can't be asked about");
  if (!S_ISREG(status.st_mode) || (uint64_t)system.f_type != TMPFS_MAGIC)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "the peer sent no shared memory: expected a file of tmpfs (0x%x), found mode "
                     "%06o on file system 0x%" PRIx64,
                     TMPFS_MAGIC, (unsigned)status.st_mode, (uint64_t)system.f_type);
  if ((uint64_t)status.st_size != bytes)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "the peer sent shared memory of the wrong size: expected %" PRIu64
                     " bytes, found %" PRId64,
                     bytes, (int64_t)status.st_size);
  uint64_t allocated = (uint64_t)status.st_blocks * 512;
  if (allocated < bytes) /* a hole would be filled at our cost */
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "the peer sent shared memory with holes: expected %" PRIu64
                     " bytes, allocated are %" PRIu64,
                     bytes, allocated);
  return CUDALINK_OK;
}

static int check_seals(os_handle handle, bool sealed) {
  int seals = fcntl(handle, F_GET_SEALS);
  if (seals < 0)
    return error_set_errno(CUDALINK_ERROR_PROTOCOL, errno,
                           "the peer sent shared memory without seals");
  if ((seals & SIZE_SEALS) != SIZE_SEALS)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "the peer sent shared memory that can change its size: expected seals 0x%x "
                     "(shrink, grow), found 0x%x",
                     SIZE_SEALS, (unsigned)seals);
  if (sealed && !(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "the peer sent shared memory that others could write to: expected seal 0x%x "
                     "(future write), found 0x%x",
                     F_SEAL_FUTURE_WRITE, (unsigned)seals);
  return CUDALINK_OK;
}

int os_segment_map(struct os_segment *segment, os_handle handle, uint64_t bytes, bool writable,
                   bool sealed) {
  *segment = (struct os_segment){.handle = handle, .bytes = bytes};
  int result = CUDALINK_OK;
  if (bytes == 0 || bytes > INT64_MAX || bytes % page_size() != 0)
    result = error_set(CUDALINK_ERROR_PROTOCOL,
                       "the peer names %" PRIu64 " bytes of shared memory, not whole pages", bytes);
  if (result == CUDALINK_OK) result = check_file(handle, bytes);
  if (result == CUDALINK_OK) result = check_seals(handle, sealed);
  /* MAP_POPULATE: the pages exist, so no frame pays for a page fault later. */
  if (result == CUDALINK_OK)
    result = map(segment, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_POPULATE);
  return result == CUDALINK_OK ? result : give_up(segment, result);
}

void os_segment_destroy(struct os_segment *segment) {
  if (segment->address) give_up(segment, CUDALINK_OK);
}
