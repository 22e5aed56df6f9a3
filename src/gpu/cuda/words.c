/* SPDX-License-Identifier: MIT
 *
 * Words in shared memory that streams write and wait for, in the best way that the driver has:
 *
 *   64-bit stream memory operations, each write behind a memory barrier of the whole system;
 *   32-bit ones: a write is two, the low half first; a wait looks at the low half;
 *   host functions: the driver calls us when the stream has come so far. Streams can't wait then: a
 *   host function that waits for another process would hold up every other one of this process.
 *
 * The low half first: sequences grow, so who reads a new low half beside an old high one takes the
 * word for an older one, never for a newer. (A lease word is compared for equality, where a half of
 * it is none.) A wait for the low half compares cyclically: a word must not be 2^31 frames old,
 * which publish.c sees to.
 */
#include <stdlib.h>

#include "gpu/cuda/cuda.h"

#define MOST_WRITES 65

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half of a word comes first");

static CUdeviceptr address_of(struct cuda_device *device, const wire_word *word) {
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)word;
  if (!device->same_addresses)
    device->driver->cuMemHostGetDevicePointer(&address, (void *)(uintptr_t)word, 0);
  return address;
}

/* ---- writes ------------------------------------------------------------------------------------ */

static CUresult write_one_64(struct cuda_device *device, CUstream stream,
                             const struct gpu_write *write) {
  return device->driver->cuStreamWriteValue64(stream, address_of(device, write->word), write->value,
                                              CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult write_64(struct cuda_device *device, CUstream stream,
                         const struct gpu_write *writes, uint32_t count) {
  if (count == 1) return write_one_64(device, stream, writes);
  CUstreamBatchMemOpParams batch[MOST_WRITES];
  for (uint32_t i = 0; i < count; i++) {
    batch[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[i].writeValue.address = (CUdeviceptr)(uintptr_t)writes[i].word;
    batch[i].writeValue.value64 = writes[i].value;
    batch[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    batch[i].writeValue.alias = 0;
  }
  if (!device->same_addresses)
    for (uint32_t i = 0; i < count; i++)
      batch[i].writeValue.address = address_of(device, writes[i].word);
  return device->driver->cuStreamBatchMemOp(stream, count, batch, 0);
}

static CUresult write_32(struct cuda_device *device, CUstream stream,
                         const struct gpu_write *writes, uint32_t count) {
  CUstreamBatchMemOpParams batch[2 * MOST_WRITES];
  for (uint32_t i = 0; i < 2 * count; i++) { /* the driver keeps their order */
    uint32_t high = i % 2;
    batch[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[i].writeValue.address =
        address_of(device, writes[i / 2].word) + high * sizeof(cuuint32_t);
    batch[i].writeValue.value = (cuuint32_t)(writes[i / 2].value >> (high ? 32 : 0));
    batch[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    batch[i].writeValue.alias = 0;
  }
  return device->driver->cuStreamBatchMemOp(stream, 2 * count, batch, 0);
}

/* Records of host functions that are under way. They outlive their device, as the function's last
 * step does, and are used again: nothing is allocated once as many were under way as ever will be. */
struct host_writes {
  struct host_writes *next;
  uint32_t count;
  struct gpu_write writes[MOST_WRITES];
};

static pthread_mutex_t host_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct host_writes *host_free;

static struct host_writes *take_host_writes(void) {
  pthread_mutex_lock(&host_mutex);
  struct host_writes *work = host_free;
  if (work) host_free = work->next;
  pthread_mutex_unlock(&host_mutex);
  return work ? work : malloc(sizeof *work);
}

static void give_host_writes(struct host_writes *work) {
  pthread_mutex_lock(&host_mutex);
  work->next = host_free;
  host_free = work;
  pthread_mutex_unlock(&host_mutex);
}

static void run_host_writes(void *argument) {
  struct host_writes *work = argument;
  /* release: pairs with the consumer's acquire load of ready or mirror. */
  for (uint32_t i = 0; i < work->count; i++)
    atomic_store_explicit(work->writes[i].word, work->writes[i].value, memory_order_release);
  give_host_writes(work);
}

static CUresult write_by_host(struct cuda_device *device, CUstream stream,
                              const struct gpu_write *writes, uint32_t count) {
  struct host_writes *work = take_host_writes();
  if (!work) return CUDA_ERROR_OUT_OF_MEMORY;
  work->count = count;
  for (uint32_t i = 0; i < count; i++)
    work->writes[i] = writes[i];
  CUresult result = device->driver->cuLaunchHostFunc(stream, run_host_writes, work);
  if (result != CUDA_SUCCESS) give_host_writes(work);
  return result;
}

static inline CUresult write_on(struct cuda_device *device, CUstream stream,
                                const struct gpu_write *writes, uint32_t count) {
  switch (device->words) {
  case CUDA_WORDS_64: return write_64(device, stream, writes, count);
  case CUDA_WORDS_32: return write_32(device, stream, writes, count);
  default: return write_by_host(device, stream, writes, count);
  }
}

/* An event stands for a point of some stream: our own waits for it, then writes. */
static CUresult write_after_event(struct cuda_device *device, CUevent event,
                                  const struct gpu_write *writes, uint32_t count) {
  CUresult result = device->driver->cuStreamWaitEvent(device->event_stream, event, 0);
  if (result != CUDA_SUCCESS) return result;
  return write_on(device, device->event_stream, writes, count);
}

static void write_now(const struct gpu_write *writes, uint32_t count) {
  /* release: the caller has seen its work end; pairs with the consumer's acquire load. */
  for (uint32_t i = 0; i < count; i++)
    atomic_store_explicit(writes[i].word, writes[i].value, memory_order_release);
}

/* With the context current. */
static inline int queue_writes(struct cuda_device *device, cudalink_stream stream,
                               const struct gpu_write *writes, uint32_t count) {
  CUresult result;
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT)
    result = write_after_event(device, (CUevent)(uintptr_t)stream.handle, writes, count);
  else
    result = write_on(device, cuda_stream_handle(stream), writes, count);
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
  return cuda_error(device->driver, result, "queuing words on the stream");
}

static int write_words(struct cuda_device *device, cudalink_stream stream,
                       const struct gpu_write *writes, uint32_t count, bool check) {
  bool pushed;
  if (stream.kind == CUDALINK_STREAM_KIND_COMPLETE) {
    write_now(writes, count);
    return CUDALINK_OK;
  }
  int status = check ? cuda_stream_check_kind(stream) : CUDALINK_OK;
  if (status == CUDALINK_OK) status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  if (check) status = cuda_stream_check_state(device, stream);
  if (status == CUDALINK_OK) status = queue_writes(device, stream, writes, count);
  cuda_leave_quickly(device, pushed);
  return status;
}

int cuda_stream_write(struct gpu_device *gpu, cudalink_stream stream,
                      const struct gpu_write *writes, uint32_t count) {
  return write_words(cuda_of(gpu), stream, writes, count, false);
}

int cuda_stream_write_here(struct gpu_device *gpu, cudalink_stream stream,
                           const struct gpu_write *writes, uint32_t count) {
  return queue_writes(cuda_of(gpu), stream, writes, count);
}

int cuda_stream_check_write(struct gpu_device *gpu, cudalink_stream stream,
                            const struct gpu_write *writes, uint32_t count) {
  return write_words(cuda_of(gpu), stream, writes, count, true);
}

/* ---- waits -------------------------------------------------------------------------------------- */

static CUresult wait_on(struct cuda_device *device, CUstream stream, const wire_word *word,
                        uint64_t value) {
  CUdeviceptr address = address_of(device, word);
  if (device->words == CUDA_WORDS_64)
    return device->driver->cuStreamWaitValue64(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ);
  return device->driver->cuStreamWaitValue32(stream, address, (cuuint32_t)value,
                                             CU_STREAM_WAIT_VALUE_GEQ);
}

/* The wait goes on a stream of our own, of normal priority, and the program's stream waits for an
 * event behind it: CUDA's scheduler can't see through words, and a waiting stream of high priority
 * was seen to starve others. */
static CUresult queue_wait(struct cuda_device *device, CUstream stream, const wire_word *word,
                           uint64_t value) {
  const struct cuda_driver *driver = device->driver;
  CUresult result = wait_on(device, device->wait_stream, word, value);
  if (result == CUDA_SUCCESS)
    result = driver->cuEventRecord(device->wait_event, device->wait_stream);
  if (result == CUDA_SUCCESS) result = driver->cuStreamWaitEvent(stream, device->wait_event, 0);
  return result;
}

int cuda_stream_wait(struct gpu_device *gpu, cudalink_stream stream, wire_word *word,
                     uint64_t value) {
  struct cuda_device *device = cuda_of(gpu);
  if (stream.kind == CUDALINK_STREAM_KIND_EVENT)
    return error_set(CUDALINK_ERROR_STREAM, "an event was named; an event can't wait");
  if (!gpu->stream_waits)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "this driver has no stream memory operations, so streams can't wait for "
                     "frames; acquire with CUDALINK_STREAM_COMPLETE");
  bool pushed;
  int status = cuda_enter_quickly(device, &pushed);
  if (status < 0) return status;
  pthread_mutex_lock(&device->mutex); /* event and stream belong together */
  CUresult result = queue_wait(device, cuda_stream_handle(stream), word, value);
  pthread_mutex_unlock(&device->mutex);
  cuda_leave_quickly(device, pushed);
  if (result == CUDA_SUCCESS) return CUDALINK_OK;
  return cuda_error(device->driver, result, "queuing a wait on the stream");
}

/* In relaxed mode: asking a stream would end a capture of another thread's. */
bool cuda_waits_landed(struct gpu_device *gpu) {
  struct cuda_device *device = cuda_of(gpu);
  CUstreamCaptureMode mode;
  if (cuda_enter(device, &mode) < 0) return true; /* a dead context runs nothing */
  CUresult waits = device->driver->cuStreamQuery(device->wait_stream);
  CUresult writes = device->driver->cuStreamQuery(device->event_stream);
  cuda_leave(device, mode);
  return waits != CUDA_ERROR_NOT_READY && writes != CUDA_ERROR_NOT_READY;
}

/* ---- which way ---------------------------------------------------------------------------------- */

/* Writes words on a stream and looks; then a wait that they end, else nothing would. */
static bool works(struct cuda_device *device, enum cuda_words words) {
  const struct cuda_driver *driver = device->driver;
  wire_word *word = device->tried_words;
  uint64_t value = words == CUDA_WORDS_64 ? UINT64_C(0x100000001) : UINT64_C(0x200000002);
  struct gpu_write writes[] = {{&word[0], value - 1}, {&word[1], value}, {&word[0], value}};
  device->words = words;
  return write_on(device, device->wait_stream, writes, 2) == CUDA_SUCCESS &&
         write_on(device, device->wait_stream, &writes[2], 1) == CUDA_SUCCESS &&
         driver->cuStreamSynchronize(device->wait_stream) == CUDA_SUCCESS &&
         atomic_load(&word[0]) == value && atomic_load(&word[1]) == value &&
         wait_on(device, device->wait_stream, word, value) == CUDA_SUCCESS &&
         driver->cuStreamSynchronize(device->wait_stream) == CUDA_SUCCESS;
}

int cuda_words_choose(struct cuda_device *device) {
  const struct cuda_driver *driver = device->driver;
  bool has_32 =
      driver->cuStreamWriteValue32 && driver->cuStreamWaitValue32 && driver->cuStreamBatchMemOp;
  bool has_64 = driver->cuStreamWriteValue64 && driver->cuStreamWaitValue64 &&
                driver->cuStreamBatchMemOp &&
                cuda_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  device->same_addresses =
      cuda_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
  /* Kept until the device is closed: to free it would wait for the whole GPU. */
  void *tried = NULL;
  CUresult result = driver->cuMemHostAlloc(&tried, sizeof(wire_word[2]),
                                           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "pinning host memory");
  device->tried_words = tried;
  device->gpu.stream_waits = true;
  device->gpu.words = "words by 64-bit stream memory operations";
  if (has_64 && works(device, CUDA_WORDS_64)) return CUDALINK_OK;
  device->gpu.words = "words by 32-bit stream memory operations, the driver has no wider ones";
  if (has_32 && works(device, CUDA_WORDS_32)) return CUDALINK_OK;
  device->words = CUDA_WORDS_HOST;
  device->gpu.stream_waits = false;
  device->gpu.words = "words by host functions, the driver has no stream memory operations";
  return CUDALINK_OK;
}
