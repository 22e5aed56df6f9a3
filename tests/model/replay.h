/* SPDX-License-Identifier: MIT
 *
 * Reads a recorded run (trace_file.h) and turns each event into the operations of replay.pml, one list per
 * agent. Included by the verifier that spin makes of replay.pml. Sizes (CONSUMERS, SLOTS...) are its.
 *
 * Exit status of the verifier: 0 accepted, 1 rejected, 2 the file can't be replayed (and why).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDALINK_TRACE
#include "link/trace.h"
#include "replay_sizes.h"
#include "trace_file.h"

enum what {
  DO_NOTHING,
  DO_STORE,
  DO_LOAD,
  DO_SCAN,
  DO_MOMENT,
  DO_JOIN,
  DO_LEAVE,
  DO_LAST_LOOK,
  DO_RETIRE
};

struct operation {
  int what, address, value, extra; /* extra: TAKE's sequence; SCAN's entry */
  uint32_t begin, end;
};

/* Consumers, the producer, and what lands by itself: the done word of each entry. */
#define REPLAY_AGENTS (CONSUMERS + 1 + CONSUMERS * ENTRIES)
#define REPLAY_STREAM(c, e) (CONSUMERS + 1 + (c)*ENTRIES + (e))
#define FOREVER 0x7fffffff

static struct operation *list[REPLAY_AGENTS];
static int length[REPLAY_AGENTS], room[REPLAY_AGENTS];
static int was_accepted;
static int furthest[REPLAY_AGENTS], most; /* for the message of a rejection */

static void refuse(const char *why, uint64_t value) {
  printf("can't replay: %s (%llu)\n", why, (unsigned long long)value);
  fflush(stdout);
  _exit(2);
}

static void append(int agent, const struct trace_record *record, int what, int address, int value,
                   int extra) {
  if (length[agent] == room[agent]) {
    room[agent] = room[agent] ? 2 * room[agent] : 256;
    list[agent] = realloc(list[agent], (size_t)room[agent] * sizeof **list);
  }
  list[agent][length[agent]++] = (struct operation){
      what, address, value, extra, (uint32_t)record->begin, (uint32_t)record->end};
}

/* ---- who is who: a member number names another consumer after each JOIN ------------------------------ */

static int joins[64], joined_seen[64]; /* per member number: JOINs and JOINEDs so far */
static int consumer_of[64][64];        /* member number, nth JOIN -> consumer */
static int consumers;
static struct {
  uint32_t process;
  int consumer;
} owner[1024];
static int owners;

static int current(uint64_t member) {
  if (member >= 64 || !joins[member]) refuse("an event of a member that never joined", member);
  return consumer_of[member][joins[member] - 1];
}

static int of_process(uint32_t process) {
  for (int i = owners - 1; i >= 0; i--)
    if (owner[i].process == process) return owner[i].consumer;
  refuse("a lease in a process that never joined", process);
  return 0;
}

/* ---- the words of the model --------------------------------------------------------------------------- */

static int slot_of(uint64_t slot) {
  if (slot >= SLOTS) refuse("more slots than the model has", slot);
  return (int)slot;
}

static int lease_of(uint64_t word) { /* ticket:34 | generation:24 | slot:6 */
  uint64_t generation = word >> 6 & 0xffffff, ticket = word >> 30;
  if (!word) return 0;
  if (generation >= GENERATIONS) refuse("more generations than the model has", generation);
  return (int)((ticket * GENERATIONS + generation) * SLOTS + (uint64_t)slot_of(word & 63)) + 1;
}

#define WANT_AT(c, e) (SLOTS + 2 + (c)*ENTRIES + (e))
#define DONE_AT(c, e) (SLOTS + 2 + (CONSUMERS + (c)) * ENTRIES + (e))
#define VERDICT_AT(c) (SLOTS + 2 + 2 * CONSUMERS * ENTRIES + (c))

static void producer_event(const struct trace_record *r) {
  const int p = CONSUMERS;
  uint64_t a = r->argument[0], b = r->argument[1];
  switch (r->event) {
  case TRACE_JOIN:
    if (consumers == CONSUMERS) refuse("more consumers than the model has", CONSUMERS);
    if (a >= CONSUMERS || b > ENTRIES) refuse("more members or entries than the model has", a);
    consumer_of[a][joins[a]++] = consumers;
    append(p, r, DO_JOIN, consumers++, (int)b, (int)a);
    break;
  case TRACE_LEAVE: append(p, r, DO_LEAVE, current(a), 0, (int)a); break;
  case TRACE_MARK:
    append(p, r, DO_LOAD, slot_of(a), (int)b, 0);
    append(p, r, DO_STORE, slot_of(a), 0, 0);
    break;
  case TRACE_UNMARK: append(p, r, DO_STORE, slot_of(a), (int)b, 0); break;
  case TRACE_SCAN: append(p, r, DO_SCAN, current(a), lease_of(r->argument[3]), (int)b); break;
  case TRACE_PUBLISH:
    if (r->argument[2] >= GENERATIONS)
      refuse("more generations than the model has", r->argument[2]);
    append(p, r, DO_MOMENT, slot_of(a), (int)b, (int)r->argument[2]);
    append(p, r, DO_STORE, slot_of(a), (int)b, 0);
    append(p, r, DO_STORE, SLOTS, (int)((b * GENERATIONS) * SLOTS + a) + 1, 0);
    break;
  case TRACE_GENERATION:
    if (a >= GENERATIONS) refuse("more generations than the model has", a);
    for (int s = 0; s < SLOTS; s++)
      append(p, r, DO_STORE, s, 0, (int)a);
    append(p, r, DO_STORE, SLOTS, 0, 0);
    append(p, r, DO_STORE, SLOTS + 1, (int)a, 0);
    break;
  case TRACE_VERDICT: append(p, r, DO_STORE, VERDICT_AT(current(a)), 1, (int)a); break;
  case TRACE_RETIRE:
    if (a >= GENERATIONS) refuse("more generations than the model has", a);
    append(p, r, DO_RETIRE, (int)a, 0, 0);
    break;
  default: break; /* offers and announcements: not in this model */
  }
}

/* A stream that is a thread may say when it stored done: then it did not land earlier. */
static void landed(const struct trace_record *r) {
  int agent = REPLAY_STREAM(of_process(r->process), (int)r->argument[0]);
  int word = lease_of(r->argument[1]);
  for (int i = 0; i < length[agent]; i++) {
    if (list[agent][i].value != word) continue;
    list[agent][i].begin = (uint32_t)r->begin;
  }
}

static void consumer_event(const struct trace_record *r) {
  uint64_t e = r->argument[0], flags = r->argument[3];
  if (r->event == TRACE_JOINED) {
    if (e >= 64 || joined_seen[e] >= joins[e]) refuse("JOINED before JOIN", e);
    if (owners == 1024) refuse("too many processes", 1024);
    owner[owners].process = r->process;
    owner[owners++].consumer = consumer_of[e][joined_seen[e]++];
    return;
  }
  int c = of_process(r->process), word = lease_of(r->argument[1]);
  if (e >= ENTRIES) refuse("more entries than the model has", e);
  switch (r->event) {
  case TRACE_TAKE:
    if (flags & ~UINT64_C(1))
      refuse("leases by offer or announcement are not in this model", flags);
    append(c, r, DO_STORE, WANT_AT(c, (int)e), word, (int)r->argument[2]);
    append(c, r, DO_LOAD, VERDICT_AT(c), -1, 0);
    append(c, r, DO_LOAD, slot_of(r->argument[1] & 63), -1, 0);
    append(c, r, DO_LOAD, SLOTS + 1, -1, 0);
    if (!flags) append(c, r, DO_STORE, WANT_AT(c, (int)e), 0, 0);
    break;
  case TRACE_RELEASE:
    append(c, r, DO_MOMENT, (int)e, word, 0);
    append(c, r, DO_STORE, WANT_AT(c, (int)e), 0, 0);
    break;
  case TRACE_RELEASE_STREAM:
    c = REPLAY_STREAM(c,
                      (int)e); /* streams are independent: only the order of one entry is known */
    append(c, r, DO_STORE, DONE_AT(of_process(r->process), (int)e), word, 0);
    list[c][length[c] - 1].end = FOREVER;
    break;
  default: break;
  }
}

/* Who leaves without another word of its own is dead and reads no more; others may still hold frames. */
static void find_deaths(void) {
  for (int i = 0; i < length[CONSUMERS]; i++) {
    struct operation *leave = &list[CONSUMERS][i];
    if (leave->what != DO_LEAVE) continue;
    int c = leave->address;
    leave->value = !length[c] || list[c][length[c] - 1].end < leave->end;
  }
}

static int by_end(const void *a, const void *b) {
  const struct trace_record *x = a, *y = b;
  return x->end < y->end ? -1 : x->end > y->end;
}

static void trace_read(void) {
  static struct trace_file file;
  const char *path = getenv("TRACE");
  FILE *stream = path ? fopen(path, "rb") : NULL;
  if (!stream || fread(&file, offsetof(struct trace_file, record), 1, stream) != 1 ||
      file.magic != TRACE_FILE_MAGIC)
    refuse("TRACE names no recorded run", 0);
  uint64_t count = file.count;
  if (count > TRACE_FILE_RECORDS) refuse("the run was too long to be recorded whole", count);
  if (fread(file.record, sizeof file.record[0], count, stream) != count) refuse("cut short", count);
  fclose(stream);
  qsort(file.record, count, sizeof file.record[0], by_end);
  for (uint64_t i = 0; i < count; i++) {
    const struct trace_record *r = &file.record[i];
    if (r->event == TRACE_NONE) refuse("a process ended inside an event", r->process);
    if (r->event >= TRACE_JOINED)
      consumer_event(r);
    else
      producer_event(r);
  }
  for (uint64_t i = 0; i < count;
       i++) /* may have been recorded before the release that it belongs to */
    if (file.record[i].event == TRACE_LANDED) landed(&file.record[i]);
  find_deaths();
}

/* ---- called by the model -------------------------------------------------------------------------------- */

static const struct operation *operation_at(int agent, int position) {
  static const struct operation none = {DO_NOTHING, 0, 0, 0, FOREVER, FOREVER};
  return position < length[agent] ? &list[agent][position] : &none;
}

static void note_progress(const int *position) {
  int sum = 0;
  for (int a = 0; a < REPLAY_AGENTS; a++)
    sum += position[a];
  if (sum <= most) return;
  most = sum;
  memcpy(furthest, position, sizeof furthest);
}

static int all_done(const int *position) {
  for (int a = 0; a < REPLAY_AGENTS; a++)
    if (position[a] < length[a] && operation_at(a, position[a])->end != FOREVER) return 0;
  return 1;
}

/* At exit: the verifier has tried every order, or has found one. */
static void tell_if_rejected(void) {
  if (was_accepted) return;
  int total = 0;
  for (int a = 0; a < REPLAY_AGENTS; a++)
    total += length[a];
  printf(
      "rejected: no order of the %d operations is one of the model; it comes as far as %d, then\n",
      total, most);
  for (int a = 0; a < REPLAY_AGENTS; a++) {
    const struct operation *o = operation_at(a, furthest[a]);
    if (o->what)
      printf("  %s %d: operation %d of %d: kind %d, word %d, value %d, stamps %u to %u\n",
             a < CONSUMERS    ? "consumer"
             : a == CONSUMERS ? "producer"
                              : "release by a stream",
             a < CONSUMERS    ? a
             : a == CONSUMERS ? 0
                              : a - CONSUMERS - 1,
             furthest[a], length[a], o->what, o->address, o->value, o->begin, o->end);
  }
  fflush(stdout);
  _exit(1);
}
