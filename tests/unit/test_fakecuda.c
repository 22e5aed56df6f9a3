/* SPDX-License-Identifier: MIT
 *
 * The fake CUDA driver in one process: streams are asynchronous and ordered as CUDA's are, memory
 * and graphs do what their calls say, blocking calls block.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "testing.h"

static CUcontext context;
static CUstream stream, other;

static int set_up(void **state) {
  (void)state;
  context = use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, -3));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  fakecuda_pause(0);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamSynchronize(other));
  OK(cuStreamDestroy(stream));
  OK(cuStreamDestroy(other));
  OK(cuDevicePrimaryCtxRelease(0));
  return 0;
}

static void test_device(void **state) {
  (void)state;
  int value;
  char name[64];
  CUuuid uuid, zero;
  memset(&zero, 0, sizeof zero);
  OK(cuDeviceGetCount(&value));
  assert_int_equal(value, 1);
  OK(cuDeviceGetName(name, sizeof name, 0));
  OK(cuDeviceGetUuid(&uuid, 0));
  assert_memory_not_equal(&uuid, &zero, sizeof uuid);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  assert_int_equal(value, 9);
  RESULT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&value, 1));
  fakecuda_set_attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED, 1);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0));
  assert_int_equal(value, 1);
  fakecuda_set_attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED, 0);
}

static void test_contexts(void **state) {
  (void)state;
  CUcontext current, second;
  CUdevice device;
  OK(cuCtxCreate(&second, 0, 0));
  OK(cuCtxGetCurrent(&current));
  assert_ptr_equal(current, second);
  OK(cuCtxPushCurrent(context));
  OK(cuStreamGetCtx(stream, &current));
  assert_ptr_equal(current, context);
  OK(cuCtxPopCurrent(&current));
  assert_ptr_equal(current, context);
  OK(cuCtxGetDevice(&device));
  OK(cuCtxDestroy(second));
  OK(cuCtxGetCurrent(&current));
  assert_ptr_equal(current, context);
}

/* A copy is queued, not done: with the streams held, nothing moves. */
static void test_copies_are_asynchronous(void **state) {
  (void)state;
  CUdeviceptr a, b;
  unsigned char *host;
  OK(cuMemAlloc(&a, MIB));
  OK(cuMemAlloc(&b, MIB));
  OK(cuMemHostAlloc((void **)&host, MIB, 0));
  memset(host, 7, MIB);
  uint64_t copies = fakecuda_copies();
  fakecuda_pause(1);
  OK(cuMemcpyHtoDAsync(a, host, MIB, stream));
  OK(cuMemcpyDtoDAsync(b, a, MIB, stream));
  memset(host, 9, MIB); /* pinned memory is read when the stream gets there */
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  assert_int_equal(fakecuda_pending(), 2);
  fakecuda_pause(0);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamQuery(stream));
  unsigned char back[64];
  OK(cuMemcpyDtoH(back, b, sizeof back));
  assert_int_equal(back[0], 9);
  assert_int_equal(fakecuda_copies() - copies, 3);
  OK(cuMemFree(a));
  OK(cuMemFree(b));
  OK(cuMemFreeHost(host));
}

/* Pageable memory is taken before the call returns. */
static void test_pageable_source_is_staged(void **state) {
  (void)state;
  CUdeviceptr a;
  unsigned char source[256], back[256];
  OK(cuMemAlloc(&a, sizeof source));
  memset(source, 1, sizeof source);
  fakecuda_pause(1);
  OK(cuMemcpyHtoDAsync(a, source, sizeof source, stream));
  memset(source, 2, sizeof source);
  fakecuda_pause(0);
  uint64_t waiting = fakecuda_waiting_calls();
  OK(cuMemcpyDtoHAsync(back, a, sizeof back, stream)); /* blocks, and is counted as such */
  assert_int_equal(back[255], 1);
  assert_int_equal(fakecuda_waiting_calls(), waiting + 1);
  OK(cuMemFree(a));
}

static void test_pitched_copy(void **state) {
  (void)state;
  CUdeviceptr a;
  unsigned char source[4 * 8], back[3 * 5];
  for (unsigned i = 0; i < sizeof source; i++)
    source[i] = (unsigned char)i;
  OK(cuMemAlloc(&a, 4096));
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = source,
                        .srcPitch = 8,
                        .srcXInBytes = 2,
                        .srcY = 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = a,
                        .dstPitch = 512,
                        .WidthInBytes = 5,
                        .Height = 3};
  OK(cuMemcpy2DAsync(&copy, stream));
  CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = a,
                       .srcPitch = 512,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back,
                       .dstPitch = 5,
                       .WidthInBytes = 5,
                       .Height = 3};
  OK(cuMemcpy2DAsync(&out, stream));
  assert_int_equal(back[0], 8 + 2);
  assert_int_equal(back[14], 3 * 8 + 6);
  copy.Height = 9; /* 8 rows of 512 bytes and 5 more do not fit */
  RESULT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync(&copy, stream));
  OK(cuMemFree(a));
}

static void test_fills(void **state) {
  (void)state;
  CUdeviceptr a;
  uint32_t back[16];
  OK(cuMemAlloc(&a, sizeof back));
  OK(cuMemsetD32Async(a, 0x01020304, 16, stream));
  OK(cuMemsetD8Async(a + 4, 0xff, 4, stream));
  OK(cuMemsetD2D32Async(a + 8, 16, 5, 1, 3, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(back, a, sizeof back));
  assert_int_equal(back[0], 0x01020304);
  assert_int_equal(back[1], 0xffffffff);
  assert_int_equal(back[2], 5);
  assert_int_equal(back[6], 5);
  assert_int_equal(back[7], 0x01020304);
  OK(cuMemFree(a));
}

static void test_events_order_streams(void **state) {
  (void)state;
  CUdeviceptr a;
  CUevent event;
  unsigned char *host;
  OK(cuMemAlloc(&a, MIB));
  OK(cuMemHostAlloc((void **)&host, MIB, 0));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  fakecuda_set_delay(2000);
  for (int round = 1; round < 20; round++) {
    OK(cuMemsetD8Async(a, (unsigned char)round, MIB, stream));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(cuMemcpyDtoHAsync(host, a, MIB, other));
    OK(cuStreamSynchronize(other));
    assert_int_equal(host[0], round);
    assert_int_equal(host[MIB - 1], round);
    OK(cuEventQuery(event));
  }
  fakecuda_set_delay(0);
  OK(cuEventDestroy(event));
  OK(cuMemFreeHost(host));
  OK(cuMemFree(a));
}

/* The same without the wait: the reader sees an old frame or a torn one. */
static void test_missing_wait_tears(void **state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  return; /* which would report the race */
#endif
  CUdeviceptr a;
  unsigned char *host;
  int torn = 0;
  OK(cuMemAlloc(&a, MIB));
  OK(cuMemHostAlloc((void **)&host, MIB, 0));
  fakecuda_set_delay(2000);
  for (int round = 1; round < 200 && !torn; round++) {
    OK(cuMemsetD8Async(a, (unsigned char)round, MIB, stream));
    OK(cuMemcpyDtoHAsync(host, a, MIB, other));
    OK(cuStreamSynchronize(other));
    torn = host[0] != (unsigned char)round || host[MIB - 1] != (unsigned char)round;
    OK(cuStreamSynchronize(stream));
  }
  fakecuda_set_delay(0);
  assert_true(torn);
  OK(cuMemFreeHost(host));
  OK(cuMemFree(a));
}

static void store(void *word) { atomic_store((_Atomic int *)word, 1); }
static void wait_for(void *word) { UNTIL(atomic_load((_Atomic int *)word)); }

/* The default stream waits for blocking streams and they for it; non-blocking ones do not care. */
static void test_legacy_stream_order(void **state) {
  (void)state;
  CUstream blocking;
  _Atomic int gate = 0, after = 0, free_after = 0;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  OK(cuLaunchHostFunc(blocking, wait_for, &gate));
  uint64_t legacy = fakecuda_legacy_operations();
  OK(cuLaunchHostFunc(CU_STREAM_LEGACY, store, &after));
  assert_int_equal(fakecuda_legacy_operations(), legacy + 1);
  OK(cuLaunchHostFunc(stream, store, &free_after));
  OK(cuStreamSynchronize(stream));
  assert_int_equal(free_after, 1);
  assert_int_equal(after, 0);
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
  gate = 1;
  OK(cuStreamSynchronize(NULL));
  assert_int_equal(after, 1);
  OK(cuStreamDestroy(blocking));
}

/* A wait is for what was recorded at its call, on whatever stream the event is recorded again. */
static void test_event_recorded_again_elsewhere(void **state) {
  (void)state;
  CUstream waiting;
  CUevent event;
  OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (int round = 0; round < 200; round++) { /* more records than are told apart */
    _Atomic int gate = 0, after = 0;
    OK(cuLaunchHostFunc(stream, wait_for, &gate));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(waiting, event, 0));
    OK(cuLaunchHostFunc(waiting, store, &after));
    OK(cuEventRecord(event, other));
    OK(cuEventSynchronize(event));
    RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    assert_int_equal(after, 0);
    gate = 1;
    OK(cuStreamSynchronize(waiting));
    assert_int_equal(after, 1);
  }
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(waiting));
}

static void test_memory_operations(void **state) {
  (void)state;
  _Atomic uint64_t *words;
  CUdeviceptr at;
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  OK(cuMemHostGetDevicePointer(&at, words, 0));
  OK(cuStreamWaitValue64(stream, at, 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWriteValue64(stream, at + 8, 42, 0));
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  words[0] = 6; /* the CPU of whoever shares the word */
  OK(cuStreamSynchronize(stream));
  assert_int_equal(words[1], 42);
  /* Cyclic: 6 is above a value just below zero. */
  OK(cuStreamWaitValue64(stream, at, UINT64_MAX - 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWaitValue32(stream, at, UINT32_MAX - 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamSynchronize(stream));

  OK(cuStreamWaitValue32(stream, at + 16, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamWaitValue32(stream, at + 24, 6, CU_STREAM_WAIT_VALUE_AND));
  OK(cuStreamWaitValue64(stream, at + 32, UINT64_MAX - 1, CU_STREAM_WAIT_VALUE_NOR));
  OK(cuStreamWriteValue32(other, at + 16, 1, 0));
  OK(cuStreamWriteValue32(other, at + 24, 4, 0));
  OK(cuStreamSynchronize(stream));
  RESULT(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, at, 1, 1));
  RESULT(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, at + 4, 1, 0));
  RESULT(CUDA_ERROR_INVALID_VALUE,
         cuStreamWriteValue64(stream, (CUdeviceptr)(uintptr_t)&context, 1, 0));
  fakecuda_set_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0);
  RESULT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue64(stream, at, 1, 0));
  OK(cuStreamWriteValue32(stream, at, 1, 0));
  fakecuda_set_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1);
  OK(cuStreamSynchronize(stream));
  OK(cuMemFreeHost((void *)words));
}

/* A batch is carried out in order: the write behind a wait stays away until the wait is over. */
static void test_batch(void **state) {
  (void)state;
  _Atomic uint64_t *words;
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)words;
  CUstreamBatchMemOpParams batch[3];
  memset(batch, 0, sizeof batch);
  batch[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  batch[0].writeValue.address = at;
  batch[0].writeValue.value64 = 1;
  batch[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[1].waitValue.address = at + 8;
  batch[1].waitValue.value = 1;
  batch[2].writeValue = batch[0].writeValue;
  batch[2].writeValue.address = at + 16;
  OK(cuStreamBatchMemOp(stream, 3, batch, 0));
  memset(batch, 0, sizeof batch); /* taken at the call */
  UNTIL(words[0] == 1);
  assert_int_equal(words[2], 0);
  words[1] = 1;
  OK(cuStreamSynchronize(stream));
  assert_int_equal(words[2], 1);
  OK(cuMemFreeHost((void *)words));
}

static void test_registered_memory(void **state) {
  (void)state;
  int fd = memfd_create("words", MFD_CLOEXEC);
  assert_int_equal(ftruncate(fd, 8192), 0);
  _Atomic uint64_t *writable = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void *read_only = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
  CUdeviceptr at;
  RESULT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(read_only, 8192, 0));
  OK(cuMemHostRegister(read_only, 8192, CU_MEMHOSTREGISTER_READ_ONLY));
  RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
         cuMemHostRegister(read_only, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
  OK(cuMemHostGetDevicePointer(&at, read_only, 0));
  OK(cuStreamWaitValue64(stream, at, 3, CU_STREAM_WAIT_VALUE_GEQ));
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  writable[0] = 3;
  OK(cuStreamSynchronize(stream));
  OK(cuMemHostUnregister(read_only));
  RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(read_only));
  munmap(read_only, 8192);
  RESULT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(read_only, 8192, 0));
  munmap((void *)writable, 8192);
  close(fd);
}

static void test_pointers(void **state) {
  (void)state;
  CUdeviceptr device, managed, base;
  void *host;
  size_t size;
  int local;
  OK(cuMemAlloc(&device, 1000));
  OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemHostAlloc(&host, 100, 0));
  OK(cuMemGetAddressRange(&base, &size, device + 900));
  assert_int_equal(base, device);
  assert_int_equal(size, 1000);
  RESULT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)&local));
  unsigned type = 0, is_managed = 0;
  int ordinal = 0;
  CUcontext owner;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host));
  assert_int_equal(type, CU_MEMORYTYPE_HOST);
  OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
  assert_int_equal(is_managed, 1);
  OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, device));
  assert_ptr_equal(owner, context);
  CUdeviceptr unknown = (CUdeviceptr)(uintptr_t)&local;
  RESULT(CUDA_ERROR_INVALID_VALUE,
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown));
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *answers[] = {&type, &ordinal};
  OK(cuPointerGetAttributes(2, asked, answers, unknown));
  assert_int_equal(type, 0);
  assert_int_equal(ordinal, -2);
  /* A host pointer where a device one belongs. */
  RESULT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(device, unknown, 4, stream));
  OK(cuMemFree(device));
  OK(cuMemFree(managed));
  OK(cuMemFreeHost(host));
}

static void test_pool(void **state) {
  (void)state;
  CUdeviceptr a;
  size_t live = fakecuda_live_bytes();
  OK(cuMemAllocAsync(&a, MIB, stream));
  OK(cuMemsetD8Async(a, 1, MIB, stream));
  fakecuda_pause(1);
  OK(cuMemFreeAsync(a, stream));
  assert_true(fakecuda_live_bytes() > live); /* freed in stream order */
  fakecuda_pause(0);
  OK(cuStreamSynchronize(stream));
  assert_int_equal(fakecuda_live_bytes(), live);
}

static void test_vmm(void **state) {
  (void)state;
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  size_t granularity;
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  assert_int_equal(granularity, 2 * MIB);
  CUmemGenericAllocationHandle handle = create_vmm(2 * MIB), again;
  RESULT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&again, MIB, &properties, 0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  RESULT(CUDA_ERROR_NOT_PERMITTED, cuMemCreate(&again, 2 * MIB, &properties, 0));
  CUdeviceptr writable = map_vmm(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUdeviceptr reader = map_vmm(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  unsigned long long flags;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemGetAccess(&flags, &location, reader));
  assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(cuMemsetD8Async(writable, 77, 2 * MIB, stream));
  unsigned char back[16];
  OK(cuMemcpyDtoHAsync(back, reader + MIB, sizeof back, stream));
  assert_int_equal(back[15], 77);
  OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)reader));
  assert_int_equal(again, handle);
  OK(cuMemRelease(again));
  OK(cuMemRelease(handle)); /* the mappings keep the memory */
  OK(cuMemUnmap(writable, 2 * MIB));
  OK(cuMemcpyDtoH(back, reader, sizeof back));
  assert_int_equal(back[0], 77);
  OK(cuMemUnmap(reader, 2 * MIB));
  OK(cuMemAddressFree(writable, 2 * MIB));
  OK(cuMemAddressFree(reader, 2 * MIB));
}

static void test_blocking_calls_wait(void **state) {
  (void)state;
  CUdeviceptr a, word;
  _Atomic uint64_t *words;
  OK(cuMemAlloc(&a, 4096));
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  word = (CUdeviceptr)(uintptr_t)words;
  uint64_t waiting = fakecuda_waiting_calls();
  fakecuda_frames_flow(FAKECUDA_FLOW_COUNT, FAKECUDA_WAITING);
  fakecuda_set_delay(5000);
  for (int i = 0; i < 5; i++)
    OK(cuMemsetD8Async(a, 1, 4096, stream));
  OK(cuStreamWriteValue64(stream, word, 1, 0));
  OK(cuMemFree(a));
  assert_int_equal(words[0], 1); /* all queued work is done */
  fakecuda_set_delay(0);
  assert_int_equal(fakecuda_waiting_calls(), waiting + 1);
  assert_int_equal(fakecuda_flow_violations(), 1);
  fakecuda_frames_flow(FAKECUDA_FLOW_OFF, 0);
  /* These do not wait, as measured: they return while the stream is stuck. */
  OK(cuStreamWaitValue64(stream, word, 2, CU_STREAM_WAIT_VALUE_GEQ));
  CUmemGenericAllocationHandle handle = create_vmm(2 * MIB);
  CUdeviceptr mapped = map_vmm(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(cuMemUnmap(mapped, 2 * MIB));
  OK(cuMemAddressFree(mapped, 2 * MIB));
  OK(cuMemRelease(handle));
  OK(cuMemAlloc(&a, 4096));
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  words[0] = 2;
  OK(cuMemFree(a));
  OK(cuMemFreeHost((void *)words));
}

/* Each of these comes back only behind all that was queued, and is counted as one that waits. */
#define WAITS_FOR_ALL(call)                                                                        \
  do {                                                                                             \
    uint64_t before = fakecuda_waiting_calls();                                                    \
    *word = 0;                                                                                     \
    OK(cuMemsetD8Async(busy, 1, 4096, stream));                                                    \
    OK(cuStreamWriteValue64(stream, (CUdeviceptr)(uintptr_t)word, 1, 0));                          \
    OK(call);                                                                                      \
    assert_int_equal(*word, 1);                                                                    \
    assert_int_equal(fakecuda_waiting_calls(), before + 1);                                        \
  } while (0)

static void test_each_waiting_call_waits(void **state) {
  static const char image[] = ".version 7.0\n.target sm_70\n";
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
       *pinned;
  _Atomic uint64_t *word;
  CUdeviceptr busy, memory;
  CUmodule module;
  CUarray array;
  CUcontext created;
  (void)state;
  OK(cuMemAlloc(&busy, 4096));
  OK(cuMemAlloc(&memory, 4096));
  OK(cuMemHostAlloc((void **)&word, 4096, 0));
  OK(cuMemHostAlloc(&pinned, 4096, 0));
  OK(cuMemHostRegister(page, 4096, 0));
  OK(cuArray3DCreate(&array, &descriptor));
  OK(cuCtxCreate(&created, 0, 0));
  OK(cuCtxPopCurrent(&created));
  fakecuda_set_delay(3000);
  WAITS_FOR_ALL(cuMemFree(memory));
  WAITS_FOR_ALL(cuMemFreeHost(pinned));
  WAITS_FOR_ALL(cuMemHostUnregister(page));
  WAITS_FOR_ALL(cuModuleLoadData(&module, image));
  WAITS_FOR_ALL(cuModuleUnload(module));
  WAITS_FOR_ALL(cuArrayDestroy(array));
  WAITS_FOR_ALL(cuCtxSynchronize());
  WAITS_FOR_ALL(cuCtxDestroy(created));
  fakecuda_set_delay(0);
  OK(cuMemFree(busy));
  OK(cuMemFreeHost((void *)(uintptr_t)word));
  munmap(page, 4096);
}

static void test_injected_failures(void **state) {
  (void)state;
  CUdeviceptr a, b;
  fakecuda_fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc(&a, 4096));
  RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&b, 4096));
  OK(cuMemAlloc(&b, 4096));
  fakecuda_fail("cuMemAlloc", 0, CUDA_ERROR_NOT_SUPPORTED);
  RESULT(CUDA_ERROR_NOT_SUPPORTED, cuMemAlloc(&b, 4096));
  RESULT(CUDA_ERROR_NOT_SUPPORTED, cuMemAlloc(&b, 4096));
  fakecuda_fail_clear();
  OK(cuMemFree(a));
  OK(cuMemFree(b));
  size_t all, left;
  OK(cuMemGetInfo(&left, &all));
  RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&a, left + 1));
}

static void test_arrays(void **state) {
  (void)state;
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, read;
  CUarray array;
  unsigned char image[8 * 4 * 4], back[8 * 4 * 4];
  for (unsigned i = 0; i < sizeof image; i++)
    image[i] = (unsigned char)(i * 3);
  OK(cuArray3DCreate(&array, &descriptor));
  OK(cuArray3DGetDescriptor(&read, array));
  assert_int_equal(read.Width, 8);
  CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                      .srcHost = image,
                      .srcPitch = 32,
                      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                      .dstArray = array,
                      .WidthInBytes = 32,
                      .Height = 4,
                      .Depth = 1};
  OK(cuMemcpy3DAsync(&in, stream));
  CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = array,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back,
                       .dstPitch = 32,
                       .WidthInBytes = 32,
                       .Height = 4,
                       .Depth = 1};
  OK(cuMemcpy3DAsync(&out, stream));
  assert_memory_equal(image, back, sizeof image);
  OK(cuArrayDestroy(array));
}

static void test_external(void **state) {
  (void)state;
  int fd = memfd_create("image", MFD_CLOEXEC);
  int semaphore_fd = memfd_create("semaphore", MFD_CLOEXEC);
  assert_int_equal(ftruncate(fd, 8192) | ftruncate(semaphore_fd, 4096), 0);
  _Atomic uint64_t *value = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, semaphore_fd, 0);
  unsigned char *pixels = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory_desc = {
      .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle = {.fd = fd}, .size = 9000};
  CUexternalMemory memory;
  RESULT(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&memory, &memory_desc));
  memory_desc.size = 8192;
  OK(cuImportExternalMemory(&memory, &memory_desc));
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC array_desc = {
      .offset = 512,
      .arrayDesc = {32, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_SURFACE_LDST},
      .numLevels = 2};
  CUmipmappedArray mipmap;
  CUarray array;
  OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &array_desc));
  OK(cuMipmappedArrayGetLevel(&array, mipmap, 1));
  const unsigned char *level_1 = pixels + 512 + 32 * 32 * 4;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC semaphore_desc = {
      .type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
      .handle = {.fd = semaphore_fd}};
  CUexternalSemaphore semaphore;
  OK(cuImportExternalSemaphore(&semaphore, &semaphore_desc));
  unsigned char row[64];
  memset(row, 5, sizeof row);
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = row,
                        .srcPitch = 64,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .dstY = 15,
                        .WidthInBytes = 64,
                        .Height = 1};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait;
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal_params;
  memset(&wait, 0, sizeof wait);
  memset(&signal_params, 0, sizeof signal_params);
  wait.params.fence.value = 7;
  signal_params.params.fence.value = 8;
  OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream));
  OK(cuMemcpy2DAsync(&copy, stream));
  OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal_params, 1, stream));
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  assert_int_equal(level_1[15 * 64], 0);
  *value = 7;
  OK(cuStreamSynchronize(stream));
  assert_int_equal(*value, 8);
  assert_int_equal(level_1[15 * 64 + 63], 5);
  OK(cuMipmappedArrayDestroy(mipmap));
  OK(cuDestroyExternalMemory(memory));
  OK(cuDestroyExternalSemaphore(semaphore));
  munmap((void *)value, 4096);
  munmap(pixels, 8192);
}

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry add(\n\t.param .u64 add_param_0,\n"
                          "\t.param .u32 add_param_1,\n"
                          "\t.param .align 8 .b8 add_param_2[16]\n)\n{ ret; }\n";

static void add_twin(const unsigned grid[3], const unsigned block[3], void **params) {
  uint32_t *out = *(uint32_t **)params[0];
  uint32_t amount = *(uint32_t *)params[1];
  uint64_t last = ((uint64_t *)params[2])[1];
  for (unsigned i = 0; i < grid[0] * block[0]; i++)
    out[i] += amount + (uint32_t)last;
}

static void test_kernels(void **state) {
  (void)state;
  CUmodule module;
  CUfunction function;
  CUdeviceptr a;
  uint32_t amount = 3, back[8];
  uint64_t pair[2] = {1, 100};
  RESULT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "no PTX"));
  OK(cuModuleLoadData(&module, ptx));
  RESULT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "sub"));
  OK(cuModuleGetFunction(&function, module, "add"));
  fakecuda_register_kernel("add", add_twin);
  OK(cuMemAlloc(&a, sizeof back));
  OK(cuMemsetD32Async(a, 1, 8, stream));
  void *params[] = {&a, &amount, pair};
  OK(cuLaunchKernel(function, 2, 1, 1, 4, 1, 1, 0, stream, params, NULL));
  amount = 99; /* values are taken at the launch */
  OK(cuMemcpyDtoHAsync(back, a, sizeof back, stream));
  assert_int_equal(back[7], 104);
  OK(cuMemFree(a));
  OK(cuModuleUnload(module));
}

static void test_graph_by_capture(void **state) {
  (void)state;
  CUdeviceptr a, b;
  CUgraph graph;
  CUgraphExec exec;
  CUevent fork_event, join_event;
  _Atomic uint64_t *words;
  CUstreamCaptureStatus status;
  OK(cuMemAlloc(&a, 4096));
  OK(cuMemAlloc(&b, 4096));
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuMemcpyDtoDAsync(b, a, 4096, stream));
  OK(cuEventRecord(fork_event, stream));
  OK(cuStreamWaitEvent(other, fork_event, 0));
  OK(cuStreamIsCapturing(other, &status));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamWriteValue64(other, (CUdeviceptr)(uintptr_t)words, 9, 0));
  OK(cuEventRecord(join_event, other));
  RESULT(CUDA_ERROR_CAPTURED_EVENT, cuEventElapsedTime(&(float){0}, join_event, join_event));
  OK(cuStreamWaitEvent(stream, join_event, 0));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuStreamIsCapturing(other, &status));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
  assert_int_equal(words[0], 0);
  size_t count;
  OK(cuGraphGetNodes(graph, NULL, &count));
  assert_int_equal(count, 2);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuMemsetD8Async(a, 4, 4096, stream));
  OK(cuGraphLaunch(exec, stream));
  unsigned char back[4];
  OK(cuMemcpyDtoHAsync(back, b, 4, stream));
  assert_int_equal(back[0], 4);
  assert_int_equal(words[0], 9);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuEventDestroy(fork_event));
  OK(cuEventDestroy(join_event));
  OK(cuMemFree(a));
  OK(cuMemFree(b));
  OK(cuMemFreeHost((void *)words));
}

static void test_capture_rules(void **state) {
  (void)state;
  CUgraph graph;
  CUdeviceptr a;
  CUevent event;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  /* An unsafe call spoils a capture in global mode, unless the thread is relaxed. */
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuMemAlloc(&a, 4096));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree(a));
  RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(a, 0, 4, stream));
  RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  /* A forked stream has to be joined. */
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemsetD8Async(a, 0, 4, other));
  RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
  RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(stream, &graph));
  OK(cuEventDestroy(event));
  OK(cuMemFree(a));
}

static void test_graph_by_nodes(void **state) {
  (void)state;
  CUdeviceptr a, b;
  CUgraph graph;
  CUgraphNode copy_node, write_node, fill_node;
  CUgraphExec exec;
  _Atomic uint64_t *words;
  OK(cuMemAlloc(&a, 4096));
  OK(cuMemAlloc(&b, 4096));
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  OK(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill = {a, 0, 1, 1, 4096, 1};
  OK(cuGraphAddMemsetNode(&fill_node, graph, NULL, 0, &fill, context));
  CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = a,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = b,
                        .WidthInBytes = 2048,
                        .Height = 1,
                        .Depth = 1};
  OK(cuGraphAddMemcpyNode(&copy_node, graph, &fill_node, 1, &copy, context));
  CUstreamBatchMemOpParams write;
  memset(&write, 0, sizeof write);
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  write.writeValue.address = (CUdeviceptr)(uintptr_t)words;
  write.writeValue.value64 = 1;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context, 1, &write, 0};
  OK(cuGraphAddBatchMemOpNode(&write_node, graph, &copy_node, 1, &batch));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  uint64_t copies = fakecuda_copies();
  fakecuda_pause(1);
  for (uint64_t frame = 1; frame <= 3; frame++) {
    write.writeValue.value64 = frame;
    OK(cuGraphExecBatchMemOpNodeSetParams(exec, write_node, &batch));
    fill.value = (unsigned)frame;
    OK(cuGraphExecMemsetNodeSetParams(exec, fill_node, &fill, context));
    OK(cuGraphLaunch(exec, frame & 1 ? stream : other)); /* launches of one exec are in order */
  }
  fakecuda_pause(0);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamSynchronize(other));
  assert_int_equal(words[0], 3);
  assert_int_equal(fakecuda_copies() - copies, 6);
  unsigned char back[4096];
  OK(cuMemcpyDtoH(back, b, sizeof back));
  assert_int_equal(back[0], 3);
  assert_int_equal(back[2048], 0);
  CUgraphNode different;
  CUgraphExecUpdateResult update;
  OK(cuGraphExecUpdate(exec, graph, &different, &update));
  CUgraphNode extra;
  OK(cuGraphAddEmptyNode(&extra, graph, NULL, 0));
  RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &different, &update));
  assert_int_equal(update, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuMemFree(a));
  OK(cuMemFree(b));
  OK(cuMemFreeHost((void *)words));
}

/* What is no handle to a program counts, too: else nobody would notice that it was left. */
static void test_all_that_is_left_counts(void **state) {
  CUdeviceptr reserved, device;
  void *pinned;
  CUcontext again;
  size_t before = fakecuda_live_handles();
  (void)state;
  OK(cuMemAddressReserve(&reserved, 2 * MIB, 0, 0, 0));
  assert_int_equal(fakecuda_live_handles(), before + 1);
  OK(cuMemHostAlloc(&pinned, MIB, 0));
  assert_int_equal(fakecuda_live_handles(), before + 2);
  OK(cuMemAlloc(&device, MIB));
  assert_int_equal(fakecuda_live_handles(), before + 3);
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  assert_int_equal(fakecuda_live_handles(), before + 4);
  OK(cuDevicePrimaryCtxRelease(0));
  OK(cuMemFree(device));
  OK(cuMemFreeHost(pinned));
  OK(cuMemAddressFree(reserved, 2 * MIB));
  assert_int_equal(fakecuda_live_handles(), before);
}

static void test_nothing_left(void **state) {
  (void)state;
  size_t handles = fakecuda_live_handles(), bytes = fakecuda_live_bytes();
  for (int i = 0; i < 100; i++) {
    CUdeviceptr a;
    CUevent event;
    CUstream made;
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuMemAlloc(&a, MIB));
    OK(cuMemsetD8Async(a, 1, MIB, made));
    OK(cuEventRecord(event, made));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(made)); /* its work still ends */
    OK(cuMemFree(a));
  }
  assert_int_equal(fakecuda_live_handles(), handles);
  assert_int_equal(fakecuda_live_bytes(), bytes);
}

int main(void) {
  alarm(120);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_device),
      TEST(test_contexts),
      TEST(test_copies_are_asynchronous),
      TEST(test_pageable_source_is_staged),
      TEST(test_pitched_copy),
      TEST(test_fills),
      TEST(test_events_order_streams),
      TEST(test_missing_wait_tears),
      TEST(test_legacy_stream_order),
      TEST(test_event_recorded_again_elsewhere),
      TEST(test_memory_operations),
      TEST(test_batch),
      TEST(test_registered_memory),
      TEST(test_pointers),
      TEST(test_pool),
      TEST(test_vmm),
      TEST(test_blocking_calls_wait),
      TEST(test_each_waiting_call_waits),
      TEST(test_injected_failures),
      TEST(test_arrays),
      TEST(test_external),
      TEST(test_kernels),
      TEST(test_graph_by_capture),
      TEST(test_capture_rules),
      TEST(test_graph_by_nodes),
      TEST(test_all_that_is_left_counts),
      TEST(test_nothing_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
