/* SPDX-License-Identifier: MIT
 *
 * What consumers and new memory do to the producer's own work: kernels of 35 us are launched back to
 * back, while consumers attach, leave and die, and the frames grow. The longest launch of each phase
 * is reported; attaching processes have a CUDA context already, whose making is not ours.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "measure.h"

#define KERNEL 35000 /* ns */
#define ROUNDS 8

enum phase { CALM, CONTEXT, ATTACH, LEAVE, DEATH, RESIZE, PHASES };
static const char *const names[PHASES] = {
    "calm", "another process makes a context", "attach", "leave", "death", "resize"};
static _Atomic int phase, over;
static _Atomic uint32_t width;
static struct samples launches[PHASES];
static cudalink_exporter exporter;

static void *launch(void *argument) {
  (void)argument;
  CU(cuCtxSetCurrent(gpu_context()));
  CUstream stream = gpu_stream();
  void *place = gpu_memory(GPU_MEMORY_DEVICE, 8, stream);
  for (int i = 0; !atomic_load(&over); i++) {
    int now = atomic_load(&phase);
    uint64_t start = cudalink_now();
    gpu_stamp(stream, place, KERNEL);
    samples_add(&launches[now], microseconds_since(start));
    if (i % 4 == 3) CU(cuStreamSynchronize(stream));
  }
  return NULL;
}

static void *publish(void *argument) {
  (void)argument;
  CU(cuCtxSetCurrent(gpu_context()));
  CUstream stream = gpu_stream();
  while (!atomic_load(&over)) {
    cudalink_description description;
    cudalink_slot slot;
    describe_rgba(&description, atomic_load(&width), 256);
    CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(stream)));
    CU(cuStreamSynchronize(stream));
    harness_look_again(); /* about 1 ms */
  }
  return NULL;
}

static void wait_a_moment(void) {
  uint64_t end = cudalink_now() + 20 * (uint64_t)MILLISECOND;
  WAIT_UNTIL(cudalink_now() > end);
}

/* Makes its context, then attaches when told, takes ten frames, and leaves when told. */
HELPER(guest) {
  char line[LINE_SIZE];
  cudalink_importer importer;
  gpu_start();
  CUstream stream = gpu_stream();
  say("ready");
  hear(line);
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .gpu_wait = 1,
                                           .open_timeout = 5 * SECOND}));
  for (int i = 0; i < 10; i++) {
    cudalink_frame frame;
    CHECK_OK(cudalink_importer_acquire(importer, ON(stream), 5 * SECOND, &frame));
    CHECK_OK(cudalink_frame_release(&frame, ON(stream)));
  }
  say("attached");
  hear(line);
  CHECK_OK(cudalink_importer_close(importer));
  say("left");
  while (hear(line)) {
  }
}

static void one_round(bool dies) {
  atomic_store(&phase, CONTEXT);
  struct process *guest = process_start("guest", "x=1");
  process_expect(guest, "ready");
  atomic_store(&phase, CALM);
  wait_a_moment();
  atomic_store(&phase, ATTACH);
  process_tell(guest, "attach");
  process_expect(guest, "attached");
  wait_a_moment();
  atomic_store(&phase, dies ? DEATH : LEAVE);
  if (dies) {
    process_kill(guest);
    wait_a_moment();
  } else {
    process_tell(guest, "leave");
    process_expect(guest, "left");
    wait_a_moment();
    atomic_store(&phase, CONTEXT);
    process_finish(guest);
  }
  atomic_store(&phase, CALM);
  wait_a_moment();
  atomic_store(&phase, RESIZE);
  atomic_fetch_add(&width, 256);
  wait_a_moment();
  atomic_store(&phase, CALM);
}

TEST(disturbance, 100) {
  pthread_t threads[2];
  cudalink_description description;
  gpu_start();
  atomic_store(&width, 256);
  describe_rgba(&description, 256, 256);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &description}));
  CHECK_EQUAL(pthread_create(&threads[0], NULL, launch, NULL), 0);
  CHECK_EQUAL(pthread_create(&threads[1], NULL, publish, NULL), 0);
  for (int i = 0; i < ROUNDS; i++)
    one_round(i % 2 != 0);
  atomic_store(&over, 1);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  CHECK_OK(cudalink_exporter_close(exporter));
  for (int p = 0; p < PHASES; p++)
    samples_report(&launches[p], "launching a kernel meanwhile", names[p]);
}
