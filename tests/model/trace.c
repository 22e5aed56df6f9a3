/* SPDX-License-Identifier: MIT
 *
 * The recorder behind src/link/trace.h: every process of a run appends to the file that CUDALINK_TRACE_FILE
 * names, mapped by all of them. Without that variable nothing is recorded.
 *
 * Stamps come from one counter by seq_cst read-modify-writes: on every machine they are full barriers, so an
 * operation really lies between the stamps around it. (So a recording can't show a missing fence.)
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "link/trace.h"
#include "trace_file.h"

static struct trace_file *file;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local uint64_t began;    /* 0 = TRACE_BEGIN was not called */
static _Thread_local uint64_t finished; /* stamp of this thread's event before */

static void open_file(void) {
  const char *path = getenv("CUDALINK_TRACE_FILE");
  if (!path) return;
  int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return;
  void *address = MAP_FAILED;
  if (ftruncate(descriptor, sizeof *file) ==
      0) /* the same size for everybody: sparse until it is used */
    address = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (address == MAP_FAILED) return;
  file = address;
  atomic_store(&file->magic, TRACE_FILE_MAGIC);
}

static struct trace_file *get_file(void) {
  pthread_once(&once, open_file);
  return file;
}

/* Now and then the others get some time, just before an operation: so that races happen in short runs. */
static void wobble(void) {
  static _Thread_local uint32_t state;
  state = (state ? state : (uint32_t)getpid()) * 1664525u + 1013904223u;
  if (state >> 30) return;
  for (uint32_t i = state >> 20 & 255; i > 0; i--)
    sched_yield();
}

void link_trace_begin(void) {
  struct trace_file *trace = get_file();
  if (trace) wobble();
  if (trace) began = atomic_fetch_add(&trace->stamp, 1) + 1;
}

void link_trace_end(enum trace_event event, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  struct trace_file *trace = get_file();
  if (!trace) return;
  uint64_t end = atomic_fetch_add(&trace->stamp, 1) + 1;
  uint64_t index = atomic_fetch_add(&trace->count, 1);
  if (index < TRACE_FILE_RECORDS)
    trace->record[index] = (struct trace_record){
        .begin = began ? began : finished,
        .end = end,
        .event = event,
        .process = (uint32_t)getpid(),
        .argument = {a, b, c, d},
    };
  began = 0;
  finished = end;
}
