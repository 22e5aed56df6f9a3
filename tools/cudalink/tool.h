/* SPDX-License-Identifier: MIT
 *
 * Runs another program to its end, with a limit, and keeps what it said.
 */
#ifndef CUDALINK_TOOL_H
#define CUDALINK_TOOL_H

#include <stdint.h>

enum tool_end {
  TOOL_ENDED,   /* `status` is its exit status, 128 + N after signal N */
  TOOL_MISSING, /* there is no such program */
  TOOL_STUCK,   /* it was ended at the limit */
  TOOL_FAILED   /* the system refused; errno says why */
};

struct tool {
  enum tool_end end;
  int status;
  char output[4096]; /* stdout and stderr, cut, without the last newline */
};

/* `arguments` as for execvp, found in PATH; `text` is its standard input; `limit` in ns, more
 * than 24 days is none. What it leaves running, a daemon, is not waited for. Once a stop is requested
 * (stop.h) it gets SIGTERM, and is waited for all the same. */
void tool_run(struct tool *tool, char *const arguments[], const char *text, int64_t limit);

#endif
