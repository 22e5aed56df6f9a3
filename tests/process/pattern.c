/* SPDX-License-Identifier: MIT
 *
 * Word i of a frame is start + i * STEP, with a start that differs in all bytes between any two
 * frames; the last bytes are those of one more word.
 */
#include "pattern.h"

#include <string.h>

#define STEP UINT64_C(0x9E3779B97F4A7C15)

static uint64_t start_of(uint64_t salt, uint64_t sequence) {
  uint64_t z = salt * UINT64_C(0xD6E8FEB86659FD93) + sequence * UINT64_C(0xA0761D6478BD642F);
  z = (z ^ (z >> 32)) * UINT64_C(0xE7037ED1A0B428DB);
  return z ^ (z >> 29);
}

void pattern_fill(void *data, uint64_t bytes, uint64_t salt, uint64_t sequence) {
  uint64_t word = start_of(salt, sequence), *words = data;
  uint64_t count = bytes / sizeof word;
  for (uint64_t i = 0; i < count; i++, word += STEP)
    words[i] = word;
  memcpy(words + count, &word, bytes % sizeof word);
}

static int64_t first_wrong(const unsigned char *data, uint64_t word, uint64_t bytes) {
  for (uint64_t b = 0; b < bytes; b++)
    if (data[b] != ((const unsigned char *)&word)[b]) return (int64_t)b;
  return -1;
}

int64_t pattern_check(const void *data, uint64_t bytes, uint64_t salt, uint64_t sequence) {
  uint64_t word = start_of(salt, sequence);
  const uint64_t *words = data;
  uint64_t count = bytes / sizeof word, i = 0;
  for (; i < count && words[i] == word; i++)
    word += STEP;
  uint64_t left = i < count ? sizeof word : bytes % sizeof word;
  int64_t wrong = first_wrong((const unsigned char *)(words + i), word, left);
  return wrong < 0 ? -1 : (int64_t)(i * sizeof word) + wrong;
}
