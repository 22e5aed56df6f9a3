/* SPDX-License-Identifier: MIT
 *
 * Misuse of the fake CUDA driver ends the process with a message that names it. Each case runs in a
 * process of its own whose stderr is read.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "testing.h"

static CUstream make_stream(void) {
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

static CUevent make_event(void) {
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

static CUcontext second_context(void) {
  CUcontext context;
  OK(cuCtxCreate(&context, 0, 0));
  return context;
}

static void unmap_under_work(void) {
  CUmemGenericAllocationHandle handle = create_vmm(2 * MIB);
  CUdeviceptr pointer = map_vmm(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  fakecuda_pause(1);
  OK(cuMemsetD8Async(pointer + MIB, 1, 16, make_stream()));
  cuda->cuMemUnmap(pointer, 2 * MIB);
}

static void unmap_under_graph(void) {
  CUmemGenericAllocationHandle handle = create_vmm(2 * MIB);
  CUdeviceptr pointer = map_vmm(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUstream stream = make_stream();
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(pointer, 1, 16, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  fakecuda_pause(1);
  OK(cuGraphLaunch(exec, stream));
  cuda->cuMemUnmap(pointer, 2 * MIB);
}

static void use_after_free(void) {
  CUdeviceptr pointer;
  OK(cuMemAlloc(&pointer, 4096));
  OK(cuMemFree(pointer));
  cuda->cuMemsetD8Async(pointer, 1, 16, make_stream());
}

static void graph_after_free(void) {
  CUdeviceptr pointer;
  CUgraph graph;
  CUgraphExec exec;
  CUstream stream = make_stream();
  OK(cuMemAlloc(&pointer, 4096));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(pointer, 1, 16, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuMemFree(pointer));
  cuda->cuGraphLaunch(exec, stream);
}

static void free_twice(void) {
  CUdeviceptr pointer;
  OK(cuMemAlloc(&pointer, 4096));
  OK(cuMemFree(pointer));
  cuda->cuMemFree(pointer);
}

static void *without_context(void *unused) {
  CUdeviceptr pointer;
  cuda->cuMemAlloc(&pointer, 4096);
  return unused;
}

static void no_context(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, without_context, NULL);
  pthread_join(thread, NULL);
}

static void foreign_stream(void) {
  CUstream stream = make_stream();
  CUdeviceptr pointer;
  second_context();
  OK(cuMemAlloc(&pointer, 4096));
  cuda->cuMemsetD8Async(pointer, 1, 16, stream);
}

static void foreign_event(void) {
  CUevent event = make_event();
  second_context();
  cuda->cuEventRecord(event, make_stream());
}

static void destroyed_context(void) {
  CUcontext current;
  CUdeviceptr pointer;
  OK(cuCtxGetCurrent(&current));
  OK(cuDevicePrimaryCtxRelease(0));
  cuda->cuMemAlloc(&pointer, 4096);
}

static void stale_stream(void) {
  CUstream stream = make_stream();
  OK(cuStreamDestroy(stream));
  cuda->cuStreamSynchronize(stream);
}

static void stale_event(void) {
  CUevent event = make_event();
  OK(cuEventDestroy(event));
  cuda->cuEventQuery(event);
}

static void wrong_handle(void) { cuda->cuEventQuery((CUevent)make_stream()); }

static void free_reserved_with_mapping(void) {
  CUdeviceptr pointer = map_vmm(create_vmm(2 * MIB), 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  cuda->cuMemAddressFree(pointer, 2 * MIB);
}

static void calls_cuda(void *unused) {
  (void)unused;
  cuda->cuCtxSynchronize();
}

static void cuda_in_host_function(void) {
  CUstream stream = make_stream();
  OK(cuLaunchHostFunc(stream, calls_cuda, NULL));
  cuda->cuStreamSynchronize(stream);
}

static void waits_while_frames_flow(void) {
  CUdeviceptr pointer;
  OK(cuMemAlloc(&pointer, 4096));
  fakecuda_frames_flow(FAKECUDA_FLOW_ABORT, FAKECUDA_WAITING);
  cuda->cuMemFree(pointer);
}

static void allocates_while_frames_flow(void) {
  CUdeviceptr pointer;
  fakecuda_frames_flow(FAKECUDA_FLOW_ABORT, FAKECUDA_WAITING | FAKECUDA_ALLOCATING);
  cuda->cuMemAlloc(&pointer, 4096);
}

static void opens_while_frames_flow(void) {
  CUevent event;
  CUipcEventHandle handle = {{0}};
  fakecuda_frames_flow(FAKECUDA_FLOW_ABORT, FAKECUDA_OPENING);
  cuda->cuIpcOpenEventHandle(&event, handle);
}

static void release_too_often(void) {
  OK(cuDevicePrimaryCtxRelease(0));
  cuda->cuDevicePrimaryCtxRelease(0);
}

static const char no_twin_ptx[] = ".version 7.0\n.target sm_70\n"
                                  ".visible .entry lonely()\n{ ret; }\n";

static void no_twin(void) {
  CUmodule module;
  CUfunction function;
  OK(cuModuleLoadData(&module, no_twin_ptx));
  OK(cuModuleGetFunction(&function, module, "lonely"));
  cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, make_stream(), NULL, NULL);
}

static const struct misuse_case {
  const char *name;
  void (*run)(void);
  const char *message;
} cases[] = {
    {"unmap under work", unmap_under_work, "a fill that is queued uses it"},
    {"unmap under a graph", unmap_under_graph, "a fill that is queued uses it"},
    {"use after free", use_after_free, "was freed, unmapped or never mapped"},
    {"graph after free", graph_after_free, "was freed, unmapped or never mapped"},
    {"free twice", free_twice, "no start of allocated memory"},
    {"no context", no_context, "cuMemAlloc: this thread has no current context"},
    {"foreign stream", foreign_stream, "belongs to another context"},
    {"foreign event", foreign_event, "are of different contexts"},
    {"destroyed context", destroyed_context, "was destroyed"},
    {"stale stream", stale_stream, "was destroyed before"},
    {"stale event", stale_event, "was destroyed before"},
    {"wrong handle", wrong_handle, "is of another kind"},
    {"free of a mapped range", free_reserved_with_mapping, "something is still mapped"},
    {"CUDA in a host function", cuda_in_host_function, "in a host function"},
    {"waiting call", waits_while_frames_flow, "cuMemFree waits for the whole GPU, while"},
    {"allocating call", allocates_while_frames_flow, "cuMemAlloc allocates or frees, while"},
    {"opening call", opens_while_frames_flow,
     "cuIpcOpenEventHandle opens or exports a handle, while"},
    {"release too often", release_too_often, "more often than it was retained"},
    {"no CPU twin", no_twin, "kernel lonely has no CPU twin"},
};

static int error_pipe[2];

static void run_case(void *argument) {
  const struct misuse_case *item = argument;
  dup2(error_pipe[1], STDERR_FILENO);
  signal(SIGABRT, SIG_DFL); /* not cmocka's */
  use_device(0);
  item->run();
}

static void test_each(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1024];
    assert_int_equal(pipe(error_pipe), 0);
    int status = in_child(run_case, (void *)(uintptr_t)&cases[i]);
    close(error_pipe[1]);
    ssize_t length = read(error_pipe[0], text, sizeof text - 1);
    close(error_pipe[0]);
    text[length > 0 ? length : 0] = 0;
    if (!aborted(status) || !strstr(text, cases[i].message))
      fail_msg("%s: status %#x, message \"%s\"", cases[i].name, (unsigned)status, text);
  }
}

/* ---- Misuse as errors, and the loss of a context ---- */

static void errors(void *unused) {
  (void)unused;
  use_device(0);
  CUevent event = make_event();
  OK(cuEventDestroy(event));
  fakecuda_set_misuse(FAKECUDA_MISUSE_ERROR);
  RESULT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  if (fakecuda_misuses() != 1) abort();
}

static void test_as_errors(void **state) {
  (void)state;
  assert_true(exited_well(in_child(errors, NULL)));
}

static void expect_lost(CUstream stream) {
  CUdeviceptr pointer;
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&pointer, 4096));
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

static void lost(void *unused) {
  (void)unused;
  use_device(0);
  _Atomic uint64_t *words;
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  CUstream stream = make_stream();
  CUevent event = make_event();
  OK(cuStreamWaitValue64(stream, (CUdeviceptr)(uintptr_t)words, 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuEventRecord(event, stream));
  fakecuda_lose_context(CUDA_ERROR_ILLEGAL_ADDRESS); /* while a stream waits */
  expect_lost(stream);
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize(event));
  UNTIL(fakecuda_pending() == 0);
}

/* Registered memory that the program took away: the stream's access is the loss of the context. */
static void wild(void *unused) {
  (void)unused;
  use_device(0);
  CUstream stream = make_stream();
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  OK(cuMemHostRegister(page, 4096, 0));
  mprotect(page, 4096, PROT_NONE); /* unmapped, another mapping might take its place */
  OK(cuStreamWriteValue64(stream, (CUdeviceptr)(uintptr_t)page, 1, 0));
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
  expect_lost(stream);
}

/* The page can be written to by the CPU, but it was registered as read-only for the GPU. */
static void read_only(void *unused) {
  (void)unused;
  use_device(0);
  CUstream stream = make_stream();
  uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  OK(cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
  OK(cuStreamWriteValue64(stream, (CUdeviceptr)(uintptr_t)page, 1, 0));
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
  if (page[0] != 0) abort();
}

/* A kernel that writes where it may only read. */
static void scribble(const unsigned grid[3], const unsigned block[3], void **params) {
  (void)grid;
  (void)block;
  **(volatile int **)params[0] = 1;
}

static const char scribble_ptx[] = ".version 7.0\n.target sm_70\n"
                                   ".visible .entry scribble(.param .u64 p)\n{ ret; }\n";

static void wild_kernel(void *unused) {
  (void)unused;
  use_device(0);
  CUmodule module;
  CUfunction function;
  CUstream stream = make_stream();
  CUdeviceptr pointer = map_vmm(create_vmm(2 * MIB), 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  fakecuda_register_kernel("scribble", scribble);
  OK(cuModuleLoadData(&module, scribble_ptx));
  OK(cuModuleGetFunction(&function, module, "scribble"));
  void *params[] = {&pointer};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
  RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
  expect_lost(stream);
}

static void test_lost_context(void **state) {
  (void)state;
  assert_true(exited_well(in_child(lost, NULL)));
  assert_true(exited_well(in_child(wild, NULL)));
  assert_true(exited_well(in_child(read_only, NULL)));
  assert_true(exited_well(in_child(wild_kernel, NULL)));
}

int main(void) {
  alarm(110);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each),
      cmocka_unit_test(test_as_errors),
      cmocka_unit_test(test_lost_context),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
