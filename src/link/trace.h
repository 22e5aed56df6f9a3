/* SPDX-License-Identifier: MIT
 *
 * Recording what really happened, for tests/model/replay.pml; compiles to nothing unless CUDALINK_TRACE is
 * defined. The recorder is tests/model/trace.c; tests/model/README.md says what each event means.
 *
 * TRACE_BEGIN() before the operations on shared words, TRACE_END(EVENT, a, b, c, d) behind them: they happened
 * between the two stamps. TRACE(EVENT, ...) alone: between this thread's event before and now.
 */
#ifndef CUDALINK_SRC_LINK_TRACE_H
#define CUDALINK_SRC_LINK_TRACE_H

#ifndef CUDALINK_TRACE
#define TRACE_BEGIN() ((void)0)
#define TRACE_END(event, a, b, c, d) ((void)0)
#define TRACE(event, a, b, c, d) ((void)0)
#else
#include <stdint.h>

enum trace_event {
  TRACE_NONE,     /* a record that was never finished */
  TRACE_EXPORTER, /* this process is the producer from here on */
  TRACE_JOIN,     /* exporter: member, entries */
  TRACE_LEAVE,    /* exporter: member; it is scanned no more and reads no more */
  TRACE_MARK,     /* exporter: slot, st before */
  TRACE_UNMARK,   /* exporter: slot, st again */
  TRACE_SCAN, /* exporter: member, entry, slot (64 = any), the lease word if it is held, else 0 */
  TRACE_PUBLISH,    /* exporter: slot, sequence, generation */
  TRACE_GENERATION, /* exporter: number; st := 0, head := 0, gen := number */
  TRACE_VERDICT,    /* exporter: member; evicted, SCANs of its entries follow */
  TRACE_RETIRE,     /* exporter: generation, member */
  TRACE_OFFER,      /* exporter: number, slot, sequence, redelivered */
  TRACE_ANNOUNCE,   /* exporter: slot, sequence */
  TRACE_JOINED, /* importer: member, entries; this thread's process is that member from here on */
  TRACE_TAKE, /* importer: entry, lease word, sequence, 1 = confirmed | 2 = by offer | 4 = announced */
  TRACE_RELEASE,        /* importer: entry, lease word */
  TRACE_RELEASE_STREAM, /* importer: entry, lease word; done lands at any time from here on */
  TRACE_LANDED, /* importer's stream, if it can tell: entry, lease word; done has just landed */
};

void link_trace_begin(void);
void link_trace_end(enum trace_event event, uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#define TRACE_BEGIN() link_trace_begin()
#define TRACE_END(event, a, b, c, d)                                                               \
  link_trace_end(TRACE_##event, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d))
#define TRACE(event, a, b, c, d) TRACE_END(event, a, b, c, d)
#endif

#endif
