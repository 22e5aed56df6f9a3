/* SPDX-License-Identifier: MIT
 *
 * Where received frames go: nowhere, a file, a folder, or stdout.
 */
#ifndef CUDALINK_SINK_H
#define CUDALINK_SINK_H

#include "media/media.h"

struct sink;

/* `path` NULL or "null": nowhere. `kind` is what the file holds, AUTO = as media_writer_open says.
 * NULL: see `error`. */
struct sink *sink_open(const char *path, enum media_kind kind, struct media_error *error);

/* Writes a frame. When a Y4M or raw file gets a frame of another size or format, a new file is
 * begun: out.y4m, out-2.y4m, out-3.y4m; stdout has no such way out, there it is an error. */
int sink_write(struct sink *sink, const cudalink_description *description, const void *slot,
               struct media_error *error);

int sink_is_nowhere(const struct sink *sink);
int sink_is_stdout(const struct sink *sink);

/* The end of the name, when it is that of a format which is not written here. NULL: it is not. */
const char *sink_foreign_suffix(const char *path, enum media_kind kind);

/* 1: a file that takes one frame only (PNG, NPY). Nothing is opened yet. */
int sink_takes_one(const char *path, enum media_kind kind);
/* How many bytes of such a path would do as the name of a folder. */
int sink_folder_for(const char *path);

/* Finishes the file, and frees the sink also when that fails. */
int sink_close(struct sink *sink, struct media_error *error);

#endif
