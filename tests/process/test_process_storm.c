/* SPDX-License-Identifier: MIT
 *
 * Random kills over both ends. Three consumers survive all of it (latest, every frame, and one of a
 * group, without which the frames of a group whose members are all dead would be kept for the next
 * one) and check each byte of each frame, that sequences ascend, that producers' ends are told. Three
 * more consumers, of random policies, are killed at random times, as is the producer.
 *
 * The survivors go on: after a consumer's death with the next frame, after a producer's with the
 * notice of it. That they do is a state which the storm waits for again and again; how long it took
 * them is only printed, since nobody knows how busy this machine is (test_process_notice has the
 * limit).
 *
 * A few thousand kills here; scripts/soak asks for more (CUDALINK_STORM_KILLS,
 * CUDALINK_STORM_SECONDS).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "roles.h"
#include "witness.h"

#define KILLS (WITH_SANITIZER ? 500 : 5000)
#define SECONDS 50
#define LOOK_AFTER 100                          /* kills: then all survivors must have gone on */
#define LONGEST (WITH_SANITIZER ? 40000 : 4000) /* microseconds that a victim lives */

static long long setting(const char *name, long long otherwise) {
  const char *text = getenv(name);
  return text ? atoll(text) : otherwise;
}

/* A producer that publishes as fast as it can, frames of a size of its own. */
HELPER(victim_producer) {
  cudalink_exporter exporter;
  uint64_t bytes = 1 + random_below(10000), salt = (uint64_t)option_number("salt", 0);
  HELPER_LEAKS();
  int status = CUDALINK_ERROR_NAME_IN_USE; /* while the one before is dying */
  while (status == CUDALINK_ERROR_NAME_IN_USE)
    status = open_producer(&exporter, "a", bytes);
  CHECK_OK(status);
  say("open");
  for (uint64_t i = 0;; i++) {
    status = publish_frame(exporter, bytes, salt, SECOND, NULL);
    if (status < 0) CHECK_STATUS(status, CUDALINK_ERROR_BUSY);
    if (i % 64 == 63) bytes = 1 + random_below(20000); /* larger memory now and then */
    harness_pause(200);                                /* leaves the processor to others */
  }
}

static const char *group_of(cudalink_policy policy) {
  return policy == CUDALINK_POLICY_SHARED ? "g" : NULL;
}

HELPER(victim_consumer) {
  struct consumer consumer = {.policy = (cudalink_policy)random_below(5)};
  HELPER_LEAKS();
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .policy = consumer.policy,
                                                            .group = group_of(consumer.policy)}));
  for (;;) {
    int status = consumer_take(&consumer, 100 * MILLISECOND);
    if (status < 0 && status != CUDALINK_ERROR_TIMEOUT && status != CUDALINK_ERROR_LOST &&
        status != CUDALINK_ERROR_EVICTED)
      CHECK_OK(status);
  }
}

/* ---- who survives ---------------------------------------------------------------------------- */

#define SURVIVORS 3
#define TIMES 4096 /* the newest ones */
#define PROMISE (50 * MILLISECOND)

/* In a file that the test and its survivors map. The test writes killed_at, then kills; a survivor
 * reads kills, then killed_at, and then says in `seen` up to which kill it has gone on. `salt` is
 * the producer whose frames it takes. All seq_cst: two programs write. */
struct board {
  _Atomic uint64_t kills;
  struct place {
    _Atomic uint64_t seen, salt;
    _Atomic uint64_t killed_at; /* the first one that it has not gone on from; 0: not to be timed */
  } places[SURVIVORS];
};

static struct board *map_board(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/board", test_scratch);
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(file >= 0);
  CHECK_EQUAL(ftruncate(file, sizeof(struct board)), 0);
  void *board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(board != MAP_FAILED);
  close(file);
  return board;
}

struct times {
  int64_t took[TIMES]; /* from the kill to the first step after it */
  uint64_t count, long_ones;
};

/* The survivor has made a step; the machine let it run that much too late since the one before. */
static void go_on(struct board *board, struct place *place, struct times *times, uint64_t late) {
  uint64_t kills = atomic_load(&board->kills), at = atomic_load(&place->killed_at);
  if (atomic_load(&place->seen) == kills) return;
  atomic_store(&place->seen, kills);
  if (!at) return;
  int64_t took = (int64_t)(cudalink_now() - at - late);
  times->took[times->count++ % TIMES] = took > 0 ? took : 0;
  times->long_ones += took > PROMISE;
}

static int by_size(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

static void say_times(struct times *times) {
  size_t count = times->count < TIMES ? times->count : TIMES;
  int64_t *took = times->took;
  qsort(took, count, sizeof *took, by_size);
  say("timed=%" PRIu64 " long=%" PRIu64 " p50=%" PRId64 " p99=%" PRId64 " max=%" PRId64,
      times->count, times->long_ones, took[count / 2] / 1000, took[count * 99 / 100] / 1000,
      took[count ? count - 1 : 0] / 1000);
}

/* Options: policy= and its place on the board. Takes frames until "stop". */
HELPER(storm_survivor) {
  static struct times times;
  struct board *board = map_board();
  struct place *place = &board->places[option_number("place", 0)];
  struct consumer consumer = {.policy = policy_from_name(option("policy", "latest"))};
  char line[LINE_SIZE];
  witness_start();
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .policy = consumer.policy,
                                                            .group = group_of(consumer.policy)}));
  say("open");
  for (uint64_t late = witness_late(); !hear_within(0);) {
    int status = consumer_take(&consumer, 20 * MILLISECOND);
    if (status == CUDALINK_ERROR_TIMEOUT) continue;
    if (status != CUDALINK_ERROR_LOST) CHECK_OK(status);
    uint64_t late_now = witness_late();
    go_on(board, place, &times, late_now - late);
    atomic_store(&place->salt, consumer.salt);
    late = late_now;
  }
  hear(line);
  say("stopped %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u", consumer.received,
      consumer.missed, consumer.lost, consumer.ended, consumer.evicted, consumer.session);
  say_times(&times);
  CHECK_OK(cudalink_importer_close(consumer.importer));
  munmap(board, sizeof *board);
  while (hear(line))
    continue;
}

/* ---- the storm --------------------------------------------------------------------------------- */

#define VICTIMS 3
#define DYING 24

struct storm {
  struct process *producer, *victims[VICTIMS];
  struct process *dying[DYING]; /* killed, not yet waited for: the next one starts at once */
  int next_dying;
  struct process *survivors[SURVIVORS];
  struct board *board;
  long long kills, producer_kills, producers;
};

static void new_producer(struct storm *storm) {
  storm->producer = process_start("victim_producer", "salt=%lld hold_ms=60000", ++storm->producers);
}

/* Ended by the kill and nothing else. */
static void bury(struct process *process) {
  if (!process) return;
  CHECK_EQUAL(process_wait(process), SIGKILL);
}

/* Only one that took frames of this producer can go on at once; another has to wait for the next. */
static void note_kill(const struct storm *storm) {
  uint64_t kills = atomic_load(&storm->board->kills);
  for (int i = 0; i < SURVIVORS; i++) {
    struct place *place = &storm->board->places[i];
    if (atomic_load(&place->seen) != kills) continue; /* timed since an earlier one */
    bool takes = atomic_load(&place->salt) == (uint64_t)storm->producers;
    atomic_store(&place->killed_at, takes ? cudalink_now() : 0);
  }
  atomic_store(&storm->board->kills, kills + 1);
}

static void kill_soon_buried(struct storm *storm, struct process *process) {
  note_kill(storm);
  process_signal_only(process, SIGKILL);
  bury(storm->dying[storm->next_dying]);
  storm->dying[storm->next_dying] = process;
  storm->next_dying = (storm->next_dying + 1) % DYING;
  storm->kills++;
}

static void kill_one(struct storm *storm) {
  harness_pause(random_below(LONGEST));
  if (random_below(4) == 0) {
    if (random_below(2)) process_hear_or_end(storm->producer); /* else: it may not be open yet */
    kill_soon_buried(storm, storm->producer);
    new_producer(storm);
    storm->producer_kills++;
  } else {
    uint64_t victim = random_below(VICTIMS);
    kill_soon_buried(storm, storm->victims[victim]);
    storm->victims[victim] = process_start("victim_consumer", "name=a");
  }
}

static uint64_t finish_survivor(struct process *survivor, const char *name) {
  unsigned long long received, missed, lost, ended, evicted, session;
  const char *line = process_ask(survivor, "stop");
  CHECK_EQUAL(sscanf(line, "stopped %llu %llu %llu %llu %llu %llu", &received, &missed, &lost,
                     &ended, &evicted, &session),
              6);
  printf("%s: %llu frames, %llu missed, %llu sessions, %llu ends, %llu evictions\n", name, received,
         missed, session, lost, evicted);
  CHECK_EQUAL(ended, 0);
  CHECK_EQUAL(evicted, 0);
  CHECK(lost > 0 && lost <= session); /* check_place compares them from frame to frame */
  line = process_hear(survivor);
  printf("%s: went on after %lld kills, %lld times later than 50 ms; p50 %.3f ms, p99 %.3f ms, "
         "latest %.3f ms\n",
         name, (long long)line_number(line, "timed"), (long long)line_number(line, "long"),
         (double)line_number(line, "p50") / 1e3, (double)line_number(line, "p99") / 1e3,
         (double)line_number(line, "max") / 1e3);
  CHECK(line_number(line, "timed") > 0);
  process_finish(survivor);
  return received;
}

static const char *const policies[SURVIVORS] = {"latest", "every", "shared"};

static void start_survivors(struct storm *storm) {
  storm->board = map_board();
  for (int i = 0; i < SURVIVORS; i++) {
    storm->survivors[i] = process_start("storm_survivor", "policy=%s place=%d", policies[i], i);
    process_expect(storm->survivors[i], "open");
  }
}

static bool a_survivor_failed(const struct storm *storm) {
  for (int i = 0; i < SURVIVORS; i++)
    if (process_has_line(storm->survivors[i])) return true;
  return false;
}

static bool all_went_on(const struct storm *storm) {
  for (int i = 0; i < SURVIVORS; i++)
    if (atomic_load(&storm->board->places[i].seen) != (uint64_t)storm->kills) return false;
  return true;
}

static void storm(long long kills, long long seconds) {
  struct storm storm = {0};
  uint64_t end = cudalink_now() + (uint64_t)(seconds * SECOND);
  start_survivors(&storm);
  new_producer(&storm);
  for (int i = 0; i < VICTIMS; i++)
    storm.victims[i] = process_start("victim_consumer", "name=a");
  while (storm.kills < kills && cudalink_now() < end && !a_survivor_failed(&storm)) {
    kill_one(&storm);
    if (storm.kills % LOOK_AFTER == 0) WAIT_UNTIL(all_went_on(&storm) || a_survivor_failed(&storm));
  }
  WAIT_UNTIL(all_went_on(&storm) || a_survivor_failed(&storm));
  for (int i = 0; i < VICTIMS; i++)
    process_kill(storm.victims[i]);
  for (int i = 0; i < DYING; i++)
    bury(storm.dying[i]);
  printf("%lld kills, %lld of them of producers\n", storm.kills, storm.producer_kills);
  CHECK(storm.kills > 0);
  uint64_t frames = 0;
  for (int i = 0; i < SURVIVORS; i++)
    frames += finish_survivor(storm.survivors[i], policies[i]);
  CHECK(frames > (uint64_t)storm.producer_kills);
  process_kill(storm.producer);
  CHECK(folder_count(test_folder) <= 3); /* lock, socket, a socket without its name */
}

TEST(random_kills, 4000) {
  storm(setting("CUDALINK_STORM_KILLS", KILLS), setting("CUDALINK_STORM_SECONDS", SECONDS));
}
