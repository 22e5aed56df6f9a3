/* SPDX-License-Identifier: MIT
 *
 * Where received frames go.
 */
#include "sink.h"
#include "stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct sink {
  const char *path; /* NULL: nowhere */
  enum media_kind kind;
  struct media_writer *writer;
  int is_folder;
  unsigned files;         /* begun so far */
  uint64_t frames;        /* in the current file */
  cudalink_picture first; /* what its first frame looks like */
  uint64_t first_bytes;
};

static int is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static const char *suffix_of(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot && dot != path && !strchr(dot, '/') ? dot : path + strlen(path);
}

static enum media_kind kind_of(const char *path) {
  const char *suffix = suffix_of(path);
  int kind = *suffix ? media_kind_from_name(suffix + 1) : -1;
  return kind > MEDIA_KIND_AUTO ? (enum media_kind)kind : MEDIA_KIND_RAW;
}

static int open_writer(struct sink *sink, const char *path, struct media_error *error) {
  struct media_writer_options options = {.kind = sink->kind, .stop = stop_flag()};
  sink->writer = media_writer_open(path, &options, error);
  if (!sink->writer) return error->code;
  sink->files++;
  sink->frames = 0;
  return CUDALINK_OK;
}

struct sink *sink_open(const char *path, enum media_kind kind, struct media_error *error) {
  struct sink *sink = calloc(1, sizeof *sink);
  if (!sink) {
    media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory for the output");
    return NULL;
  }
  sink->kind = kind;
  if (!path || strcmp(path, "null") == 0) return sink;
  sink->path = path;
  if (open_writer(sink, path, error)) {
    free(sink);
    return NULL;
  }
  sink->is_folder = is_folder(path);
  return sink;
}

int sink_is_nowhere(const struct sink *sink) { return !sink->path; }

int sink_is_stdout(const struct sink *sink) { return sink->path && strcmp(sink->path, "-") == 0; }

const char *sink_foreign_suffix(const char *path, enum media_kind kind) {
  static const char *const others[] = {".jpg",  ".jpeg", ".webp", ".gif", ".bmp", ".tif",
                                       ".tiff", ".exr",  ".heic", ".mp4", ".mkv", ".mov",
                                       ".avi",  ".webm", ".mpg",  ".m4v", NULL};
  struct stat status;
  if (!path || kind != MEDIA_KIND_AUTO || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
    return NULL;
  for (const char *const *other = others; *other; other++)
    if (strcasecmp(suffix_of(path), *other) == 0) return *other;
  return NULL;
}

static int is_single(enum media_kind kind) {
  return kind == MEDIA_KIND_PNG || kind == MEDIA_KIND_NPY;
}

int sink_takes_one(const char *path, enum media_kind kind) {
  struct stat status;
  if (!path || !*path || strcmp(path, "null") == 0 || strcmp(path, "-") == 0) return 0;
  if (path[strlen(path) - 1] == '/') return 0;
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) return 0;
  return is_single(kind == MEDIA_KIND_AUTO ? kind_of(path) : kind);
}

int sink_folder_for(const char *path) { return (int)(suffix_of(path) - path); }

static int looks_the_same(const struct sink *sink, const cudalink_description *description,
                          uint64_t bytes) {
  const cudalink_picture *first = &sink->first, *now = &description->picture;
  return first->format == now->format && first->width == now->width &&
         first->height == now->height && sink->first_bytes == bytes;
}

/* out.y4m becomes out-2.y4m. */
static int begin_next_file(struct sink *sink, struct media_error *error) {
  char path[4096];
  struct media_writer *writer = sink->writer;
  const char *suffix = suffix_of(sink->path);
  sink->writer = NULL;
  int result = media_writer_close(writer, error);
  if (result) return result;
  snprintf(path, sizeof path, "%.*s-%u%s", (int)(suffix - sink->path), sink->path, sink->files + 1,
           suffix);
  return open_writer(sink, path, error);
}

int sink_write(struct sink *sink, const cudalink_description *description, const void *slot,
               struct media_error *error) {
  uint64_t bytes;
  if (sink_is_nowhere(sink)) return CUDALINK_OK;
  int result = cudalink_packed_bytes(description, &bytes);
  if (result) return media_fail_library(error, result, "%s", sink->path);
  enum media_kind kind = sink->kind == MEDIA_KIND_AUTO ? kind_of(sink->path) : sink->kind;
  int is_new = sink->frames > 0 && !sink->is_folder && !sink_is_stdout(sink) && !is_single(kind) &&
               !looks_the_same(sink, description, bytes);
  if (is_new) result = begin_next_file(sink, error);
  if (!result) result = media_writer_write(sink->writer, description, slot, error);
  if (result) return result;
  if (sink->frames++ == 0) {
    sink->first = description->picture;
    sink->first_bytes = bytes;
  }
  return CUDALINK_OK;
}

int sink_close(struct sink *sink, struct media_error *error) {
  int result = sink->writer ? media_writer_close(sink->writer, error) : CUDALINK_OK;
  free(sink);
  return result;
}
