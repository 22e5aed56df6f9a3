/* SPDX-License-Identifier: MIT
 *
 * What the program's exit status says. `cudalink help` prints the same list.
 */
#ifndef CUDALINK_EXIT_CODE_H
#define CUDALINK_EXIT_CODE_H

/* X(NAME, value, text) */
#define EXIT_CODES(X)                                                                              \
  X(OK, 0, "done")                                                                                 \
  X(CHECK, 1, "a check failed: torn or lost frames, a target that was missed")                     \
  X(USAGE, 2, "the command line can't be understood")                                              \
  X(CHANNEL, 3, "the channel or the other end: not found, name in use, refused, died")             \
  X(FILE, 4, "an input or output file: missing, damaged, disk full")                               \
  X(SYSTEM, 5, "this machine: no memory, no such GPU or driver, the system refused")

enum exit_code {
#define EXIT_CODE_ENUM(name, value, text) EXIT_CODE_##name = value,
  EXIT_CODES(EXIT_CODE_ENUM)
#undef EXIT_CODE_ENUM
  /* Ended by a signal, after everything was put away: 128 + its number, as shells count. */
  EXIT_CODE_SIGNAL = 128
};

#endif
