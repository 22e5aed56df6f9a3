/* SPDX-License-Identifier: MIT
 *
 * Which channels `list` and `watch` show: those of a kind, and on a GPU.
 */
#ifndef CUDALINK_CHANNEL_FILTER_H
#define CUDALINK_CHANNEL_FILTER_H

#include "cudalink/channels.h"
#include "options.h"

/* All zeros: every channel. */
struct channel_filter {
  int kind;           /* cudalink_kind; auto: any */
  const char *device; /* as it was given: a GPU's number, or the beginning of its UUID; NULL: any */
  char uuid[CUDALINK_DEVICE_TEXT_SIZE]; /* its beginning, by channel_filter_resolve */
};

#define CHANNEL_FILTER_ROWS(filter)                                                                \
  {"kind", OPTION_CHOICE, &(filter)->kind, .choices = option_kinds,                                \
   .help = "only channels whose frames are of that kind (default auto, all)"},                     \
  {                                                                                                \
    "device", OPTION_GPU, &(filter)->device,                                                       \
        .value = "N",                                                                              \
        .help = "only channels on that GPU, by number or UUID (default: on any, or none)"          \
  }

/* Finds the UUID of a GPU's number, by this process's driver. An exit code; what failed was reported. */
int channel_filter_resolve(struct channel_filter *filter);

/* Keeps the channels that are wanted, in their order. Those that are not live say nothing of where their
 * frames lie. Returns how many there are now. */
size_t channel_filter_apply(const struct channel_filter *filter, cudalink_channel_info *channels,
                            size_t count);

/* " of kind vmm", " on GPU-8932f937", both, or "". */
#define CHANNEL_FILTER_TEXT_SIZE 128
const char *channel_filter_text(char to[CHANNEL_FILTER_TEXT_SIZE],
                                const struct channel_filter *filter);

#endif
