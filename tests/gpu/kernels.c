/* SPDX-License-Identifier: MIT
 *
 * Launches the kernels of kernels.ptx, and has their CPU twins for the fake driver.
 */
#include <stdatomic.h>
#include <time.h>

#include "gpu.h"

/* The text of kernels.ptx travels inside the program. */
__asm__(".pushsection .rodata\n"
        "gpu_kernels_ptx:\n"
        ".incbin \"" KERNELS_PTX "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char gpu_kernels_ptx[] __attribute__((visibility("hidden")));

#define BLOCK 256
#define MOST_BLOCKS 512

static CUfunction fill_kernel, check_kernel, stamp_kernel, age_kernel;

/* ---- the pattern ------------------------------------------------------------------------------------ */

static uint64_t pattern_word(uint64_t pattern, uint64_t place) {
  uint64_t x = (pattern * UINT64_C(0x9e3779b97f4a7c15)) ^ (place * UINT64_C(0xbf58476d1ce4e5b9));
  x ^= x >> 31;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 29);
}

static void fill_words(uint64_t *target, uint64_t from, uint64_t to, uint64_t pattern) {
  for (uint64_t i = from; i < to; i++)
    target[i] = pattern_word(pattern, i);
}

static uint64_t count_wrong(const volatile uint64_t *words, uint64_t from, uint64_t to,
                            uint64_t pattern) {
  uint64_t wrong = 0;
  for (uint64_t i = from; i < to; i++)
    wrong += words[i] != pattern_word(pattern, i);
  return wrong;
}

void gpu_pattern(void *target, uint64_t bytes, uint64_t pattern) {
  fill_words(target, 0, bytes / 8, pattern);
}

uint64_t gpu_pattern_wrong(const void *bytes, uint64_t count, uint64_t pattern) {
  return count_wrong(bytes, 0, count / 8, pattern);
}

/* ---- CPU twins ---------------------------------------------------------------------------------------- */

#define ARGUMENT(type, number) (*(type *)params[number])

static void pause_for(uint64_t nanoseconds) {
  struct timespec time = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
  if (nanoseconds) nanosleep(&time, NULL);
}

static void fill_twin(const unsigned grid[3], const unsigned block[3], void **params) {
  (void)grid, (void)block;
  uint64_t *slot = ARGUMENT(uint64_t *, 0), words = ARGUMENT(uint64_t, 1);
  fill_words(slot, 0, words / 2, ARGUMENT(uint64_t, 2));
  pause_for(ARGUMENT(uint64_t, 3));
  fill_words(slot, words / 2, words, ARGUMENT(uint64_t, 2));
}

static void check_twin(const unsigned grid[3], const unsigned block[3], void **params) {
  (void)grid, (void)block;
  const uint64_t *slot = ARGUMENT(const uint64_t *, 0);
  uint64_t words = ARGUMENT(uint64_t, 1), pattern = ARGUMENT(uint64_t, 2);
  _Atomic uint64_t *counts = ARGUMENT(_Atomic uint64_t *, 4);
  uint64_t wrong = count_wrong(slot, 0, words / 2, pattern);
  pause_for(ARGUMENT(uint64_t, 3));
  wrong += count_wrong(slot, words / 2, words, pattern);
  atomic_fetch_add(&counts[0], wrong);
  atomic_fetch_add(&counts[1], words);
}

static void stamp_twin(const unsigned grid[3], const unsigned block[3], void **params) {
  (void)grid, (void)block;
  pause_for(ARGUMENT(uint64_t, 1));
  *ARGUMENT(uint64_t *, 0) = cudalink_now();
}

static void age_twin(const unsigned grid[3], const unsigned block[3], void **params) {
  (void)grid, (void)block;
  *ARGUMENT(uint64_t *, 1) = cudalink_now() - *ARGUMENT(uint64_t *, 0);
}

/* ---- launching ------------------------------------------------------------------------------------------ */

void gpu_load_kernels(void) {
  CUmodule module;
  FAKE(fakecuda_register_kernel, "gpu_fill", fill_twin);
  FAKE(fakecuda_register_kernel, "gpu_check", check_twin);
  FAKE(fakecuda_register_kernel, "gpu_stamp", stamp_twin);
  FAKE(fakecuda_register_kernel, "gpu_age", age_twin);
  CU(cuModuleLoadData(&module, gpu_kernels_ptx));
  CU(cuModuleGetFunction(&fill_kernel, module, "gpu_fill"));
  CU(cuModuleGetFunction(&check_kernel, module, "gpu_check"));
  CU(cuModuleGetFunction(&stamp_kernel, module, "gpu_stamp"));
  CU(cuModuleGetFunction(&age_kernel, module, "gpu_age"));
}

static unsigned blocks_for(uint64_t words) {
  uint64_t blocks = (words + 4 * BLOCK - 1) / (4 * BLOCK);
  return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : (unsigned)blocks;
}

static void launch(CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream,
                   void **params) {
  CU(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}

void gpu_fill(CUstream stream, void *slot, uint64_t bytes, uint64_t pattern, uint64_t pause) {
  uint64_t words = bytes / 8;
  launch(fill_kernel, blocks_for(words), BLOCK, stream,
         (void *[]){&slot, &words, &pattern, &pause});
}

void gpu_fill_in_graph(CUgraphExec exec, CUgraphNode node, void *slot, uint64_t bytes,
                       uint64_t pattern, uint64_t pause) {
  uint64_t words = bytes / 8;
  CUDA_KERNEL_NODE_PARAMS_v1 params = {.func = fill_kernel,
                                       .gridDimX = blocks_for(words),
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = BLOCK,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = (void *[]){&slot, &words, &pattern, &pause}};
  CU(cuGraphExecKernelNodeSetParams(exec, node, &params));
}

/* Where counts are read to: pinned, because a copy to other memory blocks. */
static _Thread_local struct gpu_counts *counts_read;

CUdeviceptr gpu_counts_make(void) {
  CUdeviceptr counts;
  void *pinned;
  CU(cuMemAlloc(&counts, sizeof(struct gpu_counts)));
  CU(cuMemsetD8(counts, 0, sizeof(struct gpu_counts)));
  CU(cuMemHostAlloc(&pinned, sizeof(struct gpu_counts), 0));
  counts_read = pinned;
  return counts;
}

struct gpu_counts gpu_counts_read(CUdeviceptr counts, CUstream stream) {
  CU(cuMemcpyDtoHAsync(counts_read, counts, sizeof *counts_read, stream));
  CU(cuStreamSynchronize(stream));
  return *counts_read;
}

void gpu_check(CUstream stream, const void *slot, uint64_t bytes, uint64_t pattern, uint64_t pause,
               CUdeviceptr counts) {
  uint64_t words = bytes / 8;
  launch(check_kernel, blocks_for(words), BLOCK, stream,
         (void *[]){(void *)(uintptr_t)&slot, &words, &pattern, &pause, &counts});
}

void gpu_stamp(CUstream stream, void *place, uint64_t pause) {
  launch(stamp_kernel, 1, 1, stream, (void *[]){&place, &pause});
}

void gpu_age(CUstream stream, const void *place, CUdeviceptr age) {
  launch(age_kernel, 1, 1, stream, (void *[]){(void *)(uintptr_t)&place, &age});
}
