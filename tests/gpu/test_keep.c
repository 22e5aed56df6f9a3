/* SPDX-License-Identifier: MIT
 *
 * Owners of what was sent (cudalink_exporter_keep): told once, when the copies that read it have run, and no
 * earlier.
 *
 * A stream is held up by a word that it waits for, so that an order is shown and not guessed by time.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "gpu.h"
#include "link/exporter.h"
#include "link/reaper.h"

#define COMPLETE CUDALINK_STREAM_COMPLETE

struct channel {
  cudalink_exporter exporter;
  cudalink_description description, larger;
  CUstream stream, other;
  void *source, *scratch;
  _Atomic uint32_t *gate;
};

struct owner {
  _Atomic uint32_t drops;
  cudalink_exporter exporter; /* that it uses when it is dropped */
  const struct channel *sends;
};

static void open_kind(struct channel *channel, cudalink_kind kind) {
  void *gate;
  gpu_start();
  describe_rgba(&channel->description, 64, 64);
  describe_rgba(&channel->larger, 128, 128);
  channel->stream = gpu_stream();
  channel->other = gpu_stream();
  channel->source = gpu_memory(GPU_MEMORY_DEVICE, 65536, channel->stream);
  channel->scratch = gpu_memory(GPU_MEMORY_DEVICE, 65536, channel->stream);
  CU(cuMemHostAlloc(&gate, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  channel->gate = gate;
  atomic_store(channel->gate, 0);
  CHECK_OK(cudalink_exporter_open(&channel->exporter,
                                  &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                            .name = "gpu", .kind = kind,
                                                            .description = &channel->description}));
}
static void open_channel(struct channel *channel) { open_kind(channel, CUDALINK_KIND_VMM); }

/* What is queued on the stream from here on waits for open_gate. */
static void hold_up(const struct channel *channel) {
  CU(cuStreamWaitValue32(channel->stream, (CUdeviceptr)(uintptr_t)channel->gate, 1,
                         CU_STREAM_WAIT_VALUE_GEQ));
}
static void open_gate(const struct channel *channel) {
  atomic_store(channel->gate, 1);
  CU(cuStreamSynchronize(channel->stream));
}

static int send_as(const struct channel *channel, const cudalink_description *description,
                   cudalink_stream stream) {
  return cudalink_exporter_send(channel->exporter, description, channel->source, NULL, stream,
                                10 * SECOND);
}
static int send_on(const struct channel *channel, cudalink_stream stream) {
  return send_as(channel, &channel->description, stream);
}

static void drop(void *pointer) {
  struct owner *owner = pointer;
  if (owner->sends) CHECK_OK(send_on(owner->sends, COMPLETE));
  if (owner->exporter.id) CHECK_OK(cudalink_exporter_close(owner->exporter));
  atomic_fetch_add(&owner->drops, 1);
}
static uint32_t drops(const struct owner *owner) { return atomic_load(&owner->drops); }

static int keep(const struct channel *channel, struct owner *owner) {
  return cudalink_exporter_keep(channel->exporter, owner, drop);
}

static int nothing(void *argument) {
  (void)argument;
  return CUDALINK_OK;
}
/* What the service thread and the reaper have to do is done. */
static void settle(void) {
  for (int i = 0; i < 3; i++) {
    service_call(nothing, NULL);
    reaper_drain();
  }
}

/* ---- while frames flow ------------------------------------------------------------------------------------ */

static void keep_until_the_copy_has_run(cudalink_kind kind) {
  struct channel channel;
  struct owner owner = {0};
  open_kind(&channel, kind);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  for (int i = 0; i < 10; i++) /* through all other slots, several times */
    CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_EQUAL(drops(&owner), 0);
  open_gate(&channel);
  CHECK_EQUAL(drops(&owner), 0); /* nobody has called */
  CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_EQUAL(drops(&owner), 1);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  settle();
  CHECK_EQUAL(drops(&owner), 1);
}
TEST(keep_vmm, 60) { keep_until_the_copy_has_run(CUDALINK_KIND_VMM); }
TEST(keep_ipc, 60) { keep_until_the_copy_has_run(CUDALINK_KIND_IPC); }

TEST(keep_what_is_complete, 60) {
  struct channel channel;
  struct owner owner = {0};
  open_channel(&channel);
  CHECK_OK(keep(&channel, &owner)); /* nothing was sent */
  CHECK_EQUAL(drops(&owner), 1);
  CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_OK(keep(&channel, &owner));
  CHECK_EQUAL(drops(&owner), 2);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CU(cuStreamSynchronize(channel.stream));
  CHECK_OK(keep(&channel, &owner));
  CHECK_EQUAL(drops(&owner), 3);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

/* Another stream's frames are complete long before. */
TEST(keep_waits_for_every_stream, 60) {
  struct channel channel;
  struct owner first = {0}, second = {0};
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(send_on(&channel, ON(channel.other))); /* by another thread, perhaps */
  CU(cuStreamSynchronize(channel.other));
  CHECK_OK(keep(&channel, &first));
  CHECK_OK(keep(&channel, &second));
  CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_EQUAL(drops(&first) + drops(&second), 0);
  open_gate(&channel);
  CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_EQUAL(drops(&first), 1);
  CHECK_EQUAL(drops(&second), 1);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

TEST(keep_through_growth, 60) {
  struct channel channel;
  struct owner owner = {0};
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  for (int i = 0; i < 10; i++)
    CHECK_OK(send_as(&channel, &channel.larger, COMPLETE));
  CHECK_EQUAL(drops(&owner), 0);
  open_gate(&channel);
  CHECK_OK(send_as(&channel, &channel.larger, COMPLETE));
  CHECK_EQUAL(drops(&owner), 1);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

/* The copy of a send that failed behind it is waited for, too. */
TEST(keep_behind_a_failed_send, 60) {
  struct channel channel;
  struct owner owner = {0};
  cudalink_slot slot;
  open_channel(&channel);
  CHECK_OK(cudalink_exporter_begin(channel.exporter, &channel.description, SECOND, &slot));
  hold_up(&channel);
  CHECK_OK(cudalink_exporter_abandon(channel.exporter, &slot, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_EQUAL(drops(&owner), 0);
  open_gate(&channel);
  CHECK_OK(send_on(&channel, COMPLETE));
  CHECK_EQUAL(drops(&owner), 1);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

/* A begin that finds nothing free may be the last call for a while. */
TEST(keep_is_told_by_a_begin_that_fails, 60) {
  struct channel channel;
  struct owner owner = {0};
  cudalink_slot slot;
  cudalink_description wrong = {0};
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  open_gate(&channel);
  wrong.plane_count = 99;
  CHECK_STATUS(cudalink_exporter_begin(channel.exporter, &wrong, 0, &slot),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_EQUAL(drops(&owner), 1);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
}

TEST(keep_calls_no_driver, 60) {
  static const char *const calls[] = {"cuEventQuery",     "cuEventRecord",   "cuStreamQuery",
                                      "cuCtxPushCurrent", "cuCtxSetCurrent", "cuCtxGetCurrent"};
  struct channel channel;
  struct owner owner = {0};
  uint64_t before = 0, after = 0;
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    before += FAKE_NUMBER(fakecuda_calls, calls[i]);
  for (int i = 0; i < 10; i++)
    CHECK_OK(keep(&channel, &owner));
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    after += FAKE_NUMBER(fakecuda_calls, calls[i]);
  CHECK_EQUAL(after, before);
  open_gate(&channel);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_EQUAL(drops(&owner), 10);
}

/* Where it is told it may send, and close. */
TEST(keep_may_call_the_library, 60) {
  struct channel channel;
  struct owner owner = {.sends = &channel}, last = {0};
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  open_gate(&channel);
  CHECK_OK(send_on(&channel, COMPLETE)); /* tells it behind the publish: nothing is begun */
  CHECK_EQUAL(drops(&owner), 1);
  last.exporter = channel.exporter;
  CHECK_OK(keep(&channel, &last));
  CHECK_EQUAL(drops(&last), 1);
  CHECK_STATUS(send_on(&channel, COMPLETE), CUDALINK_ERROR_CLOSED);
}

/* ---- close and after -------------------------------------------------------------------------------------- */

static void keep_beyond_close(cudalink_kind kind, bool consumed) {
  struct channel channel;
  struct owner before = {0}, behind = {0}, late = {0};
  cudalink_importer importer;
  cudalink_frame frame;
  open_kind(&channel, kind);
  if (consumed) {
    CHECK_OK(cudalink_importer_open(
        &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                             .open_timeout = 10 * SECOND}));
    CHECK_OK(send_on(&channel, COMPLETE));
    CHECK_OK(cudalink_importer_acquire(importer, COMPLETE, SECOND, &frame));
  }
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &before));
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_OK(keep(&channel, &behind)); /* a close came between send and keep */
  settle();
  CHECK_EQUAL(drops(&before) + drops(&behind), 0);
  open_gate(&channel);
  WAIT_UNTIL(drops(&before) == 1 && drops(&behind) == 1);
  if (consumed) {
    CHECK_OK(cudalink_frame_release(&frame, COMPLETE));
    CHECK_OK(cudalink_importer_close(importer));
  }
  WAIT_UNTIL(keep(&channel, &late) == CUDALINK_ERROR_CLOSED); /* it is gone */
  uint32_t told = drops(&late);
  CHECK_STATUS(keep(&channel, &late), CUDALINK_ERROR_CLOSED);
  settle();
  CHECK_EQUAL(drops(&late), told);
}
TEST(keep_beyond_close_vmm, 60) { keep_beyond_close(CUDALINK_KIND_VMM, false); }
TEST(keep_beyond_close_ipc, 60) { keep_beyond_close(CUDALINK_KIND_IPC, false); }
TEST(keep_beyond_close_while_held_vmm, 60) { keep_beyond_close(CUDALINK_KIND_VMM, true); }
TEST(keep_beyond_close_while_held_ipc, 60) { keep_beyond_close(CUDALINK_KIND_IPC, true); }

TEST(keep_is_told_by_close, 60) {
  struct channel channel;
  struct owner owner = {0};
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  open_gate(&channel);
  CHECK_EQUAL(drops(&owner), 0);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_EQUAL(drops(&owner), 1);
}

/* No word comes any more. */
TEST(keep_until_the_gpu_is_lost, 60) {
  struct channel channel;
  struct owner owner = {0};
  open_channel(&channel);
  if (!gpu_is_fake()) { /* a real context can't be lost on purpose, and used again */
    CHECK_OK(cudalink_exporter_close(channel.exporter));
    return;
  }
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  FAKE(fakecuda_lose_context, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(send_on(&channel, ON(channel.stream)), CUDALINK_ERROR_GPU_LOST);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  WAIT_UNTIL(drops(&owner) == 1);
}

/* ---- refused ---------------------------------------------------------------------------------------------- */

TEST(keep_refuses, 60) {
  struct channel channel;
  struct owner owner = {0};
  open_channel(&channel);
  CHECK_STATUS(cudalink_exporter_keep(channel.exporter, &owner, NULL),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(cudalink_exporter_keep((cudalink_exporter){0}, &owner, drop), CUDALINK_ERROR_CLOSED);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_OK(cudalink_exporter_open(
      &channel.exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu", .cipd_name = "keep_old",
                                .cipd_only = 1, .description = &channel.description}));
  CHECK_STATUS(keep(&channel, &owner), CUDALINK_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(cudalink_last_error(), "old wire");
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_EQUAL(drops(&owner), 0);
}

TEST(keep_in_a_forked_child, 60) {
  struct channel channel;
  struct owner owner = {0};
  int ended;
  open_channel(&channel);
  hold_up(&channel);
  CHECK_OK(send_on(&channel, ON(channel.stream)));
  CHECK_OK(keep(&channel, &owner));
  pid_t child = fork();
  if (!child) {
    bool refused = keep(&channel, &owner) == CUDALINK_ERROR_FORKED &&
                   cudalink_exporter_close(channel.exporter) == CUDALINK_ERROR_FORKED;
    _exit(refused && !drops(&owner) ? 0 : 1);
  }
  CHECK_EQUAL(waitpid(child, &ended, 0), child);
  CHECK_EQUAL(ended, 0);
  open_gate(&channel);
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  CHECK_EQUAL(drops(&owner), 1);
}

/* ---- what it is for --------------------------------------------------------------------------------------- */

#define SOURCES 6
#define BYTES (64 * 64 * 4)

struct source {
  void *memory;
  _Atomic bool sent;
};

/* Its memory is somebody else's now. */
static void overwrite(void *owner) {
  struct source *source = owner;
  CU(cuCtxSetCurrent(gpu_context()));
  CU(cuMemsetD8((CUdeviceptr)(uintptr_t)source->memory, 0xdd, BYTES));
  CU(cuStreamSynchronize(NULL));
  atomic_store(&source->sent, false);
}

static struct source *free_source(struct source *sources) {
  for (int i = 0; i < SOURCES; i++)
    if (!atomic_load(&sources[i].sent)) return &sources[i];
  return NULL;
}

static void send_pattern(struct channel *channel, struct source *source, uint64_t pattern) {
  CUstream stream = pattern % 3 ? channel->stream : channel->other;
  gpu_fill(stream, source->memory, BYTES, pattern, 0);
  CU(cuStreamSynchronize(
      stream)); /* else an overwrite that comes too early is mended by the fill */
  gpu_fill(stream, channel->scratch, BYTES, 0, pattern % 5 * 100000);
  atomic_store(&source->sent, true);
  CHECK_OK(cudalink_exporter_send(channel->exporter, &channel->description, source->memory, NULL,
                                  ON(stream), 10 * SECOND));
  CHECK_OK(cudalink_exporter_keep(channel->exporter, source, overwrite));
}

TEST(keep_sources_that_are_overwritten, 120) {
  struct channel channel;
  struct source sources[SOURCES] = {0};
  cudalink_importer importer;
  cudalink_frame frame;
  char *read = malloc(BYTES);
  open_channel(&channel);
  FAKE(fakecuda_set_delay, 200);
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                           .open_timeout = 10 * SECOND}));
  for (int i = 0; i < SOURCES; i++)
    sources[i].memory = gpu_memory(GPU_MEMORY_DEVICE, BYTES, channel.stream);
  for (uint64_t n = 1; n <= 300; n++) {
    struct source *source = free_source(sources);
    if (!source) { /* all are under way: those of these streams, at least, come to an end */
      CU(cuStreamSynchronize(channel.stream));
      CU(cuStreamSynchronize(channel.other));
      CHECK_OK(cudalink_exporter_keep(channel.exporter, &(struct owner){0}, drop));
      CHECK((source = free_source(sources)) != NULL);
    }
    send_pattern(&channel, source, n);
    if (n % 4) continue;
    CHECK_OK(cudalink_importer_acquire(importer, COMPLETE, 10 * SECOND, &frame));
    CHECK_EQUAL(frame.sequence, n);
    CHECK_OK(cudalink_frame_to_host(&frame, read, BYTES));
    CHECK_EQUAL(gpu_pattern_wrong(read, BYTES, n), 0);
    CHECK_OK(cudalink_frame_release(&frame, COMPLETE));
  }
  CHECK_OK(cudalink_exporter_close(channel.exporter));
  for (int i = 0; i < SOURCES; i++)
    WAIT_UNTIL(!atomic_load(&sources[i].sent));
  CHECK_OK(cudalink_importer_close(importer));
  free(read);
}
