/* SPDX-License-Identifier: MIT
 *
 * The pattern `check`: every byte of a frame follows from the frame's number and the byte's place.
 *
 * The packed frame is a row of 64-bit words, little-endian. With n = low + 256 * high,
 *
 *   word[i] = mix(high * HIGH_STEP + (i + 1) * PLACE_STEP) ^ (low in each of its 8 bytes)
 *
 * Two frames whose numbers differ by 1 to 255 therefore differ in every single byte, so that one
 * byte left over from another frame is seen, wherever it is; other numbers meet in one byte of 256.
 * All factors are odd, so every step can be undone and the number be computed back from any word.
 */
#include "media/pattern_bytes.h"
#include "media/runs.h"

#include <string.h>

#define PLACE_STEP UINT64_C(0x9e3779b97f4a7c15)
#define HIGH_STEP UINT64_C(0xd6e8feb86659fd93)
#define MIXER UINT64_C(0xff51afd7ed558ccd)
#define BYTE_ONES UINT64_C(0x0101010101010101)
#define BLOCK_WORDS 64
#define WORD UINT64_C(8)

struct key {
  uint64_t base;   /* from the high bits of the number */
  uint64_t repeat; /* the low 8 bits, 8 times */
};

/* A short frame has no room to say more than the low 8 bits. */
static struct key make_key(uint64_t number, uint64_t size) {
  uint64_t high = size < 2 * WORD ? 0 : number >> 8;
  struct key key = {high * HIGH_STEP, (number & 0xff) * BYTE_ONES};
  return key;
}

static inline uint64_t fold(uint64_t x) { return x ^ (x >> 32); } /* undoes itself */

static inline uint64_t mix(uint64_t x) { return fold(fold(x) * MIXER); }

static inline uint64_t word_at(struct key key, uint64_t index) {
  return mix(key.base + (index + 1) * PLACE_STEP) ^ key.repeat;
}

static inline uint8_t byte_at(struct key key, uint64_t position) {
  return (uint8_t)(word_at(key, position / WORD) >> (8 * (position % WORD)));
}

/* Whole words are written and compared as such; the pieces before and behind them, byte by byte. */
static uint64_t bytes_to_word(uint64_t position, uint64_t bytes) {
  uint64_t head = (WORD - position % WORD) % WORD;
  return head < bytes ? head : bytes;
}

struct fill {
  struct key key;
  uint8_t *slot;
};

static int64_t fill_run(void *context, uint64_t offset, uint64_t position, uint64_t bytes) {
  const struct fill *fill = context;
  const struct key key = fill->key;
  uint8_t *to = fill->slot + offset;
  uint64_t done = bytes_to_word(position, bytes);
  for (uint64_t i = 0; i < done; i++)
    to[i] = byte_at(key, position + i);
  uint64_t index = (position + done) / WORD;
  for (; done + WORD <= bytes; done += WORD, index++) {
    uint64_t word = word_at(key, index);
    memcpy(to + done, &word, WORD);
  }
  for (; done < bytes; done++)
    to[done] = byte_at(key, position + done);
  return -1;
}

void pattern_bytes_fill(const cudalink_description *description, void *slot, uint64_t size,
                        uint64_t number) {
  struct fill fill = {make_key(number, size), slot};
  runs_visit(description, fill_run, &fill);
}

struct comparison {
  struct key key;
  const uint8_t *slot;
};

static int64_t compare_bytes(struct key key, const uint8_t *from, uint64_t position,
                             uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++)
    if (from[i] != byte_at(key, position + i)) return (int64_t)(position + i);
  return -1;
}

/* Blocks without a branch inside, so that the compiler is free to take several words at once. */
static uint64_t block_difference(struct key key, const uint8_t *from, uint64_t index,
                                 uint64_t words) {
  uint64_t difference = 0;
  for (uint64_t i = 0; i < words; i++) {
    uint64_t word;
    memcpy(&word, from + i * WORD, WORD);
    difference |= word ^ word_at(key, index + i);
  }
  return difference;
}

static int64_t compare_run(void *context, uint64_t offset, uint64_t position, uint64_t bytes) {
  const struct comparison *comparison = context;
  const struct key key = comparison->key;
  const uint8_t *from = comparison->slot + offset;
  uint64_t done = bytes_to_word(position, bytes);
  int64_t wrong = compare_bytes(key, from, position, done);
  while (wrong == -1 && done + WORD <= bytes) {
    uint64_t words = (bytes - done) / WORD < BLOCK_WORDS ? (bytes - done) / WORD : BLOCK_WORDS;
    if (block_difference(key, from + done, (position + done) / WORD, words))
      wrong = compare_bytes(key, from + done, position + done, words * WORD);
    done += words * WORD;
  }
  return wrong != -1 ? wrong : compare_bytes(key, from + done, position + done, bytes - done);
}

/* Picks some packed bytes out of a frame. */
struct pick {
  const uint8_t *slot;
  uint64_t position;
  uint64_t size;
  uint8_t *to;
};

static int64_t pick_run(void *context, uint64_t offset, uint64_t position, uint64_t bytes) {
  const struct pick *pick = context;
  if (position >= pick->position + pick->size) return 0;
  uint64_t from = pick->position > position ? pick->position - position : 0;
  for (uint64_t i = from; i < bytes && position + i < pick->position + pick->size; i++)
    pick->to[position + i - pick->position] = pick->slot[offset + i];
  return -1;
}

/* x such that x * odd = 1, by Newton's method; each round doubles the right bits, from 3. */
static uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int i = 0; i < 5; i++)
    x *= 2 - odd * x;
  return x;
}

/* Which number has these two words at `index`? Each of 256 low parts gives one high part, and only
 * the right pair explains the second word as well. */
static int find_number(const uint64_t words[2], uint64_t index, uint64_t *number) {
  const uint64_t unmixer = inverse(MIXER), unstep = inverse(HIGH_STEP);
  for (uint64_t low = 0; low < 256; low++) {
    uint64_t x = fold(fold(words[0] ^ low * BYTE_ONES) * unmixer);
    uint64_t high = (x - (index + 1) * PLACE_STEP) * unstep;
    if (high >> 56) continue;
    struct key key = {high * HIGH_STEP, low * BYTE_ONES};
    if (word_at(key, index + 1) != words[1]) continue;
    *number = high << 8 | low;
    return 1;
  }
  return 0;
}

/* The start may be the torn part, so the middle and the end are asked as well. */
static uint64_t read_number(const cudalink_description *description, const uint8_t *slot,
                            uint64_t size) {
  uint64_t words[2] = {0}, number;
  struct pick pick = {slot, 0, size < 2 * WORD ? size : 2 * WORD, (uint8_t *)words};
  if (size < 2 * WORD) {
    runs_visit(description, pick_run, &pick);
    return (words[0] ^ word_at(make_key(0, size), 0)) & 0xff;
  }
  const uint64_t last = size / WORD - 2;
  const uint64_t places[] = {0, last / 2, last};
  for (int i = 0; i < 3; i++) {
    pick.position = places[i] * WORD;
    runs_visit(description, pick_run, &pick);
    if (find_number(words, places[i], &number)) return number;
  }
  return 0;
}

int64_t pattern_bytes_check(const cudalink_description *description, const void *slot,
                            uint64_t size, uint64_t *number) {
  *number = size ? read_number(description, slot, size) : 0;
  struct comparison comparison = {make_key(*number, size), slot};
  return runs_visit(description, compare_run, &comparison);
}
