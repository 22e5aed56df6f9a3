/* SPDX-License-Identifier: MIT
 *
 * The producer's end. Waits are cut into pieces, so that a signal is noticed.
 */
#include "transmitter.h"
#include "environment.h"
#include "gpus.h"
#include "report.h"
#include "stop.h"

#include <stdlib.h>
#include <string.h>

#define PIECE INT64_C(100000000)

int transmitter_open(struct transmitter *transmitter, const cudalink_exporter_spec *spec) {
  *transmitter = (struct transmitter){0};
  cudalink_exporter_spec full = *spec;
  environment_exporter(&full);
  int result = cudalink_exporter_open(&transmitter->exporter, &full);
  if (result) return gpus_report(result);
  transmitter->kind = (cudalink_kind)transmitter_statistics(transmitter).kind;
  return EXIT_CODE_OK;
}

/* A begun frame that will not be sent is nobody's. */
static int abandon(struct transmitter *transmitter, const cudalink_slot *slot, int code) {
  cudalink_exporter_abandon(transmitter->exporter, slot, CUDALINK_STREAM_COMPLETE);
  return code;
}

static void count(struct transmitter *transmitter, const struct transmitter_frame *frame) {
  uint64_t bytes = 0;
  if (frame->fill) cudalink_packed_bytes(frame->description, &bytes);
  transmitter->frames++;
  transmitter->bytes += bytes;
}

static int publish(struct transmitter *transmitter, const struct transmitter_frame *frame,
                   const cudalink_slot *slot) {
  uint32_t user_size = frame->description->user_size;
  if (frame->user && user_size) memcpy(slot->user, frame->user, user_size);
  if (frame->due && stop_wait_until(frame->due)) return abandon(transmitter, slot, EXIT_CODE_OK);
  int result =
      frame->fill ? cudalink_exporter_publish(transmitter->exporter, slot, CUDALINK_STREAM_COMPLETE)
                  : cudalink_exporter_publish_invalid(transmitter->exporter, slot, frame->text);
  if (result) return report_library(result);
  count(transmitter, frame);
  return EXIT_CODE_OK;
}

static int send_in_place(struct transmitter *transmitter, const struct transmitter_frame *frame,
                         struct media_error *error) {
  cudalink_slot slot;
  int result = CUDALINK_ERROR_BUSY;
  while (result == CUDALINK_ERROR_BUSY && !stop_requested())
    result = cudalink_exporter_begin(transmitter->exporter, frame->description, PIECE, &slot);
  if (result == CUDALINK_ERROR_BUSY) return EXIT_CODE_OK;
  if (result) return report_library(result);
  if (frame->fill && frame->fill(frame->context, slot.data, slot.sequence, error))
    return abandon(transmitter, &slot, TRANSMITTER_NOT_FILLED);
  return publish(transmitter, frame, &slot);
}

static int grow_staging(struct transmitter *transmitter, const cudalink_description *description) {
  uint64_t bytes;
  int result = cudalink_description_bytes(description, &bytes);
  if (result) return report_library(result);
  if (bytes == 0) bytes = 1; /* an empty frame needs an address too */
  if (transmitter->staging_bytes >= bytes) return EXIT_CODE_OK;
  free(transmitter->staging);
  transmitter->staging = calloc(1, bytes);
  transmitter->staging_bytes = transmitter->staging ? bytes : 0;
  if (transmitter->staging) return EXIT_CODE_OK;
  return report(EXIT_CODE_SYSTEM, "no memory for a frame of %llu bytes", (unsigned long long)bytes);
}

static int send_copy(struct transmitter *transmitter, const struct transmitter_frame *frame,
                     struct media_error *error) {
  int code = grow_staging(transmitter, frame->description);
  if (code) return code;
  if (frame->fill(frame->context, transmitter->staging, transmitter->frames + 1, error))
    return TRANSMITTER_NOT_FILLED;
  if (frame->due && stop_wait_until(frame->due)) return EXIT_CODE_OK;
  int result = CUDALINK_ERROR_BUSY;
  while (result == CUDALINK_ERROR_BUSY && !stop_requested())
    result = cudalink_exporter_send(transmitter->exporter, frame->description, transmitter->staging,
                                    frame->user, CUDALINK_STREAM_COMPLETE, PIECE);
  if (result == CUDALINK_ERROR_BUSY) return EXIT_CODE_OK;
  if (result) return report_library(result);
  count(transmitter, frame);
  return EXIT_CODE_OK;
}

int transmitter_send_frame(struct transmitter *transmitter, const struct transmitter_frame *frame,
                           struct media_error *error) {
  int is_in_place = transmitter->kind == CUDALINK_KIND_HOST || !frame->fill;
  return is_in_place ? send_in_place(transmitter, frame, error)
                     : send_copy(transmitter, frame, error);
}

static int fill_from_source(void *context, void *to, uint64_t number, struct media_error *error) {
  return source_fill(context, to, number, error);
}

/* A read that a signal ended is no failure. */
int transmitter_send(struct transmitter *transmitter, struct source *source,
                     const cudalink_description *description) {
  struct media_error error;
  struct transmitter_frame frame = {
      .description = description, .fill = fill_from_source, .context = source};
  int code = transmitter_send_frame(transmitter, &frame, &error);
  if (code != TRANSMITTER_NOT_FILLED) return code;
  return stop_requested() ? EXIT_CODE_OK : report_media(&error);
}

int transmitter_wait_consumers(struct transmitter *transmitter, uint64_t count, int64_t limit) {
  int result = CUDALINK_ERROR_TIMEOUT;
  for (; result == CUDALINK_ERROR_TIMEOUT && limit > 0 && !stop_requested(); limit -= PIECE)
    result = cudalink_exporter_wait_consumers(transmitter->exporter, (uint32_t)count, PIECE);
  return result == CUDALINK_OK || stop_requested() ? EXIT_CODE_OK : report_library(result);
}

int transmitter_wait_taken(struct transmitter *transmitter, int64_t limit, int despite_signals) {
  int result = CUDALINK_ERROR_TIMEOUT;
  for (; result == CUDALINK_ERROR_TIMEOUT && limit > 0; limit -= PIECE) {
    if (stop_requested() && !despite_signals) return EXIT_CODE_OK;
    result = cudalink_exporter_wait_taken(transmitter->exporter, PIECE);
  }
  return result ? report_library(result) : EXIT_CODE_OK;
}

cudalink_exporter_statistics transmitter_statistics(const struct transmitter *transmitter) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  cudalink_exporter_get_statistics(transmitter->exporter, &statistics);
  return statistics;
}

void transmitter_close(struct transmitter *transmitter) {
  cudalink_exporter_close(transmitter->exporter);
  free(transmitter->staging);
  *transmitter = (struct transmitter){0};
}
