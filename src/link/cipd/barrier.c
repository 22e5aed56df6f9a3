/* SPDX-License-Identifier: MIT
 *
 * Attaching to the activation barrier. What does not begin with its magic and version is another
 * program's: it is left alone, and does not count as a barrier.
 */
#include "link/cipd/barrier.h"

#include "base/error.h"

#define NAME "/" WIRE_BARRIER_NAME

static bool is_barrier(const struct os_named *named) {
  const struct wire_barrier *barrier = named->segment.address;
  /* acquire: pairs with the compare-exchange in wire_barrier_open, behind the version. */
  return named->segment.bytes >= sizeof *barrier &&
         atomic_load_explicit(&barrier->magic, memory_order_acquire) == WIRE_BARRIER_MAGIC &&
         atomic_load_explicit(&barrier->version, memory_order_relaxed) == WIRE_BARRIER_VERSION;
}

void link_barrier_look(struct link_barrier *barrier) {
  struct os_named *named = &barrier->named;
  if (named->segment.address && os_named_is_current(named, NAME)) return;
  link_barrier_close(barrier);
  if (os_named_open(named, NAME, true) < 0) return;
  os_handle_close(&named->segment.handle);
  if (!is_barrier(named)) link_barrier_close(barrier);
}

enum wire_barrier_answer link_barrier_ask(struct link_barrier *barrier, uint64_t now) {
  if (!barrier->named.segment.address) return WIRE_BARRIER_GO;
  return wire_barrier_ask(barrier->named.segment.address, now, barrier->limit);
}

void link_barrier_close(struct link_barrier *barrier) {
  os_segment_destroy(&barrier->named.segment);
  barrier->named.segment.handle = OS_NO_HANDLE;
}
