/* SPDX-License-Identifier: MIT
 *
 * A producer and a consumer that do what they are told. roles.h says what they know.
 */
#include "roles.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>

#define MAX_KEPT 16
#define STEP (20 * MILLISECOND) /* of a running helper between two looks for a line */

void say_error(int status) {
  say("error %s: %s", cudalink_error_name(status), cudalink_last_error());
}

/* ---- in a test ------------------------------------------------------------------------------- */

static struct process *start_open(const char *helper, const char *format, va_list list) {
  char options[LINE_SIZE];
  vsnprintf(options, sizeof options, format, list);
  struct process *process = process_start(helper, "%s", options);
  process_expect(process, "open");
  return process;
}

struct process *start_producer(const char *format, ...) {
  va_list list;
  va_start(list, format);
  struct process *process = start_open("producer", format, list);
  va_end(list);
  return process;
}

struct process *start_consumer(const char *format, ...) {
  va_list list;
  va_start(list, format);
  struct process *process = start_open("consumer", format, list);
  va_end(list);
  return process;
}

int64_t statistic(struct process *process, const char *key) {
  return line_number(process_ask(process, "statistics"), key);
}

void wait_joined(struct process *consumer) {
  WAIT_UNTIL(statistic(consumer, "connection") == CUDALINK_CONNECTION_JOINED);
}

/* ---- producing ------------------------------------------------------------------------------- */

void describe_bytes(cudalink_description *description, uint64_t bytes, uint64_t salt) {
  int64_t shape = (int64_t)bytes;
  memset(description, 0, sizeof *description);
  CHECK_OK(cudalink_describe_tensor(description, "bytes", CUDALINK_UINT8, 1, &shape));
  description->timing.pts = (int64_t)salt;
  description->timing.time_base_numerator = description->timing.time_base_denominator = 1;
}

int open_producer(cudalink_exporter *exporter, const char *name, uint64_t bytes) {
  cudalink_description description;
  describe_bytes(&description, bytes, 0);
  return cudalink_exporter_open(
      exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = name,
                                          .description = &description,
                                          .slots = (uint32_t)option_number("slots", 0),
                                          .max_slots = (uint32_t)option_number("max_slots", 0),
                                          .hold_limit = option_number("hold_ms", 0) * MILLISECOND});
}

int publish_frame(cudalink_exporter exporter, uint64_t bytes, uint64_t salt, int64_t timeout,
                  uint64_t *sequence) {
  cudalink_description description;
  cudalink_slot slot;
  describe_bytes(&description, bytes, salt);
  int status = cudalink_exporter_begin(exporter, &description, timeout, &slot);
  if (status < 0) return status;
  pattern_fill(slot.data, bytes, salt, slot.sequence);
  if (sequence) *sequence = slot.sequence;
  return cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE);
}

struct producer {
  cudalink_exporter exporter;
  uint64_t bytes, salt, last, dropped;
  int64_t begin_timeout;
};

static int publish_next(struct producer *producer) {
  int status = publish_frame(producer->exporter, producer->bytes, producer->salt,
                             producer->begin_timeout, &producer->last);
  if (status == CUDALINK_ERROR_BUSY) producer->dropped++;
  return status;
}

static void producer_publish(struct producer *producer, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    int status = publish_next(producer);
    if (status < 0) {
      say_error(status);
      return;
    }
  }
  say("published %" PRIu64, producer->last);
}

static void producer_run(struct producer *producer, int pause) {
  producer->dropped = 0;
  while (!hear_within(pause)) {
    int status = publish_next(producer);
    if (status != CUDALINK_ERROR_BUSY) CHECK_OK(status);
    sched_yield(); /* few processors, many processes */
  }
}

static void producer_begin(const struct producer *producer) {
  cudalink_description description;
  cudalink_slot slot;
  describe_bytes(&description, producer->bytes, producer->salt);
  CHECK_OK(cudalink_exporter_begin(producer->exporter, &description, 10 * SECOND, &slot));
  pattern_fill(slot.data, producer->bytes / 2, producer->salt, slot.sequence);
  say("begun");
}

static void producer_statistics(cudalink_exporter exporter) {
  cudalink_exporter_statistics s = {.size = sizeof s};
  CHECK_OK(cudalink_exporter_get_statistics(exporter, &s));
  say("published=%" PRIu64 " dropped=%" PRIu64 " evicted=%" PRIu64 " deaths=%" PRIu64
      " generations=%" PRIu64 " consumers=%u slots=%u waits=%" PRIu64 " retired=%" PRIu64
      " cursors_lost=%" PRIu64 " redelivered=%" PRIu64,
      s.published, s.dropped, s.evicted, s.deaths, s.generations, s.consumers, s.slots, s.waits,
      s.retired_bytes, s.cursors_lost, s.redelivered);
}

static void producer_obey(struct producer *producer, const char *line) {
  uint64_t number = 0;
  char word[32] = "";
  sscanf(line, "%31s %" SCNu64, word, &number);
  if (!strcmp(word, "publish"))
    producer_publish(producer, number);
  else if (!strcmp(word, "run"))
    producer_run(producer, (int)number);
  else if (!strcmp(word, "stop"))
    say("stopped %" PRIu64 " %" PRIu64, producer->last, producer->dropped);
  else if (!strcmp(word, "begin"))
    producer_begin(producer);
  else if (!strcmp(word, "statistics"))
    producer_statistics(producer->exporter);
  else if (!strcmp(word, "size")) {
    producer->bytes = number;
    say("size %" PRIu64, number);
  } else if (!strcmp(word, "consumers")) {
    CHECK_OK(
        cudalink_exporter_wait_consumers(producer->exporter, (uint32_t)number, CUDALINK_FOREVER));
    say("consumers %" PRIu64, number);
  } else if (!strcmp(word, "close")) {
    CHECK_OK(cudalink_exporter_close(producer->exporter));
    producer->exporter.id = 0;
    say("closed");
  } else {
    FAIL("a producer does not know '%s'", line);
  }
}

void act_as_producer(void) {
  struct producer producer = {.bytes = (uint64_t)option_number("bytes", 65536),
                              .salt = (uint64_t)option_number("salt", getpid()),
                              .begin_timeout = option_number("begin_ms", 10000) * MILLISECOND};
  char line[LINE_SIZE];
  int status = open_producer(&producer.exporter, option("name", "a"), producer.bytes);
  if (status < 0)
    say_error(status);
  else
    say("open");
  while (hear(line))
    producer_obey(&producer, line);
  if (producer.exporter.id) CHECK_OK(cudalink_exporter_close(producer.exporter));
}

/* ---- consuming ------------------------------------------------------------------------------- */

cudalink_policy policy_from_name(const char *name) {
  static const char *const names[] = {"latest", "ready", "order", "every", "shared"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(name, names[i])) return (cudalink_policy)i;
  FAIL("no policy '%s'", name);
}

void check_frame(const cudalink_frame *frame) {
  const cudalink_plane *plane = &frame->description.planes[0];
  uint64_t salt = (uint64_t)frame->description.timing.pts;
  int64_t wrong =
      pattern_check((const char *)frame->data + plane->offset, plane->bytes, salt, frame->sequence);
  if (wrong >= 0)
    FAIL("torn: byte %" PRId64 " of frame %" PRIu64 " (%" PRIu64 " bytes, generation %u, slot %u, "
         "session %u, producer %" PRIu64 ")",
         wrong, frame->sequence, plane->bytes, frame->generation, frame->slot, frame->session,
         salt);
}

/* Sequences ascend, what is missing is counted, another producer is another session. */
static void check_place(struct consumer *consumer) {
  const cudalink_frame *frame = &consumer->frame;
  uint64_t salt = (uint64_t)frame->description.timing.pts;
  bool shared = consumer->policy == CUDALINK_POLICY_SHARED;
  if (consumer->session == frame->session) {
    CHECK_EQUAL(salt, consumer->salt);
    CHECK(shared || frame->sequence > consumer->last);
    if (!shared && !consumer->evicted)
      CHECK_EQUAL(frame->missed, frame->sequence - consumer->last - 1);
  } else if (consumer->session) {
    CHECK(frame->session > consumer->session);
    CHECK(salt != consumer->salt || consumer->evicted);
    uint64_t ends = consumer->notices;
    if (ends < 1 || ends > frame->session - consumer->session)
      FAIL("from session %u to %u with %" PRIu64 " notices", consumer->session, frame->session,
           ends);
  }
  if (consumer->policy == CUDALINK_POLICY_EVERY && consumer->session == frame->session)
    CHECK_EQUAL(frame->sequence, consumer->last + 1);
}

int consumer_acquire(struct consumer *consumer, int64_t timeout) {
  cudalink_frame *frame = &consumer->frame;
  int status =
      cudalink_importer_acquire(consumer->importer, CUDALINK_STREAM_COMPLETE, timeout, frame);
  if (status == CUDALINK_ERROR_LOST) consumer->lost++;
  if (status == CUDALINK_ERROR_ENDED) consumer->ended++;
  if (status == CUDALINK_ERROR_EVICTED) consumer->evicted++;
  if (status == CUDALINK_ERROR_LOST || status == CUDALINK_ERROR_ENDED ||
      status == CUDALINK_ERROR_EVICTED)
    consumer->notices++;
  if (status != CUDALINK_OK) return status;
  check_frame(frame);
  check_place(consumer);
  consumer->session = frame->session;
  consumer->salt = (uint64_t)frame->description.timing.pts;
  consumer->last = frame->sequence;
  consumer->missed += frame->missed;
  consumer->notices = 0;
  consumer->received++;
  return CUDALINK_OK;
}

int consumer_take(struct consumer *consumer, int64_t timeout) {
  int status = consumer_acquire(consumer, timeout);
  if (status == CUDALINK_OK) {
    check_frame(&consumer->frame); /* as whole at the end as at the start */
    CHECK_OK(cudalink_frame_release(&consumer->frame, CUDALINK_STREAM_COMPLETE));
  }
  return status;
}

static bool goes_on(int status) {
  return status == CUDALINK_OK || status == CUDALINK_ERROR_TIMEOUT ||
         status == CUDALINK_ERROR_LOST || status == CUDALINK_ERROR_ENDED ||
         status == CUDALINK_ERROR_EVICTED;
}

static void consumer_take_many(struct consumer *consumer, uint64_t count) {
  uint64_t first = 0, missed = consumer->missed;
  for (uint64_t i = 0; i < count; i++) {
    CHECK_OK(consumer_take(consumer, CUDALINK_FOREVER));
    if (!first) first = consumer->last;
  }
  say("took %" PRIu64 " %" PRIu64 " %" PRIu64 " %u", first, consumer->last,
      consumer->missed - missed, consumer->session);
}

/* Takes once at least: "run", "stop", "run" and so on brings it forward, however fast. */
static void consumer_run(struct consumer *consumer) {
  do {
    int status = consumer_take(consumer, STEP);
    if (!goes_on(status)) CHECK_OK(status);
  } while (!hear_within(0));
}

static void consumer_stop(const struct consumer *consumer) {
  say("stopped %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %" PRIu64,
      consumer->received, consumer->missed, consumer->lost, consumer->ended, consumer->evicted,
      consumer->session, consumer->last);
}

static void consumer_until(struct consumer *consumer, uint64_t session) {
  int status = CUDALINK_OK;
  while (goes_on(status) && consumer->session < session)
    status = consumer_take(consumer, CUDALINK_FOREVER);
  if (!goes_on(status))
    say_error(status);
  else
    say("frame %" PRIu64 " %u", consumer->last, consumer->session);
}

static void consumer_one(struct consumer *consumer, int64_t timeout) {
  int status = consumer_take(consumer, timeout);
  if (status < 0)
    say_error(status);
  else
    say("frame %" PRIu64 " %u", consumer->last, consumer->session);
}

static void consumer_statistics(cudalink_importer importer) {
  cudalink_importer_statistics s = {.size = sizeof s};
  CHECK_OK(cudalink_importer_get_statistics(importer, &s));
  say("received=%" PRIu64 " missed=%" PRIu64 " sessions=%" PRIu64 " generations=%" PRIu64
      " held=%u connection=%u waits=%" PRIu64 " wakes=%" PRIu64 " evictions=%" PRIu64
      " redelivered=%" PRIu64 " lost=%" PRIu64,
      s.received, s.missed, s.sessions, s.generations, s.held, s.connection, s.waits, s.wakes,
      s.evictions, s.redelivered, s.lost);
}

static cudalink_frame kept[MAX_KEPT];
static uint32_t kept_count;

static void consumer_hold(struct consumer *consumer) {
  int status = consumer_acquire(consumer, CUDALINK_FOREVER);
  if (status < 0) {
    say_error(status);
    return;
  }
  kept[kept_count++] = consumer->frame;
  say("holds %" PRIu64, consumer->last);
}

static void consumer_check_kept(void) {
  for (uint32_t i = 0; i < kept_count; i++)
    check_frame(&kept[i]);
  say("whole %u", kept_count);
}

static void consumer_release_kept(void) {
  for (uint32_t i = 0; i < kept_count; i++) {
    check_frame(&kept[i]);
    CHECK_OK(cudalink_frame_release(&kept[i], CUDALINK_STREAM_COMPLETE));
  }
  say("released %u", kept_count);
  kept_count = 0;
}

static void consumer_obey(struct consumer *consumer, const char *line) {
  uint64_t number = 0;
  char word[32] = "";
  sscanf(line, "%31s %" SCNu64, word, &number);
  if (!strcmp(word, "take"))
    consumer_take_many(consumer, number);
  else if (!strcmp(word, "acquire"))
    consumer_one(consumer, (int64_t)number * MILLISECOND);
  else if (!strcmp(word, "hold"))
    consumer_hold(consumer);
  else if (!strcmp(word, "check"))
    consumer_check_kept();
  else if (!strcmp(word, "release"))
    consumer_release_kept();
  else if (!strcmp(word, "run"))
    consumer_run(consumer);
  else if (!strcmp(word, "stop"))
    consumer_stop(consumer);
  else if (!strcmp(word, "until"))
    consumer_until(consumer, number);
  else if (!strcmp(word, "statistics"))
    consumer_statistics(consumer->importer);
  else if (!strcmp(word, "close")) {
    CHECK_OK(cudalink_importer_close(consumer->importer));
    consumer->importer.id = 0;
    say("closed");
  } else {
    FAIL("a consumer does not know '%s'", line);
  }
}

void act_as_consumer(void) {
  struct consumer consumer = {.policy = policy_from_name(option("policy", "latest"))};
  char line[LINE_SIZE];
  int status = cudalink_importer_open(
      &consumer.importer,
      &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = option("name", "a"),
                                .policy = consumer.policy, .group = option("group", NULL),
                                .hold = (uint32_t)option_number("hold", 0),
                                .once = (uint32_t)option_number("once", 0),
                                .gpu_wait = (uint32_t)option_number("gpu_wait", 0),
                                .isolated = (uint32_t)option_number("isolated", 0),
                                .wire = (uint32_t)option_number("wire", CUDALINK_WIRE_AUTO),
                                .open_timeout = option_number("open_ms", 0) * MILLISECOND});
  if (status < 0)
    say_error(status);
  else
    say("open");
  while (hear(line))
    consumer_obey(&consumer, line);
  if (kept_count) consumer_release_kept();
  if (consumer.importer.id) CHECK_OK(cudalink_importer_close(consumer.importer));
}

HELPER(producer) { act_as_producer(); }
HELPER(consumer) { act_as_consumer(); }
