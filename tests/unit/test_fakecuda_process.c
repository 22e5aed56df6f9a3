/* SPDX-License-Identifier: MIT
 *
 * The fake CUDA driver between processes: legacy handles, VMM descriptors, words in shared memory,
 * interprocess events, and what a killed process leaves behind. The parent of each test is one
 * process, a forked child (forked before either used the driver) is the other.
 */
#include <assert.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "testing.h"

/* One page that both processes see from the beginning. */
static struct shared {
  _Atomic int step; /* how far the producer is */
  _Atomic int consumer;
  _Atomic uint64_t word;
  CUipcMemHandle memory;
  CUipcEventHandle event;
  int fd;
} * shared;
static int sockets[2];

static int set_up(void **state) {
  (void)state;
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0;
}

static int tear_down(void **state) {
  (void)state;
  munmap(shared, 4096);
  close(sockets[0]);
  close(sockets[1]);
  return 0;
}

static void reach(int step) { atomic_store(&shared->step, step); }
static void await(int step) { UNTIL(atomic_load(&shared->step) >= step); }

/* Runs the two sides as children and returns the consumer's status; the producer is killed when the
 * consumer asks for it by consumer = 2, and at the end. */
static void run_pair(void (*producer)(void), void (*consumer)(void)) {
  fflush(NULL);
  pid_t first = fork();
  if (first == 0) {
    alarm(60);
    producer();
    for (;;)
      pause();
  }
  pid_t second = fork();
  if (second == 0) {
    alarm(60);
    consumer();
    _exit(0);
  }
  int status = -1;
  int killed = 0;
  while (waitpid(second, &status, WNOHANG) == 0) {
    sched_yield();
    if (killed || atomic_load(&shared->consumer) != 2) continue;
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    killed = 1;
    reach(100);
  }
  if (!killed) {
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
  }
  assert_true(exited_well(status));
}

static void send_fd(int fd) {
  char byte = 0;
  union {
    char buffer[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  memset(&control, 0, sizeof control);
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.buffer,
                           .msg_controllen = sizeof control.buffer};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(sockets[0], &message, 0) != 1) abort();
}

static int receive_fd(void) {
  char byte;
  int fd = -1;
  union {
    char buffer[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.buffer,
                           .msg_controllen = sizeof control.buffer};
  if (recvmsg(sockets[1], &message, 0) != 1) abort();
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

static void expect_byte(CUdeviceptr pointer, int value) {
  unsigned char byte;
  OK(cuMemcpyDtoH(&byte, pointer, 1));
  if (byte != value) {
    fprintf(stderr, "%d, expected %d\n", byte, value);
    abort();
  }
}

/* ---- Legacy handles ---- */

static void ipc_producer(void) {
  CUdeviceptr pointer, opened;
  use_device(0);
  OK(cuMemAlloc(&pointer, 1000));
  OK(cuMemsetD8(pointer, 11, 1000));
  OK(cuIpcGetMemHandle(&shared->memory, pointer));
  RESULT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&opened, shared->memory, 1));
  reach(1);
  await(2);
  expect_byte(pointer + 5, 12);
  fakecuda_set_misuse(FAKECUDA_MISUSE_ERROR); /* freed while the consumer has it open */
  RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(pointer));
  reach(3);
  await(4);
  OK(cuMemFree(pointer));
  reach(5);
}

static void ipc_consumer(void) {
  CUdeviceptr first, second, base;
  size_t size;
  CUipcMemHandle handle;
  use_device(0);
  await(1);
  handle = shared->memory;
  RESULT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&first, handle, 0));
  OK(cuIpcOpenMemHandle(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  OK(cuIpcOpenMemHandle(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  if (first != second) abort(); /* as measured */
  OK(cuMemGetAddressRange(&base, &size, first));
  if (size != 2 * MIB) abort(); /* the whole block around it, too */
  expect_byte(first, 11);
  OK(cuMemsetD8(first, 12, 10));
  reach(2);
  await(3);
  OK(cuIpcCloseMemHandle(first));
  expect_byte(first, 12);
  OK(cuIpcCloseMemHandle(first));
  reach(4);
  await(5);
  RESULT(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&first, handle, 1));
}

static void test_legacy_memory(void **state) {
  (void)state;
  run_pair(ipc_producer, ipc_consumer);
}

/* ---- VMM ---- */

static void vmm_producer(void) {
  use_device(0);
  CUmemGenericAllocationHandle handle = create_vmm(4 * MIB);
  CUdeviceptr pointer = map_vmm(handle, 4 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  int fd;
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  send_fd(fd);
  close(fd);
  await(1);
  OK(cuMemsetD8(pointer + 3 * MIB, 33, 1));
  reach(2);
}

static void vmm_consumer(void) {
  use_device(0);
  int fd = receive_fd();
  CUmemGenericAllocationHandle handle;
  RESULT(CUDA_ERROR_INVALID_VALUE,
         cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)sockets[1],
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUmemAllocationProp properties;
  OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  if (properties.location.id != 0) abort();
  CUdeviceptr pointer = map_vmm(handle, 4 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  expect_byte(pointer + 3 * MIB, 0);
  reach(1);
  await(2);
  expect_byte(pointer + 3 * MIB, 33);
  atomic_store(&shared->consumer, 2); /* kill the producer: the memory lives on */
  await(100);
  expect_byte(pointer + 3 * MIB, 33);
  /* A write through the read-only mapping costs the context, for good. */
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD8(pointer, 1, 1));
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void test_vmm(void **state) {
  (void)state;
  run_pair(vmm_producer, vmm_consumer);
}

static void hidden_consumer(void) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  setenv("FAKECUDA_DEVICES", "2", 1);
  use_device(0);
  int fd = receive_fd();
  CUmemGenericAllocationHandle handle;
  OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUmemAllocationProp properties;
  OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  if (properties.location.id != -2) abort(); /* as measured */
  CUdeviceptr pointer = map_vmm(handle, 4 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  reach(1);
  await(2);
  expect_byte(pointer + 3 * MIB, 33);
}

/* The producer's GPU is one that the consumer does not see. */
static void test_hidden_gpu(void **state) {
  (void)state;
  run_pair(vmm_producer, hidden_consumer);
}

/* ---- Events and words ---- */

static void hold(void *unused) {
  (void)unused;
  for (;;)
    pause();
}

static void event_producer(void) {
  CUevent event;
  CUstream stream;
  use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  OK(cuIpcGetEventHandle(&shared->event, event));
  OK(cuEventRecord(event, stream));
  OK(cuStreamSynchronize(stream));
  reach(1);
  await(2);
  OK(cuLaunchHostFunc(stream, hold, NULL)); /* a kernel that never ends */
  OK(cuEventRecord(event, stream));
  reach(3);
}

static void event_consumer(void) {
  CUevent event;
  CUstream stream;
  use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  await(1);
  OK(cuIpcOpenEventHandle(&event, shared->event));
  OK(cuEventSynchronize(event));
  reach(2);
  await(3);
  RESULT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  OK(cuStreamWaitEvent(stream, event, 0));
  atomic_store(&shared->consumer, 2); /* the producer is killed with its event pending */
  await(100);
  /* Pending for ever, and everything else in this process goes on. */
  CUdeviceptr pointer;
  OK(cuMemAlloc(&pointer, 4096));
  OK(cuMemsetD8(pointer, 1, 4096));
  expect_byte(pointer, 1);
  RESULT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
}

static void test_event_of_a_dead_process(void **state) {
  (void)state;
  run_pair(event_producer, event_consumer);
}

static void word_producer(void) {
  CUstream stream;
  CUdeviceptr at;
  use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemHostRegister(shared, 4096, 0));
  OK(cuMemHostGetDevicePointer(&at, shared, 0));
  at += offsetof(struct shared, word);
  await(1);
  for (uint64_t i = 1; i <= 50; i++) {
    OK(cuStreamWriteValue64(stream, at, 2 * i - 1, 0));
    OK(cuStreamWaitValue64(stream, at, 2 * i, CU_STREAM_WAIT_VALUE_GEQ));
  }
  OK(cuStreamSynchronize(stream));
  reach(2);
}

/* The streams of two processes take turns by one word. */
static void word_consumer(void) {
  CUstream stream;
  use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemHostRegister(shared, 4096, 0));
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)&shared->word;
  for (uint64_t i = 1; i <= 50; i++) {
    OK(cuStreamWaitValue64(stream, at, 2 * i - 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWriteValue64(stream, at, 2 * i, 0));
  }
  reach(1);
  OK(cuStreamSynchronize(stream));
  await(2);
  /* A wait for a dead process's word is released by a store of this process's CPU. */
  OK(cuStreamWaitValue64(stream, at, 1000, CU_STREAM_WAIT_VALUE_GEQ));
  atomic_store(&shared->consumer, 2);
  await(100);
  RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  atomic_store(&shared->word, 1000);
  OK(cuStreamSynchronize(stream));
}

static void test_words(void **state) {
  (void)state;
  run_pair(word_producer, word_consumer);
}

/* ---- What a dead process's GPU still does ---- */

static void dying_producer(void) {
  CUstream stream;
  setenv("FAKECUDA_AFTERLIFE_US", "20000000", 1); /* the consumer's end ends the test sooner */
  use_device(0);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemHostRegister(shared, 4096, 0));
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)&shared->word;
  OK(cuStreamWaitValue64(stream, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWriteValue64(stream, at, 7, 0));
  reach(1);
}

static void surviving_consumer(void) {
  await(1);
  atomic_store(&shared->consumer, 2);
  await(100); /* the producer is dead and reaped */
  assert(atomic_load(&shared->word) == 0);
  atomic_store(&shared->word, 1);
  UNTIL(atomic_load(&shared->word) == 7);
}

static void test_afterlife(void **state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  return; /* it does not bear a second process in its memory */
#endif
  run_pair(dying_producer, surviving_consumer);
}

/* ---- Fork ---- */

static void forked(void *unused) {
  (void)unused;
  CUdeviceptr pointer;
  RESULT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&pointer, 4096));
}

static void fork_after_use(void *unused) {
  (void)unused;
  use_device(0);
  if (!exited_well(in_child(forked, NULL))) abort();
  CUdeviceptr pointer;
  OK(cuMemAlloc(&pointer, 4096));
}

static void test_fork(void **state) {
  (void)state;
  assert_true(exited_well(in_child(fork_after_use, NULL)));
}

int main(void) {
  alarm(110);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_legacy_memory), TEST(test_vmm),
      TEST(test_hidden_gpu),    TEST(test_event_of_a_dead_process),
      TEST(test_words),         TEST(test_afterlife),
      TEST(test_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
