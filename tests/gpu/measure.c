/* SPDX-License-Identifier: MIT
 *
 * Measures the library beside raw driver calls in the same run. Each measurement prints lines of
 * JSON to the file that GPU_RESULTS names (stdout without): case, what, unit, p50, p99, count.
 */
#include "measure.h"

#include <sys/mman.h>

#include "gpu/gpu.h"
#include "link/reaper.h"

#define ROUNDS 2000

/* ---- samples ----------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

void samples_add(struct samples *samples, double value) {
  if (samples->count < MOST_SAMPLES) samples->values[samples->count++] = value;
}

double samples_median(struct samples *samples) {
  qsort(samples->values, samples->count, sizeof *samples->values, compare);
  return samples->count ? samples->values[samples->count / 2] : 0;
}

void samples_report(struct samples *samples, const char *name, const char *what) {
  const char *path = getenv("GPU_RESULTS");
  FILE *file = path ? fopen(path, "a") : stdout;
  double median = samples_median(samples);
  double late = samples->count ? samples->values[samples->count * 99 / 100] : 0;
  double most = samples->count ? samples->values[samples->count - 1] : 0;
  CHECK(file != NULL);
  fprintf(file,
          "{\"case\": \"%s\", \"what\": \"%s\", \"unit\": \"us\", \"p50\": %.3f, \"p99\": %.3f, "
          "\"most\": %.3f, \"count\": %zu}\n",
          name, what, median, late, most, samples->count);
  if (path) fclose(file);
  samples->count = 0;
}

double microseconds_since(uint64_t start) { return (double)(cudalink_now() - start) / 1e3; }

static struct samples library, raw;

/* ---- publish ------------------------------------------------------------------------------------------ */

/* Words in pages of their own of a memfd, as the library's are. */
#define PAGE 4096
static CUdeviceptr raw_words(uint32_t count) {
  int descriptor = memfd_create("raw", MFD_CLOEXEC);
  CHECK(descriptor >= 0);
  CHECK_EQUAL(ftruncate(descriptor, count * PAGE), 0);
  void *address = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  CHECK(address != MAP_FAILED);
  close(descriptor);
  CU(cuMemHostRegister(address, count * PAGE,
                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  return (CUdeviceptr)(uintptr_t)address;
}

static double raw_batch(CUdeviceptr words, uint32_t count, uint64_t value, CUstream stream) {
  CUstreamBatchMemOpParams batch[CUDALINK_MAX_CONSUMERS + 1];
  uint64_t start = cudalink_now();
  if (count == 1) CU(cuStreamWriteValue64(stream, words, value, 0));
  for (uint32_t i = 0; count > 1 && i < count; i++) {
    batch[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[i].writeValue.address = words + i * PAGE;
    batch[i].writeValue.value64 = value;
    batch[i].writeValue.flags = 0;
    batch[i].writeValue.alias = 0;
  }
  if (count > 1) CU(cuStreamBatchMemOp(stream, count, batch, 0));
  return microseconds_since(start);
}

/* Consumers that wait on the GPU have a mirror each; who does not costs no write. */
static void measure_publish(uint32_t consumers, bool mirrors) {
  cudalink_exporter exporter;
  cudalink_importer importers[CUDALINK_MAX_CONSUMERS];
  cudalink_description description;
  char name[64];
  gpu_start();
  CUstream stream = gpu_stream();
  uint32_t writes = mirrors ? consumers + 1 : 1;
  CUdeviceptr words = raw_words(writes);
  describe_rgba(&description, 1920, 1080);
  CHECK_OK(cudalink_exporter_open(
      &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                           .kind = CUDALINK_KIND_VMM, .description = &description,
                                           .slots = 16}));
  for (uint32_t i = 0; i < consumers; i++) {
    CHECK_OK(cudalink_importer_open(
        &importers[i],
        &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = mirrors}));
    cudalink_slot slot; /* so that mailboxes are made */
    if (cudalink_exporter_begin(exporter, &description, SECOND, &slot) == CUDALINK_OK)
      CHECK_OK(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE));
    CHECK_OK(cudalink_exporter_wait_consumers(exporter, i + 1, 5 * SECOND));
  }
  for (int i = 0; i < ROUNDS; i++) {
    cudalink_slot slot;
    CHECK_OK(cudalink_exporter_begin(exporter, &description, SECOND, &slot));
    uint64_t start = cudalink_now();
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(stream)));
    if (i > 100) samples_add(&library, microseconds_since(start));
    CU(cuStreamSynchronize(stream));
    double took = raw_batch(words, writes, (uint64_t)i, stream);
    if (i > 100) samples_add(&raw, took);
    CU(cuStreamSynchronize(stream));
  }
  snprintf(name, sizeof name, "publish, %u consumers%s", consumers,
           mirrors ? " that wait on the GPU" : "");
  samples_report(&library, name, "cudalink_exporter_publish");
  samples_report(&raw, name, "raw writes");
  for (uint32_t i = 0; i < consumers; i++)
    CHECK_OK(cudalink_importer_close(importers[i]));
  CHECK_OK(cudalink_exporter_close(exporter));
}
TEST(publish_1, 60) { measure_publish(1, false); }
TEST(publish_1_mirror, 60) { measure_publish(1, true); }
TEST(publish_32, 60) { measure_publish(32, false); }
TEST(publish_32_mirrors, 60) { measure_publish(32, true); }

/* ---- send, acquire, read out ------------------------------------------------------------------------------ */

struct channel {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream;
};

static void open_channel(struct channel *channel) {
  gpu_start();
  channel->stream = gpu_stream();
  describe_rgba(&channel->description, 1920, 1080);
  CHECK_OK(cudalink_description_bytes(&channel->description, &channel->bytes));
  CHECK_OK(cudalink_exporter_open(
      &channel->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &channel->description}));
  CHECK_OK(cudalink_importer_open(
      &channel->importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                    .open_timeout = 5 * SECOND}));
  CHECK_OK(cudalink_exporter_wait_consumers(channel->exporter, 1, SECOND));
}

static void close_channel(struct channel *channel) {
  CHECK_OK(cudalink_importer_close(channel->importer));
  CHECK_OK(cudalink_exporter_close(channel->exporter));
}

/* One copy, made into a graph of one node. */
static CUgraphExec copy_graph(const struct channel *channel, void *target, void *source) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CUcontext context;
  CUDA_MEMCPY3D params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = (CUdeviceptr)(uintptr_t)source,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = (CUdeviceptr)(uintptr_t)target,
                          .WidthInBytes = channel->bytes,
                          .Height = 1,
                          .Depth = 1};
  CU(cuCtxGetCurrent(&context));
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &params, context));
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

TEST(send, 60) {
  struct channel channel;
  static struct samples begin, replayed;
  open_channel(&channel);
  void *source = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  void *target = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  CUdeviceptr words = raw_words(1);
  CUgraphExec graph = copy_graph(&channel, target, source);
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t start = cudalink_now();
    CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, source, NULL,
                                    ON(channel.stream), SECOND));
    if (i > 100) samples_add(&library, microseconds_since(start));
    CU(cuStreamSynchronize(channel.stream));
    start = cudalink_now();
    CU(cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)target, (CUdeviceptr)(uintptr_t)source,
                         channel.bytes, channel.stream));
    CU(cuStreamWriteValue64(channel.stream, words, (uint64_t)i, 0));
    if (i > 100) samples_add(&raw, microseconds_since(start));
    CU(cuStreamSynchronize(channel.stream));
    start = cudalink_now();
    CU(cuGraphLaunch(graph, channel.stream));
    CU(cuStreamWriteValue64(channel.stream, words, (uint64_t)i, 0));
    if (i > 100) samples_add(&replayed, microseconds_since(start));
    CU(cuStreamSynchronize(channel.stream));
    cudalink_slot slot;
    start = cudalink_now();
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, SECOND, &slot));
    if (i > 100) samples_add(&begin, microseconds_since(start));
    CHECK_OK(cudalink_exporter_abandon(channel.exporter, &slot, CUDALINK_STREAM_COMPLETE));
  }
  samples_report(&library, "send 1080p RGBA8", "cudalink_exporter_send");
  samples_report(&raw, "send 1080p RGBA8", "raw copy and write");
  samples_report(&replayed, "send 1080p RGBA8", "raw graph of the copy, and write");
  samples_report(&begin, "send 1080p RGBA8", "begin alone");
  close_channel(&channel);
}

TEST(acquire, 60) {
  struct channel channel;
  static struct samples release;
  cudalink_frame frame;
  open_channel(&channel);
  for (int i = 0; i < ROUNDS; i++) {
    cudalink_slot slot;
    CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, SECOND, &slot));
    CHECK_OK(cudalink_exporter_publish(channel.exporter, &slot, ON(channel.stream)));
    CU(cuStreamSynchronize(channel.stream));
    uint64_t start = cudalink_now();
    CHECK_OK(cudalink_importer_acquire(
        channel.importer, i % 2 ? ON(channel.stream) : CUDALINK_STREAM_COMPLETE, SECOND, &frame));
    if (i > 100) samples_add(i % 2 ? &raw : &library, microseconds_since(start));
    start = cudalink_now();
    CHECK_OK(cudalink_frame_release(&frame, ON(channel.stream)));
    if (i > 100) samples_add(&release, microseconds_since(start));
    CU(cuStreamSynchronize(channel.stream));
  }
  samples_report(&library, "acquire of a ready frame", "with COMPLETE");
  samples_report(&raw, "acquire of a ready frame", "with a stream");
  samples_report(&release, "release", "by a stream");
  close_channel(&channel);
}

TEST(to_host, 60) {
  struct channel channel;
  cudalink_frame frame;
  open_channel(&channel);
  void *pinned = gpu_memory(GPU_MEMORY_PINNED, channel.bytes, channel.stream);
  void *source = gpu_memory(GPU_MEMORY_DEVICE, channel.bytes, channel.stream);
  CHECK_OK(cudalink_exporter_send(channel.exporter, &channel.description, source, NULL,
                                  ON(channel.stream), SECOND));
  CHECK_OK(cudalink_importer_acquire(channel.importer, CUDALINK_STREAM_COMPLETE, SECOND, &frame));
  for (int i = 0; i < 500; i++) {
    uint64_t start = cudalink_now();
    CHECK_OK(cudalink_frame_to_host(&frame, pinned, channel.bytes));
    if (i > 20) samples_add(&library, microseconds_since(start));
    start = cudalink_now();
    CU(cuMemcpyDtoHAsync(pinned, (CUdeviceptr)(uintptr_t)source, channel.bytes, channel.stream));
    CU(cuStreamSynchronize(channel.stream));
    if (i > 20) samples_add(&raw, microseconds_since(start));
  }
  samples_report(&library, "1080p frame to pinned host memory", "cudalink_frame_to_host");
  samples_report(&raw, "1080p frame to pinned host memory", "raw copy");
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  close_channel(&channel);
}

/* ---- open -------------------------------------------------------------------------------------------------- */

/* Until what was closed is gone: letting go of it holds up other calls of the driver. */
static void let_go(void) {
  uint64_t end = cudalink_now() + 30 * (uint64_t)MILLISECOND;
  WAIT_UNTIL(cudalink_now() > end);
  reaper_drain();
}

TEST(open_to_first_frame, 60) {
  static struct samples opened, found, first;
  gpu_start();
  CUstream stream = gpu_stream();
  cudalink_description description;
  describe_rgba(&description, 1920, 1080);
  for (int i = 0; i < 40; i++) {
    cudalink_exporter exporter;
    cudalink_importer importer;
    cudalink_slot slot;
    cudalink_frame frame;
    let_go();
    uint64_t start = cudalink_now();
    CHECK_OK(cudalink_exporter_open(
        &exporter,
        &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                  .kind = CUDALINK_KIND_VMM, .description = &description}));
    samples_add(&opened, microseconds_since(start));
    CHECK_OK(cudalink_exporter_begin(exporter, &description, SECOND, &slot));
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(stream)));
    samples_add(&first, microseconds_since(start));
    start = cudalink_now();
    CHECK_OK(cudalink_importer_open(
        &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                             .open_timeout = 5 * SECOND}));
    samples_add(&found, microseconds_since(start));
    CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, SECOND, &frame));
    samples_add(&library, microseconds_since(start));
    CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
    CHECK_OK(cudalink_importer_close(importer));
    CHECK_OK(cudalink_exporter_close(exporter));
  }
  samples_report(&opened, "open to first frame, producer", "cudalink_exporter_open");
  samples_report(&first, "open to first frame, producer", "published");
  samples_report(&found, "open to first frame, consumer", "cudalink_importer_open");
  samples_report(&library, "open to first frame, consumer", "acquired");
}

/* What of it the driver takes. */
TEST(open_in_parts, 60) {
  static struct samples device_open, block, words, release, unregister;
  const size_t bytes = 16 * 16384;
  gpu_start();
  for (int i = 0; i < 40; i++) {
    struct gpu_device *device;
    struct gpu_block made;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    uint64_t start = cudalink_now();
    CHECK_OK(gpu_device_open(CUDALINK_KIND_VMM, 0, NULL, &device));
    samples_add(&device_open, microseconds_since(start));
    start = cudalink_now();
    CHECK_OK(device->operations->block_create(device, 34 << 20, &made));
    samples_add(&block, microseconds_since(start));
    start = cudalink_now();
    CHECK_OK(device->operations->register_words(device, memory, bytes));
    samples_add(&words, microseconds_since(start));
    start = cudalink_now();
    device->operations->block_destroy(&made);
    samples_add(&release, microseconds_since(start));
    start = cudalink_now();
    device->operations->unregister_words(device, memory);
    samples_add(&unregister, microseconds_since(start));
    gpu_device_close(device);
    munmap(memory, bytes);
  }
  samples_report(&device_open, "open in parts", "device with streams and the try");
  samples_report(&block, "open in parts", "block of 34 MiB");
  samples_report(&words, "open in parts", "registering 256 KiB of words");
  samples_report(&release, "open in parts", "letting go of the block");
  samples_report(&unregister, "open in parts", "unregistering the words");
}
