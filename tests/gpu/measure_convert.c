/* SPDX-License-Identifier: MIT
 *
 * Measures conversions of 1080p: what the call costs the CPU, beside the launch of a kernel; what the
 * GPU does, beside a copy of as many bytes; and what an open with the kernels' module costs.
 */
#include "measure.h"

#define ROUNDS 500
#define WARM_UP 20

static struct samples calls, launches, conversions, copies;

static double microseconds_between(CUevent start, CUevent end) {
  float milliseconds = 0;
  CU(cuEventSynchronize(end));
  CU(cuEventElapsedTime(&milliseconds, start, end));
  return (double)milliseconds * 1e3;
}

struct setting {
  cudalink_exporter exporter;
  cudalink_slot slot;
  cudalink_convert_plan *plan;
  CUstream stream;
  CUevent start, end;
  uint64_t bytes;
  void *source, *target;
};

static void measure_once(struct setting *setting, bool kept) {
  CU(cuEventRecord(setting->start, setting->stream));
  uint64_t start = cudalink_now();
  CHECK_OK(cudalink_exporter_convert(setting->exporter, setting->plan, setting->source,
                                     &setting->slot, ON(setting->stream)));
  double call = microseconds_since(start);
  CU(cuEventRecord(setting->end, setting->stream));
  double conversion = microseconds_between(setting->start, setting->end);
  start = cudalink_now();
  gpu_fill(setting->stream, setting->target, 64, 1, 0);
  double launch = microseconds_since(start);
  CU(cuEventRecord(setting->start, setting->stream));
  CU(cuMemcpyAsync((CUdeviceptr)(uintptr_t)setting->target,
                   (CUdeviceptr)(uintptr_t)setting->slot.data, setting->bytes, setting->stream));
  CU(cuEventRecord(setting->end, setting->stream));
  double copy = microseconds_between(setting->start, setting->end);
  if (!kept) return;
  samples_add(&calls, call);
  samples_add(&conversions, conversion);
  samples_add(&launches, launch);
  samples_add(&copies, copy);
}

static void measure_pair(cudalink_format from, cudalink_format into) {
  struct setting setting = {0};
  cudalink_description source = {0}, target = {0};
  char name[80];
  gpu_start();
  CHECK_OK(cudalink_describe_picture(&source, from, 1920, 1080, 0));
  CHECK_OK(cudalink_describe_picture(&target, into, 1920, 1080, 0));
  CHECK_OK(cudalink_description_bytes(&target, &setting.bytes));
  CHECK_OK(cudalink_convert_plan_create(&setting.plan, &source, &target, NULL));
  setting.stream = gpu_stream();
  CU(cuEventCreate(&setting.start, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&setting.end, CU_EVENT_DEFAULT));
  setting.source = gpu_memory(GPU_MEMORY_DEVICE, 64 << 20, setting.stream);
  setting.target = gpu_memory(GPU_MEMORY_DEVICE, 64 << 20, setting.stream);
  CHECK_OK(cudalink_exporter_open(
      &setting.exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &target, .convert = 1}));
  CHECK_OK(cudalink_exporter_begin(setting.exporter, &target, SECOND, &setting.slot));
  int rounds = gpu_is_fake() ? WARM_UP + 5 : ROUNDS; /* there a CPU converts */
  for (int i = 0; i < rounds; i++)
    measure_once(&setting, i >= WARM_UP);
  snprintf(name, sizeof name, "convert 1080p, %s to %s", cudalink_format_name(from),
           cudalink_format_name(into));
  samples_report(&calls, name, "CPU: cudalink_exporter_convert");
  samples_report(&launches, name, "CPU: launch of one kernel");
  samples_report(&conversions, name, "GPU: conversion");
  samples_report(&copies, name, "GPU: copy of the target's bytes");
  CHECK_OK(cudalink_exporter_abandon(setting.exporter, &setting.slot, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_exporter_close(setting.exporter));
  cudalink_convert_plan_destroy(setting.plan);
}
TEST(convert_bgra_rgba, 60) { measure_pair(CUDALINK_FORMAT_BGRA8, CUDALINK_FORMAT_RGBA8); }
TEST(convert_nv12_rgba, 60) { measure_pair(CUDALINK_FORMAT_NV12, CUDALINK_FORMAT_RGBA8); }
TEST(convert_rgba_nv12, 60) { measure_pair(CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_NV12); }
TEST(convert_rgba_floats, 60) { measure_pair(CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_RGB_CHW32F); }
TEST(convert_v210_rgba16, 60) { measure_pair(CUDALINK_FORMAT_V210, CUDALINK_FORMAT_RGBA16); }

/* The first open that loads the module, and one that finds it loaded. */
TEST(convert_open, 60) {
  static const char *const what[] = {"without", "first with convert", "second with convert"};
  cudalink_exporter exporters[3];
  gpu_start();
  for (uint32_t i = 0; i < 3; i++) {
    char name[16];
    snprintf(name, sizeof name, "gpu-%u", i);
    uint64_t start = cudalink_now();
    CHECK_OK(cudalink_exporter_open(
        &exporters[i], &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = name,
                                                 .kind = CUDALINK_KIND_VMM, .slot_bytes = 1 << 20,
                                                 .convert = i > 0}));
    samples_add(&calls, microseconds_since(start));
    samples_report(&calls, "open", what[i]);
  }
  for (uint32_t i = 0; i < 3; i++)
    CHECK_OK(cudalink_exporter_close(exporters[i]));
}
