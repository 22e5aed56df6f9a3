/* SPDX-License-Identifier: MIT
 *
 * epoll_loop NAME...: one thread that waits for frames of several channels, for Ctrl-C and for a timer,
 * as a server or a program with windows does.
 */
#include <cudalink/cudalink.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MOST_CHANNELS 16

struct channel {
  const char *name;
  cudalink_importer importer;
  uint64_t frames;
  int ended;
};

static struct channel channels[MOST_CHANNELS];
static int count, ended, epoll;

static _Noreturn void die(const char *what, const char *why) {
  fprintf(stderr, "epoll_loop: %s: %s\n", what, why);
  exit(EXIT_FAILURE);
}

static void watch(int descriptor, void *source) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0) die("epoll_ctl", strerror(errno));
}

/* Takes all there is, then arms the descriptor: it becomes readable at the next change. Arming
 * answers BUSY when something came in between. */
static void drain(struct channel *channel) {
  while (!channel->ended && cudalink_importer_arm(channel->importer) == CUDALINK_ERROR_BUSY) {
    cudalink_frame frame;
    int status = cudalink_importer_acquire(channel->importer, CUDALINK_STREAM_COMPLETE, 0, &frame);
    if (status == CUDALINK_OK) {
      channel->frames++;
      cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
    } else if (status == CUDALINK_ERROR_ENDED) {
      ended += channel->ended = 1;
      cudalink_importer_close(channel->importer); /* and with it the descriptor */
      printf("%s ended after %" PRIu64 " frames\n", channel->name, channel->frames);
    } else if (status != CUDALINK_ERROR_TIMEOUT) {
      printf("%s: %s\n", channel->name, cudalink_last_error());
    }
  }
}

static void open_channel(struct channel *channel, const char *name) {
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = name};
  int descriptor;
  channel->name = name;
  if (cudalink_importer_open(&channel->importer, &spec) < 0 ||
      cudalink_importer_descriptor(channel->importer, &descriptor) < 0)
    die(name, cudalink_last_error());
  watch(descriptor, channel);
  drain(channel);
}

int main(int argc, char **argv) {
  setlinebuf(stdout);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  int ctrl_c = signalfd(-1, &signals, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
  timerfd_settime(timer, 0, &(struct itimerspec){{1, 0}, {1, 0}}, NULL);

  epoll = epoll_create1(0);
  watch(ctrl_c, &ctrl_c);
  watch(timer, &timer);
  for (; count < argc - 1 && count < MOST_CHANNELS; count++)
    open_channel(&channels[count], argv[count + 1]);

  struct epoll_event event = {0};
  while (ended < count && event.data.ptr != &ctrl_c) {
    uint64_t times;
    if (epoll_wait(epoll, &event, 1, -1) < 1 || event.data.ptr == &ctrl_c) continue;
    if (event.data.ptr != &timer)
      drain(event.data.ptr);
    else if (read(timer, &times, sizeof times) > 0)
      for (int i = 0; i < count; i++)
        printf("%s: %" PRIu64 " frames\n", channels[i].name, channels[i].frames);
  }
  for (int i = 0; i < count; i++)
    if (!channels[i].ended) cudalink_importer_close(channels[i].importer);
  return EXIT_SUCCESS;
}
