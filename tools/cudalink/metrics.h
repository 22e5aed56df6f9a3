/* SPDX-License-Identifier: MIT
 *
 * Metrics for Prometheus: `cudalink watch --prometheus`.
 */
#ifndef CUDALINK_METRICS_H
#define CUDALINK_METRICS_H

#include "channel_filter.h"

#include <stdio.h>

/* Answers HTTP requests at a port of 127.0.0.1, or at a UNIX socket, until a signal comes. Only of the
 * channels that are wanted. An exit code. */
int metrics_serve(const char *port_or_path, const struct channel_filter *filter);

/* The channels in Prometheus' text format, version 0.0.4. */
void metrics_print(const cudalink_channel_info *channels, size_t count, uint64_t now, FILE *stream);

#endif
