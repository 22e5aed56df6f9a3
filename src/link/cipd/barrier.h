/* SPDX-License-Identifier: MIT
 *
 * Obeying the activation barrier: the machine-wide segment in which TouchDesigner senders say that
 * they are starting up. It is looked for, never made.
 */
#ifndef CUDALINK_SRC_LINK_CIPD_BARRIER_H
#define CUDALINK_SRC_LINK_CIPD_BARRIER_H

#include "os/os.h"
#include "wire/activation_barrier.h"

struct link_barrier {
  struct os_named named; /* address NULL: there is none, or it is something else */
  uint64_t limit;        /* ns: held for longer than this it is ignored */
};

/* Finds it when it is there, and lets go of one that is not under its name any more. */
void link_barrier_look(struct link_barrier *barrier);
enum wire_barrier_answer link_barrier_ask(struct link_barrier *barrier, uint64_t now);
void link_barrier_close(struct link_barrier *barrier);

#endif
