/* SPDX-License-Identifier: MIT
 *
 * The writer: one file that grows, or a folder that gets one file per frame.
 */
#include "media/writer.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct media_writer {
  struct media_writer_options options;
  struct media_output output; /* the file, when this is no folder */
  char path[MEDIA_NAME_SIZE];
  int is_folder, made_folder; /* made: it was not there before */
  uint64_t frames;            /* written */
  cudalink_picture picture;   /* of the first frame; all frames of one file look the same */
  uint64_t frame_bytes;
  uint8_t *scratch; /* one packed frame */
  uint64_t scratch_size;
};

static const struct {
  const char *name;
  enum media_kind kind;
} kinds[] = {{"auto", MEDIA_KIND_AUTO},
             {"y4m", MEDIA_KIND_Y4M},
             {"png", MEDIA_KIND_PNG},
             {"npy", MEDIA_KIND_NPY},
             {"raw", MEDIA_KIND_RAW}};

int media_kind_from_name(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (strcasecmp(name, kinds[i].name) == 0) return (int)kinds[i].kind;
  return -1;
}

/* What stdout gets shows in the first frame. */
static enum media_kind kind_of_path(const char *path) {
  if (strcmp(path, "-") == 0) return MEDIA_KIND_AUTO;
  const char *dot = strrchr(path, '.');
  int kind = dot && !strchr(dot, '/') ? media_kind_from_name(dot + 1) : -1;
  return kind > MEDIA_KIND_AUTO ? (enum media_kind)kind : MEDIA_KIND_RAW;
}

/* A path that ends in '/' is made a folder. */
static int open_folder(struct media_writer *writer, struct media_error *error) {
  size_t length = strlen(writer->path);
  struct stat status;
  if (length > 0 && writer->path[length - 1] == '/') {
    writer->made_folder = mkdir(writer->path, 0777) == 0;
    if (!writer->made_folder && errno != EEXIST)
      return media_fail_errno(error, "%s: the folder can't be made", writer->path);
  }
  writer->is_folder =
      strcmp(writer->path, "-") != 0 && stat(writer->path, &status) == 0 && S_ISDIR(status.st_mode);
  while (writer->is_folder && length > 1 && writer->path[length - 1] == '/')
    writer->path[--length] = 0;
  return CUDALINK_OK;
}

static int open_output(struct media_writer *writer, struct media_error *error) {
  int result = open_folder(writer, error);
  if (result || writer->is_folder) return result;
  if (writer->options.kind == MEDIA_KIND_AUTO) writer->options.kind = kind_of_path(writer->path);
  return media_output_open(&writer->output, writer->path, writer->options.stop, error);
}

struct media_writer *media_writer_open(const char *path, const struct media_writer_options *options,
                                       struct media_error *error) {
  struct media_writer *writer = calloc(1, sizeof *writer);
  if (!writer || strlen(path) >= sizeof writer->path - 64) {
    media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%.200s: no memory or too long a path", path);
    free(writer);
    return NULL;
  }
  snprintf(writer->path, sizeof writer->path, "%s", path); /* its length was checked */
  writer->output.descriptor = -1;
  if (options) writer->options = *options;
  if (open_output(writer, error) == CUDALINK_OK) return writer;
  free(writer);
  return NULL;
}

int media_writer_close(struct media_writer *writer, struct media_error *error) {
  if (writer->frames == 0)
    media_output_discard(&writer->output); /* an empty file would be no Y4M, PNG or NPY */
  int result = media_output_close(&writer->output, error);
  if (writer->frames == 0 && writer->made_folder)
    rmdir(writer->path); /* fails where somebody has put something in */
  free(writer->scratch);
  free(writer);
  return result;
}

static const char *refusal(enum media_kind kind, const cudalink_description *description) {
  switch (kind) {
  case MEDIA_KIND_Y4M: return media_y4m_refusal(description);
  case MEDIA_KIND_PNG: return media_png_refusal(description);
  case MEDIA_KIND_NPY: return media_npy_refusal(description);
  default: return NULL;
  }
}

static int fail_refused(const char *name, const char *reason,
                        const cudalink_description *description, struct media_error *error) {
  const char *format = cudalink_format_name(description->picture.format);
  return media_fail(error, CUDALINK_ERROR_UNSUPPORTED, "%s: can't hold %s%s: %s", name,
                    format ? "a picture of format " : "this frame", format ? format : "", reason);
}

static int write_to(struct media_writer *writer, struct media_output *output, enum media_kind kind,
                    const struct media_frame *frame, uint32_t plane, struct media_error *error) {
  switch (kind) {
  case MEDIA_KIND_PNG: return media_png_write(output, frame, error);
  case MEDIA_KIND_NPY: return media_npy_write(output, frame, plane, error);
  case MEDIA_KIND_Y4M: {
    int result = CUDALINK_OK;
    if (writer->frames == 0) result = media_y4m_write_header(output, frame->description, error);
    return result ? result : media_y4m_write(output, frame, error);
  }
  default: return media_output_write(output, frame->packed, frame->bytes, error);
  }
}

static void path_of_file(char path[MEDIA_NAME_SIZE], const struct media_writer *writer,
                         const char *suffix) {
  snprintf(path, MEDIA_NAME_SIZE, "%.4000s/frame_%08llu%s", writer->path,
           (unsigned long long)writer->frames, suffix);
}

/* One file of a folder. A file that could not be written whole is removed. */
static int write_file(struct media_writer *writer, enum media_kind kind, const char *suffix,
                      const struct media_frame *frame, uint32_t plane, struct media_error *error) {
  char path[MEDIA_NAME_SIZE];
  struct media_output output;
  path_of_file(path, writer, suffix);
  int result = media_output_open(&output, path, writer->options.stop, error);
  if (result) return result;
  result = write_to(writer, &output, kind, frame, plane, error);
  if (result) {
    media_output_discard(&output);
    return result;
  }
  result = media_output_close(&output, error);
  if (result) remove(path);
  return result;
}

static void plane_suffix(char suffix[16], uint32_t plane) {
  snprintf(suffix, 16, "_%02u.npy", plane);
}

/* Those of the planes in front of this one: half a frame is none. */
static void remove_planes(const struct media_writer *writer, uint32_t count) {
  char path[MEDIA_NAME_SIZE], suffix[16];
  for (uint32_t i = 0; i < count; i++) {
    plane_suffix(suffix, i);
    path_of_file(path, writer, suffix);
    remove(path);
  }
}

/* An NPY file holds one array, so a frame of several planes becomes several files. */
static int write_npy_files(struct media_writer *writer, const struct media_frame *frame,
                           struct media_error *error) {
  const cudalink_description *description = frame->description;
  if (description->plane_count == 1)
    return write_file(writer, MEDIA_KIND_NPY, ".npy", frame, 0, error);
  int result = CUDALINK_OK;
  for (uint32_t i = 0; !result && i < description->plane_count; i++) {
    char suffix[16];
    plane_suffix(suffix, i);
    result = write_file(writer, MEDIA_KIND_NPY, suffix, frame, i, error);
    if (result) remove_planes(writer, i);
  }
  return result;
}

static int write_to_folder(struct media_writer *writer, const struct media_frame *frame,
                           struct media_error *error) {
  enum media_kind kind = writer->options.kind;
  if (kind == MEDIA_KIND_AUTO)
    kind = media_png_refusal(frame->description) ? MEDIA_KIND_NPY : MEDIA_KIND_PNG;
  const char *reason = refusal(kind, frame->description);
  if (reason) return fail_refused(writer->path, reason, frame->description, error);
  switch (kind) {
  case MEDIA_KIND_PNG: return write_file(writer, kind, ".png", frame, 0, error);
  case MEDIA_KIND_NPY: return write_npy_files(writer, frame, error);
  case MEDIA_KIND_RAW: return write_file(writer, kind, ".raw", frame, 0, error);
  default:
    return media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
                      "%s: a folder takes PNG, NPY or raw files, Y4M is one file for all frames",
                      writer->path);
  }
}

/* All frames of one Y4M or raw file have one size and format. */
static int check_same(struct media_writer *writer, const struct media_frame *frame,
                      struct media_error *error) {
  const cudalink_picture *first = &writer->picture, *now = &frame->description->picture;
  if (writer->frames == 0) {
    writer->picture = *now;
    writer->frame_bytes = frame->bytes;
  }
  if (first->format == now->format && first->width == now->width && first->height == now->height &&
      writer->frame_bytes == frame->bytes)
    return CUDALINK_OK;
  const char *first_name = cudalink_format_name(first->format);
  const char *now_name = cudalink_format_name(now->format);
  return media_fail(
      error, CUDALINK_ERROR_UNSUPPORTED,
      "%s: frame %llu is %u x %u %s of %llu byte%s, but the file started with %u x %u "
      "%s of %llu byte%s; a folder takes frames of any size",
      writer->path, (unsigned long long)writer->frames, now->width, now->height,
      now_name ? now_name : "(no picture)", (unsigned long long)frame->bytes, text_s(frame->bytes),
      first->width, first->height, first_name ? first_name : "(no picture)",
      (unsigned long long)writer->frame_bytes, text_s(writer->frame_bytes));
}

/* Only files are meant: a pipe takes any number of PNG pictures, one behind the other. */
static int check_single(struct media_writer *writer, const struct media_frame *frame,
                        struct media_error *error) {
  if (writer->options.kind == MEDIA_KIND_NPY && frame->description->plane_count > 1)
    return media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
                      "%s: an NPY file holds one array, the frame has %u planes; give a folder",
                      writer->path, frame->description->plane_count);
  if (writer->frames == 0 || !writer->output.is_file) return CUDALINK_OK;
  return media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
                    "%s: holds one frame; use --count 1, or a folder for more", writer->path);
}

static int write_to_stream(struct media_writer *writer, const struct media_frame *frame,
                           struct media_error *error) {
  enum media_kind kind = writer->options.kind;
  if (kind == MEDIA_KIND_AUTO)
    kind = media_y4m_refusal(frame->description) ? MEDIA_KIND_RAW : MEDIA_KIND_Y4M;
  writer->options.kind = kind;
  int is_single = kind == MEDIA_KIND_PNG || kind == MEDIA_KIND_NPY;
  const char *reason = refusal(kind, frame->description);
  if (reason) return fail_refused(writer->output.name, reason, frame->description, error);
  int result = is_single ? check_single(writer, frame, error) : check_same(writer, frame, error);
  if (result) return result;
  uint64_t start = writer->output.position;
  result = write_to(writer, &writer->output, kind, frame, 0, error);
  if (!result) return result;
  if (writer->frames == 0)
    media_output_discard(&writer->output);
  else
    media_output_cut(&writer->output, start);
  return result;
}

static int write_frame(struct media_writer *writer, const struct media_frame *frame,
                       struct media_error *error) {
  if (!writer->is_folder && writer->output.descriptor < 0)
    return media_fail(error, CUDALINK_ERROR_CLOSED, "%s: is closed after an error", writer->path);
  int result = writer->is_folder ? write_to_folder(writer, frame, error)
                                 : write_to_stream(writer, frame, error);
  if (!result) writer->frames++;
  return result;
}

int media_writer_write_packed(struct media_writer *writer, const cudalink_description *description,
                              const void *packed, struct media_error *error) {
  struct media_frame frame = {.description = description, .packed = packed};
  int result = cudalink_packed_bytes(description, &frame.bytes);
  if (result) return media_fail_library(error, result, "%s", writer->path);
  return write_frame(writer, &frame, error);
}

static int grow_scratch(struct media_writer *writer, uint64_t size, struct media_error *error) {
  if (writer->scratch_size >= size) return CUDALINK_OK;
  free(writer->scratch);
  writer->scratch = malloc(size);
  writer->scratch_size = writer->scratch ? size : 0;
  if (writer->scratch) return CUDALINK_OK;
  return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%s: no memory for a frame of %llu bytes",
                    writer->path, (unsigned long long)size);
}

int media_writer_write(struct media_writer *writer, const cudalink_description *description,
                       const void *slot, struct media_error *error) {
  uint64_t bytes;
  int turn_over = description->picture.format != 0 &&
                  description->picture.origin == CUDALINK_ORIGIN_BOTTOM_LEFT;
  int result = cudalink_packed_bytes(description, &bytes);
  if (result) return media_fail_library(error, result, "%s", writer->path);
  result = grow_scratch(writer, bytes, error);
  if (result) return result;
  result = cudalink_pack(description, slot, writer->scratch, bytes, turn_over);
  if (result) return media_fail_library(error, result, "%s", writer->path);
  return media_writer_write_packed(writer, description, writer->scratch, error);
}
