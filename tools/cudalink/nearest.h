/* SPDX-License-Identifier: MIT
 *
 * "Did you mean ...?"
 */
#ifndef CUDALINK_NEAREST_H
#define CUDALINK_NEAREST_H

struct nearest {
  const char *word;
  const char *best; /* NULL: none of the candidates so far comes near */
  unsigned distance;
};

struct nearest nearest_to(const char *word);
void nearest_offer(struct nearest *nearest, const char *candidate);

#endif
