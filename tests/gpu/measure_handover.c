/* SPDX-License-Identifier: MIT
 *
 * From the end of the producer's kernel to the start of the consumer's, in two processes, by the
 * clock of the GPU: by the library in its three ways, and by raw driver calls.
 *
 * The producer's kernel writes the time at its end, the consumer's kernel takes the difference.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "measure.h"

#define ROUNDS 300
#define PAUSE 200000 /* ns in the producer's kernel, so that the consumer is there before its end */
#define BETWEEN (2 * MILLISECOND)

static struct samples ages;

static void take_age(CUdeviceptr age, CUstream stream, int round) {
  uint64_t nanoseconds;
  CU(cuMemcpyDtoHAsync(&nanoseconds, age, sizeof nanoseconds, stream));
  CU(cuStreamSynchronize(stream));
  if (round > 20) samples_add(&ages, (double)nanoseconds / 1e3);
}

static CUdeviceptr make_age(void) {
  CUdeviceptr age;
  CU(cuMemAlloc(&age, 8));
  return age;
}

static void wait_until(uint64_t time) {
  while (cudalink_now() < time) {
  }
}

/* ---- by the library ---------------------------------------------------------------------------------- */

HELPER(renders) {
  cudalink_exporter exporter;
  cudalink_description description;
  gpu_start();
  CUstream stream = gpu_stream();
  describe_rgba(&description, 64, 64);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &description}));
  say("open");
  CHECK_OK(cudalink_exporter_wait_consumers(exporter, 1, 10 * SECOND));
  for (uint64_t start = cudalink_now(); !hear_within(0); start += (uint64_t)BETWEEN) {
    cudalink_slot slot;
    wait_until(start);
    CHECK_OK(cudalink_exporter_begin(exporter, &description, SECOND, &slot));
    gpu_stamp(stream, slot.data, PAUSE);
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(stream)));
  }
  CU(cuStreamSynchronize(stream));
  CHECK_OK(cudalink_exporter_close(exporter));
}

enum way { WAY_COMPLETE, WAY_STREAM, WAY_NEXT };

static void by_library(enum way way, const char *what) {
  cudalink_importer importer;
  gpu_start();
  CUstream stream = gpu_stream();
  CUdeviceptr age = make_age();
  struct process *producer = process_start("renders", "x=1");
  process_expect(producer, "open");
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                           .gpu_wait = way != WAY_COMPLETE,
                                           .spin = (uint64_t)SECOND, .open_timeout = 5 * SECOND}));
  for (int i = 0; i < ROUNDS; i++) {
    cudalink_frame frame;
    int status = CUDALINK_ERROR_BUSY;
    cudalink_stream on = way == WAY_COMPLETE ? CUDALINK_STREAM_COMPLETE : ON(stream);
    if (way == WAY_NEXT && i > 3)
      status = cudalink_importer_wait_next(importer, on, SECOND, &frame);
    if (status < 0) CHECK_OK(cudalink_importer_acquire(importer, on, SECOND, &frame));
    gpu_age(stream, frame.data, age);
    status = cudalink_frame_release(&frame, ON(stream));
    if (status != CUDALINK_ERROR_SKIPPED) CHECK_OK(status);
    take_age(age, stream, i);
  }
  samples_report(&ages, "kernel end to kernel start, two processes", what);
  CHECK_OK(cudalink_importer_close(importer));
  process_finish(producer);
}
TEST(handover_complete, 60) { by_library(WAY_COMPLETE, "acquire with COMPLETE"); }
TEST(handover_stream, 60) { by_library(WAY_STREAM, "acquire with a stream and gpu_wait"); }
TEST(handover_next, 60) { by_library(WAY_NEXT, "wait_next"); }

/* ---- by raw driver calls ---------------------------------------------------------------------------------- */

/* Two words in a memfd that both processes have registered: the time, and how far the producer is. */
struct raw {
  _Atomic uint64_t time;
  char apart[120];
  _Atomic uint64_t ready;
};

static struct raw *map_raw(int descriptor) {
  void *address = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  CHECK(address != MAP_FAILED);
  CU(cuMemHostRegister(address, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  return address;
}

HELPER(renders_raw) {
  char path[64];
  gpu_start();
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)option_number("parent", 0),
           (int)option_number("fd", 0));
  int descriptor = open(path, O_RDWR | O_CLOEXEC);
  CHECK(descriptor >= 0);
  struct raw *raw = map_raw(descriptor);
  CUstream stream = gpu_stream();
  uint64_t number = 0;
  say("open");
  for (uint64_t start = cudalink_now(); !hear_within(0); start += (uint64_t)BETWEEN) {
    wait_until(start);
    gpu_stamp(stream, &raw->time, PAUSE);
    CU(cuStreamWriteValue64(stream, (CUdeviceptr)(uintptr_t)&raw->ready, ++number, 0));
  }
  CU(cuStreamSynchronize(stream));
}

static void by_raw_calls(bool queued, const char *what) {
  gpu_start();
  int descriptor = memfd_create("raw", MFD_CLOEXEC);
  CHECK(descriptor >= 0);
  CHECK_EQUAL(ftruncate(descriptor, 4096), 0);
  struct raw *raw = map_raw(descriptor);
  CUstream stream = gpu_stream();
  CUdeviceptr age = make_age();
  struct process *producer = process_start("renders_raw", "fd=%d", descriptor);
  process_expect(producer, "open");
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t next = atomic_load(&raw->ready) + 1;
    if (queued)
      CU(cuStreamWaitValue64(stream, (CUdeviceptr)(uintptr_t)&raw->ready, next,
                             CU_STREAM_WAIT_VALUE_GEQ));
    while (!queued && atomic_load(&raw->ready) < next) {
    }
    gpu_age(stream, &raw->time, age);
    take_age(age, stream, i);
  }
  samples_report(&ages, "kernel end to kernel start, two processes", what);
  process_finish(producer);
}
TEST(handover_raw_spin, 60) { by_raw_calls(false, "raw: the CPU spins on a word, then launches"); }
TEST(handover_raw_queued, 60) { by_raw_calls(true, "raw: a queued wait for a word"); }
