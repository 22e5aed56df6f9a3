/* SPDX-License-Identifier: MIT
 *
 * Byte streams under the file formats: files and pipes, read and written in whole pieces. Errors
 * name the stream.
 */
#ifndef CUDALINK_MEDIA_STREAM_H
#define CUDALINK_MEDIA_STREAM_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "media/error.h"

#define MEDIA_NAME_SIZE 4096

struct media_input {
  char name[MEDIA_NAME_SIZE]; /* for messages: the path, or "stdin" */
  const volatile sig_atomic_t *stop;
  uint8_t *buffer;
  size_t begin; /* buffer[begin..end) is read but not used */
  size_t end;
  int descriptor; /* -1: not open */
};

int media_input_open(struct media_input *input, const char *path, const volatile sig_atomic_t *stop,
                     struct media_error *error);
void media_input_close(struct media_input *input);

/* Reads `size` bytes, or fewer at the end of the stream. Returns how many, or an error. */
int64_t media_input_read(struct media_input *input, void *to, uint64_t size,
                         struct media_error *error);

/* Reads up to and with the next newline. Returns how many bytes; the last one is no newline when
 * the stream ends or `line` is full before it. */
int64_t media_input_read_line(struct media_input *input, char *line, size_t size,
                              struct media_error *error);

/* Looks at the next bytes without using them; `size` is at most 4096. Returns how many. */
int64_t media_input_peek(struct media_input *input, size_t size, const uint8_t **bytes,
                         struct media_error *error);

/* Goes back to the start. Pipes can't. */
int media_input_rewind(struct media_input *input, struct media_error *error);

struct media_output {
  char name[MEDIA_NAME_SIZE];
  const volatile sig_atomic_t *stop;
  uint64_t position; /* bytes written */
  int descriptor;    /* -1: not open */
  int is_regular;    /* a file: it can be cut, and takes what it is given */
  int64_t start;     /* of ours in it: stdout may have had a beginning */
  int is_file;       /* one that was opened here: it can be removed, too; stdout's is its owner's */
  int has_old;       /* it still holds what was in it before: the first write takes that away */
};

int media_output_open(struct media_output *output, const char *path,
                      const volatile sig_atomic_t *stop, struct media_error *error);
int media_output_write(struct media_output *output, const void *from, uint64_t size,
                       struct media_error *error);
/* Takes back everything behind `position`, if this is a file and nobody else has written to it. */
void media_output_cut(struct media_output *output, uint64_t position);
/* Some file systems report a full disk only here. */
int media_output_close(struct media_output *output, struct media_error *error);
/* Closes and removes the file, unless it holds what was in it before and nothing was written; takes
 * back all that was written to stdout's. */
void media_output_discard(struct media_output *output);

#endif
