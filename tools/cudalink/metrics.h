/* SPDX-License-Identifier: MIT
 *
 * Metrics for Prometheus: `cudalink watch --prometheus`.
 */
#ifndef CUDALINK_METRICS_H
#define CUDALINK_METRICS_H

#include "cudalink/channels.h"

#include <stdio.h>

/* Answers HTTP requests at a port of 127.0.0.1, or at a UNIX socket, until a signal comes. Only of channels
 * of that kind; auto: of all. An exit code. */
int metrics_serve(const char *port_or_path, cudalink_kind kind);

/* The channels in Prometheus' text format, version 0.0.4. */
void metrics_print(const cudalink_channel_info *channels, size_t count, uint64_t now, FILE *stream);

#endif
