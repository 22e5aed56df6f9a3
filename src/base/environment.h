/* SPDX-License-Identifier: MIT
 *
 * The environment variables that this library reads: one table. docs/environment.md is made from it,
 * and a test fails when a CUDALINK_ variable is used anywhere without being in it.
 */
#ifndef CUDALINK_SRC_BASE_ENVIRONMENT_H
#define CUDALINK_SRC_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, TYPE, DEFAULT, LARGEST, TEXT): the name without CUDALINK_. A FLAG is on when it is "1", and
 * off else; a NUMBER is decimal, up to LARGEST; PRIORITY and BACKEND are words, in the order of their numbers; a TEXT is
 * read where it is used. */
/* clang-format off */
#define ENVIRONMENT_VARIABLES(X) \
  X(RUNTIME_DIR, TEXT, 0, 0, \
    "The folder of a producer's channels, and where consumers look first; read at each open") \
  X(LIB_STREAM_PRIO, PRIORITY, 2, 2, \
    "Exporter: `own_stream_priority`; counts when `own_stream` is set") \
  X(EXPORT_SYNC, FLAG, 0, 1, "Exporter: `export_sync`, send and publish return when the pixels are complete") \
  X(EXPORT_FLUSH_PROBE, FLAG, 0, 1, "Exporter: `flush_probe`, the stream is asked for its state after queuing") \
  X(STRICT_DEVICE, FLAG, 0, 1, "Exporter: `strict_device`, memory of another GPU is refused") \
  X(D2H_STREAMS, NUMBER, 1, 8, "Importer: `host_streams`, 1 to 8") \
  X(D2H_PIPELINED, FLAG, 0, 1, "Importer: `host_pipelined`, host copies one frame late") \
  X(TORCH_GPU_WAIT, FLAG, 0, 1, "Importer: `gpu_wait`, the stream waits for pixels and not the CPU") \
  X(WAIT_SPIN_US, NUMBER, 0, 1000000, "Importer: `spin`, µs that acquire looks before it sleeps") \
  X(IMPORT_RECONNECT, FLAG, 1, 1, "Importer: 0 = `once`, stay with the first producer") \
  X(ACTIVATION_BARRIER, FLAG, 1, 1, "Old wire: obey the barrier that a starting TouchDesigner sender holds") \
  X(BARRIER_STALE_NS, NUMBER, 5000000000, INT64_MAX, "Old wire: age in ns at which a held barrier is ignored") \
  X(NVML, FLAG, 0, 1, "Programs: show what `cudalink/telemetry.h` tells of the GPU") \
  X(NVTX, FLAG, 0, 1, "Ranges for profilers around begin, publish, send, acquire and release") \
  X(NVTX_VERBOSE, FLAG, 0, 1, "Also ranges inside of these; implies CUDALINK_NVTX") \
  X(REQUIRE_SOURCE_SYNC, FLAG, 0, 1, "Python: refuse a frame without a producer stream. In C a stream is always named") \
  X(ALLOW_PAGEABLE_FALLBACK, FLAG, 0, 1, \
    "Accepted, does nothing here: a copy to the host goes into whatever memory it is given") \
  X(D2H_STREAM_PRIO, PRIORITY, 0, 2, "Accepted, does nothing here: copies to the host run at normal priority") \
  X(IMPORT_RECONNECT_MAX_ATTEMPTS, NUMBER, 20, INT64_MAX, \
    "Accepted, does nothing here: looking for a producer costs nothing, so it has no end") \
  X(USE_GRAPHS, FLAG, 1, 1, "Accepted, does nothing here: a graph is used where it is faster") \
  X(STICKY_ERROR_CHECK, FLAG, 1, 1, "Accepted, does nothing here: each call tells a lost context") \
  X(DOORBELL, FLAG, 0, 1, "Accepted, does nothing on Linux: waiting never polls") \
  X(WAIT_BACKEND, BACKEND, 0, 2, "Accepted, does nothing on Linux: waiting never polls") \
  X(OS_WITHOUT, TEXT, 0, 0, "For tests: names of kernel features to do without")
/* clang-format on */

enum environment_type {
  ENVIRONMENT_FLAG,
  ENVIRONMENT_NUMBER,
  ENVIRONMENT_PRIORITY, /* normal, low, high: cudalink_priority */
  ENVIRONMENT_BACKEND,  /* auto, python, native */
  ENVIRONMENT_TEXT
};

enum environment_name {
#define ENVIRONMENT_NAME(name, type, standard, largest, text) ENVIRONMENT_##name##_VARIABLE,
  ENVIRONMENT_VARIABLES(ENVIRONMENT_NAME)
#undef ENVIRONMENT_NAME
      ENVIRONMENT_COUNT
};

struct environment_variable {
  const char *name; /* with CUDALINK_ */
  enum environment_type type;
  uint64_t standard, largest;
  const char *text;
};
extern const struct environment_variable environment_variables[ENVIRONMENT_COUNT];

/* The words of a PRIORITY or a BACKEND, ending with NULL; NULL for the other types. */
const char *const *environment_words(enum environment_type type);

struct environment_value {
  bool given; /* set, and understood */
  uint64_t value;
};

/* Reads the variable, now. What is not understood is told in a warning with name and value, and
 * counts as not set. A set-uid program has no environment. Any thread, as far as getenv allows. */
struct environment_value environment_read(enum environment_name name);

/* As above, for yes and no. */
bool environment_is_on(enum environment_name name);

#endif
