/* SPDX-License-Identifier: MIT
 *
 * Where frames to send come from: a pattern, or a file.
 */
#ifndef CUDALINK_SOURCE_H
#define CUDALINK_SOURCE_H

#include "cudalink/format.h"
#include "media/media.h"
#include "media/pattern.h"
#include "options.h"

struct source_options {
  const char *path; /* NULL: a pattern */
  enum pattern pattern;
  uint32_t format;         /* of a pattern or a raw file; 0 = not said */
  struct option_size size; /* the same */
  struct option_rate rate; /* denominator 0: the file's own, else 60; numerator 0: no rate */
  int loop;                /* a file starts again at its end */
};

struct source;

/* NULL: see `error`. */
struct source *source_open(const struct source_options *options, struct media_error *error);

/* Goes to the next frame. 1: *description says what it is; 0: there are no more; else an error.
 * Waits for a slow pipe, until a signal comes. */
int source_next(struct source *source, const cudalink_description **description,
                struct media_error *error);

/* Puts that frame into a slot. `number` is what patterns draw. */
int source_fill(struct source *source, void *slot, uint64_t number, struct media_error *error);

/* How fast the current frame wants to be shown; numerator 0 = as fast as possible. */
struct option_rate source_rate(const struct source *source);

void source_close(struct source *source);

#endif
