/* SPDX-License-Identifier: MIT
 *
 * The stage of the conversion tests: a channel that converts at both ends, one stream, and pictures
 * of random numbers with what the CPU makes of them.
 */
#ifndef CUDALINK_TESTS_GPU_CONVERT_STAGE_H
#define CUDALINK_TESTS_GPU_CONVERT_STAGE_H

#include "gpu.h"

#define BACKGROUND 0xa5 /* of targets: bytes that no conversion may touch keep it */

struct stage {
  cudalink_exporter exporter;
  cudalink_importer importer;
  CUstream stream;
};

static inline void open_stage(struct stage *stage, cudalink_kind kind, uint32_t convert) {
  stage->stream = gpu_stream();
  CHECK_OK(cudalink_exporter_open(
      &stage->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "convert", .kind = kind,
                                .slot_bytes = 1 << 20, .plane_count = 4, .convert = convert}));
  CHECK_OK(cudalink_importer_open(
      &stage->importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "convert", .hold = 2,
                                .open_timeout = 10 * SECOND, .convert = convert}));
}

static inline void close_stage(struct stage *stage) {
  CU(cuStreamSynchronize(stage->stream));
  CHECK_OK(cudalink_importer_close(stage->importer));
  CHECK_OK(cudalink_exporter_close(stage->exporter));
}

/* One conversion: what goes in, and what the CPU makes of it. */
struct example {
  cudalink_description source, target;
  cudalink_convert_plan *plan;
  uint64_t source_bytes, target_bytes;
  unsigned char *picture, *expected, *found;
};

/* After source and target are described, and the picture has been allocated by example_fill. */
static inline void example_fill(struct example *example, const cudalink_convert_options *options) {
  CHECK_OK(
      cudalink_convert_plan_create(&example->plan, &example->source, &example->target, options));
  CHECK_OK(cudalink_description_bytes(&example->source, &example->source_bytes));
  CHECK_OK(cudalink_description_bytes(&example->target, &example->target_bytes));
  example->picture = malloc(example->source_bytes + 4);
  example->expected = malloc(example->target_bytes);
  example->found = malloc(example->target_bytes);
}

static inline void example_expect(struct example *example) {
  memset(example->expected, BACKGROUND, example->target_bytes);
  CHECK_OK(cudalink_convert_host(example->plan, example->picture, example->expected));
}

static inline void example_free(struct example *example) {
  cudalink_convert_plan_destroy(example->plan);
  free(example->picture);
  free(example->expected);
  free(example->found);
}

/* Random bytes, and the bit of each exponent off that makes infinities and NaN. */
static inline void example_random(struct example *example) {
  const cudalink_dtype dtype = example->source.planes[0].dtype;
  uint32_t keep = UINT32_MAX;
  if (dtype.code == CUDALINK_DTYPE_FLOAT) keep = dtype.bits == 32 ? 0xbfffffff : 0xbfffbfff;
  if (example->source.picture.format == CUDALINK_FORMAT_R11G11B10F) keep = 0x7fdffbff;
  for (uint64_t i = 0; i < example->source_bytes; i += 4) {
    uint32_t word = (uint32_t)random_number() & keep;
    memcpy(example->picture + i, &word, 4); /* there is room for a whole last word */
  }
}

static inline CUdeviceptr device_of(const void *address) { return (CUdeviceptr)(uintptr_t)address; }

/* Device memory with these bytes, in the order of the stream. */
static inline void put_on(CUstream stream, void *target, const void *bytes, uint64_t count) {
  CU(cuMemcpyAsync(device_of(target), device_of(bytes), count, stream));
}
static inline void fill_on(CUstream stream, void *target, unsigned char byte, uint64_t count) {
  CU(cuMemsetD8Async(device_of(target), byte, count, stream));
}
static inline void get_on(CUstream stream, void *bytes, const void *source, uint64_t count) {
  CU(cuMemcpyDtoHAsync(bytes, device_of(source), count, stream));
  CU(cuStreamSynchronize(stream));
}

#endif
