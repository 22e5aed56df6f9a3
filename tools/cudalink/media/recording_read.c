/* SPDX-License-Identifier: MIT
 *
 * Reading recordings. Nothing in the file is believed before it was checked: not a length, not a
 * count, not a text that has to end.
 */
#include "media/recording.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT
#define CRC_FROM(block, field) (offsetof(block, field) + sizeof(uint32_t))

uint64_t media_recording_span(const cudalink_description *description) {
  uint64_t span = 0;
  for (uint32_t i = 0; i < description->plane_count; i++) {
    const cudalink_plane *plane = &description->planes[i];
    if (plane->bytes > UINT64_MAX - plane->offset) return UINT64_MAX;
    if (plane->offset + plane->bytes > span) span = plane->offset + plane->bytes;
  }
  return span;
}

/* ---- errors --------------------------------------------------------------------------------- */

/* `offset` is where the frame begins. */
static int fail_cut(struct media_recording *recording, uint64_t offset, struct media_error *error) {
  recording->is_cut = 1;
  return media_fail(error, INVALID,
                    "%s: is cut off in frame %" PRIu64 " (the first is 0), which begins at byte "
                    "%" PRIu64 "; the frames before it are whole",
                    recording->input.name, recording->frames, offset);
}

static int fail_damaged(const struct media_recording *recording, uint64_t offset, const char *what,
                        struct media_error *error) {
  return media_fail(error, INVALID,
                    "%s: is damaged: %s of frame %" PRIu64 " (the first is 0) at byte %" PRIu64,
                    recording->input.name, what, recording->frames, offset);
}

/* Reads all of it, or answers how much less there was. */
static int64_t read_part(struct media_recording *recording, void *to, uint64_t size,
                         struct media_error *error) {
  int64_t count = media_input_read(&recording->input, to, size, error);
  if (count > 0) recording->offset += (uint64_t)count;
  return count;
}

/* ---- the head ------------------------------------------------------------------------------- */

static int check_head(const struct media_recording *recording, int64_t count,
                      struct media_error *error) {
  const struct media_recording_head *head = &recording->head;
  size_t from = CRC_FROM(struct media_recording_head, crc);
  const char *name = recording->input.name;
  if (count == 0) return media_fail(error, INVALID, "%s: is empty", name);
  if (count < (int64_t)sizeof head->magic ||
      memcmp(head->magic, MEDIA_RECORDING_MAGIC, sizeof head->magic) != 0)
    return media_fail(error, INVALID, "%s: is no recording of cudalink record", name);
  if (count < (int64_t)sizeof *head)
    return media_fail(error, INVALID, "%s: is cut off in its head, at byte %" PRId64, name, count);
  if (head->version < 1 || head->version > MEDIA_RECORDING_VERSION)
    return media_fail(error, CUDALINK_ERROR_VERSION,
                      "%s: is of version %u; this program reads versions 1 to %u", name,
                      head->version, MEDIA_RECORDING_VERSION);
  if (head->crc != crc32_z(0, (const uint8_t *)head + from, sizeof *head - from) ||
      !memchr(head->channel, 0, sizeof head->channel))
    return media_fail(error, INVALID, "%s: is damaged: its head, at byte 0", name);
  return CUDALINK_OK;
}

static int read_head(struct media_recording *recording, struct media_error *error) {
  recording->offset = 0;
  recording->frames = 0;
  int64_t count = read_part(recording, &recording->head, sizeof recording->head, error);
  if (count < 0) return (int)count;
  int result = check_head(recording, count, error);
  recording->head_bytes = recording->head.version == 1 ? MEDIA_RECORDING_FRAME_BYTES_1
                                                       : sizeof(struct media_recording_frame);
  return result;
}

int media_recording_open(struct media_recording *recording, const char *path,
                         const volatile sig_atomic_t *stop, struct media_error *error) {
  struct stat status;
  memset(recording, 0, sizeof *recording);
  recording->input.descriptor = -1;
  recording->user = malloc(CUDALINK_MAX_USER_SIZE);
  if (!recording->user)
    return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%.200s: no memory to read it", path);
  int result = media_input_open(&recording->input, path, stop, error);
  if (!result && fstat(recording->input.descriptor, &status) == 0 && S_ISREG(status.st_mode))
    recording->file_bytes = (uint64_t)status.st_size;
  if (!result) result = read_head(recording, error);
  if (result) media_recording_close(recording);
  return result;
}

void media_recording_close(struct media_recording *recording) {
  if (recording->input.descriptor >= 0) media_input_close(&recording->input);
  free(recording->user);
  recording->user = NULL;
}

int media_recording_rewind(struct media_recording *recording, struct media_error *error) {
  int result = media_input_rewind(&recording->input, error);
  return result ? result : read_head(recording, error);
}

/* ---- a frame -------------------------------------------------------------------------------- */

static void take_plane(cudalink_plane *to, const struct media_recording_plane *from) {
  *to = (cudalink_plane){.dtype = {from->code, from->bits, from->lanes},
                         .dimensions = from->dimensions,
                         .offset = from->offset,
                         .bytes = from->bytes};
  memcpy(to->name, from->name, sizeof to->name);
  memcpy(to->shape, from->shape, sizeof to->shape);
  memcpy(to->strides, from->strides, sizeof to->strides);
}

static void take_description(cudalink_description *to, const struct media_recording_frame *from,
                             const struct media_recording_plane *planes) {
  memset(to, 0, sizeof *to);
  to->plane_count = from->plane_count;
  to->user_size = from->user_size;
  to->picture = (cudalink_picture){.format = from->picture_format,
                                   .width = from->picture_width,
                                   .height = from->picture_height,
                                   .primaries = from->primaries,
                                   .transfer = from->transfer,
                                   .matrix = from->matrix,
                                   .range = from->range,
                                   .origin = from->origin,
                                   .alpha = from->alpha,
                                   .field_order = from->field_order,
                                   .chroma_location = from->chroma_location,
                                   .pixel_aspect_numerator = from->pixel_aspect_numerator,
                                   .pixel_aspect_denominator = from->pixel_aspect_denominator};
  to->timing = (cudalink_timing){.pts = from->pts,
                                 .duration = from->duration,
                                 .time_base_numerator = from->time_base_numerator,
                                 .time_base_denominator = from->time_base_denominator,
                                 .rate_numerator = from->rate_numerator,
                                 .rate_denominator = from->rate_denominator};
  memcpy(to->timing.clock, from->clock, sizeof to->timing.clock);
  for (uint32_t i = 0; i < from->plane_count; i++)
    take_plane(&to->planes[i], &planes[i]);
}

/* What has to hold before anything behind it can be read. */
static int is_head_possible(const struct media_recording_frame *frame) {
  if (memcmp(frame->mark, MEDIA_RECORDING_MARK, sizeof frame->mark) != 0) return 0;
  if (frame->plane_count > CUDALINK_MAX_PLANES || frame->user_size > CUDALINK_MAX_USER_SIZE)
    return 0;
  int has_pixels = !(frame->flags & (MEDIA_RECORDING_INVALID | MEDIA_RECORDING_LOST));
  return has_pixels ? frame->plane_count > 0 : !frame->plane_count && !frame->data_bytes;
}

/* What a good checksum does not say: that a text ends, that the planes lie in the pixels. */
static int is_content_possible(const struct media_recording *recording) {
  const struct media_recording_frame *frame = &recording->frame;
  if (!memchr(frame->text, 0, sizeof frame->text)) return 0;
  if (!memchr(frame->clock, 0, sizeof frame->clock)) return 0;
  if (!frame->plane_count) return 1;
  for (uint32_t i = 0; i < frame->plane_count; i++)
    if (!memchr(recording->description.planes[i].name, 0, CUDALINK_PLANE_NAME_SIZE) ||
        recording->description.planes[i].dimensions > CUDALINK_MAX_DIMENSIONS)
      return 0;
  return frame->data_bytes < INT64_MAX &&
         frame->data_bytes == media_recording_span(&recording->description);
}

static int is_beyond_the_end(const struct media_recording *recording) {
  return recording->file_bytes &&
         (recording->offset > recording->file_bytes ||
          recording->frame.data_bytes > recording->file_bytes - recording->offset);
}

/* Planes and user data, and the checksum over them and the head. */
static int read_rest(struct media_recording *recording, uint64_t start, struct media_error *error) {
  struct media_recording_plane planes[CUDALINK_MAX_PLANES];
  struct media_recording_frame *frame = &recording->frame;
  uint64_t plane_bytes = frame->plane_count * sizeof planes[0];
  size_t from = CRC_FROM(struct media_recording_frame, crc);
  int64_t count = read_part(recording, planes, plane_bytes, error);
  if (count == (int64_t)plane_bytes) {
    count = read_part(recording, recording->user, frame->user_size, error);
    if (count >= 0 && count < (int64_t)frame->user_size) return fail_cut(recording, start, error);
  } else if (count >= 0) {
    return fail_cut(recording, start, error);
  }
  if (count < 0) return (int)count;
  unsigned long crc = crc32_z(0, (const uint8_t *)frame + from, recording->head_bytes - from);
  crc = crc32_z(crc, (const uint8_t *)planes, plane_bytes);
  crc = crc32_z(crc, recording->user, frame->user_size);
  if (crc != frame->crc) return fail_damaged(recording, start, "the head", error);
  take_description(&recording->description, frame, planes);
  if (!is_content_possible(recording))
    return fail_damaged(recording, start, "the description", error);
  return is_beyond_the_end(recording) ? fail_cut(recording, start, error) : 1;
}

int media_recording_next(struct media_recording *recording, struct media_error *error) {
  uint64_t start = recording->offset;
  recording->is_cut = 0;
  memset(&recording->frame, 0, sizeof recording->frame);
  int64_t count = read_part(recording, &recording->frame, recording->head_bytes, error);
  if (count <= 0) return (int)count;
  if (count < (int64_t)recording->head_bytes) return fail_cut(recording, start, error);
  if (!is_head_possible(&recording->frame))
    return fail_damaged(recording, start, "the head", error);
  return read_rest(recording, start, error);
}

int media_recording_read(struct media_recording *recording, void *to, struct media_error *error) {
  const struct media_recording_frame *frame = &recording->frame;
  uint64_t start = recording->offset;
  int64_t count = read_part(recording, to, frame->data_bytes, error);
  if (count < 0) return (int)count;
  if ((uint64_t)count < frame->data_bytes)
    return fail_cut(recording,
                    start - frame->user_size -
                        frame->plane_count * sizeof(struct media_recording_plane) -
                        recording->head_bytes,
                    error);
  if (crc32_z(0, to, frame->data_bytes) != frame->data_crc)
    return fail_damaged(recording, start, "the pixels", error);
  recording->frames++;
  return CUDALINK_OK;
}
