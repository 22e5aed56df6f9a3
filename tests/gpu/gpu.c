/* SPDX-License-Identifier: MIT
 *
 * The driver for the GPU tests: a fake one or a real one, found as every program finds it.
 */
#include "gpu.h"

const struct cuda_driver *cuda;
static CUcontext context;

const char *const gpu_memory_names[GPU_MEMORY_KINDS] = {"device", "managed", "pinned",
                                                        "host",   "pool",    "vmm"};

void gpu_check_result(const char *file, int line, const char *call, CUresult result,
                      CUresult expected) {
  if (result == expected) return;
  const char *name = NULL;
  cuda->cuGetErrorName(result, &name);
  harness_fail(file, line, "%s answers %s (%d), not %d", call, name ? name : "?", (int)result,
               (int)expected);
}

bool gpu_is_fake(void) { return fakecuda_symbol("fakecuda_calls") != NULL; }

void gpu_report(const char *format, ...) {
  const char *path = getenv("GPU_RESULTS");
  FILE *file = path ? fopen(path, "a") : NULL;
  va_list list;
  if (!file) return;
  char line[LINE_SIZE];
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  fprintf(file, "%s\n", line); /* in one piece: others may write too */
  fclose(file);
}

CUcontext gpu_context(void) { return context; }

void gpu_start(void) { gpu_start_on(0); }

void gpu_start_on(int ordinal) {
  CUdevice device;
  int count;
  HELPER_LEAKS();
  if (cuda_driver_load(&cuda) != CUDALINK_OK) SKIP("needs a GPU");
  CU(cuDeviceGetCount(&count));
  if (ordinal >= count) SKIP("needs a GPU");
  CU(cuDeviceGet(&device, ordinal));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  gpu_load_kernels();
}

CUcontext gpu_start_beside_another(void) {
  CUdevice device;
  CUcontext other;
  int count;
  setenv("FAKECUDA_DEVICES", "2", 1);
  gpu_start();
  CU(cuDeviceGetCount(&count));
  if (count < 2) SKIP("needs a GPU");
  CU(cuDeviceGet(&device, 1));
  CU(cuDevicePrimaryCtxRetain(&other, device));
  return other;
}

CUstream gpu_stream(void) {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void describe_rgba(cudalink_description *description, uint32_t width, uint32_t height) {
  memset(description, 0, sizeof *description);
  CHECK_OK(cudalink_describe_picture(description, CUDALINK_FORMAT_RGBA8, width, height, 1));
}

/* ---- memory of all kinds ------------------------------------------------------------------------ */

static void *device_memory(uint64_t bytes) {
  CUdeviceptr address;
  CU(cuMemAlloc(&address, bytes));
  return (void *)(uintptr_t)address;
}

static void *managed_memory(uint64_t bytes) {
  CUdeviceptr address;
  CU(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
  return (void *)(uintptr_t)address;
}

static void *pinned_memory(uint64_t bytes) {
  void *address;
  CU(cuMemHostAlloc(&address, bytes, 0));
  return address;
}

static void *pool_memory(uint64_t bytes, CUstream stream) {
  CUdeviceptr address;
  CU(cuMemAllocAsync(&address, bytes, stream));
  return (void *)(uintptr_t)address;
}

static void *vmm_memory(uint64_t bytes) {
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  size_t granularity;
  CU(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  bytes = (bytes + granularity - 1) / granularity * granularity;
  CU(cuMemCreate(&handle, bytes, &properties, 0));
  CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CU(cuMemMap(address, bytes, 0, handle, 0));
  CU(cuMemSetAccess(address, bytes, &access, 1));
  return (void *)(uintptr_t)address;
}

void *gpu_memory(enum gpu_memory memory, uint64_t bytes, CUstream stream) {
  switch (memory) {
  case GPU_MEMORY_DEVICE: return device_memory(bytes);
  case GPU_MEMORY_MANAGED: return managed_memory(bytes);
  case GPU_MEMORY_PINNED: return pinned_memory(bytes);
  case GPU_MEMORY_HOST: return malloc(bytes);
  case GPU_MEMORY_POOL: return pool_memory(bytes, stream);
  case GPU_MEMORY_VMM: return vmm_memory(bytes);
  default: FAIL("no memory of kind %d", (int)memory);
  }
}

bool tell_and_hear(uint64_t frames) {
  static bool told;
  int64_t tell = option_number("tell", 0);
  if (tell && !told && frames >= (uint64_t)tell) say("flows");
  told |= frames >= (uint64_t)tell;
  return hear_within(0);
}

uint64_t gpu_number(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 0) : otherwise;
}

bool gpu_once_more(uint32_t done) {
  static uint64_t start;
  if (!start) start = cudalink_now();
  return done < gpu_number("GPU_KILLS", 4) &&
         cudalink_now() - start < gpu_number("GPU_KILL_SECONDS", 300) * (uint64_t)SECOND;
}

void gpu_random_pause(int64_t most) {
  uint64_t end = cudalink_now() + random_below((uint64_t)most);
  WAIT_UNTIL(cudalink_now() >= end);
}
