/* SPDX-License-Identifier: MIT
 *
 * workers NAME [COUNT]: a group of processes that share the frames of a channel. Each frame goes to
 * exactly one worker, to whoever is free; a frame whose worker dies goes to another one.
 */
#include <cudalink/cudalink.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORKERS 32

/* What a worker would do with a frame: inference, encoding, ... */
static void work(int number, const cudalink_frame *frame) {
  printf("worker %d: frame %" PRIu64 "%s\n", number, frame->sequence,
         frame->flags & CUDALINK_FRAME_REDELIVERED ? " (another worker died with it)" : "");
  fflush(stdout);
}

static int run_worker(int number, const char *name) {
  cudalink_importer importer;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = name,
                                 .policy = CUDALINK_POLICY_SHARED, .group = "workers"};
  if (cudalink_importer_open(&importer, &spec) < 0) {
    fprintf(stderr, "worker %d: %s\n", number, cudalink_last_error());
    return EXIT_FAILURE;
  }
  cudalink_frame frame;
  int status;
  while ((status = cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER,
                                             &frame)) == CUDALINK_OK) {
    work(number, &frame);
    cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  }
  if (status != CUDALINK_ERROR_ENDED)
    fprintf(stderr, "worker %d: %s\n", number, cudalink_last_error());
  cudalink_importer_close(importer);
  return status == CUDALINK_ERROR_ENDED ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "picture";
  int count = argc > 2 ? atoi(argv[2]) : 3, failures = 0;
  if (count > MOST_WORKERS) count = MOST_WORKERS;

  /* The library is used in the children only: its threads do not survive a fork. */
  for (int number = 1; number <= count; number++) {
    pid_t pid = fork();
    if (pid == 0) return run_worker(number, name);
    if (pid < 0) perror("fork");
  }
  int status;
  while (wait(&status) > 0)
    failures += status != 0;
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
