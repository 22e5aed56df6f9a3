/* SPDX-License-Identifier: MIT
 *
 * On a GPU: the figures that the original cuda-link publishes in its README, measured for this
 * library, beside the raw driver calls of the same run.
 */
#include "bench_cuda.h"

#define WARM_UP 20
#define LONG 10000000000 /* ns: a time-out that never passes */

/* By the row's parameter. */
static const struct size {
  uint32_t width, height;
  cudalink_format format;
  bool blocking; /* a send counts until the GPU has done it */
  bool sync;     /* because export_sync has it wait */
} sizes[] = {
    [BENCH_512_F32] = {512, 512, CUDALINK_FORMAT_RGBA32F, .blocking = true},
    [BENCH_1080P_F32] = {1920, 1080, CUDALINK_FORMAT_RGBA32F, .blocking = true},
    [BENCH_4K_F32] = {3840, 2160, CUDALINK_FORMAT_RGBA32F, .blocking = true},
    [BENCH_1080P_U8] = {1920, 1080, CUDALINK_FORMAT_RGBA8, .blocking = false},
    [BENCH_1080P_U8_SYNC] = {1920, 1080, CUDALINK_FORMAT_RGBA8, .blocking = true, .sync = true},
    [BENCH_512_U8] = {512, 512, CUDALINK_FORMAT_RGBA8, .blocking = false},
    [BENCH_4K_U8] = {3840, 2160, CUDALINK_FORMAT_RGBA8, .blocking = false},
};

struct stand {
  struct bench_cuda cuda;
  const struct size *size;
  cudalink_description description;
  uint64_t bytes;
  CUdeviceptr source;
  bool waits; /* behind each call, for the GPU */
};

static int start(struct bench_scene *scene, struct stand *stand) {
  stand->size = &sizes[scene->parameter];
  stand->waits = stand->size->blocking;
  if (bench_cuda_start(scene, &stand->cuda)) return BENCH_FAILED;
  stand->description = (cudalink_description){0};
  if (cudalink_describe_picture(&stand->description, stand->size->format, stand->size->width,
                                stand->size->height, 1) ||
      cudalink_description_bytes(&stand->description, &stand->bytes))
    return bench_fail_library(scene, "describe");
  return bench_cuda_check(scene, stand->cuda.cuMemAlloc(&stand->source, stand->bytes),
                          "cuMemAlloc");
}

static int open_exporter(struct bench_scene *scene, const struct stand *stand,
                         cudalink_exporter *exporter) {
  cudalink_exporter_spec spec = {
      CUDALINK_EXPORTER_DEFAULTS,         .name = scene->name,
      .description = &stand->description, .kind = scene->options->kind,
      .device = scene->options->device,   .directory = scene->options->directory,
      .export_sync = stand->size->sync};
  return cudalink_exporter_open(exporter, &spec) < 0 ? bench_fail_library(scene, "open") : BENCH_OK;
}

static int send(struct bench_scene *scene, struct stand *stand, cudalink_exporter exporter) {
  int status =
      cudalink_exporter_send(exporter, &stand->description, (const void *)(uintptr_t)stand->source,
                             NULL, CUDALINK_STREAM_HANDLE(stand->cuda.stream), LONG);
  return status < 0 ? bench_fail_library(scene, "send") : BENCH_OK;
}

static int synchronize(struct bench_scene *scene, struct stand *stand) {
  return bench_cuda_check(scene, stand->cuda.cuStreamSynchronize(stand->cuda.stream),
                          "cuStreamSynchronize");
}

static double microseconds_since(uint64_t ticks) {
  return bench_nanoseconds(bench_ticks() - ticks) / 1e3;
}

/* What `call` queues, timed with or without the GPU's part. */
static int time_calls(struct bench_scene *scene, struct stand *stand,
                      int (*call)(struct bench_scene *scene, struct stand *stand, void *context),
                      void *context) {
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t begin = bench_ticks();
    if (call(scene, stand, context)) return BENCH_FAILED;
    double took = microseconds_since(begin);
    if (synchronize(scene, stand)) return BENCH_FAILED;
    if (stand->waits) took = microseconds_since(begin);
    if (i >= WARM_UP) bench_value(scene, took);
  }
  return BENCH_OK;
}

/* ---- export: one frame from the caller's memory into the channel ------------------------------ */

static int call_send(struct bench_scene *scene, struct stand *stand, void *context) {
  return send(scene, stand, *(cudalink_exporter *)context);
}

static int play_export(struct bench_scene *scene) {
  struct stand stand;
  cudalink_exporter exporter;
  if (start(scene, &stand) || open_exporter(scene, &stand, &exporter)) return BENCH_FAILED;
  if (stand.size->sync) stand.waits = false; /* the call does it */
  return time_calls(scene, &stand, call_send, &exporter);
}

struct raw_target {
  CUdeviceptr frame;
  void *word;
  uint64_t value;
};

/* The least: the copy, and a word that says that it is done. */
static int call_copy(struct bench_scene *scene, struct stand *stand, void *context) {
  const struct bench_cuda *cuda = &stand->cuda;
  struct raw_target *target = context;
  if (bench_cuda_check(
          scene, cuda->cuMemcpyDtoDAsync(target->frame, stand->source, stand->bytes, cuda->stream),
          "cuMemcpyDtoDAsync"))
    return BENCH_FAILED;
  return bench_cuda_check(scene,
                          cuda->cuStreamWriteValue64(cuda->stream,
                                                     (CUdeviceptr)(uintptr_t)target->word,
                                                     ++target->value, 0),
                          "cuStreamWriteValue64");
}

static int play_export_raw(struct bench_scene *scene) {
  struct stand stand;
  struct raw_target target = {0};
  if (start(scene, &stand) ||
      bench_cuda_check(scene, stand.cuda.cuMemAlloc(&target.frame, stand.bytes), "cuMemAlloc") ||
      bench_cuda_check(scene, stand.cuda.cuMemHostAlloc(&target.word, 4096, 0), "cuMemHostAlloc"))
    return BENCH_FAILED;
  return time_calls(scene, &stand, call_copy, &target);
}

int bench_export_gpu(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_export, NULL, 0);
}
int bench_export_gpu_raw(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_export_raw, NULL, 0);
}

/* ---- get_frame_numpy: a frame into pinned memory of the CPU ------------------------------------ */

static int time_reads(struct bench_scene *scene, struct stand *stand, const cudalink_frame *frame) {
  void *pinned;
  if (bench_cuda_check(scene, stand->cuda.cuMemHostAlloc(&pinned, stand->bytes, 0),
                       "cuMemHostAlloc"))
    return BENCH_FAILED;
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    uint64_t begin = bench_ticks();
    if (frame && cudalink_frame_to_host(frame, pinned, stand->bytes) < 0)
      return bench_fail_library(scene, "to_host");
    if (!frame && (bench_cuda_check(scene,
                                    stand->cuda.cuMemcpyDtoHAsync(pinned, stand->source,
                                                                  stand->bytes, stand->cuda.stream),
                                    "cuMemcpyDtoHAsync") ||
                   synchronize(scene, stand)))
      return BENCH_FAILED;
    if (i >= WARM_UP) bench_value(scene, microseconds_since(begin) / 1e3);
  }
  return BENCH_OK;
}

static int play_read(struct bench_scene *scene) {
  struct stand stand;
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_frame frame;
  if (start(scene, &stand) || open_exporter(scene, &stand, &exporter) ||
      bench_import(scene, 0, &importer) || send(scene, &stand, exporter))
    return BENCH_FAILED;
  if (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, LONG, &frame) < 0)
    return bench_fail_library(scene, "acquire");
  int status = time_reads(scene, &stand, &frame);
  cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  return status;
}

static int play_read_raw(struct bench_scene *scene) {
  struct stand stand;
  return start(scene, &stand) ? BENCH_FAILED : time_reads(scene, &stand, NULL);
}

int bench_read_gpu(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_read, NULL, 0);
}
int bench_read_gpu_raw(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_read_raw, NULL, 0);
}

/* ---- the same in a loop with work of 5 ms, as it is and pipelined -------------------------------- */

#define WORK 5000 /* us */

struct reader {
  cudalink_importer importer;
  bool pipelined;
  void *pinned;
  cudalink_host_copy before; /* the copy of the frame before */
};

static int open_reader(struct bench_scene *scene, struct stand *stand, struct reader *reader) {
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = scene->name,
                                 .directory = scene->options->directory,
                                 .host_pipelined = reader->pipelined, .open_timeout = LONG};
  if (cudalink_importer_open(&reader->importer, &spec) < 0)
    return bench_fail_library(scene, "open");
  return bench_cuda_check(scene, stand->cuda.cuMemHostAlloc(&reader->pinned, stand->bytes, 0),
                          "cuMemHostAlloc");
}

/* Pipelined: this frame's copy begins, that of the frame before is there. */
static int read_out(struct bench_scene *scene, struct reader *reader, cudalink_frame *frame,
                    uint64_t bytes) {
  cudalink_host_copy copy;
  if (!reader->pipelined) {
    if (cudalink_frame_to_host(frame, reader->pinned, bytes) < 0 ||
        cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE) < 0)
      return bench_fail_library(scene, "to_host");
    return BENCH_OK;
  }
  if (cudalink_frame_to_host_begin(frame, NULL, 0, &copy) < 0)
    return bench_fail_library(scene, "to_host_begin");
  if (reader->before.id && cudalink_frame_to_host_finish(&reader->before) < 0)
    return bench_fail_library(scene, "to_host_finish");
  reader->before = copy;
  return BENCH_OK;
}

static int play_work(struct bench_scene *scene, bool pipelined) {
  struct stand stand;
  struct reader reader = {.pipelined = pipelined};
  cudalink_exporter exporter;
  cudalink_frame frame;
  if (start(scene, &stand) || open_exporter(scene, &stand, &exporter) ||
      open_reader(scene, &stand, &reader))
    return BENCH_FAILED;
  bench_pin_producer();
  for (uint32_t i = 0; i < scene->rounds + WARM_UP; i++) {
    if (send(scene, &stand, exporter) || synchronize(scene, &stand)) return BENCH_FAILED;
    if (cudalink_importer_acquire(reader.importer, CUDALINK_STREAM_COMPLETE, LONG, &frame) < 0)
      return bench_fail_library(scene, "acquire");
    uint64_t begin = bench_ticks();
    if (read_out(scene, &reader, &frame, stand.bytes)) return BENCH_FAILED;
    double took = microseconds_since(begin);
    if (i >= WARM_UP) bench_value(scene, took);
    while (microseconds_since(begin) < took + WORK) {
    }
  }
  return BENCH_OK;
}

static int play_plain(struct bench_scene *scene) { return play_work(scene, false); }
static int play_pipelined(struct bench_scene *scene) { return play_work(scene, true); }

int bench_work_plain(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_plain, NULL, 0);
}
int bench_work_pipelined(struct bench_case *test, struct bench_samples *samples) {
  return bench_play(test, samples, play_pipelined, NULL, 0);
}

/* ---- what other rows measure, in the unit of the original's README ------------------------------ */

static int scaled(bench_measure measure, double factor, struct bench_case *test,
                  struct bench_samples *samples) {
  size_t before = samples->count;
  int status = measure(test, samples);
  for (size_t i = before; i < samples->count; i++)
    samples->values[i] *= factor;
  return status;
}

int bench_get_frame(struct bench_case *test, struct bench_samples *samples) {
  return scaled(bench_acquire, 1e-3, test, samples);
}
int bench_get_frame_words(struct bench_case *test, struct bench_samples *samples) {
  return scaled(bench_lease_words, 1e-3, test, samples);
}
int bench_notify(struct bench_case *test, struct bench_samples *samples) {
  return scaled(bench_handover, 1e-3, test, samples);
}
int bench_notify_word(struct bench_case *test, struct bench_samples *samples) {
  return scaled(bench_word, 1e-3, test, samples);
}
int bench_attach_gpu(struct bench_case *test, struct bench_samples *samples) {
  return scaled(bench_attach, 1e3, test, samples);
}
