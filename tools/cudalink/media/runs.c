/* SPDX-License-Identifier: MIT
 *
 * Walks over a frame in the order of its packed bytes.
 */
#include "media/runs.h"

struct walk {
  const cudalink_plane *plane;
  runs_visitor visitor;
  void *context;
  uint64_t position;
  uint64_t run;        /* bytes that lie side by side */
  uint32_t dimensions; /* that are not part of a run */
};

/* Trailing dimensions without gaps become part of the run. Elements of less than a byte fill the
 * last dimension without gaps. */
static void find_run(struct walk *walk) {
  const cudalink_plane *plane = walk->plane;
  uint64_t bits = (uint64_t)plane->dtype.bits * plane->dtype.lanes;
  walk->dimensions = plane->dimensions;
  if (bits < 8 && walk->dimensions > 0) bits *= (uint64_t)plane->shape[--walk->dimensions];
  walk->run = (bits + 7) / 8;
  while (walk->dimensions > 0) {
    uint32_t k = walk->dimensions - 1;
    if (plane->shape[k] != 1 && plane->strides[k] != (int64_t)walk->run) break;
    walk->run *= (uint64_t)plane->shape[k];
    walk->dimensions = k;
  }
}

static int64_t visit_dimension(struct walk *walk, uint32_t k, uint64_t offset) {
  if (k == walk->dimensions) {
    uint64_t position = walk->position;
    walk->position += walk->run;
    return walk->visitor(walk->context, offset, position, walk->run);
  }
  for (int64_t i = 0; i < walk->plane->shape[k]; i++) {
    int64_t result =
        visit_dimension(walk, k + 1, offset + (uint64_t)i * (uint64_t)walk->plane->strides[k]);
    if (result != -1) return result;
  }
  return -1;
}

static int is_empty(const cudalink_plane *plane) {
  for (uint32_t k = 0; k < plane->dimensions; k++)
    if (plane->shape[k] == 0) return 1;
  return 0;
}

int64_t runs_visit(const cudalink_description *description, runs_visitor visitor, void *context) {
  struct walk walk = {.visitor = visitor, .context = context};
  for (uint32_t i = 0; i < description->plane_count; i++) {
    walk.plane = &description->planes[i];
    if (is_empty(walk.plane)) continue;
    find_run(&walk);
    int64_t result = visit_dimension(&walk, 0, walk.plane->offset);
    if (result != -1) return result;
  }
  return -1;
}
