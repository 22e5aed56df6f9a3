/* SPDX-License-Identifier: MIT
 *
 * Reads a folder: its PNG and NPY files one after the other, in natural order (9 before 10).
 */
#include "media/reader.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct folder_state {
  struct dirent **files;
  int count;
  int index;                 /* of the file that comes next */
  struct media_reader *file; /* NULL: none is open */
};

static int is_wanted(const struct dirent *entry) {
  const char *dot = strrchr(entry->d_name, '.');
  if (!dot || entry->d_name[0] == '.') return 0;
  return strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".npy") == 0;
}

static const char *skip_zeros(const char *text) {
  while (text[0] == '0' && isdigit((unsigned char)text[1]))
    text++;
  return text;
}

/* Compares the numbers that start here, and steps over them. */
static int compare_numbers(const char **a, const char **b) {
  *a = skip_zeros(*a);
  *b = skip_zeros(*b);
  size_t a_digits = strspn(*a, "0123456789"), b_digits = strspn(*b, "0123456789");
  if (a_digits != b_digits) return a_digits < b_digits ? -1 : 1;
  int order = strncmp(*a, *b, a_digits);
  *a += a_digits;
  *b += b_digits;
  return order;
}

static int compare_names(const char *a, const char *b) {
  while (*a && *b) {
    if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
      int order = compare_numbers(&a, &b);
      if (order) return order;
    } else if (*a != *b) {
      return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
    } else {
      a++;
      b++;
    }
  }
  return *a ? 1 : *b ? -1 : 0;
}

static int natural_order(const struct dirent **a, const struct dirent **b) {
  int order = compare_names((*a)->d_name, (*b)->d_name);
  return order ? order : strcmp((*a)->d_name, (*b)->d_name); /* 1 and 01 */
}

static void folder_stop(struct media_reader *reader) {
  struct folder_state *state = reader->state;
  if (!state) return;
  media_reader_close(state->file);
  for (int i = 0; i < state->count; i++)
    free(state->files[i]);
  free(state->files);
  free(state);
  reader->state = NULL;
}

static int folder_start(struct media_reader *reader, struct media_error *error) {
  const char *path = reader->input.name;
  struct folder_state *state = calloc(1, sizeof *state);
  if (!state) return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory to read a folder");
  reader->state = state;
  state->count = scandir(path, &state->files, is_wanted, natural_order);
  if (state->count < 0) {
    state->count = 0;
    return media_fail_errno(error, "%s: can't be listed", path);
  }
  if (state->count > 0) return CUDALINK_OK;
  return media_fail(error, CUDALINK_ERROR_NOT_FOUND, "%s: has no .png and no .npy files", path);
}

static int open_file(struct media_reader *reader, struct folder_state *state,
                     struct media_error *error) {
  char path[MEDIA_NAME_SIZE];
  const char *name = state->files[state->index++]->d_name;
  int length = snprintf(path, sizeof path, "%s/%s", reader->input.name, name);
  if (length < 0 || (size_t)length >= sizeof path)
    return media_fail(error, CUDALINK_ERROR_TOO_LARGE, "%s: the path is too long", name);
  struct media_reader_options options = {.stop = reader->options.stop};
  state->file = media_reader_open(path, &options, error);
  return state->file ? CUDALINK_OK : error->code;
}

static int folder_next(struct media_reader *reader, struct media_error *error) {
  struct folder_state *state = reader->state;
  const cudalink_description *description;
  for (;;) {
    if (!state->file) {
      if (state->index == state->count) return 0;
      int result = open_file(reader, state, error);
      if (result) return result;
    }
    int result = media_reader_next(state->file, &description, error);
    if (result > 0) reader->description = *description;
    if (result != 0) return result;
    media_reader_close(state->file);
    state->file = NULL;
  }
}

/* The file describes its frame dense, as we do, so its bytes come straight into `packed`. */
static int folder_read(struct media_reader *reader, uint8_t *packed, struct media_error *error) {
  struct folder_state *state = reader->state;
  return media_reader_read(state->file, &reader->description, packed, error);
}

const struct media_decoder media_folder_decoder = {.start = folder_start,
                                                   .next = folder_next,
                                                   .read = folder_read,
                                                   .stop = folder_stop};
