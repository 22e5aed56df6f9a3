/* SPDX-License-Identifier: MIT
 *
 * cudalink/probe.h - what this machine can do, found out by trying.
 *
 * ```c fragment
 * cudalink_probe *probe;
 * if (cudalink_probe_run(NULL, &probe) == CUDALINK_OK) {
 *   for (uint32_t i = 0; i < probe->item_count; i++)
 *     printf("%s: %s %s\n", probe->items[i].id, probe->items[i].text, probe->items[i].advice);
 *   cudalink_probe_free(probe);
 * }
 * ```
 *
 * Everything that touches a GPU is done in another process: the caller may have CUDA loaded or not,
 * and threads running; neither is touched. That process is a *helper*: the program `cudalink`, or any
 * program that calls cudalink_probe_helper first thing. Memory is made there, and mapped in yet
 * another process. Where there is no helper, GPU items are UNKNOWN and say what to do.
 */
#ifndef CUDALINK_PROBE_H
#define CUDALINK_PROBE_H

#include "cudalink/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudalink_probe_state {
  CUDALINK_PROBE_UNKNOWN = 0, /* not tried, or no answer: text says why */
  CUDALINK_PROBE_OK = 1,
  CUDALINK_PROBE_FAILED = 2
} cudalink_probe_state;

/* One finding. The ids, in this order; one that this list lacks may be added later:
 *
 *   driver               the CUDA driver: version, and where it was found
 *   mps                  whether kernels of two processes take turns; what that means
 *   kind.host .vmm .ipc  memory of that kind: made, mapped in another process, read there
 *   sync.write64         a stream stores a 64-bit word
 *   sync.wait64          a stream waits for one
 *   sync.write32 .wait32 the same with 32 bits
 *   sync.host_function   a stream calls a function, which stores a word
 *   helper               the process in which these were tried
 *   wsl  namespace.pid .ipc .user  ptrace  limit.memlock .nofile .fsize .as  memfd  dev_shm
 *   runtime_folder  cgroup.memory */
typedef struct cudalink_probe_item {
  char id[32];
  uint32_t state; /* cudalink_probe_state */
  uint32_t reserved;
  uint64_t ns;      /* that the try took; 0 = there is nothing to time */
  char text[320];   /* what was found, or why it failed */
  char advice[320]; /* what to do about it; "" = nothing */
} cudalink_probe_item;

/* A GPU that this process may use (CUDA_VISIBLE_DEVICES). */
typedef struct cudalink_probe_device {
  int32_t ordinal; /* CUDALINK_DEVICE(ordinal) names it in specs */
  uint8_t uuid[16];
  char name[96];
  int32_t capability_major, capability_minor; /* 9, 0 */
  uint64_t memory_bytes;
  uint32_t mig;        /* 1: a slice of a GPU (MIG) */
  uint32_t integrated; /* 1: shares the CPU's memory */
  uint32_t reserved[8];
} cudalink_probe_device;

typedef struct cudalink_probe {
  size_t size;            /* of this struct, as the library that made it knows it */
  int32_t driver_version; /* 13000 = CUDA 13.0; 0 = no usable driver */
  uint32_t reserved;
  char driver_library[256]; /* "" = none */
  char helper[256];         /* the program that was started; "" = none */
  uint32_t device_count;
  uint32_t item_count;
  const cudalink_probe_device *devices;
  const cudalink_probe_item *items;
} cudalink_probe;

typedef struct cudalink_probe_spec {
  size_t size;         /* sizeof(cudalink_probe_spec) */
  int32_t device;      /* GPU to try on: 0 = the first, or CUDALINK_DEVICE(ordinal) */
  uint32_t in_process; /* 1: where no helper is found, try in this process. CUDA is then loaded into
                            it, and stays. Memory of kind ipc is not tried: it takes two processes */
  const char *program; /* the helper; NULL = `cudalink` beside the library, else in PATH */
  const char *directory; /* folder of channels to look at; NULL = the usual one */
  int64_t timeout;       /* ns; 0 = 30 s. What has no answer by then is UNKNOWN */
  int32_t stop; /* a descriptor: as soon as it can be read, the helper and all its processes are
                   ended, and what was not tried yet is UNKNOWN. 0 = none */
} cudalink_probe_spec;
#define CUDALINK_PROBE_DEFAULTS .size = sizeof(cudalink_probe_spec)

/* Looks and tries. `spec` may be NULL. `*probe` is allocated, freed by cudalink_probe_free. Blocks for at
 * most the time-out; a second or two is usual, most of it for starting CUDA.
 *
 * Starts one process, without fork handlers, and ends and reaps it before it returns. The program
 * gets a SIGCHLD; a handler that waits for any child may take this one, which is noticed and fine,
 * and so is an ignored SIGCHLD. No descriptor stays, and none of the program's reaches the helper's
 * work. May be called from any thread, several at a time.
 *
 * Errors: INVALID_ARGUMENT, NO_MEMORY, FORKED. Whatever does not work on this machine is an item, not
 * an error. */
CUDALINK_API int cudalink_probe_run(const cudalink_probe_spec *spec, cudalink_probe **probe);
/* Frees what cudalink_probe_run made. NULL is allowed. */
CUDALINK_API void cudalink_probe_free(cudalink_probe *probe);

/* The helper's side. A program that wants to be its own helper (spec.program) calls this first in
 * main, before it starts threads or uses CUDA, and returns the answer when it is not negative:
 *
 * ```c
 * #include <cudalink/probe.h>
 *
 * int main(int argc, char **argv) {
 *   int code = cudalink_probe_helper(argc, argv);
 *   if (code >= 0) return code;
 *   return 0; // and here the program's own work
 * }
 * ```
 *
 * -1: the program was started by somebody else. */
CUDALINK_API int cudalink_probe_helper(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
