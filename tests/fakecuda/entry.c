/* SPDX-License-Identifier: MIT
 *
 * What every entry point does first: counting, injected failures, the checks of driver, thread and
 * context, and the wait for the GPU where the real call waits (measured on an H200). Also the table
 * by which cuGetProcAddress finds entry points by version.
 */
#include <stdio.h>
#include <string.h>

#include "fake.h"

enum trait {
  NO_CONTEXT = 1, /* works with no current context */
  NO_INIT = 2,    /* works before cuInit */
  WAITS = 4,      /* waits for all queued work of the process */
  ALLOCATES = 8,
  OPENS = 16,
  UNSAFE = 32, /* refused while a capture in global mode is under way */
  STATIC = NO_CONTEXT | NO_INIT
};

static const unsigned traits[ENTRY_COUNT] = {
    [ENTRY_cuInit] = STATIC,
    [ENTRY_cuDriverGetVersion] = STATIC,
    [ENTRY_cuGetErrorName] = STATIC,
    [ENTRY_cuGetErrorString] = STATIC,
    [ENTRY_cuGetProcAddress] = STATIC,
    [ENTRY_cuGetProcAddress_v2] = STATIC,
    [ENTRY_cuDeviceGetCount] = NO_CONTEXT,
    [ENTRY_cuDeviceGet] = NO_CONTEXT,
    [ENTRY_cuDeviceGetName] = NO_CONTEXT,
    [ENTRY_cuDeviceGetUuid_v2] = NO_CONTEXT,
    [ENTRY_cuDeviceGetAttribute] = NO_CONTEXT,
    [ENTRY_cuDeviceTotalMem_v2] = NO_CONTEXT,
    [ENTRY_cuDeviceGetPCIBusId] = NO_CONTEXT,
    [ENTRY_cuDeviceCanAccessPeer] = NO_CONTEXT,
    [ENTRY_cuDeviceGetDefaultMemPool] = NO_CONTEXT,
    [ENTRY_cuDevicePrimaryCtxRetain] = NO_CONTEXT,
    [ENTRY_cuDevicePrimaryCtxRelease_v2] = NO_CONTEXT,
    [ENTRY_cuDevicePrimaryCtxGetState] = NO_CONTEXT,
    [ENTRY_cuCtxCreate_v2] = NO_CONTEXT,
    [ENTRY_cuCtxDestroy_v2] = NO_CONTEXT | WAITS,
    [ENTRY_cuCtxPushCurrent_v2] = NO_CONTEXT,
    [ENTRY_cuCtxPopCurrent_v2] = NO_CONTEXT,
    [ENTRY_cuCtxGetCurrent] = NO_CONTEXT,
    [ENTRY_cuCtxSetCurrent] = NO_CONTEXT,
    [ENTRY_cuCtxGetId] = NO_CONTEXT,
    [ENTRY_cuCtxSynchronize] = WAITS | UNSAFE,
    [ENTRY_cuStreamCreate] = ALLOCATES,
    [ENTRY_cuStreamCreateWithPriority] = ALLOCATES,
    [ENTRY_cuStreamDestroy_v2] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuStreamQuery] = NO_CONTEXT | UNSAFE,
    [ENTRY_cuStreamSynchronize] = NO_CONTEXT | UNSAFE,
    [ENTRY_cuStreamWaitEvent] = NO_CONTEXT,
    [ENTRY_cuStreamGetCtx] = NO_CONTEXT,
    [ENTRY_cuStreamGetFlags] = NO_CONTEXT,
    [ENTRY_cuStreamGetPriority] = NO_CONTEXT,
    [ENTRY_cuStreamGetId] = NO_CONTEXT,
    [ENTRY_cuStreamIsCapturing] = NO_CONTEXT,
    [ENTRY_cuStreamEndCapture] = NO_CONTEXT,
    [ENTRY_cuThreadExchangeStreamCaptureMode] = NO_CONTEXT,
    [ENTRY_cuEventCreate] = ALLOCATES,
    [ENTRY_cuEventDestroy_v2] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuEventQuery] = NO_CONTEXT | UNSAFE,
    [ENTRY_cuEventSynchronize] = NO_CONTEXT | UNSAFE,
    [ENTRY_cuEventElapsedTime] = NO_CONTEXT,
    [ENTRY_cuIpcOpenEventHandle] = OPENS | UNSAFE,
    [ENTRY_cuIpcOpenMemHandle_v2] = OPENS | UNSAFE,
    [ENTRY_cuIpcCloseMemHandle] = WAITS | UNSAFE,
    [ENTRY_cuMemAlloc_v2] = ALLOCATES | UNSAFE,
    [ENTRY_cuMemFree_v2] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuMemAllocManaged] = ALLOCATES | UNSAFE,
    [ENTRY_cuMemAllocAsync] = ALLOCATES,
    [ENTRY_cuMemFreeAsync] = ALLOCATES,
    [ENTRY_cuMemHostAlloc] = ALLOCATES | UNSAFE,
    [ENTRY_cuMemFreeHost] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuMemHostRegister_v2] = ALLOCATES | UNSAFE,
    [ENTRY_cuMemHostUnregister] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuPointerGetAttribute] = NO_CONTEXT,
    [ENTRY_cuPointerGetAttributes] = NO_CONTEXT,
    [ENTRY_cuMemGetAllocationGranularity] = NO_CONTEXT,
    [ENTRY_cuMemCreate] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemRelease] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemAddressReserve] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemAddressFree] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemMap] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemUnmap] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemSetAccess] = NO_CONTEXT | ALLOCATES,
    [ENTRY_cuMemGetAccess] = NO_CONTEXT,
    [ENTRY_cuMemExportToShareableHandle] = NO_CONTEXT | OPENS,
    [ENTRY_cuMemImportFromShareableHandle] = NO_CONTEXT | OPENS,
    [ENTRY_cuMemGetAllocationPropertiesFromHandle] = NO_CONTEXT,
    [ENTRY_cuMemRetainAllocationHandle] = NO_CONTEXT,
    [ENTRY_cuMemGetHandleForAddressRange] = OPENS,
    [ENTRY_cuArray3DCreate_v2] = ALLOCATES | UNSAFE,
    [ENTRY_cuArrayDestroy] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuImportExternalMemory] = OPENS | UNSAFE,
    [ENTRY_cuExternalMemoryGetMappedBuffer] = ALLOCATES | UNSAFE,
    [ENTRY_cuExternalMemoryGetMappedMipmappedArray] = ALLOCATES | UNSAFE,
    [ENTRY_cuMipmappedArrayDestroy] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuDestroyExternalMemory] = ALLOCATES | UNSAFE,
    [ENTRY_cuImportExternalSemaphore] = OPENS | UNSAFE,
    [ENTRY_cuDestroyExternalSemaphore] = ALLOCATES | UNSAFE,
    [ENTRY_cuModuleLoadData] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuModuleLoadDataEx] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuModuleUnload] = WAITS | ALLOCATES | UNSAFE,
    [ENTRY_cuGraphCreate] = NO_CONTEXT,
    [ENTRY_cuGraphDestroy] = NO_CONTEXT,
    [ENTRY_cuGraphGetNodes] = NO_CONTEXT,
    [ENTRY_cuGraphNodeGetType] = NO_CONTEXT,
    [ENTRY_cuGraphInstantiateWithFlags] = WAITS | ALLOCATES | UNSAFE, /* each 43rd does */
    [ENTRY_cuGraphExecDestroy] = NO_CONTEXT | WAITS | ALLOCATES | UNSAFE,
};

struct row {
  const char *name, *symbol;
  int version;
};
static const struct row rows[ENTRY_COUNT] = {
#define ROW(kind, name, symbol, version, arguments) [ENTRY_##symbol] = {#name, #symbol, version},
    FAKE_FUNCTIONS(ROW)
#undef ROW
};

static _Thread_local enum entry current;
static _Thread_local int inside;
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

const char *entry_current(void) { return rows[current].name; }
const char *entry_name(enum entry entry) { return rows[entry].name; }

static CUresult check_flow(unsigned kind, const char *does) {
  if (!(fake.flow_kinds & kind) || fake.flow == FAKECUDA_FLOW_OFF) return CUDA_SUCCESS;
  fake.violations++;
  if (fake.flow == FAKECUDA_FLOW_ABORT)
    fake_abort("%s %s, while frames flow", entry_current(), does);
  return CUDA_SUCCESS;
}

static void count_kinds(unsigned trait) {
  if (trait & WAITS) {
    fake.waiting++;
    check_flow(FAKECUDA_WAITING, "waits for the whole GPU");
  }
  if (trait & ALLOCATES) {
    fake.allocating++;
    check_flow(FAKECUDA_ALLOCATING, "allocates or frees");
  }
  if (trait & OPENS) {
    fake.opening++;
    check_flow(FAKECUDA_OPENING, "opens or exports a handle");
  }
}

CUresult entry_blocks(const char *why) {
  fake.waiting++;
  return check_flow(FAKECUDA_WAITING, why);
}

static CUresult check_context(unsigned trait) {
  if (trait & NO_CONTEXT) return CUDA_SUCCESS;
  struct context *context = context_current();
  if (!context)
    return misuse(CUDA_ERROR_INVALID_CONTEXT, "%s: this thread has no current context",
                  entry_current());
  return context->lost;
}

static CUresult check(enum entry entry) {
  unsigned trait = traits[entry];
  if (worker_in_host_function() && !(trait & NO_INIT))
    return misuse(CUDA_ERROR_NOT_PERMITTED, "%s is called in a host function of a stream",
                  entry_current());
  CUresult result = control_injected(entry);
  if (result != CUDA_SUCCESS) return result;
  if (!fake.initialised && !(trait & NO_INIT)) return CUDA_ERROR_NOT_INITIALIZED;
  result = check_context(trait);
  if (result != CUDA_SUCCESS) return result;
  if (trait & UNSAFE && (result = capture_check_unsafe()) != CUDA_SUCCESS) return result;
  count_kinds(trait);
  if (!(trait & WAITS)) return CUDA_SUCCESS;
  stream_drain_process();
  return check_context(trait);
}

const int *fakecuda_inside(void) { return &inside; }

struct entry_scope entry_begin(enum entry entry) {
  struct entry_scope scope = {false, CUDA_SUCCESS};
  inside++;
  if (fake.forked && !(traits[entry] & NO_INIT)) {
    scope.result = CUDA_ERROR_NOT_INITIALIZED;
    return scope;
  }
  pthread_once(&environment_once, control_read_environment);
  pthread_mutex_lock(&fake.lock);
  scope.locked = true;
  current = entry;
  fake.calls[entry]++;
  scope.result = check(entry);
  return scope;
}

void entry_end(struct entry_scope *scope) {
  if (scope->locked) pthread_mutex_unlock(&fake.lock);
  inside--;
}

/* ---- Finding entry points ---- */

static void *const addresses[ENTRY_COUNT] = {
#define ADDRESS(kind, name, symbol, version, arguments) [ENTRY_##symbol] = (void *)symbol,
    FAKE_FUNCTIONS(ADDRESS)
#undef ADDRESS
};

/* The newest form of `name` that is neither newer than asked for nor than this driver. */
static CUdriverProcAddressQueryResult look_up(const char *name, int version, void **function) {
  const struct row *best = NULL;
  bool known = false;
  for (size_t i = 0; i < ENTRY_COUNT; i++) {
    if (strcmp(rows[i].name, name) != 0 || rows[i].version > fake.version) continue;
    known = true;
    if (rows[i].version <= version && (!best || rows[i].version > best->version)) best = &rows[i];
  }
  *function = best ? addresses[best - rows] : NULL;
  if (best) return CU_GET_PROC_ADDRESS_SUCCESS;
  return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
  ENTER(cuGetProcAddress);
  if (!name || !function || flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  return look_up(name, version, function) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  ENTER(cuGetProcAddress_v2);
  if (!name || !function || flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult found = look_up(name, version, function);
  if (status) *status = found;
  return found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
