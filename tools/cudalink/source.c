/* SPDX-License-Identifier: MIT
 *
 * Where frames to send come from.
 */
#include "source.h"
#include "stop.h"

#include <stdlib.h>
#include <string.h>

static const struct option_rate default_rate = {60, 1};
static const struct option_size default_size = {1280, 720};

struct source {
  struct source_options options;
  struct media_reader *reader; /* NULL: a pattern */
  cudalink_description description;
  uint64_t frames;        /* drawn */
  uint64_t frames_of_run; /* read since the start of the file */
  void *still;            /* a pattern that stands still is drawn once */
};

static int open_pattern(struct source *source, struct media_error *error) {
  struct source_options *options = &source->options;
  if (!options->format) options->format = CUDALINK_FORMAT_RGBA8;
  if (!options->size.width) options->size = default_size;
  int result = cudalink_describe_picture(&source->description, (cudalink_format)options->format,
                                         options->size.width, options->size.height, 0);
  if (result)
    return media_fail_library(error, result, "pattern %s", pattern_name(options->pattern));
  pattern_set_colour(&source->description);
  return CUDALINK_OK;
}

static int open_file(struct source *source, struct media_error *error) {
  const struct source_options *options = &source->options;
  struct media_reader_options reader_options = {.raw_format = (cudalink_format)options->format,
                                                .width = options->size.width,
                                                .height = options->size.height,
                                                .rate_numerator = default_rate.numerator,
                                                .rate_denominator = default_rate.denominator,
                                                .stop = stop_flag()};
  source->reader = media_reader_open(options->path, &reader_options, error);
  return source->reader ? CUDALINK_OK : error->code;
}

struct source *source_open(const struct source_options *options, struct media_error *error) {
  struct source *source = calloc(1, sizeof *source);
  if (!source) {
    media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory for the source of frames");
    return NULL;
  }
  source->options = *options;
  int result = options->path ? open_file(source, error) : open_pattern(source, error);
  if (result == CUDALINK_OK) return source;
  source_close(source);
  return NULL;
}

void source_close(struct source *source) {
  if (!source) return;
  media_reader_close(source->reader);
  free(source->still);
  free(source);
}

static void set_rate(cudalink_timing *timing, struct option_rate rate) {
  timing->rate_numerator = timing->time_base_denominator = rate.numerator;
  timing->rate_denominator = timing->time_base_numerator = rate.denominator;
}

static int next_of_pattern(struct source *source) {
  cudalink_timing *timing = &source->description.timing;
  struct option_rate rate = source->options.rate;
  if (rate.denominator == 0) rate = default_rate;
  if (rate.numerator == 0) return 1;
  set_rate(timing, rate);
  timing->pts = (int64_t)source->frames;
  timing->duration = 1;
  return 1;
}

static int next_of_file(struct source *source, struct media_error *error) {
  const cudalink_description *description;
  int result = media_reader_next(source->reader, &description, error);
  if (result == 0 && source->options.loop && source->frames_of_run > 0) {
    source->frames_of_run = 0;
    result = media_reader_rewind(source->reader, error);
    if (!result) result = media_reader_next(source->reader, &description, error);
  }
  if (result <= 0) return result;
  source->description = *description;
  if (source->options.rate.numerator) set_rate(&source->description.timing, source->options.rate);
  return 1;
}

int source_next(struct source *source, const cudalink_description **description,
                struct media_error *error) {
  *description = &source->description;
  return source->reader ? next_of_file(source, error) : next_of_pattern(source);
}

static int draw_still(struct source *source, void *slot, uint64_t number,
                      struct media_error *error) {
  uint64_t bytes = 0;
  cudalink_description_bytes(&source->description, &bytes);
  if (!source->still) {
    source->still = calloc(1, bytes);
    if (!source->still)
      return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory for a frame of %llu bytes",
                        (unsigned long long)bytes);
    int result =
        pattern_fill(source->options.pattern, &source->description, source->still, number, error);
    if (result) return result;
  }
  memcpy(slot, source->still, bytes);
  return CUDALINK_OK;
}

int source_fill(struct source *source, void *slot, uint64_t number, struct media_error *error) {
  enum pattern pattern = source->options.pattern;
  source->frames++;
  source->frames_of_run++;
  if (source->reader) return media_reader_read(source->reader, &source->description, slot, error);
  if (pattern_is_still(pattern)) return draw_still(source, slot, number, error);
  return pattern_fill(pattern, &source->description, slot, number, error);
}

struct option_rate source_rate(const struct source *source) {
  const cudalink_timing *timing = &source->description.timing;
  if (source->options.rate.denominator) return source->options.rate;
  return (struct option_rate){timing->rate_numerator, timing->rate_denominator};
}
