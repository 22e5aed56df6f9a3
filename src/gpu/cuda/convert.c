/* SPDX-License-Identifier: MIT
 *
 * Pixel conversions: the module with the kernels, and launching them.
 *
 * Loading and unloading a module waits for the whole GPU. So there is one per GPU and process: loaded
 * when first asked for, and kept for as long as anything of this process is open on that GPU, so that
 * no close of one channel holds up the frames of another.
 */
#include <stdlib.h>

#include "gpu/cuda/cuda.h"
#include "interop/convert/kernels.h"

struct cuda_kernels {
  struct cuda_kernels *next;
  CUcontext context; /* primary: it lives while there are users, each of whom retains it */
  uint32_t users;    /* open devices */
  pthread_mutex_t mutex;
  CUmodule module; /* under the mutex; NULL until it is loaded, with all functions */
  CUfunction functions[CONVERT_KERNEL_COUNT];
};

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards next and users */
static struct cuda_kernels *list;

/* ---- the module --------------------------------------------------------------------------------- */

static struct cuda_kernels *find(CUcontext context) {
  struct cuda_kernels *kernels = list;
  while (kernels && kernels->context != context)
    kernels = kernels->next;
  return kernels;
}

static struct cuda_kernels *add(CUcontext context) {
  struct cuda_kernels *kernels = calloc(1, sizeof *kernels);
  if (!kernels) return NULL;
  pthread_mutex_init(&kernels->mutex, NULL);
  kernels->context = context;
  kernels->next = list;
  list = kernels;
  return kernels;
}

int cuda_kernels_join(struct cuda_device *device) {
  pthread_mutex_lock(&list_mutex);
  struct cuda_kernels *kernels = find(device->context);
  if (!kernels) kernels = add(device->context);
  if (kernels) kernels->users++;
  pthread_mutex_unlock(&list_mutex);
  device->kernels = kernels;
  if (kernels) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a record of GPU kernels");
}

static bool drop_user(struct cuda_kernels *kernels) {
  pthread_mutex_lock(&list_mutex);
  bool last = --kernels->users == 0;
  struct cuda_kernels **link = &list;
  while (*link != kernels)
    link = &(*link)->next;
  if (last) *link = kernels->next;
  pthread_mutex_unlock(&list_mutex);
  return last;
}

void cuda_kernels_leave(struct cuda_device *device) {
  struct cuda_kernels *kernels = device->kernels;
  CUstreamCaptureMode mode;
  if (!kernels || !drop_user(kernels)) return;
  if (kernels->module && cuda_enter(device, &mode) == CUDALINK_OK) {
    device->driver->cuModuleUnload(kernels->module);
    cuda_leave(device, mode);
  }
  pthread_mutex_destroy(&kernels->mutex);
  free(kernels);
}

static int load_error(const struct cuda_device *device, CUresult result) {
  const struct cuda_driver *driver = device->driver;
  int major = 0, minor = 0;
  switch ((int)result) {
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
  case CUDA_ERROR_INVALID_PTX:
  case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: break;
  default: return cuda_error(driver, result, "loading the conversion kernels");
  }
  driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                               device->device);
  driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                               device->device);
  const char *name = NULL;
  driver->cuGetErrorName(result, &name);
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "the conversion kernels (PTX 7.4 of CUDA 11.4, for compute capability 7.5 and "
                   "later) were not taken by the driver (CUDA %d.%d) for this GPU (compute "
                   "capability %d.%d): %s, %d; update the driver, or open without `convert`",
                   driver->version / 1000, driver->version % 1000 / 10, major, minor,
                   name ? name : "unknown result", (int)result);
}

/* Launched once with no cells: where CUDA loads kernels late, it does so at the first launch, and
 * that must not be a frame's. */
static CUresult launch_empty(const struct cuda_device *device, CUfunction function) {
  struct convert_parameters none = {0};
  void *params[] = {&none};
  return device->driver->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, device->copy_stream, params,
                                        NULL);
}

static int load(struct cuda_device *device, struct cuda_kernels *kernels) {
  const struct cuda_driver *driver = device->driver;
  CUmodule module;
  CUresult result = driver->cuModuleLoadData(&module, convert_ptx);
  if (result != CUDA_SUCCESS) return load_error(device, result);
  for (int i = 0; i < CONVERT_KERNEL_COUNT && result == CUDA_SUCCESS; i++) {
    CUfunction *function = &kernels->functions[i];
    result = driver->cuModuleGetFunction(function, module, convert_kernels[i].name);
    if (result == CUDA_SUCCESS) result = launch_empty(device, *function);
  }
  CUresult end = driver->cuStreamSynchronize(device->copy_stream);
  if (result == CUDA_SUCCESS) result = end;
  if (result == CUDA_SUCCESS) {
    kernels->module = module;
    return CUDALINK_OK;
  }
  int status = cuda_error(driver, result, "preparing the conversion kernels");
  driver->cuModuleUnload(module);
  return status;
}

int cuda_convert_load(struct gpu_device *gpu) {
  struct cuda_device *device = cuda_of(gpu);
  struct cuda_kernels *kernels = device->kernels;
  CUstreamCaptureMode mode;
  cudalink_stream own; /* where conversions with COMPLETE run: device->copy_stream */
  int status = cuda_copy_stream(gpu, CUDALINK_PRIORITY_NORMAL, &own);
  if (status == CUDALINK_OK) status = cuda_enter(device, &mode);
  if (status != CUDALINK_OK) return status;
  pthread_mutex_lock(&kernels->mutex);
  if (!kernels->module) status = load(device, kernels);
  pthread_mutex_unlock(&kernels->mutex);
  cuda_leave(device, mode);
  return status;
}

/* ---- memory that the caller names ----------------------------------------------------------------- */

struct piece {
  CUdeviceptr start;
  size_t bytes;
  CUmemorytype type;            /* 0 = the driver does not know it */
  unsigned int managed, access; /* access of the device whose context is current */
  int ordinal;
};

static void look_up(const struct cuda_driver *driver, CUdeviceptr address, struct piece *piece) {
  *piece = (struct piece){0};
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *values[] = {&piece->start,   &piece->bytes,  &piece->type,
                    &piece->managed, &piece->access, &piece->ordinal};
  if (driver->cuPointerGetAttributes(6, attributes, values, address) != CUDA_SUCCESS)
    piece->type = (CUmemorytype)0;
}

static int check_piece(const struct cuda_device *device, const struct piece *piece,
                       unsigned long long address, bool write) {
  if (!piece->type)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "convert: the CUDA driver knows no memory at 0x%llx: it is memory of the CPU, "
                     "or was freed, or the allocation ends there",
                     address);
  if (piece->type != CU_MEMORYTYPE_DEVICE)
    return error_set(
        CUDALINK_ERROR_INVALID_ARGUMENT,
        "convert: 0x%llx is memory of the CPU; frames of a GPU kind are converted from "
        "and into memory of the GPU",
        address);
  if (piece->managed) return CUDALINK_OK;
  if (piece->ordinal != device->device && !(piece->access & CU_MEM_ACCESS_FLAGS_PROT_READ))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "convert: 0x%llx is memory of GPU %d, which GPU %d, where the frames are, has "
                     "no access to",
                     address, piece->ordinal, (int)device->device);
  if (write && piece->access == CU_MEM_ACCESS_FLAGS_PROT_READ)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "convert: 0x%llx is mapped read-only; it can't be converted into", address);
  return CUDALINK_OK;
}

/* Memory may be mapped in several pieces that lie side by side: each is looked at. */
int cuda_memory_check(struct gpu_device *gpu, const void *memory, uint64_t bytes, bool write) {
  struct cuda_device *device = cuda_of(gpu);
  uint64_t start = (uintptr_t)memory, covered = 0;
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  while (status == CUDALINK_OK && covered < bytes) {
    struct piece piece;
    look_up(device->driver, start + covered, &piece);
    status = check_piece(device, &piece, start + covered, write);
    uint64_t end = piece.start + piece.bytes;
    covered = end > start + covered ? end - start : bytes; /* bytes: the driver tells no size */
  }
  cuda_leave_quickly(device, pushed);
  return status;
}

/* ---- launching ------------------------------------------------------------------------------------ */

struct launch {
  struct cuda_device *device;
  CUstream stream;
};

static int launch(void *context, const struct convert_kernel *kernel, unsigned grid_x,
                  unsigned grid_y, unsigned block_x, unsigned block_y,
                  const struct convert_parameters *parameters) {
  const struct launch *on = context;
  struct cuda_device *device = on->device;
  void *params[] = {(void *)(uintptr_t)parameters}; /* copied by the call */
  CUresult result =
      device->driver->cuLaunchKernel(device->kernels->functions[kernel - convert_kernels], grid_x,
                                     grid_y, 1, block_x, block_y, 1, 0, on->stream, params, NULL);
  return cuda_error(device->driver, result, "launching a conversion");
}

int cuda_stream_convert(struct gpu_device *gpu, cudalink_stream stream,
                        const struct convert_job *job) {
  struct cuda_device *device = cuda_of(gpu);
  bool complete = stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  struct launch on = {device, complete ? device->copy_stream : cuda_stream_handle(stream)};
  struct convert_launcher launcher = {launch, &on};
  CUstreamCaptureMode mode;
  bool pushed;
  int status = complete ? cuda_enter(device, &mode) : cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  status = convert_on_device(job, &launcher);
  if (!complete) {
    cuda_leave_quickly(device, pushed);
    return status;
  }
  if (status == CUDALINK_OK)
    status = cuda_error(device->driver, device->driver->cuStreamSynchronize(on.stream),
                        "waiting for a conversion");
  cuda_leave(device, mode);
  return status;
}
