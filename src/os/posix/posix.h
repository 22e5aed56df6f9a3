/* SPDX-License-Identifier: MIT
 *
 * What the files of this folder share: constants that older system headers lack, the test hook that
 * switches newer kernel features off, and helpers for folders and socket addresses.
 */
#ifndef CUDALINK_SRC_OS_POSIX_H
#define CUDALINK_SRC_OS_POSIX_H

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "os/os.h"

/* System call numbers are the same on every architecture from 424 on. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
/* P_PIDFD, an enumerator (so no #ifndef finds it) that glibc before 2.36 lacks. */
#define WAIT_FOR_PIDFD ((idtype_t)3)
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- without.c: kernel features that a test switches off ---------------------------------- */
/* CUDALINK_OS_WITHOUT="close_range,pidfd" makes this library behave as on a kernel without them,
 * so that every fall-back is tested on any kernel. Read once, when the service thread starts. */
enum os_feature {
  OS_FEATURE_CLOSE_RANGE,  /* close_range: 5.9 */
  OS_FEATURE_UNSHARE,      /* unshare(CLONE_FILES): some containers forbid it */
  OS_FEATURE_PIDFD,        /* pidfd_open: 5.3 */
  OS_FEATURE_PEERPIDFD,    /* SO_PEERPIDFD: 6.5 */
  OS_FEATURE_NOEXEC_SEAL,  /* MFD_NOEXEC_SEAL: 6.3 */
  OS_FEATURE_FUTURE_WRITE, /* F_SEAL_FUTURE_WRITE: 5.1 */
  OS_FEATURE_POPULATE,     /* MADV_POPULATE_WRITE: 5.14 */
  OS_FEATURE_AIO,          /* io_setup: some sandboxes forbid it */
  OS_FEATURE_COUNT
};
void os_without_read(void);
bool os_without(enum os_feature feature);

/* ---- path.c: folders, socket addresses, what is in the way -------------------------------- */
/* Opens a folder as a place to start from (O_PATH). A symbolic link is refused unless `follow`.
 * NOT_FOUND, REFUSED or SYSTEM; *handle is OS_NO_HANDLE then. */
int os_path_open(const char *directory, bool follow, os_handle *handle);
/* The address of DIRECTORY/ENTRY. Where that is too long for a socket it goes through `folder`, a
 * descriptor of the directory in the calling thread's table, which has to stay open. */
int os_path_address(const char *directory, os_handle folder, const char *entry,
                    struct sockaddr_un *address, socklen_t *length);
/* "owner 1000, mode 0644, a regular file" of ENTRY in `folder`, for sentences. */
#define OS_DESCRIPTION_SIZE 80
void os_path_describe(os_handle folder, const char *entry, char text[OS_DESCRIPTION_SIZE]);

/* ---- memory_limit.c: how much memory there is to take ------------------------------------- */
/* NO_SPACE when `bytes` more of shared memory would meet RLIMIT_FSIZE, a memory limit of the
 * process's cgroup or of one above it, or the end of the machine's memory. */
int os_memory_limit_check(uint64_t bytes);

#endif
