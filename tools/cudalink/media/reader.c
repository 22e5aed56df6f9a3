/* SPDX-License-Identifier: MIT
 *
 * The reader: finds out what kind of file it has, and takes frames from it one by one.
 */
#include "media/reader.h"
#include "media/recording.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int is_folder(const char *path) {
  struct stat status;
  return strcmp(path, "-") != 0 && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Every format that we read starts with bytes of its own, so names of files do not matter. */
static int find_decoder(struct media_reader *reader, struct media_error *error) {
  const uint8_t *bytes;
  if (reader->options.raw_format) {
    reader->decoder = &media_raw_decoder;
    return CUDALINK_OK;
  }
  int64_t count = media_input_peek(&reader->input, 10, &bytes, error);
  if (count < 0) return (int)count;
  if (count == 0)
    return media_fail(error, CUDALINK_ERROR_INVALID_ARGUMENT, "%s: is empty", reader->input.name);
  if (count >= 9 && memcmp(bytes, "YUV4MPEG2", 9) == 0)
    reader->decoder = &media_y4m_decoder;
  else if (count >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
    reader->decoder = &media_png_decoder;
  else if (count >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0)
    reader->decoder = &media_npy_decoder;
  else if (count >= 8 && memcmp(bytes, MEDIA_RECORDING_MAGIC, 8) == 0)
    return media_fail(error, CUDALINK_ERROR_INVALID_ARGUMENT,
                      "%s: is a recording; cudalink replay sends it", reader->input.name);
  else
    return media_fail(error, CUDALINK_ERROR_INVALID_ARGUMENT,
                      "%s: is no Y4M, PNG or NPY file; raw frames need --format and --size, other "
                      "files ffmpeg: ffmpeg -i FILE -f yuv4mpegpipe - | cudalink send NAME -",
                      reader->input.name);
  return CUDALINK_OK;
}

static int open_input(struct media_reader *reader, const char *path, struct media_error *error) {
  if (is_folder(path)) {
    reader->decoder = &media_folder_decoder;
    strncpy(reader->input.name, path, sizeof reader->input.name - 1);
    return CUDALINK_OK;
  }
  int result = media_input_open(&reader->input, path, reader->options.stop, error);
  return result ? result : find_decoder(reader, error);
}

struct media_reader *media_reader_open(const char *path, const struct media_reader_options *options,
                                       struct media_error *error) {
  struct media_reader *reader = calloc(1, sizeof *reader);
  if (!reader) {
    media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%s: no memory to read it", path);
    return NULL;
  }
  reader->input.descriptor = -1;
  if (options) reader->options = *options;
  int result = open_input(reader, path, error);
  if (!result && reader->decoder->start) result = reader->decoder->start(reader, error);
  if (!result) return reader;
  media_reader_close(reader);
  return NULL;
}

void media_reader_close(struct media_reader *reader) {
  if (!reader) return;
  if (reader->decoder && reader->decoder->stop) reader->decoder->stop(reader);
  media_input_close(&reader->input);
  free(reader->scratch);
  free(reader);
}

static void set_timing(struct media_reader *reader) {
  cudalink_timing *timing = &reader->description.timing;
  if (!timing->rate_numerator || !timing->rate_denominator) {
    timing->rate_numerator = reader->options.rate_numerator;
    timing->rate_denominator = reader->options.rate_denominator;
  }
  if (!timing->rate_numerator || !timing->rate_denominator) {
    *timing = (cudalink_timing){0};
    return;
  }
  timing->time_base_numerator = timing->rate_denominator;
  timing->time_base_denominator = timing->rate_numerator;
  timing->pts = (int64_t)reader->pts;
  timing->duration = 1;
}

int media_reader_next(struct media_reader *reader, const cudalink_description **description,
                      struct media_error *error) {
  *description = &reader->description;
  if (reader->has_next) return 1;
  if (reader->has_ended) return 0;
  int result = reader->decoder->next(reader, error);
  if (result > 0) {
    set_timing(reader);
    if (cudalink_packed_bytes(&reader->description, &reader->packed_bytes))
      result = media_fail_library(error, CUDALINK_ERROR_INVALID_ARGUMENT, "%s: frame %llu",
                                  reader->input.name, (unsigned long long)reader->frame);
  }
  reader->has_next = result > 0;
  reader->has_ended = result <= 0;
  return result;
}

static int same_layout(const cudalink_description *a, const cudalink_description *b) {
  if (a->plane_count != b->plane_count) return 0;
  for (uint32_t i = 0; i < a->plane_count; i++) {
    const cudalink_plane *x = &a->planes[i], *y = &b->planes[i];
    size_t used = x->dimensions * sizeof x->shape[0];
    if (x->offset != y->offset || x->dimensions != y->dimensions ||
        memcmp(&x->dtype, &y->dtype, sizeof x->dtype) != 0 ||
        memcmp(x->shape, y->shape, used) != 0 || memcmp(x->strides, y->strides, used) != 0)
      return 0;
  }
  return 1;
}

static int grow_scratch(struct media_reader *reader, struct media_error *error) {
  if (reader->scratch_size >= reader->packed_bytes) return CUDALINK_OK;
  free(reader->scratch);
  reader->scratch = malloc(reader->packed_bytes);
  reader->scratch_size = reader->scratch ? reader->packed_bytes : 0;
  if (reader->scratch) return CUDALINK_OK;
  return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%s: no memory for a frame of %llu bytes",
                    reader->input.name, (unsigned long long)reader->packed_bytes);
}

/* Straight into the slot where it is laid out like the file, else by way of packed bytes. */
static int read_into(struct media_reader *reader, const cudalink_description *slot_description,
                     void *slot, struct media_error *error) {
  if (same_layout(slot_description, &reader->description))
    return reader->decoder->read(reader, slot, error);
  int result = grow_scratch(reader, error);
  if (!result) result = reader->decoder->read(reader, reader->scratch, error);
  if (result) return result;
  result = cudalink_unpack(slot_description, reader->scratch, reader->packed_bytes, slot);
  if (!result) return result;
  return media_fail_library(error, result, "%s: frame %llu does not fit the slot",
                            reader->input.name, (unsigned long long)reader->frame);
}

int media_reader_read(struct media_reader *reader, const cudalink_description *slot_description,
                      void *slot, struct media_error *error) {
  if (!reader->has_next)
    return media_fail(error, CUDALINK_ERROR_INVALID_ARGUMENT, "%s: no frame to read",
                      reader->input.name);
  int result = read_into(reader, slot_description, slot, error);
  reader->has_next = 0;
  reader->has_ended = result != 0;
  reader->frame++;
  reader->pts++;
  return result;
}

int media_reader_rewind(struct media_reader *reader, struct media_error *error) {
  int result = CUDALINK_OK;
  if (reader->decoder->stop) reader->decoder->stop(reader);
  if (reader->input.descriptor >= 0) result = media_input_rewind(&reader->input, error);
  if (!result && reader->decoder->start) result = reader->decoder->start(reader, error);
  reader->frame = 0;
  reader->has_next = 0;
  reader->has_ended = result != 0;
  return result;
}

int media_read_exactly(struct media_reader *reader, void *to, uint64_t size,
                       struct media_error *error) {
  int64_t count = media_input_read(&reader->input, to, size, error);
  if (count < 0) return (int)count;
  uint64_t missing = size - (uint64_t)count;
  if (!missing) return CUDALINK_OK;
  return media_fail(error, CUDALINK_ERROR_INVALID_ARGUMENT,
                    "%s: is cut off in frame %llu (the first is 0), %llu of its %llu byte%s %s "
                    "missing",
                    reader->input.name, (unsigned long long)reader->frame,
                    (unsigned long long)missing, (unsigned long long)size, text_s(size),
                    missing == 1 ? "is" : "are");
}
