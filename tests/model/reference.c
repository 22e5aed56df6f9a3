/* SPDX-License-Identifier: MIT
 *
 * The lease protocol in its smallest form, between processes, recorded: what replay.pml is tested with before the
 * real code is. Each mutation breaks one rule; every recorded run of it in which that matters must be rejected.
 *
 *   reference SEED [consumers]    with CUDALINK_TRACE_FILE set
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/trace.h"

#define SLOTS 3
#define ENTRIES 2
#define FRAMES 30
#define TRIES 150 /* so that a run stays short while the machine is busy */
#define MAX_CONSUMERS 2

struct mailbox {
  _Atomic uint64_t want[ENTRIES], done[ENTRIES], verdict;
};
static struct shared {
  _Atomic uint64_t st[SLOTS], head, gen;
  struct mailbox mailbox[MAX_CONSUMERS];
  _Atomic bool finished;
  _Atomic uint32_t joined;
} * shared;
static _Atomic bool stop_streams;
static unsigned consumers = 1;

struct random {
  uint64_t state;
};
static unsigned pick(struct random *random, unsigned below) {
  random->state = random->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (unsigned)(random->state >> 33) % below;
}
static void wobble(struct random *random) {
  for (unsigned i = pick(random, 4); i > 1; i--)
    sched_yield();
}

/* ---- consumer ------------------------------------------------------------------------------------- */

struct consumer {
  unsigned number;
  uint64_t ticket, word[ENTRIES];
  struct random random;
  _Atomic uint64_t queued[ENTRIES]; /* its stream: words to land */
};

static int take(struct consumer *c) {
  struct mailbox *box = &shared->mailbox[c->number];
  uint64_t g = atomic_load(&shared->gen), h = atomic_load(&shared->head), sequence = h >> 6,
           slot = h & 63;
  int e = -1;
  wobble(&c->random); /* so that the frame may be gone by now */
  for (int i = 0; i < ENTRIES && e < 0; i++) {
    uint64_t want = atomic_load(&box->want[i]);
#ifdef REUSE_ENTRY /* mutation: an entry is used again before its release has landed */
    if (!c->word[i]) e = i;
    (void)want;
#else
    if (!c->word[i] && (!want || atomic_load(&box->done[i]) == want)) e = i;
#endif
  }
  if (!h || e < 0) return -1;
  uint64_t word = ++c->ticket << 30 | g << 6 | slot;
  TRACE_BEGIN();
#ifdef CHECK_FIRST /* mutation: looks at st before the lease is stored */
  bool there = atomic_load(&shared->st[slot]) == sequence;
  wobble(&c->random);
  atomic_store(&box->want[e], word);
#else
  atomic_store(&box->want[e], word);
  wobble(&c->random);
#ifdef NO_CHECK /* mutation: doesn't look at st */
  bool there = true;
#else
  bool there = !atomic_load(&box->verdict) && atomic_load(&shared->st[slot]) == sequence &&
               atomic_load(&shared->gen) == g;
#endif
#endif
  if (!there) atomic_store(&box->want[e], 0);
  TRACE_END(TAKE, e, word, sequence, there);
  if (!there) return -1;
  c->word[e] = word;
  return e;
}

static void give(struct consumer *c, int e) {
  struct mailbox *box = &shared->mailbox[c->number];
  if (pick(&c->random, 2)) {
    TRACE_BEGIN();
    atomic_store(&box->want[e], 0);
    TRACE_END(RELEASE, e, c->word[e], 0, 0);
  } else {
    TRACE_BEGIN();
    atomic_store(&c->queued[e], c->word[e]);
    TRACE_END(RELEASE_STREAM, e, c->word[e], 0, 0);
  }
  c->word[e] = 0;
}

static void *run_stream(void *argument) {
  struct consumer *c = argument;
  struct random random = {c->random.state ^ 77};
  while (!atomic_load(&stop_streams)) {
    for (int e = 0; e < ENTRIES; e++) {
      if (pick(&random, 3)) continue; /* it lands some time later */
      uint64_t word = atomic_exchange(&c->queued[e], 0);
      if (!word) continue;
      TRACE_BEGIN();
      atomic_store(&shared->mailbox[c->number].done[e], word);
      TRACE_END(LANDED, e, word, 0, 0);
    }
    sched_yield();
  }
  return NULL;
}

static void run_consumer(struct consumer *c) {
  pthread_t stream;
  pthread_create(&stream, NULL, run_stream, c);
  TRACE(JOINED, c->number, ENTRIES, 0, 0);
  atomic_fetch_add(&shared->joined, 1);
  int held = -1;
  for (unsigned tries = 0; !atomic_load(&shared->finished); tries++) {
    int e = tries < TRIES ? take(c) : -1;
    wobble(&c->random);
    if (held >= 0) give(c, held);
    held = e;
    sched_yield();
  }
  if (held >= 0) give(c, held);
  atomic_store(&stop_streams, true);
  pthread_join(stream, NULL);
}

/* ---- producer --------------------------------------------------------------------------------------- */

static uint64_t current = 1;

static bool wanted(uint64_t slot) {
  for (unsigned m = 0; m < consumers; m++) {
#ifdef NO_SCAN_LAST /* mutation: forgets the last entry */
    for (int e = 0; e < ENTRIES - 1; e++) {
#else
    for (int e = 0; e < ENTRIES; e++) {
#endif
      uint64_t want = atomic_load(&shared->mailbox[m].want[e]);
      if (want && atomic_load(&shared->mailbox[m].done[e]) == want) want = 0;
      TRACE(SCAN, m, e, slot, want);
      if (want && (want & 63) == slot && (want >> 6 & 0xffffff) == current) return true;
    }
  }
  return false;
}

static bool own(uint64_t slot, struct random *random) {
  uint64_t old = atomic_load(&shared->st[slot]);
#ifdef SCAN_FIRST /* mutation: looks at the leases before the mark */
  bool held = wanted(slot);
  wobble(random);
#endif
  TRACE_BEGIN();
#ifndef NO_MARK /* mutation: there is none, though the record says so */
  atomic_store(&shared->st[slot], 0);
#endif
  TRACE_END(MARK, slot, old, 0, 0);
  wobble(random);
#ifdef SCAN_FIRST
  if (!held) return true;
#elif defined(IGNORE_LEASE) /* mutation: now and then a lease is overlooked */
  if (!wanted(slot) || pick(random, 4) == 0) return true;
#else
  if (!wanted(slot)) return true;
#endif
  TRACE_BEGIN();
  atomic_store(&shared->st[slot], old);
  TRACE_END(UNMARK, slot, old, 0, 0);
  return false;
}

static void publish(uint64_t slot, uint64_t sequence) {
  TRACE_BEGIN();
  atomic_store(&shared->st[slot], sequence);
  atomic_store(&shared->head, sequence << 6 | slot);
  TRACE_END(PUBLISH, slot, sequence, current, 0);
}

static void change(void) {
  TRACE_BEGIN();
#ifdef GENERATION_FIRST /* mutation: the wrong order of the switch */
  atomic_store(&shared->gen, ++current);
  for (int i = 0; i < 8; i++)
    sched_yield();
#endif
  for (int s = 0; s < SLOTS; s++)
    atomic_store(&shared->st[s], 0);
  atomic_store(&shared->head, 0);
#ifndef GENERATION_FIRST
  atomic_store(&shared->gen, ++current);
#endif
  TRACE_END(GENERATION, current, 0, 0, 0);
}

static void run_producer(struct random *random) {
  uint64_t newest = SLOTS;
  uint64_t sequence = 1;
  for (unsigned tries = 0; sequence <= FRAMES && tries < TRIES; tries++) {
    if (pick(random, 12) == 0 && current < 5) {
      change();
      newest = SLOTS;
    }
    uint64_t slot = pick(random, SLOTS);
    if (slot == newest || !own(slot, random)) {
      sched_yield();
      continue;
    }
    publish(slot, sequence++);
    newest = slot;
    wobble(random);
    sched_yield();
  }
}

int main(int count, char **arguments) {
  uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
  if (count > 2) consumers = (unsigned)atoi(arguments[2]);
  if (consumers < 1 || consumers > MAX_CONSUMERS) return 2;
  struct random random = {seed * 2654435761u + 1};
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  TRACE(EXPORTER, 0, 0, 0, 0);
  TRACE_BEGIN();
  atomic_store(&shared->gen, 1);
  TRACE_END(GENERATION, 1, 0, 0, 0);
  for (unsigned m = 0; m < consumers; m++)
    TRACE(JOIN, m, ENTRIES, 0, 0);
  for (unsigned m = 0; m < consumers; m++) {
    if (fork()) continue;
    struct consumer consumer = {.number = m, .random = {seed * 40503u + m + 7}};
    run_consumer(&consumer);
    _exit(0);
  }
  while (atomic_load(&shared->joined) < consumers)
    sched_yield();
  run_producer(&random);
  atomic_store(&shared->finished, true);
  while (wait(NULL) > 0) {
  }
  return 0;
}
