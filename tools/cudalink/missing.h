/* SPDX-License-Identifier: MIT
 *
 * Why there is no answer from a channel.
 */
#ifndef CUDALINK_MISSING_H
#define CUDALINK_MISSING_H

/* Says why cudalink_channel_get gave `error` for the name: its producer is stopped, has died, is called
 * a little differently, or there is none. Returns the exit code. */
int missing_report(const char *name, int error);

#endif
