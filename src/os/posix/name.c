/* SPDX-License-Identifier: MIT
 *
 * Channel names as file names. A name is any UTF-8; a file name here is short and plain. Names that
 * don't fit are cut and told apart by a hash; the handshake checks the full name then.
 */
#include "posix.h"

#include <stdio.h>
#include <string.h>

#define ENCODED_MAX 60 /* leaves room for ".sock" in a socket address */
#define CUT_LENGTH 40  /* of the encoded name, before '~' and the hash */

/* How many bytes the UTF-8 character at `text` has; 0 when it is not one (also for overlong forms,
 * surrogates and what lies beyond U+10FFFF). A NUL ends it early, because it is no continuation. */
static size_t character_length(const unsigned char *text) {
  if (text[0] < 0x80) return 1;
  size_t length = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
  if (text[0] < 0xC2 || text[0] > 0xF4) return 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xC0) != 0x80) return 0;
  bool overlong = (text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xF0 && text[1] < 0x90);
  bool surrogate = text[0] == 0xED && text[1] > 0x9F;
  bool beyond = text[0] == 0xF4 && text[1] > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

static bool is_utf8(const char *name) {
  const unsigned char *text = (const unsigned char *)name;
  while (*text) {
    size_t length = character_length(text);
    if (length == 0) return false;
    text += length;
  }
  return true;
}

static bool stays(unsigned char byte, bool first) {
  if (byte == '.') return !first; /* no hidden files, no "." and ".." */
  return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '-';
}

/* Returns the length; `encoded` has room for every byte as %XX. */
static size_t percent_encode(const char *name, char encoded[3 * CUDALINK_NAME_MAX + 1]) {
  static const char digits[] = "0123456789ABCDEF";
  size_t length = 0;
  for (const char *at = name; *at; at++) {
    unsigned char byte = (unsigned char)*at;
    if (stays(byte, at == name)) {
      encoded[length++] = *at;
      continue;
    }
    encoded[length++] = '%';
    encoded[length++] = digits[byte >> 4];
    encoded[length++] = digits[byte & 15];
  }
  encoded[length] = '\0';
  return length;
}

static uint64_t fnv1a(const char *name) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char *at = name; *at; at++)
    hash = (hash ^ (unsigned char)*at) * 0x100000001b3U;
  return hash;
}

int os_name_encode(const char *name, char file[OS_FILE_SIZE]) {
  size_t bytes = name ? strnlen(name, CUDALINK_NAME_MAX + 1) : 0;
  if (bytes == 0) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "the channel name is empty");
  if (bytes > CUDALINK_NAME_MAX)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "the channel name '%.40s...' is longer than %d bytes", name,
                     CUDALINK_NAME_MAX);
  if (!is_utf8(name))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "the channel name is not UTF-8 (%zu byte%s, the first is 0x%02x)", bytes,
                     error_s(bytes), (unsigned)(unsigned char)name[0]);
  char encoded[3 * CUDALINK_NAME_MAX + 1];
  size_t length = percent_encode(name, encoded);
  if (length <= ENCODED_MAX)
    memcpy(file, encoded, length + 1);
  else
    snprintf(file, OS_FILE_SIZE, "%.*s~%016llx", CUT_LENGTH, encoded,
             (unsigned long long)fnv1a(name));
  return CUDALINK_OK;
}

static int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

/* `file` has at most ENCODED_MAX bytes, far below CUDALINK_NAME_MAX. False for a bad escape, and for
 * one of a NUL. */
static bool percent_decode(const char *file, char name[CUDALINK_NAME_MAX + 1]) {
  size_t length = 0;
  for (const char *at = file; *at; at++) {
    int byte = (unsigned char)*at;
    if (*at == '%') {
      int high = hex_value(at[1]);
      int low = high < 0 ? -1 : hex_value(at[2]);
      if (low < 0 || (high == 0 && low == 0)) return false;
      byte = high << 4 | low;
      at += 2;
    }
    name[length++] = (char)byte;
  }
  name[length] = '\0';
  return true;
}

bool os_name_decode(const char *file, char name[CUDALINK_NAME_MAX + 1]) {
  bool plain = strnlen(file, ENCODED_MAX + 1) <= ENCODED_MAX && !strchr(file, '~');
  /* Only what encodes to this very file is its name; else two files could claim one name. */
  char again[OS_FILE_SIZE];
  if (plain && percent_decode(file, name) && name[0] && is_utf8(name) &&
      os_name_encode(name, again) == CUDALINK_OK && strcmp(again, file) == 0)
    return true;
  name[0] = '\0';
  return false;
}
