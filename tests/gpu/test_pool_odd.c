/* SPDX-License-Identifier: MIT
 *
 * Memory pools where it is not as usual: peers that know none or lie, calls in odd places, a consumer that is
 * stopped, and everything at once.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/exporter.h"
#include "link/pool.h"
#include "link/reaper.h"
#include "pool_stage.h"

/* ---- peers that know no pools, and that lie ---------------------------------------------------------------- */

/* A consumer of a library from before there were pools, by hand. */
struct old_consumer {
  os_handle handle;
  struct os_segment metadata;
  struct wire_generation generation;
};

static void tell_producer(struct old_consumer *old, void *message, enum wire_message_type type,
                          size_t bytes) {
  wire_message_start(message, type, bytes);
  CHECK_OK(os_send(old->handle, message, bytes, NULL, 0));
}

static int hear_producer(struct old_consumer *old) {
  static _Alignas(64) unsigned char buffer[WIRE_MAX_MESSAGE];
  os_handle handles[OS_MAX_HANDLES];
  int count = OS_MAX_HANDLES;
  size_t size;
  struct pollfd polled = {.fd = old->handle, .events = POLLIN};
  CHECK_EQUAL(poll(&polled, 1, -1), 1);
  CHECK_OK(os_receive(old->handle, buffer, sizeof buffer, &size, handles, &count));
  int type = wire_message_check(buffer, size);
  if (type == WIRE_GENERATION) {
    memcpy(&old->generation, buffer, sizeof old->generation);
    CHECK_OK(
        os_segment_map(&old->metadata, handles[1], old->generation.metadata_bytes, false, true));
    count = 1;
  }
  for (int h = 0; h < count; h++)
    os_handle_close(&handles[h]);
  return type;
}

static void join_as_old(struct old_consumer *old) {
  struct wire_hello hello = {.hold = 1, .kinds = 0xff};
  struct wire_plain mapped = {.value = 0};
  char file[OS_FILE_SIZE];
  *old = (struct old_consumer){.metadata.handle = OS_NO_HANDLE};
  strcpy(hello.channel, "gpu");
  CHECK_OK(os_name_encode("gpu", file));
  CHECK_OK(os_connect(test_folder, file, &old->handle));
  tell_producer(old, &hello, WIRE_HELLO, sizeof hello);
  CHECK_EQUAL(hear_producer(old), WIRE_WELCOME);
  tell_producer(old, &mapped, WIRE_MAPPED, sizeof mapped);
  CHECK_EQUAL(hear_producer(old), WIRE_JOINED);
  CHECK_EQUAL(hear_producer(old), WIRE_GENERATION);
}

static void read_as_old(const struct old_consumer *old, uint32_t slot, cudalink_frame *frame) {
  const struct wire_generation *message = &old->generation;
  struct wire_limits limits = {message->slot_bytes, message->plane_count, message->user_size};
  const char *metadata = (const char *)old->metadata.address + message->metadata_offset +
                         slot * message->metadata_stride;
  *frame = (cudalink_frame){0};
  CHECK_OK(wire_description_decode(frame, metadata, &limits));
}

TEST(pool_old_consumers_get_copies, 60) {
  struct pool pool;
  struct old_consumer old;
  cudalink_importer importer;
  cudalink_frame frame, seen;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_OK(cudalink_exporter_wait_consumers(pool.exporter, 1, SECOND));
  CHECK_EQUAL(give(&pool), 1);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, SECOND, &frame));
  join_as_old(&old);
  read_as_old(&old, frame.slot, &seen); /* published before it came */
  CHECK_EQUAL(seen.flags, CUDALINK_FRAME_INVALID);
  CHECK_CONTAINS(seen.text, "memory pool");
  CHECK_EQUAL(seen.description.plane_count, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  for (int i = 0; i < 5; i++) {
    CHECK_EQUAL(give(&pool), 0);
    CHECK_OK(cudalink_importer_acquire(importer, NONE, SECOND, &frame));
    if (!i) CHECK_EQUAL(hear_producer(&old), WIRE_GENERATION); /* whose slots are large enough */
    read_as_old(&old, frame.slot, &seen);
    CHECK_EQUAL(seen.flags, 0);
    CHECK_EQUAL(seen.description.plane_count, 1);
    CHECK_EQUAL(seen.sequence, frame.sequence);
    CHECK_OK(cudalink_frame_release(&frame, NONE));
  }
  CHECK_CONTAINS(statistics_of(&pool).share_reason, "knows no pools");
  os_handle_close(&old.handle);
  WAIT_UNTIL(statistics_of(&pool).consumers == 1);
  settle();
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* The newest frame's header, which its producer can write to at any time. */
static struct wire_header *newest_header(const struct pool *pool) {
  struct link_exporter *exporter = link_table_lock(&link_exporters, pool->exporter.id);
  struct wire_header *header = link_metadata(exporter->current, (uint32_t)exporter->newest_slot);
  link_object_unlock(exporter);
  return header;
}

static void expect_refused(struct pool *pool, cudalink_importer importer, uint64_t offset) {
  cudalink_frame frame;
  CHECK_EQUAL(give(pool), 1);
  newest_header(pool)->pool_offset = offset;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, SECOND, &frame), CUDALINK_ERROR_PROTOCOL);
  CHECK_CONTAINS(cudalink_last_error(), "are not in pool block");
}

TEST(pool_consumers_believe_nothing, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  expect_refused(&pool, importer, BLOCK - 16383);
  expect_refused(&pool, importer, BLOCK + 1);
  expect_refused(&pool, importer, UINT64_MAX);
  expect_refused(&pool, importer, UINT64_MAX - 16384 + 1);
  CHECK_EQUAL(give(&pool), 1);
  newest_header(&pool)->pool_block = 0;
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, SECOND, &frame), CUDALINK_ERROR_PROTOCOL);
  CHECK_EQUAL(give(&pool), 1);
  newest_header(&pool)->pool_block = 77; /* of which nobody told: not there yet */
  CHECK_STATUS(cudalink_importer_acquire(importer, NONE, MILLISECOND, &frame),
               CUDALINK_ERROR_TIMEOUT);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* The mailbox is memory of both ends. Service thread. */
static int claim_released(void *argument) {
  struct link_exporter *exporter = argument;
  struct wire_mailbox *mailbox = exporter->mailboxes[0];
  struct wire_pool_block_gone message = {.number = exporter->pools[0].block->number};
  for (uint32_t e = 0; e < exporter->members[0].entries; e++)
    atomic_store(&mailbox->done[e], atomic_load(&mailbox->want[e]));
  link_send(exporter->members[0].connection, &message, WIRE_POOL_BLOCK_GONE, sizeof message, NULL,
            0);
  return CUDALINK_OK;
}

/* What a consumer holds stays mapped, whatever the producer says and writes. */
TEST(pool_held_frame_stays_mapped, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_frame frame;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  CHECK_OK(cudalink_importer_acquire(importer, NONE, 5 * SECOND, &frame));
  struct link_exporter *exporter = link_table_lock(&link_exporters, pool.exporter.id);
  link_object_unlock(exporter);
  CHECK_OK(service_call(claim_released, exporter));
  settle();
  settle();
  gpu_check(pool.stream, frame.data, 16384, frame.sequence, 0, pool.counts);
  CHECK_EQUAL(gpu_counts_read(pool.counts, pool.stream).wrong, 0);
  CHECK_OK(cudalink_frame_release(&frame, NONE));
  CHECK_OK(cudalink_importer_close(importer));
  close_pool(&pool);
}

/* ---- calls in odd places ------------------------------------------------------------------------------------ */

static bool is_open(cudalink_exporter exporter) {
  struct link_exporter *found = link_table_lock(&link_exporters, exporter.id);
  if (found) link_object_unlock(found);
  return found != NULL;
}

/* Until its memory is gone. */
static void close_and_wait(void *owner) {
  struct pool *pool = owner;
  if (cudalink_exporter_close(pool->exporter) < 0) return; /* the second frame's */
  WAIT_UNTIL(!is_open(pool->exporter));
  settle();
}

/* The owner of an older frame is told inside of a send. */
TEST(pool_owner_closes_the_channel, 60) {
  struct pool pool;
  char user[64] = "of the frame";
  open_pool_with(&pool, (cudalink_exporter_spec){.slots = 3, .max_slots = 3, .user_size = 64});
  pool.description.user_size = sizeof user;
  int status = CUDALINK_OK, shared = 1;
  for (int t = 0; t < 4 && status == CUDALINK_OK; t++) {
    CHECK_EQUAL(shared, 1);
    status = cudalink_exporter_send_shared(pool.exporter, &pool.description, pool.tensors[t].data,
                                           user, NONE, SECOND, &pool, close_and_wait, &shared);
  }
  CHECK_EQUAL(status, CUDALINK_ERROR_CLOSED);
  CHECK_EQUAL(shared, 0);
  settle();
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

/* The last frames in pools end behind a close, when their work has landed: nothing else is waited for. */
TEST(pool_ends_behind_close, 60) {
  struct pool pool;
  cudalink_importer importer;
  cudalink_description larger;
  cudalink_slot slot;
  open_pool(&pool);
  open_importer(&importer, 0, 0);
  CHECK_EQUAL(give(&pool), 1);
  pass(&pool, importer, CUDALINK_FRAME_SHARED);
  CHECK_EQUAL(send_tensor(&pool, &pool.tensors[1], 200 * MILLISECOND), 1);
  describe_rgba(&larger, 4096, 64);
  CHECK_OK(cudalink_exporter_begin(pool.exporter, &larger, SECOND, &slot));
  CHECK_OK(cudalink_exporter_publish(pool.exporter, &slot, ON(pool.stream)));
  CHECK_OK(cudalink_exporter_close(pool.exporter)); /* the importer asks for nothing meanwhile */
  WAIT_UNTIL(!is_open(pool.exporter));
  WAIT_UNTIL(!any_lent(&pool));
  CHECK_OK(cudalink_importer_close(importer));
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

struct looker {
  const char *block;
  _Atomic bool over;
};

static void *look_often(void *argument) {
  struct looker *looker = argument;
  while (!atomic_load(&looker->over)) {
    uint64_t offset;
    pool_leave(pool_find(looker->block, 1, &offset));
  }
  return NULL;
}

static void send_as_child(const struct pool *pool) {
  int shared;
  alarm(20); /* or it would wait for ever */
  int status =
      cudalink_exporter_send_shared(pool->exporter, &pool->description, pool->tensors[0].data, NULL,
                                    NONE, SECOND, NULL, NULL, &shared);
  _exit(status == CUDALINK_ERROR_FORKED && !shared ? 0 : 1);
}

/* Another thread may hold the table of blocks at the fork. */
TEST(pool_send_in_a_forked_child, 120) {
  struct pool pool;
  pthread_t thread;
  open_pool(&pool);
  struct looker looker = {.block = pool.block};
  CHECK_EQUAL(pthread_create(&thread, NULL, look_often, &looker), 0);
  for (int i = 0; i < 50; i++) {
    int ended;
    pid_t child = fork();
    if (!child) send_as_child(&pool);
    CHECK_EQUAL(waitpid(child, &ended, 0), child);
    CHECK_EQUAL(ended, 0);
  }
  atomic_store(&looker.over, true);
  CHECK_EQUAL(pthread_join(thread, NULL), 0);
  close_pool(&pool);
}

/* ---- a consumer that reads nothing for a while ---------------------------------------------------------------- */

#define MANY 400 /* blocks, each told of twice: more than a socket's queue takes */

static void drop_block(void *owner) {
  struct tensor *tensor = owner;
  cudalink_pool_free(tensor->data, tensor->bytes, 0, NULL);
  atomic_fetch_add(&tensor->drops, 1);
}

/* Each in a block of its own, which goes with it. */
static void send_blocks(struct pool *pool, struct tensor *tensors) {
  for (int i = 0; i < MANY; i++) {
    int shared;
    tensors[i] = (struct tensor){.data = cudalink_pool_alloc(BLOCK, 0, NULL), .bytes = 16384};
    CHECK(tensors[i].data != NULL);
    gpu_fill(pool->stream, tensors[i].data, 16384, statistics_of(pool).published + 1, 0);
    CHECK_OK(cudalink_exporter_send_shared(pool->exporter, &pool->description, tensors[i].data,
                                           NULL, ON(pool->stream), 20 * SECOND, &tensors[i],
                                           drop_block, &shared));
    if (!shared) {
      CU(cuStreamSynchronize(pool->stream));
      drop_block(&tensors[i]);
    }
    settle();
  }
}

static uint32_t dropped_blocks(struct tensor *tensors) {
  uint32_t drops = 0;
  for (int i = 0; i < MANY; i++)
    drops += atomic_load(&tensors[i].drops);
  return drops;
}

static struct process *start_stopped(struct pool *pool) {
  open_pool_with(pool, (cudalink_exporter_spec){.slots = 4, .max_slots = 4});
  struct process *holder = start_holder(pool, 0);
  process_signal(holder, SIGSTOP);
  WAIT_UNTIL(process_is_stopped(holder));
  return holder;
}

/* When it goes on, it knows the block of the newest frame. */
TEST(pool_stopped_consumer_goes_on, 120) {
  static struct tensor tensors[MANY];
  struct pool pool;
  struct process *holder = start_stopped(&pool);
  send_blocks(&pool, tensors);
  process_signal(holder, SIGCONT);
  ask(holder, "take 0");
  ask(holder, "check 0");
  ask(holder, "release 0");
  for (int i = 0; i < 8; i++)
    give(&pool);
  ask(holder, "take 1");
  ask(holder, "check 1");
  ask(holder, "release 1");
  settle();
  WAIT_UNTIL(dropped_blocks(tensors) == MANY);
  CHECK_EQUAL(give(&pool),
              1); /* blocks that it had not heard of the end of are no more in the way */
  process_finish(holder);
  close_pool(&pool);
}

/* It hears of that, too. */
TEST(pool_stopped_consumer_hears_of_the_end, 120) {
  static struct tensor tensors[MANY];
  struct pool pool;
  struct process *holder = start_stopped(&pool);
  send_blocks(&pool, tensors);
  CU(cuStreamSynchronize(pool.stream));
  CHECK_OK(cudalink_exporter_close(pool.exporter));
  settle();
  process_signal(holder, SIGCONT);
  ask(holder, "take 0");
  ask(holder, "check 0");
  ask(holder, "release 0");
  ask(holder, "end");
  WAIT_UNTIL(dropped_blocks(tensors) == MANY);
  process_finish(holder);
  cudalink_pool_free(pool.block, BLOCK, 0, pool.stream);
}

/* The service thread, which does nothing else meanwhile. */
struct busy {
  _Atomic bool begun, enough;
};
static int be_busy(void *argument) {
  struct busy *busy = argument;
  atomic_store(&busy->begun, true);
  while (!atomic_load(&busy->enough))
    sched_yield();
  return CUDALINK_OK;
}
static void *keep_busy(void *argument) {
  service_call(be_busy, argument);
  return NULL;
}

/* Its queue is full: nobody waits for the service thread, frame by frame, to try it in vain. */
TEST(pool_stopped_consumer_delays_nobody, 120) {
  static struct tensor tensors[MANY];
  struct pool pool;
  struct busy busy = {0};
  pthread_t thread;
  struct process *holder = start_stopped(&pool);
  send_blocks(&pool, tensors);
  char *block = cudalink_pool_alloc(BLOCK, 0, NULL);
  CHECK(block != NULL);
  struct tensor late[2] = {{.data = block, .bytes = 16384},
                           {.data = block + 16384, .bytes = 16384}};
  CHECK_EQUAL(send_tensor(&pool, &late[0], 0), 1);
  settle();
  CHECK_EQUAL(pthread_create(&thread, NULL, keep_busy, &busy), 0);
  WAIT_UNTIL(atomic_load(&busy.begun));
  CHECK_EQUAL(send_tensor(&pool, &late[1], 0), 1);
  atomic_store(&busy.enough, true);
  pthread_join(thread, NULL);
  process_signal(holder, SIGCONT);
  ask(holder, "take 0");
  ask(holder, "check 0");
  ask(holder, "release 0");
  process_finish(holder);
  close_pool(&pool);
  WAIT_UNTIL(dropped_blocks(tensors) == MANY);
  cudalink_pool_free(block, BLOCK, 0, pool.stream);
}

/* The old wire's copy is under way when the publish fails: the memory is its owner's again only behind it. */
TEST(pool_failed_send_reads_no_more, 60) {
  struct pool pool;
  int shared;
  char name[32];
  snprintf(name, sizeof name, "pool_%d", (int)getpid());
  setenv("FAKECUDA_DELAY_US", "20000", 1);
  gpu_start();
  if (!gpu_is_fake()) return; /* a real driver fails when it likes */
  open_pool_with(&pool, (cudalink_exporter_spec){.cipd_name = name});
  for (int i = 0; i < 20; i++) {
    char *block = cudalink_pool_alloc(BLOCK, 0, NULL);
    CHECK(block != NULL);
    FAKE(fakecuda_fail, "cuStreamWriteValue64", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(cudalink_exporter_send_shared(pool.exporter, &pool.description, block, NULL, NONE,
                                               SECOND, NULL, NULL, &shared),
                 CUDALINK_ERROR_GPU);
    CHECK_EQUAL(shared, 0);
    cudalink_pool_free(block, BLOCK, 0, NULL);
  }
  CHECK_EQUAL(give(&pool), 1);
  close_pool(&pool);
}

/* ---- all at once -------------------------------------------------------------------------------------------- */

struct crowd {
  struct pool pool;
  _Atomic uint32_t lent, dropped;
  _Atomic bool over;
};

struct piece {
  struct crowd *crowd;
  void *block;
};

static void drop_piece(void *owner) {
  struct piece *piece = owner;
  cudalink_pool_free(piece->block, BLOCK, 0, NULL);
  atomic_fetch_add(&piece->crowd->dropped, 1);
  free(piece);
}

/* Two of these: only one may have begun a frame. */
static void *send_pieces(void *argument) {
  struct crowd *crowd = argument;
  int status = CUDALINK_OK, shared;
  while (status != CUDALINK_ERROR_CLOSED) {
    struct piece *piece = malloc(sizeof *piece);
    *piece = (struct piece){crowd, cudalink_pool_alloc(BLOCK, 0, NULL)};
    CHECK(piece->block != NULL);
    atomic_fetch_add(&crowd->lent, 1);
    status = cudalink_exporter_send_shared(crowd->pool.exporter, &crowd->pool.description,
                                           piece->block, NULL, NONE, 0, piece, drop_piece, &shared);
    if (!shared) drop_piece(piece);
  }
  return NULL;
}

static void *come_and_go(void *argument) {
  struct crowd *crowd = argument;
  for (uint32_t i = 0; !atomic_load(&crowd->over); i++) {
    cudalink_importer importer;
    cudalink_frame frame;
    if (cudalink_importer_open(&importer,
                               &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu",
                                                         .hold = 2, .isolated = i % 8 == 7}) < 0)
      continue;
    for (int f = 0; f < 20; f++)
      if (cudalink_importer_acquire(importer, NONE, 10 * MILLISECOND, &frame) == CUDALINK_OK)
        CHECK_OK(cudalink_frame_release(&frame, NONE));
    CHECK_OK(cudalink_importer_close(importer));
  }
  return NULL;
}

TEST(pool_from_all_sides, 120) {
  struct crowd crowd = {0};
  pthread_t threads[4];
  open_pool(&crowd.pool);
  for (int t = 0; t < 4; t++)
    CHECK_EQUAL(pthread_create(&threads[t], NULL, t < 2 ? send_pieces : come_and_go, &crowd), 0);
  WAIT_UNTIL(statistics_of(&crowd.pool).shared > 2000);
  CHECK_OK(cudalink_exporter_close(crowd.pool.exporter));
  for (int t = 0; t < 2; t++)
    CHECK_EQUAL(pthread_join(threads[t], NULL), 0);
  atomic_store(&crowd.over, true);
  for (int t = 2; t < 4; t++)
    CHECK_EQUAL(pthread_join(threads[t], NULL), 0);
  WAIT_UNTIL(atomic_load(&crowd.dropped) == atomic_load(&crowd.lent));
  cudalink_pool_free(crowd.pool.block, BLOCK, 0, NULL);
}
