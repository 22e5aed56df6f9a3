/* SPDX-License-Identifier: MIT
 *
 * Virtual memory management: physical memory is a memfd, a mapping is a mapping of it. A mapping
 * that was made read-only faults when it is written to.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

struct allocation {
  CUmemGenericAllocationHandle handle;
  unsigned references; /* by handles; the memory lives while one or a mapping exists */
  unsigned mappings;
  int fd;
  size_t size;
  int device; /* ordinal; -2 = not visible here */
  bool imported;
  CUmemAllocationProp properties;
};

static struct reservation {
  struct reservation *next;
  uintptr_t address;
  size_t size;
} * reservations;

CUmemAllocationHandleType allocation_handle_types(const struct allocation *allocation) {
  return allocation->properties.requestedHandleTypes;
}

static void free_if_unused(struct allocation *allocation) {
  if (allocation->references || allocation->mappings) return;
  if (!allocation->imported) device_return_memory(allocation->device, allocation->size);
  close(allocation->fd);
  free(allocation);
}

void allocation_unmapped(struct allocation *allocation) {
  allocation->mappings--;
  free_if_unused(allocation);
}

static struct allocation *allocation_of(CUmemGenericAllocationHandle handle) {
  return handle_get(HANDLE_ALLOCATION, (const void *)(uintptr_t)handle);
}

static CUmemGenericAllocationHandle allocation_add(int fd, size_t size, int device) {
  struct allocation *allocation = calloc(1, sizeof *allocation);
  if (!allocation) fake_abort("out of memory");
  allocation->fd = fd;
  allocation->size = size;
  allocation->device = device;
  allocation->references = 1;
  allocation->handle = (uintptr_t)handle_new(HANDLE_ALLOCATION, allocation);
  allocation->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  allocation->properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
  return allocation->handle;
}

static CUresult check_properties(const CUmemAllocationProp *properties) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!device_valid(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (!device_attribute(properties->location.id,
                        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
  ENTER(cuMemGetAllocationGranularity);
  if (!granularity || (int)option > 1) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_properties(properties);
  if (result == CUDA_SUCCESS) *granularity = GRANULARITY;
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
  ENTER(cuMemCreate);
  CUresult result = check_properties(properties);
  if (result != CUDA_SUCCESS) return result;
  if (!handle || !size || size % GRANULARITY || flags) return CUDA_ERROR_INVALID_VALUE;
  int types = (int)properties->requestedHandleTypes;
  /* As measured: fabric handles are refused though the attribute promises them, and so are tile
   * pools with a descriptor. */
  if (types & CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
  if (types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (types && properties->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL)
    return CUDA_ERROR_NOT_SUPPORTED;
  int device = properties->location.id;
  if (types &&
      !device_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!device_reserve_memory(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  char name[32];
  snprintf(name, sizeof name, "vmm-%d", device_physical(device));
  int fd = memory_file(name, size);
  if (fd < 0) {
    device_return_memory(device, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = allocation_add(fd, size, device);
  allocation_of(*handle)->properties = *properties;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(cuMemRelease);
  struct allocation *allocation = allocation_of(handle);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  if (--allocation->references == 0) handle_drop((const void *)(uintptr_t)handle);
  free_if_unused(allocation);
  return CUDA_SUCCESS;
}

/* ---- Addresses ---- */

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment,
                             CUdeviceptr address, unsigned long long flags) {
  ENTER(cuMemAddressReserve);
  (void)address; /* a wish only */
  if (!pointer || !size || size % GRANULARITY || flags || alignment & (alignment - 1))
    return CUDA_ERROR_INVALID_VALUE;
  struct reservation *reservation = calloc(1, sizeof *reservation);
  if (!reservation) fake_abort("out of memory");
  reservation->address = address_take(size, alignment);
  reservation->size = size;
  reservation->next = reservations;
  reservations = reservation;
  *pointer = reservation->address;
  return CUDA_SUCCESS;
}

/* The first mapping that lies in the range or reaches into it. */
static struct block *mapping_in(uintptr_t address, size_t size) {
  for (struct block *block = block_list(); block; block = block->next)
    if (block->kind == BLOCK_MAPPED && block->address < address + size &&
        address < block->address + block->size)
      return block;
  return NULL;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
  ENTER(cuMemAddressFree);
  struct reservation **link = &reservations;
  while (*link && ((*link)->address != pointer || (*link)->size != size))
    link = &(*link)->next;
  if (!*link)
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemAddressFree: %#llx, %zu bytes: not reserved so",
                  pointer, size);
  if (mapping_in((uintptr_t)pointer, size))
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemAddressFree: %#llx: something is still mapped",
                  pointer);
  struct reservation *reservation = *link;
  *link = reservation->next;
  free(reservation);
  return CUDA_SUCCESS;
}

size_t reservation_count(void) {
  size_t count = 0;
  for (const struct reservation *at = reservations; at; at = at->next)
    count++;
  return count;
}

static bool is_reserved(uintptr_t address, size_t size) {
  for (struct reservation *at = reservations; at; at = at->next)
    if (address >= at->address && address + size <= at->address + at->size) return true;
  return false;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ENTER(cuMemMap);
  struct allocation *allocation = allocation_of(handle);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  if (flags || offset || !size || size % GRANULARITY || pointer % GRANULARITY)
    return CUDA_ERROR_INVALID_VALUE;
  if (size > allocation->size) return CUDA_ERROR_NOT_SUPPORTED; /* what driver 580 says */
  if (!is_reserved((uintptr_t)pointer, size)) return CUDA_ERROR_INVALID_VALUE;
  if (mapping_in((uintptr_t)pointer, size)) return CUDA_ERROR_INVALID_VALUE;
  /* No access until cuMemSetAccess. */
  void *memory =
      mmap((void *)(uintptr_t)pointer, size, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation->fd, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  struct block *block = block_add(BLOCK_MAPPED, (uintptr_t)pointer, size);
  block->device = allocation->device;
  block->allocation = allocation;
  allocation->mappings++;
  return CUDA_SUCCESS;
}

/* True when mappings cover exactly the range. */
static bool covered(uintptr_t address, size_t size) {
  uintptr_t at = address;
  while (at < address + size) {
    struct block *block = block_find(at);
    if (!block || block->kind != BLOCK_MAPPED || block->address != at) return false;
    at += block->size;
  }
  return at == address + size;
}

/* Does not wait for the GPU, as measured: so nothing queued may use the range. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
  ENTER(cuMemUnmap);
  uintptr_t address = (uintptr_t)pointer;
  if (!size || !covered(address, size))
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemUnmap: %#llx, %zu bytes: not mapped so", pointer,
                  size);
  const char *user = stream_using(address, size);
  if (user)
    return misuse(CUDA_ERROR_INVALID_VALUE,
                  "cuMemUnmap: %#llx, %zu bytes: %s that is queued uses it", pointer, size, user);
  for (struct block *block; (block = mapping_in(address, size));)
    block_remove(block);
  return CUDA_SUCCESS;
}

/* What the CPU's tables allow is the most that any device may do. */
static int protection_of(const struct block *block) {
  unsigned most = 0;
  for (int device = 0; device < DEVICE_MAX; device++)
    most |= block->access[device];
  if (most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return PROT_READ | PROT_WRITE;
  return most ? PROT_READ : PROT_NONE;
}

static CUresult set_access(uintptr_t address, size_t size, const CUmemAccessDesc *access) {
  if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!device_valid(access->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  for (struct block *block = block_list(); block; block = block->next) {
    if (block->address < address || block->address >= address + size) continue;
    block->access[access->location.id] = (unsigned char)access->flags;
    if (mprotect((void *)block->address, block->size, protection_of(block)) != 0)
      return CUDA_ERROR_OPERATING_SYSTEM;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *access,
                        size_t count) {
  ENTER(cuMemSetAccess);
  if (!access || !count || !size || !covered((uintptr_t)pointer, size))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = set_access((uintptr_t)pointer, size, &access[i]);
  return result;
}

/* Of memory that was not mapped in pieces the driver says 0, and copies it. */
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer) {
  ENTER(cuMemGetAccess);
  struct block *block = block_find((uintptr_t)pointer);
  if (!flags || !location || !block) return CUDA_ERROR_INVALID_VALUE;
  if (!device_valid(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = block->kind == BLOCK_MAPPED ? block->access[location->id] : 0;
  return CUDA_SUCCESS;
}

/* ---- Sharing ---- */

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  ENTER(cuMemExportToShareableHandle);
  struct allocation *allocation = allocation_of(handle);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !(allocation->properties.requestedHandleTypes & type))
    return CUDA_ERROR_INVALID_VALUE;
  int fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  memcpy(shareable, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

/* The descriptor itself stays the caller's. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type) {
  ENTER(cuMemImportFromShareableHandle);
  static const char prefix[] = "/memfd:fakecuda-vmm-";
  char name[64];
  int given = (int)(intptr_t)shareable;
  if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (!memory_file_is(given, prefix, name, sizeof name)) return CUDA_ERROR_INVALID_VALUE;
  struct stat status;
  int fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
  if (fd < 0 || fstat(fd, &status) != 0) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  int physical = atoi(name + sizeof prefix - 1);
  *handle = allocation_add(fd, (size_t)status.st_size, device_of_physical(physical));
  allocation_of(*handle)->imported = true;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle) {
  ENTER(cuMemGetAllocationPropertiesFromHandle);
  struct allocation *allocation = allocation_of(handle);
  if (!allocation || !properties) return CUDA_ERROR_INVALID_VALUE;
  *properties = allocation->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  ENTER(cuMemRetainAllocationHandle);
  struct block *block = block_find((uintptr_t)address);
  if (!handle || !block || block->kind != BLOCK_MAPPED) return CUDA_ERROR_INVALID_VALUE;
  struct allocation *allocation = block->allocation;
  if (allocation->references++ == 0)
    allocation->handle = (uintptr_t)handle_new(HANDLE_ALLOCATION, allocation);
  *handle = allocation->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags) {
  ENTER(cuMemGetHandleForAddressRange);
  if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags || pointer % 4096 ||
      size % 4096)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device_attribute(context_current()->device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  struct block *block;
  CUresult result = block_check((uintptr_t)pointer, size, false, &block);
  if (result != CUDA_SUCCESS) return result;
  int from = block->allocation ? block->allocation->fd : block->fd;
  int fd = from >= 0 ? fcntl(from, F_DUPFD_CLOEXEC, 3) : -1;
  if (fd < 0) return CUDA_ERROR_NOT_SUPPORTED;
  memcpy(handle, &fd, sizeof fd);
  return CUDA_SUCCESS;
}
