/* SPDX-License-Identifier: MIT
 *
 * Numbers that C has no type for (float16, the small floats of R11G11B10F), rounding, and memory
 * access, for the CPU twins and the CUDA kernels alike. Integer arithmetic where possible, so that
 * both give the same bits.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_NUMBERS_H
#define CUDALINK_SRC_INTEROP_CONVERT_NUMBERS_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CONVERT_INLINE static __device__ __forceinline__
#define CONVERT_UNROLL _Pragma("unroll")
#define CONVERT_KEEP_LOOP _Pragma("unroll 1")
#else
#define CONVERT_INLINE static inline __attribute__((always_inline))
#define CONVERT_UNROLL
#define CONVERT_KEEP_LOOP
#endif

/* On the GPU a load is one instruction and must be aligned (checked before the launch). On the CPU
 * any address is fine. */
#ifdef __CUDACC__
#define CONVERT_ACCESS(type, name)                                                                 \
  CONVERT_INLINE type convert_load_##name(uint64_t address) { return *(const type *)address; }     \
  CONVERT_INLINE void convert_store_##name(uint64_t address, type value) {                         \
    *(type *)address = value;                                                                      \
  }
#else
#define CONVERT_ACCESS(type, name)                                                                 \
  CONVERT_INLINE type convert_load_##name(uint64_t address) {                                      \
    type value;                                                                                    \
    memcpy(&value, (const void *)(uintptr_t)address, sizeof value);                                \
    return value;                                                                                  \
  }                                                                                                \
  CONVERT_INLINE void convert_store_##name(uint64_t address, type value) {                         \
    memcpy((void *)(uintptr_t)address, &value, sizeof value);                                      \
  }
#endif
CONVERT_ACCESS(uint8_t, 8)
CONVERT_ACCESS(uint16_t, 16)
CONVERT_ACCESS(uint32_t, 32)
#undef CONVERT_ACCESS

CONVERT_INLINE float convert_float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

CONVERT_INLINE uint32_t convert_bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

CONVERT_INLINE float convert_absolute(float value) {
  return convert_float_of(convert_bits_of(value) & 0x7fffffffu);
}

/* Round half to even without libm: adding 1.5 * 2^(bits of the significand - 1) leaves no room for
 * a fraction. Right for absolute values below 2^22 and 2^51. */
CONVERT_INLINE float convert_round_float(float value) {
  const float magic = 12582912.0f;
  return (value + magic) - magic;
}

CONVERT_INLINE double convert_round_double(double value) {
  const double magic = 6755399441055744.0;
  return (value + magic) - magic;
}

/* float16 to float32: always exact. */
CONVERT_INLINE float convert_float_of_half(uint32_t half) {
  uint32_t sign = (half & 0x8000u) << 16;
  uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) /* infinity and NaN */
    return convert_float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return convert_float_of(sign | ((magnitude << 13) + (112u << 23)));
  /* A subnormal is a multiple of 2^-24. */
  float value = (float)magnitude * 5.9604644775390625e-8f;
  return convert_float_of(sign | convert_bits_of(value));
}

/* value >> shift, rounded half to even. */
CONVERT_INLINE uint32_t convert_shift_rounded(uint32_t value, uint32_t shift) {
  return (value + ((1u << (shift - 1)) - 1u) + ((value >> shift) & 1u)) >> shift;
}

/* The bits of a positive finite float32 as a float with 5 bits of exponent (bias 15) and `mantissa`
 * bits of mantissa, rounded half to even. What is too large comes out at or above infinity's bits.
 * */
CONVERT_INLINE uint32_t convert_shrink(uint32_t bits, uint32_t mantissa) {
  uint32_t exponent = bits >> 23;
  if (exponent >= 113u) return convert_shift_rounded(bits - (112u << 23), 23u - mantissa);
  if (exponent < 112u - mantissa) return 0; /* less than half of the smallest subnormal */
  uint32_t significand = (bits & 0x7fffffu) | 0x800000u;
  return convert_shift_rounded(significand, 23u - mantissa + (113u - exponent));
}

/* float32 to float16, rounded half to even; too large becomes infinity, NaN stays NaN. */
CONVERT_INLINE uint16_t convert_half_of_float(float value) {
  uint32_t bits = convert_bits_of(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (bits >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and more, infinity */
  return (uint16_t)(sign | convert_shrink(bits, 10));
}

/* The unsigned floats of R11G11B10F: 5 bits of exponent, 6 or 5 of mantissa, no sign. */
CONVERT_INLINE uint32_t convert_unsigned_float(float value, uint32_t mantissa) {
  uint32_t bits = convert_bits_of(value);
  uint32_t infinity = 31u << mantissa;
  if ((bits & 0x7fffffffu) > 0x7f800000u) return infinity | (1u << (mantissa - 1));
  if (bits & 0x80000000u) return 0;
  if (bits == 0x7f800000u) return infinity;
  if (bits >= 0x47800000u) return infinity - 1;
  uint32_t shrunk = convert_shrink(bits, mantissa);
  return shrunk < infinity ? shrunk : infinity - 1;
}

#endif
