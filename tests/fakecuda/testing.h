/* SPDX-License-Identifier: MIT
 *
 * What the tests of the fake driver share: the loaded driver, a check of results, waiting for a
 * state, and running a piece of code in a process of its own.
 */
#ifndef CUDALINK_TESTS_FAKECUDA_TESTING_H
#define CUDALINK_TESTS_FAKECUDA_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cudalink/base.h"
#include "fakecuda.h"
#include "gpu/cuda/driver.h"

#define MIB ((size_t)1 << 20)

static const struct cuda_driver *cuda;

static inline void expect_result(CUresult result, CUresult expected, const char *text, int line) {
  if (result == expected) return;
  const char *name = NULL;
  cuda->cuGetErrorName(result, &name);
  fprintf(stderr, "line %d: %s = %s (%d), expected %d\n", line, text, name ? name : "?",
          (int)result, (int)expected);
  abort();
}
#define OK(call) expect_result(cuda->call, CUDA_SUCCESS, #call, __LINE__)
#define RESULT(expected, call) expect_result(cuda->call, expected, #call, __LINE__)

static inline CUcontext use_device(int ordinal) {
  CUdevice device;
  CUcontext context;
  if (!cuda && cuda_driver_load(&cuda) != CUDALINK_OK) {
    fprintf(stderr, "%s\n", cudalink_last_error());
    abort();
  }
  OK(cuDeviceGet(&device, ordinal));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  return context;
}

/* Waits until the condition holds; a test's own time-out ends it otherwise. */
#define UNTIL(condition)                                                                           \
  while (!(condition))                                                                             \
  sched_yield()

/* Runs the function in a child that has not used the driver before; returns its wait status. */
static inline int in_child(void (*run)(void *), void *argument) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    run(argument);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

static inline int exited_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
static inline int aborted(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT; }

static inline CUdeviceptr map_vmm(CUmemGenericAllocationHandle handle, size_t size,
                                  CUmemAccess_flags flags) {
  CUdeviceptr pointer;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  OK(cuMemAddressReserve(&pointer, size, 0, 0, 0));
  OK(cuMemMap(pointer, size, 0, handle, 0));
  OK(cuMemSetAccess(pointer, size, &access, 1));
  return pointer;
}

static inline CUmemGenericAllocationHandle create_vmm(size_t size) {
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle;
  OK(cuMemCreate(&handle, size, &properties, 0));
  return handle;
}

#endif
