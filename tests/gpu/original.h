/* SPDX-License-Identifier: MIT
 *
 * The other end of the old wire as its original plays it: written from the layout in
 * docs/protocol.md and the driver API, and not through src/wire or src/link. Both ends are helpers:
 *
 *   old_producer  name= slots= width= height= comps= kind= bits= flags= weak= exact=
 *     frames N | run | hang | format W H COMPS KIND BITS FLAGS | poke AT BYTES VALUE | stop
 *   old_consumer  name=
 *     take | state
 *
 * Frames hold the pattern of their index plus 1000 times their version.
 */
#ifndef CUDALINK_TESTS_GPU_ORIGINAL_H
#define CUDALINK_TESTS_GPU_ORIGINAL_H

#include "gpu.h"

#define ORIGINAL_MAX_SLOTS 64

/* Offsets, for N slots. */
#define AT_MAGIC 0u
#define AT_VERSION 4u
#define AT_SLOTS 12u
#define AT_INDEX 16u
#define AT_MEMORY(i) (20u + 128u * (i))
#define AT_EVENT(i) (84u + 128u * (i))
#define AT_SHUTDOWN(n) (20u + 128u * (n))
#define AT_WIDTH(n) (21u + 128u * (n))
#define AT_HEIGHT(n) (25u + 128u * (n))
#define AT_COMPS(n) (29u + 128u * (n))
#define AT_KIND(n) (33u + 128u * (n))
#define AT_BITS(n) (34u + 128u * (n))
#define AT_FLAGS(n) (35u + 128u * (n))
#define AT_SIZE(n) (37u + 128u * (n))
#define AT_TIME(n) (41u + 128u * (n))
#define ORIGINAL_BYTES(n) (49u + 128u * (n))

struct original_format {
  unsigned width, height, comps, kind, bits, flags;
};
static inline uint64_t original_bytes(const struct original_format *format) {
  return (uint64_t)format->width * format->height * format->comps * (format->bits / 8);
}
static inline uint64_t original_pattern(uint64_t version, uint64_t index) {
  return version * 1000 + index;
}

/* The seven types. */
struct original_type {
  const char *name;
  unsigned kind, bits, flag;
  cudalink_dtype_code code;
};
#define ORIGINAL_TYPES 7
extern const struct original_type original_types[ORIGINAL_TYPES];

/* A name for this test's segment; what an earlier run left there is removed. */
const char *segment_name(void);
/* A mapping of it for writing, and its size. */
uint8_t *segment_map(const char *name, size_t *bytes);
uint64_t segment_get(const uint8_t *block, unsigned at, unsigned bytes);
void segment_put(uint8_t *block, unsigned at, unsigned bytes, uint64_t value);
bool segment_exists(const char *name);

#endif
