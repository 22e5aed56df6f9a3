/* SPDX-License-Identifier: MIT
 *
 * Random kills over both ends. Two consumers survive all of it (latest and every frame) and check
 * each byte of each frame, that sequences ascend, that each producer's end is told once. Three more
 * consumers, of random policies, are killed at random times, as is the producer.
 *
 * A few thousand kills here; scripts/soak asks for more (CUDALINK_STORM_KILLS,
 * CUDALINK_STORM_SECONDS).
 */
#include <sys/wait.h>

#include "roles.h"

#define KILLS (WITH_SANITIZER ? 500 : 5000)
#define SECONDS 50
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

HELPER(victim_consumer) {
  struct consumer consumer = {.policy = (cudalink_policy)random_below(5)};
  bool shared = consumer.policy == CUDALINK_POLICY_SHARED;
  HELPER_LEAKS();
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .policy = consumer.policy,
                                                            .group = shared ? "g" : NULL}));
  for (;;) {
    int status = consumer_take(&consumer, 100 * MILLISECOND);
    if (status < 0 && status != CUDALINK_ERROR_TIMEOUT && status != CUDALINK_ERROR_LOST &&
        status != CUDALINK_ERROR_EVICTED)
      CHECK_OK(status);
  }
}

#define VICTIMS 3
#define DYING 24

struct storm {
  struct process *producer, *victims[VICTIMS];
  struct process *dying[DYING]; /* killed, not yet waited for: the next one starts at once */
  int next_dying;
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

static void kill_soon_buried(struct storm *storm, struct process *process) {
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
  CHECK(lost <= session);
  process_finish(survivor);
  return received;
}

static void storm(long long kills, long long seconds) {
  struct storm storm = {0};
  uint64_t end = cudalink_now() + (uint64_t)(seconds * SECOND);
  struct process *latest = start_consumer("policy=latest");
  struct process *every = start_consumer("policy=every");
  process_tell(latest, "run");
  process_tell(every, "run");
  new_producer(&storm);
  for (int i = 0; i < VICTIMS; i++)
    storm.victims[i] = process_start("victim_consumer", "name=a");
  while (storm.kills < kills && cudalink_now() < end) {
    kill_one(&storm);
    if (process_has_line(latest) || process_has_line(every)) break; /* a survivor has failed */
  }
  for (int i = 0; i < VICTIMS; i++)
    process_kill(storm.victims[i]);
  for (int i = 0; i < DYING; i++)
    bury(storm.dying[i]);
  printf("%lld kills, %lld of them of producers\n", storm.kills, storm.producer_kills);
  uint64_t frames = finish_survivor(latest, "latest") + finish_survivor(every, "every frame");
  CHECK(frames > (uint64_t)storm.producer_kills);
  process_kill(storm.producer);
  CHECK(folder_count(test_folder) <= 3); /* lock, socket, a socket without its name */
}

TEST(random_kills, 4000) {
  storm(setting("CUDALINK_STORM_KILLS", KILLS), setting("CUDALINK_STORM_SECONDS", SECONDS));
}
