/* SPDX-License-Identifier: MIT
 *
 * cudalink/base.h - version, symbol visibility, errors, log.
 *
 * Rules that hold for the whole library and are not repeated at each function:
 *
 *  - Functions return CUDALINK_OK (0) or a negative cudalink_error. Nothing is printed, no signal
 *    handler is set, no signal is raised, the process is never ended.
 *  - A failing call leaves one sentence that says what failed, on which channel, with which values
 *    and what to do: cudalink_last_error(), per thread.
 *  - Handles (cudalink_exporter, cudalink_importer) are numbers. Using one after it was closed is
 *    safe and answers CUDALINK_ERROR_CLOSED.
 *  - Every call may be made from any thread. Calls on one handle take turns for the short part of
 *    their work; a call that sleeps holds nothing that another call needs.
 *  - Times are nanoseconds of CLOCK_MONOTONIC. A time-out of 0 never waits, CUDALINK_FOREVER waits
 *    until something happens; the death of a peer always counts as something.
 *  - After fork() every call in the child answers CUDALINK_ERROR_FORKED. The parent is not touched.
 *  - The first exporter or importer starts two threads, which block every signal and live as long as
 *    the process: the service thread, which keeps its descriptors in a table of its own, calls no
 *    user code and makes no CUDA call; and the reaper, which unmaps memory, frees pinned arrays, asks
 *    whether a GPU is lost, tells owners of what was sent that its copies are done when the exporter is
 *    closed (cudalink_exporter_keep), and delivers log lines. So it may wait for a GPU and runs user code.
 */
#ifndef CUDALINK_BASE_H
#define CUDALINK_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#ifdef CUDALINK_BUILD
#define CUDALINK_API __declspec(dllexport)
#else
#define CUDALINK_API __declspec(dllimport)
#endif
#else
#define CUDALINK_API __attribute__((visibility("default")))
#endif

#define CUDALINK_VERSION_MAJOR 0
#define CUDALINK_VERSION_MINOR 1
#define CUDALINK_VERSION_PATCH 0
#define CUDALINK_VERSION_STRING "0.1.0"

/* The version of the library that is loaded, as major * 10000 + minor * 100 + patch. */
CUDALINK_API uint32_t cudalink_version(void);

/* Wait until something happens. */
#define CUDALINK_FOREVER INT64_MAX

/* Longest channel name, in bytes of UTF-8, without the ending NUL. */
#define CUDALINK_NAME_MAX 200

/* Errors. The list is complete: name, value, one line of text (cudalink_error_text). */
#define CUDALINK_ERRORS(X)                                                                         \
  X(INVALID_ARGUMENT, -1, "an argument is not valid")                                              \
  X(NO_MEMORY, -2, "out of memory")                                                                \
  X(TIMEOUT, -3, "the time-out passed")                                                            \
  X(BUSY, -4, "nothing is free right now")                                                         \
  X(CLOSED, -5, "the handle was closed")                                                           \
  X(LOST, -6, "the peer died")                                                                     \
  X(ENDED, -7, "the producer closed the channel")                                                  \
  X(NOT_FOUND, -8, "no such channel")                                                              \
  X(NAME_IN_USE, -9, "another producer owns the name")                                             \
  X(REFUSED, -10, "not allowed")                                                                   \
  X(PROTOCOL, -11, "the peer broke the protocol")                                                  \
  X(VERSION, -12, "the peer speaks another version")                                               \
  X(TOO_LARGE, -13, "the size does not fit")                                                       \
  X(NO_SPACE, -14, "no room for the memory asked for")                                             \
  X(SYSTEM, -15, "the operating system refused")                                                   \
  X(FORKED, -16, "the process was forked after the library was used")                              \
  X(STREAM, -17, "the stream is not usable here")                                                  \
  X(CAPTURING, -18, "the stream is capturing a graph")                                             \
  X(UNSUPPORTED, -19, "not supported here")                                                        \
  X(GPU, -20, "the CUDA driver refused")                                                           \
  X(GPU_LOST, -21, "the CUDA context is dead")                                                     \
  X(OVERWRITTEN, -22, "the frame was overwritten while it was used")                               \
  X(SKIPPED, -23, "the announced frame was not published")                                         \
  X(EVICTED, -24, "the producer took the frames back")

typedef enum cudalink_error {
  CUDALINK_OK = 0,
#define CUDALINK_ERROR_ENUM(name, value, text) CUDALINK_ERROR_##name = value,
  CUDALINK_ERRORS(CUDALINK_ERROR_ENUM)
#undef CUDALINK_ERROR_ENUM
} cudalink_error;

/* The name of an error: "CUDALINK_ERROR_TIMEOUT". Never NULL, also for an unknown number; static. */
CUDALINK_API const char *cudalink_error_name(int error);
/* The text of an error: "the time-out passed". Never NULL, also for an unknown number; static. */
CUDALINK_API const char *cudalink_error_text(int error);

/* The sentence that the last failing call of this thread left; "" when none failed yet. Valid until
 * the next failing call of this thread. */
CUDALINK_API const char *cudalink_last_error(void);

/* Sets who gets log lines. Without a callback the library is silent; it never writes to a descriptor of its own.
 * The callback is called on the thread that has something to say, or on the reaper thread for the
 * service thread's lines; it must not call cudalink. `text` has no ending newline and is valid during the
 * call only. Passing NULL ends logging; a call under way in another thread may still finish. */
typedef enum cudalink_log_level {
  CUDALINK_LOG_ERROR = 1,
  CUDALINK_LOG_WARNING = 2,
  CUDALINK_LOG_INFO = 3,
  CUDALINK_LOG_DEBUG = 4
} cudalink_log_level;

typedef void (*cudalink_log_callback)(void *context, cudalink_log_level level, const char *text);
CUDALINK_API void cudalink_set_log(cudalink_log_callback callback, void *context,
                                   cudalink_log_level level);

/* CLOCK_MONOTONIC in nanoseconds, the clock of every timestamp here. */
CUDALINK_API uint64_t cudalink_now(void);

#ifdef __cplusplus
}
#endif
#endif
