/* SPDX-License-Identifier: MIT
 *
 * A producer: frames of RGBA8 whose pattern is their number, filled by a kernel.
 */
#include "gpu.h"
#include "link/reaper.h"

#define BEGIN_LIMIT (10 * SECOND)

struct feeding {
  const struct feed *feed;
  struct feed_result *result;
  cudalink_exporter exporter;
  cudalink_description description;
  uint64_t bytes;
  CUstream stream;
  void *source; /* for send */
  CUgraphExec exec;
  CUgraphNode node;
};

static void resize(struct feeding *feeding, uint64_t step) {
  const struct feed *feed = feeding->feed;
  describe_rgba(&feeding->description, feed->width + 32 * (uint32_t)step, feed->height);
  CHECK_OK(cudalink_description_bytes(&feeding->description, &feeding->bytes));
}

/* A graph of one kernel, whose arguments are set anew before each launch. */
static void make_graph(struct feeding *feeding, void *slot) {
  CUgraph graph;
  size_t count = 1;
  CU(cuStreamBeginCapture(feeding->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  gpu_fill(feeding->stream, slot, feeding->bytes, 0, 0);
  CU(cuStreamEndCapture(feeding->stream, &graph));
  CU(cuGraphGetNodes(graph, &feeding->node, &count));
  CHECK_EQUAL(count, 1);
  CU(cuGraphInstantiateWithFlags(&feeding->exec, graph, 0));
}

static void render(struct feeding *feeding, void *slot, uint64_t pattern) {
  const struct feed *feed = feeding->feed;
  if (!feed->graph) {
    gpu_fill(feeding->stream, slot, feeding->bytes, pattern, feed->pause);
    return;
  }
  if (!feeding->exec) make_graph(feeding, slot);
  gpu_fill_in_graph(feeding->exec, feeding->node, slot, feeding->bytes, pattern, feed->pause);
  CU(cuGraphLaunch(feeding->exec, feeding->stream));
}

static int lend_and_publish(struct feeding *feeding) {
  cudalink_slot slot;
  int status =
      cudalink_exporter_begin(feeding->exporter, &feeding->description, BEGIN_LIMIT, &slot);
  if (status < 0) return status;
  render(feeding, slot.data, slot.sequence);
  CHECK_OK(cudalink_exporter_publish(feeding->exporter, &slot, ON(feeding->stream)));
  return CUDALINK_OK;
}

/* The source is overwritten on the same stream right behind the send. */
static int fill_and_send(struct feeding *feeding, uint64_t number) {
  gpu_fill(feeding->stream, feeding->source, feeding->bytes, number, feeding->feed->pause);
  int status = cudalink_exporter_send(feeding->exporter, &feeding->description, feeding->source,
                                      NULL, ON(feeding->stream), BEGIN_LIMIT);
  gpu_fill(feeding->stream, feeding->source, feeding->bytes, ~number, 0);
  return status;
}

static void open_channel(struct feeding *feeding) {
  const struct feed *feed = feeding->feed;
  resize(feeding, 0);
  CHECK_OK(cudalink_exporter_open(
      &feeding->exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = feed->name, .kind = feed->kind,
                                .description = &feeding->description, .slots = feed->slots,
                                .max_slots = feed->max_slots}));
  feeding->stream = gpu_stream();
  if (feed->send) feeding->source = gpu_memory(GPU_MEMORY_DEVICE, feeding->bytes, feeding->stream);
}

static bool over(const struct feeding *feeding, uint64_t start) {
  const struct feed *feed = feeding->feed;
  if (feed->frames && feeding->result->published >= feed->frames) return true;
  if (feed->seconds && cudalink_now() - start >= feed->seconds * (uint64_t)SECOND) return true;
  return feed->stop && feed->stop(feeding->result->published);
}

static void feed_frames(struct feeding *feeding) {
  const struct feed *feed = feeding->feed;
  struct feed_result *result = feeding->result;
  uint64_t start = cudalink_now();
  while (!over(feeding, start)) {
    uint64_t number = result->published;
    if (feed->resize && number % feed->resize == 0) resize(feeding, number / feed->resize % 7);
    int status = feed->send ? fill_and_send(feeding, number + 1) : lend_and_publish(feeding);
    if (status == CUDALINK_ERROR_BUSY) {
      result->dropped++;
      continue;
    }
    CHECK_OK(status);
    result->published++;
    if (feed->flow && number == 100) reaper_drain(); /* it prepares mailboxes when someone joins */
    if (feed->flow && number == 100)
      FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_ABORT,
           FAKECUDA_WAITING | FAKECUDA_ALLOCATING | FAKECUDA_OPENING);
  }
  result->nanoseconds = cudalink_now() - start;
}

void feed_run(const struct feed *feed, struct feed_result *result) {
  struct feeding feeding = {.feed = feed, .result = result};
  memset(result, 0, sizeof *result);
  open_channel(&feeding);
  if (feed->consumers)
    CHECK_OK(cudalink_exporter_wait_consumers(feeding.exporter, feed->consumers, 30 * SECOND));
  feed_frames(&feeding);
  if (feed->drain) CHECK_OK(cudalink_exporter_wait_taken(feeding.exporter, 60 * SECOND));
  CU(cuStreamSynchronize(feeding.stream));
  FAKE(fakecuda_frames_flow, FAKECUDA_FLOW_OFF, 0);
  result->statistics.size = sizeof result->statistics;
  CHECK_OK(cudalink_exporter_get_statistics(feeding.exporter, &result->statistics));
  CHECK_OK(cudalink_exporter_close(feeding.exporter));
}

/* ---- as a helper ------------------------------------------------------------------------------------- */

cudalink_kind gpu_kind_option(void) {
  const char *kind = option("kind", "vmm");
  for (int k = CUDALINK_KIND_HOST; k <= CUDALINK_KIND_IPC; k++)
    if (!strcmp(kind, cudalink_kind_name((cudalink_kind)k))) return (cudalink_kind)k;
  FAIL("kind %s", kind);
}

struct feed feed_from_options(void) {
  return (struct feed){.name = option("name", "gpu"),
                       .kind = gpu_kind_option(),
                       .width = (uint32_t)option_number("width", 64),
                       .height = (uint32_t)option_number("height", 64),
                       .slots = (uint32_t)option_number("slots", 0),
                       .max_slots = (uint32_t)option_number("max_slots", 0),
                       .consumers = (uint32_t)option_number("consumers", 1),
                       .frames = (uint64_t)option_number("frames", 0),
                       .seconds = (uint64_t)option_number("seconds", 0),
                       .pause = (uint64_t)option_number("pause", 0),
                       .resize = (uint64_t)option_number("resize", 0),
                       .graph = option_number("graph", 0) != 0,
                       .send = option_number("send", 0) != 0,
                       .flow = option_number("flow", 0) != 0,
                       .drain = option_number("drain", 0) != 0,
                       .stop = tell_and_hear};
}

/* Says "open", and its counts at the end. Lives until its test ends it. */
HELPER(feed) {
  gpu_start();
  FAKE(fakecuda_set_delay, (unsigned)option_number("delay", 0));
  struct feed feed = feed_from_options();
  struct feed_result result;
  char line[LINE_SIZE];
  say("open");
  feed_run(&feed, &result);
  if (hear_within(0)) hear(line); /* else its end would take what we say along */
  say("published=%llu dropped=%llu copies=%llu generations=%llu deaths=%llu "
      "evicted=%llu ns=%llu",
      (unsigned long long)result.published, (unsigned long long)result.dropped,
      (unsigned long long)result.statistics.copies,
      (unsigned long long)result.statistics.generations,
      (unsigned long long)result.statistics.deaths, (unsigned long long)result.statistics.evicted,
      (unsigned long long)result.nanoseconds);
  hear(line); /* memory of kind ipc ends with this process, and consumers may be slow to open it */
}

struct process *start_feed(const char *format, ...) {
  char options[LINE_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(options, sizeof options, format, list);
  va_end(list);
  struct process *process = process_start("feed", "%s", options);
  process_expect(process, "open");
  return process;
}
