/* SPDX-License-Identifier: MIT
 *
 * Bytes that follow from a frame's number, its producer's salt, and their place: a frame of which
 * one byte belongs to another frame or producer is noticed.
 */
#ifndef CUDALINK_TESTS_PROCESS_PATTERN_H
#define CUDALINK_TESTS_PROCESS_PATTERN_H

#include <stdint.h>

void pattern_fill(void *data, uint64_t bytes, uint64_t salt, uint64_t sequence);
/* The first wrong byte, or -1. */
int64_t pattern_check(const void *data, uint64_t bytes, uint64_t salt, uint64_t sequence);

#endif
