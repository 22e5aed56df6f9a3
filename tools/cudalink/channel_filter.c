/* SPDX-License-Identifier: MIT
 *
 * Filters. Which GPU has a number only the CUDA driver knows, and by CUDA_VISIBLE_DEVICES for each process
 * anew; it is loaded when one is named so, and with a UUID it is not needed.
 */
#include "channel_filter.h"
#include "gpus.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX 4 /* "GPU-" or "MIG-"; a UUID is the same without it */

int channel_filter_resolve(struct channel_filter *filter) {
  char reason[64];
  if (!filter->device) return EXIT_CODE_OK;
  if (strspn(filter->device, "0123456789") == 0) {
    snprintf(filter->uuid, sizeof filter->uuid, "%s", filter->device);
    return EXIT_CODE_OK;
  }
  const char *failure =
      gpus_uuid(strtol(filter->device, NULL, 10), filter->uuid, reason, sizeof reason);
  if (failure)
    return report(
        EXIT_CODE_SYSTEM,
        "which one is GPU %s? %s; name it by its UUID, as cudalink info and nvidia-smi -L "
        "show it",
        filter->device, failure);
  return EXIT_CODE_OK;
}

static int is_wanted(const struct channel_filter *filter, const cudalink_channel_info *channel) {
  if (filter->kind == CUDALINK_KIND_AUTO && !*filter->uuid) return 1;
  if (channel->status != CUDALINK_OK) return 0;
  if (filter->kind != CUDALINK_KIND_AUTO && channel->kind != (uint32_t)filter->kind) return 0;
  if (!*filter->uuid) return 1;
  const char *wanted = filter->uuid + PREFIX;
  return *channel->device && strncmp(channel->device + PREFIX, wanted, strlen(wanted)) == 0;
}

size_t channel_filter_apply(const struct channel_filter *filter, cudalink_channel_info *channels,
                            size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_wanted(filter, &channels[i])) continue;
    if (kept != i) channels[kept] = channels[i];
    kept++;
  }
  return kept;
}

const char *channel_filter_text(char to[CHANNEL_FILTER_TEXT_SIZE],
                                const struct channel_filter *filter) {
  int has_kind = filter->kind != CUDALINK_KIND_AUTO;
  snprintf(to, CHANNEL_FILTER_TEXT_SIZE, "%s%s%s%s", has_kind ? " of kind " : "",
           has_kind ? option_kinds[filter->kind] : "", *filter->uuid ? " on " : "", filter->uuid);
  return to;
}
