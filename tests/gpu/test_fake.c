/* SPDX-License-Identifier: MIT
 *
 * What only a fake driver can show: each driver call failing once, old drivers, and machines that
 * lack something. Each case runs in a process of its own, because a driver is loaded once.
 */
#include <sys/mman.h>

#include "gpu.h"
#include "gpu/gpu.h"

/* ---- without a driver, or with one that lacks something ------------------------------------------------ */

/* Opens a channel of that kind under that environment; "ok PATH" or "ERROR SENTENCE". */
HELPER(opens) {
  cudalink_exporter exporter;
  cudalink_description description;
  cudalink_kind kind = (cudalink_kind)option_number("kind_number", 0);
  HELPER_LEAKS();
  describe_rgba(&description, 32, 32);
  int status = cudalink_exporter_open(
      &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .kind = kind,
                                           .description = &description});
  if (status < 0) {
    say("%s: %.400s", cudalink_error_name(status), cudalink_last_error());
    return;
  }
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(exporter, &statistics));
  say("ok, %s: %s", statistics.path, statistics.reason);
  CHECK_OK(cudalink_exporter_close(exporter));
}

static void fake_only(void) {
  gpu_start();
  if (!gpu_is_fake()) {
    printf("needs the fake driver\n");
    exit(0); /* nothing to be shown on a GPU */
  }
}

static void opens_with(cudalink_kind kind, const char *variable, const char *value,
                       const char *expected) {
  char *before = getenv(variable) ? strdup(getenv(variable)) : NULL;
  setenv(variable, value, 1);
  struct process *process = process_start("opens", "kind_number=%d", (int)kind);
  const char *said = process_hear(process);
  if (before)
    setenv(variable, before, 1);
  else
    unsetenv(variable);
  free(before);
  printf("  %s=%s, %s: %s\n", variable, value, cudalink_kind_name(kind), said);
  CHECK_CONTAINS(said, expected);
  process_finish(process);
}

TEST(machines_that_lack_something, 60) {
  fake_only();
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_VERSION", "13.0", "ok, gpu vmm");
  opens_with(CUDALINK_KIND_AUTO, "FAKECUDA_VERSION", "13.0", "ok, gpu vmm");
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_DEVICES", "0", "no GPU that it may use");
  opens_with(CUDALINK_KIND_AUTO, "FAKECUDA_DEVICES", "0", "ok, host memfd: no GPU");
  opens_with(CUDALINK_KIND_VMM, "CUDA_VISIBLE_DEVICES", "", "no GPU that it may use");
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_FAIL", "cuDriverGetVersion:0:3", "no CUDA driver");
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_FAIL", "cuInit:0:803", "cuInit");
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_FAIL", "cuMemExportToShareableHandle:0:801",
             "CUDALINK_ERROR_UNSUPPORTED");
  opens_with(CUDALINK_KIND_AUTO, "FAKECUDA_FAIL", "cuMemExportToShareableHandle:0:801",
             "ok, gpu ipc handle: sharing by legacy handle worked when tried, by descriptor not: "
             "CUDA_ERROR_NOT_SUPPORTED, 801 (not supported); words by 64-bit");
  opens_with(CUDALINK_KIND_AUTO, "FAKECUDA_FAIL",
             "cuMemExportToShareableHandle:0:801,cuIpcGetMemHandle:0:1",
             "ok, host memfd: GPU memory can't be shared: vmm: CUDA_ERROR_NOT_SUPPORTED, 801 (not "
             "supported); ipc: CUDA_ERROR_INVALID_VALUE, 1");
  opens_with(CUDALINK_KIND_IPC, "FAKECUDA_FAIL", "cuIpcGetMemHandle:0:801",
             "CUDALINK_ERROR_UNSUPPORTED");
  opens_with(CUDALINK_KIND_IPC, "FAKECUDA_ATTRIBUTES", "122=0", "ok, gpu ipc");
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_FAIL", "cuMemCreate:0:2", "no room for");
  opens_with(CUDALINK_KIND_VMM, "FAKECUDA_VERSION", "11.2",
             "it is of CUDA 11.2, cuda-link needs 11.4");
  opens_with(CUDALINK_KIND_AUTO, "FAKECUDA_VERSION", "11.2", "ok, host memfd: no GPU");
  opens_with(CUDALINK_KIND_VMM, "LD_LIBRARY_PATH", "/nowhere", "no CUDA driver");
  opens_with(CUDALINK_KIND_AUTO, "LD_LIBRARY_PATH", "/nowhere", "ok, host");
}

/* ---- drivers of other versions ---------------------------------------------------------------------------- */

static void with_version(const char *version, const char *attributes, bool gpu_wait) {
  setenv("FAKECUDA_VERSION", version, 1);
  setenv("FAKECUDA_ATTRIBUTES", attributes, 1);
  for (int kind = CUDALINK_KIND_VMM; kind <= CUDALINK_KIND_IPC; kind++) {
    struct process *feed =
        start_feed("kind=%s consumers=1 frames=200 drain=1 pause=20000 delay=100",
                   cudalink_kind_name((cudalink_kind)kind));
    struct process *drain = start_drain("policy=every pause=20000 delay=100 gpu_wait=%d", gpu_wait);
    const char *said = process_hear(drain);
    printf("  CUDA %s %s: %s\n", version, attributes, said);
    CHECK_EQUAL(line_number(said, "checked"), 200);
    CHECK_EQUAL(line_number(said, "wrong"), 0);
    process_finish(drain);
    process_finish(feed);
  }
}

TEST(drivers_of_all_versions, 120) {
  fake_only();
  with_version("11.4", "", false);
  with_version("11.8", "", true);
  with_version("12.4", "", true);
  with_version("13.0", "", true);
  with_version("13.0", "122=0", false);
}

/* ---- each call fails once ------------------------------------------------------------------------------------- */

struct ends {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  CUstream stream;
  char source[4096], out[4096]; /* plain memory */
};

static int open_ends(struct ends *ends, cudalink_kind kind) {
  int status = cudalink_exporter_open(
      &ends->exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                                 .kind = kind, .description = &ends->description});
  if (status < 0) return status;
  status = cudalink_importer_open(
      &ends->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                 .gpu_wait = 1, .open_timeout = 10 * SECOND});
  if (status < 0) cudalink_exporter_close(ends->exporter);
  return status;
}

/* One frame by each way; a failing step is tried once more, which must work or say why not. */
static int pass_frame(struct ends *ends) {
  cudalink_slot slot;
  cudalink_frame frame;
  cudalink_host_copy copy;
  int first = CUDALINK_OK, status;
#define TWICE(call)                                                                                \
  do {                                                                                             \
    status = (call);                                                                               \
    if (status < 0) {                                                                              \
      if (first == CUDALINK_OK) first = status;                                                    \
      CHECK(*cudalink_last_error());                                                               \
      CHECK_OK(call);                                                                              \
    }                                                                                              \
  } while (0)
  TWICE(cudalink_exporter_begin(ends->exporter, &ends->description, 10 * SECOND, &slot));
  TWICE(cudalink_exporter_publish(ends->exporter, &slot, ON(ends->stream)));
  TWICE(cudalink_importer_acquire(ends->importer, ON(ends->stream), 10 * SECOND, &frame));
  TWICE(cudalink_frame_release(&frame, ON(ends->stream)));
  TWICE(cudalink_exporter_send(ends->exporter, &ends->description, ends->source, NULL,
                               CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  TWICE(cudalink_importer_acquire(ends->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  TWICE(cudalink_frame_to_host(&frame, ends->out, sizeof ends->out));
  TWICE(cudalink_frame_to_host_begin(&frame, NULL, 0, &copy));
  status = cudalink_frame_to_host_finish(&copy); /* over in any case */
  return first == CUDALINK_OK ? status : first;
}

static void forget_fake_failures(void) { FAKE(fakecuda_fail_clear); }

static void close_ends(struct ends *ends) {
  CHECK_OK(cudalink_importer_close(ends->importer));
  CHECK_OK(cudalink_exporter_close(ends->exporter));
}

/* The NTH call of this entry point fails, in an open, a frame, a close. Nothing leaks. */
static void fail_once(cudalink_kind kind, const char *entry, unsigned nth, CUresult error) {
  struct ends ends = {0};
  describe_rgba(&ends.description, 32, 32);
  ends.stream = gpu_stream();
  size_t handles = (size_t)FAKE_NUMBER(fakecuda_live_handles);
  size_t bytes = (size_t)FAKE_NUMBER(fakecuda_live_bytes);
  int descriptors = count_descriptors();
  uint64_t calls = FAKE_NUMBER(fakecuda_calls, entry);
  FAKE(fakecuda_fail, entry, nth, (int)error);
  int status = open_ends(&ends, kind);
  if (status < 0) {
    CHECK(strlen(cudalink_last_error()) > 20);
    printf("  %s %u: open: %s\n", entry, nth, cudalink_last_error());
  } else {
    status = pass_frame(&ends);
    if (status < 0) printf("  %s %u: frame: %s\n", entry, nth, cudalink_error_name(status));
    CU(cuStreamSynchronize(ends.stream));
    close_ends(&ends);
  }
  bool failed = FAKE_NUMBER(fakecuda_calls, entry) - calls >= nth;
  forget_fake_failures();
  bool in_close = !strcmp(entry, "cuCtxPushCurrent") && nth > 2; /* nobody is there to be told */
  /* The reaper makes more mailboxes: it logs, and tries again when the next consumer comes. */
  bool in_reaper = !strcmp(entry, "cuMemHostRegister") && nth > 2;
  /* One of these may be the try of an open, behind which another way is taken. */
  bool has_other = !strcmp(entry, "cuStreamBatchMemOp") || !strcmp(entry, "cuStreamWriteValue64");
  /* What graphs of copies are made with, behind the ring on kind ipc: sends do without. */
  bool for_graphs = !strcmp(entry, "cuMemAlloc") && (kind == CUDALINK_KIND_VMM || nth > 1);
  if (failed && !in_close && !in_reaper && !has_other && !for_graphs) CHECK(status < 0);
  if (!in_close) WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_handles) <= handles);
  if (!in_close) WAIT_UNTIL(FAKE_NUMBER(fakecuda_live_bytes) <= bytes);
  WAIT_UNTIL(count_descriptors() <= descriptors + 8); /* the service thread's own */
  CU(cuStreamDestroy(ends.stream));
}

static void fail_each(cudalink_kind kind) {
  static const char *const entries[] = {"cuDevicePrimaryCtxRetain",
                                        "cuStreamCreate",
                                        "cuStreamCreateWithPriority",
                                        "cuMemHostAlloc",
                                        "cuEventCreate",
                                        "cuMemCreate",
                                        "cuMemGetAllocationGranularity",
                                        "cuMemExportToShareableHandle",
                                        "cuMemAddressReserve",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemHostRegister",
                                        "cuMemImportFromShareableHandle",
                                        "cuMemAlloc",
                                        "cuIpcGetMemHandle",
                                        "cuStreamBatchMemOp",
                                        "cuStreamWriteValue64",
                                        "cuStreamIsCapturing",
                                        "cuStreamGetCtx",
                                        "cuPointerGetAttributes",
                                        "cuMemcpyAsync",
                                        "cuMemcpyDtoHAsync",
                                        "cuEventRecord",
                                        "cuEventSynchronize",
                                        "cuCtxPushCurrent"};
  fake_only();
  struct ends warm = {0}; /* the service thread and the reaper run from here on */
  describe_rgba(&warm.description, 32, 32);
  warm.stream = gpu_stream();
  CHECK_OK(open_ends(&warm, kind));
  CHECK_OK(pass_frame(&warm));
  close_ends(&warm);
  for (size_t e = 0; e < sizeof entries / sizeof *entries; e++)
    for (unsigned nth = 1; nth <= 4; nth++)
      fail_once(kind, entries[e], nth, CUDA_ERROR_UNKNOWN);
}
TEST(each_call_fails_once_vmm, 120) { fail_each(CUDALINK_KIND_VMM); }
TEST(each_call_fails_once_ipc, 120) { fail_each(CUDALINK_KIND_IPC); }

/* ---- a context that is lost -------------------------------------------------------------------------------- */

TEST(lost_context_is_told, 60) {
  struct ends ends = {0};
  cudalink_slot slot;
  fake_only();
  describe_rgba(&ends.description, 32, 32);
  ends.stream = gpu_stream();
  CHECK_OK(open_ends(&ends, CUDALINK_KIND_VMM));
  CHECK_OK(pass_frame(&ends));
  CHECK_OK(cudalink_exporter_begin(ends.exporter, &ends.description, 10 * SECOND, &slot));
  FAKE(fakecuda_lose_context, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(cudalink_exporter_publish(ends.exporter, &slot, ON(ends.stream)),
               CUDALINK_ERROR_GPU_LOST);
  cudalink_importer_close(ends.importer);
  cudalink_exporter_close(ends.exporter);
}

/* ---- words that stay registered ----------------------------------------------------------------------------- */

#define PAGE 4096

/* A segment at addresses that another one has left. */
static void map_again(char *pages) {
  CHECK(mmap(pages, 4 * (size_t)PAGE, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pages);
}

static void leave_registered(struct gpu_device *device, char *pages, char *address) {
  CHECK_OK(device->operations->register_words(device, address, PAGE));
  FAKE(fakecuda_fail, "cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN);
  device->operations->unregister_words(device, address);
  map_again(pages);
}

/* Somebody else's registration is left alone, and so is one that took the place of what could not be
 * unregistered. */
static void check_that_others_stay(struct gpu_device *device, char *pages) {
  char *own = pages, *others = pages + 2 * (ptrdiff_t)PAGE;
  leave_registered(device, pages, own);
  CU(cuMemHostUnregister(own)); /* as if its context had ended */
  CHECK_OK(device->operations->register_words(device, own, PAGE));
  CU(cuMemHostRegister(others, PAGE, 0));
  CHECK_STATUS(device->operations->register_words(device, others, PAGE), CUDALINK_ERROR_GPU);
  CHECK_CONTAINS(cudalink_last_error(), "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
  CU(cuMemHostUnregister(others)); /* both are there */
  CU(cuMemHostUnregister(own));
}

TEST(words_that_stayed_registered, 60) {
  struct gpu_device *device;
  fake_only();
  CHECK_OK(gpu_device_open(CUDALINK_KIND_VMM, 0, NULL, &device));
  char *pages =
      mmap(NULL, 4 * (size_t)PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  leave_registered(device, pages, pages);
  CHECK_OK(device->operations->register_words(device, pages, PAGE)); /* at the same address */
  device->operations->unregister_words(device, pages);
  leave_registered(device, pages, pages + PAGE);
  CHECK_OK(device->operations->register_words(device, pages, 4 * PAGE)); /* around it */
  device->operations->unregister_words(device, pages);
  check_that_others_stay(device, pages);
  munmap(pages, 4 * (size_t)PAGE);
  gpu_device_close(device);
}

static void join(cudalink_importer *importer, const char *name) {
  CHECK_OK(cudalink_importer_open(
      importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = name, .gpu_wait = 1,
                                          .gpu_wait_limit = SECOND, .open_timeout = 20 * SECOND}));
}

/* They have to go first, for which the driver waits until no stream of the process has work. So a stream that
 * waits for a producer must still be told when its limit has passed, whatever else the service thread hears. */
TEST(words_that_stayed_registered_hold_no_wait_up, 60) {
  struct gpu_device *device;
  cudalink_importer stuck, next;
  cudalink_frame pending, frame;
  uint32_t flags;
  fake_only();
  CUstream stream = gpu_stream();
  CHECK_OK(gpu_device_open(CUDALINK_KIND_VMM, 0, NULL, &device));
  char *pages =
      mmap(NULL, 4 * (size_t)PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  leave_registered(device, pages, pages);
  struct process *endless = start_feed("name=endless consumers=1 pause=100000000000 frames=3");
  join(&stuck, "endless");
  struct process *busy = start_feed("name=busy consumers=1 resize=1");
  join(&next, "busy");
  CHECK_OK(cudalink_importer_acquire(stuck, ON(stream), 20 * SECOND, &pending));
  CHECK_EQUAL(pending.flags, CUDALINK_FRAME_PENDING);
  FAKE(fakecuda_fail, "cuMemHostRegister", 1, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK_OK(cudalink_importer_acquire(next, CUDALINK_STREAM_COMPLETE, 20 * SECOND, &frame));
  CU(cuStreamSynchronize(stream));
  CHECK_OK(cudalink_frame_flags(&pending, &flags));
  CHECK_EQUAL(flags, CUDALINK_FRAME_LOST);
  process_kill(busy);
  process_kill(endless);
  CHECK_OK(cudalink_importer_close(next));
  CHECK_OK(cudalink_importer_close(stuck));
  gpu_device_close(device);
}

/* An open behind a close that left its words registered. */
TEST(channel_behind_words_that_stayed_registered, 60) {
  struct ends ends = {0};
  fake_only();
  describe_rgba(&ends.description, 32, 32);
  ends.stream = gpu_stream();
  for (int i = 0; i < 5; i++) {
    CHECK_OK(open_ends(&ends, CUDALINK_KIND_VMM));
    CHECK_OK(pass_frame(&ends));
    uint64_t calls = FAKE_NUMBER(fakecuda_calls, "cuMemHostUnregister");
    FAKE(fakecuda_fail, "cuMemHostUnregister", 0, CUDA_ERROR_UNKNOWN);
    close_ends(&ends);
    WAIT_UNTIL(FAKE_NUMBER(fakecuda_calls, "cuMemHostUnregister") >= calls + 3);
    forget_fake_failures();
  }
}
