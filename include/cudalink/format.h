/* SPDX-License-Identifier: MIT
 *
 * cudalink/format.h - picture formats: what planes they have and how samples lie in memory.
 *
 * A picture's planes are ordinary planes of its description: shape {rows, columns} or {rows,
 * columns, samples}, strides[0] = the pitch in bytes. The table in docs/formats.md is made from the
 * same source.
 */
#ifndef CUDALINK_FORMAT_H
#define CUDALINK_FORMAT_H

#include "cudalink/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDALINK_FOURCC(a, b, c, d)                                                                \
  ((uint32_t)(a) | ((uint32_t)(b) << 8) | ((uint32_t)(c) << 16) | ((uint32_t)(d) << 24))

/* X(name, fourcc). Samples are little-endian. The order of letters is the order in memory, except
 * in RGB10A2 and R11G11B10F, whose first letter is in the low bits of a 32-bit word.
 * 10- and 12-bit planar forms keep their bits low in 16-bit words (as ffmpeg's yuv420p10le does);
 * P010 and P210 keep them high (as Microsoft defines them). */
#define CUDALINK_FORMATS(X)                                                                        \
  X(R8, CUDALINK_FOURCC('R', '8', ' ', ' '))                                                       \
  X(RG8, CUDALINK_FOURCC('R', 'G', '8', ' '))                                                      \
  X(RGB8, CUDALINK_FOURCC('R', 'G', 'B', '8'))                                                     \
  X(RGBA8, CUDALINK_FOURCC('R', 'G', 'B', 'A'))                                                    \
  X(BGRA8, CUDALINK_FOURCC('B', 'G', 'R', 'A'))                                                    \
  X(RGBX8, CUDALINK_FOURCC('R', 'G', 'B', 'X'))                                                    \
  X(BGRX8, CUDALINK_FOURCC('B', 'G', 'R', 'X'))                                                    \
  X(R16, CUDALINK_FOURCC('R', '1', '6', ' '))                                                      \
  X(RG16, CUDALINK_FOURCC('R', 'G', '1', '6'))                                                     \
  X(RGBA16, CUDALINK_FOURCC('R', 'A', '1', '6'))                                                   \
  X(R16F, CUDALINK_FOURCC('R', '1', '6', 'F'))                                                     \
  X(RG16F, CUDALINK_FOURCC('R', 'G', '1', 'F'))                                                    \
  X(RGBA16F, CUDALINK_FOURCC('R', 'A', '1', 'F'))                                                  \
  X(R32F, CUDALINK_FOURCC('R', '3', '2', 'F'))                                                     \
  X(RG32F, CUDALINK_FOURCC('R', 'G', '3', 'F'))                                                    \
  X(RGBA32F, CUDALINK_FOURCC('R', 'A', '3', 'F'))                                                  \
  X(RGB10A2, CUDALINK_FOURCC('R', '1', '0', '2'))                                                  \
  X(R11G11B10F, CUDALINK_FOURCC('R', '1', '1', 'F'))                                               \
  X(GRAY8, CUDALINK_FOURCC('Y', '8', ' ', ' '))                                                    \
  X(GRAY9, CUDALINK_FOURCC('Y', '9', ' ', ' '))                                                    \
  X(GRAY10, CUDALINK_FOURCC('Y', '1', '0', ' '))                                                   \
  X(GRAY12, CUDALINK_FOURCC('Y', '1', '2', ' '))                                                   \
  X(GRAY16, CUDALINK_FOURCC('Y', '1', '6', ' '))                                                   \
  X(I411, CUDALINK_FOURCC('I', '4', '1', '1'))                                                     \
  X(I420, CUDALINK_FOURCC('I', '4', '2', '0'))                                                     \
  X(I422, CUDALINK_FOURCC('I', '4', '2', '2'))                                                     \
  X(I444, CUDALINK_FOURCC('I', '4', '4', '4'))                                                     \
  X(IA444, CUDALINK_FOURCC('A', '4', '4', '4'))                                                    \
  X(I420P9, CUDALINK_FOURCC('I', '0', '9', '0'))                                                   \
  X(I422P9, CUDALINK_FOURCC('I', '2', '9', '0'))                                                   \
  X(I444P9, CUDALINK_FOURCC('I', '4', '9', '0'))                                                   \
  X(I420P10, CUDALINK_FOURCC('I', '0', '1', '0'))                                                  \
  X(I422P10, CUDALINK_FOURCC('I', '2', '1', '0'))                                                  \
  X(I444P10, CUDALINK_FOURCC('I', '4', '1', '0'))                                                  \
  X(I420P12, CUDALINK_FOURCC('I', '0', '1', '2'))                                                  \
  X(I422P12, CUDALINK_FOURCC('I', '2', '1', '2'))                                                  \
  X(I444P12, CUDALINK_FOURCC('I', '4', '1', '2'))                                                  \
  X(I420P14, CUDALINK_FOURCC('I', '0', '1', '4'))                                                  \
  X(I422P14, CUDALINK_FOURCC('I', '2', '1', '4'))                                                  \
  X(I444P14, CUDALINK_FOURCC('I', '4', '1', '4'))                                                  \
  X(I420P16, CUDALINK_FOURCC('I', '0', '1', '6'))                                                  \
  X(I422P16, CUDALINK_FOURCC('I', '2', '1', '6'))                                                  \
  X(I444P16, CUDALINK_FOURCC('I', '4', '1', '6'))                                                  \
  X(NV12, CUDALINK_FOURCC('N', 'V', '1', '2'))                                                     \
  X(NV16, CUDALINK_FOURCC('N', 'V', '1', '6'))                                                     \
  X(P010, CUDALINK_FOURCC('P', '0', '1', '0'))                                                     \
  X(P210, CUDALINK_FOURCC('P', '2', '1', '0'))                                                     \
  X(UYVY, CUDALINK_FOURCC('U', 'Y', 'V', 'Y'))                                                     \
  X(YUYV, CUDALINK_FOURCC('Y', 'U', 'Y', 'V'))                                                     \
  X(UYVA, CUDALINK_FOURCC('U', 'Y', 'V', 'A'))                                                     \
  X(Y416, CUDALINK_FOURCC('Y', '4', '1', '6'))                                                     \
  X(V210, CUDALINK_FOURCC('v', '2', '1', '0'))                                                     \
  X(RGB_CHW8, CUDALINK_FOURCC('C', 'H', 'W', '8'))                                                 \
  X(RGB_CHW16F, CUDALINK_FOURCC('C', 'H', '1', 'F'))                                               \
  X(RGB_CHW32F, CUDALINK_FOURCC('C', 'H', '3', 'F'))

typedef enum cudalink_format {
  CUDALINK_FORMAT_NONE = 0,
#define CUDALINK_FORMAT_ENUM(name, fourcc) CUDALINK_FORMAT_##name = (int)(fourcc),
  CUDALINK_FORMATS(CUDALINK_FORMAT_ENUM)
#undef CUDALINK_FORMAT_ENUM
} cudalink_format;

/* The name of a format: "RGBA8", or NULL for a number that is no format. */
CUDALINK_API const char *cudalink_format_name(uint32_t format);
/* The format of a name, without regard to case; CUDALINK_FORMAT_NONE if there is none of that name. */
CUDALINK_API cudalink_format cudalink_format_from_name(const char *name);
/* Walks all formats: start with CUDALINK_FORMAT_NONE, ends with CUDALINK_FORMAT_NONE. */
CUDALINK_API cudalink_format cudalink_format_next(cudalink_format format);

/* Fills in planes and picture of a description for a picture of width x height pixels, 1 to 65535
 * each. Rows are `pitch_alignment` bytes aligned (a power of two; 1 = dense, 0 = 256, which suits
 * GPUs); v210 keeps its own 128. Chroma planes of odd sizes round up. Planes start at multiples of
 * 256 (of 1 when dense). Timing and user_size are left alone. Range, colour and the rest are set to
 * "not said". Errors: INVALID_ARGUMENT naming the value. */
CUDALINK_API int cudalink_describe_picture(cudalink_description *description,
                                           cudalink_format format, uint32_t width, uint32_t height,
                                           uint32_t pitch_alignment);

/* Counts the bytes of a packed frame: all planes one behind the other, rows and elements dense, in the
 * order of the description. */
CUDALINK_API int cudalink_packed_bytes(const cudalink_description *description, uint64_t *bytes);

/* Packs a frame that lies in host memory (slot + description) into `out`. `rows_bottom_up` = 1 turns
 * a picture over while packing. Errors: TOO_LARGE with both numbers when `size` is too small. */
CUDALINK_API int cudalink_pack(const cudalink_description *description, const void *slot, void *out,
                               uint64_t size, int rows_bottom_up);
/* Puts packed bytes into a slot, where they lie as the description says. `size` must be the packed size exactly. */
CUDALINK_API int cudalink_unpack(const cudalink_description *description, const void *packed,
                                 uint64_t size, void *slot);

#ifdef __cplusplus
}
#endif
#endif
