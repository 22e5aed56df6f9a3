/* SPDX-License-Identifier: MIT
 *
 * channels COUNT: opens that many channels with one frame each, says "ready", and goes on until stdin
 * ends. For tests of commands that look at many.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudalink/cudalink.h"

static int fail(const char *name) {
  fprintf(stderr, "channels: %s: %s\n", name, cudalink_last_error());
  return 1;
}

static int open_channel(int number) {
  static const char pixels[4] = {1, 2, 3, 4};
  char name[32];
  cudalink_exporter exporter;
  cudalink_description description = {0};
  snprintf(name, sizeof name, "channel-%03d", number);
  cudalink_describe_picture(&description, CUDALINK_FORMAT_RGBA8, 1, 1, 1);
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = name,
                                 .description = &description, .kind = CUDALINK_KIND_HOST};
  if (cudalink_exporter_open(&exporter, &spec) < 0) return fail(name);
  if (cudalink_exporter_send(exporter, &description, pixels, NULL, CUDALINK_STREAM_COMPLETE, 0) < 0)
    return fail(name);
  return 0;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 0;
  for (int i = 0; i < count; i++)
    if (open_channel(i)) return 1;
  printf("ready\n");
  fflush(stdout);
  while (getchar() != EOF)
    ;
  return 0; /* closes nothing: the process' end has to do */
}
