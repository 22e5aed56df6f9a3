/* SPDX-License-Identifier: MIT
 *
 * Why there is no answer from a channel: looks at all of them.
 */
#include "missing.h"
#include "channel_view.h"
#include "nearest.h"
#include "report.h"

#include <stdio.h>
#include <string.h>

static int report_among(const char *name, const char *sentence,
                        const cudalink_channel_info *channels, size_t count) {
  struct nearest nearest = nearest_to(name);
  int is_dead = 0;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(channels[i].name, name) == 0) is_dead = 1;
    if (channels[i].status == CUDALINK_OK) nearest_offer(&nearest, channels[i].name);
  }
  if (is_dead)
    return report(EXIT_CODE_CHANNEL,
                  "channel '%s': its producer has died; cudalink gc removes what it left", name);
  if (nearest.best)
    return report(EXIT_CODE_CHANNEL, "no channel '%s'; did you mean '%s'?", name, nearest.best);
  return report(EXIT_CODE_CHANNEL, "%s", sentence);
}

static int report_not_found(const char *name) {
  cudalink_channel_info *channels;
  size_t count;
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s", cudalink_last_error());
  if (cudalink_channels_list(NULL, CHANNEL_VIEW_PATIENCE, &channels, &count))
    return report(EXIT_CODE_CHANNEL, "%s", sentence);
  int code = report_among(name, sentence, channels, count);
  cudalink_channels_free(channels);
  return code;
}

int missing_report(const char *name, int error) {
  if (error == CUDALINK_ERROR_NOT_FOUND) return report_not_found(name);
  if (error != CUDALINK_ERROR_TIMEOUT && error != CUDALINK_ERROR_BUSY) return report_library(error);
  return report(EXIT_CODE_CHANNEL,
                "channel '%s': its producer does not answer; the process is stopped (fg or kill "
                "-CONT lets it go on), or the machine is very busy",
                name);
}
