/* SPDX-License-Identifier: MIT
 *
 * What the GPU tests run on a frame. build-kernels makes kernels.ptx of it; kernels.c has the CPU
 * twins for the fake driver.
 */
typedef unsigned long long word;

/* The word that belongs at `place` of a frame with this pattern; kernels.c has the same. */
static __device__ word pattern_word(word pattern, word place) {
  word x = (pattern * 0x9e3779b97f4a7c15ull) ^ (place * 0xbf58476d1ce4e5b9ull);
  x ^= x >> 31;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 29);
}

static __device__ word now(void) {
  word time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

static __device__ void delay(word nanoseconds) {
  if (!nanoseconds) return;
  for (word end = now() + nanoseconds; now() < end;) {
  }
}

/* In two halves with a pause between them, so that a frame that is touched too early is torn. */
extern "C" __global__ void gpu_fill(word *slot, word words, word pattern, word pause) {
  word half = words / 2, step = (word)gridDim.x * blockDim.x;
  word at = (word)blockIdx.x * blockDim.x + threadIdx.x;
  for (; at < half; at += step) slot[at] = pattern_word(pattern, at);
  delay(pause);
  for (; at < words; at += step) slot[at] = pattern_word(pattern, at);
}

/* counts[0] += words that are wrong, counts[1] += words that were looked at */
extern "C" __global__ void gpu_check(const word *slot, word words, word pattern, word pause,
                                     word *counts) {
  word half = words / 2, step = (word)gridDim.x * blockDim.x, wrong = 0, seen = 0;
  word at = (word)blockIdx.x * blockDim.x + threadIdx.x;
  for (; at < half; at += step, seen++) wrong += slot[at] != pattern_word(pattern, at);
  delay(pause);
  for (; at < words; at += step, seen++) wrong += slot[at] != pattern_word(pattern, at);
  if (wrong) atomicAdd(&counts[0], wrong);
  if (seen) atomicAdd(&counts[1], seen);
}

/* The time of the GPU, which all its processes share; with a pause before it. */
extern "C" __global__ void gpu_stamp(word *place, word pause) {
  delay(pause);
  *place = now();
}

/* How long ago that was. */
extern "C" __global__ void gpu_age(const word *place, word *age) {
  word start = now();
  *age = start - *(const volatile word *)place;
}
