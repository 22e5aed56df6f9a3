/* SPDX-License-Identifier: MIT
 *
 * Field reports (docs/field-reports.md) that no other file covers: tearing, order of streams,
 * frames that are dropped unread, descriptions that do not fit.
 */
#include <poll.h>

#include "roles.h"

/* P08: a consumer comes, maps everything, takes nothing and goes, a thousand times. */
TEST(field_p08, 60) {
  cudalink_exporter exporter;
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  CHECK_OK(open_producer(&exporter, "a", 5000));
  for (int i = 0; i < 1000; i++) {
    cudalink_importer importer;
    CHECK_OK(cudalink_importer_open(
        &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                             .policy = (cudalink_policy)(i % 4),
                                             .open_timeout = 10 * SECOND}));
    CHECK_OK(publish_frame(exporter, 5000, 1, 10 * SECOND, NULL));
    CHECK_OK(cudalink_importer_close(importer));
  }
  do
    CHECK_OK(cudalink_exporter_get_statistics(exporter, &statistics));
  while (statistics.consumers);
  CHECK_EQUAL(statistics.retired_bytes, 0);
  CHECK_EQUAL(statistics.evicted, 0);
  CHECK_OK(publish_frame(exporter, 5000, 1, 0, NULL));
  CHECK_OK(cudalink_exporter_close(exporter));
}

/* P43: 100,000 frames in all as fast as they can be made, through each policy, every byte
 * checked. */
TEST(field_p43, 60) {
  static const char *const policies[] = {"latest", "ready", "order", "every", "shared"};
  struct process *producer = start_producer("bytes=4096 hold_ms=60000 begin_ms=10000");
  struct process *consumers[5];
  for (int i = 0; i < 5; i++) {
    consumers[i] = start_consumer("policy=%s%s", policies[i], i == 4 ? " group=g" : "");
    wait_joined(consumers[i]);
    process_tell(consumers[i], "run");
  }
  CHECK_CONTAINS(process_ask(producer, "publish 30000"), "published 30000");
  unsigned long long received[5];
  for (int i = 0; i < 5; i++) {
    do {
      CHECK_EQUAL(sscanf(process_ask(consumers[i], "stop"), "stopped %llu", &received[i]), 1);
      process_tell(consumers[i], "run");
    } while (i >= 3 && received[i] < 30000);
    process_finish(consumers[i]);
  }
  printf("%llu latest, %llu ready, %llu in order\n", received[0], received[1], received[2]);
  CHECK_EQUAL(received[3], 30000);
  CHECK_EQUAL(received[4], 30000);
  CHECK_EQUAL(statistic(producer, "dropped"), 0);
  process_finish(producer);
}

/* ---- streams --------------------------------------------------------------------------------- */

struct late_work {
  void *data;
  uint64_t sequence;
};

/* The GPU takes its time. */
static void fill_late(void *context) {
  struct late_work *work = context;
  pattern_fill(work->data, 20000, 1, work->sequence / 2);
  harness_pause(1000);
  pattern_fill(work->data, 20000, 1, work->sequence);
  free(work);
}

/* Publishes frames whose pixels come a millisecond later than the publish. */
HELPER(late_producer) {
  cudalink_exporter exporter;
  cudalink_host_stream *stream;
  cudalink_description description;
  char line[LINE_SIZE];
  CHECK_OK(open_producer(&exporter, "a", 20000));
  CHECK_OK(cudalink_host_stream_create(&stream));
  describe_bytes(&description, 20000, 1);
  say("open");
  while (hear(line) && !strcmp(line, "publish")) {
    cudalink_slot slot;
    CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
    struct late_work *work = malloc(sizeof *work);
    *work = (struct late_work){slot.data, slot.sequence};
    CHECK_OK(cudalink_host_stream_push(stream, fill_late, work));
    CHECK_OK(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_HANDLE(stream)));
    say("published");
  }
  CHECK_OK(cudalink_exporter_close(exporter));
  cudalink_host_stream_destroy(stream);
}

/* P44: published before its pixels are there, taken only when they are. */
TEST(field_p44, 60) {
  struct process *producer = process_start("late_producer", "hold_ms=60000");
  struct process *every = start_consumer("policy=every");
  struct process *latest = start_consumer("policy=latest");
  process_expect(producer, "open");
  wait_joined(every);
  wait_joined(latest);
  process_tell(latest, "run");
  process_tell(every, "take 300");
  for (int i = 0; i < 300; i++)
    ASK(producer, "publish", "published");
  process_expect(every, "took 1 300 0 1");
  process_finish(every);
  process_finish(latest);
  process_finish(producer);
}

/* P19 without a GPU: the producer dies between publish and its pixels: told, closed at once. */
TEST(field_p19, 30) {
  struct process *producer = process_start("late_producer", "hold_ms=60000");
  struct process *consumer = start_consumer("policy=every");
  process_expect(producer, "open");
  wait_joined(consumer);
  for (int i = 0; i < 4; i++)
    ASK(producer, "publish", "published");
  process_kill(producer);
  const char *line;
  do
    line = process_ask(consumer, "acquire 20000"); /* those that were complete */
  while (strstr(line, "frame"));
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_LOST");
  process_finish(consumer);
}

struct late_read {
  cudalink_frame frame;
  bool *done;
};

static void read_late(void *context) {
  struct late_read *read = context;
  check_frame(&read->frame);
  harness_pause(2000);
  check_frame(&read->frame); /* nobody has written there, though the program has let go of it */
  free(read);
}

/* P45: released on a stream whose work still reads: the slot is not used again until it has. */
HELPER(late_consumer) {
  struct consumer consumer = {.policy = CUDALINK_POLICY_LATEST};
  cudalink_host_stream *stream;
  char line[LINE_SIZE];
  CHECK_OK(cudalink_importer_open(
      &consumer.importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a", .hold = 4}));
  CHECK_OK(cudalink_host_stream_create(&stream));
  say("open");
  hear(line);
  for (int i = 0; i < 200; i++) {
    int status = consumer_acquire(&consumer, 10 * SECOND);
    CHECK_OK(status);
    struct late_read *read = malloc(sizeof *read);
    *read = (struct late_read){.frame = consumer.frame};
    CHECK_OK(cudalink_host_stream_push(stream, read_late, read));
    CHECK_OK(cudalink_frame_release(&consumer.frame, CUDALINK_STREAM_HANDLE(stream)));
  }
  CHECK_OK(cudalink_host_stream_synchronize(stream));
  CHECK_OK(cudalink_importer_close(consumer.importer));
  cudalink_host_stream_destroy(stream);
  say("done");
  hear(line);
}

TEST(field_p45, 60) {
  struct process *producer = start_producer("bytes=20000 hold_ms=60000");
  struct process *consumer = process_start("late_consumer", "name=a");
  process_expect(consumer, "open");
  process_tell(producer, "run");
  process_tell(consumer, "go");
  process_expect(consumer, "done");
  CHECK_CONTAINS(process_ask(producer, "stop"), "stopped");
  process_finish(consumer);
  process_finish(producer);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

/* P62: what is said and what there is differ: refused before anybody sees it, with the numbers. */
TEST(field_p62, 20) {
  cudalink_exporter exporter;
  cudalink_slot slot;
  cudalink_description description;
  static const int sizes[][2] = {{576, 1024}, {1550, 288}, {1, 1}, {416, 416}};
  CHECK_OK(open_producer(&exporter, "a", 100));
  for (int i = 0; i < 4; i++) {
    memset(&description, 0, sizeof description);
    CHECK_OK(cudalink_describe_picture(&description, CUDALINK_FORMAT_RGBA8, (uint32_t)sizes[i][0],
                                       (uint32_t)sizes[i][1], 0));
    description.planes[0].dtype = CUDALINK_FLOAT32; /* four times as large as it says */
    CHECK_STATUS(cudalink_exporter_begin(exporter, &description, 0, &slot),
                 CUDALINK_ERROR_INVALID_ARGUMENT);
    CHECK_CONTAINS(cudalink_last_error(), "plane");
    description.planes[0].dtype = CUDALINK_UINT8;
    description.planes[0].bytes *= 4;
    CHECK_STATUS(cudalink_exporter_begin(exporter, &description, 0, &slot),
                 CUDALINK_ERROR_INVALID_ARGUMENT);
  }
  CHECK_OK(publish_frame(exporter, 100, 1, 0, NULL));
  CHECK_OK(cudalink_exporter_close(exporter));
}

/* P49 on kind host: ten thousand frames, mapped once. */
TEST(field_p49, 60) {
  struct process *producer = start_producer("salt=1 hold_ms=60000 begin_ms=10000");
  struct process *consumer = start_consumer("policy=every");
  wait_joined(consumer);
  process_tell(consumer, "take 10000");
  ASK(producer, "publish 10000", "published 10000");
  process_expect(consumer, "took 1 10000 0 1");
  CHECK_EQUAL(statistic(consumer, "generations"), 1);
  CHECK_EQUAL(statistic(producer, "generations"), 1);
  process_finish(consumer);
  process_finish(producer);
}

/* P51 on kind host: producer and consumer in one process, attached again and again, and flat. */
TEST(field_p51, 60) {
  cudalink_exporter exporter;
  int mappings = 0;
  CHECK_OK(open_producer(&exporter, "a", 50000));
  CHECK_OK(publish_frame(exporter, 50000, 1, 0, NULL));
  for (int i = 0; i < 500; i++) {
    struct consumer consumer = {0};
    CHECK_OK(cudalink_importer_open(
        &consumer.importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                      .open_timeout = 10 * SECOND}));
    CHECK_OK(consumer_take(&consumer, 10 * SECOND));
    CHECK_OK(cudalink_importer_close(consumer.importer));
    if (i == 20) mappings = count_memory_mappings();
  }
  WAIT_UNTIL(count_memory_mappings() <= mappings);
  CHECK_OK(cudalink_exporter_close(exporter));
}
