/* SPDX-License-Identifier: MIT
 *
 * Reading frames from files and writing frames to files, for `cudalink send` and `cudalink recv`.
 * Only the public library is used. Every function that can fail takes a media_error, and returns a
 * negative cudalink_error with one sentence left there.
 */
#ifndef CUDALINK_MEDIA_MEDIA_H
#define CUDALINK_MEDIA_MEDIA_H

#include <signal.h>

#include "cudalink/format.h"
#include "media/error.h"

/* All zeros is fine: the kind of file is found out from its first bytes. */
struct media_reader_options {
  cudalink_format raw_format; /* not NONE: the file holds raw frames of this format and size */
  uint32_t width;
  uint32_t height;
  uint32_t rate_numerator; /* for files that do not say a frame rate; 0/0 = not said */
  uint32_t rate_denominator;
  const volatile sig_atomic_t *stop; /* may be NULL; set to 1, a read that waits gives up with
                                        CUDALINK_ERROR_CLOSED within 100 ms */
};

struct media_reader;

/* Opens a Y4M, PNG, NPY or raw file, a pipe, "-" for stdin, or a folder of PNG and NPY files, which
 * are read in natural order (9 before 10). Files and pipes may hold several PNG pictures or NPY
 * arrays one behind the other. NULL: see `error`. */
struct media_reader *media_reader_open(const char *path, const struct media_reader_options *options,
                                       struct media_error *error);

/* Goes to the next frame. 1: *description says what it is, laid out dense, with rate and pts; valid
 * until the next call. 0: there are no more frames. A frame that was not read is given again. */
int media_reader_next(struct media_reader *reader, const cudalink_description **description,
                      struct media_error *error);

/* Reads that frame into a slot of the same planes, whatever their offsets and strides. After an
 * error the slot's bytes mean nothing, and the reader is at its end. */
int media_reader_read(struct media_reader *reader, const cudalink_description *slot_description,
                      void *slot, struct media_error *error);

/* Starts again from the first frame; pts goes on counting. Not possible for pipes. */
int media_reader_rewind(struct media_reader *reader, struct media_error *error);

void media_reader_close(struct media_reader *reader);

enum media_kind {
  /* From the name: .y4m .png .npy, any other name is raw; "-" is Y4M where the format of the first
   * frame fits, else raw; a folder has PNG files where the format fits, else NPY files. */
  MEDIA_KIND_AUTO = 0,
  MEDIA_KIND_Y4M,
  MEDIA_KIND_PNG,
  MEDIA_KIND_NPY,
  MEDIA_KIND_RAW
};

/* "y4m", "png", "npy", "raw"; MEDIA_KIND_AUTO for "auto"; -1 for anything else. */
int media_kind_from_name(const char *name);

struct media_writer_options {
  enum media_kind kind;
  const volatile sig_atomic_t *stop;
};

struct media_writer;

/* Creates a file, uses "-" for stdout, or fills a folder (an existing one, or a path that ends in
 * '/', which is made, and goes again when no frame came). A single PNG or NPY file takes one frame.
 * NULL: see `error`. */
struct media_writer *media_writer_open(const char *path, const struct media_writer_options *options,
                                       struct media_error *error);

/* Writes one frame. Pictures are written top row first, whatever their origin is in memory. What a
 * failing write left of a frame is removed again: the file ends with the last whole frame. */
int media_writer_write(struct media_writer *writer, const cudalink_description *description,
                       const void *slot, struct media_error *error);
/* The same for packed bytes, which have the top row first already. */
int media_writer_write_packed(struct media_writer *writer, const cudalink_description *description,
                              const void *packed, struct media_error *error);

/* Finishes the file and frees the writer, also when it fails. A file with no frame is removed. */
int media_writer_close(struct media_writer *writer, struct media_error *error);

#endif
