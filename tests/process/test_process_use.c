/* SPDX-License-Identifier: MIT
 *
 * What programs do with the library in one process: fork, many threads, event loops, a second copy.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "roles.h"
#include "second_copy.h"

static void open_importer(cudalink_importer *importer, cudalink_policy policy) {
  CHECK_OK(cudalink_importer_open(
      importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a", .policy = policy,
                                          .open_timeout = 10 * SECOND}));
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void check_child(cudalink_exporter exporter, cudalink_importer importer,
                        cudalink_frame *frame) {
  cudalink_exporter other;
  cudalink_importer another;
  cudalink_slot slot;
  cudalink_frame next;
  cudalink_description description;
  int descriptor;
  cudalink_exporter_statistics sent = {.size = sizeof sent};
  cudalink_importer_statistics received = {.size = sizeof received};
  describe_bytes(&description, 3000, 1);
  check_frame(frame); /* an old view does not fault */
#define FORKED(call) CHECK_STATUS(call, CUDALINK_ERROR_FORKED)
  FORKED(open_producer(&other, "b", 100));
  FORKED(cudalink_importer_open(
      &another, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a"}));
  FORKED(cudalink_exporter_begin(exporter, &description, 0, &slot));
  FORKED(cudalink_exporter_wait_consumers(exporter, 1, 0));
  FORKED(cudalink_exporter_wait_taken(exporter, 0));
  FORKED(cudalink_exporter_get_statistics(exporter, &sent));
  FORKED(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 0, &next));
  FORKED(cudalink_importer_get_statistics(importer, &received));
  FORKED(cudalink_importer_descriptor(importer, &descriptor));
  FORKED(cudalink_importer_arm(importer));
  FORKED(cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE));
  FORKED(cudalink_importer_close(importer));
  FORKED(cudalink_exporter_close(exporter));
#undef FORKED
  CHECK_CONTAINS(cudalink_last_error(), "fork");
}

/* P37, on kind host: the child is told, ends in any way, and the parent notices nothing. */
TEST(field_p37, 30) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_frame frame;
  CHECK_OK(open_producer(&exporter, "a", 3000));
  open_importer(&importer, CUDALINK_POLICY_LATEST);
  for (int i = 0; i < 3; i++) {
    int status;
    CHECK_OK(publish_frame(exporter, 3000, 1, 0, NULL));
    CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      if (i != 1) check_child(exporter, importer, &frame);
      if (i == 2) kill(getpid(), SIGKILL);
      _exit(7);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, i == 2 ? SIGKILL : 7 << 8);
    check_frame(&frame);
    CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
    CHECK(folder_has("a.sock"));
  }
  CHECK_OK(publish_frame(exporter, 3000, 1, 0, NULL));
  CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(exporter));
}

/* ---- threads --------------------------------------------------------------------------------- */

#define THREADS 4
#define FRAMES 500

static cudalink_importer shared_importer;
static cudalink_exporter shared_exporter;
static _Atomic uint32_t seen[THREADS * FRAMES + 2];
static _Atomic uint32_t taken;

static void *take_frames(void *context) {
  cudalink_frame frame;
  (void)context;
  for (;;) {
    int status = cudalink_importer_acquire(shared_importer, CUDALINK_STREAM_COMPLETE,
                                           CUDALINK_FOREVER, &frame);
    if (status == CUDALINK_ERROR_CLOSED) return NULL;
    if (status == CUDALINK_ERROR_BUSY) continue;
    CHECK_OK(status);
    check_frame(&frame);
    CHECK(frame.sequence <= THREADS * FRAMES);
    CHECK_EQUAL(atomic_fetch_add(&seen[frame.sequence], 1), 0);
    CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
    atomic_fetch_add(&taken, 1);
  }
}

/* One frame may be begun at a time. */
static pthread_mutex_t begun = PTHREAD_MUTEX_INITIALIZER;

static void *send_frames(void *context) {
  for (int sent = 0; sent < FRAMES;) {
    pthread_mutex_lock(&begun);
    int status = publish_frame(shared_exporter, 2000, 1, SECOND, NULL);
    pthread_mutex_unlock(&begun);
    if (status == CUDALINK_ERROR_BUSY) continue;
    CHECK_OK(status);
    sent++;
  }
  return context;
}

static void start_threads(pthread_t threads[THREADS], void *(*function)(void *)) {
  for (int i = 0; i < THREADS; i++)
    CHECK_EQUAL(pthread_create(&threads[i], NULL, function, NULL), 0);
}

static void join_threads(pthread_t threads[THREADS]) {
  for (int i = 0; i < THREADS; i++)
    CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
}

/* Four threads publish, four others take every frame, each exactly once; closing ends their
 * waits. */
TEST(many_threads_on_one_handle, 60) {
  pthread_t takers[THREADS], senders[THREADS];
  CHECK_OK(open_producer(&shared_exporter, "a", 2000));
  CHECK_OK(cudalink_importer_open(
      &shared_importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                  .policy = CUDALINK_POLICY_EVERY, .hold = THREADS,
                                                  .open_timeout = 10 * SECOND}));
  CHECK_OK(cudalink_exporter_wait_consumers(shared_exporter, 1, 10 * SECOND));
  start_threads(takers, take_frames);
  start_threads(senders, send_frames);
  join_threads(senders);
  WAIT_UNTIL(atomic_load(&taken) == THREADS * FRAMES);
  CHECK_OK(cudalink_importer_close(shared_importer));
  join_threads(takers);
  CHECK_OK(cudalink_exporter_close(shared_exporter));
}

static void *open_and_close(void *context) {
  for (int i = 0; i < 50; i++) {
    cudalink_importer importer;
    open_importer(&importer, CUDALINK_POLICY_LATEST);
    CHECK_OK(cudalink_importer_close(importer));
  }
  return context;
}

/* Handles come and go in many threads at once. */
TEST(many_threads_open_and_close, 60) {
  cudalink_exporter exporter;
  pthread_t threads[THREADS];
  CHECK_OK(open_producer(&exporter, "a", 2000));
  start_threads(threads, open_and_close);
  for (int i = 0; i < 200; i++)
    CHECK_OK(publish_frame(exporter, 2000, 1, 10 * SECOND, NULL));
  join_threads(threads);
  CHECK_OK(cudalink_exporter_close(exporter));
}

static void *close_exporter(void *context) {
  CHECK_OK(cudalink_exporter_close(shared_exporter));
  return context;
}

/* P18, without a GPU: closed while four frames are held and while another thread begins, copies,
 * publishes. */
TEST(field_p18, 30) {
  cudalink_importer importers[4];
  cudalink_frame frames[4];
  pthread_t closer;
  CHECK_OK(open_producer(&shared_exporter, "a", 2000));
  CHECK_OK(publish_frame(shared_exporter, 2000, 1, 0, NULL));
  for (int i = 0; i < 4; i++) {
    open_importer(&importers[i], CUDALINK_POLICY_LATEST);
    CHECK_OK(
        cudalink_importer_acquire(importers[i], CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frames[i]));
  }
  CHECK_EQUAL(pthread_create(&closer, NULL, close_exporter, NULL), 0);
  static unsigned char bytes[2000];
  cudalink_description description;
  describe_bytes(&description, sizeof bytes, 1);
  int status;
  do
    status = cudalink_exporter_send(shared_exporter, &description, bytes, NULL,
                                    CUDALINK_STREAM_COMPLETE, 0);
  while (status == CUDALINK_OK || status == CUDALINK_ERROR_BUSY);
  CHECK_STATUS(status, CUDALINK_ERROR_CLOSED);
  pthread_join(closer, NULL);
  for (int i = 0; i < 4; i++) {
    check_frame(&frames[i]);
    CHECK_OK(cudalink_frame_release(&frames[i], CUDALINK_STREAM_COMPLETE));
    CHECK_OK(cudalink_importer_close(importers[i]));
  }
}

/* ---- an event loop --------------------------------------------------------------------------- */

static bool readable(int loop, int milliseconds) {
  struct epoll_event event;
  int count;
  do
    count = epoll_wait(loop, &event, 1, milliseconds);
  while (count < 0 && errno == EINTR);
  return count == 1;
}

/* Armed, it becomes readable for a frame and for the producer's end; unarmed it stays silent. */
TEST(epoll, 30) {
  struct process *producer = start_producer("salt=1");
  struct consumer consumer = {0};
  int descriptor, loop = epoll_create1(EPOLL_CLOEXEC), status;
  struct epoll_event event = {.events = EPOLLIN};
  open_importer(&consumer.importer, CUDALINK_POLICY_LATEST);
  CHECK_OK(cudalink_importer_descriptor(consumer.importer, &descriptor));
  CHECK_EQUAL(epoll_ctl(loop, EPOLL_CTL_ADD, descriptor, &event), 0);
  ASK(producer, "publish 3", "published 3");
  for (uint64_t last = 0; last < 20; last = consumer.last) {
    while ((status = cudalink_importer_arm(consumer.importer)) == CUDALINK_ERROR_BUSY)
      if (consumer_take(&consumer, 0) == CUDALINK_OK) break;
    if (status == CUDALINK_ERROR_BUSY) continue;
    CHECK_OK(status);
    process_tell(producer, "publish 1");
    CHECK(readable(loop, 20000));
    CHECK_OK(consumer_take(&consumer, 10 * SECOND));
    CHECK_CONTAINS(process_hear(producer), "published");
  }
  while ((status = cudalink_importer_arm(consumer.importer)) == CUDALINK_ERROR_BUSY)
    consumer_take(&consumer, 0);
  CHECK_OK(status);
  process_kill(producer);
  CHECK(readable(loop, 20000));
  CHECK_STATUS(consumer_take(&consumer, 10 * SECOND), CUDALINK_ERROR_LOST);
  close(loop);
  CHECK_OK(cudalink_importer_close(consumer.importer));
}

/* ---- a second copy --------------------------------------------------------------------------- */

#define SYMBOL(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(copy, #name)

/* A plug-in with a library of its own: the two share nothing but the channel. */
TEST(second_copy, 30) {
  cudalink_exporter exporter;
  cudalink_frame frame;
  void *copy = dlopen(SECOND_COPY, RTLD_NOW | RTLD_LOCAL);
  if (!copy) FAIL("%s", dlerror());
  SYMBOL(second_open_importer);
  SYMBOL(second_acquire);
  SYMBOL(second_release);
  SYMBOL(second_close_importer);
  SYMBOL(second_open_exporter);
  SYMBOL(second_close_exporter);
  SYMBOL(second_last_error);
  CHECK(second_last_error_ != NULL);
  CHECK_OK(open_producer(&exporter, "a", 3000));
#if !WITH_THREAD_SANITIZER /* without descriptor tables of their own, locks can't tell them apart */
  CHECK_STATUS(second_open_exporter_("a"), CUDALINK_ERROR_NAME_IN_USE);
  CHECK_CONTAINS(second_last_error_(), "a");
#endif
  CHECK_OK(second_open_importer_("a"));
  CHECK_OK(publish_frame(exporter, 3000, 1, 0, NULL));
  CHECK_OK(second_acquire_(&frame));
  check_frame(&frame);
  CHECK_OK(second_release_(&frame));
  CHECK_OK(second_close_importer_());
  CHECK_OK(cudalink_exporter_close(exporter));
  CHECK_OK(second_open_exporter_("a"));
#if !WITH_THREAD_SANITIZER
  CHECK_STATUS(open_producer(&exporter, "a", 3000), CUDALINK_ERROR_NAME_IN_USE);
#endif
  CHECK_OK(second_close_exporter_());
}
