/* SPDX-License-Identifier: MIT
 *
 * The original Python package itself as the other end of the old wire, both ways: original.py.
 * CUDALINK_ORIGINAL names the folder that its package `cuda_link` lies in.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "gpu.h"
#include "wire/activation_barrier.h"

#define FRAMES 50
#define BYTES (64 * 32 * 4)
#define NONE CUDALINK_STREAM_COMPLETE

struct script {
  FILE *in, *out;
};

static void run(struct script *script, const char *what, const char *name) {
  int in[2], out[2];
  char frames[16];
  snprintf(frames, sizeof frames, "%d", FRAMES);
  CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    helper_end_with_parent(parent);
    dup2(in[0], 0);
    dup2(out[1], 1);
    execlp("python3", "python3", ORIGINAL_SCRIPT, what, name, frames, (char *)NULL);
    _exit(126);
  }
  close(in[0]);
  close(out[1]);
  script->in = fdopen(in[1], "w");
  script->out = fdopen(out[0], "r");
}

static void next_line(struct script *script, char line[LINE_SIZE]) {
  if (!fgets(line, LINE_SIZE, script->out)) FAIL("the original package ended; its words are above");
  line[strcspn(line, "\n")] = 0;
  printf("  %s\n", line);
}

static void tell(struct script *script) {
  fputs("next\n", script->in);
  fflush(script->in);
}

static const char *segment(void) {
  static char name[64];
  const char *folder = getenv("CUDALINK_ORIGINAL");
  if (!folder || !*folder) SKIP("needs the original package (CUDALINK_ORIGINAL)");
  gpu_start();
  snprintf(name, sizeof name, "cudalink_test>>%d", getpid());
  return name;
}

static bool barrier_exists(void) {
  int fd = shm_open(WIRE_BARRIER_NAME, O_RDONLY, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

TEST(original_package_sends, 120) {
  const char *name = segment();
  bool had_barrier = barrier_exists();
  char line[LINE_SIZE];
  struct script script;
  cudalink_importer importer;
  run(&script, "send", name);
  next_line(&script, line);
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = name}));
  for (int i = 1; i <= FRAMES; i++) {
    cudalink_frame frame;
    uint8_t pixels[BYTES];
    tell(&script);
    next_line(&script, line);
    CHECK_CONTAINS(line, "PUBLISHED");
    CHECK_OK(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame));
    CHECK_EQUAL(frame.description.picture.width, 64);
    CHECK_EQUAL(frame.description.picture.height, 32);
    CHECK_OK(cudalink_frame_to_host(&frame, pixels, sizeof pixels));
    for (int b = 0; b < BYTES; b++)
      CHECK_EQUAL(pixels[b], i % 251);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  tell(&script);
  cudalink_frame frame;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 10 * SECOND, &frame),
               CUDALINK_ERROR_ENDED);
  CHECK_OK(cudalink_importer_close(importer));
  if (!had_barrier)
    shm_unlink(WIRE_BARRIER_NAME); /* the original leaves it, as one of the machine's */
}

TEST(original_package_receives, 120) {
  const char *name = segment();
  char line[LINE_SIZE];
  struct script script;
  cudalink_exporter exporter;
  cudalink_description description;
  cudalink_slot slot;
  describe_rgba(&description, 64, 32);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "original", .cipd_name = name,
                                .cipd_only = 1, .description = &description}));
  run(&script, "receive", name);
  next_line(&script, line);
  for (int i = 1; i <= FRAMES; i++) {
    char expected[64];
    CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
    CU(cuMemsetD8((CUdeviceptr)(uintptr_t)slot.data, (unsigned char)(i % 251), BYTES));
    CU(cuCtxSynchronize());
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, NONE));
    next_line(&script, line);
    snprintf(expected, sizeof expected, "got %d %d %d", BYTES, i % 251, i % 251);
    CHECK(!strcmp(line, expected));
  }
  CHECK_OK(cudalink_exporter_close(exporter));
}
