/* SPDX-License-Identifier: MIT
 *
 * What `send` and `replay` have in common.
 */
#include "sending.h"
#include "channel_view.h"
#include "exit_code.h"
#include "stop.h"
#include "text.h"

#include <stdio.h>

#define USUAL_MAX_SLOTS 16 /* of the library; more than that has to be asked for */

int sending_open(const struct sending_options *options, struct transmitter *transmitter,
                 const cudalink_exporter_spec *spec) {
  cudalink_exporter_spec full = *spec;
  full.slots = (uint32_t)options->slots;
  if (full.slots > USUAL_MAX_SLOTS) full.max_slots = full.slots;
  full.kind = (cudalink_kind)options->kind;
  full.device = option_device(options->device);
  return transmitter_open(transmitter, &full);
}

int sending_wait_consumers(const struct sending_options *options, struct transmitter *transmitter) {
  if (!options->wait_consumers) return EXIT_CODE_OK;
  return transmitter_wait_consumers(transmitter, options->wait_consumers, CUDALINK_FOREVER);
}

uint64_t sending_end(const struct sending_options *options, uint64_t start) {
  return options->seconds ? start + (uint64_t)options->seconds : 0;
}

int sending_is_over(const struct sending_options *options, const struct transmitter *transmitter,
                    uint64_t end) {
  if (stop_requested()) return 1;
  if (options->count && transmitter->frames >= options->count) return 1;
  return end && cudalink_now() >= end;
}

void sending_print_way(const struct transmitter *transmitter, const char *name) {
  cudalink_exporter_statistics statistics = transmitter_statistics(transmitter);
  char escaped[TEXT_ESCAPED_SIZE(CUDALINK_NAME_MAX)];
  printf("channel %s: kind %s, %s\n", text_escape(escaped, sizeof escaped, name),
         cudalink_kind_name(transmitter->kind), channel_view_way(statistics.path));
  fflush(stdout);
}

void sending_json_way(struct json *json, const struct transmitter *transmitter) {
  cudalink_exporter_statistics statistics = transmitter_statistics(transmitter);
  json_text(json, "kind", cudalink_kind_name(transmitter->kind));
  json_text(json, "path", statistics.path);
  json_text(json, "reason", statistics.reason);
}

void sending_json_counts(struct json *json, const struct transmitter *transmitter) {
  cudalink_exporter_statistics statistics = transmitter_statistics(transmitter);
  json_number(json, "dropped", statistics.dropped);
  json_number(json, "waits", statistics.waits);
  json_number(json, "evicted", statistics.evicted);
  json_number(json, "cursors_lost", statistics.cursors_lost);
  json_number(json, "consumers", statistics.consumers);
}
