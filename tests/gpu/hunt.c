/* SPDX-License-Identifier: MIT
 *
 * Long runs at full speed: every word of every frame that a consumer gets is checked by a kernel. With
 * policy latest the producer overtakes it all the time (`missed` has the frames that acquire passed over;
 * wait_next counts none); with every it waits for the consumer and never does. GPU_SECONDS (2) says for
 * how long each. GPU_RESULTS names the file to which each adds a line of JSON.
 */
#include <pthread.h>

#include "flat.h"

static uint64_t seconds(void) { return gpu_number("GPU_SECONDS", 2); }

struct hunt {
  const char *what, *policy;
  int processes; /* the test's own does not count where it only looks on */
  uint64_t checked, wrong, missed, published;
};

/* Whoever wants the latest frame was overtaken, else the run says nothing. */
static void report(const struct hunt *hunt) {
  uint64_t consumers = hunt->processes > 1 ? (uint64_t)hunt->processes - 1 : 1;
  gpu_report("{\"case\": \"hunt\", \"what\": \"%s\", \"unit\": \"frames\", \"policy\": \"%s\", "
             "\"processes\": %d, \"published\": %llu, \"checked\": %llu, \"missed\": %llu, "
             "\"wrong_words\": %llu, \"seconds\": %llu}",
             hunt->what, hunt->policy, hunt->processes, (unsigned long long)hunt->published,
             (unsigned long long)hunt->checked, (unsigned long long)hunt->missed,
             (unsigned long long)hunt->wrong, (unsigned long long)seconds());
  CHECK_EQUAL(hunt->wrong, 0);
  CHECK(hunt->checked > 0);
  if (!strcmp(hunt->policy, "latest")) CHECK(hunt->checked < hunt->published * consumers);
}

/* ---- two threads of one process ------------------------------------------------------------------------ */

struct consumer {
  pthread_t thread;
  struct drain drain;
  struct drain_result result;
};

static void *drain_thread(void *argument) {
  struct consumer *consumer = argument;
  CU(cuCtxSetCurrent(gpu_context()));
  drain_run(&consumer->drain, &consumer->result);
  return NULL;
}

static void in_one_process(const char *what, struct feed feed, struct drain drain) {
  struct consumer consumer = {.drain = drain};
  struct feed_result fed;
  gpu_start();
  feed.name = consumer.drain.name = "gpu";
  feed.consumers = 1;
  feed.seconds = seconds();
  CHECK_EQUAL(pthread_create(&consumer.thread, NULL, drain_thread, &consumer), 0);
  feed_run(&feed, &fed);
  pthread_join(consumer.thread, NULL);
  report(&(struct hunt){.what = what,
                        .policy = drain.policy == CUDALINK_POLICY_EVERY ? "every" : "latest",
                        .processes = 1,
                        .checked = consumer.result.checked,
                        .wrong = consumer.result.wrong,
                        .missed = consumer.result.missed,
                        .published = fed.published});
}

TEST(small_every, 600) {
  in_one_process(
      "256x256, one process, every frame",
      (struct feed){
          .kind = CUDALINK_KIND_VMM, .width = 256, .height = 256, .slots = 40, .max_slots = 40},
      (struct drain){.policy = CUDALINK_POLICY_EVERY, .hold = 16});
}
TEST(small_latest, 600) {
  in_one_process(
      "256x256, one process, latest",
      (struct feed){
          .kind = CUDALINK_KIND_VMM, .width = 256, .height = 256, .slots = 20, .max_slots = 40},
      (struct drain){.policy = CUDALINK_POLICY_LATEST, .hold = 16});
}
TEST(hd_every, 600) {
  in_one_process(
      "1080p, one process, every frame",
      (struct feed){
          .kind = CUDALINK_KIND_VMM, .width = 1920, .height = 1080, .slots = 24, .max_slots = 24},
      (struct drain){.policy = CUDALINK_POLICY_EVERY, .hold = 16});
}
TEST(hd_latest, 600) {
  in_one_process(
      "1080p, one process, latest",
      (struct feed){
          .kind = CUDALINK_KIND_VMM, .width = 1920, .height = 1080, .slots = 20, .max_slots = 40},
      (struct drain){.policy = CUDALINK_POLICY_LATEST, .hold = 16});
}
TEST(hd_send_latest, 600) {
  in_one_process(
      "1080p, one process, send, latest",
      (struct feed){.kind = CUDALINK_KIND_VMM, .width = 1920, .height = 1080, .send = true},
      (struct drain){.policy = CUDALINK_POLICY_LATEST, .hold = 2});
}

/* ---- processes ---------------------------------------------------------------------------------------------- */

static void in_processes(const char *what, const char *feed_options, const char *policy,
                         const char *drain_options, int consumers) {
  struct process *drains[32];
  struct hunt hunt = {.what = what, .policy = policy, .processes = 1 + consumers};
  gpu_start();
  struct process *feed = start_feed("consumers=%d seconds=%llu drain=1 %s", consumers,
                                    (unsigned long long)seconds(), feed_options);
  for (int i = 0; i < consumers; i++)
    drains[i] = start_drain("policy=%s %s", policy, drain_options);
  for (int i = 0; i < consumers; i++) {
    const char *said = process_hear(drains[i]);
    hunt.checked += (uint64_t)line_number(said, "checked");
    hunt.wrong += (uint64_t)line_number(said, "wrong");
    hunt.missed += (uint64_t)line_number(said, "missed");
    process_finish(drains[i]);
  }
  hunt.published = (uint64_t)line_number(process_hear(feed), "published");
  process_finish(feed);
  report(&hunt);
}

TEST(small_processes_latest, 600) {
  in_processes("256x256, two processes, latest", "width=256 height=256", "latest", "hold=2", 1);
}
TEST(small_processes_every, 600) {
  in_processes("256x256, two processes, every frame", "width=256 height=256 slots=40 max_slots=40",
               "every", "hold=16", 1);
}
TEST(small_processes_next, 600) {
  in_processes("256x256, two processes, wait_next", "width=256 height=256", "latest",
               "gpu_wait=1 next=1", 1);
}
TEST(slow_kernels_both_ends, 600) {
  in_processes("256x256, three consumers, slow kernels", "width=256 height=256 pause=100000",
               "latest", "hold=3 pause=150000", 3);
}
TEST(small_ipc, 600) {
  in_processes("256x256, two processes, ipc", "kind=ipc slots=16 width=256 height=256", "latest",
               "hold=2", 1);
}
TEST(hd_processes, 600) {
  in_processes("1080p, two processes, latest", "width=1920 height=1080", "latest", "hold=2", 1);
}
TEST(hd_sixteen_consumers, 600) {
  in_processes("1080p, sixteen consumers", "width=1920 height=1080 max_slots=40", "latest", "", 16);
}
TEST(resize_under_load, 600) {
  in_processes("resize each 20 frames, two consumers", "width=256 height=256 resize=20", "every",
               "gpu_wait=1", 2);
}

/* ---- flat ------------------------------------------------------------------------------------------------------ */

#define WARM_UP 50 /* rounds */

struct reopening {
  CUstream stream;
  CUdeviceptr counts;
  cudalink_description description;
  uint64_t bytes;
};

/* Opens both ends, passes a frame, closes. */
static void reopen_once(const struct reopening *reopening) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_slot slot;
  cudalink_frame frame;
  CUstream stream = reopening->stream;
  CHECK_OK(cudalink_exporter_open(
      &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                           .kind = CUDALINK_KIND_VMM,
                                           .description = &reopening->description}));
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                           .open_timeout = 5 * SECOND}));
  CHECK_OK(cudalink_exporter_begin(exporter, &reopening->description, SECOND, &slot));
  gpu_fill(stream, slot.data, reopening->bytes, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(exporter, &slot, ON(stream)));
  CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, SECOND, &frame));
  gpu_check(stream, frame.data, reopening->bytes, frame.sequence, 0, reopening->counts);
  CHECK_OK(cudalink_frame_release(&frame, ON(stream)));
  CU(cuStreamSynchronize(stream));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(exporter));
}

TEST(reopen, 600) {
  struct reopening reopening = {0};
  struct flat before, now;
  uint64_t rounds = 0;
  gpu_start();
  reopening.stream = gpu_stream();
  reopening.counts = gpu_counts_make();
  describe_rgba(&reopening.description, 256, 256);
  CHECK_OK(cudalink_description_bytes(&reopening.description, &reopening.bytes));
  for (int i = 0; i < WARM_UP; i++)
    reopen_once(&reopening);
  flat_start(&before);
  uint64_t end = cudalink_now() + seconds() * (uint64_t)SECOND;
  for (; cudalink_now() < end; rounds++)
    reopen_once(&reopening);
  flat_check(&before, &now, 0);
  CHECK_EQUAL(gpu_counts_read(reopening.counts, reopening.stream).wrong, 0);
  CHECK(rounds > 0);
  flat_report("both ends opened again in one process", rounds, &before, &now);
}
