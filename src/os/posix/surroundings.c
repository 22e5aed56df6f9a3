/* SPDX-License-Identifier: MIT
 *
 * What the system allows, and what is known to get in the way: namespaces, limits, WSL. Looks, and
 * makes no more than a page of shared memory and the folder of channels.
 */
#include "posix.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MEBIBYTE (UINT64_C(1) << 20)
#define GIBIBYTE (UINT64_C(1) << 30)

struct teller {
  os_tell *tell;
  void *context;
};

static void say(const struct teller *teller, const char *id, bool good, const char *advice,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
static void say(const struct teller *teller, const char *id, bool good, const char *advice,
                const char *format, ...) {
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  teller->tell(teller->context, id, good, text, advice);
}

static void tell_wsl(const struct teller *teller) {
  struct utsname system;
  if (uname(&system) != 0) return;
  bool wsl = strstr(system.release, "icrosoft") || access("/dev/dxg", F_OK) == 0;
  say(teller, "wsl", !wsl, wsl ? "use frames of kind host where the GPU kinds fail" : "",
      wsl ? "this is WSL (%s %s): its CUDA driver promises sharing between processes that it can't "
            "do"
          : "not WSL: %s %s",
      system.sysname, system.release);
}

/* ---- namespaces -------------------------------------------------------------------------------- */

/* The kernel's fixed inode numbers of the first namespaces. */
static const struct {
  const char *id, *path, *link, *advice;
} namespaces[] = {
    {"namespace.pid", "/proc/self/ns/pid", "pid:[4026531836]",
     "both ends of a channel of kind ipc have to be in the same one; the other kinds need only the "
     "folder of channels to be shared"},
    {"namespace.ipc", "/proc/self/ns/ipc", "ipc:[4026531839]",
     "both ends of a channel of kind ipc have to be in the same one (docker run --ipc)"},
    {"namespace.user", "/proc/self/ns/user", "user:[4026531837]",
     "peers outside of it have another number for the same user: name theirs in allowed_users"},
};

static void tell_namespaces(const struct teller *teller) {
  for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++) {
    char link[64];
    ssize_t length = readlink(namespaces[i].path, link, sizeof link - 1);
    if (length < 0) {
      say(teller, namespaces[i].id, false, "mount /proc", "%s can't be read", namespaces[i].path);
      continue;
    }
    link[length] = '\0';
    bool own = strcmp(link, namespaces[i].link) != 0;
    say(teller, namespaces[i].id, true, own ? namespaces[i].advice : "",
        own ? "%s, not the machine's first: a container or sandbox" : "%s, the machine's own",
        link);
  }
}

static void tell_ptrace(const struct teller *teller) {
  char scope[2] = "";
  FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
  bool known = file && fread(scope, 1, 1, file) == 1;
  if (file) fclose(file);
  if (known)
    say(teller, "ptrace", true, "",
        "Yama's ptrace_scope is %s; descriptors go over the channel's socket, which no scope "
        "forbids",
        scope);
  else
    say(teller, "ptrace", true, "", "no Yama: ptrace is not restricted by it");
}

/* ---- limits ------------------------------------------------------------------------------------ */

static const struct {
  const char *id, *name;
  int resource;
  uint64_t least; /* good from here on */
  const char *advice;
} limits[] = {
    {"limit.memlock", "RLIMIT_MEMLOCK", RLIMIT_MEMLOCK, 64 << 10,
     "raise it (ulimit -l): words that a GPU writes are pinned"},
    {"limit.nofile", "RLIMIT_NOFILE", RLIMIT_NOFILE, 256,
     "raise it (ulimit -n): each consumer takes some descriptors"},
    {"limit.fsize", "RLIMIT_FSIZE", RLIMIT_FSIZE, 256 * MEBIBYTE,
     "raise it (ulimit -f): shared memory counts as a file"},
    {"limit.as", "RLIMIT_AS", RLIMIT_AS, UINT64_MAX,
     "lift it (ulimit -v unlimited): CUDA reserves far more addresses than it has memory"},
};

static void tell_limits(const struct teller *teller) {
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)limits[i].resource, &limit) != 0) continue;
    if (limit.rlim_cur == RLIM_INFINITY) {
      say(teller, limits[i].id, true, "", "%s is unlimited", limits[i].name);
      continue;
    }
    bool good = limit.rlim_cur >= limits[i].least;
    say(teller, limits[i].id, good, good ? "" : limits[i].advice, "%s is %" PRIu64, limits[i].name,
        (uint64_t)limit.rlim_cur);
  }
}

/* From the largest down: how much could a channel take right now? */
static void tell_memory_limit(const struct teller *teller) {
  static const uint64_t sizes[] = {64 * GIBIBYTE, 16 * GIBIBYTE, 4 * GIBIBYTE, GIBIBYTE,
                                   256 * MEBIBYTE};
  const int count = sizeof sizes / sizeof sizes[0];
  for (int i = 0; i < count; i++) {
    if (os_memory_limit_check(sizes[i]) != CUDALINK_OK) continue;
    say(teller, "cgroup.memory", true, "", "limits and free memory leave room for %" PRIu64 " MiB",
        sizes[i] / MEBIBYTE);
    return;
  }
  say(teller, "cgroup.memory", false, "raise the limit, or use smaller or fewer slots", "%s",
      cudalink_last_error());
}

/* ---- memory and folders -------------------------------------------------------------------------- */

static void tell_memfd(const struct teller *teller) {
  struct os_segment segment;
  int status = os_segment_create(&segment, "cudalink-probe", os_page_round(1));
  if (status == CUDALINK_OK) {
    status = os_segment_seal_writers(&segment);
    os_segment_destroy(&segment);
  }
  bool good = status == CUDALINK_OK;
  say(teller, "memfd", good, good ? "" : "allow memfd_create in the sandbox; Linux 5.4 or later",
      "%s", good ? "memfds can be made and sealed" : cudalink_last_error());
}

static void tell_dev_shm(const struct teller *teller) {
  struct statvfs system;
  if (statvfs("/dev/shm", &system) != 0 || access("/dev/shm", W_OK) != 0) {
    say(teller, "dev_shm", false, "mount it, if programs of the original cuda-link take part",
        "/dev/shm can't be written to");
    return;
  }
  say(teller, "dev_shm", true, "", "/dev/shm has %" PRIu64 " MiB free; only the old wire uses it",
      (uint64_t)system.f_bavail * system.f_frsize / MEBIBYTE);
}

static void tell_folder(const struct teller *teller, const char *directory) {
  char path[OS_PATH_SIZE];
  bool good = os_directory_own(directory, path) == CUDALINK_OK;
  say(teller, "runtime_folder", good,
      good ? "" : "set CUDALINK_RUNTIME_DIR to a folder of this user's that others can't write to",
      "%s", good ? path : cudalink_last_error());
}

void os_surroundings(const char *directory, os_tell *tell, void *context) {
  struct teller teller = {tell, context};
  tell_wsl(&teller);
  tell_namespaces(&teller);
  tell_ptrace(&teller);
  tell_limits(&teller);
  tell_memfd(&teller);
  tell_dev_shm(&teller);
  tell_folder(&teller, directory);
  tell_memory_limit(&teller);
}
