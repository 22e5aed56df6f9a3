/* SPDX-License-Identifier: MIT
 *
 * Where send can copy from: what it takes, in which layouts, and what it refuses with which words.
 */
#include <sys/mman.h>

#include "gpu.h"
#include "os/os.h"

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes, packed;
  CUstream stream;
};

static void open_channel(struct channel *channel, bool strict) {
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  CHECK_OK(cudalink_packed_bytes(&channel->description, &channel->packed));
  channel->stream = gpu_stream();
  CHECK_OK(cudalink_exporter_open(
      &channel->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &channel->description,
                                .slot_bytes = 4096, .strict_device = strict}));
  CHECK_OK(cudalink_importer_open(
      &channel->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                    .open_timeout = 10 * SECOND}));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

static void open_picture(struct channel *channel, bool strict) {
  memset(channel, 0, sizeof *channel);
  describe_rgba(&channel->description, 64, 64);
  open_channel(channel, strict);
}

static int send(struct channel *channel, const void *source) {
  return cudalink_exporter_send(channel->exporter, &channel->description, source, NULL,
                                ON(channel->stream), 10 * SECOND);
}

static int send_planes(struct channel *channel, const cudalink_source *sources) {
  return cudalink_exporter_send_planes(channel->exporter, &channel->description, sources, NULL,
                                       ON(channel->stream), 10 * SECOND);
}

/* The next frame has exactly these packed bytes. */
static void expect_frame(struct channel *channel, const char *expected) {
  cudalink_frame frame;
  char *read = calloc(1, channel->packed + 1);
  CHECK_OK(
      cudalink_importer_acquire(channel->importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_to_host(&frame, read, channel->packed));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  for (uint64_t i = 0; i < channel->packed; i++)
    if (read[i] != expected[i]) FAIL("byte %llu differs", (unsigned long long)i);
  free(read);
}

static char *random_bytes(uint64_t bytes) {
  char *made = malloc(bytes + 1);
  for (uint64_t i = 0; i < bytes; i++)
    made[i] = (char)random_number();
  return made;
}

static char *on_device(const char *bytes, uint64_t count) {
  char *memory = gpu_memory(GPU_MEMORY_DEVICE, count, NULL);
  CU(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)memory, bytes, count));
  return memory;
}

/* Refused with these words; then the channel goes on. */
static void expect_refused(struct channel *channel, const void *source, const char *words,
                           const char *more) {
  cudalink_exporter_statistics before = {.size = sizeof before}, after = {.size = sizeof after};
  CHECK_OK(cudalink_exporter_get_statistics(channel->exporter, &before));
  CHECK_STATUS(send(channel, source), CUDALINK_ERROR_INVALID_ARGUMENT);
  printf("  %s\n", cudalink_last_error());
  CHECK_CONTAINS(cudalink_last_error(), words);
  CHECK_CONTAINS(cudalink_last_error(), more);
  CHECK_OK(cudalink_exporter_get_statistics(channel->exporter, &after));
  CHECK_EQUAL(after.published, before.published);
  CHECK_EQUAL(after.copies, before.copies);
}

/* ---- kinds of memory ------------------------------------------------------------------------------------ */

/* Strides of 0 mean those of the description, however large the picture is. */
TEST(planes_with_the_strides_of_the_description, 60) {
  struct channel channel;
  gpu_start();
  memset(&channel, 0, sizeof channel);
  describe_rgba(&channel.description, 320, 240);
  open_channel(&channel, false);
  char *bytes = random_bytes(channel.bytes);
  cudalink_source source = {.data = on_device(bytes, channel.bytes)};
  CHECK_OK(send_planes(&channel, &source));
  expect_frame(&channel, bytes);
  free(bytes);
  close_channel(&channel);
}

TEST(strict_device_takes_only_memory_of_the_gpu, 60) {
  struct channel channel;
  gpu_start();
  open_picture(&channel, true);
  for (int memory = 0; memory < GPU_MEMORY_KINDS; memory++) {
    void *source = gpu_memory((enum gpu_memory)memory, channel.bytes, channel.stream);
    CU(cuStreamSynchronize(channel.stream));
    if (memory == GPU_MEMORY_PINNED)
      expect_refused(&channel, source, "pinned host memory", "GPU 0");
    else if (memory == GPU_MEMORY_HOST)
      expect_refused(&channel, source, "plain host memory", "16384 bytes");
    else
      CHECK_OK(send(&channel, source));
    if (memory == GPU_MEMORY_HOST) free(source);
  }
  close_channel(&channel);
}

TEST(source_on_another_gpu, 60) {
  struct channel channel;
  CUcontext other = gpu_start_beside_another();
  CU(cuCtxSetCurrent(other));
  describe_rgba(&channel.description, 64, 64);
  char *picture = random_bytes(64 * 64 * 4), *source = on_device(picture, 64 * 64 * 4);
  CU(cuCtxSetCurrent(gpu_context()));
  open_picture(&channel, false);
  for (int i = 0; i < 3; i++) {
    CHECK_OK(send(&channel, source));
    expect_frame(&channel, picture);
  }
  close_channel(&channel);
  open_picture(&channel, true);
  expect_refused(&channel, source, "is on GPU 1", "frames are on GPU 0");
  close_channel(&channel);
  free(picture);
}

TEST(source_on_another_gpu_without_access, 60) {
  struct channel channel;
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  const size_t bytes = (size_t)2 << 20;
  setenv("FAKECUDA_DEVICES", "2", 1);
  gpu_start_on(1);
  gpu_start();
  CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CU(cuMemCreate(&handle, bytes, &properties, 0));
  CU(cuMemMap(address, bytes, 0, handle, 0));
  CU(cuMemSetAccess(address, bytes, &access, 1));
  open_picture(&channel, false);
  expect_refused(&channel, (void *)(uintptr_t)address, "is on GPU 1", "not opened to GPU 0");
  access.location.id = 0;
  CU(cuMemSetAccess(address, bytes, &access, 1));
  CHECK_OK(send(&channel, (void *)(uintptr_t)address));
  close_channel(&channel);
}

/* A pool is its GPU's alone until it is opened to others; the driver refuses the copy, and goes on. */
TEST(source_in_a_pool_of_another_gpu, 60) {
  struct channel channel;
  CUcontext other = gpu_start_beside_another();
  CU(cuCtxSetCurrent(other));
  CUstream there = gpu_stream();
  void *source = gpu_memory(GPU_MEMORY_POOL, 64 * 64 * 4, there);
  CU(cuStreamSynchronize(there));
  CU(cuCtxSetCurrent(gpu_context()));
  open_picture(&channel, false);
  expect_refused(&channel, source, "is on GPU 1", "cuMemPoolSetAccess");
  char *picture = random_bytes(64 * 64 * 4), *mine = on_device(picture, 64 * 64 * 4);
  CHECK_OK(send(&channel, mine));
  expect_frame(&channel, picture);
  close_channel(&channel);
  free(picture);
}

static void refuse_what_is_gone(bool strict) {
  struct channel channel;
  gpu_start();
  open_picture(&channel, strict);
  char *device = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, NULL);
  char *pinned = gpu_memory(GPU_MEMORY_PINNED, channel.bytes, NULL);
  char *host = mmap(NULL, channel.bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < 4; i++) /* a graph is kept of the first */
    CHECK_OK(send(&channel, device));
  CU(cuStreamSynchronize(channel.stream));
  CU(cuMemFree((CUdeviceptr)(uintptr_t)device));
  CU(cuMemFreeHost(pinned));
  munmap(host, channel.bytes);
  expect_refused(&channel, device, "was it freed?", "16384 bytes");
  /* A driver may keep pinned pages for the next allocation: then they are memory like any other. */
  if (!os_memory_readable(pinned, channel.bytes))
    expect_refused(&channel, pinned, "was it freed?", "16384 bytes");
  else if (strict)
    expect_refused(&channel, pinned, "plain host memory", "16384 bytes");
  expect_refused(&channel, host, "was it freed?", "16384 bytes");
  expect_refused(&channel, (void *)8, "0x8", "was it freed?");
  close_channel(&channel);
}
TEST(freed_source_is_refused, 60) { refuse_what_is_gone(false); }
TEST(freed_source_is_refused_strictly, 60) { refuse_what_is_gone(true); }

TEST(source_that_is_too_small, 60) {
  struct channel channel;
  gpu_start();
  open_picture(&channel, false);
  char *device = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes - 256, NULL);
  char *pinned = gpu_memory(GPU_MEMORY_PINNED, channel.bytes, NULL);
  expect_refused(&channel, device, "has 16128 bytes", "takes 16384");
  expect_refused(&channel, pinned + 1, "has 16383 bytes", "takes 16384");
  CHECK_OK(send(&channel, pinned));
  close_channel(&channel);
}

static void expect_too_small(struct channel *channel, const void *source, const char *words,
                             const char *more) {
  if (gpu_is_fake())
    expect_refused(channel, source, words, more);
  else
    CHECK(send(channel, source) < 0);
}

/* As allocators with segments that grow do it: one tensor over several mappings. */
TEST(source_that_is_mapped_in_pieces, 60) {
  struct channel channel;
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  const size_t piece = (size_t)2 << 20;
  gpu_start();
  open_picture(&channel, true);
  /* A piece more than is mapped, so that nothing else comes to lie right behind. A real driver calls
   * it memory, being reserved, and then refuses the copy. */
  CU(cuMemAddressReserve(&address, 3 * piece, 0, 0, 0));
  for (int i = 0; i < 2; i++) {
    CU(cuMemCreate(&handle, piece, &properties, 0));
    CU(cuMemMap(address + (size_t)i * piece, piece, 0, handle, 0));
  }
  CU(cuMemSetAccess(address, 2 * piece, &access, 1));
  if (!gpu_is_fake()) /* the fake copies within one mapping only */
    CHECK_OK(send(&channel, (void *)(uintptr_t)(address + piece - 1024)));
  expect_too_small(&channel, (void *)(uintptr_t)(address + 2 * piece - 4096), "has 4096 bytes",
                   "takes 16384");
  channel.description = (cudalink_description){0};
  CHECK_OK(cudalink_describe_tensor(&channel.description, "t", CUDALINK_UINT8, 1,
                                    (int64_t[]){(int64_t)piece + 2048}));
  expect_too_small(&channel, (void *)(uintptr_t)(address + piece - 1024), "has 2098176 bytes",
                   "takes 2099200");
  close_channel(&channel);
}

/* ---- layouts --------------------------------------------------------------------------------------------- */

/* A crop of a larger picture becomes a dense frame; its gaps are not read, and it is one copy. */
TEST(crop_of_a_pitched_picture, 60) {
  struct channel channel;
  enum { PITCH = 1024, ROWS = 100, X = 40, Y = 17 };
  gpu_start();
  open_picture(&channel, true);
  char *picture = random_bytes((uint64_t)PITCH * ROWS);
  char *source = on_device(picture, (uint64_t)PITCH * ROWS), *expected = malloc(channel.packed);
  for (uint64_t y = 0; y < 64; y++)
    memcpy(expected + y * 256, picture + (y + Y) * PITCH + X * 4, 256);
  cudalink_source crop = {.data = source + Y * PITCH + X * 4, .strides = {PITCH, 4, 1}};
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 10 * SECOND));
  uint64_t copies = FAKE_NUMBER(fakecuda_copies), bytes = FAKE_NUMBER(fakecuda_copied_bytes);
  for (int i = 0; i < 20; i++) {
    CHECK_OK(send_planes(&channel, &crop));
    CU(cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)source, expected, 64, channel.stream));
    CU(cuStreamSynchronize(channel.stream)); /* so that four slots are enough */
  }
  if (gpu_is_fake()) {
    CHECK_EQUAL(FAKE_NUMBER(fakecuda_copies) - copies, 2 * 20);
    CHECK_EQUAL(FAKE_NUMBER(fakecuda_copied_bytes) - bytes, 20 * (channel.bytes + 64));
  }
  expect_frame(&channel, expected);
  close_channel(&channel);
  free(picture);
  free(expected);
}

struct layout {
  uint32_t dimensions;
  int64_t shape[4], strides[4], target[4]; /* target: all 0 = dense */
};

static uint64_t span(uint32_t dimensions, const int64_t *shape, const int64_t *strides) {
  uint64_t last = 4;
  for (uint32_t d = 0; d < dimensions; d++)
    last += (uint64_t)(shape[d] - 1) * (uint64_t)strides[d];
  return last;
}

static void send_layout(const struct layout *layout, enum gpu_memory memory) {
  struct channel channel = {0};
  cudalink_plane *plane = &channel.description.planes[0];
  CHECK_OK(cudalink_describe_tensor(&channel.description, "t", CUDALINK_FLOAT32, layout->dimensions,
                                    layout->shape));
  if (layout->dimensions && layout->target[0]) {
    memcpy(plane->strides, layout->target, sizeof layout->target);
    plane->bytes = span(layout->dimensions, layout->shape, layout->target);
  }
  open_channel(&channel, false);
  uint64_t bytes = span(layout->dimensions, layout->shape, layout->strides), at = 0;
  char *host = random_bytes(bytes), *expected = malloc(channel.packed), *source = host;
  uint64_t elements = channel.packed / 4;
  for (uint64_t i = 0; i < elements; i++, at = 0) {
    uint64_t rest = i;
    for (uint32_t d = layout->dimensions; d > 0; d--) {
      at += rest % (uint64_t)layout->shape[d - 1] * (uint64_t)layout->strides[d - 1];
      rest /= (uint64_t)layout->shape[d - 1];
    }
    memcpy(expected + i * 4, host + at, 4);
  }
  if (memory == GPU_MEMORY_DEVICE) source = on_device(host, bytes);
  cudalink_source from = {.data = source};
  memcpy(from.strides, layout->strides, sizeof layout->strides);
  CHECK_OK(send_planes(&channel, &from));
  expect_frame(&channel, expected);
  close_channel(&channel);
  free(host);
  free(expected);
}

TEST(strided_sources, 60) {
  static const struct layout layouts[] = {
      {2, {20, 30}, {120, 4}, {0}},                                /* dense */
      {2, {20, 30}, {512, 4}, {0}},                                /* pitched */
      {2, {20, 30}, {512, 4}, {256, 4}},                           /* to another pitch */
      {2, {20, 30}, {120, 4}, {256, 4}},                           /* from dense */
      {2, {20, 30}, {4, 80}, {0}},                                 /* transposed */
      {2, {20, 30}, {0, 4}, {0}},                                  /* repeated rows */
      {2, {20, 30}, {8, 0}, {0}},                                  /* repeated elements */
      {3, {3, 20, 30}, {4, 512, 12}, {0}},                         /* interleaved to planar */
      {4, {2, 3, 4, 5}, {4096, 1024, 64, 4}, {0}},                 /* gaps everywhere */
      {4, {2, 3, 4, 5}, {4096, 1024, 64, 4}, {2048, 512, 128, 8}}, /* on both sides */
      {1, {17}, {4}, {0}},
      {0, {0}, {0}, {0}},
      {3, {1, 1, 9}, {7, 3, 4}, {0}}, /* strides of one element mean nothing */
  };
  gpu_start();
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    send_layout(&layouts[i], GPU_MEMORY_DEVICE);
    send_layout(&layouts[i], GPU_MEMORY_HOST);
  }
}

/* Two allocations, one frame; with COMPLETE too. */
TEST(planes_that_lie_apart, 60) {
  struct channel channel = {0};
  gpu_start();
  CHECK_OK(cudalink_describe_picture(&channel.description, CUDALINK_FORMAT_NV12, 64, 32, 0));
  open_channel(&channel, true);
  char *expected = random_bytes(channel.packed);
  cudalink_source planes[2] = {{.data = on_device(expected, 64 * 32), .strides = {64, 1}},
                               {.data = on_device(expected + 64 * 32, 64 * 16)}};
  for (uint32_t d = 0; d < channel.description.planes[1].dimensions; d++)
    planes[1].strides[d] = channel.description.planes[1].strides[d];
  planes[1].strides[0] = 64;
  CHECK_OK(send_planes(&channel, planes));
  expect_frame(&channel, expected);
  CHECK_OK(cudalink_exporter_send_planes(channel.exporter, &channel.description, planes, NULL,
                                         CUDALINK_STREAM_COMPLETE, 10 * SECOND));
  expect_frame(&channel, expected);
  planes[1].data = NULL;
  CHECK_STATUS(send_planes(&channel, planes), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "plane 1: no source");
  close_channel(&channel);
  free(expected);
}

TEST(array_as_source, 60) {
  struct channel channel;
  CUarray array, small;
  CUDA_ARRAY3D_DESCRIPTOR made = {
      .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
  gpu_start();
  open_picture(&channel, true);
  char *picture = random_bytes(channel.packed);
  CU(cuArray3DCreate(&array, &made));
  made.Height = 63;
  CU(cuArray3DCreate(&small, &made));
  CUDA_MEMCPY2D put = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = picture,
                       .srcPitch = 256,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = array,
                       .WidthInBytes = 256,
                       .Height = 64};
  CU(cuMemcpy2D(&put));
  cudalink_source source = {.array = array};
  CHECK_OK(send_planes(&channel, &source));
  expect_frame(&channel, picture);
  source.array = small;
  CHECK_STATUS(send_planes(&channel, &source), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "63 rows of 256 bytes, the plane takes 64 of 256");
  source.data = picture;
  CHECK_STATUS(send_planes(&channel, &source), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "both are named");
  close_channel(&channel);
  free(picture);
}

TEST(strides_that_are_refused, 60) {
  struct channel channel = {0};
  gpu_start();
  CHECK_OK(cudalink_describe_tensor(&channel.description, "t", CUDALINK_FLOAT32, 3,
                                    (int64_t[]){5000, 10, 10}));
  open_channel(&channel, false);
  char *memory = gpu_memory(GPU_MEMORY_DEVICE, 4 * channel.bytes, NULL);
  cudalink_source source = {.data = memory, .strides = {800, 40, 8}};
  CHECK_STATUS(send_planes(&channel, &source), CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "50000 copies, at most 4096");
  source.strides[1] = -40;
  CHECK_STATUS(send_planes(&channel, &source), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "stride 1 is negative (-40)");
  CHECK_STATUS(send_planes(&channel, NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  close_channel(&channel);
}

TEST(frame_without_bytes, 60) {
  struct channel channel = {0};
  cudalink_description empty = {0};
  cudalink_source nothing = {0};
  cudalink_frame frame;
  gpu_start();
  open_picture(&channel, true);
  CHECK_OK(cudalink_describe_tensor(&empty, "e", CUDALINK_FLOAT32, 2, (int64_t[]){0, 8}));
  cudalink_description picture = channel.description;
  channel.description = empty;
  CHECK_OK(send(&channel, NULL));
  CHECK_OK(send_planes(&channel, &nothing));
  CHECK_OK(
      cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_EQUAL(frame.description.planes[0].bytes, 0);
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  channel.description = picture;
  CHECK_STATUS(send(&channel, NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_CONTAINS(cudalink_last_error(), "no data, but the frame has 16384 bytes");
  close_channel(&channel);
}
