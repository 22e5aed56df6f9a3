/* SPDX-License-Identifier: MIT
 *
 * The thread of a stream: takes one operation after the other, in turn with the other streams of
 * the context, waits for what it waits for, and carries it out.
 */
#include <signal.h>
#include <time.h>

#include "fake.h"

static _Thread_local bool in_host_function;

bool worker_in_host_function(void) { return in_host_function; }

static bool is_lost(const struct stream *stream) { return stream->context->lost != CUDA_SUCCESS; }

void nap_microseconds(unsigned microseconds) {
  struct timespec time = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
  nanosleep(&time, NULL);
}

void worker_sleep(unsigned microseconds) {
  uint64_t end = fake_now() + (uint64_t)microseconds * 1000u;
  struct timespec deadline = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
  pthread_cond_timedwait(&fake.progress, &fake.lock, &deadline);
}

/* xorshift: the same seed gives the same delays. */
static void random_delay(struct stream *stream) {
  if (!fake.delay) return;
  stream->random ^= stream->random << 13;
  stream->random ^= stream->random >> 7;
  stream->random ^= stream->random << 17;
  unsigned delay = (unsigned)(stream->random % (fake.delay + 1));
  pthread_mutex_unlock(&fake.lock);
  nap_microseconds(delay);
  pthread_mutex_lock(&fake.lock);
}

/* The implicit order of the default stream and the blocking streams of one context. */
static bool in_turn(const struct stream *stream, const struct operation *operation) {
  struct context *context = stream->context;
  if (stream == context->legacy) {
    for (struct stream *other = context->streams; other; other = other->next)
      if (stream_is_blocking(other) && !stream_done_before(other, operation->sequence))
        return false;
    return true;
  }
  return !stream_is_blocking(stream) || !context->legacy ||
         stream_done_before(context->legacy, operation->sequence);
}

/* Other processes and the CPU change what is waited for, so the stream looks again and again. */
static void wait_until_ready(struct stream *stream, struct operation *operation) {
  unsigned nap = 20;
  bool ready = false;
  while (!is_lost(stream)) {
    if (!operation_poll(operation, &ready))
      context_lose(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
    if (ready) return;
    worker_sleep(nap);
    if (nap < 500) nap += nap / 4;
  }
}

static bool is_allowed(const struct stream *stream, const struct operation *operation) {
  for (unsigned i = 0; i < operation->use_count; i++)
    if (!block_allows(operation->uses[i].address, stream->context->device,
                      operation->uses[i].write))
      return false;
  return true;
}

static void carry_out(struct stream *stream, struct operation *operation);

static void carry_out_graph(struct stream *stream, struct operation *operation) {
  while (!is_lost(stream) && !exec_may_run(operation->graph.exec, operation))
    worker_sleep(1000);
  for (struct operation *part = operation->graph.first; part; part = part->next) {
    random_delay(stream);
    carry_out(stream, part);
  }
  exec_finished(operation->graph.exec);
}

static bool run_unlocked(struct stream *stream, struct operation *operation) {
  if (!is_allowed(stream, operation)) return false;
  pthread_mutex_unlock(&fake.lock);
  in_host_function = operation->kind == OPERATION_HOST || operation->kind == OPERATION_CALLBACK;
  bool whole = operation_run(operation);
  in_host_function = false;
  pthread_mutex_lock(&fake.lock);
  return whole;
}

/* One memory operation after the other: a wait in a batch holds up the writes behind it. */
static void carry_out_memory(struct stream *stream, struct operation *operation) {
  struct operation single = *operation;
  single.memory.count = 1;
  for (unsigned i = 0; i < operation->memory.count && !is_lost(stream); i++) {
    single.memory.params = &operation->memory.params[i];
    wait_until_ready(stream, &single);
    if (!is_lost(stream) && !run_unlocked(stream, &single))
      context_lose(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

static void carry_out(struct stream *stream, struct operation *operation) {
  if (operation->kind == OPERATION_MEMORY) {
    carry_out_memory(stream, operation);
    return;
  }
  if (operation->kind == OPERATION_GRAPH) {
    carry_out_graph(stream, operation);
    return;
  }
  wait_until_ready(stream, operation);
  if (is_lost(stream)) return;
  if (!run_unlocked(stream, operation)) context_lose(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
  if (is_lost(stream)) return;
  if (operation->kind == OPERATION_RECORD)
    event_complete(operation->event.event, operation->event.number);
  if (operation->kind == OPERATION_FREE) memory_free_queued(operation->address);
}

static void carry_out_first(struct stream *stream) {
  struct operation *operation = stream->head;
  random_delay(stream);
  while (!is_lost(stream) && (fake.paused || !in_turn(stream, operation)))
    pthread_cond_wait(&fake.progress, &fake.lock);
  carry_out(stream, operation);
  stream->head = operation->next;
  if (!stream->head) stream->tail = NULL;
  operation_free(operation);
  pthread_cond_broadcast(&fake.progress);
}

static void *stream_thread(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&fake.lock);
  while (stream->head || !stream->destroyed) {
    if (stream->head)
      carry_out_first(stream);
    else
      pthread_cond_wait(&stream->wake, &fake.lock);
  }
  stream->running = false;
  if (stream->ended)
    stream_free_if_unused(stream);
  else
    stream_end(stream);
  pthread_mutex_unlock(&fake.lock);
  return NULL;
}

void worker_start(struct stream *stream) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, (size_t)1 << 20);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, stream_thread, stream) != 0)
    fake_abort("cannot start the thread of a stream");
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  stream->running = true;
}
