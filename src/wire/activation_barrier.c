/* SPDX-License-Identifier: MIT
 *
 * The machine-wide barrier of the old wire. Old programs change its count without atomics; ours do
 * it with, which loses nothing among ours. The 5 s rule repairs the rest.
 */
#include "wire/activation_barrier.h"

#include <inttypes.h>

#include "base/error.h"

int wire_barrier_open(void *block, uint64_t mapped) {
  struct wire_barrier *barrier = block;
  if (mapped < sizeof *barrier)
    return error_set(CUDALINK_ERROR_PROTOCOL, "%s has %" PRIu64 " bytes; it must have %zu",
                     WIRE_BARRIER_NAME, mapped, sizeof *barrier);
  /* The version is there before the magic says so. Partner: the acquire load below. */
  uint32_t found = atomic_load_explicit(&barrier->magic, memory_order_acquire);
  if (found == 0) {
    atomic_store_explicit(&barrier->version, WIRE_BARRIER_VERSION, memory_order_relaxed);
    /* When two open at once both write the same. */
    atomic_compare_exchange_strong_explicit(&barrier->magic, &found, WIRE_BARRIER_MAGIC,
                                            memory_order_acq_rel, memory_order_acquire);
    if (found == 0) return CUDALINK_OK;
  }
  uint32_t version = atomic_load_explicit(&barrier->version, memory_order_relaxed);
  if (found == WIRE_BARRIER_MAGIC && version == WIRE_BARRIER_VERSION) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_PROTOCOL,
                   "%s holds magic %#" PRIx32 ", version %" PRIu32 "; it must be %#x, %u: is it "
                   "another program's?",
                   WIRE_BARRIER_NAME, found, version, WIRE_BARRIER_MAGIC, WIRE_BARRIER_VERSION);
}

/* The time first, so that a count that is seen comes with a time no older than its own. */
static void stamp(struct wire_barrier *barrier, uint64_t now, uint32_t pid) {
  atomic_store_explicit(&barrier->last_change, now, memory_order_relaxed);
  atomic_store_explicit(&barrier->last_writer, pid, memory_order_relaxed);
}

void wire_barrier_hold(struct wire_barrier *barrier, uint64_t now, uint32_t pid) {
  stamp(barrier, now, pid);
  /* Partner: the acquire load in wire_barrier_ask. */
  atomic_fetch_add_explicit(&barrier->active_count, 1, memory_order_release);
}

void wire_barrier_release(struct wire_barrier *barrier, uint64_t now, uint32_t pid) {
  stamp(barrier, now, pid);
  uint32_t count = atomic_load_explicit(&barrier->active_count, memory_order_relaxed);
  while (count > 0 &&
         !atomic_compare_exchange_weak_explicit(&barrier->active_count, &count, count - 1,
                                                memory_order_release, memory_order_relaxed)) {
  }
}

enum wire_barrier_answer wire_barrier_ask(struct wire_barrier *barrier, uint64_t now,
                                          uint64_t limit) {
  /* Partner: the release in wire_barrier_hold. */
  if (atomic_load_explicit(&barrier->active_count, memory_order_acquire) == 0)
    return WIRE_BARRIER_GO;
  uint64_t changed = atomic_load_explicit(&barrier->last_change, memory_order_relaxed);
  if (changed > now || now - changed > limit) return WIRE_BARRIER_STALE;
  atomic_fetch_add_explicit(&barrier->skips, 1, memory_order_relaxed);
  return WIRE_BARRIER_SKIP;
}
