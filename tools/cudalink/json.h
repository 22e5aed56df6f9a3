/* SPDX-License-Identifier: MIT
 *
 * Writes JSON: one object on one line. `key` is NULL inside a list.
 */
#ifndef CUDALINK_JSON_H
#define CUDALINK_JSON_H

#include <stdint.h>
#include <stdio.h>

struct json {
  FILE *stream;
  int needs_comma;
};

/* Opens and closes the outermost object; the latter ends the line. */
void json_start(struct json *json, FILE *stream);
void json_end(struct json *json);

void json_open_object(struct json *json, const char *key);
void json_close_object(struct json *json);
void json_open_list(struct json *json, const char *key);
void json_close_list(struct json *json);

void json_text(struct json *json, const char *key, const char *text); /* NULL becomes null */
void json_number(struct json *json, const char *key, uint64_t number);
void json_real(struct json *json, const char *key, double number); /* no number: null */
void json_flag(struct json *json, const char *key, int flag);

#endif
