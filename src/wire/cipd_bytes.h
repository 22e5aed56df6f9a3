/* SPDX-License-Identifier: MIT
 *
 * Access to single fields of an old segment that another process may be writing to.
 *
 * The counter (u32 at 16) is aligned and is the one word that orders everything: release by the
 * writer, acquire by the reader. The version (u64 at 4) is not 8-byte aligned, so it is handled as
 * two aligned halves. All else is unaligned and is moved byte by byte with relaxed atomics, which is
 * defined behaviour; the order comes from the counter, the version, and the fences below.
 */
#ifndef CUDALINK_SRC_WIRE_CIPD_BYTES_H
#define CUDALINK_SRC_WIRE_CIPD_BYTES_H

#include <stdint.h>
#include <string.h>

static inline void cipd_copy_out(void *to, const void *block, uint32_t at, size_t size) {
  const unsigned char *from = (const unsigned char *)block + at;
  for (size_t i = 0; i < size; i++)
    ((unsigned char *)to)[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

static inline void cipd_copy_in(void *block, uint32_t at, const void *from, size_t size) {
  unsigned char *to = (unsigned char *)block + at;
  for (size_t i = 0; i < size; i++)
    __atomic_store_n(&to[i], ((const unsigned char *)from)[i], __ATOMIC_RELAXED);
}

#define CIPD_ACCESS(name, type)                                                                    \
  static inline type cipd_load_##name(const void *block, uint32_t at) {                            \
    type value;                                                                                    \
    cipd_copy_out(&value, block, at, sizeof value);                                                \
    return value;                                                                                  \
  }                                                                                                \
  static inline void cipd_store_##name(void *block, uint32_t at, type value) {                     \
    cipd_copy_in(block, at, &value, sizeof value);                                                 \
  }
CIPD_ACCESS(u8, uint8_t)
CIPD_ACCESS(u16, uint16_t)
CIPD_ACCESS(u32, uint32_t)
CIPD_ACCESS(f64, double)
#undef CIPD_ACCESS

/* Aligned 32-bit words. */
static inline uint32_t cipd_load_acquire(const void *block, uint32_t at) {
  return __atomic_load_n((const uint32_t *)(const void *)((const char *)block + at),
                         __ATOMIC_ACQUIRE);
}
static inline void cipd_store_release(void *block, uint32_t at, uint32_t value) {
  __atomic_store_n((uint32_t *)(void *)((char *)block + at), value, __ATOMIC_RELEASE);
}

/* ThreadSanitizer does not model fences, and GCC says so; between processes it sees nothing anyway. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
/* What was read before stays before what is read after. Partner: cipd_fence_writes. */
static inline void cipd_fence_reads(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
/* What was written before is seen before what is written after. Partner: cipd_fence_reads. */
static inline void cipd_fence_writes(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif
