/* SPDX-License-Identifier: MIT
 *
 * The consumer processes of `cudalink demo`: this program, started again.
 */
#include "demo.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* In this order, so that also one consumer alone gets every frame. */
static const cudalink_policy policies[] = {CUDALINK_POLICY_EVERY, CUDALINK_POLICY_LATEST,
                                           CUDALINK_POLICY_IN_ORDER};

/* The highest descriptor that may be taken for either is out of the way of the two that the child
 * gets. */
static int move_up(int descriptor) {
  int moved = descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, DEMO_ALIVE + 1);
  if (descriptor >= 0) close(descriptor);
  return moved;
}

static int spawn(struct demo_crew *crew, uint64_t index, int alive, char *const arguments[]) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, crew->scores, DEMO_SCORES);
  posix_spawn_file_actions_adddup2(&actions, alive, DEMO_ALIVE);
  int error = posix_spawn(&crew->consumers[index].pid, "/proc/self/exe", &actions, NULL, arguments,
                          environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return EXIT_CODE_OK;
  crew->consumers[index].pid = 0;
  return report(EXIT_CODE_SYSTEM,
                "a consumer process can't be started (ulimit -u and pids.max limit them): %s",
                strerror(error));
}

static int start_all(struct demo_crew *crew, int alive, const char *channel, enum pattern pattern,
                     int device) {
  char policy_text[12], pattern_text[12], device_text[12], index_text[24], parent_text[12];
  snprintf(pattern_text, sizeof pattern_text, "%d", (int)pattern);
  snprintf(device_text, sizeof device_text, "%d", device);
  snprintf(parent_text, sizeof parent_text, "%d", (int)getpid());
  int code = EXIT_CODE_OK;
  for (uint64_t i = 0; i < crew->count && !code; i++) {
    crew->consumers[i].policy = policies[i % (sizeof policies / sizeof policies[0])];
    snprintf(policy_text, sizeof policy_text, "%d", (int)crew->consumers[i].policy);
    snprintf(index_text, sizeof index_text, "%d", (int)i);
    char *arguments[] = {(char *)"cudalink",
                         (char *)"demo-consumer",
                         (char *)channel,
                         policy_text,
                         pattern_text,
                         device_text,
                         index_text,
                         parent_text,
                         NULL};
    code = spawn(crew, i, alive, arguments);
  }
  return code;
}

int demo_crew_start(struct demo_crew *crew, uint64_t count, const char *channel,
                    enum pattern pattern, int device) {
  int ends[2] = {-1, -1};
  *crew = (struct demo_crew){.count = count};
  crew->scores = move_up(memfd_create("demo scores", MFD_CLOEXEC));
  if (pipe2(ends, O_CLOEXEC) == 0) {
    ends[0] = move_up(ends[0]);
    ends[1] = move_up(ends[1]);
  }
  crew->alive = ends[0];
  if (crew->scores < 0 || ends[0] < 0 || ends[1] < 0 ||
      ftruncate(crew->scores, demo_score_place(count)) != 0)
    return report(EXIT_CODE_SYSTEM,
                  "no pipe or memory file can be made (ulimit -n limits them): %s",
                  strerror(errno));
  int code = start_all(crew, ends[1], channel, pattern, device);
  close(ends[1]); /* the last consumer that ends closes the last copy */
  return code;
}

void demo_crew_read(struct demo_crew *crew) {
  for (uint64_t i = 0; i < crew->count; i++) {
    struct demo_score score;
    off_t place = demo_score_place(i);
    if (pread(crew->scores, &score, sizeof score, place) == (ssize_t)sizeof score)
      crew->consumers[i].score = score;
  }
}

int demo_crew_has_joined(struct demo_crew *crew) {
  demo_crew_read(crew);
  for (uint64_t i = 0; i < crew->count; i++)
    if (!crew->consumers[i].score.has_joined) return 0;
  return 1;
}

int demo_crew_has_frames(struct demo_crew *crew) {
  demo_crew_read(crew);
  for (uint64_t i = 0; i < crew->count; i++)
    if (!crew->consumers[i].score.has_frame) return 0;
  return 1;
}

void demo_crew_count_from(struct demo_crew *crew, uint64_t sequence) {
  ssize_t ignored = pwrite(crew->scores, &sequence, sizeof sequence, 0);
  (void)ignored; /* it is memory; and frames that nobody counts are lost, which is told */
}

int demo_crew_has_ended_one(struct demo_crew *crew) {
  for (uint64_t i = 0; i < crew->count; i++) {
    siginfo_t information = {0};
    pid_t pid = crew->consumers[i].pid;
    if (pid && waitid(P_PID, (id_t)pid, &information, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        information.si_pid)
      return 1;
  }
  return 0;
}

static void collect(struct demo_consumer *consumer) {
  int status;
  while (waitpid(consumer->pid, &status, 0) < 0 && errno == EINTR)
    continue;
  consumer->score.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CODE_SIGNAL + WTERMSIG(status);
  consumer->pid = 0;
}

void demo_crew_finish(struct demo_crew *crew, int64_t limit) {
  struct pollfd entry = {.fd = crew->alive, .events = POLLIN};
  uint64_t end = cudalink_now() + (uint64_t)limit;
  int all_ended = 0;
  for (uint64_t now = cudalink_now(); !all_ended && now < end; now = cudalink_now())
    all_ended = poll(&entry, 1, (int)((end - now) / 1000000 + 1)) > 0;
  demo_crew_read(crew);
  for (uint64_t i = 0; i < crew->count; i++) {
    if (!crew->consumers[i].pid) continue;
    if (!all_ended) kill(crew->consumers[i].pid, SIGKILL);
    collect(&crew->consumers[i]);
  }
  close(crew->alive);
  close(crew->scores);
}
