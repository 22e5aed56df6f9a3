/* SPDX-License-Identifier: MIT
 *
 * Legacy interprocess handles. A handle names a memfd of the exporting process, which the importer
 * opens through /proc: nothing has a name that could be left behind, and a dead process's handles
 * can't be opened. An importer holds a lock on the file while it has it open, so that the exporter
 * can be told when it frees too early; the lock dies with the importer.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

#define MAGIC 0x66616b65u

struct ipc_handle {
  uint32_t magic;
  uint32_t event; /* 1: an event, 0: memory */
  int32_t process;
  int32_t fd;
  uint64_t id;
  uint64_t size;
  int32_t physical_device;
  char rest[CU_IPC_HANDLE_SIZE - 36];
};
_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "fits a CUDA handle");

/* The descriptor number alone could name another file by now: its inode is part of the identity. */
static uint64_t inode_of(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

static void fill(void *handle, const struct ipc_handle *content) {
  memset(handle, 0, CU_IPC_HANDLE_SIZE);
  memcpy(handle, content, sizeof *content);
}

/* A descriptor of the exporter's file. */
static CUresult open_file(const struct ipc_handle *handle, bool event, int *fd) {
  char path[48];
  char name[64];
  if (handle->magic != MAGIC || handle->event != (event ? 1u : 0u)) return CUDA_ERROR_INVALID_VALUE;
  /* Facts: a handle opened in the process that made it is an invalid context. */
  if (handle->process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->process, (int)handle->fd);
  *fd = open(path, O_RDWR | O_CLOEXEC);
  if (*fd < 0) return CUDA_ERROR_INVALID_HANDLE;
  if (memory_file_is(*fd, "/memfd:fakecuda-", name, sizeof name) && inode_of(*fd) == handle->id)
    return CUDA_SUCCESS;
  close(*fd);
  return CUDA_ERROR_INVALID_HANDLE;
}

/* ---- Events ---- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle) {
  ENTER(cuIpcGetEventHandle);
  struct event *event = handle_get(HANDLE_EVENT, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (!device_attribute(event->context->device, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (event->fd < 0) return CUDA_ERROR_INVALID_HANDLE;
  struct ipc_handle content = {
      .magic = MAGIC, .event = 1, .process = getpid(), .fd = event->fd, .id = inode_of(event->fd)};
  fill(out, &content);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *handle, CUipcEventHandle in) {
  ENTER(cuIpcOpenEventHandle);
  struct ipc_handle content;
  memcpy(&content, &in, sizeof content);
  int fd;
  CUresult result = open_file(&content, true, &fd);
  if (result != CUDA_SUCCESS) return result;
  struct event *event;
  result = event_from_file(fd, &event);
  close(fd);
  if (result == CUDA_SUCCESS) *handle = event->handle;
  return result;
}

/* ---- Memory ---- */

bool ipc_is_open_elsewhere(const struct block *block) {
  if (block->kind != BLOCK_DEVICE || block->fd < 0) return false;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(block->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr pointer) {
  ENTER(cuIpcGetMemHandle);
  struct block *block;
  CUresult result = block_check((uintptr_t)pointer, 1, false, &block);
  if (result != CUDA_SUCCESS) return result;
  if (block->kind != BLOCK_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  struct ipc_handle content = {.magic = MAGIC,
                               .process = getpid(),
                               .fd = block->fd,
                               .id = inode_of(block->fd),
                               .size = block->mapped_size, /* whole 2 MiB blocks */
                               .physical_device = device_physical(block->device)};
  fill(out, &content);
  return CUDA_SUCCESS;
}

static struct block *opened_before(const void *handle) {
  for (struct block *block = block_list(); block; block = block->next)
    if (block->kind == BLOCK_IPC && block->context == context_current() &&
        memcmp(block->ipc, handle, CU_IPC_HANDLE_SIZE) == 0)
      return block;
  return NULL;
}

static CUresult map_opened(int fd, const struct ipc_handle *content, struct block **out) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  if (fcntl(fd, F_OFD_SETLK, &lock) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  uintptr_t address = address_take(content->size, GRANULARITY);
  void *memory =
      mmap((void *)address, content->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *out = block_add(BLOCK_IPC, address, content->size);
  (*out)->fd = fd;
  (*out)->context = context_current();
  (*out)->device = device_of_physical(content->physical_device);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle in, unsigned int flags) {
  ENTER(cuIpcOpenMemHandle_v2);
  if (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  struct block *block = opened_before(&in);
  if (block) {
    block->opened++;
    *pointer = block->address;
    return CUDA_SUCCESS;
  }
  struct ipc_handle content;
  memcpy(&content, &in, sizeof content);
  int fd;
  CUresult result = open_file(&content, false, &fd);
  if (result != CUDA_SUCCESS) return result;
  result = map_opened(fd, &content, &block);
  if (result != CUDA_SUCCESS) {
    close(fd);
    return result;
  }
  memcpy(block->ipc, &in, sizeof in);
  block->opened = 1;
  *pointer = block->address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  ENTER(cuIpcCloseMemHandle);
  struct block *block = block_find((uintptr_t)pointer);
  if (!block || block->kind != BLOCK_IPC || block->address != pointer)
    return misuse(CUDA_ERROR_INVALID_VALUE, "cuIpcCloseMemHandle: %#llx is no opened memory",
                  pointer);
  if (--block->opened == 0) block_remove(block);
  return CUDA_SUCCESS;
}
