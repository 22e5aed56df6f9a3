/* SPDX-License-Identifier: MIT
 *
 * Text for people. Widths follow the blocks of Unicode, coarsely: a table of a few ranges is right
 * for what names are made of, and needs no locale.
 */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct range {
  uint32_t first;
  uint32_t last;
};

/* Controls, invisible spaces and joiners, what turns the direction of writing, tags. */
static const struct range hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x200b, 0x200f},
    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
/* East Asian letters and emoji. */
static const struct range wide[] = {{0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                    {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                    {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
/* Marks that sit on the letter before them. */
static const struct range marks[] = {{0x300, 0x36f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
                                     {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

#define IS_IN(ranges, character) is_in(ranges, sizeof(ranges) / sizeof(ranges)[0], character)

static int is_in(const struct range *ranges, size_t count, uint32_t character) {
  for (size_t i = 0; i < count; i++)
    if (character >= ranges[i].first && character <= ranges[i].last) return 1;
  return 0;
}

/* The bytes that a character of UTF-8 has, by its first one; 0 = none starts so. */
static unsigned length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static uint32_t decode(const unsigned char *text, unsigned length) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  uint32_t character = length == 1 ? text[0] : text[0] & (0x7fu >> length);
  for (unsigned i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return TEXT_NO_CHARACTER; /* also the NUL that ends it early */
    character = character << 6 | (text[i] & 0x3f);
  }
  int is_surrogate = character >= 0xd800 && character <= 0xdfff;
  return character < least[length] || character > 0x10ffff || is_surrogate ? TEXT_NO_CHARACTER
                                                                           : character;
}

uint32_t text_next(const char **text) {
  const unsigned char *at = (const unsigned char *)*text;
  unsigned length = length_of(*at);
  uint32_t character = length ? decode(at, length) : TEXT_NO_CHARACTER;
  *text += character == TEXT_NO_CHARACTER ? 1 : length;
  return character;
}

/* One character, escaped where needed. Returns its length. */
static size_t escape_one(char to[16], const char *from, size_t length, uint32_t character) {
  if (character == TEXT_NO_CHARACTER || (character < 0x80 && IS_IN(hidden, character)))
    return (size_t)snprintf(to, 16, "\\x%02x", (unsigned char)*from);
  if (IS_IN(hidden, character)) return (size_t)snprintf(to, 16, "\\u%04" PRIx32, character);
  memcpy(to, from, length);
  return length;
}

char *text_escape(char *to, size_t size, const char *text) {
  size_t used = 0;
  while (*text) {
    char piece[16];
    const char *start = text;
    uint32_t character = text_next(&text);
    size_t length = escape_one(piece, start, (size_t)(text - start), character);
    if (used + length >= size) break;
    memcpy(to + used, piece, length);
    used += length;
  }
  to[used] = 0;
  return to;
}

static size_t columns_of(uint32_t character) {
  if (IS_IN(marks, character)) return 0;
  return IS_IN(wide, character) ? 2 : 1;
}

size_t text_columns(const char *text) {
  size_t columns = 0;
  while (*text)
    columns += columns_of(text_next(&text));
  return columns;
}

size_t text_fit(const char *text, size_t columns) {
  const char *at = text;
  while (*at) {
    const char *next = at;
    size_t needed = columns_of(text_next(&next));
    if (needed > columns) break;
    columns -= needed;
    at = next;
  }
  return (size_t)(at - text);
}

/* How much of the text goes into a line. */
static size_t line_of(const char *text, size_t columns) {
  size_t fits = text_fit(text, columns), end = fits;
  if (!text[fits] || text[fits] == ' ') return fits;
  while (end > 0 && text[end] != ' ')
    end--;
  return end ? end : strcspn(text, " ");
}

void text_print_wrapped(const char *text, size_t columns, size_t indent, FILE *stream) {
  while (*text) {
    size_t length = columns ? line_of(text, columns) : strlen(text);
    fprintf(stream, "%.*s", (int)length, text);
    text += length;
    text += strspn(text, " ");
    if (*text) fprintf(stream, "\n%*s", (int)indent, "");
  }
}

const char *text_duration(char to[TEXT_DURATION_SIZE], uint64_t nanoseconds) {
  uint64_t microseconds = nanoseconds / 1000, seconds = nanoseconds / 1000000000;
  if (microseconds < 1000)
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 " µs", microseconds);
  else if (seconds < 1)
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 " ms", microseconds / 1000);
  else if (seconds < 60)
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 ".%" PRIu64 " s", seconds,
             nanoseconds / 100000000 % 10);
  else if (seconds < 3600)
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 " min", seconds / 60);
  else if (seconds < 86400)
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 " h", seconds / 3600);
  else
    snprintf(to, TEXT_DURATION_SIZE, "%" PRIu64 " d", seconds / 86400);
  return to;
}
