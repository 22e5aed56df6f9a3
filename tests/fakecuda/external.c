/* SPDX-License-Identifier: MIT
 *
 * Memory and timeline semaphores of a graphics API. Here both are memfds: the memory's bytes, and
 * the semaphore's value in the first 8 bytes. Images are linear, level after level.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

#define LEVEL_MAX 16u
#define PAGE 4096u

struct external_memory {
  int fd;
  size_t size;
};

struct mipmap {
  unsigned char *mapping;
  size_t mapping_size;
  unsigned levels;
  struct array arrays[LEVEL_MAX];
};

struct semaphore {
  _Atomic uint64_t *word;
  uint64_t signalled; /* highest value that this process queued */
  unsigned references;
};

static size_t file_size(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? (size_t)status.st_size : 0;
}

/* ---- Memory ---- */

CUresult cuImportExternalMemory(CUexternalMemory *out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor) {
  ENTER(cuImportExternalMemory);
  if (!out || !descriptor) return CUDA_ERROR_INVALID_VALUE;
  if (descriptor->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if (!descriptor->size || descriptor->size > file_size(descriptor->handle.fd))
    return CUDA_ERROR_INVALID_VALUE;
  struct external_memory *memory = calloc(1, sizeof *memory);
  if (!memory) fake_abort("out of memory");
  memory->fd = descriptor->handle.fd; /* taken over, on success only */
  memory->size = descriptor->size;
  *out = handle_new(HANDLE_EXTERNAL_MEMORY, memory);
  return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory handle) {
  ENTER(cuDestroyExternalMemory);
  struct external_memory *memory = handle_get(HANDLE_EXTERNAL_MEMORY, handle);
  if (!memory) return CUDA_ERROR_INVALID_HANDLE;
  handle_drop(handle);
  close(memory->fd);
  free(memory);
  return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory handle,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *descriptor) {
  ENTER(cuExternalMemoryGetMappedBuffer);
  struct external_memory *memory = handle_get(HANDLE_EXTERNAL_MEMORY, handle);
  if (!memory) return CUDA_ERROR_INVALID_HANDLE;
  if (!pointer || descriptor->flags || !descriptor->size || descriptor->size > memory->size ||
      descriptor->offset > memory->size - descriptor->size || descriptor->offset % PAGE)
    return CUDA_ERROR_INVALID_VALUE;
  uintptr_t address = address_take(descriptor->size, GRANULARITY);
  void *mapping = mmap((void *)address, descriptor->size, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, memory->fd, (off_t)descriptor->offset);
  if (mapping == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  struct block *block = block_add(BLOCK_EXTERNAL, address, descriptor->size);
  block->context = context_current();
  block->device = block->context->device;
  *pointer = address;
  return CUDA_SUCCESS;
}

static size_t at_least_one(size_t value) { return value ? value : 1; }

/* The next level's array, at offset `at` of the mapping. Returns its size. */
static size_t add_level(struct mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *first, size_t at) {
  unsigned level = mipmap->levels++;
  struct array *array = &mipmap->arrays[level];
  array->descriptor = *first;
  array->descriptor.Width = at_least_one(first->Width >> level);
  array->descriptor.Height = first->Height ? at_least_one(first->Height >> level) : 0;
  array->descriptor.Depth = first->Depth ? at_least_one(first->Depth >> level) : 0;
  array->context = context_current();
  array->pitch = array->descriptor.Width * array_texel_size(first);
  array->size =
      array->pitch * at_least_one(array->descriptor.Height) * at_least_one(array->descriptor.Depth);
  array->memory = mipmap->mapping + at;
  array->handle = handle_new(HANDLE_ARRAY, array);
  return array->size;
}

static size_t levels_size(const CUDA_ARRAY3D_DESCRIPTOR *first, unsigned levels) {
  size_t size = 0;
  for (unsigned level = 0; level < levels; level++)
    size += at_least_one(first->Width >> level) * array_texel_size(first) *
            at_least_one(first->Height >> level) * at_least_one(first->Depth >> level);
  return size;
}

CUresult cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray *out, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *descriptor) {
  ENTER(cuExternalMemoryGetMappedMipmappedArray);
  struct external_memory *memory = handle_get(HANDLE_EXTERNAL_MEMORY, handle);
  if (!memory) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR *first = &descriptor->arrayDesc;
  unsigned levels = descriptor->numLevels;
  if (!out || !first->Width || !array_texel_size(first) || !levels || levels > LEVEL_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (descriptor->offset > memory->size ||
      levels_size(first, levels) > memory->size - descriptor->offset)
    return CUDA_ERROR_INVALID_VALUE;
  struct mipmap *mipmap = calloc(1, sizeof *mipmap);
  if (!mipmap) fake_abort("out of memory");
  mipmap->mapping_size = memory->size;
  mipmap->mapping = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
  if (mipmap->mapping == MAP_FAILED) {
    free(mipmap);
    return CUDA_ERROR_MAP_FAILED;
  }
  size_t at = descriptor->offset;
  while (mipmap->levels < levels)
    at += add_level(mipmap, first, at);
  *out = handle_new(HANDLE_MIPMAP, mipmap);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray handle, unsigned int level) {
  ENTER(cuMipmappedArrayGetLevel);
  struct mipmap *mipmap = handle_get(HANDLE_MIPMAP, handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  if (!array || level >= mipmap->levels) return CUDA_ERROR_INVALID_VALUE;
  *array = mipmap->arrays[level].handle;
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  ENTER(cuMipmappedArrayDestroy);
  struct mipmap *mipmap = handle_get(HANDLE_MIPMAP, handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  handle_drop(handle);
  for (unsigned level = 0; level < mipmap->levels; level++)
    handle_drop(mipmap->arrays[level].handle);
  munmap(mipmap->mapping, mipmap->mapping_size);
  free(mipmap);
  return CUDA_SUCCESS;
}

/* ---- Semaphores ---- */

void semaphore_retain(struct semaphore *semaphore) { semaphore->references++; }

void semaphore_release(struct semaphore *semaphore) {
  if (--semaphore->references) return;
  munmap((void *)semaphore->word, PAGE);
  free(semaphore);
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *out,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *descriptor) {
  ENTER(cuImportExternalSemaphore);
  if (!out || !descriptor || descriptor->flags) return CUDA_ERROR_INVALID_VALUE;
  if (descriptor->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!device_attribute(context_current()->device,
                        CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (file_size(descriptor->handle.fd) < sizeof(uint64_t)) return CUDA_ERROR_INVALID_VALUE;
  void *word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor->handle.fd, 0);
  if (word == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  struct semaphore *semaphore = calloc(1, sizeof *semaphore);
  if (!semaphore) fake_abort("out of memory");
  semaphore->word = word;
  semaphore->references = 1;
  close(descriptor->handle.fd); /* taken over, on success only */
  *out = handle_new(HANDLE_EXTERNAL_SEMAPHORE, semaphore);
  return CUDA_SUCCESS;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
  ENTER(cuDestroyExternalSemaphore);
  struct semaphore *semaphore = handle_get(HANDLE_EXTERNAL_SEMAPHORE, handle);
  if (!semaphore) return CUDA_ERROR_INVALID_HANDLE;
  if (semaphore->references > 1)
    return misuse(CUDA_ERROR_INVALID_VALUE,
                  "cuDestroyExternalSemaphore: %p: a signal or wait for it is still queued",
                  (void *)handle);
  handle_drop(handle);
  semaphore_release(semaphore);
  return CUDA_SUCCESS;
}

static CUresult queue_one(struct stream *stream, enum operation_kind kind,
                          CUexternalSemaphore handle, uint64_t value) {
  struct semaphore *semaphore = handle_get(HANDLE_EXTERNAL_SEMAPHORE, handle);
  if (!semaphore) return CUDA_ERROR_INVALID_HANDLE;
  if (kind == OPERATION_SIGNAL) {
    if (value <= semaphore->signalled || value <= atomic_load(semaphore->word))
      return misuse(CUDA_ERROR_INVALID_VALUE,
                    "cuSignalExternalSemaphoresAsync: %llu is not above the semaphore's value",
                    (unsigned long long)value);
    semaphore->signalled = value;
  }
  struct operation *operation = operation_new(kind);
  operation->semaphore.word = semaphore->word;
  operation->semaphore.semaphore = semaphore;
  operation->semaphore.value = value;
  semaphore_retain(semaphore);
  return stream_queue(stream, operation);
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                         unsigned int count, CUstream handle) {
  ENTER(cuSignalExternalSemaphoresAsync);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = queue_one(stream, OPERATION_SIGNAL, semaphores[i], params[i].params.fence.value);
  return result;
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                                       unsigned int count, CUstream handle) {
  ENTER(cuWaitExternalSemaphoresAsync);
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
    result =
        queue_one(stream, OPERATION_WAIT_SEMAPHORE, semaphores[i], params[i].params.fence.value);
  return result;
}
