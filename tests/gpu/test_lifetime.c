/* SPDX-License-Identifier: MIT
 *
 * How long memory of kind ipc lives: it is its producer's, so it may be freed only once each consumer
 * that was told of it has closed it. The fake driver ends a process that frees memory which another
 * one has open.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "gpu.h"
#include "link/importer.h"
#include "link/reaper.h"
#include "link/service.h"

#define NONE CUDALINK_STREAM_COMPLETE

/* ---- a consumer that does as it is told -------------------------------------------------------------------- */

struct holder {
  cudalink_importer importer;
  cudalink_frame frames[2];
  CUstream stream;
  CUdeviceptr counts;
  bool closed;
};

static uint64_t opened(void) { return FAKE_NUMBER(fakecuda_calls, "cuIpcOpenMemHandle"); }

static void check_frame(struct holder *holder, const cudalink_frame *frame) {
  uint64_t bytes, wrong = gpu_counts_read(holder->counts, holder->stream).wrong;
  CHECK_OK(cudalink_description_bytes(&frame->description, &bytes));
  gpu_check(holder->stream, frame->data, bytes, frame->sequence, 0, holder->counts);
  CHECK_EQUAL(gpu_counts_read(holder->counts, holder->stream).wrong, wrong);
}

/* Looks until something was opened, or until the last acquire that it needs for that. */
static void map_what_is_new(struct holder *holder, cudalink_frame *frame) {
  uint64_t before = opened();
  do {
    int status = cudalink_importer_acquire(holder->importer, NONE, MILLISECOND, frame);
    if (status == CUDALINK_OK)
      CHECK_OK(cudalink_frame_release(frame, NONE));
    else
      CHECK_STATUS(status, CUDALINK_ERROR_TIMEOUT);
  } while (opened() == before);
}

/* On the service thread: the kernel ends the connection as it does when the process ends. */
static int cut(void *argument) {
  struct link_importer *importer = argument;
  return shutdown(importer->attachment->source.handle, SHUT_RDWR);
}

static void end_connection(const struct holder *holder) {
  int status;
  struct link_importer *importer = link_importer_lock(holder->importer, "end_connection", &status);
  CHECK(importer && importer->attachment);
  link_object_unlock(importer);
  CHECK_EQUAL(service_call(cut, importer), 0);
}

/* "take 0", "check 0", "release 0", "map", "end", "cut", "close": each is answered when it is done. */
HELPER(holder) {
  struct holder holder = {0};
  cudalink_frame none;
  char line[LINE_SIZE];
  gpu_start();
  holder.stream = gpu_stream();
  holder.counts = gpu_counts_make();
  CHECK_OK(cudalink_importer_open(
      &holder.importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 2,
                                .isolated = (uint32_t)option_number("isolated", 0),
                                .once = (uint32_t)option_number("once", 0),
                                .open_timeout = 20 * SECOND}));
  say("open");
  while (hear(line)) {
    cudalink_frame *frame = &holder.frames[line[strlen(line) - 1] == '1'];
    if (!strncmp(line, "take", 4))
      CHECK_OK(cudalink_importer_acquire(holder.importer, NONE, 20 * SECOND, frame));
    else if (!strncmp(line, "check", 5))
      check_frame(&holder, frame);
    else if (!strncmp(line, "release", 7))
      CHECK_OK(cudalink_frame_release(frame, NONE));
    else if (!strcmp(line, "map"))
      map_what_is_new(&holder, frame);
    else if (!strcmp(line, "cut"))
      end_connection(&holder);
    else if ((holder.closed = !strcmp(line, "close")))
      CHECK_OK(cudalink_importer_close(holder.importer));
    else
      CHECK_STATUS(cudalink_importer_acquire(holder.importer, NONE, 20 * SECOND, &none),
                   CUDALINK_ERROR_ENDED);
    say("%s", line);
  }
  if (!holder.closed) CHECK_OK(cudalink_importer_close(holder.importer));
}

__attribute__((format(printf, 2, 3))) static void ask(struct process *process, const char *format,
                                                      ...) {
  char line[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  process_tell(process, "%s", line);
  process_expect(process, line);
}

static struct process *start_holder(uint32_t isolated, uint32_t once) {
  struct process *holder = process_start("holder", "isolated=%u once=%u", isolated, once);
  process_expect(holder, "open");
  return holder;
}

/* ---- a producer --------------------------------------------------------------------------------------------- */

struct channel {
  cudalink_exporter exporter;
  cudalink_description description;
  CUstream stream;
};

static void open_kind(struct channel *channel, cudalink_kind kind) {
  gpu_start();
  channel->stream = gpu_stream();
  describe_rgba(&channel->description, 64, 64);
  CHECK_OK(cudalink_exporter_open(&channel->exporter,
                                  &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                            .name = "gpu", .kind = kind,
                                                            .description = &channel->description}));
}
static void open_channel(struct channel *channel) { open_kind(channel, CUDALINK_KIND_IPC); }

static void grow(struct channel *channel, uint32_t step) {
  describe_rgba(&channel->description, 64 + 4096 * step, 64);
}

static void begin(struct channel *channel, cudalink_slot *slot) {
  CHECK_OK(cudalink_exporter_begin(channel->exporter, &channel->description, 20 * SECOND, slot));
}

static void give(struct channel *channel) {
  cudalink_slot slot;
  uint64_t bytes;
  begin(channel, &slot);
  CHECK_OK(cudalink_description_bytes(&channel->description, &bytes));
  gpu_fill(channel->stream, slot.data, bytes, slot.sequence, 0);
  CHECK_OK(cudalink_exporter_publish(channel->exporter, &slot, ON(channel->stream)));
  CU(cuStreamSynchronize(channel->stream));
}

static int nothing(void *argument) {
  (void)argument;
  return CUDALINK_OK;
}

/* What the service thread and the reaper have to do is done. */
static void settle(void) {
  for (int i = 0; i < 3; i++)
    service_call(nothing, NULL);
  reaper_drain();
}

static uint64_t freed(void) { return FAKE_NUMBER(fakecuda_calls, "cuMemFree"); }

/* A channel, and a consumer that holds its first frame. */
static struct process *open_and_hold(struct channel *channel, uint32_t isolated) {
  open_channel(channel);
  struct process *holder = start_holder(isolated, 1);
  CHECK_OK(cudalink_exporter_wait_consumers(channel->exporter, 1, 20 * SECOND));
  give(channel);
  ask(holder, "take 0");
  return holder;
}

/* ---- new memory while a frame of the old is held ------------------------------------------------------------ */

static void hold_through_growth(uint32_t isolated) {
  struct channel channel;
  struct process *holder = open_and_hold(&channel, isolated);
  for (uint32_t step = 1; step <= 4; step++) {
    grow(&channel, step);
    give(&channel);
    ask(holder, "take 1");
    ask(holder, "check 1");
    ask(holder, "release 1");
    settle();
    ask(holder, "check 0");
  }
  uint64_t before = freed();
  ask(holder, "release 0");
  if (gpu_is_fake()) WAIT_UNTIL(freed() >= before + 1 + isolated); /* now they are let go */
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}
TEST(ipc_held_through_growth, 60) { hold_through_growth(0); }
TEST(ipc_held_through_growth_isolated, 60) { hold_through_growth(1); }

/* A larger frame is begun and abandoned, again and again: the consumer opens the memory each time. */
static void abandon_growth(uint32_t isolated) {
  struct channel channel;
  cudalink_slot slot;
  struct process *holder = open_and_hold(&channel, isolated);
  for (uint32_t step = 1; step <= 4; step++) {
    grow(&channel, step);
    begin(&channel, &slot);
    if (gpu_is_fake()) ask(holder, "map");
    CHECK_OK(cudalink_exporter_abandon(channel.exporter, &slot, NONE));
    settle();
    ask(holder, "check 0");
  }
  give(&channel);
  ask(holder, "take 1");
  ask(holder, "check 1");
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}
TEST(ipc_growth_abandoned, 60) { abandon_growth(0); }
TEST(ipc_growth_abandoned_isolated, 60) { abandon_growth(1); }

/* The consumer is told of memory that it never looks at: that is not kept for it. */
TEST(ipc_growth_unread, 60) {
  struct channel channel;
  open_channel(&channel);
  struct process *holder = start_holder(0, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 20 * SECOND));
  give(&channel);
  ask(holder, "take 0");
  uint64_t before = freed();
  for (uint32_t step = 1; step <= 6; step++) {
    grow(&channel, step);
    give(&channel);
  }
  if (gpu_is_fake()) WAIT_UNTIL(freed() >= before + 3);
  ask(holder, "check 0");
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

/* More of them than a consumer maps, while it can't say what it has closed. */
TEST(ipc_growth_while_stopped, 60) {
  struct channel channel;
  struct process *holder = open_and_hold(&channel, 0);
  process_signal(holder, SIGSTOP);
  WAIT_UNTIL(process_is_stopped(holder));
  for (uint32_t step = 1; step <= 40; step++) {
    describe_rgba(&channel.description, 64 + 64 * step, 64);
    give(&channel);
    settle();
  }
  process_signal(holder, SIGCONT);
  ask(holder, "check 0");
  ask(holder, "take 1");
  ask(holder, "check 1");
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

/* ---- a producer that closes -------------------------------------------------------------------------------- */

/* Longer than what would be wrong needs; what is right takes no time. */
static void live_on(int64_t time) {
  uint64_t end = cudalink_now() + (uint64_t)time;
  WAIT_UNTIL(cudalink_now() >= end);
  settle();
}

static void hold_beyond_close(uint32_t isolated) {
  struct channel channel;
  struct process *holder = open_and_hold(&channel, isolated);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  ask(holder, "end");
  live_on(5 * SECOND / 2);
  ask(holder, "check 0");
  uint64_t before = freed();
  ask(holder, "release 0");
  if (gpu_is_fake()) WAIT_UNTIL(freed() >= before + 1 + isolated);
  process_finish(holder);
}
TEST(ipc_held_beyond_close, 60) { hold_beyond_close(0); }
TEST(ipc_held_beyond_close_isolated, 60) { hold_beyond_close(1); }

/* A consumer that has given all back, and asks for nothing any more: the memory goes by itself, and the end
 * is told when it asks again. */
static void idle_at_close(uint32_t isolated) {
  struct channel channel;
  struct process *holder = open_and_hold(&channel, isolated);
  ask(holder, "release 0");
  uint64_t before = freed();
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  if (gpu_is_fake()) WAIT_UNTIL(freed() >= before + 1 + isolated);
  ask(holder, "end");
  process_finish(holder);
}
TEST(ipc_idle_at_close, 60) { idle_at_close(0); }
TEST(ipc_idle_at_close_isolated, 60) { idle_at_close(1); }

/* The name is free meanwhile, and the memory goes when the holder dies. */
TEST(ipc_held_beyond_close_until_death, 60) {
  struct channel channel, next;
  open_channel(&channel);
  struct process *holder = start_holder(0, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 20 * SECOND));
  give(&channel);
  ask(holder, "take 0");
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  ask(holder, "end");
  open_channel(&next);
  CHECK_OK(cudalink_exporter_wait_consumers(next.exporter, 1, 20 * SECOND));
  give(&next);
  ask(holder, "take 1");
  ask(holder, "check 1");
  ask(holder, "check 0");
  uint64_t before = freed();
  process_kill(holder);
  if (gpu_is_fake()) WAIT_UNTIL(freed() > before);
  CHECK_OK(cudalink_exporter_close(next.exporter));
}

/* The next producer's memory is of another kind. */
TEST(ipc_held_beyond_close_and_vmm, 60) {
  struct channel channel, next;
  open_channel(&channel);
  struct process *holder = start_holder(0, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(channel.exporter, 1, 20 * SECOND));
  for (int i = 0; i < 2; i++) {
    give(&channel);
    ask(holder, "take %d", i);
  }
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  ask(holder, "end");
  open_kind(&next, CUDALINK_KIND_VMM);
  CHECK_OK(cudalink_exporter_wait_consumers(next.exporter, 1, 20 * SECOND));
  give(&next);
  ask(holder, "release 1"); /* the other one keeps the memory */
  ask(holder, "take 1");
  live_on(SECOND / 4);
  ask(holder, "check 0");
  ask(holder, "check 1");
  uint64_t before = freed();
  ask(holder, "release 0");
  if (gpu_is_fake()) WAIT_UNTIL(freed() > before);
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(next.exporter));
}

/* ---- a consumer that goes ----------------------------------------------------------------------------------- */

static uint64_t deaths(const struct channel *channel) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(cudalink_exporter_get_statistics(channel->exporter, &statistics));
  return statistics.deaths;
}

/* A process that ends loses its connection before its memory: here it stays in between. */
__attribute__((unused)) static void hold_beyond_connection(uint32_t isolated) {
  struct channel channel;
  struct process *holder = open_and_hold(&channel, isolated);
  ask(holder, "cut");
  WAIT_UNTIL(deaths(&channel) == 1);
  grow(&channel, 1);
  give(&channel); /* the channel goes on */
  live_on(SECOND / 4);
  ask(holder, "check 0");
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  live_on(SECOND / 4);
  ask(holder, "check 0");
  uint64_t before = freed();
  process_kill(holder);
  if (gpu_is_fake()) WAIT_UNTIL(freed() >= before + 2 + isolated);
}
#if !WITH_THREAD_SANITIZER /* without a descriptor table of its own only its word tells a death */
TEST(ipc_held_beyond_connection, 60) { hold_beyond_connection(0); }
TEST(ipc_held_beyond_connection_isolated, 60) { hold_beyond_connection(1); }
#endif

/* One that closes in order says that it has let go: nobody waits for its process. */
static void let_go_and_live(uint32_t isolated) {
  struct channel channel;
  struct process *holder = open_and_hold(&channel, isolated);
  ask(holder, "close");
  grow(&channel, 1);
  give(&channel);
  live_on(SECOND / 4);
  ask(holder, "check 0");
  uint64_t before = freed();
  ask(holder, "release 0");
  if (gpu_is_fake()) WAIT_UNTIL(freed() >= before + 1 + isolated);
  process_finish(holder);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}
TEST(ipc_let_go_and_live, 60) { let_go_and_live(0); }
TEST(ipc_let_go_and_live_isolated, 60) { let_go_and_live(1); }

/* A process that can't be watched: its memory is not kept for ever. */
TEST(ipc_death_unseen, 60) {
  struct channel channel;
  CHECK_EQUAL(setenv("CUDALINK_OS_WITHOUT", "pidfd", 1), 0);
  struct process *holder = open_and_hold(&channel, 0);
  uint64_t before = freed();
  process_kill(holder);
  WAIT_UNTIL(deaths(&channel) == 1);
  grow(&channel, 1);
  give(&channel);
  if (gpu_is_fake()) WAIT_UNTIL(freed() > before);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

/* ---- a producer that ends ---------------------------------------------------------------------------------- */

/* "close" closes; the end of the channel ends it without. */
HELPER(mortal) {
  struct channel channel;
  char line[LINE_SIZE];
  open_channel(&channel);
  give(&channel);
  say("open");
  hear(line);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  say("closed");
  hear(line);
}

static void open_importer(cudalink_importer *importer) {
  CHECK_OK(cudalink_importer_open(
      importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                          .open_timeout = 20 * SECOND}));
}

struct looking {
  cudalink_importer importer;
  int status;
};

static void *look(void *argument) {
  struct looking *looking = argument;
  cudalink_frame frame;
  looking->status = cudalink_importer_acquire(looking->importer, NONE, CUDALINK_FOREVER, &frame);
  printf("  %s\n", cudalink_last_error());
  return NULL;
}

/* Its memory is gone before its connection: the driver knows nothing of the handle any more. That the
 * producer is gone is told, and nothing else. */
static void end_while_mapping(bool killed) {
  struct looking looking = {0};
  pthread_t thread;
  gpu_start();
  if (!gpu_is_fake()) return;
  struct process *producer = process_start("mortal", "x=1");
  process_expect(producer, "open");
  open_importer(&looking.importer);
  FAKE(fakecuda_fail, "cuIpcOpenMemHandle", 0, (int)CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQUAL(pthread_create(&thread, NULL, look, &looking), 0);
  WAIT_UNTIL(opened() > 0);
  if (killed)
    process_kill(producer);
  else
    CHECK_CONTAINS(process_ask(producer, "close"), "closed");
  pthread_join(thread, NULL);
  CHECK_EQUAL(looking.status, killed ? CUDALINK_ERROR_LOST : CUDALINK_ERROR_ENDED);
  FAKE(fakecuda_fail_clear);
  CHECK_OK(cudalink_importer_close(looking.importer));
  if (!killed) process_finish(producer);
}
TEST(ipc_producer_killed_while_mapping, 60) { end_while_mapping(true); }
TEST(ipc_producer_closed_while_mapping, 60) { end_while_mapping(false); }

/* The producer lives on: what the driver says is told, after a while, and does not end the channel. */
TEST(ipc_memory_that_cannot_be_mapped, 60) {
  cudalink_importer importer;
  cudalink_frame frame;
  gpu_start();
  if (!gpu_is_fake()) return;
  struct process *producer = process_start("mortal", "x=1");
  process_expect(producer, "open");
  open_importer(&importer);
  FAKE(fakecuda_fail, "cuIpcOpenMemHandle", 0, (int)CUDA_ERROR_INVALID_HANDLE);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_TIMEOUT);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, CUDALINK_FOREVER, &frame),
               CUDALINK_ERROR_GPU);
  CHECK_CONTAINS(cudalink_last_error(), "opening the producer's GPU memory");
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 0, &frame), CUDALINK_ERROR_GPU);
  FAKE(fakecuda_fail_clear);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, CUDALINK_FOREVER, &frame));
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_CONTAINS(process_ask(producer, "close"), "closed");
  process_finish(producer);
}

static uint64_t cpu_time(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (uint64_t)time.tv_sec * (uint64_t)SECOND + (uint64_t)time.tv_nsec;
}

/* A frame of a dead producer is held: nobody turns in circles meanwhile. */
TEST(ipc_frame_of_the_dead_costs_nothing, 60) {
  cudalink_importer importer;
  cudalink_frame frame, other;
  gpu_start();
  struct process *producer = process_start("mortal", "x=1");
  process_expect(producer, "open");
  open_importer(&importer);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 20 * SECOND, &frame));
  process_kill(producer);
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, 20 * SECOND, &other), CUDALINK_ERROR_LOST);
  uint64_t used = cpu_time();
  _Atomic uint32_t nobody = 0;
  os_sleep_on(&nobody, 0, os_deadline(SECOND), false);
  CHECK(cpu_time() - used < 200 * (uint64_t)MILLISECOND); /* a circle takes all it can get */
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
}
