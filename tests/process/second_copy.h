/* SPDX-License-Identifier: MIT
 *
 * What second_copy.so gives away: its own copy of the library, under other names.
 */
#ifndef CUDALINK_TESTS_PROCESS_SECOND_COPY_H
#define CUDALINK_TESTS_PROCESS_SECOND_COPY_H

#include "cudalink/cudalink.h"

int second_open_importer(const char *name);
int second_acquire(cudalink_frame *frame);
int second_release(cudalink_frame *frame);
int second_close_importer(void);
int second_open_exporter(const char *name);
int second_close_exporter(void);
const char *second_last_error(void);

#endif
