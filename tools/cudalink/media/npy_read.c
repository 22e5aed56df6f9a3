/* SPDX-License-Identifier: MIT
 *
 * Reads NPY files (versions 1 to 3): a short header, which is a Python dictionary as text, then the
 * elements.
 */
#include "media/npy.h"
#include "media/reader.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MOST (64 * 1024)
#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

struct npy_state {
  cudalink_plane file_plane; /* how the elements lie in the file */
  uint32_t swap;             /* bytes per piece to turn round, 0 = none */
  int column_major;
  char type[32];
};

/* The dictionary, read from left to right. Each function steps over what it took. */

static int take(const char **text, char letter) {
  while (isspace((unsigned char)**text))
    (*text)++;
  if (**text != letter) return 0;
  (*text)++;
  return 1;
}

static int take_string(const char **text, char *to, size_t size) {
  char quote = take(text, '\'') ? '\'' : take(text, '"') ? '"' : 0;
  if (!quote) return 0;
  size_t length = strcspn(*text, quote == '"' ? "\"" : "'");
  if ((*text)[length] != quote || length >= size) return 0;
  memcpy(to, *text, length);
  to[length] = 0;
  *text += length + 1;
  return 1;
}

static int take_bool(const char **text, int *value) {
  while (isspace((unsigned char)**text))
    (*text)++;
  *value = strncmp(*text, "True", 4) == 0;
  size_t length = *value ? 4 : strncmp(*text, "False", 5) == 0 ? 5 : 0;
  *text += length;
  return length != 0;
}

static int take_integer(const char **text, int64_t *value) {
  while (isspace((unsigned char)**text))
    (*text)++;
  *value = 0;
  const char *start = *text;
  for (; isdigit((unsigned char)**text); (*text)++)
    if (__builtin_mul_overflow(*value, INT64_C(10), value) ||
        __builtin_add_overflow(*value, **text - '0', value))
      return 0;
  if (*text == start) return 0;
  if (**text == 'L') (*text)++; /* Python 2 wrote long integers so */
  return 1;
}

static int take_shape(const char **text, cudalink_plane *plane) {
  if (!take(text, '(')) return 0;
  plane->dimensions = 0;
  while (!take(text, ')')) {
    if (plane->dimensions == CUDALINK_MAX_DIMENSIONS) return 0;
    if (!take_integer(text, &plane->shape[plane->dimensions++])) return 0;
    if (!take(text, ',')) return take(text, ')');
  }
  return 1;
}

/* NULL, or what is wrong with the header. */
static const char *parse_header(const char *text, struct npy_state *state) {
  int seen = 0;
  char key[32];
  if (!take(&text, '{')) return "its header is no dictionary";
  while (!take(&text, '}')) {
    if (!take_string(&text, key, sizeof key) || !take(&text, ':')) return "its header is damaged";
    if (strcmp(key, "descr") == 0) {
      if (take(&text, '[')) return "it has structured elements; save an array of plain numbers";
      if (!take_string(&text, state->type, sizeof state->type)) return "its type is damaged";
      seen |= 1;
    } else if (strcmp(key, "fortran_order") == 0) {
      if (!take_bool(&text, &state->column_major)) return "its fortran_order is damaged";
      seen |= 2;
    } else if (strcmp(key, "shape") == 0) {
      if (!take_shape(&text, &state->file_plane))
        return "its shape is damaged or has more than 8 dimensions";
      seen |= 4;
    } else {
      return "its header has a key that is not known";
    }
    if (!take(&text, ',') && *text != '}') return "its header is damaged";
  }
  return seen == 7 ? NULL : "its header lacks descr, fortran_order or shape";
}

static int fail(struct media_reader *reader, const char *problem, struct media_error *error) {
  return media_fail(error, INVALID, "%s: can't read array %llu (the first is 0): %s",
                    reader->input.name, (unsigned long long)reader->frame, problem);
}

/* Reads magic, version and length of the header. */
static int read_header_length(struct media_reader *reader, uint32_t *length,
                              struct media_error *error) {
  uint8_t start[8], length_bytes[4] = {0};
  int result = media_read_exactly(reader, start, sizeof start, error);
  if (result) return result;
  if (memcmp(start, "\x93NUMPY", 6) != 0) return fail(reader, "it has no NPY header", error);
  if (start[6] < 1 || start[6] > 3) return fail(reader, "its version is not 1, 2 or 3", error);
  result = media_read_exactly(reader, length_bytes, start[6] == 1 ? 2 : 4, error);
  if (result) return result;
  *length = length_bytes[0] | (uint32_t)length_bytes[1] << 8 | (uint32_t)length_bytes[2] << 16 |
            (uint32_t)length_bytes[3] << 24;
  return *length > HEADER_MOST ? fail(reader, "its header has more than 64 KiB", error)
                               : CUDALINK_OK;
}

/* The frame is described row-major; in the file the first index of a Fortran array runs fastest. */
static int describe(struct media_reader *reader, struct npy_state *state,
                    struct media_error *error) {
  cudalink_dtype dtype;
  const char *problem = npy_type_from_text(state->type, &dtype, &state->swap);
  if (problem)
    return media_fail(error, CUDALINK_ERROR_UNSUPPORTED, "%s: its type '%s' %s", reader->input.name,
                      state->type, problem);
  cudalink_plane *plane = &state->file_plane;
  reader->description = (cudalink_description){0};
  int result =
      cudalink_describe_tensor(&reader->description, NULL, dtype, plane->dimensions, plane->shape);
  if (result) return media_fail_library(error, result, "%s", reader->input.name);
  *plane = reader->description.planes[0];
  int64_t stride = dtype.bits / 8;
  for (uint32_t k = 0; state->column_major && k < plane->dimensions; k++) {
    plane->strides[k] = stride;
    stride *= plane->shape[k]; /* describe_tensor checked the product */
  }
  return CUDALINK_OK;
}

static int npy_start(struct media_reader *reader, struct media_error *error) {
  reader->state = calloc(1, sizeof(struct npy_state));
  if (reader->state) return CUDALINK_OK;
  return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory to read NPY");
}

static void npy_stop(struct media_reader *reader) {
  free(reader->state);
  reader->state = NULL;
}

static int npy_next(struct media_reader *reader, struct media_error *error) {
  struct npy_state *state = reader->state;
  const uint8_t *bytes;
  uint32_t length = 0;
  int64_t count = media_input_peek(&reader->input, 1, &bytes, error);
  if (count <= 0) return (int)count;
  int result = read_header_length(reader, &length, error);
  if (result) return result;
  char *text = calloc(1, length + 1); /* the dictionary */
  if (!text) return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "no memory for an NPY header");
  result = media_read_exactly(reader, text, length, error);
  if (!result) {
    const char *problem = parse_header(text, state);
    result = problem ? fail(reader, problem, error) : describe(reader, state, error);
  }
  free(text);
  return result ? result : 1;
}

static void swap_bytes(uint8_t *bytes, uint64_t size, uint32_t piece) {
  for (uint64_t start = 0; start + piece <= size; start += piece)
    for (uint32_t i = 0; i < piece / 2; i++) {
      uint8_t byte = bytes[start + i];
      bytes[start + i] = bytes[start + piece - 1 - i];
      bytes[start + piece - 1 - i] = byte;
    }
}

/* Reads a Fortran array and writes it down row by row. */
static int read_column_major(struct media_reader *reader, uint8_t *packed,
                             struct media_error *error) {
  const struct npy_state *state = reader->state;
  cudalink_description description = reader->description;
  description.planes[0] = state->file_plane;
  uint8_t *file = malloc(reader->packed_bytes + 1);
  if (!file)
    return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%s: no memory for %llu bytes",
                      reader->input.name, (unsigned long long)reader->packed_bytes);
  int result = media_read_exactly(reader, file, reader->packed_bytes, error);
  if (!result && cudalink_pack(&description, file, packed, reader->packed_bytes, 0))
    result = media_fail_library(error, INVALID, "%s", reader->input.name);
  free(file);
  return result;
}

static int npy_read(struct media_reader *reader, uint8_t *packed, struct media_error *error) {
  const struct npy_state *state = reader->state;
  int result = state->column_major
                   ? read_column_major(reader, packed, error)
                   : media_read_exactly(reader, packed, reader->packed_bytes, error);
  if (!result && state->swap) swap_bytes(packed, reader->packed_bytes, state->swap);
  return result;
}

const struct media_decoder media_npy_decoder = {.start = npy_start,
                                                .next = npy_next,
                                                .read = npy_read,
                                                .stop = npy_stop};
