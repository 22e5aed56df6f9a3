/* SPDX-License-Identifier: MIT
 *
 * The steps of the lease protocol, shared by lease.pml (every interleaving) and replay.pml (recorded runs
 * of the real code). Each inline has the name of the C function that it stands for.
 *
 * Rules (without one of them the protocol tears or gets stuck):
 *   MARK    link_own_slot stores st := 0 before it looks at the leases
 *   FENCE   both sides order that store before their loads (seq_cst)
 *   TICKET  a lease word carries a number that differs for each lease (else: the frame's sequence)
 *   ENTRY   a lease takes an entry that is not used again until its release has landed
 *           (else: one acquired/released pair per slot)
 *   VERDICT the consumer looks at the verdict after leasing; link_evict stores it before its last look
 */
#ifdef ENTRY
#define ENTRIES_USED ENTRIES
#else
#define ENTRIES_USED SLOTS
#endif

/* Addresses of the shared words. */
#define ST(s) (s)
#define HEAD SLOTS
#define GEN (SLOTS + 1)
#define WANT(c, e) (SLOTS + 2 + MAILBOX(c) * ENTRIES_USED + (e))
#define DONE(c, e) (SLOTS + 2 + (CONSUMERS + MAILBOX(c)) * ENTRIES_USED + (e))
#define VERDICT_OF(c) (SLOTS + 2 + 2 * CONSUMERS * ENTRIES_USED + MAILBOX(c))
#define WORDS (SLOTS + 2 + 2 * CONSUMERS * ENTRIES_USED + CONSUMERS)

/* A lease word: never 0. The same packing serves as head (sequence, 0, slot). */
#define LEASE(ticket, g, s) ((((ticket) * GENERATIONS + (g)) * SLOTS + (s)) + 1)
#define LEASE_SLOT(word) (((word) - 1) % SLOTS)
#define LEASE_GENERATION(word) ((((word) - 1) / SLOTS) % GENERATIONS)
#define LEASE_TICKET(word) (((word) - 1) / (SLOTS * GENERATIONS))

#define MEMORY(g, s) ((g) * SLOTS + (s))
byte readers[SLOTS * GENERATIONS];      /* ghost: CPUs and GPUs that really read that memory */
bool writing[SLOTS * GENERATIONS];      /* ghost: the producer owns it */

/* src/link/lease.c: store the lease, then look whether the frame is still there. */
inline link_lease_take(c, e, word, s, g, q, there) {
  store(c, WANT(c, e), word);
  fence(c);
  there = true;
#if defined(VERDICT)
  load(c, VERDICT_OF(c), seen); there = there && seen == 0;
#endif
  load(c, ST(s), seen); there = there && seen == q;
#if GENERATIONS > 1
  load(c, GEN, seen); there = there && seen == g;
#endif
  if
  :: there -> atomic { never(torn, writing[MEMORY(g, s)]); readers[MEMORY(g, s)]++ }
  :: else ->
#ifdef ENTRY
     store(c, WANT(c, e), 0)
#else
     /* one pair per slot: given back unless another lease of ours uses it */
     if :: held_now == 0 -> store(c, DONE(c, e), word) :: else fi
#endif
  fi
}

/* src/link/lease.c, COMPLETE: the reads are over, then the word goes. */
inline link_lease_release(c, e, word, memory) {
  moment(c);
  atomic { never(torn, writing[memory]); readers[memory]-- };
#ifdef ENTRY
  store(c, WANT(c, e), 0)
#else
  store(c, DONE(c, e), word)
#endif
}

/* src/link/slot.c, take and link_slot_wanted: mark, look at every entry of every member, keep it or unmark. */
inline link_own_slot(s, g, mine) {
  load(PRODUCER, ST(s), old);
#ifdef MARK
  store(PRODUCER, ST(s), 0);
  fence(PRODUCER);
#endif
  c = 0; mine = true;
  do
  :: c < CONSUMERS && mine && scanned[c] ->
     e = 0;
     do
     :: e < entries_of(member_at(c)) && mine -> entry_held(member_at(c), e, s, g, mine); e++
     :: else -> break
     od;
     c++
  :: c < CONSUMERS && mine && !scanned[c] -> c++
  :: else -> break
  od;
  if
  :: mine -> atomic { never(torn, readers[MEMORY(g, s)] != 0); writing[MEMORY(g, s)] = true }
  :: else ->
#ifdef MARK
     store(PRODUCER, ST(s), old)
#else
     skip
#endif
  fi
}

/* src/link/publish.c, show. */
inline link_publish(s, g, q) {
  moment(PRODUCER);
  atomic { never(torn, readers[MEMORY(g, s)] != 0); writing[MEMORY(g, s)] = false };
  store(PRODUCER, ST(s), q);
  store(PRODUCER, HEAD, LEASE(q, 0, s))
}

/* src/link/generation.c, link_generation_switch. */
inline link_generation_switch(g) {
  s = 0;
  do
  :: s < SLOTS -> store(PRODUCER, ST(s), 0); s++
  :: else -> break
  od;
  store(PRODUCER, HEAD, 0);
  store(PRODUCER, GEN, g)
}
