/* SPDX-License-Identifier: MIT
 *
 * Writes JSON.
 */
#include "json.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>

/* Bytes that are no UTF-8 become the replacement character: the line must stay JSON. */
static void put_string(FILE *stream, const char *text) {
  fputc('"', stream);
  while (*text) {
    const char *start = text;
    uint32_t character = text_next(&text);
    if (character == TEXT_NO_CHARACTER)
      fputs("\\ufffd", stream);
    else if (character == '"' || character == '\\')
      fprintf(stream, "\\%c", (char)character);
    else if (character < 0x20 || (character >= 0x7f && character < 0xa0))
      fprintf(stream, "\\u%04x", character);
    else
      fwrite(start, 1, (size_t)(text - start), stream);
  }
  fputc('"', stream);
}

static void put_key(struct json *json, const char *key) {
  if (json->needs_comma) fputs(", ", json->stream);
  json->needs_comma = 1;
  if (!key) return;
  put_string(json->stream, key);
  fputs(": ", json->stream);
}

static void open_with(struct json *json, const char *key, char bracket) {
  put_key(json, key);
  fputc(bracket, json->stream);
  json->needs_comma = 0;
}

static void close_with(struct json *json, char bracket) {
  fputc(bracket, json->stream);
  json->needs_comma = 1;
}

void json_start(struct json *json, FILE *stream) {
  *json = (struct json){.stream = stream};
  fputc('{', stream);
}

void json_end(struct json *json) { fputs("}\n", json->stream); }

void json_open_object(struct json *json, const char *key) { open_with(json, key, '{'); }
void json_close_object(struct json *json) { close_with(json, '}'); }
void json_open_list(struct json *json, const char *key) { open_with(json, key, '['); }
void json_close_list(struct json *json) { close_with(json, ']'); }

void json_text(struct json *json, const char *key, const char *text) {
  put_key(json, key);
  if (text)
    put_string(json->stream, text);
  else
    fputs("null", json->stream);
}

void json_number(struct json *json, const char *key, uint64_t number) {
  put_key(json, key);
  fprintf(json->stream, "%" PRIu64, number);
}

void json_real(struct json *json, const char *key, double number) {
  put_key(json, key);
  if (isfinite(number))
    fprintf(json->stream, "%.6g", number);
  else
    fputs("null", json->stream);
}

void json_flag(struct json *json, const char *key, int flag) {
  put_key(json, key);
  fputs(flag ? "true" : "false", json->stream);
}
