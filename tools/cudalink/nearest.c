/* SPDX-License-Identifier: MIT
 *
 * "Did you mean ...?": the candidate with the fewest letters to change.
 */
#include "nearest.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#define LONGEST 32

static unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }

/* Levenshtein's distance, one row of the table at a time. */
static unsigned distance_between(const char *a, const char *b) {
  unsigned row[LONGEST + 1];
  size_t length_a = strlen(a), length_b = strlen(b);
  if (length_a > LONGEST || length_b > LONGEST) return UINT_MAX;
  for (size_t j = 0; j <= length_b; j++)
    row[j] = (unsigned)j;
  for (size_t i = 1; i <= length_a; i++) {
    unsigned diagonal = row[0];
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= length_b; j++) {
      unsigned change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = smaller(change, smaller(row[j], row[j - 1]) + 1);
    }
  }
  return row[length_b];
}

struct nearest nearest_to(const char *word) {
  unsigned limit = (unsigned)strlen(word) / 3 + 1; /* farther away is another word */
  return (struct nearest){.word = word, .distance = limit + 1};
}

void nearest_offer(struct nearest *nearest, const char *candidate) {
  unsigned distance = distance_between(nearest->word, candidate);
  if (distance >= nearest->distance) return;
  nearest->best = candidate;
  nearest->distance = distance;
}
