/* SPDX-License-Identifier: MIT
 *
 * What the tests of the file formats share: a folder of their own, other programs, and a copy from
 * one file to another by way of a slot.
 */
#ifndef CUDALINK_TESTS_MEDIA_TEST_H
#define CUDALINK_TESTS_MEDIA_TEST_H

#include "media/media.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char media_folder[] = "/tmp/cudalink-media-XXXXXX";
static struct media_error media_error;

__attribute__((unused)) static int media_make_folder(void **state) {
  (void)state;
  return mkdtemp(media_folder) && chdir(media_folder) == 0 ? 0 : -1;
}

__attribute__((unused, format(printf, 1, 2))) static int media_run(const char *format, ...) {
  char command[8192];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(command, sizeof command, format, arguments);
  va_end(arguments);
  assert_in_range(length, 1, sizeof command - 1);
  return system(command);
}

__attribute__((unused)) static int media_remove_folder(void **state) {
  (void)state;
  return media_run("cd / && rm -rf %s", media_folder);
}

__attribute__((unused)) static void media_write_file(const char *path, const void *bytes,
                                                     size_t size) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* The caller frees it. */
__attribute__((unused)) static uint8_t *media_read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(*size + 1);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

__attribute__((unused)) static void media_assert_same_files(const char *a, const char *b) {
  size_t a_size, b_size;
  uint8_t *a_bytes = media_read_file(a, &a_size), *b_bytes = media_read_file(b, &b_size);
  assert_int_equal(a_size, b_size);
  assert_memory_equal(a_bytes, b_bytes, a_size);
  free(a_bytes);
  free(b_bytes);
}

__attribute__((unused)) static void media_assert_says(const char *text) {
  if (!strstr(media_error.text, text))
    fail_msg("\"%s\" does not say \"%s\"", media_error.text, text);
}

/* Pictures go through a slot whose rows are padded, as they do on a channel. */
static cudalink_description media_slot_description(const cudalink_description *description) {
  cudalink_description slot = *description;
  const cudalink_picture *picture = &description->picture;
  if (!picture->format) return slot;
  assert_int_equal(cudalink_describe_picture(&slot, (cudalink_format)picture->format,
                                             picture->width, picture->height, 0),
                   0);
  slot.picture = *picture;
  return slot;
}

/* The caller frees the slot. NULL: see media_error, or the end when *result is 0. */
__attribute__((unused)) static uint8_t *media_read_frame(struct media_reader *reader,
                                                         cudalink_description *description,
                                                         int *result) {
  const cudalink_description *found;
  uint64_t bytes;
  *result = media_reader_next(reader, &found, &media_error);
  if (*result <= 0) return NULL;
  *description = media_slot_description(found);
  assert_int_equal(cudalink_description_bytes(description, &bytes), 0);
  uint8_t *slot = calloc(1, bytes + 1);
  assert_non_null(slot);
  *result = media_reader_read(reader, description, slot, &media_error);
  if (*result == 0) return slot;
  free(slot);
  return NULL;
}

/* Copies all frames. Returns how many, or the error. */
__attribute__((unused)) static int media_copy(const char *from,
                                              const struct media_reader_options *options,
                                              const char *to, enum media_kind kind) {
  struct media_reader *reader = media_reader_open(from, options, &media_error);
  if (!reader) return media_error.code;
  struct media_writer_options writer_options = {.kind = kind};
  struct media_writer *writer = media_writer_open(to, &writer_options, &media_error);
  int count = 0, result = writer ? 0 : media_error.code;
  while (!result) {
    cudalink_description description;
    uint8_t *slot = media_read_frame(reader, &description, &result);
    if (!slot) break;
    result = media_writer_write(writer, &description, slot, &media_error);
    count += result == 0;
    free(slot);
  }
  struct media_error close_error;
  if (writer && media_writer_close(writer, &close_error) && !result) {
    media_error = close_error;
    result = close_error.code;
  }
  media_reader_close(reader);
  return result ? result : count;
}

#endif
