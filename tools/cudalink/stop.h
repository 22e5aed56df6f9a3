/* SPDX-License-Identifier: MIT
 *
 * Ending on request: SIGINT, SIGTERM and SIGHUP set one flag and wake whoever waits here. A third
 * signal ends the program at once.
 */
#ifndef CUDALINK_STOP_H
#define CUDALINK_STOP_H

#include <signal.h>
#include <stdint.h>

int stop_install(void);

/* The flag, for media_reader_options and media_writer_options. */
const volatile sig_atomic_t *stop_flag(void);
int stop_requested(void);

/* A descriptor that is readable once a signal came, for polls of others. */
int stop_descriptor(void);

/* Waits until cudalink_now() is `time`. 1: a signal came, 0: the time has come. */
int stop_wait_until(uint64_t time);

/* `code`, or 128 + the signal's number when one came. */
int stop_exit_code(int code);

#endif
