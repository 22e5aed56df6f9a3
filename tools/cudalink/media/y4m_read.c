/* SPDX-License-Identifier: MIT
 *
 * Reads Y4M: one line that describes the stream, then for each frame a line "FRAME" and its planes.
 */
#include "media/reader.h"
#include "media/y4m.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_SIZE 4096
#define MOST_PIXELS 65535 /* of a side; a description has no more */
#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

struct ratio {
  uint32_t numerator, denominator; /* 0, 0 = not known */
};

struct header {
  uint32_t width, height;
  struct ratio rate, aspect;
  const struct y4m_space *space;
  const struct y4m_space *old_space; /* from XYSCSS, which counts only where there is no C */
  cudalink_range range;
  cudalink_field_order field_order;
};

/* All of `text` must be one number of 32 bits. */
static int parse_number(const char *text, uint32_t *number) {
  uint64_t value = 0;
  if (!*text) return 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return 0;
    value = value * 10 + (uint64_t)(*text - '0');
    if (value > UINT32_MAX) return 0;
  }
  *number = (uint32_t)value;
  return 1;
}

/* "30000:1001". A 0 on either side means that the value is not known. */
static int parse_ratio(char *text, struct ratio *ratio) {
  char *colon = strchr(text, ':');
  if (!colon) return 0;
  *colon = 0;
  int is_ratio =
      parse_number(text, &ratio->numerator) && parse_number(colon + 1, &ratio->denominator);
  *colon = ':';
  if (is_ratio && (!ratio->numerator || !ratio->denominator)) *ratio = (struct ratio){0};
  return is_ratio;
}

static int parse_interlace(const char *text, struct header *header) {
  switch (text[0]) {
  case '?':
  case 'p': header->field_order = CUDALINK_FIELD_PROGRESSIVE; return 1;
  case 't': header->field_order = CUDALINK_FIELD_TOP_FIRST; return 1;
  case 'b': header->field_order = CUDALINK_FIELD_BOTTOM_FIRST; return 1;
  default: return 0; /* 'm', a mix: one description can't say it */
  }
}

/* Extensions that we do not know are skipped, as the format wants it. */
static void parse_extension(const char *text, struct header *header) {
  if (strncmp(text, "YSCSS=", 6) == 0) header->old_space = y4m_space_from_tag(text + 6);
  if (strcmp(text, "COLORRANGE=FULL") == 0) header->range = CUDALINK_RANGE_FULL;
  if (strcmp(text, "COLORRANGE=LIMITED") == 0) header->range = CUDALINK_RANGE_LIMITED;
}

static int parse_side(const char *text, uint32_t *side) {
  return parse_number(text, side) && *side >= 1 && *side <= MOST_PIXELS;
}

/* One word of the header line. 0: it is wrong. */
static int parse_word(char *word, struct header *header) {
  switch (word[0]) {
  case 'W': return parse_side(word + 1, &header->width);
  case 'H': return parse_side(word + 1, &header->height);
  case 'F': return parse_ratio(word + 1, &header->rate);
  case 'A': return parse_ratio(word + 1, &header->aspect);
  case 'I': return parse_interlace(word + 1, header);
  case 'C': header->space = y4m_space_from_tag(word + 1); return header->space != NULL;
  case 'X': parse_extension(word + 1, header); return 1;
  default: return 1;
  }
}

/* What is expected in place of such a word. */
static const char *why_wrong(const char *word) {
  switch (word[0]) {
  case 'W': return "is no width: W and 1 to 65535 pixels are expected, as in W1920";
  case 'H': return "is no height: H and 1 to 65535 pixels are expected, as in H1080";
  case 'F': return "is no frame rate: a ratio is expected, as in F30000:1001";
  case 'A': return "is no shape of a pixel: a ratio is expected, as in A1:1";
  case 'I': return "is no field order that can be read (p, t, b or ?)";
  default:
    return "is no colour space that can be read; ffmpeg's -pix_fmt yuv420p makes one that can";
  }
}

static int parse_header(const char *name, char *line, struct header *header,
                        struct media_error *error) {
  char *rest = NULL;
  char *word = strtok_r(line, " \n", &rest);
  if (!word || strcmp(word, "YUV4MPEG2") != 0)
    return media_fail(error, INVALID, "%s: does not start with YUV4MPEG2", name);
  while ((word = strtok_r(NULL, " \n", &rest)))
    if (!parse_word(word, header))
      return media_fail(error, INVALID, "%s: its Y4M header (line 1) has \"%.60s\", which %s", name,
                        word, why_wrong(word));
  if (!header->width || !header->height)
    return media_fail(error, INVALID, "%s: its Y4M header (line 1) says no %s", name,
                      header->width ? "height; it is expected as in H1080"
                                    : "width; it is expected as in W1920");
  return CUDALINK_OK;
}

static int describe(struct media_reader *reader, const struct header *header,
                    struct media_error *error) {
  cudalink_description *description = &reader->description;
  const struct y4m_space *space = header->space ? header->space : header->old_space;
  if (!space) space = y4m_space_from_tag("420jpeg");
  *description = (cudalink_description){0};
  int result =
      cudalink_describe_picture(description, space->format, header->width, header->height, 1);
  if (result) return media_fail_library(error, result, "%s", reader->input.name);
  description->picture.range = (uint8_t)header->range;
  description->picture.field_order = (uint8_t)header->field_order;
  description->picture.chroma_location = (uint8_t)space->chroma_location;
  description->picture.pixel_aspect_numerator = header->aspect.numerator;
  description->picture.pixel_aspect_denominator = header->aspect.denominator;
  description->timing.rate_numerator = header->rate.numerator;
  description->timing.rate_denominator = header->rate.denominator;
  return CUDALINK_OK;
}

static int y4m_start(struct media_reader *reader, struct media_error *error) {
  char line[LINE_SIZE];
  struct header header = {0};
  int64_t length = media_input_read_line(&reader->input, line, LINE_SIZE, error);
  if (length < 0) return (int)length;
  if (length == 0 || line[length - 1] != '\n')
    return media_fail(error, INVALID, "%s: its Y4M header %s", reader->input.name,
                      length == LINE_SIZE ? "is no line of less than 4096 bytes"
                                          : "is cut off, the file ends in it");
  line[length - 1] = 0;
  int result = parse_header(reader->input.name, line, &header, error);
  return result ? result : describe(reader, &header, error);
}

/* A file that ends inside the line "FRAME" lacks the rest of it and all planes. */
static int fail_cut_line(struct media_reader *reader, int64_t length, struct media_error *error) {
  uint64_t pixels = 0;
  cudalink_packed_bytes(&reader->description, &pixels);
  unsigned long long bytes = pixels + 6, missing = bytes - (uint64_t)length;
  return media_fail(error, INVALID,
                    "%s: is cut off in frame %llu (the first is 0), %llu of its %llu bytes %s "
                    "missing",
                    reader->input.name, (unsigned long long)reader->frame, missing, bytes,
                    missing == 1 ? "is" : "are");
}

/* ffmpeg 5.1 halves the width in bytes where it should halve it in samples, and cannot read that
 * itself: each row of chroma lacks one byte when the width is odd and samples have two bytes. */
static int is_miswritten_by_ffmpeg(const cudalink_description *description) {
  const cudalink_plane *chroma = &description->planes[1];
  return description->plane_count == 3 && chroma->dtype.bits == 16 &&
         description->picture.width % 2 == 1 &&
         chroma->shape[1] < (int64_t)description->picture.width;
}

static int fail_no_frame(struct media_reader *reader, struct media_error *error) {
  return media_fail(
      error, INVALID, "%s: frame %llu (the first is 0) does not start with a line FRAME: %s",
      reader->input.name, (unsigned long long)reader->frame,
      is_miswritten_by_ffmpeg(&reader->description)
          ? "ffmpeg 5.1 writes such files when the width is odd and samples have more "
            "than 8 bits; make the width even"
          : "the file is damaged, or its frames have another size than its header "
            "says");
}

static int y4m_next(struct media_reader *reader, struct media_error *error) {
  char line[LINE_SIZE];
  int64_t length = media_input_read_line(&reader->input, line, LINE_SIZE, error);
  if (length <= 0) return (int)length;
  if (length < 6 && line[length - 1] != '\n' && memcmp(line, "FRAME\n", (size_t)length) == 0)
    return fail_cut_line(reader, length, error);
  /* Words may follow "FRAME"; nothing that we need is in them. */
  if (length >= 6 && memcmp(line, "FRAME", 5) == 0 && (line[5] == '\n' || line[5] == ' ') &&
      line[length - 1] == '\n')
    return 1;
  return fail_no_frame(reader, error);
}

static int y4m_read(struct media_reader *reader, uint8_t *packed, struct media_error *error) {
  return media_read_exactly(reader, packed, reader->packed_bytes, error);
}

const struct media_decoder media_y4m_decoder = {.start = y4m_start,
                                                .next = y4m_next,
                                                .read = y4m_read};
