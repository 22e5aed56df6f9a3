/* SPDX-License-Identifier: MIT
 *
 * Address space and what lives in it. An address is given out once: what was freed or unmapped
 * stays recognisable, and touching it faults.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

#define CHUNK ((size_t)64 << 30)
#define CHUNK_MAX 256

static struct { uintptr_t start, next, end; } chunks[CHUNK_MAX];
static size_t chunk_count;
static struct block *blocks;

static size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

static void add_chunk(size_t size) {
  if (chunk_count == CHUNK_MAX) fake_abort("out of address space");
  size += GRANULARITY;
  void *start = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) fake_abort("no address space for device memory");
  chunks[chunk_count].start = chunks[chunk_count].next = (uintptr_t)start;
  chunks[chunk_count++].end = (uintptr_t)start + size;
}

uintptr_t address_take(size_t size, size_t alignment) {
  size = round_up(size, GRANULARITY);
  if (alignment < GRANULARITY) alignment = GRANULARITY;
  for (int attempt = 0; attempt < 2; attempt++) {
    if (chunk_count) {
      uintptr_t address = round_up(chunks[chunk_count - 1].next, alignment);
      /* A gap behind each range catches an access past its end. */
      if (address + size + GRANULARITY <= chunks[chunk_count - 1].end) {
        chunks[chunk_count - 1].next = address + size + GRANULARITY;
        return address;
      }
    }
    add_chunk(size + alignment + GRANULARITY > CHUNK ? size + alignment + GRANULARITY : CHUNK);
  }
  fake_abort("no address space for %zu bytes", size);
}

bool address_is_ours(uintptr_t address) {
  for (size_t i = 0; i < chunk_count; i++)
    if (address >= chunks[i].start && address < chunks[i].end) return true;
  return false;
}

void address_wipe(uintptr_t address, size_t size) {
  void *result = mmap((void *)address, size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (result == MAP_FAILED) fake_abort("cannot unmap %p", (void *)address);
}

int memory_file(const char *what, size_t size) {
  char name[64];
  snprintf(name, sizeof name, "fakecuda-%s", what);
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

bool memory_file_is(int fd, const char *prefix, char *name, size_t name_size) {
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(path, name, name_size - 1);
  if (length < 0) return false;
  name[length] = 0;
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

struct block *block_list(void) {
  return blocks;
}

size_t block_count(void) {
  size_t count = 0;
  for (const struct block *block = blocks; block; block = block->next)
    if (block->kind != BLOCK_REGISTERED) count += block->kind == BLOCK_IPC ? block->opened : 1;
  return count;
}

struct block *block_add(enum block_kind kind, uintptr_t address, size_t size) {
  struct block *block = calloc(1, sizeof *block);
  if (!block) fake_abort("out of memory");
  block->kind = kind;
  block->address = address;
  block->size = size;
  block->mapped_size = size;
  block->fd = -1;
  block->id = ++fake.next_id;
  block->next = blocks;
  blocks = block;
  return block;
}

void block_remove(struct block *block) {
  struct block **link = &blocks;
  while (*link != block)
    link = &(*link)->next;
  *link = block->next;
  if (block->kind != BLOCK_REGISTERED) address_wipe(block->address, block->mapped_size);
  if (block->kind == BLOCK_DEVICE || block->kind == BLOCK_ASYNC || block->kind == BLOCK_MANAGED)
    device_return_memory(block->device, block->mapped_size);
  if (block->kind == BLOCK_MAPPED) allocation_unmapped(block->allocation);
  if (block->fd >= 0) close(block->fd);
  free(block);
}

struct block *block_find(uintptr_t address) {
  for (struct block *block = blocks; block; block = block->next)
    if (address - block->address < block->size) return block;
  return NULL;
}

bool block_on_device(const struct block *block) {
  return block->kind != BLOCK_HOST && block->kind != BLOCK_REGISTERED;
}

CUresult block_check(uintptr_t address, size_t size, bool host, struct block **out) {
  struct block *block = block_find(address);
  if (out) *out = block;
  if (!block && address_is_ours(address))
    return misuse(CUDA_ERROR_INVALID_VALUE, "%s: %p was freed, unmapped or never mapped",
                  entry_current(), (void *)address);
  if (!block) return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  /* Mappings and registrations that follow one another may be used as one range. */
  uintptr_t end = address + size;
  while (block && end > block->address + block->size)
    block = block_find(block->address + block->size);
  return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool block_allows(uintptr_t address, int device, bool write) {
  const struct block *block = block_find(address);
  if (!block) return true;
  if (block->kind == BLOCK_REGISTERED && write)
    return !(block->flags & CU_MEMHOSTREGISTER_READ_ONLY);
  if (block->kind != BLOCK_MAPPED) return true;
  unsigned needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  return (block->access[device] & needed) == needed;
}
