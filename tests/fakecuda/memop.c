/* SPDX-License-Identifier: MIT
 *
 * Stream memory operations: a stream writes a word, or waits for one.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define COMPARISONS 3u /* the bits of the flags that choose how a wait compares */

/* Greater or equal is cyclic: the difference counts, as a signed number. */
bool memory_operation_ready(const CUstreamBatchMemOpParams *params) {
  unsigned how = params->waitValue.flags & COMPARISONS;
  if (params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
    uint64_t now = atomic_load((const _Atomic uint64_t *)params->waitValue.address);
    uint64_t value = params->waitValue.value64;
    if (how == CU_STREAM_WAIT_VALUE_GEQ) return (int64_t)(now - value) >= 0;
    if (how == CU_STREAM_WAIT_VALUE_EQ) return now == value;
    return how == CU_STREAM_WAIT_VALUE_AND ? (now & value) != 0 : ~(now | value) != 0;
  }
  if (params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
    uint32_t now = atomic_load((const _Atomic uint32_t *)params->waitValue.address);
    uint32_t value = params->waitValue.value;
    if (how == CU_STREAM_WAIT_VALUE_GEQ) return (int32_t)(now - value) >= 0;
    if (how == CU_STREAM_WAIT_VALUE_EQ) return now == value;
    return how == CU_STREAM_WAIT_VALUE_AND ? (now & value) != 0 : ~(now | value) != 0;
  }
  return true;
}

static CUresult check_word(CUdeviceptr address, size_t size) {
  if (address % size) return CUDA_ERROR_INVALID_VALUE;
  return block_check((uintptr_t)address, size, false, NULL);
}

static CUresult check_one(const CUstreamBatchMemOpParams *params) {
  int device = context_current()->device;
  bool wide = params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
              params->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (wide && !device_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
    return CUDA_ERROR_NOT_SUPPORTED;
  switch (params->operation) {
  case CU_STREAM_MEM_OP_WAIT_VALUE_32:
  case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    if (params->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;
    if (params->waitValue.flags & ~COMPARISONS) return CUDA_ERROR_INVALID_VALUE;
    return check_word(params->waitValue.address, wide ? 8 : 4);
  case CU_STREAM_MEM_OP_WRITE_VALUE_32:
  case CU_STREAM_MEM_OP_WRITE_VALUE_64:
    /* As measured: writing without a barrier is an invalid argument on an H200. */
    if (params->writeValue.flags) return CUDA_ERROR_INVALID_VALUE;
    return check_word(params->writeValue.address, wide ? 8 : 4);
  case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;
  default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult memory_operation_new(unsigned count, const CUstreamBatchMemOpParams *params,
                              struct operation **out) {
  if (!params || count == 0 || count > 256) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    CUresult result = check_one(&params[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  struct operation *operation = operation_new(OPERATION_MEMORY);
  operation->owned_size = count * sizeof *params;
  operation->owned = malloc(operation->owned_size);
  if (!operation->owned) fake_abort("out of memory");
  memcpy(operation->owned, params, operation->owned_size);
  operation->memory.params = operation->owned;
  operation->memory.count = count;
  /* Each member has the address at the same place. Words close together share one range. */
  for (unsigned i = 0; i < count; i++) {
    if (params[i].operation == CU_STREAM_MEM_OP_BARRIER) continue;
    uintptr_t page = (uintptr_t)params[i].waitValue.address & ~(uintptr_t)63;
    if (operation->use_count == USES_MAX) break;
    operation_use(operation, page, 64, params[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64);
  }
  *out = operation;
  return CUDA_SUCCESS;
}

static CUresult queue(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *params) {
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  struct operation *operation;
  if (result == CUDA_SUCCESS) result = memory_operation_new(count, params, &operation);
  return result == CUDA_SUCCESS ? stream_queue(stream, operation) : result;
}

static CUresult queue_one(CUstream handle, CUstreamBatchMemOpType operation, CUdeviceptr address,
                          uint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams params;
  memset(&params, 0, sizeof params);
  params.waitValue.operation = operation;
  params.waitValue.address = address;
  params.waitValue.value64 = value;
  params.waitValue.flags = flags;
  return queue(handle, 1, &params);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags) {
  ENTER(cuStreamWriteValue32_v2);
  return queue_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags) {
  ENTER(cuStreamWriteValue64_v2);
  return queue_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  ENTER(cuStreamWaitValue32_v2);
  return queue_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags) {
  ENTER(cuStreamWaitValue64_v2);
  return queue_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *params, unsigned int flags) {
  ENTER(cuStreamBatchMemOp_v2);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  return queue(stream, count, params);
}
