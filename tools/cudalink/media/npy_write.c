/* SPDX-License-Identifier: MIT
 *
 * Writes NPY files, version 1: a header that is a Python dictionary as text, then the elements.
 */
#include "media/npy.h"
#include "media/writer.h"

#include <stdio.h>
#include <string.h>

/* Magic, version and length; then the dictionary, filled up so that elements start at 64 bytes. */
#define START_SIZE 10
#define HEADER_SIZE 320
#define ALIGNMENT 64

const char *media_npy_refusal(const cudalink_description *description) {
  char type[NPY_TYPE_SIZE];
  for (uint32_t i = 0; i < description->plane_count; i++)
    if (!npy_type_to_text(description->planes[i].dtype, type))
      return "NumPy has no type for its elements (bfloat16, 8-, 6- and 4-bit floats and less than "
             "8 "
             "bits are none); use .raw";
  return NULL;
}

/* "(3, 4, )": Python takes a comma at the end, and (3, ) needs it. Short vectors of lanes become
 * one more dimension. */
static size_t print_shape(char *text, size_t size, const cudalink_plane *plane) {
  size_t length = (size_t)snprintf(text, size, "(");
  for (uint32_t k = 0; k < plane->dimensions; k++)
    length += (size_t)snprintf(text + length, size - length, "%lld, ", (long long)plane->shape[k]);
  if (plane->dtype.lanes > 1)
    length += (size_t)snprintf(text + length, size - length, "%u, ", plane->dtype.lanes);
  return length + (size_t)snprintf(text + length, size - length, ")");
}

static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0}; /* with the version, 1.0 */

static size_t print_header(char *header, const cudalink_plane *plane) {
  char type[NPY_TYPE_SIZE];
  npy_type_to_text(plane->dtype, type);
  size_t length = START_SIZE;
  length += (size_t)snprintf(header + length, HEADER_SIZE - length,
                             "{'descr': '%s', 'fortran_order': False, 'shape': ", type);
  length += print_shape(header + length, HEADER_SIZE - length, plane);
  length += (size_t)snprintf(header + length, HEADER_SIZE - length, ", }");
  while ((length + 1) % ALIGNMENT)
    header[length++] = ' ';
  header[length++] = '\n';
  memcpy(header, magic, sizeof magic);
  header[8] = (char)((length - START_SIZE) & 0xff);
  header[9] = (char)((length - START_SIZE) >> 8);
  return length;
}

/* Bytes of one plane when packed: those of a frame that has no other plane. */
static uint64_t packed_plane_bytes(const cudalink_description *description, uint32_t plane) {
  cudalink_description single = {.plane_count = 1};
  uint64_t bytes = 0;
  single.planes[0] = description->planes[plane];
  cudalink_packed_bytes(&single, &bytes);
  return bytes;
}

int media_npy_write(struct media_output *output, const struct media_frame *frame, uint32_t plane,
                    struct media_error *error) {
  char header[HEADER_SIZE];
  uint64_t offset = 0;
  for (uint32_t i = 0; i < plane; i++)
    offset += packed_plane_bytes(frame->description, i);
  size_t length = print_header(header, &frame->description->planes[plane]);
  int result = media_output_write(output, header, length, error);
  if (result) return result;
  return media_output_write(output, frame->packed + offset,
                            packed_plane_bytes(frame->description, plane), error);
}
