/* SPDX-License-Identifier: MIT
 *
 * Questions about a pointer.
 */
#include <string.h>

#include "fake.h"

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
  ENTER(cuMemGetAddressRange_v2);
  struct block *block = block_find((uintptr_t)pointer);
  if (!block) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = block->address;
  if (size) *size = block->size;
  return CUDA_SUCCESS;
}

/* Memory that is not bound to one context reports none. */
static CUcontext context_of(const struct block *block) {
  if (block->kind == BLOCK_MAPPED || block->kind == BLOCK_ASYNC) return NULL;
  return block->context ? block->context->handle : NULL;
}

static unsigned long long id_of(const struct block *block) { return block->id; }

/* What the device of the current context may do with it. */
static unsigned access_of(const struct block *block) {
  const struct context *context = context_current();
  int own = context ? context->device : block->device;
  if (block->kind == BLOCK_MAPPED && own >= 0) return block->access[own];
  bool near = block->kind != BLOCK_DEVICE || block->device < 0 || block->device == own;
  if (!near && !(context->peers & 1u << block->device)) return 0;
  return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static CUresult answer(const struct block *block, CUpointer_attribute attribute,
                       CUdeviceptr pointer, void *value) {
  bool device = block_on_device(block);
  bool managed = block->kind == BLOCK_MANAGED;
  switch ((int)attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = context_of(block); break;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned *)value = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    break;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = pointer; break;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    if (device && !managed) return CUDA_ERROR_INVALID_VALUE;
    *(void **)value = (void *)(uintptr_t)pointer;
    break;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = id_of(block); break;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = managed; break;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = block->device; break;
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    *(unsigned *)value = block->kind == BLOCK_DEVICE;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
  case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(CUdeviceptr *)value = block->address; break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
  case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)value = block->size; break;
  case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)value = 1; break;
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    *(unsigned long long *)value =
        block->allocation ? (unsigned long long)allocation_handle_types(block->allocation) : 0;
    break;
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(unsigned *)value = access_of(block); break;
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)value = NULL; break;
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)value = 0; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  ENTER(cuPointerGetAttribute);
  struct block *block = block_find((uintptr_t)pointer);
  if (!block || !value) return CUDA_ERROR_INVALID_VALUE;
  return answer(block, attribute, pointer, value);
}

static size_t size_of(CUpointer_attribute attribute) {
  switch ((int)attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
  case CU_POINTER_ATTRIBUTE_MAPPED:
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return 4;
  default: return 8;
  }
}

/* For a pointer that CUDA does not know this one succeeds, with zeros and device -2. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr pointer) {
  ENTER(cuPointerGetAttributes);
  struct block *block = block_find((uintptr_t)pointer);
  for (unsigned i = 0; i < count; i++) {
    memset(values[i], 0, size_of(attributes[i]));
    if (block)
      answer(block, attributes[i], pointer, values[i]);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      *(int *)values[i] = -2;
  }
  return CUDA_SUCCESS;
}
