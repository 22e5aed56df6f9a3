/* SPDX-License-Identifier: MIT
 *
 * Writing recordings.
 */
#include "media/recording.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

/* Head, planes and user data of one frame, as they are written. */
struct block {
  struct media_recording_frame frame;
  struct media_recording_plane planes[CUDALINK_MAX_PLANES];
};

/* Everything behind a crc field. */
#define CRC_FROM(block, field) (offsetof(block, field) + sizeof(uint32_t))

static uint32_t add_crc(uint32_t crc, const void *bytes, size_t size) {
  return (uint32_t)crc32_z(crc, bytes, size);
}

int media_recorder_open(struct media_recorder *recorder, const char *path, const char *channel,
                        const volatile sig_atomic_t *stop, struct media_error *error) {
  recorder->frames = 0;
  snprintf(recorder->channel, sizeof recorder->channel, "%s", channel);
  return media_output_open(&recorder->output, path, stop, error);
}

static int write_head(struct media_recorder *recorder, struct media_error *error) {
  struct media_recording_head head = {.magic = MEDIA_RECORDING_MAGIC,
                                      .version = MEDIA_RECORDING_VERSION};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  head.time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  memcpy(head.channel, recorder->channel, sizeof recorder->channel);
  size_t from = CRC_FROM(struct media_recording_head, crc);
  head.crc = add_crc(0, (const char *)&head + from, sizeof head - from);
  return media_output_write(&recorder->output, &head, sizeof head, error);
}

static void fill_plane(struct media_recording_plane *to, const cudalink_plane *from) {
  *to = (struct media_recording_plane){.code = from->dtype.code,
                                       .bits = from->dtype.bits,
                                       .lanes = from->dtype.lanes,
                                       .dimensions = from->dimensions,
                                       .offset = from->offset,
                                       .bytes = from->bytes};
  memcpy(to->name, from->name, sizeof to->name);
  memcpy(to->shape, from->shape, from->dimensions * sizeof to->shape[0]);
  memcpy(to->strides, from->strides, from->dimensions * sizeof to->strides[0]);
}

static void fill_picture(struct media_recording_frame *to, const cudalink_picture *from) {
  to->picture_format = from->format;
  to->picture_width = from->width;
  to->picture_height = from->height;
  to->primaries = from->primaries;
  to->transfer = from->transfer;
  to->matrix = from->matrix;
  to->range = from->range;
  to->origin = from->origin;
  to->alpha = from->alpha;
  to->field_order = from->field_order;
  to->chroma_location = from->chroma_location;
  to->pixel_aspect_numerator = from->pixel_aspect_numerator;
  to->pixel_aspect_denominator = from->pixel_aspect_denominator;
}

static void fill_timing(struct media_recording_frame *to, const cudalink_timing *from) {
  to->pts = from->pts;
  to->duration = from->duration;
  to->time_base_numerator = from->time_base_numerator;
  to->time_base_denominator = from->time_base_denominator;
  to->rate_numerator = from->rate_numerator;
  to->rate_denominator = from->rate_denominator;
  memcpy(to->clock, from->clock, sizeof to->clock);
}

/* Without pixels there are no planes either: they would mean nothing. */
static void fill(struct block *block, const cudalink_frame *frame, const void *data) {
  struct media_recording_frame *head = &block->frame;
  const cudalink_description *description = &frame->description;
  memset(block, 0, sizeof *block);
  memcpy(head->mark, MEDIA_RECORDING_MARK, sizeof head->mark);
  if (frame->flags & CUDALINK_FRAME_INVALID) head->flags |= MEDIA_RECORDING_INVALID;
  if (frame->flags & CUDALINK_FRAME_LOST) head->flags |= MEDIA_RECORDING_LOST;
  head->sequence = frame->sequence;
  head->timestamp = frame->timestamp;
  head->missed = frame->missed;
  head->session = frame->session;
  head->user_size = frame->user ? description->user_size : 0;
  fill_picture(head, &description->picture);
  fill_timing(head, &description->timing);
  memcpy(head->text, frame->text, sizeof head->text);
  if (head->flags) return;
  head->data_bytes = media_recording_span(description);
  head->plane_count = description->plane_count;
  for (uint32_t i = 0; i < head->plane_count; i++)
    fill_plane(&block->planes[i], &description->planes[i]);
  head->data_crc = add_crc(0, data, head->data_bytes);
}

static int write_frame(struct media_recorder *recorder, const cudalink_frame *frame,
                       const void *data, struct media_error *error) {
  struct block block;
  fill(&block, frame, data);
  struct media_recording_frame *head = &block.frame;
  size_t from = CRC_FROM(struct media_recording_frame, crc);
  size_t bytes = sizeof *head + head->plane_count * sizeof block.planes[0];
  head->crc = add_crc(0, (const char *)head + from, bytes - from);
  head->crc = add_crc(head->crc, frame->user ? frame->user : "", head->user_size);
  int result = media_output_write(&recorder->output, &block, bytes, error);
  if (!result && head->user_size)
    result = media_output_write(&recorder->output, frame->user, head->user_size, error);
  if (!result && head->data_bytes)
    result = media_output_write(&recorder->output, data, head->data_bytes, error);
  return result;
}

int media_recorder_write(struct media_recorder *recorder, const cudalink_frame *frame,
                         const void *data, struct media_error *error) {
  uint64_t start = recorder->output.position;
  int result = recorder->frames == 0 ? write_head(recorder, error) : CUDALINK_OK;
  if (!result) result = write_frame(recorder, frame, data, error);
  if (result)
    media_output_cut(&recorder->output, start);
  else
    recorder->frames++;
  return result;
}

int media_recorder_close(struct media_recorder *recorder, struct media_error *error) {
  if (recorder->frames == 0) media_output_discard(&recorder->output);
  return media_output_close(&recorder->output, error);
}
