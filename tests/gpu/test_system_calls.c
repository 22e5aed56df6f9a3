/* SPDX-License-Identifier: MIT
 *
 * Per frame the library makes no system call while nobody sleeps. Shown by ptrace on the fake driver,
 * whose own calls are told apart; a real driver's can't be. The host kind is counted the same way (and
 * more closely in tests/process).
 */
#include "../process/trace.h"
#include "gpu.h"

#if !WITH_SANITIZER

#define FRAMES 200

struct ends {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream;
  cudalink_stream named;
  void *source, *pinned;
};

static void open_ends(struct ends *ends) {
  cudalink_kind kind = gpu_kind_option();
  describe_rgba(&ends->description, 64, 64);
  CHECK_OK(cudalink_description_bytes(&ends->description, &ends->bytes));
  ends->named = CUDALINK_STREAM_COMPLETE;
  ends->source = ends->pinned = calloc(1, ends->bytes);
  if (kind != CUDALINK_KIND_HOST) {
    ends->stream = gpu_stream();
    ends->named = ON(ends->stream);
    ends->source = gpu_memory(GPU_MEMORY_DEVICE, ends->bytes, ends->stream);
    ends->pinned = gpu_memory(GPU_MEMORY_PINNED, ends->bytes, ends->stream);
  }
  CHECK_OK(cudalink_exporter_open(
      &ends->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .kind = kind,
                                .description = &ends->description,
                                .own_stream = option_number("own_stream", 0) != 0,
                                .export_sync = option_number("export_sync", 0) != 0,
                                .flush_probe = option_number("flush_probe", 0) != 0}));
  CHECK_OK(cudalink_importer_open(
      &ends->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                 .gpu_wait = kind != CUDALINK_KIND_HOST,
                                                 .open_timeout = 10 * SECOND}));
  CHECK_OK(cudalink_exporter_wait_consumers(ends->exporter, 1, 10 * SECOND));
}

/* So that nobody has to sleep for what a GPU does. */
static void settle(const struct ends *ends) {
  if (!ends->stream) return;
  CU(cuStreamSynchronize(ends->stream));
  CHECK_OK(cudalink_exporter_wait_sent(ends->exporter, CUDALINK_STREAM_COMPLETE));
}

static void one_frame(struct ends *ends, int number) {
  cudalink_slot slot;
  cudalink_frame frame;
  cudalink_host_copy copy;
  if (number % 2) {
    CHECK_OK(cudalink_exporter_begin(ends->exporter, &ends->description, 10 * SECOND, &slot));
    CHECK_OK(cudalink_exporter_publish(ends->exporter, &slot, ends->named));
  } else {
    CHECK_OK(cudalink_exporter_send(ends->exporter, &ends->description, ends->source, NULL,
                                    ends->named, 10 * SECOND));
  }
  settle(ends);
  CHECK_OK(cudalink_importer_acquire(ends->importer, ends->named, 10 * SECOND, &frame));
  if (number % 3 == 1) CHECK_OK(cudalink_frame_to_host(&frame, ends->pinned, ends->bytes));
  if (number % 3 == 2) {
    CHECK_OK(cudalink_frame_to_host_begin(&frame, NULL, 0, &copy));
    CHECK_OK(cudalink_frame_to_host_finish(&copy));
  } else {
    CHECK_OK(cudalink_frame_release(&frame, ends->named));
  }
  settle(ends);
}

HELPER(quiet_ends) {
  static const int never = 0;
  struct ends ends = {0};
  const int *(*inside)(void) = NULL;
  char line[LINE_SIZE];
  gpu_start();
  void *symbol = fakecuda_symbol("fakecuda_inside");
  memcpy(&inside, &symbol, sizeof symbol);
  open_ends(&ends);
  for (int i = 0; i < 40; i++) /* graphs, pinned memory */
    one_frame(&ends, i);
  say("ready");
  while (hear(line)) {
    trace_begin_without(inside ? inside() : &never);
    for (int i = 0; i < FRAMES; i++)
      one_frame(&ends, i);
    trace_end();
    say("done");
  }
  CHECK_OK(cudalink_importer_close(ends.importer));
  CHECK_OK(cudalink_exporter_close(ends.exporter));
}

static void count(const char *options) {
  gpu_start();
  if (!gpu_is_fake()) return; /* a driver's calls are its own */
  struct process *process = process_start("quiet_ends", "%s", options);
  process_expect(process, "ready");
  CHECK_EQUAL(trace_count_calls(process, NULL, NULL), 0);
  process_finish(process);
}

TEST(frames_make_no_system_call_vmm, 60) { count("kind=vmm"); }
TEST(frames_make_no_system_call_ipc, 60) { count("kind=ipc"); }
TEST(frames_make_no_system_call_host, 60) { count("kind=host"); }
TEST(frames_make_no_system_call_own_stream, 60) { count("kind=vmm own_stream=1 flush_probe=1"); }
TEST(frames_make_no_system_call_export_sync, 60) { count("kind=vmm export_sync=1"); }

#endif
