/* SPDX-License-Identifier: MIT
 *
 * Finds the CUDA driver. State: the table of entry points, filled once per process, never unloaded.
 */
#include "gpu/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define OPTIONAL 0
#define REQUIRED 1

typedef CUresult (*get_proc_address_v1)(const char *, void **, int, cuuint64_t);
typedef CUresult (*get_proc_address_v2)(const char *, void **, int, cuuint64_t,
                                        CUdriverProcAddressQueryResult *);

/* How entry points are looked up: the newest way that the driver has. */
struct finder {
  void *library;
  get_proc_address_v2 versioned;     /* CUDA 12.0 and later */
  get_proc_address_v1 versioned_old; /* CUDA 11.3 and later */
};

static struct cuda_driver table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int load_result;
static char load_sentence[512];

static void *find_plain(void *library, const char *symbol) { return dlsym(library, symbol); }

/* NULL = this driver does not have it. */
static void *find(const struct finder *finder, const char *name, const char *symbol, int version) {
  void *function = NULL;
  if (finder->versioned) {
    CUdriverProcAddressQueryResult status;
    CUresult result =
        finder->versioned(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? function : NULL;
  }
  if (finder->versioned_old) {
    CUresult result = finder->versioned_old(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT);
    return result == CUDA_SUCCESS ? function : NULL;
  }
  return find_plain(finder->library, symbol);
}

static void choose_finder(struct finder *finder, int driver_version) {
  /* A cast of an object pointer to a function pointer goes through memcpy: ISO C has none. */
  void *newest = NULL;
  if (driver_version >= 12000) newest = find_plain(finder->library, "cuGetProcAddress_v2");
  void *older = find_plain(finder->library, "cuGetProcAddress");
  memcpy(&finder->versioned, &newest, sizeof newest);
  memcpy(&finder->versioned_old, &older, sizeof older);
}

static int fill(const struct finder *finder) {
  void *found;
#define FILL(kind, name, symbol, function_version, arguments)                                      \
  found = find(finder, #name, #symbol, function_version);                                          \
  if (!found && kind == REQUIRED)                                                                  \
    return error_set(CUDALINK_ERROR_UNSUPPORTED,                                                   \
                     "the CUDA driver (version %d.%d) has no %s, which each one since CUDA 11.4 "  \
                     "has: reinstall the driver",                                                  \
                     table.version / 1000, table.version % 1000 / 10, #name);                      \
  memcpy(&table.name, &found, sizeof found);
  CUDA_DRIVER_FUNCTIONS(FILL)
#undef FILL
  return CUDALINK_OK;
}

static int check_version(void *library) {
  CUresult (*get_version)(int *) = NULL;
  void *found = find_plain(library, "cuDriverGetVersion");
  memcpy(&get_version, &found, sizeof found);
  if (!get_version || get_version(&table.version) != CUDA_SUCCESS)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "libcuda.so.1 does not tell its version: it is no CUDA driver; reinstall the "
                     "GPU's driver, or use frames of kind host");
  if (table.version < CUDA_DRIVER_OLDEST)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "the CUDA driver is too old: it is of CUDA %d.%d, cuda-link needs 11.4 or "
                     "later; update the driver",
                     table.version / 1000, table.version % 1000 / 10);
  return CUDALINK_OK;
}

static int fail_no_device(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "there is a CUDA driver (version %d.%d) but no GPU that it may use%s%.60s%s; %s",
                   table.version / 1000, table.version % 1000 / 10,
                   visible ? " (CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "",
                   visible ? "')" : "",
                   visible ? "let that name one, or use frames of kind host"
                           : "look at nvidia-smi, or use frames of kind host");
}

static int start(void) {
  CUresult result = table.cuInit(0);
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
  if (result == CUDA_ERROR_NO_DEVICE) return fail_no_device();
  return cuda_error(&table, result, "starting the CUDA driver (cuInit)");
}

static int load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "no CUDA driver is installed (libcuda.so.1 is not found); install the GPU's "
                     "driver, or use frames of kind host");
  int result = check_version(library);
  if (result) return result;
  struct finder finder = {.library = library};
  choose_finder(&finder, table.version);
  result = fill(&finder);
  if (result) return result;
  return start();
}

/* The sentence belongs to the thread that loads; it is kept so that a later caller in another
 * thread gets it as well. */
static void load_once(void) {
  load_result = load();
  if (load_result) snprintf(load_sentence, sizeof load_sentence, "%s", cudalink_last_error());
}

int cuda_driver_load(const struct cuda_driver **out) {
  *out = NULL;
  pthread_once(&once, load_once);
  if (load_result) return error_set(load_result, "%s", load_sentence);
  *out = &table;
  return CUDALINK_OK;
}

static int error_code(CUresult result) {
  switch ((int)result) {
  case CUDA_ERROR_OUT_OF_MEMORY: return CUDALINK_ERROR_NO_MEMORY;
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_NOT_SUPPORTED:
  case CUDA_ERROR_STUB_LIBRARY:
  case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
  case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
  case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: return CUDALINK_ERROR_UNSUPPORTED;
  case CUDA_ERROR_NOT_PERMITTED: return CUDALINK_ERROR_REFUSED;
  case CUDA_ERROR_NOT_READY: return CUDALINK_ERROR_BUSY;
  /* After any of these every later call on the context fails. */
  case CUDA_ERROR_DEINITIALIZED:
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_CONTAINED:
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
  case CUDA_ERROR_TENSOR_MEMORY_LEAK:
  case CUDA_ERROR_MPS_CONNECTION_FAILED:
  case CUDA_ERROR_MPS_RPC_FAILURE:
  case CUDA_ERROR_MPS_CLIENT_TERMINATED:
  case CUDA_ERROR_EXTERNAL_DEVICE: return CUDALINK_ERROR_GPU_LOST;
  case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
  case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
  case CUDA_ERROR_STREAM_CAPTURE_MERGE:
  case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
  case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
  case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
  case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
  case CUDA_ERROR_CAPTURED_EVENT:
  case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: return CUDALINK_ERROR_CAPTURING;
  default: return CUDALINK_ERROR_GPU;
  }
}

int cuda_error(const struct cuda_driver *driver, CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
  const char *name = NULL;
  const char *text = NULL;
  if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown result";
  if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "no text";
  return error_set(error_code(result), "%s failed: %s, %d (%s)", what, name, (int)result, text);
}
