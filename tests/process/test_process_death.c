/* SPDX-License-Identifier: MIT
 *
 * Processes that die or stop: what the others get, and what of the dead stays.
 */
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "roles.h"

/* ---- the producer dies ----------------------------------------------------------------------- */

/* What was complete is read, its end is told once, the next producer's frames follow. */
TEST(producer_killed, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=every");
  ASK(producer, "consumers 1", "consumers 1");
  ASK(producer, "publish 3", "published 3");
  process_kill(producer);
  ASK(consumer, "take 3", "took 1 3 0 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  CHECK_CONTAINS(process_ask(consumer, "acquire 1"), "error CUDALINK_ERROR_TIMEOUT");
  producer = start_producer("salt=2");
  process_tell(consumer, "until 2");
  ASK(producer, "consumers 1", "consumers 1");
  ASK(producer, "publish 1", "published 1");
  process_expect(consumer, "frame 1 2");
  process_finish(consumer);
  process_finish(producer);
}

/* Half a frame is never seen. */
TEST(producer_killed_while_it_writes, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  ASK(producer, "publish 2", "published 2");
  ASK(producer, "begin", "begun");
  process_kill(producer);
  ASK(consumer, "take 2", "took 1 2 0 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  process_finish(consumer);
}

/* Its first frame in new memory is its last instruction but one. */
HELPER(large_frame_then_death) {
  cudalink_exporter exporter;
  CHECK_OK(open_producer(&exporter, "a", 1000));
  CHECK_OK(cudalink_exporter_wait_consumers(exporter, 1, CUDALINK_FOREVER));
  CHECK_OK(publish_frame(exporter, 100000, 1, 0, NULL));
  kill(getpid(), SIGKILL);
}

static void take_large_frame(const cudalink_importer_spec *spec) {
  struct consumer consumer = {.policy = spec->policy};
  struct process *producer = process_start("large_frame_then_death", "%s", "");
  CHECK_OK(cudalink_importer_open(&consumer.importer, spec));
  CHECK_OK(consumer_take(&consumer, 10 * SECOND));
  CHECK_EQUAL(consumer.last, 1);
  CHECK_STATUS(consumer_take(&consumer, 10 * SECOND), CUDALINK_ERROR_LOST);
  CHECK_OK(cudalink_importer_close(consumer.importer));
  CHECK_EQUAL(WTERMSIG(process_wait(producer)), SIGKILL);
}

/* What was published is read, also where the memory is as new as the frame. */
TEST(producer_killed_behind_a_frame_in_new_memory, 60) {
  for (int round = 0; round < 4; round++)
    for (int policy = CUDALINK_POLICY_LATEST; policy <= CUDALINK_POLICY_SHARED; policy++)
      for (uint32_t isolated = 0; isolated < 2; isolated++)
        take_large_frame(&(cudalink_importer_spec){
            CUDALINK_IMPORTER_DEFAULTS, .name = "a", .policy = (cudalink_policy)policy,
            .group = policy == CUDALINK_POLICY_SHARED ? "g" : NULL, .isolated = isolated,
            .open_timeout = 10 * SECOND});
}

/* What a consumer holds stays whole, also after the death of who made it. */
TEST(producer_killed_while_frames_are_held, 20) {
  struct process *producer = start_producer("salt=1 bytes=1000000 slots=6");
  struct process *consumer = start_consumer("policy=every hold=3");
  wait_joined(consumer);
  ASK(producer, "publish 3", "published 3");
  ASK(consumer, "hold", "holds 1");
  ASK(consumer, "hold", "holds 2");
  ASK(consumer, "hold", "holds 3");
  process_kill(producer);
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  producer = start_producer("salt=2 bytes=1000000");
  wait_joined(consumer);
  ASK(producer, "publish 5", "published 5");
  ASK(consumer, "check", "whole 3");
  ASK(consumer, "release", "released 3");
  process_finish(consumer);
  process_finish(producer);
}

/* ---- a consumer dies ------------------------------------------------------------------------- */

/* An every-frame consumer that takes nothing holds the producer up, until it dies. */
TEST(consumer_killed_while_producer_waits, 20) {
  struct process *producer = start_producer("begin_ms=10 hold_ms=600000");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  CHECK_CONTAINS(process_ask(producer, "publish 100"), "error CUDALINK_ERROR_BUSY");
  process_kill(consumer);
  WAIT_UNTIL(statistic(producer, "deaths") == 1);
  CHECK_CONTAINS(process_ask(producer, "publish 100"), "published");
  CHECK_EQUAL(statistic(producer, "consumers"), 0);
  process_finish(producer);
}

/* A member of a group dies: its frame goes to another member, marked. */
TEST(member_of_group_killed, 20) {
  struct process *producer = start_producer("hold_ms=600000");
  struct process *first = start_consumer("policy=shared group=g");
  wait_joined(first);
  ASK(producer, "publish 1", "published 1");
  ASK(first, "hold", "holds 1");
  struct process *second = start_consumer("policy=shared group=g");
  wait_joined(second);
  process_kill(first);
  ASK(second, "acquire 10000", "frame 1 1");
  CHECK_EQUAL(statistic(second, "redelivered"), 1);
  process_finish(second);
  process_finish(producer);
}

/* ---- stopped, not dead ----------------------------------------------------------------------- */

static void stop(struct process *process) {
  process_signal(process, SIGSTOP);
  WAIT_UNTIL(process_is_stopped(process));
}

/* One frame less for the producer, which goes on at once and takes nothing back; the frame is
 * whole for as long as it is held. */
TEST(consumer_stopped_with_frames, 30) {
  struct process *producer = start_producer("slots=3 max_slots=3 hold_ms=1000");
  struct process *consumer = start_consumer("policy=order");
  struct process *other = start_consumer("policy=order");
  wait_joined(consumer);
  wait_joined(other);
  ASK(producer, "publish 1", "published 1");
  ASK(consumer, "hold", "holds 1");
  ASK(other, "hold", "holds 1");
  stop(consumer);
  ASK(producer, "publish 1", "published 2");
  ASK(other, "release", "released 1");
  ASK(producer, "publish 50", "published 52");
  process_signal(consumer, SIGCONT);
  ASK(consumer, "check", "whole 1");
  ASK(consumer, "release", "released 1");
  ASK(producer, "publish 50", "published 102");
  CHECK_EQUAL(statistic(producer, "evicted"), 0);
  process_finish(consumer);
  process_finish(other);
  process_finish(producer);
}

/* How often they were told so far; each one has looked at least once, and goes on. */
static int64_t evictions_told(struct process *consumers[3]) {
  int64_t told = 0;
  for (int i = 0; i < 3; i++) {
    unsigned long long received, missed, lost, ended, evicted;
    const char *line = process_ask(consumers[i], "stop");
    CHECK_EQUAL(sscanf(line, "stopped %llu %llu %llu %llu %llu", &received, &missed, &lost, &ended,
                       &evicted),
                5);
    CHECK_EQUAL(lost + ended, 0);
    told += (int64_t)evicted;
    process_tell(consumers[i], "run");
  }
  return told;
}

/* Three hold all there is: the producer takes frames back. They stay whole for as long as they are
 * held; each one is told once, and joins again. */
TEST(evicted_consumer_joins_again, 30) {
  struct process *producer = start_producer("slots=3 max_slots=3 hold_ms=20");
  struct process *consumers[3];
  for (int i = 0; i < 3; i++) {
    consumers[i] = start_consumer("policy=order");
    wait_joined(consumers[i]);
    CHECK_CONTAINS(process_ask(producer, "publish 1"), "published");
    CHECK_CONTAINS(process_ask(consumers[i], "hold"), "holds");
  }
  for (int i = 0; i < 3; i++)
    stop(consumers[i]);
  CHECK_CONTAINS(process_ask(producer, "publish 50"), "published");
  CHECK(statistic(producer, "evicted") >= 1);
  for (int i = 0; i < 3; i++)
    process_signal(consumers[i], SIGCONT);
  for (int i = 0; i < 3; i++) {
    ASK(consumers[i], "check", "whole 1");
    ASK(consumers[i], "release", "released 1");
    process_tell(consumers[i], "run");
  }
  CHECK_CONTAINS(process_ask(producer, "publish 50"), "published");
  WAIT_UNTIL(statistic(producer, "consumers") == 3);
  CHECK_CONTAINS(process_ask(producer, "publish 50"), "published");
  /* On a busy machine these are taken frames back from as well, and are told later. */
  int64_t evicted = statistic(producer, "evicted"), told;
  WAIT_UNTIL((told = evictions_told(consumers)) >= evicted);
  CHECK_EQUAL(told, evicted);
  for (int i = 0; i < 3; i++)
    process_finish(consumers[i]);
  process_finish(producer);
}

/* A producer that stands still is not dead: waits end by their time-out, then frames go on. */
TEST(producer_stopped, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  ASK(producer, "publish 1", "published 1");
  stop(producer);
  ASK(consumer, "take 1", "took 1 1 0 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 300"), "error CUDALINK_ERROR_TIMEOUT");
  struct process *late = start_consumer("policy=latest");
  CHECK_CONTAINS(process_ask(late, "acquire 100"), "error CUDALINK_ERROR_TIMEOUT");
  process_signal(producer, SIGCONT);
  wait_joined(late);
  ASK(producer, "publish 2", "published 3");
  ASK(consumer, "take 2", "took 2 3 0 1");
  process_finish(consumer);
  process_finish(late);
  process_finish(producer);
}

/* Who does not answer can't say its name, which is cut in the folder; but it was told before. */
struct watched {
  const char *name;
  _Atomic int there, others, events;
};
static void on_channel(void *context, cudalink_channel_event event, const char *name) {
  struct watched *watched = context;
  int change = event == CUDALINK_CHANNEL_APPEARED ? 1 : -1;
  bool is_it = strcmp(name, watched->name) == 0;
  atomic_fetch_add(is_it ? &watched->there : &watched->others, change);
  atomic_fetch_add(&watched->events, 1);
}
TEST(watched_producer_stopped, 30) {
  char name[CUDALINK_NAME_MAX + 1] = "";
  struct watched watched = {.name = name};
  cudalink_watch *watch;
  cudalink_exporter other;
  memset(name, 'x', 100);
  struct process *producer = start_producer("name=%s", name);
  CHECK_OK(cudalink_watch_open(&watch, test_folder, on_channel, &watched));
  WAIT_UNTIL(watched.there == 1);
  stop(producer);
  CHECK_OK(open_producer(&other, "b", 1000));
  WAIT_UNTIL(watched.others == 1); /* it has looked again */
  CHECK_OK(cudalink_exporter_close(other));
  WAIT_UNTIL(watched.others == 0);
  CHECK_EQUAL(watched.there, 1);
  CHECK_EQUAL(watched.events, 3);
  process_kill(producer);
  WAIT_UNTIL(watched.there == 0);
  cudalink_watch_close(watch);
  CHECK_EQUAL(watched.events, 4);
}

/* An open that ends before the handshake's own limit of 2 s: who does not answer is not nobody. */
TEST(stopped_producer_is_there, 20) {
  struct process *producer = start_producer("salt=1");
  stop(producer);
  struct process *late = process_start("consumer", "policy=latest open_ms=1900");
  const char *line = process_hear(late);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_TIMEOUT");
  CHECK_CONTAINS(line, "does not answer");
  process_finish(late);
  process_kill(producer);
  late = process_start("consumer", "policy=latest open_ms=1");
  CHECK_CONTAINS(process_hear(late), "error CUDALINK_ERROR_NOT_FOUND");
  process_finish(late);
}

/* A stopped producer that is killed is dead like any other. */
TEST(stopped_producer_killed, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  ASK(producer, "publish 1", "published 1");
  stop(producer);
  process_kill(producer);
  ASK(consumer, "take 1", "took 1 1 0 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  process_finish(consumer);
}

/* A producer stands still while a consumer joins, for longer than a handshake may take: the
 * consumer's wait ends by its own time-out only. */
TEST(producer_stopped_during_the_handshake, 30) {
  struct process *producer = start_producer("salt=1");
  stop(producer);
  struct process *consumer = start_consumer("policy=latest");
  process_tell(consumer, "acquire 20000");
  harness_pause(3000000); /* a handshake may take 2 s */
  CHECK(!process_has_line(consumer));
  process_signal(producer, SIGCONT);
  ASK(producer, "consumers 1", "consumers 1");
  ASK(producer, "publish 1", "published 1");
  process_expect(consumer, "frame 1 1");
  process_finish(consumer);
  process_finish(producer);
}

/* A stopped consumer reads no messages, and its queue is full after some hundred of them. */
static void fill_and_close(struct process **producer, struct process **consumer) {
  *producer = start_producer("salt=1 bytes=1000");
  *consumer = start_consumer("policy=latest");
  ASK(*producer, "consumers 1", "consumers 1");
  ASK(*producer, "publish 1", "published 1");
  ASK(*consumer, "take 1", "took 1 1 0 1");
  stop(*consumer);
  for (int i = 1; i <= 600; i++) {
    process_ask(*producer, "size %d", 1000 + 256 * i);
    process_ask(*producer, "publish 1");
  }
  ASK(*producer, "close", "closed");
}

/* What did not fit is told when it reads again, also behind a close: the last memory, and that the channel has
 * ended. */
TEST(stopped_consumer_is_told_the_end, 60) {
  struct process *producer, *consumer;
  fill_and_close(&producer, &consumer);
  process_signal(consumer, SIGCONT);
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "frame 601 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_ENDED");
  process_finish(consumer);
  process_finish(producer);
}

/* Its death ends the wait, and nothing is left of the channel. */
TEST(stopped_consumer_dies_untold, 60) {
  struct process *producer, *consumer;
  fill_and_close(&producer, &consumer);
  process_kill(consumer);
  process_finish(producer);
}

/* A consumer stands still in acquire until its time is up, and its frame comes meanwhile. */
TEST(consumer_stopped_beyond_its_time, 30) {
  for (int policy = 0; policy < 2; policy++) {
    struct process *producer = start_producer("salt=1");
    struct process *consumer = start_consumer("policy=%s", policy ? "every" : "latest");
    wait_joined(consumer);
    for (;;) {
      process_tell(consumer, "acquire 300");
      harness_pause(100000); /* mostly it sleeps by then; if not, it takes the frame all the same */
      stop(consumer);
      if (!process_has_line(consumer)) break;
      process_signal(consumer, SIGCONT); /* its time was up before */
      CHECK_CONTAINS(process_hear(consumer), "error CUDALINK_ERROR_TIMEOUT");
    }
    ASK(producer, "publish 1", "published 1");
    harness_pause(1000000);
    process_signal(consumer, SIGCONT);
    process_expect(consumer, "frame 1 1");
    process_finish(consumer);
    process_finish(producer);
  }
}
