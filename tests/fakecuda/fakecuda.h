/* SPDX-License-Identifier: MIT
 *
 * What a test may ask of the fake driver beyond CUDA. A test that links with the fake calls these
 * functions; a program that also runs on a real GPU finds them with fakecuda_symbol, which answers
 * NULL there. Names of entry points are given without version suffix: "cuMemAlloc".
 */
#ifndef CUDALINK_TESTS_FAKECUDA_H
#define CUDALINK_TESTS_FAKECUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define FAKECUDA_API __attribute__((visibility("default")))

/* Calls of one entry point in this process so far. */
FAKECUDA_API uint64_t fakecuda_calls(const char *entry_point);

/* Calls of this process so far that wait for the whole GPU (cuMemFree, cuModuleLoadData, ...), that
 * allocate, and that open something of another process. */
FAKECUDA_API uint64_t fakecuda_waiting_calls(void);
FAKECUDA_API uint64_t fakecuda_allocating_calls(void);
FAKECUDA_API uint64_t fakecuda_opening_calls(void);

/* Where this thread's number of entry points under way is kept: what happens while it is not 0 is the
 * fake's doing. */
FAKECUDA_API const int *fakecuda_inside(void);

/* Copies and fills that streams of this process carried out, and their bytes; memory operations are
 * not among them. */
FAKECUDA_API uint64_t fakecuda_copies(void);
FAKECUDA_API uint64_t fakecuda_copied_bytes(void);

/* Operations that were queued on the legacy default stream. */
FAKECUDA_API uint64_t fakecuda_legacy_operations(void);

/* While frames flow, calls of the kinds named (FAKECUDA_WAITING | ...) must not happen. */
enum fakecuda_kinds { FAKECUDA_WAITING = 1, FAKECUDA_ALLOCATING = 2, FAKECUDA_OPENING = 4 };
enum fakecuda_flow {
  FAKECUDA_FLOW_OFF,
  FAKECUDA_FLOW_ABORT, /* such a call ends the process with a message */
  FAKECUDA_FLOW_COUNT  /* such a call is counted: fakecuda_flow_violations */
};
FAKECUDA_API void fakecuda_frames_flow(enum fakecuda_flow flow, unsigned kinds);
FAKECUDA_API uint64_t fakecuda_flow_violations(void);

/* The nth call from now on of that entry point (1 = the next one; 0 = every one) returns `error`
 * (a CUresult) and does nothing else. fakecuda_fail_clear forgets all of these. */
FAKECUDA_API void fakecuda_fail(const char *entry_point, unsigned nth, int error);
FAKECUDA_API void fakecuda_fail_clear(void);

/* Replaces the value of a device attribute on every device. */
FAKECUDA_API void fakecuda_set_attribute(int attribute, int value);

/* What misuse of the driver does. */
enum fakecuda_misuse {
  FAKECUDA_MISUSE_ABORT, /* the default: a message on stderr, then abort() */
  FAKECUDA_MISUSE_ERROR  /* the call returns what a real driver returns; counted */
};
FAKECUDA_API void fakecuda_set_misuse(enum fakecuda_misuse misuse);
FAKECUDA_API uint64_t fakecuda_misuses(void);

/* The context of the calling thread is dead from now on: each call on it returns `error`, its
 * queued work is dropped. */
FAKECUDA_API void fakecuda_lose_context(int error);

/* A random delay of 0 to `microseconds` before each operation of each stream. */
FAKECUDA_API void fakecuda_set_delay(unsigned microseconds);

/* Streams start no further operation until resumed. */
FAKECUDA_API void fakecuda_pause(int paused);

/* Operations queued in this process that are not done. */
FAKECUDA_API size_t fakecuda_pending(void);

/* Live objects: descriptors, device bytes and handles are flat when these are. Memory, mappings, each
 * opening of another's memory, reserved addresses and each retaining of a primary context count as
 * handles; host memory that is registered does not. */
FAKECUDA_API size_t fakecuda_live_handles(void);
FAKECUDA_API size_t fakecuda_live_bytes(void);

/* The CPU twin of a kernel: called on the stream's thread, once per launch. `params` holds one
 * pointer per kernel parameter, as cuLaunchKernel's does. Without one, dlsym finds
 * fakecuda_kernel_NAME in the program. */
typedef void (*fakecuda_kernel)(const unsigned grid[3], const unsigned block[3], void **params);
FAKECUDA_API void fakecuda_register_kernel(const char *name, fakecuda_kernel twin);

/* A function above, or NULL when the driver loaded is a real one. */
static inline void *fakecuda_symbol(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : NULL;
  if (library) dlclose(library);
  return found;
}

#endif
