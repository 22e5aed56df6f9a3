/* SPDX-License-Identifier: MIT
 *
 * One consumer process of `cudalink demo`: takes frames, compares every byte, writes down what it
 * saw. It says nothing; the producer process does the talking.
 */
#include "command.h"
#include "demo.h"
#include "host_frame.h"
#include "report.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PIECE INT64_C(100000000)
#define OPEN_LIMIT INT64_C(10000000000)

struct watcher {
  cudalink_importer importer;
  struct tally before;   /* of frames that do not count yet */
  uint64_t counted_from; /* 0 = not known yet */
  enum pattern pattern;
  struct host_frame host;
  struct demo_score score;
  int index;
  uint64_t written; /* when the score was written down last */
};

static void write_score(struct watcher *watcher) {
  const struct demo_score *score = &watcher->score;
  off_t place = demo_score_place((uint64_t)watcher->index);
  ssize_t ignored = pwrite(DEMO_SCORES, score, sizeof *score, place);
  (void)ignored; /* a number that is old is better than a demo that stops */
  watcher->written = cudalink_now();
}

/* The producer writes the number down before it sends that frame. */
static int is_counted(struct watcher *watcher, const cudalink_frame *frame) {
  uint64_t from = 0;
  if (!watcher->counted_from && pread(DEMO_SCORES, &from, sizeof from, 0) == (ssize_t)sizeof from)
    watcher->counted_from = from;
  return watcher->counted_from && frame->sequence >= watcher->counted_from;
}

static void say_first_frame(struct watcher *watcher) {
  watcher->score.tally.torn = watcher->before.torn;
  watcher->score.has_frame = 1;
  write_score(watcher);
}

static int take_frame(struct watcher *watcher, cudalink_frame *frame) {
  struct media_error error;
  struct tally *tally = is_counted(watcher, frame) ? &watcher->score.tally : &watcher->before;
  int code = EXIT_CODE_OK;
  if (tally_frame(tally, frame)) {
    int result = host_frame_get(&watcher->host, frame);
    if (result)
      code = report_library(result);
    else if (tally_check(tally, watcher->pattern, frame, watcher->host.data, &error))
      code = report_media(&error);
  }
  cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE);
  if (!code && !watcher->score.has_frame) say_first_frame(watcher);
  return code;
}

/* A frame says what was missed before it; nothing says so of the last ones. */
static void add_last_missed(struct watcher *watcher) {
  struct tally *tally = &watcher->score.tally;
  cudalink_importer_statistics statistics = {.size = sizeof statistics};
  cudalink_importer_get_statistics(watcher->importer, &statistics);
  uint64_t told = watcher->before.missed + tally->missed;
  if (statistics.missed > told) tally->missed += statistics.missed - told;
}

static int take_all(struct watcher *watcher) {
  int code = EXIT_CODE_OK;
  while (!code) {
    cudalink_frame frame;
    int status =
        cudalink_importer_acquire(watcher->importer, CUDALINK_STREAM_COMPLETE, PIECE, &frame);
    if (cudalink_now() - watcher->written >= (uint64_t)PIECE) write_score(watcher);
    if (status == CUDALINK_OK)
      code = take_frame(watcher, &frame);
    else if (status == CUDALINK_ERROR_ENDED)
      return EXIT_CODE_OK;
    else if (status != CUDALINK_ERROR_TIMEOUT && status != CUDALINK_ERROR_EVICTED)
      code = report_library(status);
  }
  return code;
}

/* The producer ends this process by ending the channel. A Ctrl-C, which the terminal sends to all
 * of them, is the producer's business, as is the SIGTERM of timeout(1) or of a service's stop, which
 * all of them get, too; should the producer be killed, the kernel ends this process as well. */
static int bind_to_parent(pid_t parent) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;
}

/* The arguments come from demo_crew.c, not from people. */
static int number_from(const char *text) { return (int)strtol(text, NULL, 10); }

int command_demo_consumer(int argc, char **argv) {
  if (argc != 7) return report(EXIT_CODE_USAGE, "demo-consumer is started by cudalink demo");
  if (!bind_to_parent(number_from(argv[6]))) return EXIT_CODE_SYSTEM;
  struct watcher watcher = {.pattern = (enum pattern)number_from(argv[3]),
                            .index = number_from(argv[5])};
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS,
                                 .name = argv[1],
                                 .policy = (cudalink_policy)number_from(argv[2]),
                                 .device = number_from(argv[4]),
                                 .once = 1,
                                 .open_timeout = OPEN_LIMIT};
  int result = cudalink_importer_open(&watcher.importer, &spec);
  if (result) return report_library(result);
  watcher.score.has_joined = 1;
  write_score(&watcher);
  int code = take_all(&watcher);
  add_last_missed(&watcher);
  write_score(&watcher);
  cudalink_importer_close(watcher.importer);
  host_frame_free(&watcher.host);
  return code;
}
