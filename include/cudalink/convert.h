/* SPDX-License-Identifier: MIT
 *
 * cudalink/convert.h - pixel conversion: one picture into another format, on the CPU or the GPU.
 *
 * A plan is made once from what the two pictures look like; converting a frame with it allocates
 * nothing and asks nothing. The CPU and the GPU do the same arithmetic.
 *
 * ```c fragment
 * static unsigned char video[64 * 48 * 3 / 2], pixels[64 * 48 * 4];
 * cudalink_description nv12 = {0}, rgba = {0};
 * cudalink_describe_picture(&nv12, CUDALINK_FORMAT_NV12, 64, 48, 1);
 * cudalink_describe_picture(&rgba, CUDALINK_FORMAT_RGBA8, 64, 48, 1);
 * cudalink_convert_plan *plan;
 * if (cudalink_convert_plan_create(&plan, &nv12, &rgba, NULL) < 0)
 *   return fprintf(stderr, "%s\n", cudalink_last_error()), 1;
 * cudalink_convert_host(plan, video, pixels);
 * cudalink_convert_plan_destroy(plan);
 * ```
 *
 * cudalink_convert_host converts memory of the CPU. Frames of any kind are converted by
 * cudalink_exporter_convert (into a slot that was begun) and cudalink_frame_convert (from a frame that
 * is held), on the stream that they name.
 *
 * What converts into what (every format of cudalink/format.h has a path to itself, which packs or
 * spreads rows):
 *
 *  - R8, R16, R16F, R32F among each other; RG8, RG16, RG16F, RG32F among each other;
 *  - RGB, with or without alpha, in integers, half, float, RGB10A2, R11G11B10F, planar or
 *    interleaved, among each other;
 *  - Y'CbCr and gray of any layout and depth among each other, and from and to RGB;
 *  - a tensor (a frame that is not a picture) of one plane, uint8, float16 or float32, counts as
 *    RGB or RGBA: {height, width, 3 or 4} is interleaved, {3 or 4, height, width} planar, any
 *    strides, ones in front allowed. A shape that could be both is refused.
 *
 * What numbers mean:
 *
 *  - Integers of RGB: 0 is 0.0, the largest is 1.0; with range LIMITED in the description, black
 *    and white lie at 16 and 235 of 8 bits, shifted for more bits. Float: 0.0 to 1.0, more allowed.
 *  - Y'CbCr: matrices from Kr and Kb of ITU-T H.273 (clause 8.3, table 4): BT.709 (1), FCC (4),
 *    BT.601 (5 and 6), SMPTE 240M (7), BT.2020 non-constant luminance (9); limited and full range
 *    as the same clause quantises them. Primaries and transfer are not converted.
 *  - A channel that the source lacks: alpha 1.0, chroma neutral. The X of RGBX8 and BGRX8 is read
 *    as 1.0 and written as 255. Alpha is neither multiplied nor divided, and has full range
 *    everywhere.
 *  - Chroma: each pixel takes the chroma sample that covers it (nearest); a chroma sample is the
 *    mean of the pixels that it covers, the last column and row repeated where the picture ends. So
 *    chroma_location is taken as CENTER, whatever the description says, and an interlaced picture
 *    as progressive.
 *  - Into integers: the exact value is rounded half to even and clamped; NaN becomes 0. The result
 *    is that of float64 arithmetic; only a value that is a tie in exact arithmetic, but is not
 *    one in float64, may go either way. v210 is clamped to 4..1019, as SDI wants.
 *  - Into float32: at most 4 units in the last place of 1.0 or, where larger, of the largest term
 *    of the sum; float32 and float16 into float32 is exact, with infinities, NaN and the sign of 0.
 *    Into float16 and R11G11B10F the float32 value is rounded half to even; R11G11B10F has no sign:
 *    negative becomes 0; finite numbers beyond its largest become its largest. From RGB float to
 *    Y'CbCr, NaN counts as 0, and what is beyond 65504 (the largest float16) as that.
 *  - Bits of P010 and P210 below the ten are ignored and written as 0. Bytes between the end of a
 *    row and the next one are left alone; in YUYV, UYVY, UYVA and v210 the last pixel is repeated
 *    to fill its group.
 */
#ifndef CUDALINK_CONVERT_H
#define CUDALINK_CONVERT_H

#include "cudalink/exporter.h"
#include "cudalink/format.h"
#include "cudalink/importer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How to convert. Start with CUDALINK_CONVERT_DEFAULTS, or zero everything and set `size`: zero
 * means the default for every member. */
typedef struct cudalink_convert_options {
  size_t size; /* sizeof(cudalink_convert_options) */
  /* The part of the source to convert: pixels, counted in rows as they lie in memory. It must have
   * the size of the target: nothing is scaled. Width and height 0 = the whole source. Any position
   * is allowed, also an odd one in a format with shared chroma. */
  uint32_t crop_x;
  uint32_t crop_y;
  uint32_t crop_width;
  uint32_t crop_height;
  /* 1: turns the picture over. Rows are reversed by themselves when the origins of the two
   * descriptions differ, so that the picture stays upright; this comes on top. */
  uint32_t flip;
  /* For a Y'CbCr side whose description does not say: matrix (number of H.273) and range
   * (cudalink_range). 0 = as the other side if that is Y'CbCr and says so, else BT.709, limited. */
  uint32_t matrix;
  uint32_t range;
  /* For 8-bit RGB from and to float, per channel R, G, B, A: 8-bit value = float * scale + mean,
   * and back float = (8-bit value - mean) / scale. All zero = 255 and 0. Alpha's pair counts only
   * where both sides have alpha; the scale of each channel that counts must not be 0. */
  double scale[4];
  double mean[4];
} cudalink_convert_options;
#define CUDALINK_CONVERT_DEFAULTS .size = sizeof(cudalink_convert_options)

/* A conversion, checked and ready. Never changes, so any number of threads may use one at once. */
typedef struct cudalink_convert_plan cudalink_convert_plan;

/* Makes a plan for pictures that look like `source` and `target` (both are copied; options may be
 * NULL). The caller owns the plan. Never blocks. Errors, each with the values: INVALID_ARGUMENT (a
 * description that contradicts its format, planes too small for the picture, crop outside of the
 * source or not the target's size, an option out of range), UNSUPPORTED (no path between the two
 * formats, naming both; a matrix that is not in the list above; scale or mean where no side is
 * 8-bit RGB and the other float), NO_MEMORY. */
CUDALINK_API int cudalink_convert_plan_create(cudalink_convert_plan **plan,
                                              const cudalink_description *source,
                                              const cudalink_description *target,
                                              const cudalink_convert_options *options);
/* Frees a plan; NULL is allowed. No conversion with this plan may be under way. */
CUDALINK_API void cudalink_convert_plan_destroy(cudalink_convert_plan *plan);

/* Converts one frame in host memory, on the calling thread. `source` and `target` are the starts of
 * the two slots, as large as cudalink_description_bytes of their descriptions says; any alignment;
 * they must not overlap. Takes time in proportion to the pixels and waits for nothing. Errors:
 * INVALID_ARGUMENT (a NULL). */
CUDALINK_API int cudalink_convert_host(const cudalink_convert_plan *plan, const void *source,
                                       void *target);

/* Converts `source` into the begun slot: begin, convert, publish, all on one stream. `source` has the
 * layout of the plan's source description and is memory that the frames' kind can read: on a GPU kind,
 * memory of that GPU (or managed, or of a GPU that it has access to), on kind host memory of the CPU.
 * The slot's description must be what the plan makes, colour and names apart.
 *
 * The work is one kernel, queued on `stream` and nowhere else, behind what is queued there already;
 * later work of that stream may overwrite the source. The stream is one of the GPU's primary context,
 * which the CUDA runtime uses. With COMPLETE it is done when the call returns, and only then anything is
 * waited for. On kind host a cudalink_host_stream does it on its thread, and COMPLETE does it on the
 * calling one. The plan is copied: it may be destroyed at once. Nothing is allocated on the GPU.
 *
 * The exporter must have been opened with `convert`: its open then loads the kernels, which waits for
 * everything that this process has queued on the GPU (about 0.1 s the first time); for that reason
 * nothing is loaded later. They stay until this process has no exporter and no importer open on that
 * GPU.
 *
 * May be called from any thread, while the slot is begun. Errors: UNSUPPORTED (opened without
 * `convert`); INVALID_ARGUMENT (a NULL, this slot is not the begun one, a plan for other frames,
 * memory that this GPU can't reach or that ends too early, source and target overlap, an address or
 * pitch that a GPU can't read in one piece; each with its values); STREAM; CAPTURING (a slot is lent
 * for one frame, and a replay would write into the next consumer's hands); GPU, GPU_LOST, NO_MEMORY,
 * CLOSED. The slot is still begun. */
CUDALINK_API int cudalink_exporter_convert(cudalink_exporter exporter,
                                           const cudalink_convert_plan *plan, const void *source,
                                           const cudalink_slot *slot, cudalink_stream stream);

/* Converts a held frame into `target`, memory as large as the plan's target description says: on a
 * GPU kind, memory of the GPU that the importer maps frames for, on kind host memory of the CPU. The
 * frame is read only; release it on the same stream, or when the stream has come so far. A frame that is
 * PENDING is converted in the order of the stream that acquire named, so name the same one; with COMPLETE
 * the call waits for it. Otherwise as cudalink_exporter_convert; the kernels are loaded when the importer
 * first maps its producer's memory, before its first frame, and acquire says what went wrong. Errors
 * beside those: UNSUPPORTED also for a frame that was published as invalid; LOST, SKIPPED. */
CUDALINK_API int cudalink_frame_convert(const cudalink_frame *frame,
                                        const cudalink_convert_plan *plan, void *target,
                                        cudalink_stream stream);

#ifdef __cplusplus
}
#endif
#endif
