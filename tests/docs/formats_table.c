/* SPDX-License-Identifier: MIT
 *
 * Prints the table of docs/formats.md from the library's own descriptions, for a picture of 6 x 4
 * pixels. scripts/page-table writes it into the page, and with --check compares.
 */
#include <stdio.h>

#include "cudalink/format.h"

static void print_plane(const cudalink_plane *plane) {
  static const char *const codes[] = {"int", "uint", "float", "", "bfloat"};
  printf("%s `{", plane->name[0] ? plane->name : "-");
  for (uint32_t d = 0; d < plane->dimensions; d++)
    printf("%s%lld", d ? ", " : "", (long long)plane->shape[d]);
  printf("}` %s%u", codes[plane->dtype.code], plane->dtype.bits);
}

int main(void) {
  puts("| format | fourcc | planes of a 6 x 4 picture: name, shape, type | packed bytes |");
  puts("| --- | --- | --- | --- |");
  for (cudalink_format format = cudalink_format_next(CUDALINK_FORMAT_NONE); format;
       format = cudalink_format_next(format)) {
    cudalink_description description = {0};
    uint64_t bytes;
    if (cudalink_describe_picture(&description, format, 6, 4, 1) < 0 ||
        cudalink_packed_bytes(&description, &bytes) < 0) {
      fprintf(stderr, "%s\n", cudalink_last_error());
      return 1;
    }
    uint32_t code = (uint32_t)format;
    printf("| %s | `%c%c%c%c` | ", cudalink_format_name(code), (char)code, (char)(code >> 8),
           (char)(code >> 16), (char)(code >> 24));
    for (uint32_t p = 0; p < description.plane_count; p++) {
      if (p) printf("; ");
      print_plane(&description.planes[p]);
    }
    printf(" | %llu |\n", (unsigned long long)bytes);
  }
  return 0;
}
