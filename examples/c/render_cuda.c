/* SPDX-License-Identifier: MIT
 *
 * render_cuda NAME [FRAMES]: draws with CUDA straight into the lent slot; no pixel is copied. The picture
 * is published while the GPU still draws it: publish names the stream, and consumers wait for that.
 *
 * Without a GPU it says so and lets the CPU draw into a slot in shared memory.
 */
#include "cuda_driver.h"

#include <cudalink/cudalink.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WIDTH 1280
#define HEIGHT 720
#define BAR 64

static volatile sig_atomic_t stopped;
static CUdevice device;
static CUcontext context;
static CUstream stream; /* NULL: the CPU draws */

static void stop(int number) {
  (void)number;
  stopped = 1;
}

static int failed(const char *what, const char *why) {
  fprintf(stderr, "render_cuda: %s: %s\n", what, why);
  return EXIT_FAILURE;
}

/* NULL, or why the GPU can't draw. */
static const char *start_cuda(void) {
  const char *reason = cuda_load();
  if (reason) return reason;
  if (cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    return "the GPU can't be used";
  return NULL;
}

static int fill(char *pixels, size_t pitch, unsigned color, size_t width, size_t height) {
  if (stream)
    return cuMemsetD2D32Async((CUdeviceptr)(uintptr_t)pixels, pitch, color, width, height, stream);
  for (size_t row = 0; row < height; row++)
    for (size_t column = 0; column < width; column++)
      ((unsigned *)(void *)(pixels + row * pitch))[column] = color;
  return 0;
}

/* A bright bar that moves over a dark ground. */
static int draw(const cudalink_slot *slot, const cudalink_description *picture, int number) {
  char *pixels = (char *)slot->data + picture->planes[0].offset;
  size_t pitch = (size_t)picture->planes[0].strides[0];
  size_t left = (size_t)number * 4 % (WIDTH - BAR);
  int result = fill(pixels, pitch, 0xff402010, WIDTH, HEIGHT);
  return result ? result : fill(pixels + left * 4, pitch, 0xffe0f0ff, BAR, HEIGHT);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "picture", *no_gpu = start_cuda();
  long frames = argc > 2 ? atol(argv[2]) : 0;
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
  if (no_gpu) printf("%s: the CPU draws into shared memory\n", no_gpu);

  cudalink_description picture = {0};
  cudalink_describe_picture(&picture, CUDALINK_FORMAT_RGBA8, WIDTH, HEIGHT, 0);
  cudalink_exporter exporter;
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = name, .description = &picture,
                                 .kind = no_gpu ? CUDALINK_KIND_HOST : CUDALINK_KIND_VMM};
  if (cudalink_exporter_open(&exporter, &spec) < 0) return failed("open", cudalink_last_error());
  cudalink_exporter_wait_consumers(exporter, 1, frames ? CUDALINK_FOREVER : 0);

  cudalink_stream after = no_gpu ? CUDALINK_STREAM_COMPLETE : CUDALINK_STREAM_HANDLE(stream);
  for (int number = 0; !stopped && (!frames || number < frames); number++) {
    cudalink_slot slot;
    int status = cudalink_exporter_begin(exporter, &picture, CUDALINK_FOREVER, &slot);
    if (status < 0) return failed("begin", cudalink_last_error());
    if (draw(&slot, &picture, number)) return failed("draw", "CUDA refused");
    if (cudalink_exporter_publish(exporter, &slot, after) < 0)
      return failed("publish", cudalink_last_error());
    nanosleep(&(struct timespec){.tv_nsec = 16000000}, NULL); /* about 60 per second */
  }
  cudalink_exporter_wait_taken(exporter, INT64_C(10000000000));
  cudalink_exporter_close(exporter);
  if (stream && (cuStreamSynchronize(stream) || cuStreamDestroy(stream))) return EXIT_FAILURE;
  if (context) cuDevicePrimaryCtxRelease(device);
  return EXIT_SUCCESS;
}
