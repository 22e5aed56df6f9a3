/* SPDX-License-Identifier: MIT
 *
 * The table of picture formats, and the shape of a plane that follows from a row of it. Adding a
 * format means one line in cudalink/format.h and one row here.
 */
#include "interop/format_table.h"

/* clang-format off */

/* name, pixels per group in x and y, columns per group, samples per column, stacked planes */
#define PLANE(name, width, height, columns, samples) {name, width, height, columns, samples, 1}
#define WHOLE(name, samples) PLANE(name, 1, 1, 1, samples)
#define CHROMA(width, height) PLANE("u", width, height, 1, 1), PLANE("v", width, height, 1, 1)
#define STACKED(name) {name, 1, 1, 1, 1, 3}

#define COUNT(...) (sizeof((struct format_plane[]){__VA_ARGS__}) / sizeof(struct format_plane))
#define ROW(name, model, code, bits, depth, shift, own_pitch, ...)                                \
  [FORMAT_INDEX_##name] = {CUDALINK_FORMAT_##name, #name, FORMAT_MODEL_##model,                   \
                           CUDALINK_DTYPE_##code, bits, depth, shift, own_pitch,                  \
                           COUNT(__VA_ARGS__), {__VA_ARGS__}}

/* Every sample fills its element. */
#define FILLED(name, model, code, bits, ...) ROW(name, model, code, bits, bits, 0, 0, __VA_ARGS__)
#define YUV8(name, ...) FILLED(name, YUV, UINT, 8, __VA_ARGS__)
/* Samples of `depth` bits in 16-bit elements, low or high. */
#define YUV_LOW(name, depth, ...) ROW(name, YUV, UINT, 16, depth, 0, 0, __VA_ARGS__)
#define YUV_HIGH(name, depth, ...) ROW(name, YUV, UINT, 16, depth, 16 - (depth), 0, __VA_ARGS__)
#define GRAY_LOW(name, depth) ROW(name, GRAY, UINT, 16, depth, 0, 0, WHOLE("y", 1))

enum format_index {
#define INDEX(name, fourcc) FORMAT_INDEX_##name,
  CUDALINK_FORMATS(INDEX)
#undef INDEX
  FORMAT_COUNT
};

static const struct format_row table[FORMAT_COUNT] = {
  FILLED(R8, RGB, UINT, 8, WHOLE("r", 1)),
  FILLED(RG8, RGB, UINT, 8, WHOLE("rg", 2)),
  FILLED(RGB8, RGB, UINT, 8, WHOLE("rgb", 3)),
  FILLED(RGBA8, RGB, UINT, 8, WHOLE("rgba", 4)),
  FILLED(BGRA8, RGB, UINT, 8, WHOLE("bgra", 4)),
  FILLED(RGBX8, RGB, UINT, 8, WHOLE("rgbx", 4)),
  FILLED(BGRX8, RGB, UINT, 8, WHOLE("bgrx", 4)),
  FILLED(R16, RGB, UINT, 16, WHOLE("r", 1)),
  FILLED(RG16, RGB, UINT, 16, WHOLE("rg", 2)),
  FILLED(RGBA16, RGB, UINT, 16, WHOLE("rgba", 4)),
  FILLED(R16F, RGB, FLOAT, 16, WHOLE("r", 1)),
  FILLED(RG16F, RGB, FLOAT, 16, WHOLE("rg", 2)),
  FILLED(RGBA16F, RGB, FLOAT, 16, WHOLE("rgba", 4)),
  FILLED(R32F, RGB, FLOAT, 32, WHOLE("r", 1)),
  FILLED(RG32F, RGB, FLOAT, 32, WHOLE("rg", 2)),
  FILLED(RGBA32F, RGB, FLOAT, 32, WHOLE("rgba", 4)),
  ROW(RGB10A2, RGB, UINT, 32, 10, 0, 0, WHOLE("rgba", 1)),
  ROW(R11G11B10F, RGB, UINT, 32, 11, 0, 0, WHOLE("rgb", 1)),

  FILLED(GRAY8, GRAY, UINT, 8, WHOLE("y", 1)),
  GRAY_LOW(GRAY9, 9),
  GRAY_LOW(GRAY10, 10),
  GRAY_LOW(GRAY12, 12),
  GRAY_LOW(GRAY16, 16),

  YUV8(I411, WHOLE("y", 1), CHROMA(4, 1)),
  YUV8(I420, WHOLE("y", 1), CHROMA(2, 2)),
  YUV8(I422, WHOLE("y", 1), CHROMA(2, 1)),
  YUV8(I444, WHOLE("y", 1), CHROMA(1, 1)),
  YUV8(IA444, WHOLE("y", 1), CHROMA(1, 1), WHOLE("a", 1)),
  YUV_LOW(I420P9, 9, WHOLE("y", 1), CHROMA(2, 2)),
  YUV_LOW(I422P9, 9, WHOLE("y", 1), CHROMA(2, 1)),
  YUV_LOW(I444P9, 9, WHOLE("y", 1), CHROMA(1, 1)),
  YUV_LOW(I420P10, 10, WHOLE("y", 1), CHROMA(2, 2)),
  YUV_LOW(I422P10, 10, WHOLE("y", 1), CHROMA(2, 1)),
  YUV_LOW(I444P10, 10, WHOLE("y", 1), CHROMA(1, 1)),
  YUV_LOW(I420P12, 12, WHOLE("y", 1), CHROMA(2, 2)),
  YUV_LOW(I422P12, 12, WHOLE("y", 1), CHROMA(2, 1)),
  YUV_LOW(I444P12, 12, WHOLE("y", 1), CHROMA(1, 1)),
  YUV_LOW(I420P14, 14, WHOLE("y", 1), CHROMA(2, 2)),
  YUV_LOW(I422P14, 14, WHOLE("y", 1), CHROMA(2, 1)),
  YUV_LOW(I444P14, 14, WHOLE("y", 1), CHROMA(1, 1)),
  YUV_LOW(I420P16, 16, WHOLE("y", 1), CHROMA(2, 2)),
  YUV_LOW(I422P16, 16, WHOLE("y", 1), CHROMA(2, 1)),
  YUV_LOW(I444P16, 16, WHOLE("y", 1), CHROMA(1, 1)),

  YUV8(NV12, WHOLE("y", 1), PLANE("uv", 2, 2, 1, 2)),
  YUV8(NV16, WHOLE("y", 1), PLANE("uv", 2, 1, 1, 2)),
  YUV_HIGH(P010, 10, WHOLE("y", 1), PLANE("uv", 2, 2, 1, 2)),
  YUV_HIGH(P210, 10, WHOLE("y", 1), PLANE("uv", 2, 1, 1, 2)),
  YUV8(UYVY, PLANE("uyvy", 2, 1, 2, 2)),
  YUV8(YUYV, PLANE("yuyv", 2, 1, 2, 2)),
  YUV8(UYVA, PLANE("uyvy", 2, 1, 2, 2), WHOLE("a", 1)),
  YUV_LOW(Y416, 16, WHOLE("uyva", 4)),
  /* Three 10-bit samples per 32-bit word; rows are whole groups of 48 pixels in 128 bytes. */
  ROW(V210, YUV, UINT, 32, 10, 0, 1, PLANE("v210", 48, 1, 32, 1)),

  FILLED(RGB_CHW8, RGB, UINT, 8, STACKED("rgb")),
  FILLED(RGB_CHW16F, RGB, FLOAT, 16, STACKED("rgb")),
  FILLED(RGB_CHW32F, RGB, FLOAT, 32, STACKED("rgb")),
};
/* clang-format on */

/* A switch, because this runs for every frame that arrives: the compiler makes a search tree. */
const struct format_row *format_find(uint32_t format) {
  switch (format) {
#define FIND(name, fourcc)                                                                         \
  case fourcc: return &table[FORMAT_INDEX_##name];
    CUDALINK_FORMATS(FIND)
#undef FIND
  default: return NULL;
  }
}

static uint32_t groups(uint32_t pixels, uint32_t group) {
  return group == 1 ? pixels : (pixels + group - 1) / group; /* most are 1: saves a division */
}

struct format_shape format_plane_shape(const struct format_row *row, uint32_t plane, uint32_t width,
                                       uint32_t height) {
  const struct format_plane *layout = &row->planes[plane];
  int64_t columns = (int64_t)groups(width, layout->group_width) * layout->group_columns;
  int64_t rows = groups(height, layout->group_height);
  struct format_shape shape = {0};
  if (layout->stack > 1) shape.shape[shape.dimensions++] = layout->stack;
  shape.row_dimension = shape.dimensions;
  shape.shape[shape.dimensions++] = rows;
  shape.shape[shape.dimensions++] = columns;
  if (layout->samples > 1) shape.shape[shape.dimensions++] = layout->samples;
  shape.rows = (uint64_t)rows * layout->stack;
  shape.row_bytes = (uint64_t)columns * layout->samples * (row->bits / 8u);
  return shape;
}
