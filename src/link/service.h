/* SPDX-License-Identifier: MIT
 *
 * The service thread: one per process, for all its exporters and importers.
 *
 * It owns the listeners, the connections and the name locks, in a descriptor table that nothing of
 * the program can reach: that is how a death is seen at once, and how a forked child inherits
 * nothing. It never blocks, calls no user code but the log callback, and makes no CUDA call.
 *
 * A record that it refers to (source, timer, work) lies in a record that is never freed.
 */
#ifndef CUDALINK_SRC_LINK_SERVICE_H
#define CUDALINK_SRC_LINK_SERVICE_H

#include "os/os.h"

/* Starts the thread when it does not run yet. FORKED in a forked child. */
int service_start(void);
/* CUDALINK_OK, or FORKED in a child of the process that used the library. */
int service_refuse_fork(void);
static inline int service_check_fork(void) {
  return os_forked() ? service_refuse_fork() : CUDALINK_OK;
}

/* Runs `function(argument)` on the service thread and waits for it. What it returns is returned,
 * with its error sentence. From the service thread itself it is a plain call. */
int service_call(int (*function)(void *argument), void *argument);

/* Asks the service thread to run `run(work)` soon. Any thread; no lock; at most one system call; a
 * work that is posted already is not posted twice. */
struct service_work {
  void (*run)(struct service_work *work);
  _Atomic uint32_t posted;
  struct service_work *next;
};
void service_post(struct service_work *work);

/* The rest is for the service thread only. */
struct service_source {
  void (*ready)(struct service_source *source, const struct os_event *event);
  os_handle handle;
};
int service_watch(struct service_source *source, os_handle handle, bool writable);
int service_watch_writable(struct service_source *source, bool writable);
/* Stops watching; the handle stays open and in `source`. */
void service_unwatch(struct service_source *source);

struct service_timer {
  void (*fire)(struct service_timer *timer);
  uint64_t due; /* ns */
  struct service_timer *before, *next;
  bool linked; /* it is set */
};
void service_timer_set(struct service_timer *timer, void (*fire)(struct service_timer *timer),
                       uint64_t due);
void service_timer_stop(struct service_timer *timer);
/* ns: a listener that has no descriptor left for who comes looks again then; nobody tells when one is free. */
#define SERVICE_LISTEN_AGAIN 100000000

/* Descriptors from the service thread's table to the program's and back. On the program's thread. */
int service_give(os_handle handle,
                 os_handle *inside); /* a copy of `handle` in the service's table */
int service_take(os_handle inside,
                 os_handle *handle); /* a copy of `inside` in the program's table */
/* Closes a handle of the service's table, from any thread. */
void service_close(os_handle inside);

/* On the service thread: this process's end signals `word` (os_death_arm); until disarmed. */
int service_death_arm(os_handle word, uint64_t *id);
void service_death_disarm(uint64_t id);
/* Has the peer that armed this word ended or let go of it? Then the word is no longer watched, and closed. */
bool service_word_ended(struct service_source *word);

enum os_isolation service_isolation(void);

/* For walks over sources: is this the service thread? */
bool service_is_current(void);

#endif
