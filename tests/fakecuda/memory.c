/* SPDX-License-Identifier: MIT
 *
 * Memory: allocated on the device, managed, pinned, registered.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

static size_t whole_pages(size_t size) {
  return (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
}

/* Memory at a fresh address. `shared`: behind it is a file of its own, for other processes. */
CUresult memory_map_new(enum block_kind kind, size_t size, bool shared, struct block **out) {
  size_t mapped = whole_pages(size);
  int fd = shared ? memory_file("memory", mapped) : -1;
  if (shared && fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  uintptr_t address = address_take(mapped, GRANULARITY);
  int flags = (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_FIXED;
  void *memory = mmap((void *)address, mapped, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = block_add(kind, address, size);
  (*out)->mapped_size = mapped;
  (*out)->fd = fd;
  (*out)->context = context_current();
  (*out)->device = (*out)->context->device;
  return CUDA_SUCCESS;
}

static CUresult device_memory(enum block_kind kind, size_t size, bool shared,
                              CUdeviceptr *pointer) {
  if (!pointer || !size) return CUDA_ERROR_INVALID_VALUE;
  int device = context_current()->device;
  if (size > SIZE_MAX / 2 || !device_reserve_memory(device, whole_pages(size)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct block *block;
  CUresult result = memory_map_new(kind, size, shared, &block);
  if (result != CUDA_SUCCESS)
    device_return_memory(device, whole_pages(size));
  else
    *pointer = block->address;
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
  ENTER(cuMemAlloc_v2);
  return device_memory(BLOCK_DEVICE, size, true, pointer);
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned int flags) {
  ENTER(cuMemAllocManaged);
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return device_memory(BLOCK_MANAGED, size, false, pointer);
}

static struct block *block_based_at(uintptr_t address) {
  struct block *block = block_find(address);
  return block && block->address == address ? block : NULL;
}

CUresult memory_free_block(struct block *block) {
  if (ipc_is_open_elsewhere(block))
    return misuse(CUDA_ERROR_INVALID_VALUE,
                  "%s: another process still has the memory %p open (cuIpcOpenMemHandle)",
                  entry_current(), (void *)block->address);
  block_remove(block);
  return CUDA_SUCCESS;
}

/* The call has waited for all queued work (entry.c). */
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  ENTER(cuMemFree_v2);
  if (!pointer) return CUDA_SUCCESS;
  struct block *block = block_based_at((uintptr_t)pointer);
  if (!block || !block_on_device(block) || block->kind == BLOCK_MAPPED || block->kind == BLOCK_IPC)
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemFree: %#llx is no start of allocated memory",
                  pointer);
  return memory_free_block(block);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream handle) {
  ENTER(cuMemAllocAsync);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (!device_attribute(stream->context->device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  return device_memory(BLOCK_ASYNC, size, false, pointer);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  ENTER(cuMemFreeAsync);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return capture_invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  struct block *block = block_based_at((uintptr_t)pointer);
  if (!block || (block->kind != BLOCK_ASYNC && block->kind != BLOCK_DEVICE))
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync: %#llx is no start of allocated memory",
                  pointer);
  struct operation *operation = operation_new(OPERATION_FREE);
  operation->address = (uintptr_t)pointer;
  return stream_queue(stream, operation);
}

void memory_free_queued(uintptr_t address) {
  struct block *block = block_based_at(address);
  if (block) block_remove(block);
}

/* ---- Host memory ---- */

CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned int flags) {
  ENTER(cuMemHostAlloc);
  if (!pointer || !size || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  struct block *block;
  CUresult result = memory_map_new(BLOCK_HOST, size, false, &block);
  if (result != CUDA_SUCCESS) return result;
  block->flags = flags;
  *pointer = (void *)block->address;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *pointer) {
  ENTER(cuMemFreeHost);
  struct block *block = block_based_at((uintptr_t)pointer);
  if (!block || block->kind != BLOCK_HOST)
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost: %p was not allocated by cuMemHostAlloc",
                  pointer);
  block_remove(block);
  return CUDA_SUCCESS;
}

/* The protection that the range has in all its pages: PROT_READ | PROT_WRITE, or less. */
static int protection_of(uintptr_t start, uintptr_t end) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return 0;
  int protection = PROT_READ | PROT_WRITE;
  char line[512];
  while (start < end && fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    char read, write;
    if (sscanf(line, "%lx-%lx %c%c", &from, &to, &read, &write) != 4) continue;
    if (to <= start) continue;
    if (from > start) break; /* a hole */
    if (read != 'r') protection &= ~PROT_READ;
    if (write != 'w') protection &= ~PROT_WRITE;
    start = to;
  }
  fclose(maps);
  return start < end ? 0 : protection;
}

static bool overlaps(uintptr_t address, size_t size) {
  for (struct block *block = block_list(); block; block = block->next)
    if (block->address < address + size && address < block->address + block->size) return true;
  return false;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags) {
  ENTER(cuMemHostRegister_v2);
  uintptr_t address = (uintptr_t)pointer;
  int device = context_current()->device;
  if (!pointer || !size || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  bool read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
  if (read_only && !device_attribute(device, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!device_attribute(device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (overlaps(address, size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  int protection = protection_of(address, address + size);
  if (!(protection & PROT_READ)) return CUDA_ERROR_INVALID_VALUE;
  if (!(protection & PROT_WRITE) && !read_only) return CUDA_ERROR_INVALID_VALUE;
  struct block *block = block_add(BLOCK_REGISTERED, address, size);
  block->flags = flags;
  block->context = context_current();
  block->device = device;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *pointer) {
  ENTER(cuMemHostUnregister);
  struct block *block = block_based_at((uintptr_t)pointer);
  if (!block || block->kind != BLOCK_REGISTERED) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  block_remove(block);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned int flags) {
  ENTER(cuMemHostGetDevicePointer_v2);
  struct block *block = block_find((uintptr_t)host);
  if (!device || flags || !block || block_on_device(block)) return CUDA_ERROR_INVALID_VALUE;
  *device = (CUdeviceptr)(uintptr_t)host;
  return CUDA_SUCCESS;
}
