/* SPDX-License-Identifier: MIT
 *
 * Conversions on the GPU, each family both ways and at both ends of a channel: the same bytes as the
 * CPU makes, no byte beside them, and in the order of the stream.
 */
#include "convert_stage.h"

/* A picture's format, or a tensor {height, width, 3} of this type. */
struct look {
  cudalink_format format;
  uint8_t float_bits;
  uint32_t alignment; /* of rows */
};
#define PICTURE(name)                                                                              \
  { CUDALINK_FORMAT_##name, 0, 256 }
#define PACKED(name)                                                                               \
  { CUDALINK_FORMAT_##name, 0, 1 }
#define TENSOR(bits)                                                                               \
  { (cudalink_format)0, bits, 1 }

enum numbers { AS_THEY_ARE, SCALED }; /* scale and mean */

static const struct {
  struct look source, target;
  enum numbers numbers;
} families[] = {
    {PICTURE(BGRA8), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGBA8), PICTURE(BGRA8), AS_THEY_ARE},
    {PICTURE(RGB8), PICTURE(RGBA8), AS_THEY_ARE},
    {PACKED(RGBA8), PACKED(RGB8), AS_THEY_ARE},
    {PICTURE(BGRX8), PACKED(RGB8), AS_THEY_ARE},
    {PICTURE(RGBA8), PACKED(RGBA8), AS_THEY_ARE}, /* pack and spread rows */
    {PACKED(RGBA8), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGB_CHW32F), PACKED(RGB8), SCALED},
    {PICTURE(RGB_CHW32F), PICTURE(RGBA8), SCALED},
    {PICTURE(RGB_CHW16F), PICTURE(BGRA8), SCALED},
    {PACKED(RGB8), PACKED(RGB_CHW32F), SCALED},
    {PICTURE(BGRA8), PICTURE(RGB_CHW16F), SCALED},
    {PICTURE(RGBA8), PICTURE(RGB_CHW8), AS_THEY_ARE},
    {TENSOR(32), PICTURE(RGBA8), SCALED},
    {TENSOR(16), PACKED(RGB8), SCALED},
    {PICTURE(BGRA8), TENSOR(32), SCALED},
    {PICTURE(RGBA8), TENSOR(16), SCALED},
    {TENSOR(32), PICTURE(RGB_CHW32F), AS_THEY_ARE},
    {PICTURE(RGBA16F), PICTURE(RGBA32F), AS_THEY_ARE},
    {PICTURE(RGBA32F), PICTURE(RGBA16F), AS_THEY_ARE},
    {PICTURE(R16F), PACKED(R32F), AS_THEY_ARE},
    {PACKED(RG32F), PICTURE(RG16F), AS_THEY_ARE},
    {PICTURE(RGBA32F), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGBA16), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGB10A2), PICTURE(RGBA16), AS_THEY_ARE},
    {PICTURE(RGBA8), PICTURE(RGB10A2), AS_THEY_ARE},
    {PICTURE(R11G11B10F), PICTURE(RGBA16F), AS_THEY_ARE},
    {PICTURE(RGBA32F), PACKED(R11G11B10F), AS_THEY_ARE},
    {PICTURE(NV12), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGBA8), PICTURE(NV12), AS_THEY_ARE},
    {PICTURE(P010), PICTURE(RGBA16), AS_THEY_ARE},
    {PICTURE(RGBA8), PACKED(P010), AS_THEY_ARE},
    {PACKED(I420), PICTURE(BGRA8), AS_THEY_ARE},
    {PICTURE(RGBA8), PACKED(I420), AS_THEY_ARE},
    {PICTURE(YUYV), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGBA8), PICTURE(YUYV), AS_THEY_ARE},
    {PICTURE(UYVY), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGBA8), PICTURE(UYVY), AS_THEY_ARE},
    {PICTURE(V210), PICTURE(RGBA8), AS_THEY_ARE},
    {PICTURE(RGBA8), PICTURE(V210), AS_THEY_ARE},
    {PICTURE(NV12), PICTURE(I420), AS_THEY_ARE},
    {PICTURE(V210), PICTURE(P010), AS_THEY_ARE},
};

static const struct {
  uint32_t width, height;
} sizes[] = {{1, 1}, {3, 5}, {127, 9}, {129, 8}, {416, 7}, {1366, 2}, {1919, 6}};

#define CROP_X 3 /* odd, also where pixels share chroma */
#define CROP_Y 1

static void describe(cudalink_description *description, const struct look *look, uint32_t width,
                     uint32_t height) {
  memset(description, 0, sizeof *description);
  if (look->format) {
    CHECK_OK(cudalink_describe_picture(description, look->format, width, height, look->alignment));
    return;
  }
  const int64_t shape[] = {height, width, 3};
  CHECK_OK(cudalink_describe_tensor(
      description, "rgb", look->float_bits == 16 ? CUDALINK_FLOAT16 : CUDALINK_FLOAT32, 3, shape));
}

/* Matrix and range differ from case to case; only a Y'CbCr side takes them. */
static void say_colour(cudalink_description *description, size_t number) {
  static const uint8_t matrices[] = {1, 9, 5, 6, 7};
  static const uint8_t ranges[] = {CUDALINK_RANGE_LIMITED, CUDALINK_RANGE_FULL};
  if (!description->picture.format || description->planes[0].name[0] == 'r') return;
  description->picture.matrix = matrices[number % 5];
  description->picture.range = ranges[number % 2];
}

static void make_example(struct example *example, size_t family, size_t size, bool cropped) {
  uint32_t width = sizes[size].width, height = sizes[size].height;
  cudalink_convert_options options = {CUDALINK_CONVERT_DEFAULTS};
  if (cropped) {
    options.crop_x = CROP_X;
    options.crop_y = CROP_Y;
    options.crop_width = width;
    options.crop_height = height;
    options.flip = 1;
  }
  for (int i = 0; i < 4 && families[family].numbers == SCALED; i++) {
    options.scale[i] = 58.5 + i;
    options.mean[i] = 104.25 - 8 * i;
  }
  describe(&example->source, &families[family].source, width + (cropped ? CROP_X + 2 : 0),
           height + (cropped ? CROP_Y + 4 : 0));
  describe(&example->target, &families[family].target, width, height);
  say_colour(&example->source, family + size);
  say_colour(&example->target, family + size + cropped);
  example_fill(example, &options);
  example_random(example);
  example_expect(example);
}

static void compare(const struct example *example, const char *end) {
  for (uint64_t i = 0; i < example->target_bytes; i++)
    if (example->found[i] != example->expected[i])
      FAIL("%s, %s (plane type %u) to %s, %u x %u: byte %llu of %llu is 0x%02x, not 0x%02x", end,
           cudalink_format_name((cudalink_format)example->source.picture.format),
           example->source.planes[0].dtype.code,
           cudalink_format_name((cudalink_format)example->target.picture.format),
           example->target.picture.width, example->target.picture.height, (unsigned long long)i,
           (unsigned long long)example->target_bytes, example->found[i], example->expected[i]);
}

/* Into a begun slot; the source is overwritten behind it, on the same stream. */
static void convert_into_slot(struct stage *stage, struct example *example, void *memory) {
  cudalink_slot slot;
  cudalink_frame frame;
  put_on(stage->stream, memory, example->picture, example->source_bytes);
  CHECK_OK(cudalink_exporter_begin(stage->exporter, &example->target, 10 * SECOND, &slot));
  fill_on(stage->stream, slot.data, BACKGROUND, example->target_bytes);
  CHECK_OK(
      cudalink_exporter_convert(stage->exporter, example->plan, memory, &slot, ON(stage->stream)));
  fill_on(stage->stream, memory, 0xee, example->source_bytes);
  CHECK_OK(cudalink_exporter_publish(stage->exporter, &slot, ON(stage->stream)));
  CHECK_OK(
      cudalink_importer_acquire(stage->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_EQUAL(frame.sequence, slot.sequence);
  get_on(stage->stream, example->found, frame.data, example->target_bytes);
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  compare(example, "into a slot");
}

/* From a held frame, which is released on the same stream, and whose slots are overwritten soon. */
static void convert_from_frame(struct stage *stage, struct example *example, void *memory) {
  cudalink_frame frame;
  CHECK_OK(cudalink_exporter_send(stage->exporter, &example->source, example->picture, NULL,
                                  CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  CHECK_OK(cudalink_importer_acquire(stage->importer, ON(stage->stream), 10 * SECOND, &frame));
  fill_on(stage->stream, memory, BACKGROUND, example->target_bytes);
  CHECK_OK(cudalink_frame_convert(&frame, example->plan, memory, ON(stage->stream)));
  CHECK_OK(cudalink_frame_release(&frame, ON(stage->stream)));
  get_on(stage->stream, example->found, memory, example->target_bytes);
  compare(example, "from a frame");
}

static void convert_families(cudalink_kind kind) {
  struct stage stage = {0};
  gpu_start();
  open_stage(&stage, kind, 1);
  void *memory = gpu_memory(GPU_MEMORY_DEVICE, 1 << 20, stage.stream);
  for (size_t family = 0; family < sizeof families / sizeof *families; family++)
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
      struct example example = {0};
      make_example(&example, family, size, (family + size) % 2);
      convert_into_slot(&stage, &example, memory);
      convert_from_frame(&stage, &example, memory);
      example_free(&example);
    }
  close_stage(&stage);
}
TEST(vmm_converts_every_family, 120) { convert_families(CUDALINK_KIND_VMM); }
TEST(ipc_converts_every_family, 120) { convert_families(CUDALINK_KIND_IPC); }

/* Each family both with and without crop and flip, with delays before each operation. */
TEST(conversions_keep_the_order_of_their_stream, 120) {
  struct stage stage = {0};
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  FAKE(fakecuda_set_delay, 300);
  void *memory = gpu_memory(GPU_MEMORY_DEVICE, 1 << 20, stage.stream);
  for (size_t family = 0; family < sizeof families / sizeof *families; family++)
    for (int cropped = 0; cropped < 2; cropped++) {
      struct example example = {0};
      make_example(&example, family, 2, cropped);
      convert_into_slot(&stage, &example, memory);
      convert_from_frame(&stage, &example, memory);
      example_free(&example);
    }
  close_stage(&stage);
}

/* COMPLETE: done when it returns, so that the CPU may go on at once. */
TEST(complete_conversions_are_done, 60) {
  struct stage stage = {0};
  cudalink_slot slot;
  cudalink_frame frame;
  gpu_start();
  open_stage(&stage, CUDALINK_KIND_VMM, 1);
  FAKE(fakecuda_set_delay, 300);
  void *memory = gpu_memory(GPU_MEMORY_DEVICE, 1 << 20, stage.stream);
  for (size_t family = 0; family < sizeof families / sizeof *families; family++) {
    struct example example = {0};
    make_example(&example, family, 2, false);
    put_on(stage.stream, memory, example.picture, example.source_bytes);
    CHECK_OK(cudalink_exporter_begin(stage.exporter, &example.target, 10 * SECOND, &slot));
    fill_on(stage.stream, slot.data, BACKGROUND, example.target_bytes);
    CU(cuStreamSynchronize(stage.stream));
    CHECK_OK(cudalink_exporter_convert(stage.exporter, example.plan, memory, &slot,
                                       CUDALINK_STREAM_COMPLETE));
    CHECK_OK(cudalink_exporter_publish(stage.exporter, &slot, CUDALINK_STREAM_COMPLETE));
    fill_on(stage.stream, memory, 0xee, example.source_bytes);
    CHECK_OK(
        cudalink_importer_acquire(stage.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
    get_on(stage.stream, example.found, frame.data, example.target_bytes);
    CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
    compare(&example, "complete, into a slot");
    CHECK_OK(cudalink_exporter_send(stage.exporter, &example.source, example.picture, NULL,
                                    CUDALINK_STREAM_COMPLETE, 10 * SECOND));
    fill_on(stage.stream, memory, BACKGROUND, example.target_bytes);
    CU(cuStreamSynchronize(stage.stream));
    CHECK_OK(
        cudalink_importer_acquire(stage.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
    CHECK_OK(cudalink_frame_convert(&frame, example.plan, memory, CUDALINK_STREAM_COMPLETE));
    CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
    get_on(stage.stream, example.found, memory, example.target_bytes);
    compare(&example, "complete, from a frame");
    example_free(&example);
  }
  close_stage(&stage);
}
