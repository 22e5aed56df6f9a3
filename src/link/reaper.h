/* SPDX-License-Identifier: MIT
 *
 * The reaper: a thread that may block while it unmaps and frees.
 *
 * It is started by a program's thread, together with the service thread and not by it: a thread made
 * by the service thread would share its descriptor table, and a long unmap would then keep the
 * sockets of a killed process open.
 */
#ifndef CUDALINK_SRC_LINK_REAPER_H
#define CUDALINK_SRC_LINK_REAPER_H

#include "gpu/gpu.h"

int reaper_start(void);

/* Takes over what is in *block (or *segment), which becomes empty. Never blocks. */
void reaper_block(struct gpu_block *block);
void reaper_segment(struct os_segment *segment);
/* The same for a segment with words that streams of `device` (may be NULL) may still wait for. */
void reaper_segment_after_waits(struct os_segment *segment, struct gpu_device *device);
/* The same for words that were registered with the device: has it forget them first. */
void reaper_words(struct os_segment *segment, struct gpu_device *device);
/* Runs a function that may block and make CUDA calls. */
void reaper_call(void (*function)(void *argument), void *argument);
/* Delivers a log line of the service thread, on which no user code may run: whatever the callback
 * writes to, its descriptor means something else there. */
void reaper_log(cudalink_log_level level, const char *text);
/* Closes the device once everything handed over before has been done. */
void reaper_device(struct gpu_device *device);
/* Blocks until everything handed over so far is done. For tests and leak checks. */
void reaper_drain(void);

#endif
