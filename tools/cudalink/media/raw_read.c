/* SPDX-License-Identifier: MIT
 *
 * Reads raw frames: nothing but packed pictures of a format and size that the caller declares.
 */
#include "media/reader.h"

static int raw_start(struct media_reader *reader, struct media_error *error) {
  const struct media_reader_options *options = &reader->options;
  reader->description = (cudalink_description){0};
  int result = cudalink_describe_picture(&reader->description, options->raw_format, options->width,
                                         options->height, 1);
  if (result) return media_fail_library(error, result, "%s", reader->input.name);
  return CUDALINK_OK;
}

static int raw_next(struct media_reader *reader, struct media_error *error) {
  const uint8_t *bytes;
  return (int)media_input_peek(&reader->input, 1, &bytes, error);
}

static int raw_read(struct media_reader *reader, uint8_t *packed, struct media_error *error) {
  return media_read_exactly(reader, packed, reader->packed_bytes, error);
}

const struct media_decoder media_raw_decoder = {.start = raw_start,
                                                .next = raw_next,
                                                .read = raw_read};
