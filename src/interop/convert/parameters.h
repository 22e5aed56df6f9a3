/* SPDX-License-Identifier: MIT
 *
 * What a conversion needs to know for one frame: plain data, the same for the CPU twins and, as the
 * one parameter of a kernel, for the GPU. Valid C11 and CUDA C++.
 */
#ifndef CUDALINK_SRC_INTEROP_CONVERT_PARAMETERS_H
#define CUDALINK_SRC_INTEROP_CONVERT_PARAMETERS_H

#include <stdint.h>

/* How the numbers of a side lie in memory. */
enum convert_storage {
  CONVERT_BYTES = 1,      /* each sample a byte */
  CONVERT_WORDS = 2,      /* each sample in a 16-bit word */
  CONVERT_HALF = 3,       /* each sample a float16 */
  CONVERT_FLOAT = 4,      /* each sample a float32 */
  CONVERT_PACKED = 5,     /* a pixel in a 32-bit word: RGBA8 and its like, RGB10A2 */
  CONVERT_R11G11B10F = 6, /* a pixel in a 32-bit word of three small floats */
  CONVERT_V210 = 7        /* 6 pixels in four 32-bit words */
};

/* Where the samples of one channel are. Sample of pixel (x, y): address + (y >> shift_y) * pitch +
 * (x >> shift_x) * step, in bytes; within a packed word also `position` and `mask`. */
struct convert_channel {
  uint64_t address;
  uint64_t pitch;
  uint64_t step;
  uint32_t present; /* 0: reads as `missing`, is not written */
  uint32_t width;   /* pixels to write in a row: the picture's, or more to fill the last group of
                       YUYV and its like */
  uint32_t shift_x;
  uint32_t shift_y;
  uint32_t position; /* CONVERT_PACKED: lowest bit in the word */
  uint32_t mask;     /* CONVERT_PACKED: the largest value */
  float missing;     /* what a channel that is not there reads as */
  uint32_t reserved; /* keeps the size a multiple of 8 without hidden bytes */
};

struct convert_side {
  struct convert_channel channels[4]; /* R, G, B, A or Y, Cb, Cr, A */
  uint32_t storage;                   /* enum convert_storage */
  uint32_t sample_shift;              /* CONVERT_WORDS: unused low bits (6 in P010) */
};

/* Every conversion is one affine map from the numbers of the source to those of the target:
 *
 *   target[i] = sum over j of matrix[i][j] * (source[j] - black[j]) + offset[i]
 *
 * where the sum has one term, with gain[i], when no colour matrix is needed, and always for alpha.
 * The same coefficients are there as double and as float (see convert_quantize). */
struct convert_coefficients {
  double matrix[3][3];
  double gain[4];
  double black[4];
  double offset[4];
};

struct convert_fast_coefficients {
  float matrix[3][3];
  float gain[4];
  float black[4];
  float offset[4];
};

struct convert_parameters {
  struct convert_side source;
  struct convert_side target;
  struct convert_coefficients exact;
  struct convert_fast_coefficients fast;
  float minimum[4]; /* integer targets: the smallest and the largest value */
  float maximum[4];
  uint32_t mix;   /* 1: colour takes `matrix`, 0: `gain` */
  uint32_t width; /* of the target, pixels */
  uint32_t height;
  uint32_t crop_x;
  uint32_t crop_y;
  uint32_t flip; /* 1: the target's first row is the last of the crop */
  /* A cell is what one GPU thread makes: a pixel, or all pixels that share a chroma sample, or the
   * 6 pixels of a v210 group. */
  uint32_t cell_width;
  uint32_t cell_height;
  uint32_t cells_x;
  uint32_t cells_y;
};

/* The kernels: name, function of cells.h that makes a cell. */
#define CONVERT_KERNELS(X)                                                                         \
  X(convert_swizzle_words, convert_cell_swizzle_word)                                              \
  X(convert_swizzle, convert_cell_swizzle)                                                         \
  X(convert_to_samples, convert_cell_samples)                                                      \
  X(convert_to_packed, convert_cell_packed)                                                        \
  X(convert_to_floats, convert_cell_floats)                                                        \
  X(convert_to_small_floats, convert_cell_small_floats)                                            \
  X(convert_to_v210, convert_cell_v210)

#endif
